"""The chart as files: the page's own picture, an SVG, and a trace for a viewer."""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

import ipywidgets as w

from dtfm_lab.domain.trace import Trace
from dtfm_lab.files.chrome import save_chrome_trace
from dtfm_lab.widgets.controls import button
from dtfm_lab.widgets.tasks import begin
from dtfm_lab.widgets.views.gantt import GanttView


class GanttExports:
    """Three buttons that download a file from the page, and the methods that return the same files' text."""

    def __init__(
        self, chart: GanttView, trace: Callable[[], Trace | None], report_error: Callable[[str], None]
    ) -> None:
        self._chart, self._trace, self._report_error = chart, trace, report_error
        self.png = button("PNG", "picture-o", "What is visible now, on white, twice as sharp", "78px")
        self.svg = button("SVG", "file-image-o", "The whole iteration as a drawing", "78px")
        self.trace = button("Trace", "file-code-o", "For ui.perfetto.dev and chrome://tracing", "88px")
        self.png.on_click(lambda _: chart.ask_png(f"{self._name()}.png"))
        self.svg.on_click(lambda _: begin(self._offer("svg", "image/svg+xml"), report_error))
        self.trace.on_click(lambda _: begin(self._offer("json", "application/json"), report_error))
        self.view = w.HBox([self.png, self.svg, self.trace])
        chart.observe(lambda _: self._follow(), "start")
        self._follow()

    def svg_text(self) -> str:
        """Return the whole iteration as SVG; empty where there is none."""
        return self._chart.svg()

    def chrome_trace(self) -> str:
        """Return the Trace Event Format; empty while nothing is predicted. Raises TraceError beyond 104 days."""
        trace = self._trace()
        return "" if trace is None else chrome_text(trace)

    async def _offer(self, ending: str, content_type: str) -> None:
        pressed = {"svg": self.svg, "json": self.trace}[ending]
        make = {"svg": self.svg_text, "json": self.chrome_trace}[ending]
        pressed.disabled = True
        try:
            text = await asyncio.to_thread(make)
        finally:
            pressed.disabled = False
        if text:
            self._chart.offer(f"{self._name()}.{ending}", content_type, text.encode())

    def _name(self) -> str:
        trace = self._trace()
        kind = "" if trace is None else f"-{trace.context.schedule}"
        return "iteration" + "".join(c if c.isalnum() or c in "-." else "-" for c in kind)

    def _follow(self) -> None:
        for each in (self.png, self.svg, self.trace):
            each.disabled = not self._chart.start


def chrome_text(trace: Trace) -> str:
    """Return what ``save_chrome_trace`` writes."""
    with tempfile.TemporaryDirectory() as folder:
        return save_chrome_trace(trace, Path(folder) / "trace.json").read_text(encoding="utf-8")
