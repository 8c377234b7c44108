"""Training systems on eight devices, run for real: is their measured order the predicted one?

Each system's best plan by the link model is run by real workers, one after the other, several times. The opponent is
the prediction, twice: ``model`` from FLOP and links alone, before anything ran, and ``predicted``, which knows the
clock and the profile taken before the run, steps and sums included. Wherever two systems' predictions differ by more
than 5 %, the one that was predicted faster is to be measured faster. On the paced clock computations are padded to the
drawn device's time: order, links and transport are what is tested. ``late`` and ``overran`` count what was not in time
because this machine was busy. The last table is of losses, on the virtual clock: systems that do not change the
training have equal ones, the others need more iterations to a loss, or fewer seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import click
import numpy as np
from machine import machine_line

import dtfm_lab as lab
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.systems import Budget, Strategy, variant
from dtfm_lab.systems.grids import grids
from dtfm_lab.systems.strategy_runs import CLEAR, PREDICTIONS, StrategyRuns

EVERY = 8
"""Iterations that DiLoCo's workers step alone; the papers' 100 and 500 are no small run."""
EQUAL = 1e-4
"""Largest difference of losses in fp32 that rounding of another order of sums explains."""
STAND_IN = "stand-in"
"""The model that is trained, small enough that eight workers share two cores; messages are as long as the job's."""


@dataclass(frozen=True, kw_only=True)
class GPipe(Strategy):
    """GPipe on the best grid of pipelines and replicas, devices in the order of the network."""

    name: ClassVar[str] = "gpipe"
    title: ClassVar[str] = "GPipe in rank order"
    cite: ClassVar[str] = "Huang et al. 2019"

    def plans(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Plan]:
        how = job.with_fields(schedule="gpipe", synchronisation="ring", checkpointing="stage")
        yield from (plan for plan in grids(topology, how) if plan.job.n_stages > 1)


def systems() -> list[Strategy]:
    """Those that workers can play on the paced clock: averaging follows the last pass, and no fragment is late."""
    return [
        GPipe(),
        variant("megatron"),
        variant("ddp", overlap=False),
        variant("ddp-compressed", overlap=False),
        variant("deepspeed-zero-3", stage=1),
        variant("diloco", every=EVERY),
        variant("streaming-diloco", every=EVERY, delay=0),
        variant("dtfm-lab"),
    ]


@click.command(help=__doc__)
@click.option("--network", default="lecture-hall", show_default=True)
@click.option("--job", default="tiny", show_default=True)
@click.option("--clock", default="paced", show_default=True)
@click.option("--iterations", default=EVERY, show_default=True, help="Of each run.")
@click.option("--repeats", default=3, show_default=True, help="Runs of every system.")
@click.option("--time-scale", default=8.0, show_default=True, help="Wall seconds a second of the paced clock.")
@click.option("--losses", default=5 * EVERY, show_default=True, help="Iterations of the table of losses; 0: none.")
def main(network: str, job: str, clock: str, iterations: int, repeats: int, time_scale: float, losses: int) -> None:
    print(machine_line())
    scale = time_scale if clock == "paced" else None
    how = {"systems": systems(), "seed": 0, "seconds": 2.0}
    met = []
    for repeat in range(repeats):
        runs = lab.run_strategies(
            network, job, clock=clock, iterations=iterations, stand_in=STAND_IN, time_scale=scale, **how
        )
        print(f"\nrun {repeat + 1} of {repeats}: {network}, {job}, {clock} clock, {iterations} iterations")
        print_runs(runs)
        met += [print_order(runs, by) for by in PREDICTIONS]
    if losses:
        print_losses(lab.run_strategies(network, job, clock="virtual", iterations=losses, **how))
    print(f"\nevery clear pair in the predicted order: {sum(met)} of {len(met)}; goal all")
    print(machine_line())


def print_runs(runs: StrategyRuns) -> None:
    """A row a system, the fastest measured first."""
    print(
        f"{'':34}{'shape':>7}{'model':>9}{'predicted':>11}{'measured':>10}{'error':>8}{'of model':>10}  late, overran"
    )
    for one in runs.measured:
        job, ran, model_s = one.outcome.job, one.measured.context, one.outcome.iteration_s
        seconds = f"{model_s:>9.4f}{one.predicted_s:>11.4f}{one.measured_s:>10.4f}"
        errors = f"{one.error:>+8.1%}{one.measured_s / model_s - 1:>+10.1%}"
        late = f"  {ran.late_messages}, {ran.overruns}"
        print(f"{one.name:34}{f'{job.n_stages} x {job.n_replicas}':>7}{seconds}{errors}{late}")
    for one in runs:
        if one.measured is None:
            print(f"{one.name:34}  {one.reason}")


def print_order(runs: StrategyRuns, by: str) -> bool:
    """Whether each pair whose predictions clearly differ was measured in the predicted order."""
    seconds = [PREDICTIONS[by](one) for one in runs.measured]
    clear = sum(max(pair) > (1 + CLEAR) * min(pair) for pair in combinations(seconds, 2))
    swapped = runs.out_of_order(by=by)
    said = "; ".join(f"{one} and {other} changed places" for one, other in swapped)
    n = f"{clear - len(swapped)} of {clear} pairs that differ by more than {CLEAR:.0%}"
    print(f"  {n} by {by} are in its order: {'FAIL, ' + said if swapped else 'pass'}", flush=True)
    return not swapped


def print_losses(runs: StrategyRuns) -> None:
    """Seconds to the loss that all reach, and whether systems of equal mathematics have equal losses."""
    print(f"\nlosses on the virtual clock, of the job's own model; the loss that all reach is {runs.common_loss:.3f}")
    print(f"{'':34}{'an iteration':>13}{'last loss':>11}{'iterations to it':>18}{'seconds to it':>15}  changes")
    reached = runs.time_to_loss()
    for one in sorted(runs.measured, key=lambda one: reached[one.name]):
        n = round(reached[one.name] / one.measured_s)
        seconds = f"{one.measured_s:>13.4f}{one.losses[-1]:>11.4f}{n:>18}{reached[one.name]:>15.2f}"
        print(f"{one.name:34}{seconds}  {one.outcome.strategy.mathematics}")
    alike = [one.losses for one in runs.measured if not one.outcome.strategy.mathematics]
    off = max(float(np.abs(one - alike[0]).max()) for one in alike)
    verdict = "pass" if off <= EQUAL else "FAIL"
    print(
        f"  losses of the {len(alike)} that do not change the training differ by {off:.1e} at most: {verdict}",
        flush=True,
    )


if __name__ == "__main__":
    main()
