"""The history of one policy as plotly draws it, kept as one figure of the page through all changes."""

from collections.abc import Callable

import ipywidgets as w
import plotly.graph_objects as go

from dtfm_lab.domain.history import History
from dtfm_lab.figures.theme import CLEAR, HEADING_PX, template, time_axis
from dtfm_lab.figures.timeline.history import BAND_ROW, PARTS
from dtfm_lab.figures.timeline.history import history as drawn
from dtfm_lab.widgets.controls import classed

LEFT_PX, RIGHT_PX = 92, 16
"""Room beside the axis of time, the same as of the rows of devices above it."""
PANEL_PX = 104
"""Height of a panel, with its heading."""

KEYS = {
    "devices: there, and serving": "devices: there (grey) and serving (blue)",
    "samples so far (thousands)": "thousand samples so far; dashed, the most that knowing the future allows",
}
"""Headings that name their lines, in place of a legend; the band has the colours of the race."""


class HistoryChart:
    """``lab.figures.history`` without its title, whose place the headline takes.

    The figure is made when there is something to draw: it brings plotly's script, several MB, to the page.
    """

    def __init__(self, look_at: Callable[[float], None]) -> None:
        """``look_at`` is called with the second that is pointed at."""
        self.view = classed(w.VBox(), "dtfm-hours-chart")
        self.figure: go.FigureWidget | None = None
        self._look_at, self._in_s = look_at, 1.0

    def show(self, history: History | None, *, dark: bool) -> None:
        """Draw a history; nothing for None."""
        self.view.layout.display = "none" if history is None else ""
        if history is None:
            return
        figure = drawn(history)
        self._in_s = time_axis(history.availability.end_s)[1]
        self.view.layout.height = f"{self._fitted(figure, dark=dark)}px"
        now = self.figure
        if now is None or {trace.name for trace in now.data} != {trace.name for trace in figure.data}:
            self.figure = go.FigureWidget(figure)
            self.figure._config = self.figure._config | {"displayModeBar": False, "responsive": True}
            self.view.children = (self.figure,)
            for trace in self.figure.data:
                trace.on_hover(self._pointed)
            return
        drawn_before = {trace.name: trace for trace in now.data}
        with now.batch_update():
            for new in figure.data:
                old = drawn_before[new.name]
                old.x, old.y = new.x, new.y
                if new.type == "bar":
                    old.width = new.width
            now.layout.xaxis.range, now.layout.meta = figure.layout.xaxis.range, figure.layout.meta
            now.layout.template = figure.layout.template

    def _fitted(self, figure: go.Figure, *, dark: bool) -> int:
        """Fit a figure to the pane; its height in pixels."""
        n_panels = len(list(figure.select_yaxes()))
        height = n_panels * PANEL_PX + 44
        figure.update_layout(
            template=template(dark),
            paper_bgcolor=CLEAR,
            plot_bgcolor=CLEAR,
            title=None,
            height=height,
            autosize=True,
            showlegend=False,
            margin={"l": LEFT_PX, "r": RIGHT_PX, "t": HEADING_PX + 4, "b": 40, "autoexpand": False},
        )
        for heading in figure.layout.annotations:
            heading.update(text=KEYS.get(heading.text, heading.text), bgcolor=CLEAR)
        here = {trace.name for trace in figure.data}
        for name, color in PARTS.items():
            if name not in here:  # the same traces in every figure, so that it is changed rather than made anew
                figure.add_bar(x=[], y=[], name=name, marker_color=color, row=BAND_ROW, col=1)
        figure.update_yaxes(automargin=False)
        return height

    def _pointed(self, _: object, points: object, __: object) -> None:
        if xs := getattr(points, "xs", None):
            self._look_at(float(xs[0]) * self._in_s)
