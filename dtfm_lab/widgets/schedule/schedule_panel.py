"""Step 4: the Gantt chart of one iteration under a schedule."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import ipywidgets as w
import plotly.graph_objects as go
from traitlets import TraitError

from dtfm_lab import figures
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import Trace
from dtfm_lab.simulation import schedules, simulate
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.schedule.choice_controls import ChoiceControls
from dtfm_lab.widgets.schedule.compare_with import MEASURED, CompareWith, Second
from dtfm_lab.widgets.schedule.gantt_exports import GanttExports
from dtfm_lab.widgets.schedule.patience import patiently
from dtfm_lab.widgets.schedule.predictions import Prediction
from dtfm_lab.widgets.schedule.schedule_chart import ScheduleChart
from dtfm_lab.widgets.schedule.schedules_table import SchedulesTable
from dtfm_lab.widgets.tasks import begin
from dtfm_lab.widgets.views.as_figure import AsFigure

Result = TypeVar("Result")

NOTHING_YET = "No schedule yet: plan first, and the iteration is predicted"
REFUSED = "Nothing to show: the line above says why"
STOPPED = "Stopped: press Simulate to predict what is chosen"


class SchedulePanel:
    """Predicts ``lab_state.plan`` under a schedule; the run panel fills measured bars into the same chart."""

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state = lab_state
        self._asked = self._answered = 0
        self._predicting = self._comparing = self._stopped = False
        self._shown: Prediction | None = None
        self._second: Second | None = None
        self.schedule = w.Dropdown(
            options=list(schedules), value=lab_state.schedule, description="Schedule", layout=w.Layout(width="235px")
        )
        self.simulate = w.Button(layout=w.Layout(width="105px"))
        self.choices = ChoiceControls(lab_state)
        self.comparing = SchedulesTable(lab_state)
        self.against = CompareWith(self._begin_second)
        self.memory = w.HTML()
        self.drawn = ScheduleChart(lab_state, NOTHING_YET)
        self.chart = self.drawn.view
        self.as_figure = AsFigure(self._figure, lab_state, self._report_error)
        self.exports = GanttExports(self.chart, lambda: self._lab_state.predicted, self._report_error)
        rows = (
            [self.schedule, self.simulate, self.comparing.button],
            [self.against.control, self.against.pin, self.drawn.rows_by, self.drawn.strip.control, self.drawn.network],
            [self.as_figure.button, self.exports.view],
        )
        top, looks, below = (w.HBox(row, layout=w.Layout(flex_flow="row wrap")) for row in rows)
        parts = [top, self.choices.view, self.comparing.table, self.memory, looks, self.chart, below]
        self.view = w.VBox([*parts, self.as_figure.output])
        self.schedule.observe(lambda _: self._choose(), "value")
        self.simulate.on_click(lambda _: self._press())
        lab_state.observe(lambda _: self._follow(), ["schedule", "plan", "choices", "queueing"])
        lab_state.observe(lambda _: self._take_over(), "predicted")
        lab_state.observe(lambda _: self._fill(), "measured")
        self.chart.observe(lambda change: self._measures(change["old"], change["new"]), "n_measured")
        self._buttons()
        self._begin()

    def show(self, prediction: Prediction) -> None:
        """Draw a prediction in the upper halves."""
        self._shown = prediction
        self._second = None
        self.against.offer(prediction)
        if self.against.chosen != MEASURED:
            self._begin_second()
        self._draw()

    def redo(self) -> None:
        """Predict what is chosen now."""
        self._begin()

    def settings(self) -> dict[str, Any]:
        """How the chart is looked at; schedule, queueing and choices are the lab's."""
        return {"compare_with": self.against.chosen, **self.drawn.settings()}

    def restore(self, settings: dict[str, Any]) -> None:
        """Look at it as settings say; what is not possible here is ignored."""
        self.drawn.restore(settings)
        if "compare_with" in settings:
            self.against.choose(settings["compare_with"])

    def _draw(self) -> None:
        if self._shown is not None:
            self.drawn.draw(self._shown, self._second)
            self.memory.value = markup.warning(self._shown.lacking)

    def _nothing(self, words: str) -> None:
        """Nobody shall take what is drawn for what is chosen."""
        self._shown = self._second = None
        self._lab_state.predicted = None
        self.drawn.clear(words)
        self.memory.value = ""
        self.against.offer(None)

    def _choose(self) -> None:
        self._lab_state.schedule = self.schedule.value

    def _follow(self) -> None:
        with suppress(TraitError):  # a schedule of one's own is on no list
            self.schedule.value = self._lab_state.schedule
        if self._lab_state.plan is None and self._shown is not None:
            self._nothing(NOTHING_YET)
        self._begin()

    def _take_over(self) -> None:
        """Somebody else brought a prediction, as who opens a file does."""
        predicted = self._lab_state.predicted
        known = self._shown is not None and self._shown.trace is predicted
        if self._lab_state.plan is not None and predicted is not None and not known:
            self._asked += 1
            self._answered = self._asked  # what was to be predicted is here
            begin(self._show_brought(predicted), self._report_error)

    async def _show_brought(self, trace: Trace) -> None:
        if (plan := self._lab_state.chosen_plan) is None:
            return
        prediction = await asyncio.to_thread(Prediction.of, plan, trace)
        if self._lab_state.predicted is trace:
            self.show(prediction)
            self._fill()

    def _fill(self) -> None:
        """Draw a measurement that somebody else brought, once what it is to be laid under is there."""
        measured = self._lab_state.measured
        if measured is None or self.chart.n_measured or self._shown is None:
            return
        if self._shown.trace is self._lab_state.predicted:
            self.drawn.fill(measured)

    def _measures(self, before: int, now: int) -> None:
        """A run fills the lower halves, whatever they were compared with."""
        if now and not before:
            self.against.choose(MEASURED)

    def _press(self) -> None:
        if self.simulate.icon == "stop":
            self._stopped = True
        else:
            self._begin()

    def _begin(self) -> None:
        """Predict what is chosen now; while a prediction is under way, that is done right after it."""
        self._asked += 1
        if self._predicting:
            return
        self._buttons()
        if self._lab_state.plan is not None:
            self._predicting = True
            begin(self._predict(), self._report_error)

    async def _predict(self) -> None:
        try:
            while self._answered < self._asked and self._lab_state.plan is not None:
                self._answered = self._asked
                await self._predict_chosen()
        finally:
            self._predicting = False
            self._buttons()

    async def _predict_chosen(self) -> None:
        mine = self._answered
        try:
            plan = self._lab_state.chosen_plan
            if plan is None:
                return
            schedule = self._lab_state.schedule
            work = partial(_predicted, plan, schedule, self._lab_state.queueing)
            prediction = await self._patiently(schedule, work)
        except LabError as error:
            if mine == self._asked:
                self._nothing(REFUSED)
                self._report_error(str(error))
            return
        if mine != self._asked:
            return
        if prediction is None:
            self._nothing(STOPPED)
            return
        if self._lab_state.step in ("schedule", "run"):
            self._lab_state.message = ""  # what was refused may no longer be chosen
        self.chart.reset_measured()
        self._shown = prediction
        self._lab_state.predicted = prediction.trace
        self.against.offer(prediction)
        await self._compute_second()

    def _begin_second(self) -> None:
        if self._shown is not None and not self._predicting:
            begin(self._compute_second(), self._report_error)

    async def _compute_second(self) -> None:
        """What is compared with the prediction at hand, for that very one; of many choices in a row, the last."""
        if self._comparing:
            return  # it looks again at what is chosen
        self._comparing = True
        try:
            while not await self._seconded():
                pass
        finally:
            self._comparing = False
        self._draw()

    async def _seconded(self) -> bool:
        """Whether the second is what is chosen, for what is shown, now that it has been computed."""
        shown, chosen = self._shown, self.against.chosen
        self._second = second = None
        work = self.against.asked()
        if work is None:
            return True

        def outdated() -> bool:
            return self._shown is not shown or self.against.chosen == MEASURED

        try:
            second = await self._patiently(chosen.partition(": ")[2], work, meanwhile=self._draw, outdated=outdated)
        except LabError as error:
            if not outdated() and self.against.chosen == chosen:
                self._report_error(f"cannot compare: {error}")
        if outdated() or self.against.chosen != chosen:
            return False
        if second is None:
            self.against.choose(MEASURED)
        self._second = second
        return True

    async def _patiently(
        self,
        what: str,
        work: Callable[[], Result],
        meanwhile: Callable[[], None] = lambda: None,
        outdated: Callable[[], bool] = lambda: False,
    ) -> Result | None:
        """What a function returns; where it takes long the chart says so. None where a person stops it, or once it is
        ``outdated``."""
        self._stopped = False

        def slow() -> None:
            self.chart.busy = f"playing {what} …"
            self._buttons(stop=True)
            meanwhile()

        try:
            return await patiently(work, slow=slow, stopped=lambda: self._stopped or outdated())
        finally:
            self.chart.busy = ""
            self._buttons()

    def _buttons(self, *, stop: bool = False) -> None:
        button = self.simulate
        button.disabled = self._lab_state.plan is None
        button.description, button.icon = ("Stop", "stop") if stop else ("Simulate", "bar-chart")
        button.tooltip = "Predict this no longer" if stop else "Predict one iteration"

    def _figure(self) -> go.Figure | None:
        shown, second = self._shown, self._second
        if shown is None:
            return None
        devices = shown.trace.context.devices
        if second is not None and second.prediction.trace.context.devices == devices:
            return figures.side_by_side([shown.trace, second.prediction.trace])
        measured = self._lab_state.measured if self.chart.n_measured else None
        return figures.gantt(
            shown.trace,
            against=measured if measured is not None and measured.context.devices == devices else None,
            critical=self.chart.show_path and shown.trace.after is not None,
            messages=self.chart.show_messages,
        )

    def _report_error(self, message: str) -> None:
        self._lab_state.report_error("schedule", message)


def _predicted(plan: Plan, schedule: str, queueing: str) -> Prediction:
    trace = simulate(plan, schedule, queueing=queueing)
    return Prediction.of(plan, trace, " from FLOP and peak, links as drawn")
