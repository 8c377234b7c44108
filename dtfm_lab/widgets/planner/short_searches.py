"""Short searches from the current plan, for a screen that answers every edit. They contain no widget."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_share
from dtfm_lab.planning import Cancellation, PlanStep, adapt_plan, default_objective, objectives, search, simulated
from dtfm_lab.planning.adapting import nearest, starting_plans
from dtfm_lab.planning.cost import pair_costs
from dtfm_lab.simulation.memory import held_memory
from dtfm_lab.widgets.live_search import LiveSearch
from dtfm_lab.widgets.planner.edits import SAME, BeforeEdit, PlanChange
from dtfm_lab.widgets.planner.job_controls import COMMUNICATION
from dtfm_lab.widgets.tasks import shared_interpreter

BUDGETS_S = (0.015, 0.25, 2.5)
"""Seconds of the three searches that follow an edit. The first one answers even during a drag.

The other two look for a better plan and a higher bound, once nothing has changed for a while. A step is not
interrupted, and evaluation adds to these times.
"""
PLANNER = "evolutionary"
PATIENCE_S = 1.0
"""Maximum seconds to wait for a plan while the search's code is loaded. Compiling it takes longer."""
COMPILING_S = 300.0
"""Maximum seconds to wait for the last search after an edit, which also waits for the compiler."""
EXPLAINED_LATER_UP_TO = 64
"""Up to this many devices, the sentence on what changed is written when it is first read, on the kernel's loop, in 5
ms.

For more devices, the search's thread writes it: 170 ms for 256.
"""
BETTER = 5e-4
"""Minimum share by which a longer search must improve a first plan to replace it. It is small, because the user has not
looked at that plan for long."""


class Replanned(NamedTuple):
    """The plan that a short search found, and what it changed from the plan before the edit."""

    plan: Plan
    change: PlanChange | None = None
    """The change from the plan before the edit. None for a first plan."""
    gain: str = ""
    """The gain of a longer search, such as "A longer search found a plan that is 12 % faster"."""


def gain_words(before: Plan, after: Plan) -> str:
    """Return that a longer search found a better plan, and by how much. Empty if the gain is too small to report."""
    value = objectives[after.objective].value
    was, now = value(before), value(after)
    if not now < was * (1 - SAME):
        return ""
    better = {"iteration": "faster", COMMUNICATION: "better by its communication cost"}.get(after.objective, "cheaper")
    return f"A longer search found a plan that is {format_share(1 - now / was, 0)} {better}"


def first_plan(
    topology: Topology, job: Job, cancelled: Cancellation, options: dict[str, Any], live: LiveSearch | None = None
) -> Replanned | None:
    """Return the best plan of a short search from scratch. None if it is cancelled. ``live`` receives its steps."""
    asked = {"objective": default_objective(job)} | options
    fitted = job if asked["objective"] != COMMUNICATION else job.fitted(len(topology))
    best = _searched(topology, fitted, cancelled, BUDGETS_S[0], live=live, seed=0, improve_bound=False, **asked)
    return None if best is None else Replanned(nearest(without_checkpointing(simulated(best.plan), job), None))


def improved(
    found: Replanned, job: Job, cancelled: Cancellation, seconds: float, live: LiveSearch | None = None
) -> Replanned | None:
    """Search longer from the plan that was found, and return the better plan, or the same one with its new bound.

    ``job`` is the requested job, whose open fields the search may choose again. None if the search is cancelled.
    """
    plan = found.plan
    options: dict[str, Any] = {"objective": plan.objective, "queueing": plan.queueing, "start": plan}
    patience_s = COMPILING_S if seconds == BUDGETS_S[-1] else PATIENCE_S
    options |= {"patience_s": patience_s, "live": live, "seed": plan.seed or 0}
    best = _searched(plan.topology, job, cancelled, seconds, **options)
    if best is None:
        return None
    value = objectives[plan.objective].value
    change = found.change
    after = without_checkpointing(simulated(_oriented(plan, best).plan), job)
    if value(after) >= value(plan) * (1 - (BETTER if change is None else SAME)):
        return found._replace(plan=_with_bounds_of(plan, after))
    if change is None:
        return Replanned(nearest(after, plan))  # move as few devices as possible, so that the eye can follow
    return _replanned(nearest(after, change.before.plan), change.before, job)


def without_checkpointing(plan: Plan, job: Job) -> Plan:
    """Return the plan without activation checkpointing, if the job leaves that open and the plan then fits and is no
    worse. Otherwise return it unchanged.

    A short random search may end with activations that are computed again for nothing. And a real run cannot carry out
    every kind of checkpointing.
    """
    is_open = job.checkpointing is None and not job.recompute
    if not is_open or plan.job.checkpoints == "none" or plan.objective == COMMUNICATION:
        return plan
    # The warm-ups are named, because other checkpointing would let them be chosen again.
    without = plan.job.with_fields(checkpointing="none", recompute=False, warmups=plan.job.warmups)
    lighter = simulated(plan.changed(job=without))
    value = objectives[plan.objective].value
    if not _is_known(lighter, lighter) or value(lighter) > value(plan) * (1 + 1e-9):
        return plan
    bound_s, iteration_s = plan.iteration_lower_bound_s, lighter.iteration_s
    assert iteration_s is not None, "a plan that can be judged by seconds is simulated"
    return replace(lighter, iteration_lower_bound_s=None if bound_s is None else min(bound_s, iteration_s))


def _with_bounds_of(plan: Plan, other: Plan) -> Plan:
    """Return ``plan`` with the higher of its bounds and ``other``'s, and with the search times of both added."""
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
    live: LiveSearch | None = None,
    **options: Any,
) -> PlanStep | None:
    """Return the last step of a search of ``seconds``. None if it is cancelled. ``live`` receives its steps.

    Until its compiled code is loaded, a search yields the plan that it starts with, which may be poor. So it is given
    up to ``patience_s`` seconds to load it.
    """
    began = time.perf_counter()
    best: PlanStep | None = None
    if live is not None:
        live.begin()
    with shared_interpreter(), cancelled.heard() as end_after:
        for step in search(topology, job, PLANNER, seconds=seconds, **options):
            if cancelled.is_set():
                return None
            took_s = time.perf_counter() - began
            if step.evaluations > 1 and (best is None or best.evaluations <= 1):
                end_after(seconds - took_s)  # the compiled code is loaded, so the time limit applies from here
            best = step
            if live is not None:
                live.add(step)
            if took_s > (seconds if step.evaluations > 1 else max(seconds, patience_s)):
                break
        assert best is not None, "a search yields at least one step"
        if live is not None:
            live.add(best, last=True)
    return best


def replanned(
    plan: Plan,
    topology: Topology,
    job: Job,
    cancelled: Cancellation,
    before: BeforeEdit | None = None,
    earlier: Plan | None = None,
    live: LiveSearch | None = None,
    at_hand: Callable[[Plan], None] = lambda plan: None,
) -> Replanned | None:
    """Search briefly from ``plan``, for the same objective, and return the best plan. None if it is cancelled.

    ``before`` is what was shown before the edit, by default ``plan``. ``plan`` may be an answer to an earlier part of
    the same drag. ``earlier`` is a previous plan of this very network, so that undoing an edit brings its plan back.

    If the best saves less than ``SAME``, an old placement is kept, along with the planner that found it. The placement
    before the edit comes first, then the placement of ``plan``, then the placement of ``earlier``. If the edit changes
    no cost, as when a region is renamed, nothing is searched, so that a placement made by hand stays. In the result, as
    many devices as possible stay in place. If there are too few devices for the plan's shape, the search starts from
    fewer of its pipelines.

    If ``plan`` still works unchanged on the edited network, ``at_hand`` is called with it before the search. It is not
    called if the objective is the communication cost, because that search is as fast as drawing the chart.

    Raises PlanError if the job does not fit the network.
    """
    before = before or BeforeEdit(plan.topology, job, plan, plan.iteration_s)
    start = _on(plan, topology, job)
    if start is not None and _costs_alike(plan, start):
        return _replanned(_kept(plan, start, plan), before, job)
    options: dict[str, Any] = {"objective": plan.objective, "queueing": plan.queueing, "improve_bound": False}
    options |= {"live": live, "seed": plan.seed or 0, "start": start}
    if start is None and plan.objective != COMMUNICATION:
        options["nearby"] = tuple(starting_plans(plan, topology))
    if start is not None and plan.objective != COMMUNICATION and is_same_placement(start, plan):
        at_hand(start)  # a search for the communication cost is as fast as drawing its chart
    best = _searched(topology, job, cancelled, BUDGETS_S[0], **options)
    if best is None:
        return None
    value = objectives[plan.objective].value
    after = without_checkpointing(_oriented(plan, best).plan, job)
    starts = [(plan, start)] if before.plan is plan else [(before.plan, _on(before.plan, topology, job)), (plan, start)]
    if earlier is not None and earlier.objective == plan.objective:
        starts.append((earlier, _on(earlier, topology, job)))
    known = [(made, one) for made, one in starts if one is not None and _is_known(made, one)]
    least = min([value(after), *(value(one) for _, one in known)])
    for made, one in known:
        if least > value(one) * (1 - SAME):
            return _replanned(_kept(made, one, after), before, job)
    return _replanned(nearest(after, before.plan), before, job)


def _on(plan: Plan, topology: Topology, job: Job) -> Plan | None:
    """Return a plan on another network, for another job.

    If it does not fit, such as for lack of devices, return None if the job leaves its shape open, else raise LabError.
    """
    try:
        start = adapt_plan(plan, topology, job)
    except LabError:
        if job.shaped:
            raise
        return None
    return start if plan.objective == COMMUNICATION else simulated(start)


def _replanned(plan: Plan, before: BeforeEdit, job: Job) -> Replanned:
    """Return the plan with its change from the earlier plan.

    For many devices, the change is put into words here, because this may run on a thread. For few, that waits until the
    sentence is read, so that the chart appears first.
    """
    change = PlanChange(before, simulated(plan), job)
    if len(plan.topology) > EXPLAINED_LATER_UP_TO:
        change.sentence  # noqa: B018 (a cached property, computed here)
    return Replanned(change.after, change)


def _is_known(plan: Plan, start: Plan) -> bool:
    """True if the old placement ``start`` has an iteration time and is not known to lack memory. Always True for the
    communication cost."""
    if plan.objective == COMMUNICATION:
        return True
    if start.iteration_s is None:
        return False
    report = held_memory(start)
    return report is None or report.fits


def _kept(plan: Plan, start: Plan, bounded: Plan) -> Plan:
    """Return ``start``, the placement of ``plan`` on the new network, with an iteration time if it can be simulated.

    It keeps the planner, seed, counts, search time, objective and queueing of ``plan``. Its lower bounds come from
    ``bounded``, capped at its own cost and time.
    """
    made = {name: getattr(plan, name) for name in ("planner", "seed", "generation", "evaluations", "seconds")}
    made |= {"objective": plan.objective, "queueing": plan.queueing}
    start = simulated(start)
    bound_s, iteration_s = bounded.iteration_lower_bound_s, start.iteration_s
    if bound_s is not None and iteration_s is not None:
        made["iteration_lower_bound_s"] = min(bound_s, iteration_s)
    least_s = min(bounded.lower_bound_s, start.cost.total_s)
    return replace(start, lower_bound_s=least_s, left_open=bounded.left_open, **made)


def _costs_alike(plan: Plan, start: Plan) -> bool:
    """True if the edit changes no placement's cost, for example because it only renames devices."""
    if not np.array_equal(plan.placement.devices, start.placement.devices):
        return False
    if plan.objective != COMMUNICATION:
        return _simulated_alike(plan, start)
    return is_priced_alike((plan.topology, plan.job), (start.topology, start.job))


def is_priced_alike(one: tuple[Topology, Job], other: tuple[Topology, Job]) -> bool:
    """True if every placement has the same communication cost on two networks, each with its job."""
    before, after = pair_costs(*one), pair_costs(*other)
    return np.array_equal(before.group_s, after.group_s) and np.array_equal(before.hop_s, after.hop_s)


def _simulated_alike(plan: Plan, start: Plan) -> bool:
    """True if links, devices and job are the same, apart from fields that no simulation reads."""
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


def is_same_placement(one: Plan, other: Plan) -> bool:
    """True if two plans of one job put the same devices in the same places."""
    return one.job == other.job and one.stages == other.stages


def _oriented(before: Plan, step: PlanStep) -> PlanStep:
    """Return the step with its stages in this or in reverse order, whichever moves fewer devices. Both cost the same.

    Only for the communication cost. Other steps stay as they are.
    """
    if step.objective != COMMUNICATION:
        return step
    stage_of = {name: stage for stage, group in enumerate(before.stages) for name in group}
    was = np.array([stage_of.get(name, -1) for name in step.topology.names])[step.devices]
    stages = np.arange(len(was))[:, None]
    return step if (was == stages).sum() >= (was[::-1] == stages).sum() else replace(step, best=step.best[::-1])
