"""The bar over the lab, kept true to the lab's state: its live numbers, and the one next action."""

import asyncio
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from dtfm_lab.compare import Comparison
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_range, format_s
from dtfm_lab.figures.theme import count
from dtfm_lab.planning.explain.sentences import none_of
from dtfm_lab.widgets.lab_state import RESULT_TRAITS, LabState, prediction_staleness, run_staleness, shown_s
from dtfm_lab.widgets.measures import format_count, format_dollars, format_times
from dtfm_lab.widgets.planner.edits import BeforeEdit, is_same
from dtfm_lab.widgets.planner.job_controls import shape_words
from dtfm_lab.widgets.planner.replanning import LiveReplanning
from dtfm_lab.widgets.shell.headline import PANE_NOTES, headline, reason_of
from dtfm_lab.widgets.tasks import begin, has_event_loop
from dtfm_lab.widgets.views.frame import TopBar

REST_S = 0.3
"""Seconds that a plan stands before it is analysed, so that a drag is not slowed."""
PROVED = 5e-4
"""Gap below which a communication cost is told as proved."""


class NextAction(NamedTuple):
    """A next action: its name for the program, its label, and why it cannot be taken, empty where it can."""

    name: str
    label: str
    why_not: str = ""


class StatusBar:
    """Writes numbers, headline and next action into a TopBar whenever the lab's state changes."""

    def __init__(
        self,
        lab_state: LabState,
        replanning: LiveReplanning,
        on_press: Callable[[str], None],
        can_refit: Callable[[], bool],
    ) -> None:
        self._lab_state, self._replanning, self._can_refit = lab_state, replanning, can_refit
        self.history = replanning.history
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
    def action(self) -> NextAction:
        """The one next action."""
        return next_action(self._lab_state, can_refit=self._can_refit())

    @property
    def _is_replanning(self) -> bool:
        state = self._lab_state
        waits = state.plan_is_stale and self._replanning.switch.value and not state.not_planned
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
            view.network = ["", ""] if topology is None else [topology.name, consists_of(state)]
            view.job = ["", ""] if job is None else [job.name, shape_of(state)]
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


def consists_of(state: LabState) -> str:
    """Return what the network consists of: ``8 devices in 2 regions``."""
    topology = state.topology
    assert topology is not None
    regions = {device.region for device in topology.devices} - {""}
    where = f" in {count(len(regions), 'region')}" if len(regions) > 1 else ""
    return f"{count(len(topology), 'device')}{where}"


def shape_of(state: LabState) -> str:
    """Return the shape that the job is planned in, with its batch."""
    plan, job = state.plan, state.job
    assert job is not None
    planned = job if plan is None or state.plan_is_stale else plan.job
    if planned.n_stages is None or planned.n_replicas is None:
        return f"batch {planned.global_batch:,}"
    batch = "" if planned.model is None else f", batch {planned.global_batch:,}"
    return f"{shape_words(planned.n_stages, planned.n_replicas, 0)}{batch}"


def bar_numbers(state: LabState, before: BeforeEdit | None) -> list[dict[str, Any]]:
    """Return {label, value, was, note, short, bad, word} of each number.

    ``was`` is empty where nothing changed; ``short`` is the note where there is little room.
    """
    plan = state.plan
    if plan is None or state.not_planned:
        return []
    numbers = [_plan_number(plan, before), _iteration_number(state, plan, before)]
    seconds = shown_s(state)
    if seconds and plan.job.model is not None:
        numbers.append(_number("Throughput", f"{format_count(plan.job.tokens / seconds)} tokens/s", word="throughput"))
    dollars = plan.price_per_billion_tokens
    if dollars:
        numbers.append(_number("Price, billion tokens", format_dollars(dollars), word="price"))
    return [*numbers, _measured_number(state)]


def _number(
    label: str, value: str, *, was: str = "", note: str = "", short: str = "", bad: bool = False, word: str = ""
) -> dict[str, Any]:
    known = {"label": label, "value": value, "was": was, "note": note}
    return known | {"short": short or note, "bad": bad, "word": word}


def _plan_number(plan: Plan, before: BeforeEdit | None) -> dict[str, Any]:
    was = None if before is None else before.plan.cost.total_s
    return _number(
        "Plan: communication",
        format_s(plan.cost.total_s),
        was=_was(was, plan.cost.total_s),
        note=gap_words(plan),
        short=gap_words(plan).replace("at most", "≤").replace("the best", "best").replace("proved best", "proved"),
        word="communication cost",
    )


def gap_words(plan: Plan) -> str:
    """Return how far the communication cost is from its bound: ``at most 1.04 × the best``; empty without a bound."""
    if not plan.lower_bound_s > 0:
        return "no bound yet" if plan.cost.total_s > 0 else "nothing to send"
    times = plan.cost.total_s / plan.lower_bound_s
    return "proved the best" if plan.gap < PROVED else f"at most {format_times(times)} × the best"


def _iteration_number(state: LabState, plan: Plan, before: BeforeEdit | None) -> dict[str, Any]:
    seconds = shown_s(state)
    if seconds is None:
        return _number("Iteration, predicted", "–", note="the job has no model" if plan.job.model is None else "")
    context = None if state.predicted is None else state.predicted.context
    schedule = context.schedule if context is not None else plan.job.schedule_name
    left = plan.speed_up_left
    if left is not None and plan.iteration_s and state.bound_s > 0:
        left = min(left, max(1.0, plan.iteration_s / state.bound_s))
    note = short = schedule
    if left is not None and math.isfinite(left):
        short = "no faster plan" if left <= 1 else f"≤ {format_times(left)} × bound"
        of = "any plan's bound" if plan.scope == "any plan" else f"the bound of {plan.scope}"
        note = f"{none_of(plan)} is faster" if left <= 1 else f"at most {format_times(left)} × {of}"
    if between := _between(state):
        note, short = f"{between}, {note}", f"{between}, {short}"
    was = None if before is None else before.iteration_s
    return _number(
        "Iteration, predicted", format_s(seconds), was=_was(was, seconds), note=note, short=short, word="iteration"
    )


def _between(state: LabState) -> str:
    """Return the 90 % interval of what is predicted: ``15.4 to 24.7 s``; empty while that is being made anew."""
    return "" if state.predicted is None or prediction_staleness(state) else format_range(*state.predicted.interval())


def _measured_number(state: LabState) -> dict[str, Any]:
    if state.run_note:
        return _number("Measured", "…", note=state.run_note, word="measured")
    if state.measured is None:
        return _number("Measured", "–", note="not run", word="measured")
    comparison: Comparison | None = state.comparison
    note = "" if comparison is None else f"{comparison.iteration_error:+.1%}".replace("%", " %").replace("-", "−")
    bad = comparison is not None and abs(comparison.iteration_error) > 0.1
    return _number("Measured", format_s(state.measured.iteration_s), note=note, bad=bad, word="error")


def _was(was: float | None, now: float) -> str:
    return "" if was is None or is_same(was, now) else format_s(was)


def next_action(state: LabState, *, can_refit: bool = False) -> NextAction:
    """Return what a reader would do next; ``can_refit``: whether a network fitted to the last run can be used."""
    if "run" in state.busy:
        return NextAction("stop-run", "Stop the run")
    if "plan" in state.busy:
        return NextAction("stop-plan", "Stop and keep the best")
    if state.topology is None:
        return NextAction("open", "Open a network")
    if state.plan is None or state.plan_is_stale:
        return NextAction("plan", "Plan", "" if state.job is not None else "the job does not fit this network")
    if state.plan.job.model is None:
        return NextAction("plan", "Plan again")
    if state.measured is None or run_staleness(state):
        return NextAction("run", "Run it for real")
    if state.pane != "compare":
        return NextAction("compare", "Compare")
    return NextAction("refit", "Use the refitted network") if can_refit else NextAction("run", "Run again")
