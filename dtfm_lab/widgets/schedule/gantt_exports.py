"""The chart as files to take along: the page's own picture, a drawing, a trace for a viewer."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

import ipywidgets as w

from dtfm_lab.domain.trace import Trace
from dtfm_lab.files.chrome import save_chrome_trace
from dtfm_lab.widgets.tasks import begin
from dtfm_lab.widgets.views.gantt import GanttView


class GanttExports:
    """Three buttons, whose files come out of the page, and three methods, whose files come back."""

    def __init__(
        self, chart: GanttView, trace: Callable[[], Trace | None], report_error: Callable[[str], None]
    ) -> None:
        self._chart, self._trace, self._report_error = chart, trace, report_error
        self.png = _button("PNG", "picture-o", "What is visible now, on white, twice as sharp")
        self.svg = _button("SVG", "file-image-o", "The whole iteration as a drawing")
        self.trace = _button("Trace", "file-code-o", "For ui.perfetto.dev and chrome://tracing", "88px")
        self.png.on_click(lambda _: chart.ask_png(f"{self._name()}.png"))
        self.svg.on_click(lambda _: begin(self._offer("svg", "image/svg+xml"), report_error))
        self.trace.on_click(lambda _: begin(self._offer("json", "application/json"), report_error))
        self.view = w.HBox([self.png, self.svg, self.trace])
        chart.observe(lambda _: self._follow(), "start")
        self._follow()

    def svg_text(self) -> str:
        """The whole iteration as SVG; empty where there is none."""
        return self._chart.svg()

    def chrome_trace(self) -> str:
        """The Trace Event Format; empty where there is nothing yet. Raises TraceError for more than 104 days."""
        trace = self._trace()
        return "" if trace is None else chrome_text(trace)

    async def _offer(self, ending: str, content_type: str) -> None:
        button = {"svg": self.svg, "json": self.trace}[ending]
        make = {"svg": self.svg_text, "json": self.chrome_trace}[ending]
        button.disabled = True
        try:
            text = await asyncio.to_thread(make)
        finally:
            button.disabled = False
        if text:
            self._chart.offer(f"{self._name()}.{ending}", content_type, text.encode())

    def _name(self) -> str:
        trace = self._trace()
        kind = "" if trace is None else f"-{trace.context.schedule}"
        return "iteration" + "".join(c if c.isalnum() or c in "-." else "-" for c in kind)

    def _follow(self) -> None:
        for button in (self.png, self.svg, self.trace):
            button.disabled = not self._chart.start


def chrome_text(trace: Trace) -> str:
    """What ``save_chrome_trace`` writes."""
    with tempfile.TemporaryDirectory() as folder:
        return save_chrome_trace(trace, Path(folder) / "trace.json").read_text(encoding="utf-8")


def _button(name: str, icon: str, tooltip: str, width: str = "78px") -> w.Button:
    return w.Button(description=name, icon=icon, tooltip=tooltip, layout=w.Layout(width=width))
