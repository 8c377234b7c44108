"""Several small figures as panels of one, each with a heading and a caption."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

LETTER_PX = 6.4
"""mean width of a letter of a caption"""
LINE_PX = 17
HEADING_PX = 26
GAP_PX = 34
BELOW_PX = 56
"""between rows: an axis title must fit in"""
SCALE_PX = 58
"""a colour scale beside its heat map"""


class Room(NamedTuple):
    """What a panel's drawing may fill, in pixels, where the figure has its usual width."""

    width: float
    height: float


class Panel(NamedTuple):
    """A figure without title, a heading, and one sentence or two that say what it shows."""

    figure: go.Figure
    heading: str
    caption: str
    height_px: float


def wrapped(caption: str, width_px: float) -> list[str]:
    return textwrap.wrap(caption, max(20, int(width_px / LETTER_PX)))


def joined(rows: Sequence[Sequence[Panel]], width_px: float) -> tuple[go.Figure, float]:
    """Rows of panels, equally wide within a row, and the height in pixels that they need."""
    lines = [max(len(wrapped(panel.caption, _share(width_px, len(row)))) for panel in row) for row in rows]
    drawn = [max(panel.height_px for panel in row) for row in rows]
    heights = [HEADING_PX + n * LINE_PX + height + BELOW_PX for n, height in zip(lines, drawn, strict=True)]
    total = sum(heights)
    figure = go.Figure()
    number, above = 0, 0.0
    notes: list[dict[str, Any]] = []
    shapes: list[dict[str, Any]] = []
    for row, n_lines, drawn_px, height in zip(rows, lines, drawn, heights, strict=True):
        for column, panel in enumerate(row):
            number += 1
            share = _share(width_px, len(row)) / width_px
            left = column * (share + GAP_PX / width_px)
            words_px = HEADING_PX + n_lines * LINE_PX
            x = (left, min(1.0, left + share))
            y = (1 - (above + words_px + drawn_px) / total, 1 - (above + words_px) / total)
            if any(trace.type == "heatmap" and trace.showscale for trace in panel.figure.data):
                x = (x[0], x[1] - SCALE_PX / width_px)
            marks = _place(figure, panel, number, x, y)
            text = f"<b>{panel.heading}</b><br>" + "<br>".join(wrapped(panel.caption, share * width_px))
            at = {"x": left, "xref": "paper", "xanchor": "left", "y": 1 - above / total, "yref": "paper"}
            notes.append({"text": text, **at, "yanchor": "top", "align": "left", "showarrow": False, "borderpad": 0})
            notes += [{**note.to_plotly_json(), **marks} for note in panel.figure.layout.annotations]
            shapes += [{**shape.to_plotly_json(), **marks} for shape in panel.figure.layout.shapes]
        above += height
    # at once: plotly checks all annotations anew for each that is added
    return figure.update_layout(annotations=notes, shapes=shapes), total


def _share(width_px: float, n: int) -> float:
    return (width_px - (n - 1) * GAP_PX) / n


def _place(
    figure: go.Figure, panel: Panel, number: int, x: tuple[float, float], y: tuple[float, float]
) -> dict[str, str]:
    """The panel's drawing on axes of its own; how its annotations and shapes refer to them."""
    mark = "" if number == 1 else str(number)
    layout = panel.figure.layout
    for trace in panel.figure.data:
        trace.update(xaxis=f"x{mark}", yaxis=f"y{mark}", showlegend=False)
        if trace.type == "heatmap" and trace.showscale:
            trace.update(colorbar={"x": x[1], "xanchor": "left", "y": sum(y) / 2, "len": y[1] - y[0]})
    figure.add_traces(panel.figure.data)
    across = {**layout.xaxis.to_plotly_json(), "domain": list(x), "anchor": f"y{mark}"}
    upwards = {**layout.yaxis.to_plotly_json(), "domain": list(y), "anchor": f"x{mark}"}
    if "scaleanchor" in upwards:
        upwards["scaleanchor"] = f"x{mark}"
    figure.update_layout({f"xaxis{mark}": across, f"yaxis{mark}": upwards})
    return {"xref": f"x{mark}", "yref": f"y{mark}"}
