"""A new plan with every edit: from the current one, on the edited network, while one draws on."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from html import escape
from typing import Any, NamedTuple

import ipywidgets as w
import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning import Difference, PlanStep, adapt_plan, diff, search
from dtfm_lab.planning.cost import pair_costs
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.control_state import restore, settings
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner.plan_change import told
from dtfm_lab.widgets.tasks import begin

BUDGET_S = 0.12
"""of search; a step is not cut short, and the first bound and the pricing come on top"""
PLANNER = "evolutionary"
READY = "every edit is followed by a new plan"
WORTH_MOVING = 5e-4
"""of the cost; for less nobody moves"""


class Wanted(NamedTuple):
    """The plan to begin with, and what to plan for."""

    plan: Plan
    topology: Topology
    job: Job


class Replanned(NamedTuple):
    plan: Plan
    difference: Difference
    words: str


class Replanning:
    """Sets ``lab_state.plan`` soon after ``lab_state.topology`` or ``lab_state.job`` changed, where there was a plan.

    The search begins with the old placement, see ``planning.warm_start``. Edits that come meanwhile are not queued:
    the search under way is given up, and only the newest network is planned for.
    """

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state = lab_state
        self._task: asyncio.Task[None] | None = None
        self._given_up = threading.Event()
        self._failed: Wanted | None = None
        """is not tried again"""
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
        self.switch.observe(lambda _: self._switched(), "value")
        lab_state.observe(lambda _: self._heed(), ["topology", "job", "plan"])
        self._switched()

    def settings(self) -> dict[str, Any]:
        return settings({"on": self.switch})

    def restore(self, values: dict[str, Any]) -> None:
        restore({"on": self.switch}, values)

    def _switched(self) -> None:
        if self.switch.value:
            self._say(READY if self._lab_state.plan is not None else f"{READY}, once there is one to begin with")
            self._heed()
        else:
            self._given_up.set()
            self.line.value = ""

    def _heed(self) -> None:
        """Begin, or begin again, where the plan no longer is of what is drawn."""
        if not self.switch.value:
            return
        if self._failed is not None and self._lab_state.plan is not None and not self._lab_state.plan_is_stale:
            self._failed = None  # taken back
            self._say(READY)
        if self._wanted() is None:
            return
        self._given_up.set()
        if self._task is None:
            try:
                asyncio.get_running_loop()
            except RuntimeError:  # no kernel: nobody is drawing
                return
            self._task = begin(self._follow(), self._report_error)

    def _wanted(self) -> Wanted | None:
        """None where the plan is of what is drawn, or nothing can be planned."""
        lab_state = self._lab_state
        if lab_state.plan is None or lab_state.topology is None or lab_state.job is None or not lab_state.plan_is_stale:
            return None
        wanted = Wanted(lab_state.plan, lab_state.topology, lab_state.job)
        return None if self._failed is not None and _same(wanted, self._failed) else wanted

    async def _follow(self) -> None:
        """Replan until the plan is of the newest network."""
        try:
            while self.switch.value and self._wanted() is not None:
                await asyncio.sleep(0)  # an edit may change network and job, one after the other
                if (wanted := self._wanted()) is None:
                    return
                self._given_up = threading.Event()
                try:
                    found = await asyncio.to_thread(replanned, *wanted, self._given_up)
                except LabError as error:
                    self._failed = wanted
                    self._report_error(str(error))
                    continue
                now = self._wanted()
                if found is not None and self.switch.value and now is not None and _same(now, wanted):
                    self.last = found
                    self._lab_state.plan = found.plan
                    self._say(found.words)
        finally:
            self._task = None

    def _say(self, text: str) -> None:
        self.line.value = markup.line(escape(text), "note")

    def _report_error(self, message: str) -> None:
        """In place: it is no mistake of the drawing's."""
        self.line.value = markup.line(f"Not replanned: {escape(message)}", "warning")


def replanned(plan: Plan, topology: Topology, job: Job, given_up: threading.Event) -> Replanned | None:
    """The best that a short search from ``plan`` finds, where it is worth moving for; None where it is given up.

    Where nobody moves, the placement stays whoever's it was. Where an edit changes nothing that placements are
    priced by, as a name for a region does, nothing is searched: it is no reason to give up a placement made by hand.

    Raises PlanError where the job does not fit the network.
    """
    began = time.perf_counter()
    start = adapt_plan(plan, topology, job)
    if _costs_alike(plan, start):
        return _kept(plan, start, plan.lower_bound_s)
    best: PlanStep | None = None
    for step in search(topology, job, PLANNER, seed=plan.seed or 0, seconds=BUDGET_S, start=start, improve_bound=False):
        if given_up.is_set():
            return None
        best = step
        if time.perf_counter() - began > BUDGET_S and step.seconds > BUDGET_S / 2:
            break
    assert best is not None, "a search yields at least one step"
    after = _turned(plan, best).plan
    if after.cost.total_s > start.cost.total_s * (1 - WORTH_MOVING):
        return _kept(plan, start, min(after.lower_bound_s, start.cost.total_s))
    return _replanned(plan, after)


def _kept(plan: Plan, start: Plan, bound_s: float) -> Replanned:
    """The placement of ``plan``, brought along; it is still the work of whoever made it."""
    made = {name: getattr(plan, name) for name in ("planner", "seed", "generation", "evaluations", "seconds")}
    return _replanned(plan, replace(start, lower_bound_s=bound_s, **made))


def _replanned(before: Plan, after: Plan) -> Replanned:
    difference = diff(before, after)
    return Replanned(after, difference, told(difference))


def _costs_alike(plan: Plan, start: Plan) -> bool:
    """Whether the devices are where they were, and every placement of them costs what it did; names do not count."""
    if not np.array_equal(plan.placement.devices, start.placement.devices):
        return False
    before, after = (pair_costs(one.topology, one.job) for one in (plan, start))
    return np.array_equal(before.group_s, after.group_s) and np.array_equal(before.hop_s, after.hop_s)


def _turned(before: Plan, step: PlanStep) -> PlanStep:
    """The order of stages has no direction: of the two, the one that leaves more devices at their number."""
    stage_of = {name: stage for stage, group in enumerate(before.stages) for name in group}
    was = np.array([stage_of.get(name, -1) for name in step.topology.names])[step.devices]
    stages = np.arange(len(was))[:, None]
    return step if (was == stages).sum() >= (was[::-1] == stages).sum() else replace(step, devices=step.devices[::-1])


def _same(one: Wanted, other: Wanted) -> bool:
    return one.plan is other.plan and one.topology is other.topology and one.job == other.job
