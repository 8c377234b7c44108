"""Short searches: from a plan at hand, for a screen that answers every edit, and for what others are measured by.

They contain no widget.
"""

import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s
from dtfm_lab.lab.memory_warnings import held_memory
from dtfm_lab.planning import (
    Cancellation,
    Difference,
    PlanStep,
    adapt_plan,
    default_objective,
    diff,
    objectives,
    search,
    simulated,
)
from dtfm_lab.planning.cost import pair_costs
from dtfm_lab.planning.step import PROVEN
from dtfm_lab.widgets.planner.objective_controls import COMMUNICATION
from dtfm_lab.widgets.planner.plan_words import describe_change
from dtfm_lab.widgets.tasks import shared_interpreter

BUDGETS_S = (0.015, 0.25, 2.5)
"""Seconds of the searches that follow an edit: one that answers while a hand still drags, one that looks again, and
one, with its bound, once nothing has changed for a while. A step is not cut short; pricing comes on top."""
PLANNER = "evolutionary"
PATIENCE_S = 1.0
"""Most seconds that a plan is waited for while the search's code is loaded; to compile it takes longer."""
COMPILING_S = 300.0
"""The same of the last search after an edit, which waits for the compiler, too."""
WORTH_MOVING = 5e-4
"""Share of the cost that a new placement must save."""
REFERENCE_S = 1.0
"""Seconds of the search whose result others are measured by."""


class Replanned(NamedTuple):
    """The plan that a short search has found, and what it changed."""

    plan: Plan
    difference: Difference | None = None
    """None for a first plan."""
    words: str = ""
    held: float | None = None
    """What the old placement is worth on the new network, by the plan's objective; None where it cannot be told."""


def first_plan(topology: Topology, job: Job, cancelled: Cancellation, options: dict[str, Any]) -> Replanned | None:
    """Return the best plan of a short search from nothing; None where it is cancelled."""
    asked = {"objective": default_objective(job)} | options
    fitted = job if asked["objective"] != COMMUNICATION else job.fitted(len(topology))
    best = _searched(topology, fitted, cancelled, BUDGETS_S[0], seed=0, improve_bound=False, **asked)
    return None if best is None else Replanned(simulated(best.plan))


def improved(found: Replanned, job: Job, cancelled: Cancellation, seconds: float) -> Replanned | None:
    """Return what a longer search from a plan finds, with its bound; the same placement where nothing is better.

    ``job`` is what was asked for, with what it leaves open. None where it is cancelled.
    """
    plan = found.plan
    options: dict[str, Any] = {"objective": plan.objective, "queueing": plan.queueing, "start": plan}
    patience_s = COMPILING_S if seconds == BUDGETS_S[-1] else PATIENCE_S
    best = _searched(plan.topology, job, cancelled, seconds, patience_s=patience_s, seed=plan.seed or 0, **options)
    if best is None:
        return None
    value = objectives[plan.objective].value
    after = simulated(_oriented(plan, best).plan)
    if value(after) >= value(plan) * (1 - WORTH_MOVING):
        return found._replace(plan=_with_bounds_of(plan, after))
    if found.difference is None:
        return Replanned(after)
    difference = diff(found.difference.before, after)
    return Replanned(after, difference, describe_change(difference), found.held)


def _with_bounds_of(plan: Plan, other: Plan) -> Plan:
    """Return the plan with the higher of its bounds and those that another search has found."""
    bounds = [b for b in (plan.iteration_lower_bound_s, other.iteration_lower_bound_s) if b is not None]
    iteration_s = plan.iteration_s
    given: dict[str, Any] = {"seconds": plan.seconds + other.seconds}
    if bounds and iteration_s is not None:
        given["iteration_lower_bound_s"] = min(max(bounds), iteration_s)
    if plan.job.shaped and plan.placement.devices.shape == other.placement.devices.shape and plan.job == other.job:
        given["lower_bound_s"] = min(max(plan.lower_bound_s, other.lower_bound_s), plan.cost.total_s)
    return replace(plan, **given)


def _searched(
    topology: Topology,
    job: Job,
    cancelled: Cancellation,
    seconds: float,
    *,
    patience_s: float = PATIENCE_S,
    **options: Any,
) -> PlanStep | None:
    """Return the last step of a search of so many seconds; None where it is cancelled.

    While its compiled code is not there yet, a search yields the plan that it begins with, which may be poor: then it
    is waited for, at most ``patience_s`` seconds.
    """
    began = time.perf_counter()
    best: PlanStep | None = None
    with shared_interpreter(), cancelled.heard() as end_after:
        for step in search(topology, job, PLANNER, seconds=seconds, **options):
            if cancelled.is_set():
                return None
            took_s = time.perf_counter() - began
            if step.evaluations > 1 and (best is None or best.evaluations <= 1):
                end_after(seconds - took_s)  # its kernels are loaded
            best = step
            if took_s > (seconds if step.evaluations > 1 else max(seconds, patience_s)):
                break
    assert best is not None, "a search yields at least one step"
    return best


def replanned(plan: Plan, topology: Topology, job: Job, cancelled: Cancellation) -> Replanned | None:
    """Return the best plan of a short search from ``plan``, by its objective; None where it is cancelled.

    The old placement is kept, with the planner that found it, where the best saves too little, and where the edit
    changes no cost, as a new name of a region does: then nothing is searched, so that a placement made by hand stays.

    Raises PlanError where the job does not fit the network.
    """
    start = adapt_plan(plan, topology, job)
    if _costs_alike(plan, start):
        return _kept(plan, start, plan)
    value = objectives[plan.objective].value
    if plan.objective != COMMUNICATION:
        start = simulated(start)
    options: dict[str, Any] = {
        "objective": plan.objective,
        "queueing": plan.queueing,
        "start": start,
        "improve_bound": False,
    }
    best = _searched(topology, job, cancelled, BUDGETS_S[0], seed=plan.seed or 0, **options)
    if best is None:
        return None
    after = _oriented(plan, best).plan
    if _is_known(plan, start) and value(after) > value(start) * (1 - WORTH_MOVING):
        return _kept(plan, start, after)
    return _replanned(plan, start, after)


def _is_known(plan: Plan, start: Plan) -> bool:
    """Whether the old placement can be judged by the plan's objective, and fits the memory as far as that counts."""
    if plan.objective == COMMUNICATION:
        return True
    if start.iteration_s is None:
        return False
    report = held_memory(start)
    return report is None or report.fits


def _kept(plan: Plan, start: Plan, bounded: Plan) -> Replanned:
    """Return the placement of ``plan`` on the new network, still with the planner and seed that found it.

    ``bounded`` has the lower bounds of the new network.
    """
    made = {name: getattr(plan, name) for name in ("planner", "seed", "generation", "evaluations", "seconds")}
    made |= {"objective": plan.objective, "queueing": plan.queueing}
    start = simulated(start)
    bound_s, iteration_s = bounded.iteration_lower_bound_s, start.iteration_s
    if bound_s is not None and iteration_s is not None:
        made["iteration_lower_bound_s"] = min(bound_s, iteration_s)
    least_s = min(bounded.lower_bound_s, start.cost.total_s)
    return _replanned(plan, start, replace(start, lower_bound_s=least_s, **made))


def _replanned(before: Plan, start: Plan, after: Plan) -> Replanned:
    difference = diff(before, after)
    known = after.objective == COMMUNICATION or start.iteration_s is not None
    held = objectives[after.objective].value(start) if known else None
    return Replanned(after, difference, describe_change(difference, start), held)


def _costs_alike(plan: Plan, start: Plan) -> bool:
    """Whether every placement costs what it did before; names do not matter."""
    if not np.array_equal(plan.placement.devices, start.placement.devices):
        return False
    if plan.objective != COMMUNICATION:
        return _priced_alike(plan, start)
    before, after = (pair_costs(one.topology, one.job) for one in (plan, start))
    return np.array_equal(before.group_s, after.group_s) and np.array_equal(before.hop_s, after.hop_s)


def _priced_alike(plan: Plan, start: Plan) -> bool:
    """Whether links, devices and job are what they were, but for what no simulation reads."""
    before, after = plan.topology, start.topology
    if plan.job != start.job:
        return False
    links = (before.latency_s, after.latency_s), (before.bandwidth_bytes_per_s, after.bandwidth_bytes_per_s)
    if not all(np.array_equal(a, b, equal_nan=True) for a, b in links):
        return False
    if before.message_bytes is not None or after.message_bytes is not None:
        return before.fingerprint == after.fingerprint
    unread: dict[str, Any] = {"name": "device", "region": "", "position": None}
    return all(replace(a, **unread) == replace(b, **unread) for a, b in zip(before.devices, after.devices, strict=True))


def _oriented(before: Plan, step: PlanStep) -> PlanStep:
    """Return the step or its reverse, which has the same communication cost: the one that moves fewer devices."""
    if step.objective != COMMUNICATION:
        return step
    stage_of = {name: stage for stage, group in enumerate(before.stages) for name in group}
    was = np.array([stage_of.get(name, -1) for name in step.topology.names])[step.devices]
    stages = np.arange(len(was))[:, None]
    return step if (was == stages).sum() >= (was[::-1] == stages).sum() else replace(step, best=step.best[::-1])


@dataclass(frozen=True)
class Reference:
    """The real planner's cost, what no placement is cheaper than, and how long it took."""

    cost_s: float
    bound_s: float
    found_s: float
    """Seconds of search until the cost was found; the proof may have taken longer."""
    proved_s: float | None
    """Seconds of search until it was proved; None where it is not."""

    @property
    def is_proved(self) -> bool:
        return self.proved_s is not None

    @property
    def sentence(self) -> str:
        """``The real planner proved 456 ms in 6 ms``, or what it found."""
        if self.proved_s is not None:
            return f"The real planner proved {format_s(self.cost_s)} in {rounded(self.proved_s)}"
        return f"The real planner found {format_s(self.cost_s)} in {rounded(self.found_s)}"


def rounded(seconds: float) -> str:
    """Return a duration of a search in whole milliseconds, or in seconds to a tenth."""
    return f"{seconds:.1f} s" if seconds >= 1 else f"{max(1, round(seconds * 1e3))} ms"


def refer(topology: Topology, job: Job) -> Reference:
    """Search by the communication cost for up to ``REFERENCE_S``. Raises PlanError where the job does not fit."""
    began = time.perf_counter()
    best_s, bound_s, found_s, proved_s = float("inf"), 0.0, 0.0, None
    for step in search(topology, job, PLANNER, seed=0, seconds=REFERENCE_S):
        bound_s = max(bound_s, step.bound_s)
        if step.best_s < best_s * (1 - PROVEN):
            best_s, found_s = step.best_s, step.seconds
        if step.gap < PROVEN:
            proved_s = step.seconds
        if time.perf_counter() - began > 10 * REFERENCE_S:
            break
    return Reference(best_s, min(bound_s, best_s), found_s, proved_s)
