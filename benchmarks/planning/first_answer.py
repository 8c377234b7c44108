"""The first answer: the plan after a few seconds against what a practitioner would start, on thirty clusters.

For each cluster and model: seconds of an iteration after each time limit, over the best structured plan, over the best
modelled system that trains the same mathematics, and over a long search. Run with ``--long 600`` for the table of
docs/benchmarks.md; it takes hours, and ``--only 3`` takes the first three clusters.

``--generated 50`` draws fifty clusters of 1 to 512 GPUs instead, and compares the plan with every plain grid in rank
order, with the modelled systems, and with the plans of jobs that name tensor parallelism, sharding or the micro-batch.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.planning.iteration.problem import SearchTarget
from dtfm_lab.planning.iteration.structured import StructuredPlans
from dtfm_lab.planning.search import SearchRequest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "planning" / "iteration"))
from generated_clusters import cluster
from test_structured_plans import plain_grids

SYSTEMS = ("ddp", "fsdp", "megatron", "dt-fm")
NVLINK_GBPS, PCIE_GBPS = 3600.0, 200.0


def hosts(*kinds: tuple[str, int], per_host: int = 8, inside: float = NVLINK_GBPS, gbps: float = 400.0) -> Topology:
    """Hosts of each kind of GPU, in one region."""
    return regions([kinds], per_host=per_host, inside=inside, gbps=gbps)


def regions(
    places: list[tuple[tuple[str, int], ...]],
    *,
    per_host: int = 8,
    inside: float = NVLINK_GBPS,
    gbps: float = 400.0,
    apart: float = 5.0,
) -> Topology:
    """Hosts of each kind in each region; ``apart`` Gbit/s between regions, 30 ms away."""
    devices, host, region = [], [], []
    for r, kinds in enumerate(places):
        for gpu, n_hosts in kinds:
            for _ in range(n_hosts):
                h = len(set(host))
                for g in range(per_host):
                    name = f"host-{h}" if per_host > 1 else ""
                    devices.append(Device(name=f"host-{h}-{g}", gpu=gpu, host=name, region=f"region-{r}"))
                    host.append(h)
                    region.append(r)
    here, there = np.array(host), np.array(region)
    same_host, same_region = here[:, None] == here, there[:, None] == there
    bandwidth = np.where(same_host, inside, np.where(same_region, gbps, apart))
    latency_ms = np.where(same_host, 0.005, np.where(same_region, 0.02, 30.0))
    np.fill_diagonal(latency_ms, 0.0)
    return Topology(tuple(devices), latency_ms * 1e-3, bandwidth * 1e9 / 8, name="cluster")


def clusters() -> Iterator[tuple[str, Topology, str]]:
    """Thirty clusters, each with a model that people train on such a one."""
    for n_hosts, model in ((1, "gpt2-small"), (1, "llama-3-8b"), (2, "gpt3-xl"), (4, "llama-3-8b"), (8, "llama-3-8b")):
        yield f"{n_hosts} x 8 H100", hosts(("H100", n_hosts)), model
    for n_hosts, model in ((16, "llama-3-8b"), (32, "llama-3-70b"), (64, "llama-3-70b"), (128, "llama-3.1-405b")):
        yield f"{n_hosts} x 8 H100, 3200 Gbit/s", hosts(("H100", n_hosts), gbps=3200.0), model
    for n_hosts, model in ((256, "llama-3.1-405b"), (512, "llama-3-70b")):
        yield f"{n_hosts} x 8 H100, 3200 Gbit/s", hosts(("H100", n_hosts), gbps=3200.0), model
    for n_hosts, model in ((2, "gpt3-xl"), (4, "llama-3-8b"), (16, "llama-3-8b")):
        yield f"{n_hosts} x 8 H100 PCIe", hosts(("H100 PCIe", n_hosts), inside=PCIE_GBPS, gbps=200.0), model
    for n_hosts, model in ((4, "gpt2-small"), (8, "gpt3-xl"), (16, "gpt3-xl")):
        yield f"{n_hosts} x 4 RTX 4090", hosts(("RTX 4090", n_hosts), per_host=4, inside=PCIE_GBPS, gbps=25.0), model
    for a, b, model in ((1, 1, "gpt3-xl"), (2, 2, "llama-3-8b"), (8, 8, "llama-3-8b"), (4, 1, "gpt3-xl")):
        yield f"{a} x 8 A100 and {b} x 8 V100", hosts(("A100", a), ("V100", b), inside=1200.0, gbps=100.0), model
    mixed = hosts(("A100", 8), ("V100", 8), ("laptop", 8), per_host=1, gbps=10.0)
    yield "8 A100, 8 V100, 8 laptops", mixed, "gpt2-small"
    yield "8 A100, 8 V100, 8 laptops", mixed, "gpt3-xl"
    yield "4 RTX 3080, 4 RTX 4090", hosts(("RTX 3080", 4), ("RTX 4090", 4), per_host=1, gbps=10.0), "llama-2-7b"
    for n_regions, n_hosts, model in ((2, 1, "gpt3-xl"), (3, 2, "gpt3-xl"), (2, 4, "llama-3-8b"), (3, 8, "llama-3-8b")):
        places = [(("A100", n_hosts),)] * n_regions
        yield f"{n_regions} regions of {n_hosts} x 8 A100", regions(places, inside=2400.0), model
    yield "8 V100 here, 8 A100 there, 1 Gbit/s", regions([(("V100", 1),), (("A100", 1),)], apart=1.0), "gpt3-xl"
    yield "3 regions of 16 A100", regions([(("A100", 16),)] * 3, per_host=1, gbps=10.0, apart=1.0), "gpt3-xl"


def family_s(topology: Topology, job: lab.Job) -> tuple[float, int]:
    """Seconds of the best structured plan, all of them estimated and the best few hundred simulated; and how many."""
    found = StructuredPlans(SearchRequest(topology=topology, job=job, planner="evolutionary"), SearchTarget())
    found.estimate(lambda: False)
    return min((one.best_s for one in found.simulated() if one is not None), default=np.inf), found.n_simulated


def systems_s(topology: Topology, job: lab.Job) -> float:
    """Seconds of the best modelled system, links as in the plan; infinite if none fits."""
    try:
        outcomes = lab.strategies(topology, job, systems=SYSTEMS, queueing="pairs")
    except LabError:  # none fits
        return np.inf
    return min((one.iteration_s for one in outcomes if one.iteration_s is not None), default=np.inf)


MODELS = (
    ("gpt2-small", 512),
    ("gpt3-xl", 64),
    ("gpt3-xl", 1024),
    ("llama-2-7b", 256),
    ("llama-3-8b", 512),
    ("llama-3-70b", 512),
)
"""Models and batches of the drawn clusters."""
MOST_HOSTS = (2, 4, 8, 16, 64)
NAMED: tuple[dict[str, object], ...] = ({"tensor_parallel": 1}, {"sharding": "none"}, {"microbatch": 1})


def planned_s(topology: Topology, job: lab.Job, seconds: float) -> float:
    """Seconds of the plan's iteration; infinite where nothing fits."""
    try:
        return searched(topology, job, seconds)[0]
    except LabError:
        return np.inf


def generated(n: int, seconds: float) -> None:
    """Print the drawn clusters on which the plan is slower than one of its opponents, and how many there are."""
    behind = {"a plain grid": 0, "a modelled system": 0, "a job that names more": 0}
    fitting, worst = 0, 0.0
    for seed in range(n):
        topology = cluster(100 + seed, most_hosts=MOST_HOSTS[seed % len(MOST_HOSTS)])
        model, batch = MODELS[seed % len(MODELS)]
        job = lab.load_job(model, global_batch=batch)
        ours = planned_s(topology, job, seconds)
        fitting += np.isfinite(ours)
        theirs = {
            "a plain grid": min(plain_grids(topology, job), default=np.inf),
            "a modelled system": systems_s(topology, job),
            "a job that names more": min(planned_s(topology, job.with_fields(**one), seconds) for one in NAMED),
        }
        for what, best_s in theirs.items():
            if np.isfinite(best_s) and ours > best_s * (1 + 1e-6):
                behind[what] += 1
                worst = max(worst, ours / best_s)
                print(
                    f"{seed}: {len(topology)} GPUs, {model}, batch {batch}: {ours / best_s:.4f} of {what}", flush=True
                )
    said = ", ".join(f"{count} behind {what}" for what, count in behind.items())
    print(f"{n} clusters, on {fitting} of which the model fits: {said}; at worst {worst:.4f} times as long")


def searched(topology: Topology, job: lab.Job, seconds: float) -> tuple[float, float, float]:
    """Seconds of the plan, those until the first answer, and those that the search took."""
    began, first = time.perf_counter(), np.nan
    step = None
    for step in lab.search(topology, job, objective="iteration", seconds=seconds):  # noqa: B007
        first = time.perf_counter() - began if np.isnan(first) else first
    return step.best_s, first, time.perf_counter() - began


def main() -> None:
    """Print a row for each cluster as it is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, nargs="+", default=[2.0, 5.0, 30.0])
    parser.add_argument("--long", type=float, default=0.0, help="seconds of the long search; none if 0")
    parser.add_argument("--from", dest="first", type=int, default=0, help="cluster to begin with, counted from 0")
    parser.add_argument("--only", type=int, default=10**6, help="clusters that are tried from there on")
    parser.add_argument("--systems", action="store_true", help="try the modelled systems, too")
    parser.add_argument("--generated", type=int, default=0, help="drawn clusters instead")
    asked = parser.parse_args()
    searched(hosts(("H100", 1), per_host=2), lab.load_job("gpt2-small"), 30.0)  # compiles once
    if asked.generated:
        generated(asked.generated, asked.seconds[0])
        return
    heads = [f"{s:g} s" for s in asked.seconds]
    print("| cluster, model | GPUs | family, s |", " | ".join(heads), "| over systems | over long | first, took (s) |")
    for (name, topology, model), _ in zip(islice(clusters(), asked.first, None), range(asked.only), strict=False):
        job = lab.load_job(model)
        try:
            best_s, _ = family_s(topology, job)
            found = [searched(topology, job, seconds) for seconds in asked.seconds]
            system_s = systems_s(topology, job) if asked.systems else np.nan
            long_s = searched(topology, job, asked.long)[0] if asked.long else np.nan
        except LabError as error:
            print(f"| {name}, {model} | {len(topology)} | {error} |")
            continue
        plans = " | ".join(f"{one[0] / best_s:.3f}" for one in found)
        took = ", ".join(f"{one[1]:.1f} of {one[2]:.1f}" for one in found)
        middle = found[min(1, len(found) - 1)][0]
        over = f"{middle / system_s:.3f} | {middle / long_s:.3f}"
        print(f"| {name}, {model} | {len(topology)} | {best_s:.3f} | {plans} | {over} | {took} |", flush=True)


if __name__ == "__main__":
    main()
