"""Finds which system is fastest where: all choose anew at given values, and crossings are bisected between them."""

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import cast

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation.executors import Executor
from dtfm_lab.simulation.memory import memory
from dtfm_lab.systems.choosing import Asked, chosen, outcome_of, outcomes_in_order
from dtfm_lab.systems.crossings import CrossingPoint, Crossings
from dtfm_lab.systems.outcome import Outcome
from dtfm_lab.systems.strategy import Budget, Strategy, strategies
from dtfm_lab.systems.variations import Variation

USUAL = {1: 7, 2: 5}
"""Values of an axis where none are given, by the number of axes."""


def stream_crossings(
    topology: Topology,
    job: Job,
    axes: Sequence[Variation],
    values: Sequence[Sequence[float]],
    systems: Asked,
    budget: Budget,
    *,
    precision: float = 0.05,
    mathematics: bool = False,
    executor: Executor | None = None,
) -> Iterator[Crossings]:
    """The comparison so far, after every system at every value, and then after every halving of a crossing.

    At a given value every system chooses among all of its plans, as in ``outcome_of``. The ends come first, then the
    values between, so that one that is stopped spans the axis. A system that searches may choose, at every value, any
    plan that it found at another: without that, one lucky search would look like a crossing. Between two values of one
    axis at which the fastest differs, the stretch is halved until its ends are no more than ``precision`` apart: there
    the fastest of both ends choose anew, and the others among their plans of both. An executor's workers make the
    choices at given values; halvings follow each other, and are made here.
    """
    wanted = default_systems() if systems is None else chosen(systems)
    state = _State(topology, job, tuple(axes), tuple(wanted), budget, mathematics)
    grid = [tuple(one) for one in product(*values)]
    state.total = len(grid) * len(wanted)
    order = list(spread_out(grid))
    outcomes = outcomes_in_order([task for at in order for task in state.tasks(at)], executor)
    for at in order:
        yield from state.choose(at, outcomes)
    yield from state.share()
    if len(axes) == 1 and axes[0].even:
        yield from state.refine(precision)
    state.finished = True
    yield state.seen("")


def default_systems() -> list[Strategy]:
    """All systems whose plans need no search."""
    return [strategies[name]() for name in strategies if not strategies[name].searches]


def spread_out(grid: Sequence[tuple[float, ...]]) -> Iterator[tuple[float, ...]]:
    """The same points, first and last first, then halves of what lies between."""
    n = len(grid)
    seen: set[int] = set()
    parts = 1
    while len(seen) < n:
        for i in range(parts + 1):
            at = round(i * (n - 1) / parts)
            if at not in seen:
                seen.add(at)
                yield grid[at]
        parts *= 2


@dataclass
class _State:
    topology: Topology
    job: Job
    axes: tuple[Variation, ...]
    systems: tuple[Strategy, ...]
    budget: Budget
    mathematics: bool
    points: list[CrossingPoint] = field(default_factory=list)
    done: int = 0
    total: int = 0
    finished: bool = False

    def seen(self, latest: str) -> Crossings:
        """The comparison so far."""
        return Crossings(
            topology=self.topology,
            job=self.job,
            axes=self.axes,
            systems=self.systems,
            points=tuple(sorted(self.points, key=lambda point: point.values)),
            mathematics=self.mathematics,
            done=self.done,
            total=self.total,
            latest=latest,
            finished=self.finished,
        )

    def tasks(self, at: tuple[float, ...]) -> list[tuple[Strategy, Topology, Job, Budget]]:
        """What is asked of every system at these values; nothing where the job cannot be there."""
        try:
            network, job = self._at(at)
        except LabError:
            return []
        return [(one, network, job, self.budget) for one in self.systems]

    def choose(self, at: tuple[float, ...], outcomes: Iterator[Outcome]) -> Iterator[Crossings]:
        """Every system chooses its best plan at these values; the point joins when all have."""
        words = " and ".join(axis.text(value) for axis, value in zip(self.axes, at, strict=True))
        seconds: dict[str, float] = {}
        plans: dict[str, Plan] = {}
        reasons: dict[str, str] = {}
        try:
            self._at(at)
            impossible = ""
        except LabError as error:
            impossible = str(error)
        for number, one in enumerate(self.systems, start=1):
            outcome = None if impossible else next(outcomes)
            if outcome is None or outcome.found is None:
                reasons[one.label] = impossible if outcome is None else outcome.reason
            else:
                plans[one.label] = outcome.found
                seconds[one.label] = cast(float, outcome.iteration_s)
            self.done += 1
            if number == len(self.systems):
                self.points.append(CrossingPoint(values=at, seconds=seconds, plans=plans, reasons=reasons))
            yield self.seen(f"{words}: {one.heading}")

    def _at(self, at: tuple[float, ...]) -> tuple[Topology, Job]:
        """The network and the job at these values. Raises LabError where there is none."""
        network, job = self.topology, self.job
        for axis, value in zip(self.axes, at, strict=True):
            network, job = axis.at(network, job, value)
        return network, job

    def share(self) -> Iterator[Crossings]:
        """Systems that search choose among the plans that they found at any value."""
        for one in self.systems:
            if not one.searches:
                continue
            pool = [(point.values, point.plans[one.label]) for point in self.points if one.label in point.plans]
            for i, point in enumerate(self.points):
                now_s, best = point.seconds.get(one.label, math.inf), None
                for was, plan in pool:
                    held = None if was == point.values else self._held(one, plan, was, point.values)
                    if held is not None and held[1] < now_s:
                        best, now_s = held
                if best is not None:
                    self.points[i] = _with_plan(point, one.label, best, now_s)
                yield self.seen(f"plans of {one.heading} that it found at other values")

    def refine(self, precision: float) -> Iterator[Crossings]:
        """Halve every stretch at whose ends the fastest differs."""
        now = self.seen("")
        axis = self.axes[0]
        stretches = [(a, b, (a, b)) for a, b in zip(now.points, now.points[1:], strict=False)]
        while stretches:
            a, b, given = stretches.pop()
            (low,), (high,) = a.values, b.values
            middle = axis.middle(low, high)
            if now.fastest(a) == now.fastest(b) or high <= low * (1 + precision) or middle is None:
                continue
            rivals = {*now.fastest(a), *now.fastest(b)}
            try:
                point = self._between((middle,), given, now.compared, rivals)
            except (
                LabError
            ):  # the job cannot be at this value, such as a batch that is no whole number of micro-batches
                continue
            self.points.append(point)
            stretches += [(a, point, given), (point, b, given)]
            now = self.seen(f"between {axis.text(low)} and {axis.text(high)}")
            yield now

    def _between(
        self, at: tuple[float, ...], given: Sequence[CrossingPoint], compared: Container[str], rivals: Container[str]
    ) -> CrossingPoint:
        """The systems at a value between given ones: rivals choose anew, others take the best of their plans of those.

        Rivals that search take the best of theirs, too.
        """
        seconds: dict[str, float] = {}
        plans: dict[str, Plan] = {}
        reasons: dict[str, str] = {}
        network, job = self._at(at)
        for one in self.systems:
            if one.label not in compared:
                continue
            if one.label in rivals and not one.searches:
                outcome = outcome_of(one, network, job, self.budget)
                if outcome.found is not None and outcome.iteration_s is not None:
                    plans[one.label], seconds[one.label] = outcome.found, outcome.iteration_s
                else:
                    reasons[one.label] = outcome.reason
                continue
            known = [(point.values, point.plans[one.label]) for point in given if one.label in point.plans]
            found = [held[1] for was, plan in known if (held := self._held(one, plan, was, at)) is not None]
            if found:
                seconds[one.label] = min(found)
            else:
                reasons[one.label] = "none of its plans of the given values beside this one can be had here"
        return CrossingPoint(values=at, seconds=seconds, plans=plans, reasons=reasons, refined=True)

    def _held(
        self, system: Strategy, plan: Plan, was: tuple[float, ...], at: tuple[float, ...]
    ) -> tuple[Plan, float] | None:
        """A plan of other values moved to these, and its seconds there; None where it does not fit or cannot be."""
        try:
            network, job = plan.topology, plan.job
            for axis, before, value in zip(self.axes, was, at, strict=True):
                if value != before:
                    network, job = axis.at(network, job, value, before)
            moved = plan.changed(topology=network, job=job)
            if not memory(moved).fits:
                return None
            return moved, system.trace(moved, self.budget).iteration_s
        except LabError:
            return None


def _with_plan(point: CrossingPoint, system: str, plan: Plan, iteration_s: float) -> CrossingPoint:
    """The point with another plan of a system, its communication cost and bounds computed for this point."""
    fresh = evaluate(plan.topology, plan.job, rank_map=plan.rank_map)
    fresh = fresh.changed(iteration_s=iteration_s, planner=plan.planner, seed=plan.seed, queueing=plan.queueing)
    return CrossingPoint(
        values=point.values,
        seconds={**point.seconds, system: iteration_s},
        plans={**point.plans, system: fresh},
        reasons={name: why for name, why in point.reasons.items() if name != system},
    )
