"""1,024 GPUs in 60 seconds: degree of tensor parallelism, sharding, shape, cut and placement, against Megatron's rule.

128 hosts of eight A100s, 300 GB/s between two GPUs of a host and a network of 200 GB/s (8 x 200 Gbit/s) a host, as in
Narayanan et al. 2021. By its rule tensor parallelism fills a host, the pipeline is the shortest that fits, the rest is
data parallel; each of its plans is simulated with every sharding and both 1F1B and recomputation, the best counts.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from machine import machine_line

import dtfm_lab as lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import MODELS, Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan

HOSTS, PER_HOST = 128, 8
MODEL_NAMES = ("gpt3-175b", "llama-2-70b")
BATCH = 2048
SECONDS = 55.0
"""Of the search; the rest of the minute is for compiling and the last simulation."""


def network(n_hosts: int = HOSTS) -> Topology:
    """Hosts of eight A100s."""
    host = np.arange(n_hosts * PER_HOST) // PER_HOST
    same = host[:, None] == host[None, :]
    return Topology.from_matrices(
        latency_s=np.where(same, 5e-6, 2e-5),
        bandwidth_bytes_per_s=np.where(same, 300e9, 200e9),
        hosts=[f"host-{i}" for i in host],
        gpu="A100",
        name=f"{n_hosts} hosts of {PER_HOST}",
    )


def by_hand(groups: Topology, job: Job) -> Plan | None:
    """The best plan of the rule: for each sharding the shortest pipeline that fits."""
    best: Plan | None = None
    for sharding in ("none", "zero-1"):
        for recompute in (False, True):
            fields = {"tensor_parallel": PER_HOST, "sharding": sharding, "recompute": recompute, "schedule": "1f1b"}
            found = _shortest_that_fits(groups, job.with_fields(**fields))
            if found is not None and (best is None or found.iteration_s < best.iteration_s):
                best = found
    return best


def _shortest_that_fits(groups: Topology, job: Job) -> Plan | None:
    n = len(groups)
    for n_stages in (s for s in range(1, n + 1) if n % s == 0):
        shaped = job.with_fields(n_stages=n_stages, n_replicas=n // n_stages)
        try:
            placed = lab.evaluate(groups, shaped, stages=np.arange(n).reshape(n_stages, -1).tolist())
        except LabError:  # more stages than blocks
            return None
        if lab.memory(placed).fits:
            return placed
    return None


def main() -> None:
    print(machine_line())
    for name in MODEL_NAMES:
        job = Job(
            name=name,
            model=MODELS[name],
            global_batch=BATCH,
            microbatch=1,
            dtype="bf16",
            tensor_parallel=None,
            sharding=None,
        )
        whole = network()
        hand = by_hand(whole.grouped(PER_HOST), job)
        began = time.perf_counter()
        found = lab.plan(whole, job, objective="iteration", seconds=SECONDS)
        wall_s = time.perf_counter() - began
        chosen = found.job
        hand_s = float("nan") if hand is None or hand.iteration_s is None else hand.iteration_s
        print(
            f"{name} on {len(whole)} GPUs: {found.iteration_s:.2f} s in {wall_s:.0f} s of planning "
            f"(tensor {chosen.tensor_parallel}, {chosen.n_stages} x {chosen.n_replicas}, {chosen.sharding}), "
            f"by hand {hand_s:.2f} s" + ("" if hand is None else f" ({hand.job.n_stages} x {hand.job.n_replicas})"),
            flush=True,
        )
        if not lab.memory(found).fits or not found.iteration_s <= hand_s:
            sys.exit(f"{name}: the plan does not fit, or is slower than by hand")


if __name__ == "__main__":
    main()
