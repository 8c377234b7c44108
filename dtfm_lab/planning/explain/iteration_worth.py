"""The worth of each device to a plan for seconds or dollars: the iteration without it less that with it serving.

A device that serves is removed from the network and the job planned again on the rest: any shape, cut, shares and
order of passes. A device that is idle is put to work, in another's place and with as much work as pays. Both searches
start from a plan near the given one, so that a worth is known soon. They give plans, not proofs: a worth is an
estimate, and a negative one for a device that serves means that a better plan without it was found.

Devices that can change places without changing anything have one worth, found once; where one of them is idle, it is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import LEFT_TO_PLANNERS
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import IntArray, format_s
from dtfm_lab.planning.explain.nearby_plans import best_of, opened, placed, value, with_device, without_device
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.search import search
from dtfm_lab.planning.step import PlanStep

STEPS = 4
"""Steps of each search, where the caller gives neither steps nor seconds."""
NEGLIGIBLE = 1e-6
"""Share of the iteration below which a worth counts as zero."""


@dataclass(frozen=True, eq=False, kw_only=True)
class IterationWorth:
    """One device with the best plan found in which it serves, and the best found without it."""

    device: str
    role: tuple[int, int] | None
    """Its stage and replica in the best plan with all devices; None where it is idle there."""
    serving: Plan | None
    """None where it fits nowhere."""
    without: Plan | None
    """None where no plan without it fits."""
    note: str = ""

    @property
    def worth_s(self) -> float:
        """Seconds of the iteration without the device less those with it; NaN where either is not possible."""
        return _seconds(self.without) - _seconds(self.serving)

    @property
    def verdict(self) -> str:
        """Whether it helps by what the plan was made for: seconds, or dollars a billion tokens."""
        if self.without is None:
            return "needed"
        if self.serving is None:
            return "cannot serve"
        gain = value(self.without) - value(self.serving)
        if abs(gain) <= NEGLIGIBLE * value(self.without):
            return "makes no difference"
        return "helps" if gain > 0 else "harms"

    @property
    def sentence(self) -> str:
        """``without the Raspberry Pi 16.7 s an iteration instead of 843 s``."""
        if self.without is None:
            return f"without {self.device} no plan fits"
        if self.serving is None:
            return f"{self.device} fits nowhere: {format_s(_seconds(self.without))} an iteration without it"
        return (
            f"without {self.device} {format_s(_seconds(self.without))} an iteration instead of "
            f"{format_s(_seconds(self.serving))}"
        )

    def table_row(self) -> tuple[Any, ...]:
        """The row of ``worth_table``, its extra columns last."""
        shape = (None, None) if self.without is None else (self.without.job.n_stages, self.without.job.n_replicas)
        seconds = _seconds(self.without), _seconds(self.serving)
        dollars = _dollars(self.without), _dollars(self.serving)
        place = self.role or (None, None)
        return self.device, *place, self.worth_s, self.verdict, *seconds, *shape, *dollars, self.sentence


EXTRA_COLUMNS = ["without_price_per_billion_tokens", "serving_price_per_billion_tokens", "sentence"]
"""Columns that worths for the iteration have beside those for the communication cost."""


def stream_iteration_worth(
    plan: Plan,
    planner: str = "evolutionary",
    *,
    seed: int = 0,
    steps: int | None = None,
    seconds: float | None = None,
) -> Iterator[IterationWorth]:
    """The worth of every device of the plan's network, in the topology's order; the plan itself is improved first.

    Raises PlanError for limits out of range, before the first row.
    """
    limits = replanning_limits(plan, planner, seed=seed, steps=steps, seconds=seconds)
    return (replace(row, note=_shape_note(plan, row)) for row in _worths(plan, limits))


def _shape_note(plan: Plan, row: IterationWorth) -> str:
    """One line where the worth is from plans of another shape than the given one's; empty where it is not."""
    own = plan.job.n_stages, plan.job.n_replicas
    shapes = {(other.job.n_stages, other.job.n_replicas) for other in (row.serving, row.without) if other is not None}
    if shapes <= {own}:
        return ""
    return (
        f"the plan is {own[0]} x {own[1]}; worths are from the best plans found with and without a device, "
        f"some of other shapes (n_stages x n_replicas without it)"
    )


def replanning_limits(
    plan: Plan, planner: str, *, seed: int, steps: int | None, seconds: float | None
) -> dict[str, Any]:
    """Planner and limits of each search near a plan, as keywords of ``replanned``; 4 steps without either.

    Raises PlanError for a plan that was not simulated and for limits out of range, UnknownName for a planner.
    """
    if plan.iteration_s is None:
        raise PlanError(f"plan of {plan.job.name} was not simulated; wanted one with iteration_s")
    if steps is None and seconds is None:
        steps = STEPS
    limits: dict[str, Any] = {"planner": planner, "seed": seed, "steps": steps, "seconds": seconds}
    search(plan.topology, opened(plan), objective=plan.objective, **limits)
    return limits


def replanned(
    topology: Topology,
    like: Plan,
    start: Plan | None,
    *,
    planner: str,
    progress: Callable[[PlanStep], object] | None = None,
    **limits: Any,
) -> Plan | None:
    """The best plan found of another's job and objective on a network, everything open, no worse than the start.

    None where none fits. ``progress`` gets every step.
    """
    last: PlanStep | None = None
    # not planning.plan: it returns its best on an interrupt, and the next device would follow
    try:
        for last in search(
            topology,
            opened(like),
            planner,
            objective=like.objective,
            start=start,
            queueing=like.queueing,
            efficiency=like.efficiency,
            improve_bound=False,
            **limits,
        ):
            if progress is not None:
                progress(last)
    except PlanError:
        return start
    return start if last is None else best_of([start, last.plan])


def freed(plan: Plan, planner: str = "evolutionary", **options: Any) -> Plan | None:
    """The best plan found where all is open that the plan's job named, no worse than the plan; None where nothing was
    named, or where the plan is not for seconds or dollars. The options are those of ``replanned``."""
    if not plan.pinned or plan.iteration_s is None or plan.objective == "communication":
        return None
    everything = plan.changed(left_open=(*LEFT_TO_PLANNERS, "recompute"), iteration_s=plan.iteration_s)
    return replanned(plan.topology, everything, plan, planner=planner, **options)


def _worths(plan: Plan, limits: dict[str, Any]) -> Iterator[IterationWorth]:
    best = replanned(plan.topology, plan, plan, **limits)
    assert best is not None, "no worse than the plan"
    topology, grid = best.topology, best.placement.devices
    alike = IterationProblem.of(topology, opened(best), best.queueing, efficiency=best.efficiency).alike
    idle = set(best.idle_devices)
    first: dict[int, IterationWorth] = {}
    for device, name in enumerate(topology.names):
        role = None
        if device not in idle:
            ((stage, replica),) = np.argwhere(grid == device).tolist()
            role = stage, replica
        like = np.flatnonzero(alike == alike[device]).tolist()
        twins = [other for other in like if (other in idle) != (device in idle)]
        known = first.get(int(alike[device]))
        serving: Plan | None
        without: Plan | None
        if twins:
            changed = exchanged(best, device, twins[0])
            serving, without = (changed, best) if role is None else (best, changed)
        elif known is not None:
            other = topology.index(known.device)
            serving = best if role is not None else _twin(known.serving, device, other)
            without = best if role is None else _twin_without(known.without, topology, device, other)
        elif role is None:
            serving, without = with_device(best, device), best
        else:
            rest = topology.subset([d for d in range(len(topology)) if d != device])
            serving, without = best, replanned(rest, best, without_device(best, device), **limits)
        row = IterationWorth(device=name, role=role, serving=serving, without=without)
        if not twins:
            first.setdefault(int(alike[device]), row)
        yield row


def exchanged(plan: Plan, a: int, b: int) -> Plan:
    """The plan with two devices changed over, between which nothing differs: its seconds are the same."""
    order = np.arange(len(plan.topology))
    order[[a, b]] = order[[b, a]]
    return _same_seconds(plan, order[plan.placement.devices], plan.topology)


def _twin(known: Plan | None, device: int, other: int) -> Plan | None:
    return None if known is None else exchanged(known, device, other)


def _twin_without(known: Plan | None, topology: Topology, device: int, other: int) -> Plan | None:
    """A plan without ``other`` as one without ``device``, which takes its place."""
    if known is None:
        return None
    rest = topology.subset([d for d in range(len(topology)) if d != device])
    names = {topology.names[device]: topology.names[other]}
    old = known.topology.names
    position = np.array([rest.index(names.get(name, name)) for name in old])
    return _same_seconds(known, position[known.placement.devices], rest)


def _same_seconds(plan: Plan, grid: IntArray, topology: Topology) -> Plan:
    moved = placed(plan, grid, plan.job, topology)
    assert moved is not None, "devices without a difference hold the same"
    return moved


def _seconds(plan: Plan | None) -> float:
    return np.nan if plan is None or plan.iteration_s is None else plan.iteration_s


def _dollars(plan: Plan | None) -> float:
    dollars = None if plan is None else plan.price_per_billion_tokens
    return np.nan if dollars is None else dollars
