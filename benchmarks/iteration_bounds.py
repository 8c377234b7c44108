"""Bounds on the seconds of an iteration: against every plan of small networks, and beside the best plans of large ones.

Small: networks of 2 to 4 unlike devices, every way of averaging, compression, cards and pairs; every plan of the three
families of schedules is simulated (all subsets, shapes, placements, cuts, shares, warm-ups), or so many of them in a
random order. No bound may exceed the best of them. Large: the bound as a share of the best plan known, and the seconds
that it takes.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
import numpy as np

import dtfm_lab as lab
from dtfm_lab.planning.iteration.bounds import iteration_bound_steps
from dtfm_lab.planning.iteration.problem import IterationProblem

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "planning" / "iteration"))
from every_plan import FAMILIES, drawn, every_plan  # noqa: E402

BEST_KNOWN_S = {
    "campus": 23.9,
    "mixed-gpus": 9.7,
    "thin-link": 13.2,
    "ten-cities": 18.7,
    "volunteers": 90.8,
    "worldwide": 16.4,
}
"""Seconds of the best plans that any search found for gpt3-xl with micro-batches of one sequence."""
BARS = {"campus": 0.8, "mixed-gpus": 0.8, "thin-link": 0.8, "volunteers": 0.8, "ten-cities": 0.65, "worldwide": 0.65}


@click.command(help=__doc__)
@click.option("--networks", default=1000, show_default=True, help="Small networks to draw.")
@click.option("--first", default=0, show_default=True, help="Seed of the first.")
@click.option("--plans", default=300, show_default=True, help="Most plans to simulate of each family and network.")
@click.option("--large/--no-large", default=True, show_default=True)
def main(networks: int, first: int, plans: int, large: bool) -> None:
    small(first, networks, plans)
    if large:
        known()


def small(first: int, n_networks: int, n_plans: int) -> None:
    ratios: dict[str, list[float]] = {family: [] for family in FAMILIES}
    simulated = 0
    for seed in range(first, first + n_networks):
        case = drawn(seed, 3 if seed % 2 else 4)
        problem = IterationProblem.of(case.topology, case.job, case.queueing)
        for family, schedules in FAMILIES.items():
            found = [s for s, _ in every_plan(case, family, np.random.default_rng(seed), n_plans)]
            simulated += len(found)
            if found:
                *_, bound_s = iteration_bound_steps(problem, 1.01 * min(found), schedules)
                ratios[family].append(bound_s / min(found))
                if bound_s > min(found) * (1 + 1e-9):
                    print(f"network {seed}, {family}: bound {bound_s} above {min(found)}", flush=True)
        if (seed + 1 - first) % 100 == 0:
            print(f"{seed + 1 - first} networks, {simulated} plans", flush=True)
    print(f"{n_networks} networks, {simulated} plans simulated")
    for family, found in ratios.items():
        least, median, most = np.quantile(found, [0, 0.5, 1])
        above = sum(ratio > 1 + 1e-9 for ratio in found)
        print(f"{family:12} {len(found)} with a plan; bound / best: {least:.3f} {median:.3f} {most:.6f}; {above} above")


def known() -> None:
    for name, best_s in BEST_KNOWN_S.items():
        problem = IterationProblem.of(lab.load_topology(name), lab.load_job("gpt3-xl", microbatch=1))
        began = time.perf_counter()
        *_, bound_s = iteration_bound_steps(problem, best_s)
        taken_s, ratio = time.perf_counter() - began, bound_s / best_s
        met = "met" if ratio >= BARS[name] else "NOT met"
        print(f"{name:12} {bound_s:8.3f} of {best_s:7.2f} s: {ratio:.3f}, {met} ({BARS[name]}); {taken_s:.1f} s")


if __name__ == "__main__":
    main()
