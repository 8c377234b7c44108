"""Fitted values of links and computations against the drawn ones."""

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dtfm_lab.compare import Refit
from dtfm_lab.compare.refit import in_units
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.figures.palette import CAUSE_COLORS, EDGES, FAINT, KIND_NAMES, LINE_GREY
from dtfm_lab.figures.results.tables import rows_of
from dtfm_lab.figures.theme import by_name, literal, log_ticks, short, stacked, titled, with_headings

MOST_ROWS = 10
"""Most rows of each kind, those furthest from the drawn values."""
FEW_ROWS = 4
"""Rows of each kind where none or few differ."""
ROW_PX = 24
HEADING_PX = 46
SPARE_PX = 18
"""Space between the subtitle and the first heading."""
WIDEST = 4.0
"""Multiple of the range of the fitted values beyond which the end of an interval is cut off."""
WHAT = {
    "bandwidth_bytes_per_s": ("bandwidth of links", CAUSE_COLORS["bandwidth"]),
    "latency_s": ("latency of links", CAUSE_COLORS["latency"]),
    "compute_s": ("seconds of computations", CAUSE_COLORS["busy"]),
}


def refit(refit: Refit) -> go.Figure:
    """A row for each link or computation: its fitted value as a multiple of the drawn one, with its 95 % interval."""
    table = refit.table.assign(
        **{f"{c}_ratio": _ratio(refit.table[c], refit.table["drawn"]) for c in ("fitted", "low", "high")}
    )
    counts = table["what"].value_counts()
    table = table[np.isfinite(table["fitted_ratio"]) & (table["fitted_ratio"] > 0)]
    by = {what: table[table["what"] == what] for what in WHAT}
    by = {what: rows for what, rows in by.items() if len(rows)}
    shown = {what: _furthest(rows) for what, rows in by.items()}
    drawn_px = ROW_PX * sum(len(rows) + 0.6 for rows in shown.values())
    total_px = drawn_px + HEADING_PX * max(0, len(shown) - 1)
    heights = [len(rows) + 0.6 for rows in shown.values()]
    headings = [_heading(what, len(rows), len(by[what]), counts[what]) for what, rows in shown.items()]
    figure = stacked(heights, headings, gap_px=HEADING_PX, total_px=total_px)
    low, high = _range(list(shown.values()))
    for number, (what, rows) in enumerate(shown.items(), start=1):
        _add(figure, what, rows, number, (low, high))
    ticks = log_ticks(low, high)
    figure.update_xaxes(type="log", range=np.log10([low, high]).tolist(), tickvals=ticks)
    words = [f"{tick:.3g}" if f"{tick:e}"[0] in "125" else "" for tick in ticks]
    figure.update_xaxes(ticktext=words, tickangle=0, zeroline=False)
    figure.update_xaxes(title_text="fitted, times the drawn", row=max(1, len(shown)), col=1)
    context = refit.measured
    titled(
        figure,
        refit.sentence,
        f"{context.provenance} · {context.schedule} · {context.job} on {context.topology} · "
        "bars: 95 % confidence · line: as drawn",
        alt=f"{refit.sentence}. {_off(refit)}",
        height=int(total_px) + 210,
        showlegend=False,
        margin_r=190,
        margin_b=64,
    )
    return with_headings(figure, SPARE_PX)


def _ratio(value: pd.Series, drawn: pd.Series) -> pd.Series:
    """Value over drawn value; infinite or NaN where the drawn one is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return pd.Series(value.to_numpy(float) / drawn.to_numpy(float), index=value.index)


def _furthest(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows to show: those whose interval does not hold the drawn value first, then by distance from it."""
    differs = (rows["low_ratio"] > 1 + 1e-6) | (rows["high_ratio"] < 1 - 1e-6)
    far = np.abs(np.log(rows["fitted_ratio"]))
    return rows.iloc[np.lexsort((-far, ~differs))[: min(MOST_ROWS, max(FEW_ROWS, int(differs.sum())))]]


def _heading(what: str, n_shown: int, n_drawable: int, n: int) -> str:
    """Heading of a kind. A row without a ratio, because one of its values is 0, is counted, not drawn."""
    furthest = f", furthest {n_shown} of {n}" if n_shown < n else ""
    return WHAT[what][0] + furthest + (f", {n - n_drawable} drawn or fitted as 0" if n_drawable < n else "")


def _range(panels: list[pd.DataFrame]) -> tuple[float, float]:
    """Range of the axis: all fitted values, and the ends of their intervals that are not too far away."""
    fitted = np.concatenate([[1.0], *(rows["fitted_ratio"] for rows in panels)])
    ends = np.concatenate([[1.0], *(rows[c] for rows in panels for c in ("low_ratio", "high_ratio"))])
    low, high = fitted.min() / WIDEST, fitted.max() * WIDEST
    inside = ends[np.isfinite(ends) & (ends >= low) & (ends <= high)]
    return min(fitted.min(), inside.min()) / 1.25, max(fitted.max(), inside.max()) * 1.25


def _add(figure: go.Figure, what: str, rows: pd.DataFrame, number: int, limits: tuple[float, float]) -> None:
    names = [_name(row) for row in rows_of(rows)]
    noun, color = WHAT[what]
    x: list[float | None] = []
    y: list[str | None] = []
    for name, low, high in zip(names, rows["low_ratio"], rows["high_ratio"], strict=True):
        x += [max(low, limits[0]), min(high, limits[1]), None]
        y += [name, name, None]
    figure.add_scatter(x=x, y=y, mode="lines", line={"width": 6, "color": FAINT}, hoverinfo="skip", row=number, col=1)
    figure.add_scatter(
        x=rows["fitted_ratio"].tolist(),
        y=names,
        mode="markers",
        name=noun,
        marker={"size": 11, "color": color, "line": {"width": 1.2, "color": EDGES.get(color, color)}},
        hovertext=[_hover(row) for row in rows_of(rows)],
        hoverinfo="text",
        row=number,
        col=1,
    )
    figure.add_vline(x=1.0, line={"width": 1.5, "color": LINE_GREY}, row=number, col=1)
    for name, row in zip(names, rows_of(rows), strict=True):
        figure.add_annotation(
            text=f"{in_units(what, row.drawn)} → {in_units(what, row.fitted)}", x=1.0, xref="x domain", xanchor="left",
            xshift=8, y=name, showarrow=False, row=number, col=1,
        )  # fmt: skip
    ticks = [_with_kind(row, name) for row, name in zip(rows_of(rows), short(rows["name"]), strict=True)]
    figure.update_yaxes(**by_name(names, 0.6), tickvals=names, ticktext=ticks, row=number, col=1)


def _name(row: Any) -> str:
    return _with_kind(row, literal(row.name).replace("-&gt;", "→").replace("->", "→"))


def _with_kind(row: Any, name: str) -> str:
    return name if row.of == "link" else f"{name} · {KIND_NAMES[Kind(row.kind)]} of stage {row.stage}"


def _hover(row: Any) -> str:
    interval = " to ".join(in_units(row.what, end) for end in (row.low, row.high))
    note = f"<br>{literal(row.note)}" if row.note else ""
    return (
        f"{_name(row)}: drawn {in_units(row.what, row.drawn)}, fitted {in_units(row.what, row.fitted)} ({interval}), "
        f"{row.count} measurements{note}"
    )


def _off(refit: Refit) -> str:
    """A sentence on the drawn values that are out of their intervals."""
    off = refit.off
    if not len(off):
        return "Every drawn value lies in its interval."
    first = off.iloc[0]
    return (
        f"{len(off)} of {len(refit.table)} drawn values lie out of their intervals, the furthest {first['name']}: "
        f"drawn {in_units(first['what'], first['drawn'])}, fitted {in_units(first['what'], first['fitted'])}."
    )
