"""Steps 3 and 4: the groups of the plan and the Gantt chart of one iteration."""

from __future__ import annotations

import asyncio

import ipywidgets as w

from dtfm_lab import lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import format_s
from dtfm_lab.simulation import schedules
from dtfm_lab.widgets.bars import LEGEND, ChartRows, typical_iteration
from dtfm_lab.widgets.bench import Bench
from dtfm_lab.widgets.gantt import GanttView
from dtfm_lab.widgets.groups import GroupsView
from dtfm_lab.widgets.tasks import begin

ROW_HEIGHT = 20
CHART_MARGIN = 90


class GroupsPanel:
    """Shows ``bench.plan`` as its coarsened graph."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.groups = GroupsView(height=330)
        self.view = self.groups
        bench.observe(lambda _: self._show(), "plan")
        self._show()

    def _show(self) -> None:
        plan = self._bench.plan
        if plan is None:
            self.groups.groups, self.groups.weights, self.groups.matchings = [], [], []
            return
        graph = plan.coarse_graph()
        n = graph.number_of_nodes()
        with self.groups.hold_sync():
            self.groups.selected_edge = -1
            self.groups.groups = [
                {"stage": s, "devices": graph.nodes[s]["devices"], "cost_s": graph.nodes[s]["cost_s"]} for s in range(n)
            ]
            self.groups.weights = plan.cost.weights_s.tolist()
            self.groups.matchings = [[list(pair) for pair in graph.edges[s, s + 1]["matching"]] for s in range(n - 1)]
            self.groups.caption = (
                "A circle is a stage's data-parallel group; a thick line is a hop of all pipelines, forward and back."
            )


class SchedulePanel:
    """Predicts ``bench.plan`` under a schedule; the run panel fills measured bars into the same chart."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.schedule = w.Dropdown(
            options=list(schedules), value=bench.schedule, description="Schedule", layout=w.Layout(width="190px")
        )
        self.simulate = w.Button(
            description="Simulate", icon="bar-chart", tooltip="Predict one iteration", layout=w.Layout(width="105px")
        )
        self.chart = GanttView(title="One iteration", height=320)
        self.view = w.VBox([w.HBox([self.schedule, self.simulate]), self.chart])
        self.schedule.observe(lambda _: self._choose(), "value")
        self.simulate.on_click(lambda _: self._begin())
        bench.observe(lambda _: self._begin(), "plan")
        self._begin()

    def show(self, trace: Trace, note: str = "") -> None:
        """Draw a prediction."""
        rows = ChartRows(trace.context)
        labels = rows.labels
        self.chart.height = len(labels) * ROW_HEIGHT + CHART_MARGIN
        self.chart.set_predicted(*rows.columns(typical_iteration(trace)), labels, LEGEND)
        self.chart.title = f"One iteration under {trace.context.schedule}"
        self.chart.caption = (
            f"predicted {format_s(trace.iteration_s)}{note}; devices compute {trace.compute_share:.0%} of the time"
        )

    def _choose(self) -> None:
        self._bench.schedule = self.schedule.value
        self._begin()

    def _begin(self) -> None:
        self.simulate.disabled = self._bench.plan is None
        if self._bench.plan is not None:
            begin(self._predict(), self._complain)

    async def _predict(self) -> None:
        plan = self._bench.plan
        if plan is None:
            return
        if plan.job.model is None:
            raise LabError(f"job {plan.job.name} holds message sizes only; simulating it needs a model")
        trace = await asyncio.to_thread(lab.simulate, plan, self._bench.schedule)
        if plan is self._bench.plan:
            self.chart.reset_measured()
            self._bench.predicted = trace
            self.show(trace, " from FLOP and peak, links as drawn")

    def _complain(self, message: str) -> None:
        self._bench.complain("schedule", message)
