"""A new plan after every edit: a short search on a thread that begins with the current plan."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from html import escape
from typing import Any, NamedTuple

import ipywidgets as w
import numpy as np
import pandas as pd

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.lab.memory_warnings import held_memory
from dtfm_lab.planning import Difference, PlanStep, adapt_plan, diff, objectives, search, simulated
from dtfm_lab.planning.cost import pair_costs
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.controls import restore_values, values_of
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.measures import measure_of
from dtfm_lab.widgets.panel import Panel
from dtfm_lab.widgets.planner.objective_controls import COMMUNICATION
from dtfm_lab.widgets.tasks import begin, has_event_loop

BUDGET_S = 0.12
"""Seconds of search. A step is not cut short; the first bound and the pricing come on top."""
PLANNER = "evolutionary"
READY = "every edit is followed by a new plan"
WORTH_MOVING = 5e-4
"""Share of the cost that a new placement must save."""


NAMED = 4
"""Most devices that are named in the line; the rest are counted."""
SAME = 5e-4
"""Share of the cost below which a change is not mentioned."""


class Request(NamedTuple):
    """The plan to begin with, and the network and the job to plan for."""

    plan: Plan
    topology: Topology
    job: Job


class Replanned(NamedTuple):
    """The plan that a short search has found, and what it changed."""

    plan: Plan
    difference: Difference
    words: str


class Replanning(Panel):
    """Sets ``lab_state.plan`` soon after ``lab_state.topology`` or ``lab_state.job`` changed, where there was a plan.

    The search begins with the old placement, see ``planning.adapt_plan``. An edit during a search ends it, and only
    the newest network is planned for.
    """

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state = lab_state
        self._task: asyncio.Task[None] | None = None
        self._cancelled = threading.Event()
        self._failed: Request | None = None
        """The last request that could not be planned; it is not tried again."""
        self.last: Replanned | None = None
        self.switch = w.Checkbox(
            False,
            description="Replan as I draw",
            indent=False,
            tooltip="Every edit is followed by a short search from the current plan",
            layout=w.Layout(width="170px"),
        )
        self.line = w.HTML(layout=w.Layout(min_width="0", flex="1 1 300px"))
        self.view = w.HBox([self.switch, self.line])
        self.switch.observe(lambda _: self._switch(), "value")
        lab_state.observe(lambda _: self._request(), ["topology", "job", "plan"])
        self._switch()

    def settings(self) -> dict[str, Any]:
        return values_of({"on": self.switch})

    def restore(self, settings: dict[str, Any]) -> None:
        restore_values({"on": self.switch}, settings)

    def _switch(self) -> None:
        if self.switch.value:
            self._write(READY if self._lab_state.plan is not None else f"{READY}, once there is one to begin with")
            self._request()
        else:
            self._cancelled.set()
            self.line.value = ""

    def _request(self) -> None:
        """Begin, or begin again, where the plan is out of date."""
        if not self.switch.value:
            return
        if self._failed is not None and self._lab_state.plan is not None and not self._lab_state.plan_is_stale:
            self._failed = None  # the edit was undone
            self._write(READY)
        if self._next_request() is None:
            return
        self._cancelled.set()
        if self._task is None:
            if not has_event_loop():
                return
            self._task = begin(self._follow(), self._report_error)

    def _next_request(self) -> Request | None:
        """Return what to plan; None where the plan is up to date, or nothing can be planned."""
        lab_state = self._lab_state
        if lab_state.plan is None or lab_state.topology is None or lab_state.job is None or not lab_state.plan_is_stale:
            return None
        request = Request(lab_state.plan, lab_state.topology, lab_state.job)
        return None if self._failed is not None and _same(request, self._failed) else request

    async def _follow(self) -> None:
        """Replan until the plan is of the newest network."""
        try:
            while self.switch.value and self._next_request() is not None:
                await asyncio.sleep(0)  # lets an edit that changes network and job set both
                if (request := self._next_request()) is None:
                    return
                self._cancelled = threading.Event()
                try:
                    found = await asyncio.to_thread(replanned, *request, self._cancelled)
                except LabError as error:
                    self._failed = request
                    self._report_error(str(error))
                    continue
                now = self._next_request()
                if found is not None and self.switch.value and now is not None and _same(now, request):
                    self.last = found
                    self._lab_state.plan = found.plan
                    self._write(found.words)
        finally:
            self._task = None

    def _write(self, text: str) -> None:
        self.line.value = markup.line(escape(text), "note")

    def _report_error(self, message: str) -> None:
        """Show the error beside the switch, as the drawing itself is valid."""
        self.line.value = markup.line(f"Not replanned: {escape(message)}", "warning")


def replanned(plan: Plan, topology: Topology, job: Job, cancelled: threading.Event) -> Replanned | None:
    """Return the best plan of a short search from ``plan``, by its objective; None where it is cancelled.

    The old placement is kept, with the planner that found it, where the best saves too little, and where the edit
    changes no cost, as a new name of a region does: then nothing is searched, so that a placement made by hand stays.

    Raises PlanError where the job does not fit the network.
    """
    began = time.perf_counter()
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
    best: PlanStep | None = None
    for step in search(topology, job, PLANNER, seed=plan.seed or 0, seconds=BUDGET_S, **options):
        if cancelled.is_set():
            return None
        best = step
        if time.perf_counter() - began > BUDGET_S and step.seconds > BUDGET_S / 2:
            break
    assert best is not None, "a search yields at least one step"
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
    return Replanned(after, difference, describe_change(difference, start))


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


def _same(one: Request, other: Request) -> bool:
    return one.plan is other.plan and one.topology is other.topology and one.job == other.job


def describe_change(difference: Difference, start: Plan | None = None) -> str:
    """Return the value before and after, the part of the difference that the network itself makes, and the moves.

    ``start`` is the old placement on the new network, where the plan was searched by its simulated seconds.
    """
    return f"{_cost(difference, start)}; {_devices(difference)}"


def _cost(difference: Difference, start: Plan | None) -> str:
    before, after = difference.before, difference.after
    objective = after.objective if None not in (before.iteration_s, after.iteration_s) else COMMUNICATION
    words = measure_of(objective).words
    if objective == COMMUNICATION:
        was, now = before.cost.total_s, after.cost.total_s
        carried = None if difference.carried is None else difference.carried.total_s
        return _of_change(was, now, carried, "the cost", words)
    value = objectives[objective].value
    known = start is not None and start.iteration_s is not None
    carried = value(start) if start is not None and known else None
    return _of_change(value(before), value(after), carried, f"the {measure_of(objective).noun}", words)


def _of_change(was: float, now: float, carried: float | None, noun: str, words: Callable[[float], str]) -> str:
    def signed(amount: float) -> str:
        return f"{'+' if amount >= 0 else '−'}{words(abs(amount))}"

    change = (now - was) / was if was > 0 else 0.0
    if abs(change) < SAME:
        text, link = f"{noun} stays at {words(now)}", ":"
    else:
        share = f"{abs(change):.1%}".replace("%", " %")
        text = f"{words(was)} → {words(now)} ({share} {'more' if change > 0 else 'less'})"
        link = ", of which"
    if carried is not None and abs(carried - was) > SAME * was:
        text += f"{link} the network itself {signed(carried - was)}"
        if abs(now - carried) > SAME * was:
            text += f", moving devices {signed(now - carried)}"
    return text


def _devices(difference: Difference) -> str:
    table = difference.devices
    moved = table[table["change"].isin(["moved", "gone idle", "come in", "removed", "added"])]
    if moved.empty:
        return "no device moved"
    first = moved[moved["change"].isin(["removed", "added"])]  # the causes before the effects
    named = pd.concat([first, moved.drop(first.index)])
    words = [_move(row) for row in named.head(NAMED).itertuples()]
    more = f" and {len(moved) - NAMED} more" if len(moved) > NAMED else ""
    return f"{len(moved)} device{'s' * (len(moved) != 1)} changed: {', '.join(words)}{more}"


def _move(row: Any) -> str:
    """Return one device's move, with each plan's own stage numbers from 0, as the map shows them."""
    name, was, now = row.device, row.stage_before, row.stage_after
    if row.change == "removed":
        return f"{name} left"
    if pd.isna(now):
        return f"{name} joined, idle" if row.change == "added" else f"{name} idle"
    if pd.isna(was):
        return f"{name} {'joined, ' if row.change == 'added' else ''}into stage {now}"
    if was == now and not pd.isna(row.matched_stage):
        now = row.matched_stage
    return f"{name} stage {was} → {now}"
