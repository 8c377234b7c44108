"""Plans that a search by random changes finds, against the bound of the open job, on networks of 2 to 9 devices.

Networks, jobs and choices of systems are drawn from seeds: transports, ways of averaging, shardings, precisions,
checkpointings, compressions, schedules, fragments, hosts, shared NICs, odd batches. Every plan is simulated by the
engine; none may be faster than the bound, nor may the search or its replay price one otherwise.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "planning" / "iteration"))
from searched_below import searched  # noqa: E402


@click.command(help=__doc__)
@click.option("--plans", default=20_000, show_default=True, help="Least number of plans to simulate.")
@click.option("--each", default=400, show_default=True, help="Changes tried for each network.")
@click.option("--first", default=2000, show_default=True, help="Seed of the first network.")
def main(plans: int, each: int, first: int) -> None:
    logging.disable(logging.WARNING)
    ratios: list[float] = []
    seed, n_plans, below, mispriced = first, 0, 0, 0
    while n_plans < plans:
        report = searched(seed, each)
        seed += 1
        if report is None:
            continue
        n_plans += report.n_plans
        ratios.append(report.bound_s / report.best_s)
        below += report.below
        mispriced += len(report.mispriced)
        if report.below:
            print(f"seed {seed - 1}: {report.best_s} s, bound {report.bound_s}: {report.best.job}", flush=True)
        for line in report.mispriced[:1]:
            print(f"seed {seed - 1}: {line}", flush=True)
        if len(ratios) % 25 == 0:
            print(f"{len(ratios)} networks, {n_plans} plans, {below} below, {mispriced} mispriced", flush=True)
    print(f"{len(ratios)} networks (seeds {first} to {seed - 1}), {n_plans} plans; {below} below their bound")
    print(f"{mispriced} priced otherwise than by the engine")
    least, low, middle, high = np.quantile(ratios, [0, 0.1, 0.5, 0.9])
    print(f"bound / fastest plan: least {least:.3f}, tenth {low:.3f}, median {middle:.3f}, nine tenths {high:.3f}")


if __name__ == "__main__":
    main()
