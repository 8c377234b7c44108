"""Finds which system is fastest where: all choose anew at given values, and crossings are bisected between them."""

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
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
Answer = tuple[float, Plan | None] | str
"""A system's seconds at some values with its plan, which is not kept between given values; or why it has none."""
Growing = Generator[Crossings, None, Crossings]
"""The comparison so far, again and again; it returns the last."""


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
    wanted = tuple(default_systems() if systems is None else chosen(systems))
    grid = [tuple(one) for one in product(*values)]
    found = Crossings(
        topology=topology,
        job=job,
        axes=tuple(axes),
        systems=wanted,
        points=(),
        mathematics=mathematics,
        total=len(grid) * len(wanted),
    )
    found = yield from _chosen_at(found, list(spread_out(grid)), budget, executor)
    found = yield from _shared(found, budget)
    if len(axes) == 1 and axes[0].even:
        found = yield from _refined(found, budget, precision)
    yield replace(found, latest="", finished=True)


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


def _chosen_at(
    found: Crossings, grid: Sequence[tuple[float, ...]], budget: Budget, executor: Executor | None
) -> Growing:
    """Every system chooses its best plan at given values; a point joins when all have."""
    there = [_or_reason(found, at) for at in grid]
    tasks = [(one, *here, budget) for here in there if not isinstance(here, str) for one in found.systems]
    outcomes = outcomes_in_order(tasks, executor)
    for at, here in zip(grid, there, strict=True):
        words = " and ".join(axis.text(value) for axis, value in zip(found.axes, at, strict=True))
        answers: dict[str, Answer] = {}
        for one in found.systems:
            answers[one.label] = here if isinstance(here, str) else _answer(next(outcomes))
            found = replace(found, done=found.done + 1, latest=f"{words}: {one.heading}")
            if len(answers) == len(found.systems):
                found = replace(found, points=(*found.points, _point(at, answers)))
            yield found
    return found


def _at(found: Crossings, at: tuple[float, ...]) -> tuple[Topology, Job]:
    """The network and the job at these values. Raises LabError where there is none."""
    network, job = found.topology, found.job
    for axis, value in zip(found.axes, at, strict=True):
        network, job = axis.at(network, job, value)
    return network, job


def _or_reason(found: Crossings, at: tuple[float, ...]) -> tuple[Topology, Job] | str:
    try:
        return _at(found, at)
    except LabError as error:
        return str(error)


def _answer(outcome: Outcome) -> Answer:
    return outcome.reason if outcome.found is None else (cast(float, outcome.iteration_s), outcome.found)


def _point(at: tuple[float, ...], answers: Mapping[str, Answer], *, refined: bool = False) -> CrossingPoint:
    had = {label: one for label, one in answers.items() if not isinstance(one, str)}
    return CrossingPoint(
        values=at,
        seconds={label: iteration_s for label, (iteration_s, _) in had.items()},
        plans={label: plan for label, (_, plan) in had.items() if plan is not None},
        reasons={label: one for label, one in answers.items() if isinstance(one, str)},
        refined=refined,
    )


def _shared(found: Crossings, budget: Budget) -> Growing:
    """Systems that search choose among the plans that they found at any value."""
    for one in found.systems:
        if not one.searches:
            continue
        pool = [(point.values, point.plans[one.label]) for point in found.points if one.label in point.plans]
        for i, point in enumerate(found.points):
            now_s, best = point.seconds.get(one.label, math.inf), None
            for was, plan in pool:
                held = None if was == point.values else _held(found.axes, one, plan, was, point.values, budget)
                if held is not None and held[1] < now_s:
                    best, now_s = held
            if best is not None:
                better = _with_plan(point, one.label, best, now_s)
                found = replace(found, points=(*found.points[:i], better, *found.points[i + 1 :]))
            found = replace(found, latest=f"plans of {one.heading} that it found at other values")
            yield found
    return found


def _refined(found: Crossings, budget: Budget, precision: float) -> Growing:
    """Every stretch at whose ends the fastest differs is halved."""
    axis = found.axes[0]
    stretches = [(a, b, (a, b)) for a, b in zip(found.points, found.points[1:], strict=False)]
    while stretches:
        a, b, given = stretches.pop()
        (low,), (high,) = a.values, b.values
        middle = axis.middle(low, high)
        if found.fastest(a) == found.fastest(b) or high <= low * (1 + precision) or middle is None:
            continue
        try:
            point = _between(found, (middle,), given, {*found.fastest(a), *found.fastest(b)}, budget)
        except LabError:  # the job cannot be at this value: a batch that is no whole number of micro-batches
            continue
        stretches += [(a, point, given), (point, b, given)]
        latest = f"between {axis.text(low)} and {axis.text(high)}"
        found = replace(found, points=(*found.points, point), latest=latest)
        yield found
    return found


def _between(
    found: Crossings, at: tuple[float, ...], given: Sequence[CrossingPoint], rivals: set[str], budget: Budget
) -> CrossingPoint:
    """The systems at a value between given ones: rivals choose anew, others take the best of their plans of those.

    Rivals that search take the best of theirs, too.
    """
    network, job = _at(found, at)
    answers: dict[str, Answer] = {}
    for one in found.systems:
        if one.label not in found.compared:
            continue
        if one.label in rivals and not one.searches:
            answers[one.label] = _answer(outcome_of(one, network, job, budget))
            continue
        known = [(point.values, point.plans[one.label]) for point in given if one.label in point.plans]
        held = [_held(found.axes, one, plan, was, at, budget) for was, plan in known]
        least_s = min((one_held[1] for one_held in held if one_held is not None), default=None)
        none = "none of its plans of the given values beside this one can be had here"
        answers[one.label] = none if least_s is None else (least_s, None)
    return _point(at, answers, refined=True)


def _held(
    axes: Sequence[Variation],
    system: Strategy,
    plan: Plan,
    was: tuple[float, ...],
    at: tuple[float, ...],
    budget: Budget,
) -> tuple[Plan, float] | None:
    """A plan of other values moved to these, and its seconds there; None where it does not fit or cannot be."""
    try:
        network, job = plan.topology, plan.job
        for axis, before, value in zip(axes, was, at, strict=True):
            if value != before:
                network, job = axis.at(network, job, value, before)
        moved = plan.changed(topology=network, job=job)
        return (moved, system.trace(moved, budget).iteration_s) if memory(moved).fits else None
    except LabError:
        return None


def _with_plan(point: CrossingPoint, system: str, plan: Plan, iteration_s: float) -> CrossingPoint:
    """The point with another plan of a system, its communication cost and bounds computed for this point."""
    fresh = evaluate(plan.topology, plan.job, rank_map=plan.rank_map)
    fresh = fresh.changed(iteration_s=iteration_s, planner=plan.planner, seed=plan.seed, queueing=plan.queueing)
    return replace(
        point,
        seconds={**point.seconds, system: iteration_s},
        plans={**point.plans, system: fresh},
        reasons={name: why for name, why in point.reasons.items() if name != system},
    )
