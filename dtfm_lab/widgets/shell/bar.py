"""The bar over the lab, kept true to the lab's state."""

import asyncio
from collections.abc import Callable

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.theme import count
from dtfm_lab.widgets.lab_state import RESULT_TRAITS, LabState
from dtfm_lab.widgets.planner.job_controls import shape_words
from dtfm_lab.widgets.planner.replanning import Replanning
from dtfm_lab.widgets.shell.bar_numbers import bar_numbers
from dtfm_lab.widgets.shell.headline import PANE_NOTES, headline, reason_of
from dtfm_lab.widgets.shell.history import EditHistory
from dtfm_lab.widgets.shell.next_action import Action, next_action
from dtfm_lab.widgets.tasks import begin, has_event_loop
from dtfm_lab.widgets.views.top_bar import TopBar

REST_S = 0.3
"""Seconds that a plan stands before it is analysed, so that a drag is not slowed."""


class Bar:
    """Writes numbers, headline and next action into a TopBar whenever the lab's state changes."""

    def __init__(
        self,
        lab_state: LabState,
        replanning: Replanning,
        on_press: Callable[[str], None],
        can_refit: Callable[[], bool],
        in_gesture: Callable[[], bool],
    ) -> None:
        self._lab_state, self._replanning, self._can_refit = lab_state, replanning, can_refit
        self.history = EditHistory(lab_state, in_gesture=in_gesture)
        lab_state.observe(lambda change: self._take_plan(change["new"]), "plan")
        self._reason: tuple[Plan | None, str, str] = (None, "", "")
        """The plan and the schedule that were analysed last, and what binds them."""
        self._is_due = False
        self.view = TopBar(on_press, live=replanning.switch.value)
        self.view.observe(lambda change: setattr(replanning.switch, "value", change["new"]), "live")
        self.view.observe(lambda change: lab_state.set_trait("dark", change["new"]), "dark")
        replanning.switch.observe(lambda change: setattr(self.view, "live", change["new"]), "value")
        notes = sorted(set(PANE_NOTES.values()))
        lab_state.observe(
            lambda _: self._soon(), [*RESULT_TRAITS, "bound_s", "busy", "message", "pane", "hand_note", *notes]
        )
        self.refresh()

    def _take_plan(self, plan: Plan | None) -> None:
        """Lay a plan that no edit has asked for against nothing: it was searched for, chosen or made by hand."""
        last = self._replanning.last
        if plan is not None and not self._lab_state.plan_is_stale and (last is None or last.plan is not plan):
            self.history.forget()

    @property
    def action(self) -> Action:
        """The one next action."""
        return next_action(self._lab_state, can_refit=self._can_refit())

    @property
    def _is_replanning(self) -> bool:
        state = self._lab_state
        waits = state.plan_is_stale and self._replanning.switch.value and not self._replanning.has_failed
        return waits and state.topology is not None and not state.message

    def _soon(self) -> None:
        """Refresh once for all changes of one turn of the loop."""
        if not has_event_loop():
            self.refresh()
        elif not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self.refresh)

    def refresh(self) -> None:
        self._is_due = False
        state, view, before = self._lab_state, self.view, self.history.before
        topology, job, plan = state.topology, state.job, state.plan
        with view.hold_sync():
            view.network = ["", ""] if topology is None else [topology.name, _consists_of(state)]
            view.job = ["", ""] if job is None else [job.name, _shape(state)]
            view.numbers = bar_numbers(state, before)
            if not self._is_replanning:  # what was said stays until there is something new to say
                view.headline = headline(state, before, self._replanning.last, self._reason_of(plan))._asdict()
            view.action = self.action._asdict()
            took_s = self._replanning.took_s
            view.live_note = f"planned in {format_s(took_s)}" if took_s else ""

    def _reason_of(self, plan: Plan | None) -> str:
        """Return what binds the plan, as far as known; a thread looks as soon as the plan has stood for a while."""
        if plan is None or self._lab_state.plan_is_stale:
            return ""
        known, under, words = self._reason
        is_known = known is plan and under == self._lab_state.schedule
        if not is_known and has_event_loop():
            begin(self._analyse(plan, self._lab_state.schedule), lambda _: None)
        return words if is_known else ""

    async def _analyse(self, plan: Plan, schedule: str) -> None:
        await asyncio.sleep(REST_S)
        state = self._lab_state
        if state.plan is not plan or state.schedule != schedule or self._reason[:2] == (plan, schedule):
            return
        self._reason = plan, schedule, await asyncio.to_thread(reason_of, plan, schedule)
        self.refresh()


def _consists_of(state: LabState) -> str:
    topology = state.topology
    assert topology is not None
    regions = {device.region for device in topology.devices} - {""}
    where = f" in {count(len(regions), 'region')}" if len(regions) > 1 else ""
    return f"{count(len(topology), 'device')}{where}"


def _shape(state: LabState) -> str:
    plan, job = state.plan, state.job
    assert job is not None
    planned = job if plan is None or state.plan_is_stale else plan.job
    if planned.n_stages is None or planned.n_replicas is None:
        return f"batch {planned.global_batch:,}"
    batch = "" if planned.model is None else f", batch {planned.global_batch:,}"
    return f"{shape_words(planned.n_stages, planned.n_replicas, 0)}{batch}"
