"""The pane Schedule: the Gantt chart of one iteration under a schedule."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from html import escape
from typing import Any

import traitlets
from traitlets import TraitError

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.simulation import schedules
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import Panel, button, classed, more_menu, pane, toggle, toolbar
from dtfm_lab.widgets.lab_state import Guard, LabState, predicted_of_run
from dtfm_lab.widgets.planner.edits import is_same
from dtfm_lab.widgets.planner.plan_words import PLANNING, say_without_plan
from dtfm_lab.widgets.planner.short_searches import is_same_placement
from dtfm_lab.widgets.schedule.choices import ChoiceControls, SchedulesTable
from dtfm_lab.widgets.schedule.predictions import (
    AS_SPECIFIED,
    FLOP,
    FROM_PROFILE,
    ChartedPrediction,
    GanttExports,
    ScheduleChart,
    changed_source,
    is_comparable,
    predicted,
)
from dtfm_lab.widgets.schedule.why_menu import WhyMenu
from dtfm_lab.widgets.tasks import SLOW_S, LatestRequest, begin, has_event_loop

NOTHING_YET = "No plan yet: press Plan to see one iteration predicted"
STOPPED = "Stopped: press Predict again in Model settings"
REFUSED = "Nothing to show: the line above says why"
BEFORE = "before the last edit"
FOLLOWS = "old: a new prediction follows"
SETTLED_S = 1.0
"""Seconds without an edit before the next edit is compared with the prediction that is shown then.

A drag makes many edits in a row, which are all compared with the prediction before the first.
"""


class SchedulePanel(Panel):
    """Simulates ``lab_state.plan`` under a schedule. The run panel draws measured bars in the same chart."""

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state = lab_state
        self._report_error = partial(lab_state.report_error, "schedule")
        self._predictions = LatestRequest(
            self._predict,
            self._report_error,
            can_answer=lambda: lab_state.plan is not None,
            at_rest=self._update_button,
        )
        self._awaits_plan = False
        self._shown: ChartedPrediction | None = None
        self._before: ChartedPrediction | None = None
        """The prediction before the last edits, which the shown one is compared with."""
        self._other_source: ChartedPrediction | None = None
        """The last prediction from the other source (FLOP or a profile), if it is comparable with the shown one. The
        pane's note says what the change of source did. None if there is nothing to report."""
        self._foreseen: tuple[tuple[object, ...], ChartedPrediction] | None = None
        """A request of ``_predict`` and its prediction, which was made before the request's plan was set."""
        self.told_before_s: Callable[[], float | None] = lambda: None
        """Returns the iteration time before the last edit, as the bar shows it. None if the bar shows none."""
        self._at_hand: tuple[tuple[object, ...], ChartedPrediction] | None = None
        """A request (schedule, queueing, may_differ), and the prediction of the current plan on the network that was
        just edited. It is shown during the search for a new plan, and reused by ``foresee`` if the new plan is the
        same."""
        self._asked: object = None
        """What the shown prediction is for: network, job, choices, queueing, schedule and source of computing times."""
        self._edited_at_s = 0.0
        self._automatic = lab_state.schedule
        """The schedule that the panel has chosen itself. If ``lab_state`` names another, a person has chosen it."""
        self._is_choosing, self._is_setting = Guard(), Guard()
        given = {"options": list(schedules), "value": lab_state.schedule, "tooltip": "Schedule"}
        self.schedule = classed(w.Dropdown(layout=w.Layout(width="150px"), **given), "dtfm-schedule-menu")
        self.critical = toggle(
            "Critical path", "Highlight the chain of actions and messages that sets the iteration's length"
        )
        self.simulate = button("", "", "", "130px")
        self.choices = ChoiceControls(lab_state)
        self.comparing = SchedulesTable(lab_state)
        self.title, self.memory = w.HTML(), w.HTML()
        self.drawn = ScheduleChart(lab_state, NOTHING_YET)
        self.chart = self.drawn.view
        say_without_plan(lab_state, NOTHING_YET, self._say_empty)
        self._traits = {"critical_path": (self.chart, "show_path"), "messages": (self.chart, "show_messages")}
        self.exports = GanttExports(self.chart, lambda: self._lab_state.predicted, self._report_error)
        self.view = self._laid_out()
        traitlets.link((self.critical, "value"), (self.chart, "show_path"))
        lab_state.history.add_part("choices", self._state, self._put)
        self.schedule.observe(lambda _: self._choose(), "value")
        self.simulate.on_click(lambda _: self._press())
        lab_state.observe(lambda _: self._take_plan(), "plan")
        lab_state.observe(lambda _: self._follow(), ["schedule", "plan", "choices", "queueing"])
        lab_state.observe(lambda _: self._take_prediction(), "predicted")
        lab_state.observe(lambda _: self._follow_edit(), ["topology", "job"])
        lab_state.observe(lambda _: self._fill(), "measured")
        self.chart.observe(lambda _: self._say_title(), "units")
        self._update_button()
        self._say_title()
        self._begin()

    def _laid_out(self) -> w.VBox:
        said = classed(w.HBox([self.title, self.memory]), "dtfm-schedule-said")
        messages = toggle("Show messages as arrows")
        overview = toggle("Show overview strip")
        traitlets.link((messages, "value"), (self.chart, "show_messages"))
        traitlets.link((overview, "value"), (self.chart, "overview"))
        rarer = [[self.choices.view], [messages, overview], [self.simulate, self.comparing.button, self.exports.view]]
        rows = [w.HBox(row, layout=w.Layout(flex_flow="row wrap", grid_gap="4px 8px")) for row in rarer]
        more = more_menu(
            [*rows, self.comparing.table],
            "Model settings",
            "The model's assumptions, comparisons, chart options and files",
        )
        row = toolbar(said, self.schedule, self.critical, WhyMenu(self._lab_state).view, more)
        return pane([row, self.chart], "dtfm-schedule")

    def _say_title(self) -> None:
        units = self.chart.units
        opens = any(unit.get("members") for unit in units)
        hint = "one row per stage, messages below: click to open it" if opens else "one row per device, messages below"
        said = f"<b>One iteration</b> <span>{escape(hint) if units else ''}</span>"
        lacking = "" if self._shown is None else self._shown.lacking
        self.title.value = "" if lacking else f'<div class="dtfm-schedule-title" title="{escape(hint)}">{said}</div>'
        self.memory.value = markup.warning(lacking)
        self.memory.tooltip = lacking

    def show(self, prediction: ChartedPrediction) -> None:
        """Show a prediction that another panel has made."""
        self._take(prediction)
        self._draw()

    def redo(self) -> None:
        self._begin()

    def _take(self, prediction: ChartedPrediction) -> None:
        """Show this prediction, and report a difference that comes from another source of computing times."""
        shown, state, now_s = self._shown, self._lab_state, time.monotonic()
        network = None if state.topology is None else state.topology.fingerprint
        asked = (network, state.job, state.choices, state.queueing, state.schedule, prediction.source)
        if shown is None or not is_comparable(shown, prediction):
            self._before = None
        elif asked != self._asked and now_s - self._edited_at_s > SETTLED_S:
            # Changes in quick succession are compared with what was there before the first.
            self._before = shown
        if asked != self._asked:  # else a search continues after the same edit
            self._asked, self._edited_at_s = asked, now_s
        if shown is not None and shown.source != prediction.source:
            self._other_source = shown if is_comparable(shown, prediction) else None
        elif prediction.source == FLOP:
            self._other_source = None
        state.set_note("schedule", "" if self._other_source is None else changed_source(self._other_source, prediction))
        self._shown = prediction
        # A part of the plan may fit where the whole does not.
        if not prediction.trace.context.part:
            state.lacking = prediction.lacking

    def _draw(self) -> None:
        if self._shown is not None:
            told_s = self.told_before_s()
            ghost = self._before
            if ghost is not None and told_s is not None and not is_same(ghost.trace.iteration_s, told_s):
                ghost = None  # the bar compares with another edit
            self.drawn.draw(self._shown, ghost)
            self._say_title()

    def _clear(self, words: str) -> None:
        """Draw nothing, so that an old prediction is not taken for the current choice."""
        self._shown = self._before = self._other_source = None
        self._lab_state.predicted, self._lab_state.lacking = None, ""
        self._lab_state.set_note("schedule", "")
        self.drawn.clear(words)
        self._say_title()

    def _say_empty(self, words: str) -> None:
        """Say why the chart is empty, unless a prediction was refused or stopped."""
        if self.chart.empty_words not in (REFUSED, STOPPED):
            self.chart.empty_words = words

    def _choose(self) -> None:
        if not self._is_choosing:
            state, now = self._lab_state, self.schedule.value
            state.history.keep(f"Schedule {state.schedule} → {now}")
            state.schedule = now

    def _state(self) -> tuple[str, str, dict[str, Any], str]:
        """Return schedule, queueing and choices of a prediction, and the schedule that the panel chose itself."""
        state = self._lab_state
        return state.schedule, state.queueing, dict(state.choices), self._automatic

    def _put(self, values: tuple[str, str, dict[str, Any], str]) -> None:
        state = self._lab_state
        with state.hold_trait_notifications():
            state.schedule, state.queueing, state.choices, self._automatic = values

    def _take_plan(self) -> None:
        """Take over the schedule that the plan's job names, and the queueing of its search. If the job names none, take
        the default schedule, unless a person has chosen one."""
        plan = self._lab_state.plan
        if plan is None:
            return
        if plan.job.schedule is not None:
            with self._lab_state.hold_trait_notifications():
                self._automatic = self._lab_state.schedule = plan.job.schedule
                self._lab_state.queueing = plan.queueing
        elif self._is_automatic:
            self._automatic = self._lab_state.schedule = plan.job.schedule_name

    @property
    def _is_automatic(self) -> bool:
        return self._lab_state.schedule == self._automatic

    def _follow(self) -> None:
        with suppress(TraitError), self._is_choosing:  # a schedule from elsewhere is not in the menu
            self.schedule.value = self._lab_state.schedule
        if self._is_setting:
            return
        if self._lab_state.plan is None and self._shown is not None:
            self._clear(PLANNING if self._lab_state.is_planning else NOTHING_YET)
        self._begin()

    def _take_prediction(self) -> None:
        """Show a prediction that another panel has set, for example from a file."""
        predicted = self._lab_state.predicted
        known = self._shown is not None and self._shown.trace is predicted
        if self._lab_state.plan is not None and predicted is not None and not known:
            self._predictions.drop()
            begin(self._show_trace(predicted), self._report_error)

    async def _show_trace(self, trace: Trace) -> None:
        if (plan := self._lab_state.chosen_plan) is None:
            return
        prediction = await asyncio.to_thread(ChartedPrediction.of, plan, trace)
        if self._lab_state.predicted is trace:
            self.show(prediction)
            self._fill()

    def _fill(self) -> None:
        """Draw a measurement that another panel has set, once its prediction is drawn."""
        measured = self._lab_state.measured
        if measured is None or self.chart.n_measured or self._shown is None:
            return
        if self._shown.trace is self._lab_state.predicted:
            self.drawn.fill(measured)

    def _press(self) -> None:
        if self.simulate.icon == "stop":
            self.chart.stop()
        else:
            self._begin()

    def _dim(self) -> None:
        """Mark the picture as out of date."""
        if self._shown is not None:
            # A longer search, or another schedule, changes what is predicted without an edit of the network.
            self.chart.stale = BEFORE if self._lab_state.plan_is_stale else FOLLOWS

    def _follow_edit(self) -> None:
        """Dim the picture if an edit has no plan after a moment. Draw the plan again if the edit is undone."""
        state, shown = self._lab_state, self._shown
        if shown is not None and shown.trace is not state.predicted and not state.plan_is_stale:
            self._begin()  # the available plan was drawn on the network of that edit
        if has_event_loop() and not self._awaits_plan:
            self._awaits_plan = True
            begin(self._dim_without_plan(), self._report_error)

    async def _dim_without_plan(self) -> None:
        await asyncio.sleep(SLOW_S)
        self._awaits_plan = False
        shown, state = self._shown, self._lab_state
        if state.plan_is_stale:
            if shown is None or shown.plan.topology is not state.topology:  # else it belongs to the available plan
                self._dim()
        elif not self.is_predicting:
            self.chart.stale = ""

    def foresee(self, plan: Plan) -> None:
        """Predict a plan that is about to be set, so that its prediction is ready then. Called on a thread.

        The prediction is used if the lab's choices are then the plan's own. Raises nothing. If the plan cannot be
        predicted, that is reported once it is set.
        """
        wanted, at_hand = self._wanted_of(plan), self._at_hand
        if at_hand is not None and at_hand[0] == wanted[1:] and _is_alike(at_hand[1].plan, plan):
            self._foreseen = wanted, replace(at_hand[1], plan=plan)
            return
        with suppress(LabError):
            self._foreseen = wanted, predicted(*wanted[:3], may_differ=wanted[3])

    def show_at_hand(self, plan: Plan) -> Callable[[], None] | None:
        """Predict the current plan on an edited network, before a new plan is searched for. Called on a thread.

        Return a function that shows the prediction, to be called on the kernel's loop. None if the pane is hidden, the
        plan cannot be predicted, or something else will be shown: a prediction with choices, or one from a run's
        profile.
        """
        state, self._at_hand = self._lab_state, None
        is_of_run = state.comparison is not None or "run" in state.busy
        # A chosen setting or a measured run has its own prediction, which this one would hide.
        if is_of_run or state.is_chosen_otherwise or not state.shows("schedule"):
            return None
        wanted = self._wanted_of(plan)
        try:
            prediction = predicted(*wanted[:3], may_differ=wanted[3])
        except LabError:
            return None
        self._at_hand = wanted[1:], prediction

        # The search or the user may have moved on since the thread began.
        def show() -> None:
            if state.topology is plan.topology and state.plan_is_stale and wanted == self._wanted_of(plan):
                self.chart.reset_measured()
                self.show(prediction)

        return show

    def _wanted_of(self, plan: Plan) -> tuple[Plan, str, str, bool]:
        """Return what ``_predict`` will request for this plan: plan, schedule, queueing, and True if another schedule
        may replace one that lacks memory."""
        state = self._lab_state
        schedule = plan.job.schedule or (plan.job.schedule_name if self._is_automatic else state.schedule)
        return plan, schedule, plan.queueing if plan.job.schedule else state.queueing, self._is_automatic

    @property
    def is_predicting(self) -> bool:
        return self._predictions.is_running

    def _begin(self) -> None:
        """Predict the current choice, right after any prediction that is being computed."""
        if not self.is_predicting:
            self._update_button()
        self._predictions.ask()

    async def _predict(self, request: int) -> None:
        try:
            plan = self._lab_state.chosen_plan
            if plan is None:
                return
            schedule = self._lab_state.schedule
            wanted = (plan, schedule, self._lab_state.queueing, self._is_automatic)
            # Used once at most: it is of one plan.
            foreseen, self._foreseen = self._foreseen, None
            ran = predicted_of_run(self._lab_state)  # an edit was undone: the measurement is shown next to it again
            if ran is None and foreseen is not None and foreseen[0] == wanted:
                prediction: ChartedPrediction | None = foreseen[1]
            else:
                work = partial(predicted, *wanted[:3], may_differ=wanted[3])
                if ran is not None:
                    note = AS_SPECIFIED if ran.context.clock == "model" else FROM_PROFILE
                    work = partial(ChartedPrediction.of, plan, ran, note)
                prediction = await self.chart.wait_for(work, f"simulating {schedule} …", self._set_slow)
        except LabError as error:
            # A refused request clears the chart only if no newer one has come.
            if request == self._predictions.n_requested:
                self._clear(REFUSED)
                self._report_error(str(error))
            return
        if request != self._predictions.n_requested:
            return
        if prediction is None:
            self._clear(STOPPED)
            return
        if self._lab_state.step in ("schedule", "run"):
            self._lab_state.message = ""  # the error may be of a choice that was changed since
        self.chart.reset_measured()
        self._take(prediction)
        with self._is_setting:
            if self._is_automatic:
                self._automatic = self._lab_state.schedule = prediction.trace.context.schedule
            self._lab_state.predicted = prediction.trace
        self._draw()
        if ran is not None:
            self._fill()

    def _set_slow(self, is_slow: bool) -> None:
        self._update_button(stop=is_slow)
        if is_slow:
            self._dim()

    def _update_button(self, *, stop: bool = False) -> None:
        self.simulate.disabled = self._lab_state.plan is None
        self.simulate.description, self.simulate.icon = ("Stop", "stop") if stop else ("Predict again", "bar-chart")
        self.simulate.tooltip = "Stop this prediction" if stop else "Predict one iteration"


def _is_alike(one: Plan, other: Plan) -> bool:
    """True if two plans have the same prediction, even if their bounds or planners' names differ."""
    return one.topology is other.topology and is_same_placement(one, other)
