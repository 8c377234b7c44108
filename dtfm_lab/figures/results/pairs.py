"""A panel of predicted and measured durations, a row each."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import BLUE, FAINT, VERMILLION
from dtfm_lab.figures.ticks import log_ticks


def add_pairs(figure: go.Figure, frame: pd.DataFrame, *, row: int, log: bool) -> None:
    """Into the first column of a figure with subplots: predicted_s and measured_s, joined by a line, and
    relative_error to their right."""
    names = list(frame.index)
    predicted, measured = frame["predicted_s"].tolist(), frame["measured_s"].tolist()
    errors = [percent(error) for error in frame["relative_error"]]
    unit, scale = ("ms", 1e3) if max([*predicted, *measured]) < 1 else ("s", 1.0)
    hover = [
        f"{name}: {format_s(a)} predicted, {format_s(b)} measured{f' ({error})' if error else ''}"
        for name, a, b, error in zip(names, predicted, measured, errors, strict=True)
    ]
    x: list[float | None] = []
    y: list[str | None] = []
    for name, a, b in zip(names, predicted, measured, strict=True):
        x += [a * scale, b * scale, None]
        y += [name, name, None]
    line = {"width": 3, "color": FAINT}
    traces = [go.Scatter(x=x, y=y, mode="lines", name="error", line=line, hoverinfo="skip", showlegend=False)]
    for word, values, size, symbol, color in (
        ("measured", measured, 9, "circle", VERMILLION),
        ("predicted", predicted, 13, "circle-open", BLUE),
    ):
        traces.append(
            go.Scatter(
                x=[value * scale for value in values],
                y=names,
                mode="markers",
                name=word,
                legendgroup=word,
                showlegend=row == 1,
                marker={"size": size, "color": color, "symbol": symbol, "line": {"width": 2, "color": color}},
                hovertext=hover,
                hoverinfo="text",
            )
        )
    figure.add_traces(traces, rows=row, cols=1)
    for name, error in zip(names, errors, strict=True):
        figure.add_annotation(
            text=error, x=1.01, xref="x domain", y=name, showarrow=False, xanchor="left", row=row, col=1
        )
    ticks: dict[str, object] = {"rangemode": "tozero"}
    if log and (above := [value * scale for value in [*predicted, *measured] if value > 0]):
        low, high = min(above) / 1.3, max(above) * 1.3
        values = log_ticks(low, high)
        ticks = {"type": "log", "range": np.log10([low, high]).tolist()}
        ticks |= {"tickvals": values, "ticktext": [f"{value:.3g}" for value in values]}
    figure.update_xaxes(title_text=f"duration ({unit})", **ticks, row=row, col=1)
    figure.update_yaxes(autorange="reversed", type="category", row=row, col=1)


def percent(share: float) -> str:
    """``-3.1%``; nothing for what is not a number."""
    if pd.isna(share):
        return ""
    return "0.0%" if abs(share) < 0.0005 else f"{share:+.1%}"
