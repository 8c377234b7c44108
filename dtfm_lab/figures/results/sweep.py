"""The table of a sweep as curves, or as bars where what was varied has names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dtfm_lab.domain.registry import unknown
from dtfm_lab.figures.palette import CATEGORIES, DASHES, EDGES, LINE_GREY
from dtfm_lab.figures.results.sweep_rows import (
    RESULTS,
    by_number,
    equal,
    fits,
    hover,
    settings_text,
    shown,
    value,
    value_text,
    values,
    varied,
    word,
)
from dtfm_lab.figures.results.tables import row_at
from dtfm_lab.figures.theme import LEGEND_BELOW, literal, titled, with_headings

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "hexagon")
NO_FILL = "rgba(128, 128, 128, 0.12)"
PANEL_PX = 300
HEADING_PX = 96
"""Space between panels for the axis of the upper one and the heading of the lower one."""
MOST_COLUMNS = 3
MOST_TICKS = 12
LOG_FROM = 8.0
"""Ratio of the largest to the smallest value from which the axis is logarithmic."""


def sweep(frame: pd.DataFrame, y: str = "iteration_s", *, x: str | None = None) -> go.Figure:
    """One result against up to three varied settings: one along the axis, one by colour, and one by panel.

    Points that do not fit in memory are hollow. Impossible combinations are counted, not drawn.

    Parameters
    ----------
    frame
        The table that ``lab.sweep`` returns.
    y
        The column to show.
    x
        The setting along the axis; None stands for the one with most numbers, or with most names if none has numbers.

    Raises
    ------
    UnknownName
        No such result or setting.
    TraceError
        No row, or more than three settings varied.
    """
    if y not in RESULTS or y not in frame.columns:
        raise unknown("result of a sweep", y, [name for name in RESULTS if name in frame.columns])
    names = varied(frame)
    if x is not None and x not in names:
        raise unknown("varied setting of this sweep", x, names)
    drawn = frame[frame[y].notna()]
    highest = float(drawn[y].astype(float).max()) if len(drawn) else 0.0
    result = shown(y, highest)
    roles = Roles.of(frame, names, x)
    panels = values(frame, roles.panel) if roles.panel else [None]
    n_columns = min(len(panels), MOST_COLUMNS)
    n_rows = -(-len(panels) // n_columns)
    total_px = n_rows * PANEL_PX + (n_rows - 1) * HEADING_PX
    headings = [f"{literal(word(roles.panel))}: {literal(value_text(one))}" for one in panels] if roles.panel else None
    figure = make_subplots(
        rows=n_rows,
        cols=n_columns,
        shared_yaxes=True,
        subplot_titles=headings,
        horizontal_spacing=0.04,
        vertical_spacing=HEADING_PX / total_px if n_rows > 1 else 0.0,
    )
    named: set[str] = set()
    for number, one in enumerate(panels):
        row, column = (n + 1 for n in divmod(number, n_columns))
        here = drawn[equal(drawn[roles.panel], one)] if roles.panel else drawn
        here = here if roles.x is None or roles.by_name else here.sort_values(roles.x, kind="stable")
        for name, look, rows in _colored(frame, here, roles.color, result.word):
            at = roles.along(rows), (rows[y].astype(float) * result.scale).tolist()
            traces = _bars(rows, *at, look) if roles.by_name else _curve(rows, *at, look)
            traces[0].showlegend = roles.color is not None and name not in named
            for trace in traces:
                trace.update(name=literal(name), legendgroup=name)
            figure.add_traces(traces, rows=row, cols=column)
            named.add(name)
        if number >= len(panels) - n_columns:
            figure.update_xaxes(title_text=roles.x_title, row=row, col=column)
    figure.update_xaxes(**_x_axis(frame, roles))
    figure.update_yaxes(range=[0, 1.1 * highest * result.scale or 1.0])
    figure.update_yaxes(title_text=result.label, col=1)
    n_tight = fits(drawn).count(False)
    if n_tight:
        figure.add_trace(_hollow(), row=1, col=1)
    if not len(drawn):
        nowhere = {"x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper", "showarrow": False}
        figure.add_annotation(text="nothing to draw", **nowhere)
    titled(
        figure,
        _title(drawn, y, names) if len(drawn) else f"{result.word}: known of none of these combinations",
        _subtitle(frame, y),
        alt=_alt(drawn, y, names, n_tight),
        height=max(360, total_px + 200),
        legend={**LEGEND_BELOW, "traceorder": "normal", "title": {"text": literal(word(roles.color or ""))}},
        margin_b=110,
        barmode="group",
        bargap=0.2 if roles.x else 0.7,
        hovermode="closest",
    )
    return with_headings(figure) if roles.panel else figure


class Roles(NamedTuple):
    """How each varied setting is shown."""

    x: str | None
    """The setting along the axis; None where nothing was varied."""
    by_name: bool
    """Whether the axis has names, not numbers."""
    color: str | None
    """The setting that has a colour for each value, if any."""
    panel: str | None
    """The setting that has a panel for each value, if any."""

    @classmethod
    def of(cls, frame: pd.DataFrame, names: Sequence[str], x: str | None) -> Roles:
        """The setting with most numbers is along the axis, that with most names has colours, a third has panels."""
        by_size = sorted(names, key=lambda name: -len(values(frame, name)))
        x = x or next((name for name in by_size if by_number(frame, name)), by_size[0] if names else None)
        others = sorted((name for name in by_size if name != x), key=lambda name: by_number(frame, name))
        color, panel = [*others, None, None][:2]
        return cls(x, x is None or not by_number(frame, x), color, panel)

    @property
    def x_title(self) -> str:
        return literal(word(self.x)) if self.x else "nothing was varied"

    def along(self, rows: pd.DataFrame) -> list[Any]:
        if self.x is None:
            return ["the one combination"] * len(rows)
        return [literal(value_text(one)) if self.by_name else float(one) for one in rows[self.x]]


def _colored(
    frame: pd.DataFrame, here: pd.DataFrame, color: str | None, name: str
) -> list[tuple[str, CurveLook, pd.DataFrame]]:
    """Name, look and rows of each curve that has rows."""
    of = values(frame, color) if color else [None]
    found = []
    for i, one in enumerate(of):
        rows = here[equal(here[color], one)] if color else here
        if len(rows):
            found.append((value_text(one) if color else name, CurveLook.of(i), rows))
    return found


def _x_axis(frame: pd.DataFrame, roles: Roles) -> dict[str, Any]:
    if roles.x is None:
        return {"type": "category"}
    along = values(frame, roles.x)
    if roles.by_name:
        return {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": [literal(value_text(one)) for one in along],
        }
    few = {"tickvals": along, "ticktext": [f"{one:g}" for one in along]} if len(along) <= MOST_TICKS else {}
    log = along[0] > 0 and along[-1] / along[0] >= LOG_FROM
    return {**few, "type": "log" if log else "linear"}


def _title(drawn: pd.DataFrame, y: str, names: Sequence[str]) -> str:
    """The best combination of those that fit in memory, or of all if none does."""
    result = RESULTS[y]
    fit = fits(drawn)
    column = drawn.loc[fit if any(fit) else [True] * len(fit), y].astype(float)
    best = row_at(drawn, column.idxmax() if result.more_is_better else column.idxmin())
    which = f" with {settings_text(best, names)}" if names else ""
    end = "" if any(fit) else "; none fits in memory"
    return f"{result.word}: {'at best ' if names else ''}{value(y, float(best[y]))}{which}{end}"


def _subtitle(frame: pd.DataFrame, y: str) -> str:
    missing = frame[frame[y].isna()]
    parts = [f"{len(frame):,} combination{'s' * (len(frame) != 1)}"]
    errors = [error for error in missing["error"] if isinstance(error, str) and error] if "error" in missing else []
    if errors:
        parts.append(f"{len(errors):,} cannot be, such as: {errors[0]}")
    elif len(missing):
        parts.append(f"of {len(missing):,} it is unknown")
    return " · ".join(parts)


def _alt(drawn: pd.DataFrame, y: str, names: Sequence[str], n_tight: int) -> str:
    over = f" over {', '.join(map(word, names))}" if names else ""
    if not len(drawn):
        return f"{RESULTS[y].word}{over}: known of no combination."
    column = drawn[y].astype(float)
    span = f"from {value(y, float(column.min()))} to {value(y, float(column.max()))}"
    return f"{RESULTS[y].word}{over}: {len(drawn)} combinations {span}; {n_tight or 'none'} do not fit in memory."


class CurveLook(NamedTuple):
    """The look of one curve. Later curves are thinner, so that each of several equal ones is visible."""

    color: str
    dash: str
    symbol: str
    width: float
    size: float

    @classmethod
    def of(cls, i: int) -> CurveLook:
        """The look of curve number i."""
        n = len(CATEGORIES)
        thin = {"width": max(1.6, 4 - 0.6 * i), "size": max(6.0, 12 - 1.4 * i)}
        return cls(CATEGORIES[i % n], DASHES[i // n % len(DASHES)], SYMBOLS[i % len(SYMBOLS)], **thin)


def _curve(rows: pd.DataFrame, x: list[Any], y: list[float], look: CurveLook) -> list[go.Scatter]:
    """A line, and its markers in a trace of their own, so that the legend shows neither filled nor hollow ones."""
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


def _bars(rows: pd.DataFrame, x: list[Any], y: list[float], look: CurveLook) -> list[go.Bar]:
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


def _hollow() -> go.Scatter:
    """An entry of the legend that explains hollow markers."""
    marker = {"size": 9, "symbol": "circle-open", "color": LINE_GREY, "line": {"width": 2}}
    name = "hollow: does not fit in memory"
    return go.Scatter(x=[None], y=[None], mode="markers", name=name, marker=marker, hoverinfo="skip", showlegend=True)
