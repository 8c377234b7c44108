"""The table of a sweep as curves, or as bars if the varied setting has names instead of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import format_bytes, format_s
from dtfm_lab.figures.palette import CATEGORIES, DASHES, EDGES, LINE_GREY, SYMBOLS
from dtfm_lab.figures.theme import figure_of, literal, titled
from dtfm_lab.planning.sweeps import PLANNED
from dtfm_lab.simulation.variations import OUTCOMES

NO_FILL = "rgba(128, 128, 128, 0.12)"
MOST_TICKS = 12
"""Up to this number of values, each value of the setting has a tick."""
LOG_FROM = 8.0
"""From this ratio of the largest to the smallest value on, the axis is logarithmic."""


@figure_of(pd.DataFrame)
def sweep(frame: pd.DataFrame, y: str = "iteration_s", *, x: str | None = None) -> go.Figure:
    """One result against up to two varied settings: one along the axis, and one by colour.

    Points that do not fit in memory are hollow. Impossible combinations are counted, not drawn.

    Parameters
    ----------
    frame
        The table that ``lab.sweep`` returns.
    y
        The column to show.
    x
        The setting along the axis. None means the one with most numbers, or with most names if none has numbers.

    Raises
    ------
    UnknownName
        There is no such result or setting.
    TraceError
        The table has no row, or more than two settings vary.
    """
    if y not in RESULTS or y not in frame.columns:
        raise unknown("result of a sweep", y, [name for name in RESULTS if name in frame.columns])
    names = varied(frame)
    if x is not None and x not in names:
        raise unknown("varied setting of this sweep", x, names)
    drawn = frame[frame[y].notna()]
    highest = float(drawn[y].astype(float).max()) if len(drawn) else 0.0
    result = shown(frame, y, highest)
    # The setting with most values makes the longest axis.
    by_size = sorted(names, key=lambda name: -len(values(frame, name)))
    x = x or next((name for name in by_size if by_number(frame, name)), by_size[0] if names else None)
    color = next((name for name in by_size if name != x), None)
    by_name = x is None or not by_number(frame, x)
    figure = go.Figure()
    ordered = drawn if x is None or by_name else drawn.sort_values(x, kind="stable")
    for number, one in enumerate(values(frame, color) if color else [None]):
        rows = ordered[equal(ordered[color], one)] if color else ordered
        if not len(rows):
            continue
        heights = (rows[y].astype(float) * result.scale).tolist()
        along: list[Any] = ["the one combination"] * len(rows)
        if x:
            along = [literal(value_text(place)) if by_name else float(place) for place in rows[x]]
        traces = (_bars if by_name else _curve)(rows, along, heights, number)
        traces[0].showlegend = color is not None
        name = literal(value_text(one) if color else result.word)
        figure.add_traces([trace.update(name=name, legendgroup=name) for trace in traces])
    figure.update_xaxes(title_text=literal(word(x)) if x else "nothing was varied", **_x_axis(frame, x, by_name))
    figure.update_yaxes(title_text=result.label, range=[0, 1.1 * highest * result.scale or 1.0])
    # The legend explains hollow marks only if there are any.
    n_tight = fits(drawn).count(False)
    if n_tight:
        marker = {"size": 9, "symbol": "circle-open", "color": LINE_GREY, "line": {"width": 2}}
        look = {"mode": "markers", "marker": marker, "hoverinfo": "skip", "showlegend": True}
        figure.add_scatter(x=[None], y=[None], name="hollow: does not fit in memory", **look)
    if not len(drawn):
        nowhere = {"x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper", "showarrow": False}
        figure.add_annotation(text="nothing to draw", **nowhere)
    title = _title(drawn, y, names) if len(drawn) else f"{result.word}: unknown for all of these combinations"
    legend = {"traceorder": "normal", "title": {"text": literal(word(color or ""))}}
    look = {"height": 500, "legend": legend, "barmode": "group", "bargap": 0.2 if x else 0.7}
    return titled(figure, title, _subtitle(frame, y), alt=_alt(drawn, y, names, n_tight), **look)


def _x_axis(frame: pd.DataFrame, x: str | None, by_name: bool) -> dict[str, Any]:
    if x is None:
        return {"type": "category"}
    along = values(frame, x)
    if by_name:
        return {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": [literal(value_text(one)) for one in along],
        }
    few = {"tickvals": along, "ticktext": [f"{one:g}" for one in along]} if len(along) <= MOST_TICKS else {}
    # Values that span a wide range would crowd at one end.
    log = along[0] > 0 and along[-1] / along[0] >= LOG_FROM
    return {**few, "type": "log" if log else "linear"}


def _title(drawn: pd.DataFrame, y: str, names: Sequence[str]) -> str:
    """Return a title that names the best combination of those that fit in memory, or of all if none fits."""
    result = result_of(drawn, y)
    fit = fits(drawn)
    # A plan that does not fit is not the best of anything.
    kept = drawn[fit] if any(fit) else drawn
    column = kept[y].astype(float)
    best = kept.iloc[int(column.argmax() if result.more_is_better else column.argmin())]
    which = f" with {settings_text(best, names)}" if names else ""
    end = "" if any(fit) else "; none fits in memory"
    return f"{result.word}: {'at best ' if names else ''}{value(y, float(best[y]))}{which}{end}"


def _subtitle(frame: pd.DataFrame, y: str) -> str:
    missing = frame[frame[y].isna()]
    parts = [f"{len(frame):,} combination{'s' * (len(frame) != 1)}"]
    errors = [error for error in missing["error"] if isinstance(error, str) and error] if "error" in missing else []
    if errors:
        parts.append(f"{len(errors):,} are impossible, such as: {errors[0]}")
    elif len(missing):
        parts.append(f"unknown for {len(missing):,}")
    return " · ".join(parts)


def _alt(drawn: pd.DataFrame, y: str, names: Sequence[str], n_tight: int) -> str:
    over, said = f" over {', '.join(map(word, names))}" if names else "", result_of(drawn, y).word
    if not len(drawn):
        return f"{said}{over}: unknown for every combination."
    column = drawn[y].astype(float)
    span = f"from {value(y, float(column.min()))} to {value(y, float(column.max()))}"
    return f"{said}{over}: {len(drawn)} combinations {span}; {n_tight or 'none'} do not fit in memory."


def _curve(rows: pd.DataFrame, x: list[Any], y: list[float], number: int) -> list[go.Scatter]:
    """Return a line, and its markers in a separate trace, so that the legend shows only the line.

    Filled and hollow markers have different meanings. Later curves are thinner, so that each of several equal curves is
    visible.
    """
    color = CATEGORIES[number % len(CATEGORIES)]
    color, symbol = EDGES.get(color, color), SYMBOLS[number % len(SYMBOLS)]
    dash = DASHES[number // len(CATEGORIES) % len(DASHES)]
    look = {"color": color, "symbol": [symbol if fit else f"{symbol}-open" for fit in fits(rows)]}
    # Smaller from one curve to the next, so that those beneath stay visible.
    marker = look | {"size": max(6.0, 12 - 1.4 * number), "line": {"width": 2, "color": color}}
    line = {"width": max(1.6, 4 - 0.6 * number), "dash": dash, "color": color}
    shown_at = {"hovertext": hover(rows), "hoverinfo": "text", "showlegend": False}
    return [
        go.Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip"),
        go.Scatter(x=x, y=y, mode="markers", marker=marker, **shown_at),
    ]


def _bars(rows: pd.DataFrame, x: list[Any], y: list[float], number: int) -> list[go.Bar]:
    color = CATEGORIES[number % len(CATEGORIES)]
    edge = {"width": 2, "color": EDGES.get(color, color)}
    marker = {"color": [color if fit else NO_FILL for fit in fits(rows)], "line": edge}
    text = [f"{height:,.0f}" if height >= 1000 else f"{height:.3g}" for height in y]
    look = {"textposition": "outside", "cliponaxis": False, "hoverinfo": "text"}
    return [go.Bar(x=x, y=y, marker=marker, text=text, hovertext=hover(rows), **look)]


# Text of results and settings.


MOST_VARIED = 2
"""Maximum number of varied settings in a figure: one along the axis, one by colour."""


class Result(NamedTuple):
    """How the figure shows one result column of the table: its name, unit, scale, and whether more is better."""

    word: str
    unit: str = ""
    scale: float = 1.0
    more_is_better: bool = False

    @property
    def label(self) -> str:
        """Title of its axis."""
        return f"{self.word} ({self.unit})" if self.unit else self.word


RESULTS = {
    "iteration_s": Result("iteration", "s"),
    "tokens_per_s": Result("tokens per second", more_is_better=True),
    "mfu": Result("model FLOP utilisation", "%", 100, more_is_better=True),
    "pflops": Result("PFLOP/s", more_is_better=True),
    "bubble_share": Result("bubble", "%", 100),
    "peak_memory_bytes": Result("peak memory", "bytes"),
    "over_bytes": Result("missing memory", "bytes"),
    "peak_activations": Result("peak activations"),
    "price_per_million_tokens": Result("price of a million tokens"),
    "communication_cost_s": Result("communication cost", "s"),
    "iteration_lower_bound_s": Result("lower bound of the iteration", "s"),
    "plan_devices": Result("devices in use"),
    "planning_s": Result("search", "s"),
}
NO_SETTING = {*RESULTS, *OUTCOMES, *PLANNED, "error"}
FACTORS = ("bandwidth", "latency")
WORDS = {
    "microbatch": "micro-batch (sequences)",
    "global_batch": "global batch (sequences)",
    "bandwidth": "bandwidth of all links (factor)",
    "latency": "latency of all links (factor)",
    "synchronise_every": "synchronising every (iterations)",
    "efficiency": "efficiency (share of peak)",
    "codec_bytes_per_s": "codec (bytes/s)",
}
UNITS = {"s": (("s", 1.0), ("ms", 1e-3)), "bytes": (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10))}


def result_of(frame: pd.DataFrame, y: str) -> Result:
    """Return a result with its word, in which samples replace tokens if the job of the sweep counts samples."""
    counted = str(frame.attrs.get("counted", "tokens"))
    return RESULTS[y]._replace(word=RESULTS[y].word.replace("token", counted.removesuffix("s")))


def shown(frame: pd.DataFrame, y: str, highest: float) -> Result:
    """Return a result in the unit that suits its highest value."""
    result = result_of(frame, y)
    units = UNITS.get(result.unit, ())
    fitting = next(((unit, size) for unit, size in units if highest >= size), units[-1] if units else None)
    return result if fitting is None else result._replace(unit=fitting[0], scale=1 / fitting[1])


def settings(frame: pd.DataFrame) -> list[str]:
    """Return the names of the columns that hold settings."""
    return [str(name) for name in frame.columns if name not in NO_SETTING]


def varied(frame: pd.DataFrame) -> list[str]:
    """Return the settings with more than one value.

    Raises TraceError if there is no row, or if more settings vary than a figure can show.
    """
    if not len(frame):
        raise TraceError("sweep has no rows; wanted at least one")
    found = [name for name in settings(frame) if len(values(frame, name)) > 1]
    if len(found) > MOST_VARIED:
        raise TraceError(
            f"sweep varies {len(found)} settings ({', '.join(found)}); wanted at most {MOST_VARIED} to draw: "
            f"choose rows of one {found[-1]}"
        )
    return found


def values(frame: pd.DataFrame, setting: str) -> list[Any]:
    """Return the values of a setting: numbers sorted, names in the table's order. None is a value too."""
    found = list(dict.fromkeys(None if pd.isna(value) else value for value in frame[setting]))
    return sorted(found) if by_number(frame, setting) else found


def by_number(frame: pd.DataFrame, setting: str) -> bool:
    """True if all values of a setting are numbers."""
    column = frame[setting]
    numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    return bool(numeric and column.notna().all())


def equal(column: pd.Series, value: object) -> pd.Series:
    """Return True for each row with this value. The value may be None."""
    return column.isna() if value is None else column == value


def fits(rows: pd.DataFrame) -> list[bool]:
    """Return True for each row that fits in memory. A row without an answer counts as fitting."""
    return [pd.isna(fit) or bool(fit) for fit in rows["fits"]] if "fits" in rows else [True] * len(rows)


def word(setting: str) -> str:
    """Return a setting's name as a person writes it."""
    return WORDS.get(setting, setting.replace("_", " "))


def value_text(value: Any) -> str:
    """Return a setting's value as a person writes it."""
    if value is None or pd.isna(value):
        return "default"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def settings_text(row: pd.Series, names: Sequence[str]) -> str:
    """Return the settings of a row, such as ``schedule zb-h1, bandwidth × 4``."""
    return ", ".join(
        f"{word(name).partition(' (')[0] if name not in FACTORS else f'{name} ×'} {value_text(row[name])}"
        for name in names
    )


def value(y: str, number: float) -> str:
    """Return a number of the result ``y`` as text with its unit."""
    unit = RESULTS[y].unit
    if unit == "s":
        return format_s(number)
    if unit == "bytes":
        return format_bytes(number)
    scaled = number * RESULTS[y].scale
    digits = f"{scaled:,.0f}" if abs(scaled) >= 1000 else f"{scaled:.4g}"
    return f"{digits} {unit}" if unit else digits


def hover(rows: pd.DataFrame) -> list[str]:
    """Return a text for each combination, with its settings and results on separate lines."""
    names = settings(rows)
    texts = []
    for _, row in rows.iterrows():
        lines = [f"{literal(word(name))}: {literal(value_text(row[name]))}" for name in names]
        for y in RESULTS:
            if y in row and not pd.isna(row[y]) and (y != "over_bytes" or row[y]):
                lines.append(f"{result_of(rows, y).word}: {value(y, float(row[y]))}")
        texts.append("<br>".join(lines))
    return texts
