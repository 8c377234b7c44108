"""The chart of a prediction above another or a measurement; rows, strips and selection follow the lab's state."""

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import ipywidgets as w
import numpy as np
import traitlets
from traitlets import TraitError

from dtfm_lab.compare.errors import signed_s
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import format_s
from dtfm_lab.files.chrome import save_chrome_trace
from dtfm_lab.simulation.memory import MemoryReport
from dtfm_lab.widgets.controls import button, checkbox, classed, menu
from dtfm_lab.widgets.lab_state import Guard, LabState
from dtfm_lab.widgets.schedule.compare_with import SecondPrediction
from dtfm_lab.widgets.schedule.prediction_chart import PredictionChart
from dtfm_lab.widgets.schedule.predictions import ChartedPrediction
from dtfm_lab.widgets.tasks import begin
from dtfm_lab.widgets.views.gantt import NOTHING_HELD, GanttView, Held
from dtfm_lab.widgets.views.gantt.bars import ROWS_BY, ChartRows
from dtfm_lab.widgets.views.gantt.columns import difference

FULLEST, NONE = "", " "
"""Choices of the menu in addition to the devices' names."""
MOST_POINTS = 4_000
"""Points of a curve; a longer one keeps the highest of each time slot."""


class ScheduleChart:
    """``view`` is the canvas; ``rows_by``, ``network`` and ``strip.control`` are menus of what it shows."""

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
        self.drift = checkbox("Strip of differences")
        traitlets.link((self.drift, "value"), (self.view, "show_drift"))
        self.strip = MemoryStrip(lab_state, self.view)
        for control in (self.rows_by, self.network):
            control.observe(lambda _: self._arrange(), "value")
        lab_state.observe(lambda _: self._select(), ["selected", "selected_stage"])
        self.view.observe(lambda change: self._take_selected(change["name"]), ["selected", "selected_stage"])

    def draw(
        self, prediction: ChartedPrediction, second: SecondPrediction | None, before: ChartedPrediction | None = None
    ) -> None:
        """Draw a prediction; a second one goes into the lower halves, else what was ``before`` stays as a line."""
        self._shown = prediction
        view = self.view
        if second is None:
            view.show(prediction, before)
            view.upper_name = "predicted"
            view.set_second(None)
        else:
            other = second.prediction.trace.context
            view.show(prediction, stages_per_device=other.stages_per_device)
            view.title += f", and {second.name}"
            view.caption += f" · {_describe(prediction, second)}"
            view.upper_name = prediction.trace.context.schedule
            view.set_second(second.prediction.chart.bars, second.name)
        self.strip.show(prediction, None if second is None else second.prediction)
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
        self.strip.show(None)

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
            "memory_of": (self.strip.control, "value"),
            "critical_path": (self.view, "show_path"),
            "messages": (self.view, "show_messages"),
            "differences": (self.view, "show_drift"),
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


def _describe(prediction: ChartedPrediction, second: SecondPrediction) -> str:
    """Return how the second prediction differs from the first."""
    longer_s, row, most_s = difference(prediction.chart.bars, second.prediction.chart.bars)
    takes = f"takes {format_s(abs(longer_s))} {'less' if longer_s < 0 else 'more'}" if longer_s else "takes as long"
    text = f"{second.name}, below, {takes}"
    if row >= 0 and most_s:
        text += f"; farthest apart on {prediction.rows.devices[row]}, {signed_s(most_s)}"
    return text


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


class MemoryStrip:
    """``control`` names the device whose memory is shown; at first there is none."""

    def __init__(self, lab_state: LabState, chart: GanttView) -> None:
        self._lab_state, self._chart = lab_state, chart
        self._shown: tuple[ChartedPrediction | None, ChartedPrediction | None] = (None, None)
        self.control = menu(
            "Memory of",
            "255px",
            "75px",
            [("none", NONE), ("selected or fullest", FULLEST)],
            "Whose memory over time is drawn below the rows",
        )
        self.control.observe(lambda _: self._draw(), "value")
        lab_state.observe(lambda _: self._draw(), "selected")

    def show(self, upper: ChartedPrediction | None, lower: ChartedPrediction | None = None) -> None:
        """Draw the memory of these predictions, the second one's dashed; None for no strip."""
        self._shown = (upper, lower)
        names = [] if upper is None else [name for group in upper.memory.devices for name in group]
        options = [("none", NONE), ("selected or fullest", FULLEST), *((name, name) for name in sorted(names))]
        if options != list(self.control.options):
            chosen = self.control.value
            self.control.options = options
            self.control.value = chosen if chosen in (FULLEST, NONE, *names) else NONE
        self._draw()

    def _draw(self) -> None:
        upper, lower = self._shown
        if upper is None or self.control.value == NONE:
            self._chart.set_memory(NOTHING_HELD)
            return
        position, replica = self._place(upper.memory)
        other = NOTHING_HELD if lower is None else held(lower, position, replica)
        self._chart.set_memory(
            held(upper, position, replica),
            float(upper.memory.limit_bytes[position, replica]),
            upper.memory.devices[position][replica],
            other,
        )

    def _place(self, report: MemoryReport) -> tuple[int, int]:
        """Return (position, replica) of the device to show."""
        wanted = [self.control.value] if self.control.value != FULLEST else list(self._lab_state.selected[-1:])
        for position, group in enumerate(report.devices):
            for name in wanted:
                if name in group:
                    return position, group.index(name)
        return report.worst


def held(prediction: ChartedPrediction, position: int, replica: int) -> Held:
    """Return what one device holds in the iteration that is drawn."""
    trace, report = prediction.trace, prediction.memory
    iteration = int(np.searchsorted(np.unique(trace.iteration), trace.typical_iteration))
    time, n_bytes = report.timeline(report.devices[position][replica], iteration)
    if len(time) > MOST_POINTS and time[-1] > 0:  # keep the fullest moment of each time slot
        slot = np.minimum((time / time[-1] * MOST_POINTS).astype(np.int64), MOST_POINTS - 1)
        fullest = np.lexsort((n_bytes, slot))
        kept = np.sort(fullest[np.flatnonzero(np.diff(slot[fullest], append=MOST_POINTS))])
        time, n_bytes = time[kept], n_bytes[kept]
    return Held(time, n_bytes)
