"""Alternatives side by side, as bars: a plan and placements that were not planned, or settings."""

import math
from collections.abc import Callable, Sequence

import pandas as pd
import plotly.graph_objects as go

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import BLUE, GREEN, SKY
from dtfm_lab.figures.theme import CLEAR, LEGEND_BELOW, literal, titled

NEEDED = ("placement", "predicted_s", "measured_s", "reason")
"""Columns that the table must have."""
REASON_LETTERS = 90
"""Most letters of a reason in the figure; its hover text has all."""
OFFSETS = {"measured": -0.19, "predicted": 0.19}
BAR_PX = 40
ROOM = 1.18
"""Length of the axis against the longest bar; the rest is for the bar's number."""


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


def pinned(
    rows: Sequence[tuple[str, float, bool]],
    what: str,
    text: Callable[[float], str],
    *,
    more_is_better: bool = False,
) -> go.Figure:
    """A bar for each setting, given by name, value, and whether it fits in memory.

    A bar that does not fit is hollow. The best of those that fit, or of all if none does, is green. ``text`` writes a
    value with its unit. Raises TraceError where there is no row.
    """
    if not rows:
        raise TraceError("no settings are pinned; wanted one at least")
    fit = [row for row in rows if row[2]] or list(rows)
    best = (max if more_is_better else min)(fit, key=lambda row: row[1])
    at = list(range(len(rows)))
    colors = [GREEN if row is best else BLUE for row in rows]
    figure = go.Figure(
        go.Bar(
            orientation="h",
            x=[value for _, value, _ in rows],
            y=at,
            width=0.62,
            text=[literal(text(value)) for _, value, _ in rows],
            textposition="outside",
            cliponaxis=False,
            hovertext=[
                f"{literal(name)}: {literal(text(value))}{'' if fits else ', does not fit in memory'}"
                for name, value, fits in rows
            ],
            hoverinfo="text",
            marker={
                "color": [CLEAR if not row[2] else color for row, color in zip(rows, colors, strict=True)],
                "line": {"color": colors, "width": 2},
            },
        )
    )
    longest = max(value for _, value, _ in rows)
    figure.update_xaxes(range=[0, ROOM * longest or 1.0], title_text=literal(what), showticklabels=False)
    figure.update_yaxes(
        tickvals=at, ticktext=[literal(name) for name, _, _ in rows], autorange="reversed", showgrid=False
    )
    values = "; ".join(f"{name} {text(value)}{'' if fits else ' (does not fit)'}" for name, value, fits in rows)
    tight = sum(not fits for _, _, fits in rows)
    return titled(
        figure,
        f"{what}: {text(best[1])} with {best[0]}",
        f"hollow: does not fit in memory ({tight} of {len(rows)})" if tight else "",
        alt=f"{what} of {len(rows)} settings: {values}.",
        height=150 + BAR_PX * len(rows),
        showlegend=False,
    )
