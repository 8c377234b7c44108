"""A plan and placements that were not planned, side by side, as bars."""

import math

import pandas as pd
import plotly.graph_objects as go

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import BLUE, SKY
from dtfm_lab.figures.theme import LEGEND_BELOW, literal, titled

NEEDED = ("placement", "predicted_s", "measured_s", "reason")
"""Columns that the table must have."""
REASON_LETTERS = 90
"""Most letters of a reason in the figure; its hover text has all."""
OFFSETS = {"measured": -0.19, "predicted": 0.19}


def baselines(table: pd.DataFrame) -> go.Figure:
    """Two bars for each placement in the table of ``lab.baselines``, measured and predicted.

    Where nothing could be measured, the reason is in place of the bar. Raises TraceError for another table, or one
    without rows.
    """
    if missing := [name for name in NEEDED if name not in table]:
        raise TraceError(f"the table of placements has no column {missing[0]}; wanted what lab.baselines makes")
    if table.empty:
        raise TraceError("the table of placements has no rows; wanted one at least")
    rows = list(range(len(table)))
    names = [str(name) for name in table["placement"]]
    seconds = {what: [float(s) for s in table[f"{what}_s"]] for what in OFFSETS}
    figure = go.Figure(
        [
            go.Bar(
                orientation="h",
                x=seconds[what],
                y=[row + OFFSETS[what] for row in rows],
                width=0.36,
                name=what,
                text=["" if math.isnan(s) else format_s(s) for s in seconds[what]],
                textposition="outside",
                cliponaxis=False,
                hovertext=[f"{literal(name)}, {what}: {format_s(s)}" for name, s in _known(names, seconds[what])],
                hoverinfo="text",
                marker={"color": color},
            )
            for what, color in (("measured", BLUE), ("predicted", SKY))
        ]
    )
    for row, reason in zip(rows, map(str, table["reason"]), strict=True):
        shown = reason if len(reason) <= REASON_LETTERS else reason[: REASON_LETTERS - 3] + "..."
        if reason:
            figure.add_annotation(
                x=0, y=row, text=literal(shown), hovertext=literal(reason), showarrow=False, xanchor="left"
            )
    longest_s = max((s for of in seconds.values() for s in of if not math.isnan(s)), default=1.0)
    figure.update_xaxes(title_text="an iteration (s)", range=[0, 1.16 * longest_s or 1.0], exponentformat="none")
    figure.update_yaxes(tickvals=rows, ticktext=[literal(name) for name in names], autorange="reversed", showgrid=False)
    return titled(
        figure,
        _claim(names, seconds["measured"]),
        "each placement run for real on the same emulated links, and predicted from the profile taken before it",
        alt=_alt(names, seconds),
        height=200 + 64 * len(rows),
        legend={**LEGEND_BELOW, "traceorder": "normal"},
        margin_b=96,
    )


def _known(names: list[str], seconds: list[float]) -> list[tuple[str, float]]:
    return [(name, 0.0 if math.isnan(s) else s) for name, s in zip(names, seconds, strict=True)]


def _claim(names: list[str], measured_s: list[float]) -> str:
    """How long the first placement takes, and how many times as long the best of the others."""
    others = [(s, name) for name, s in zip(names[1:], measured_s[1:], strict=True) if not math.isnan(s)]
    first_s = measured_s[0]
    if math.isnan(first_s) or not others:
        return f"{names[0]}: not measured" if math.isnan(first_s) else f"{names[0]}: {format_s(first_s)} an iteration"
    best_s, best = min(others)
    share = f", {best_s / first_s:.2f} times as long" if first_s > 0 else ""
    return f"{names[0]}: {format_s(first_s)} an iteration; {best}: {format_s(best_s)}{share}"


def _alt(names: list[str], seconds: dict[str, list[float]]) -> str:
    each = [
        f"{name} " + ("not measured" if math.isnan(m) else f"{format_s(m)} measured, {format_s(p)} predicted")
        for name, m, p in zip(names, seconds["measured"], seconds["predicted"], strict=True)
    ]
    return f"Seconds an iteration takes, by placement: {'; '.join(each)}."
