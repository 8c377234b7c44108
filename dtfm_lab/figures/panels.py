"""Several small figures as panels of one, each with a heading and a caption."""

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

LETTER_PX = 6.4
"""Mean width of a letter of a caption."""
LINE_PX = 17
HEADING_PX = 26
GAP_PX = 34
BELOW_PX = 56
"""Space between rows, into which an axis title must fit."""
SCALE_PX = 58
"""Width of a colour scale beside its heat map."""


class Room(NamedTuple):
    """The largest size of a panel's drawing in pixels, where the figure has its usual width."""

    width: float
    height: float


class Subfigure(NamedTuple):
    """A figure without a title, its heading, and a caption of one or two sentences."""

    figure: go.Figure
    heading: str
    caption: str
    height_px: float


def wrapped(caption: str, width_px: float) -> list[str]:
    """The lines of a caption in a panel of this width."""
    return textwrap.wrap(caption, max(20, int(width_px / LETTER_PX)))


def joined(rows: Sequence[Sequence[Subfigure]], width_px: float) -> tuple[go.Figure, float]:
    """One figure of rows of panels, equally wide within a row, and the height in pixels that it needs."""
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
    # all at once: plotly checks every annotation again for each one that is added
    return figure.update_layout(annotations=notes, shapes=shapes), total


def stacked(heights: Sequence[float], headings: Sequence[str], *, gap_px: float, total_px: float) -> go.Figure:
    """An empty figure of panels under each other on one x axis, each with a heading at its left end.

    Parameters
    ----------
    heights
        Of each panel, in any unit.
    gap_px, total_px
        Pixels between two panels, and of the whole.
    """
    figure = make_subplots(
        rows=max(1, len(heights)),
        cols=1,
        shared_xaxes=True,
        row_heights=list(heights) or None,
        vertical_spacing=gap_px / total_px if len(heights) > 1 else 0.0,
        subplot_titles=list(headings) or None,
    )
    return figure.update_annotations(x=0, xanchor="left")


def _share(width_px: float, n: int) -> float:
    """Width of one of n panels of a row."""
    return (width_px - (n - 1) * GAP_PX) / n


def _place(
    figure: go.Figure, panel: Subfigure, number: int, x: tuple[float, float], y: tuple[float, float]
) -> dict[str, str]:
    """Add the panel's drawing on axes of its own; returns the references to these that its annotations need."""
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
