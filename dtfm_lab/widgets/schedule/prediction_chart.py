"""The chart of a prediction or a measurement: rows, ghosts of what was, selection, and the files that it leaves as."""

import asyncio
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ipywidgets as w

from dtfm_lab.domain.trace import Trace, predicted_ends
from dtfm_lab.files.traces import save_chrome_trace
from dtfm_lab.widgets.controls import button, classed
from dtfm_lab.widgets.lab_state import Guard, LabState
from dtfm_lab.widgets.schedule.predictions import ChartedPrediction
from dtfm_lab.widgets.tasks import Result, begin, run_on_thread
from dtfm_lab.widgets.views.gantt import GanttView
from dtfm_lab.widgets.views.gantt.bars import NO_BARS, ROWS_PER_DEVICE, ChartRows, legend, units_of


class PredictionChart(GanttView):
    """``show`` draws a prediction, and as a thin line what it was before.

    For a pane: it fills the element that holds it, and leaves heading and legend to the lab.
    """

    def __init__(self, **traits: Any) -> None:
        super().__init__(**({"height": 0, "bare": True, "overview": False} | traits))
        self._stop: Callable[[], object] | None = None

    def show(self, prediction: ChartedPrediction, before: ChartedPrediction | None = None) -> None:
        """Draw a prediction; bars of the same rows glide to their new places.

        ``before`` stays as a thin line under each lane, with a mark where it ended, where it has as many stages and
        replicas.
        """
        context, chart, rows = prediction.trace.context, prediction.chart, prediction.rows
        regions = {device.name: device.region for device in prediction.plan.topology.devices}
        n_shades = context.stages_per_device
        has_ghost = before is not None and before is not prediction and before.rows.shape == rows.shape
        with self.hold_sync():
            self.set_predicted(
                *chart.bars,
                rows=rows.labels,
                names=[name for name in rows.names for _ in range(ROWS_PER_DEVICE)],
                devices=rows.devices,
                kinds=legend(n_shades),
                devices_per_pipeline=len(context.devices) if n_shades > 1 else 0,
                after=chart.after,
                path=chart.path,
                messages=chart.messages,
                units=units_of(rows, regions),
                n_stages=len(context.devices),
                before=before.chart.bars if before is not None and has_ghost else NO_BARS,
            )
            drawn_s = prediction.chart.bars.end
            ends_s = predicted_ends(prediction.trace, float(drawn_s.max())) if len(drawn_s) else None
            self.interval = list(ends_s or ())
            self.title = f"One iteration under {context.schedule}"
            self.caption, self.stale = prediction.caption, ""
            self.shares = prediction.shares

    async def wait_for(self, work: Callable[[], Result], words: str, set_slow: Callable[[bool], None]) -> Result | None:
        """Return what work on a thread returns, or raise what it raises; None once ``stop`` is called.

        Where it takes long, the chart says so in these words. ``set_slow`` is then called with True, and at the end
        with False.
        """
        stopped = asyncio.Event()  # of this wait alone: a kernel's cells and its messages may have loops of their own
        self._stop = partial(asyncio.get_running_loop().call_soon_threadsafe, stopped.set)

        def on_slow() -> None:
            self.busy = words
            set_slow(True)

        try:
            return await run_on_thread(work, stopped, on_slow)
        finally:
            self._stop = None
            self.busy = ""
            set_slow(False)

    def stop(self) -> None:
        """End what is waited for."""
        if self._stop is not None:
            self._stop()


class ScheduleChart:
    """``view`` is the canvas; it selects what is selected elsewhere."""

    def __init__(self, lab_state: LabState, words: str) -> None:
        self._lab_state = lab_state
        self._shown: ChartedPrediction | None = None
        self._is_following = Guard()
        self.view = classed(PredictionChart(title="One iteration", empty_words=words), "dtfm-fill")
        lab_state.observe(lambda _: self._select(), ["selected", "selected_stage"])
        self.view.observe(lambda change: self._take_selected(change["name"]), ["selected", "selected_stage"])

    def draw(self, prediction: ChartedPrediction, before: ChartedPrediction | None = None) -> None:
        """Draw a prediction; what was ``before`` stays as a line."""
        self._shown = prediction
        self.view.show(prediction, before)
        self._select()

    def fill(self, measured: Trace) -> None:
        """Draw a measurement below the prediction, where it has as many rows."""
        if self._shown is not None and ChartRows(measured.context).shape == self._shown.rows.shape:
            self.view.show_measured(measured)

    def clear(self, words: str) -> None:
        """Show nothing but these words."""
        self._shown = None
        self.view.clear()
        self.view.title, self.view.empty_words = "One iteration", words

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
