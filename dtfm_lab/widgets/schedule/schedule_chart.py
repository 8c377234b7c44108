"""The chart of a prediction or a measurement; its rows and selection follow the lab's state."""

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import ipywidgets as w
from traitlets import TraitError

from dtfm_lab.domain.trace import Trace
from dtfm_lab.files.traces import save_chrome_trace
from dtfm_lab.widgets.controls import button, checkbox, classed, menu
from dtfm_lab.widgets.lab_state import Guard, LabState
from dtfm_lab.widgets.schedule.prediction_chart import PredictionChart
from dtfm_lab.widgets.schedule.predictions import ChartedPrediction
from dtfm_lab.widgets.tasks import begin
from dtfm_lab.widgets.views.gantt import GanttView
from dtfm_lab.widgets.views.gantt.bars import ROWS_BY, ChartRows


class ScheduleChart:
    """``view`` is the canvas; ``rows_by`` and ``network`` control what it shows."""

    def __init__(self, lab_state: LabState, words: str) -> None:
        self._lab_state = lab_state
        self._shown: ChartedPrediction | None = None
        self._is_following = Guard()
        self.view = classed(PredictionChart(title="One iteration", empty_words=words), "dtfm-fill")
        self.rows_by = menu(
            "Rows",
            "175px",
            "45px",
            [(f"by {name}", name) for name in ROWS_BY],
            "In which order the devices' rows are drawn",
        )
        self.network = checkbox("Messages below computations", True)
        for control in (self.rows_by, self.network):
            control.observe(lambda _: self._arrange(), "value")
        lab_state.observe(lambda _: self._select(), ["selected", "selected_stage"])
        self.view.observe(lambda change: self._take_selected(change["name"]), ["selected", "selected_stage"])

    def draw(self, prediction: ChartedPrediction, before: ChartedPrediction | None = None) -> None:
        """Draw a prediction; what was ``before`` stays as a line."""
        self._shown = prediction
        self.view.show(prediction, before)
        self._select()

    def fill(self, measured: Trace) -> None:
        """Draw a measurement below the prediction, where it has as many rows."""
        rows = ChartRows(measured.context)
        if self._shown is not None and rows.shape == self._shown.rows.shape:
            self.view.reset_measured(measured.typical_iteration)
            self.view.extend_measured(*rows.chart(measured).bars)

    def clear(self, words: str) -> None:
        """Show nothing but these words."""
        self._shown = None
        self.view.clear()
        self.view.title, self.view.empty_words = "One iteration", words

    def settings(self) -> dict[str, Any]:
        return {name: getattr(control, trait) for name, (control, trait) in self._settings().items()}

    def restore(self, settings: dict[str, Any]) -> None:
        """Set the chart's menus; impossible values are ignored."""
        for name, (control, trait) in self._settings().items():
            if name in settings:
                with suppress(TraitError):
                    setattr(control, trait, settings[name])

    def _settings(self) -> dict[str, tuple[Any, str]]:
        return {
            "rows_by": (self.rows_by, "value"),
            "network": (self.network, "value"),
            "critical_path": (self.view, "show_path"),
            "messages": (self.view, "show_messages"),
        }

    def _arrange(self) -> None:
        """Put the rows into the chosen order."""
        self.view.arrange(self.rows_by.value, network=self.network.value)

    def _select(self) -> None:
        with self._is_following:
            self.view.selected = [name for name in self._lab_state.selected if name in self.view.devices]
            self.view.selected_stage = self._lab_state.selected_stage

    def _take_selected(self, name: str) -> None:
        if self._is_following:
            return
        if name == "selected":
            self._lab_state.selected = tuple(self.view.selected)
        else:
            self._lab_state.selected_stage = self.view.selected_stage


class GanttExports:
    """Two buttons that download a file from the page, and the method that returns the same trace's text."""

    def __init__(
        self, chart: GanttView, trace: Callable[[], Trace | None], report_error: Callable[[str], None]
    ) -> None:
        self._chart, self._trace, self._report_error = chart, trace, report_error
        self.png = button("PNG", "picture-o", "What is visible now, on white, twice as sharp", "78px")
        self.trace = button("Trace", "file-code-o", "For ui.perfetto.dev and chrome://tracing", "88px")
        self.png.on_click(lambda _: chart.ask_png(f"{self._name()}.png"))
        self.trace.on_click(lambda _: begin(self._offer_trace(), report_error))
        self.view = w.HBox([self.png, self.trace])
        chart.observe(lambda _: self._follow(), "start")
        self._follow()

    def chrome_trace(self) -> str:
        """Return the Trace Event Format; empty while nothing is predicted. Raises TraceError beyond 104 days."""
        trace = self._trace()
        return "" if trace is None else chrome_text(trace)

    async def _offer_trace(self) -> None:
        self.trace.disabled = True
        try:
            text = await asyncio.to_thread(self.chrome_trace)
        finally:
            self.trace.disabled = False
        if text:
            self._chart.offer(f"{self._name()}.json", "application/json", text.encode())

    def _name(self) -> str:
        trace = self._trace()
        kind = "" if trace is None else f"-{trace.context.schedule}"
        return "iteration" + "".join(c if c.isalnum() or c in "-." else "-" for c in kind)

    def _follow(self) -> None:
        for each in (self.png, self.trace):
            each.disabled = not self._chart.start


def chrome_text(trace: Trace) -> str:
    """Return what ``save_chrome_trace`` writes."""
    with tempfile.TemporaryDirectory() as folder:
        return save_chrome_trace(trace, Path(folder) / "trace.json").read_text(encoding="utf-8")
