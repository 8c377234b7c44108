"""The curves and bars of a sweep."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd
import plotly.graph_objects as go

from dtfm_lab.figures.palette import CATEGORIES, DASHES, EDGES, LINE_GREY
from dtfm_lab.figures.results.sweep_rows import fits, hover

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagon")
NO_FILL = "rgba(128, 128, 128, 0.12)"


class Look(NamedTuple):
    """Of one curve. Later ones are thinner, so that of equal curves each is seen."""

    color: str
    dash: str
    symbol: str
    width: float
    size: float

    @classmethod
    def of(cls, i: int) -> Look:
        n = len(CATEGORIES)
        thin = {"width": max(1.6, 4 - 0.6 * i), "size": max(6.0, 12 - 1.4 * i)}
        return cls(CATEGORIES[i % n], DASHES[i // n % len(DASHES)], SYMBOLS[i % len(SYMBOLS)], **thin)


def curve(rows: pd.DataFrame, x: list[Any], y: list[float], look: Look) -> list[go.Scatter]:
    """A line, and markers of their own: the legend shows the line alone, whether its first point fits or not."""
    color = EDGES.get(look.color, look.color)
    at = {"x": x, "y": y}
    symbols = [look.symbol if fit else f"{look.symbol}-open" for fit in fits(rows)]
    drawn = {"width": look.width, "dash": look.dash, "color": color}
    line = go.Scatter(**at, mode="lines", line=drawn, hoverinfo="skip")
    markers = go.Scatter(
        **at,
        mode="markers",
        marker={"size": look.size, "color": color, "symbol": symbols, "line": {"width": 2, "color": color}},
        showlegend=False,
        hovertext=hover(rows),
        hoverinfo="text",
    )
    return [line, markers]


def bars(rows: pd.DataFrame, x: list[Any], y: list[float], look: Look) -> list[go.Bar]:
    color = look.color
    edge = EDGES.get(color, color)
    bar = go.Bar(
        x=x,
        y=y,
        marker={"color": [color if fit else NO_FILL for fit in fits(rows)], "line": {"width": 2, "color": edge}},
        text=[f"{height:,.0f}" if height >= 1000 else f"{height:.3g}" for height in y],
        textposition="outside",
        cliponaxis=False,
        hovertext=hover(rows),
        hoverinfo="text",
    )
    return [bar]


def hollow() -> go.Scatter:
    """Says in the legend what hollow means."""
    marker = {"size": 9, "symbol": "circle-open", "color": LINE_GREY, "line": {"width": 2}}
    name = "hollow: does not fit in memory"
    return go.Scatter(x=[None], y=[None], mode="markers", name=name, marker=marker, hoverinfo="skip", showlegend=True)
