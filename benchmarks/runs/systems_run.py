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

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar

import click
import numpy as np
import pandas as pd
from machine import machine_line

import dtfm_lab as lab
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.extensions.systems.api import Budget, Outcome, Outcomes, Strategy, variant
from dtfm_lab.extensions.systems.grids import in_rank_order, shapes
from dtfm_lab.extensions.systems.modelled.deepspeed import DeepSpeedZero3

EVERY = 8
"""Iterations that DiLoCo's workers step alone; the papers' 100 and 500 are no small run."""
EQUAL = 1e-4
"""Largest difference of losses in fp32 that rounding of another order of sums explains."""
CLEAR = 0.05
"""Relative difference of two predictions above which the measured order must be the predicted one."""
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
        for shaped in shapes(how, len(topology)):
            if shaped.n_stages > 1:
                yield in_rank_order(topology, shaped, np.arange(len(topology)), order="dp-pp")


def systems() -> list[Strategy]:
    """Those that workers can play on the paced clock: averaging follows the last pass, and no fragment is late."""
    return [
        GPipe(),
        variant("megatron"),
        variant("ddp", overlap=False),
        variant("ddp", compression="int8", overlap=False),
        DeepSpeedZero3(stage=1),
        variant("diloco", every=EVERY),
        variant("diloco", kind="streaming", every=EVERY, delay=0),
        variant("dtfm-lab"),
    ]


@dataclass(frozen=True)
class Ran:
    """A system's best plan, its run, and what the run was predicted to take from the profile taken before it."""

    outcome: Outcome
    measured: Trace
    predicted: Trace

    @property
    def losses(self) -> pd.Series:
        """Mean training loss of the last five iterations, of fewer at the beginning, by iteration."""
        return pd.Series(self.measured.context.losses).rolling(5, min_periods=1).mean()


PREDICTIONS: dict[str, Callable[[Ran], float]] = {
    "predicted": lambda one: one.predicted.iteration_s,
    "model": lambda one: one.outcome.iteration_s or 0.0,
}


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
    found = lab.strategies(network, job, systems=systems(), seed=0, seconds=2.0)
    met = []
    for repeat in range(repeats):
        scale = time_scale if clock == "paced" else None
        runs = ran(found, clock=clock, iterations=iterations, stand_in=STAND_IN, time_scale=scale)
        print(f"\nrun {repeat + 1} of {repeats}: {network}, {job}, {clock} clock, {iterations} iterations")
        print_runs(runs)
        met += [print_order(runs, by) for by in PREDICTIONS]
    if losses:
        print_losses(ran(found, clock="virtual", iterations=losses))
    print(f"\nevery clear pair in the predicted order: {sum(met)} of {len(met)}; goal all")
    print(machine_line())


def ran(found: Outcomes, **how: Any) -> list[Ran]:
    """Every system's plan run one after the other, the fastest measured first; what workers refuse is printed."""
    runs = []
    for one in found:
        try:
            measured = lab.run(one.plan, seed=0, **how)
        except lab.LabError as error:
            print(f"{one.name}: {error}")
            continue
        runs.append(Ran(one, measured, lab.simulate(one.plan, like=measured)))
    return sorted(runs, key=lambda one: one.measured.iteration_s)


def print_runs(runs: list[Ran]) -> None:
    """A row a system, the fastest measured first."""
    print(
        f"{'':34}{'shape':>7}{'model':>9}{'predicted':>11}{'measured':>10}{'error':>8}{'of model':>10}  late, overran"
    )
    for one in runs:
        job, context = one.outcome.job, one.measured.context
        model_s, predicted_s, measured_s = one.outcome.iteration_s, one.predicted.iteration_s, one.measured.iteration_s
        seconds = f"{model_s:>9.4f}{predicted_s:>11.4f}{measured_s:>10.4f}"
        errors = f"{measured_s / predicted_s - 1:>+8.1%}{measured_s / model_s - 1:>+10.1%}"
        late = f"  {context.late_messages}, {context.overruns}"
        print(f"{one.outcome.name:34}{f'{job.n_stages} x {job.n_replicas}':>7}{seconds}{errors}{late}")


def print_order(runs: list[Ran], by: str) -> bool:
    """Whether each pair whose predictions clearly differ was measured in the predicted order."""
    seconds = PREDICTIONS[by]
    clear = [
        (a, b) for a, b in combinations(runs, 2) if abs(seconds(a) - seconds(b)) > CLEAR * min(seconds(a), seconds(b))
    ]
    swapped = [(a.outcome.name, b.outcome.name) for a, b in clear if seconds(a) > seconds(b)]
    said = "; ".join(f"{one} and {other} changed places" for one, other in swapped)
    n = f"{len(clear) - len(swapped)} of {len(clear)} pairs that differ by more than {CLEAR:.0%}"
    print(f"  {n} by {by} are in its order: {'FAIL, ' + said if swapped else 'pass'}", flush=True)
    return not swapped


def print_losses(runs: list[Ran]) -> None:
    """Seconds to the loss that all reach, and whether systems of equal mathematics have equal losses."""
    common = max(one.losses.min() for one in runs)
    print(f"\nlosses on the virtual clock, of the job's own model; the loss that all reach is {common:.3f}")
    print(f"{'':34}{'an iteration':>13}{'last loss':>11}{'iterations to it':>18}{'seconds to it':>15}  changes")
    iterations = {one.outcome.name: int((one.losses <= common).idxmax()) + 1 for one in runs}
    reached = {one.outcome.name: iterations[one.outcome.name] * one.measured.iteration_s for one in runs}
    for one in sorted(runs, key=lambda one: reached[one.outcome.name]):
        name = one.outcome.name
        row = (
            f"{one.measured.iteration_s:>13.4f}{one.losses.iloc[-1]:>11.4f}{iterations[name]:>18}{reached[name]:>15.2f}"
        )
        print(f"{name:34}{row}  {one.outcome.strategy.mathematics}")
    alike = [one.losses for one in runs if not one.outcome.strategy.mathematics]
    off = max(float(np.abs(one - alike[0]).max()) for one in alike)
    verdict = "pass" if off <= EQUAL else "FAIL"
    print(
        f"  losses of the {len(alike)} that do not change the training differ by {off:.1e} at most: {verdict}",
        flush=True,
    )


if __name__ == "__main__":
    main()
