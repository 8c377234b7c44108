"""Where the error of an iteration comes from: the links and devices that make it longer or shorter."""

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dtfm_lab.compare import Comparison
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import BLUE, GREEN, GREY, LINE_GREY, ORANGE, SKY, VERMILLION, YELLOW
from dtfm_lab.figures.results.comparison import rows_of, what_ran
from dtfm_lab.figures.theme import (
    LEGEND_BELOW,
    by_name,
    edged,
    literal,
    row_bars,
    short,
    time_unit,
    titled,
    with_headings,
)

MOST_ROWS = 14
"""Most rows: suspects first, then those that differ most."""
ROW_PX = 26
PARTS = {
    ("device", "duration"): ("computations take longer or shorter", BLUE),
    ("device", "delay"): ("computations begin late", GREY),
    ("link", "duration"): ("messages take longer or shorter", YELLOW),
    ("link", "latency"): ("latency", SKY),
    ("link", "both"): ("messages and their latency", VERMILLION),
    ("link", "delay"): ("messages leave late", ORANGE),
    ("card", "delay"): ("messages come in another order", GREEN),
}
NEGLIGIBLE = 1e-9
"""Share of an iteration up to which a difference counts as none."""


def blame(comparison: Comparison) -> go.Figure:
    """A bar for each link or device: seconds by which it alone makes an iteration longer (right) or shorter (left)
    than predicted, with a 95 % interval; beside it, how many times as long as predicted its own actions took.

    Raises TraceError for a measured trace that does not hold its schedule.
    """
    found = comparison.blame
    rows = found.table[found.table["named"] | (found.table["longer_s"].abs() > NEGLIGIBLE * found.iteration_s)]
    shown = rows.head(MOST_ROWS)
    unit, scale = time_unit(shown["longer_s"].abs().max())
    figure = go.Figure()
    names = [_name(of, name) for of, name in zip(shown["of"], shown["name"], strict=True)]
    for (of, what), (words, color) in PARTS.items():
        which = ((shown["of"] == of) & (shown["what"] == what)).to_numpy()
        if which.any():
            figure.add_trace(_bars(shown[which], [names[i] for i in np.flatnonzero(which)], scale, words, color))
    for name, row in zip(names, rows_of(shown), strict=True):
        figure.add_annotation(
            text=_times(row.ratio, row.what), x=1.0, xref="paper", y=name, xanchor="left", xshift=8, showarrow=False
        )
    if len(shown):
        lows, highs = (shown[end].where(np.isfinite(shown[end]), shown["longer_s"]) for end in ("low_s", "high_s"))
        low, high = min(0.0, float(lows.min())), max(0.0, float(highs.max()))
        room = 0.06 * (high - low)
        figure.update_xaxes(range=[(low - (room if low < 0 else 0)) * scale, (high + room) * scale])
        figure.add_annotation(
            text="× predicted", x=1.0, xref="paper", y=1.0, yref="paper", xanchor="left", xshift=8, yanchor="bottom",
            showarrow=False, font_color=LINE_GREY,
        )  # fmt: skip
    figure.update_xaxes(title_text=f"makes an iteration longer than predicted by ({unit})", zeroline=True)
    figure.update_xaxes(zerolinecolor=LINE_GREY, zerolinewidth=1.5)
    short_names = zip(shown["of"], short(shown["name"]), strict=True)
    ticks = [f"card of {name}" if of == "card" else name for of, name in short_names]
    figure.update_yaxes(**by_name(names, 0.6), tickvals=names, ticktext=ticks)
    suspects = comparison.suspects
    title = (
        str(suspects["sentence"].iloc[0]).replace("->", "→") if len(suspects) else "no link and no device stands out"
    )
    left_out = f" · first {len(shown)} of {len(rows)}" if len(shown) < len(rows) else ""
    figure.update_layout(showlegend=True)
    titled(
        figure,
        title,
        f"{what_ran(comparison)} · {comparison.verdict}{left_out} · whiskers: 95 % confidence",
        alt=f"{comparison.verdict}. {' '.join(f'{s}.' for s in suspects['sentence'].head(3))}",
        height=max(320, len(shown) * ROW_PX + 230),
        legend=LEGEND_BELOW,
        barmode="overlay",
        margin_r=96,
        margin_b=100,
    )
    return with_headings(figure)


def _bars(rows: pd.DataFrame, names: list[str], scale: float, words: str, color: str) -> go.Bar:
    known = np.isfinite(rows["high_s"].to_numpy(float))
    hover = [
        f"{literal(sentence)}<br>{format_s(low)} to {format_s(high)}" if np.isfinite(high) else literal(sentence)
        for sentence, low, high in zip(rows["sentence"], rows["low_s"], rows["high_s"], strict=True)
    ]
    return row_bars(
        (rows["longer_s"] * scale).tolist(),
        names,
        hover,
        width=0.7,
        name=words,
        error_x={
            "type": "data",
            "array": np.where(known, (rows["high_s"] - rows["longer_s"]) * scale, 0.0).tolist(),
            "color": LINE_GREY,
            "thickness": 1.4,
            "width": 4,
        },
        marker=edged(color),
    )


def _name(of: str, name: str) -> str:
    return literal(f"card of {name}" if of == "card" else name.replace("->", "→"))


def _times(ratio: float, what: str) -> str:
    return "" if what == "delay" or math.isnan(ratio) else f"{ratio:.2f}" if ratio < 9.95 else f"{ratio:.0f}"
