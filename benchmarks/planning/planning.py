"""Quality of plans and time to find them: the paper's cases, irregular networks, 1,024 devices, the first picture.

Opponents in the same run: ``random`` on the paper's cases and on the thousand devices; on the irregular networks
the best placements of a prototype (best of three searches of 12 CPU seconds; ``tests/data/networks``).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np

import dtfm_lab as lab
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning.cost import align, pair_costs, total_costs
from dtfm_lab.planning.search import PROVEN, PlanStep, search

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "extensions" / "proofs"))
from bound_networks import NETWORKS, reference

CASES = {
    "datacenter": 3.439799,
    "spot": 31.634160,
    "universities": 16.086840,
    "regional": 34.802041,
    "worldwide": 49.218380,
}
"""Proven optima in seconds."""
FIRST_PICTURE = """
import time, dtfm_lab as lab
topology, job = lab.load_topology("worldwide"), lab.load_job("dtfm-gpt3-xl")
began = time.perf_counter()
step = next(step for step in lab.search(topology, job, seconds=2) if step.operator == "structure")
lab.figures.coarse_graph(step.plan)
print(time.perf_counter() - began)
"""


@click.command(help=__doc__)
@click.option("--seconds", default=5.0, show_default=True, help="CPU seconds on each irregular network.")
@click.option("--seeds", default=3, show_default=True, help="Runs on each irregular network.")
@click.option("--only", type=click.Choice(["cases", "irregular", "thousand", "first"]), help="One part alone.")
def main(seconds: float, seeds: int, only: str | None) -> None:
    for name, part in (
        ("cases", cases),
        ("irregular", lambda: irregular(seconds, seeds)),
        ("thousand", thousand),
        ("first", first_picture),
    ):
        if only in (None, name):
            part()


def cases() -> None:
    """Seconds until the known optimum is reached, as numbered and with the devices renumbered at random."""
    job = lab.load_job("dtfm-gpt3-xl")
    print(f"{'case':14}{'optimum':>12}{'ours':>12}{'after':>12}{'worst of 10 renumbered':>25}{'random':>12}{'gap':>8}")
    for name, optimum_s in CASES.items():
        topology = lab.load_topology(name)
        last, reached_s = until(topology, job, optimum_s, 2.0)
        shuffled = [topology.subset(np.random.default_rng(k).permutation(len(topology))) for k in range(10)]
        worst_s = max(until(one, job, optimum_s, 2.0)[1] for one in shuffled)
        chance = lab.plan(topology, job, planner="random", seconds=2.0)
        print(
            f"{name:14}{optimum_s:>12.6f}{last.best_s:>12.6f}{reached_s:>10.3f} s{worst_s:>23.3f} s"
            f"{chance.cost.total_s:>12.3f}{last.gap:>8.1%}",
            flush=True,
        )


def until(topology: Topology, job: Job, optimum_s: float, seconds: float) -> tuple[PlanStep, float]:
    """The last step and the seconds until the optimum was reached, infinite where it was not."""
    reached_s = np.inf
    for step in search(topology, job, seconds=seconds):
        if step.best_s <= optimum_s + 1e-6 and reached_s == np.inf:
            reached_s = step.seconds
    return step, reached_s


def irregular(seconds: float, seeds: int) -> None:
    """Cost as a share of the prototype's best, and the proven gap, after so many CPU seconds."""
    names = json.loads((NETWORKS / "index.json").read_text())
    print(
        f"\n{f'{seconds:g} CPU seconds':14}{'known':>12}{'median':>12}{'median ratio':>14}{'worst ratio':>14}{'gap':>8}"
    )
    gaps = []
    for name in names:
        topology, job, known_s = reference(name)
        lasts = [_after(topology, job, seed, seconds) for seed in range(seeds)]
        found = np.array([step.best_s for step in lasts])
        gaps.append(float(np.median([step.gap for step in lasts])))
        print(
            f"{name:14}{known_s:>12.4f}{np.median(found):>12.4f}{np.median(found) / known_s:>14.4f}"
            f"{found.max() / known_s:>14.4f}{gaps[-1]:>8.1%}",
            flush=True,
        )
    print(f"median gap {np.median(gaps):.1%}")


def _after(topology: Topology, job: Job, seed: int, seconds: float) -> PlanStep:
    for _ in search(topology, job, seed=seed, steps=2):  # loads the kernels before the clock starts
        pass
    began = time.process_time()
    return next(
        step
        for step in search(topology, job, seed=seed, seconds=10 * seconds + 60)
        if step.gap < PROVEN or time.process_time() - began > seconds
    )


def thousand() -> None:
    """1,024 jittered devices over 40 sites as 32 x 32, against random placements, best paired in their own order."""
    topology, job = forty_sites(1024), Job.from_bytes(32, 32, 0.65e9, 0.4712e9)
    pair, rng = pair_costs(topology, job), np.random.default_rng(1)
    rows = (rng.permutation(1024).reshape(32, 32) for _ in range(20))
    mean_s = float(np.mean([total_costs(align(row, np.arange(32), pair.hop_s), pair) for row in rows]))
    print(f"\n1,024 devices over 40 sites, 32 x 32: random placements cost {mean_s:.1f} s on average")
    shown_s = 0.0
    for step in search(topology, job, seconds=20):
        if step.seconds > shown_s:
            print(f"  after {step.seconds:5.1f} s: {step.best_s / mean_s:.3f} of that, gap {step.gap:.0%}", flush=True)
            shown_s = step.seconds + 4
    print(f"  after {step.seconds:5.1f} s: {step.best_s / mean_s:.3f} of that, gap {step.gap:.0%}")


def forty_sites(n: int) -> Topology:
    """Sites anywhere on a map of 300 x 120 ms; 10 Gbit/s inside, less with distance across; 20 and 40 % jitter."""
    rng = np.random.default_rng(0)
    site = rng.integers(0, 40, n)
    at = (rng.random((40, 2)) * [300, 120])[site]
    apart = np.linalg.norm(at[:, None] - at, axis=-1)
    latency = (1 + apart) * rng.uniform(0.8, 1.2, (n, n))
    bandwidth = np.where(site[:, None] == site, 10, 1.2 / (1 + apart / 100)) * rng.uniform(0.6, 1.4, (n, n))
    return Topology.from_matrices((latency + latency.T) / 2, (bandwidth + bandwidth.T) / 2, name="forty-sites")


def first_picture() -> None:
    """Seconds from the call to the figure of a first good plan, in a fresh interpreter with cached kernels."""
    seconds = [
        float(subprocess.run([sys.executable, "-c", FIRST_PICTURE], capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    ]
    print(f"\nfirst picture of a plan, fresh process: median {np.median(seconds):.2f} s, worst {max(seconds):.2f} s")


if __name__ == "__main__":
    main()
