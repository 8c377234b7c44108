"""Settings side by side, as bars."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.figures.palette import BLUE, GREEN
from dtfm_lab.figures.theme import CLEAR, literal, titled

BAR_PX = 40
ROOM = 1.18
"""Length of the axis against the longest bar; the rest is for the bar's number."""


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
