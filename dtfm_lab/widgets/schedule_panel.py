"""Step 4: the Gantt chart of one iteration under a schedule."""

from __future__ import annotations

import asyncio

import ipywidgets as w

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.simulation import schedules, simulate
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.bench import Bench
from dtfm_lab.widgets.choices import Choices
from dtfm_lab.widgets.comparing import Comparing
from dtfm_lab.widgets.gantt import GanttView
from dtfm_lab.widgets.predictions import Prediction
from dtfm_lab.widgets.tasks import begin

ROW_HEIGHT = 20
CHART_MARGIN = 90
EMPTY_HEIGHT = 160


class SchedulePanel:
    """Predicts ``bench.plan`` under a schedule; the run panel fills measured bars into the same chart."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._asked = self._answered = 0
        self._predicting = False
        self.schedule = w.Dropdown(
            options=list(schedules), value=bench.schedule, description="Schedule", layout=w.Layout(width="235px")
        )
        self.simulate = w.Button(
            description="Simulate", icon="bar-chart", tooltip="Predict one iteration", layout=w.Layout(width="105px")
        )
        self.choices = Choices(bench, self._begin)
        self.comparing = Comparing(bench)
        self.memory = w.HTML()
        self.chart = GanttView(title="One iteration", height=EMPTY_HEIGHT)
        self.view = w.VBox(
            [
                w.HBox([self.schedule, self.simulate, self.comparing.button]),
                self.choices.view,
                self.comparing.table,
                self.memory,
                self.chart,
            ]
        )
        self.schedule.observe(lambda _: self._choose(), "value")
        self.simulate.on_click(lambda _: self._begin())
        bench.observe(lambda _: self._follow(), "schedule")
        bench.observe(lambda _: self._begin(), "plan")
        self._begin()

    def show(self, prediction: Prediction) -> None:
        """Draw a prediction."""
        context, chart, rows = prediction.trace.context, prediction.chart, prediction.rows
        several = context.stages_per_device > 1
        labels = rows.labels
        self.chart.height = len(labels) * ROW_HEIGHT + CHART_MARGIN
        self.chart.set_predicted(
            *chart.bars,
            rows=labels,
            names=[name for name in rows.names for _ in range(rows.rows_per_device)],
            kinds=rows.legend,
            devices_per_pipeline=len(context.devices) if several else 0,
            after=chart.after,
            path=chart.path,
            messages=chart.messages,
        )
        self.chart.title = f"One iteration under {context.schedule}"
        self.chart.caption = prediction.caption
        self.memory.value = markup.warning(prediction.lacking)

    def _choose(self) -> None:
        self._bench.schedule = self.schedule.value

    def _follow(self) -> None:
        self.schedule.value = self._bench.schedule
        self._begin()

    def _begin(self) -> None:
        """Predict what is chosen now; while a prediction is under way, that is done right after it."""
        self.simulate.disabled = self._bench.plan is None
        self._asked += 1
        if self._bench.plan is not None and not self._predicting:
            self._predicting = True
            begin(self._predict(), self._complain)

    async def _predict(self) -> None:
        try:
            while self._answered < self._asked and self._bench.plan is not None:
                self._answered = self._asked
                await self._predict_chosen()
        finally:
            self._predicting = False

    async def _predict_chosen(self) -> None:
        try:
            plan = self._bench.chosen_plan
            if plan is None:
                return
            prediction = await asyncio.to_thread(_predicted, plan, self._bench.schedule, self._bench.queueing)
        except LabError as error:
            if self._answered == self._asked:
                self._nothing()
                self._complain(str(error))
            return
        if self._answered == self._asked:
            if self._bench.step in ("schedule", "run"):
                self._bench.message = ""  # what was refused may no longer be chosen
            self.chart.reset_measured()
            self._bench.predicted = prediction.trace
            self.show(prediction)

    def _nothing(self) -> None:
        """Nobody shall take what is drawn for what is chosen."""
        self._bench.predicted = None
        self.chart.clear()
        self.chart.title, self.chart.height = "One iteration", EMPTY_HEIGHT
        self.memory.value = ""

    def _complain(self, message: str) -> None:
        self._bench.complain("schedule", message)


def _predicted(plan: Plan, schedule: str, queueing: str) -> Prediction:
    trace = simulate(plan, schedule, queueing=queueing)
    return Prediction.of(plan, trace, " from FLOP and peak, links as drawn")
