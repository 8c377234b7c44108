"""The errors of a prediction by kind of action, stage and link, and the links and devices that cause them."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dtfm_lab.compare import Comparison
from dtfm_lab.compare.comparison import LINK_MODEL
from dtfm_lab.domain.schedule import COMPUTE, SENDS, Kind
from dtfm_lab.domain.trace import BY_MODEL
from dtfm_lab.domain.units import counted, format_s, signed_share
from dtfm_lab.figures.palette import BLUE, FAINT, GREEN, GREY, KIND_NAMES, LINE_GREY, ORANGE, SKY, VERMILLION, YELLOW
from dtfm_lab.figures.theme import (
    by_name,
    curve,
    edged,
    figure_of,
    literal,
    log_axis,
    row_bars,
    short,
    time_unit,
    titled,
    with_headings,
)

LINK = f", {BY_MODEL}"
"""Ending of the name of a kind of action that was not timed but follows from the link model."""
MOST_ROWS = 16
"""Maximum number of stages, and of links, that are shown: those with the largest errors."""
KINDS = (*COMPUTE, *SENDS)
"""The kinds that are shown. A receive takes as long as its send."""


@figure_of(Comparison)
def comparison(comparison: Comparison) -> go.Figure:
    """Predicted and measured seconds per kind and stage, with relative errors, and arrival errors per link."""
    kinds = comparison.kinds.reindex([kind.value for kind in KINDS if kind.value in comparison.kinds.index])
    ends = [LINK if by == LINK_MODEL else "" for by in kinds["seconds_by"]]
    kinds.index = pd.Index([f"{KIND_NAMES[Kind(kind)]}{end}" for kind, end in zip(kinds.index, ends, strict=True)])
    stages, links = comparison.stages, comparison.links
    shown_stages = _worst(stages, stages["relative_error"])
    shown_stages.index = pd.Index([f"stage {stage}" for stage in shown_stages.index])
    shown_links = _worst(links, links["arrival_error_s"])
    rows = max(len(kinds) + len(shown_stages) + 3, len(shown_links))
    arrival = f"arrival of messages{_of(shown_links, links)}<br>right of 0: later than predicted"
    computations = f"computations of one iteration{_of(shown_stages, stages)}"
    figure = make_subplots(
        rows=2,
        cols=2,
        specs=[[{}, {"rowspan": 2}], [{}, None]],
        row_heights=[len(kinds) + 1, len(shown_stages) + 1],
        vertical_spacing=110 / (rows * 26 + 200),
        horizontal_spacing=0.15,
        subplot_titles=["duration of one action", arrival, computations],
    )
    # Kinds differ by orders of magnitude, stages do not.
    _add_pairs(figure, kinds, row=1, log=True)
    _add_pairs(figure, shown_stages, row=2, log=False)
    _arrivals(figure, shown_links["arrival_error_s"])
    figure.update_annotations(selector={"yref": "paper"}, font_size=13, yshift=4)
    context, error = comparison.measured.context, signed_share(comparison.iteration_error)
    return titled(
        figure,
        f"{context.schedule} · {context.clock} clock · {format_s(comparison.predicted_iteration_s)} predicted, "
        f"{format_s(comparison.measured.iteration_s)} measured an iteration ({error})",
        f"{context.provenance} · {context.job} on {context.topology} · "
        f"{counted(comparison.measured.n_iterations, 'iteration')} · means; errors: measured minus predicted, in per "
        "cent of the prediction",
        height=rows * 26 + 300,
        margin={"t": 150, "b": 100},
    )


def rows_of(table: pd.DataFrame) -> Iterator[Any]:
    """Yield the rows of a table, each with its columns as attributes."""
    return table.itertuples(index=False)


def what_ran(comparison: Comparison) -> str:
    """Return provenance, schedule, job and network of what was measured, for a subtitle."""
    context = comparison.measured.context
    return f"{context.provenance} · {context.schedule} · {context.job} on {context.topology}"


def _worst(frame: pd.DataFrame, errors: pd.Series) -> pd.DataFrame:
    """Return the rows with the largest errors, in their original order."""
    keep = errors.abs().nlargest(MOST_ROWS).index
    return frame.loc[frame.index.isin(keep)].copy() if len(frame) > MOST_ROWS else frame.copy()


def _of(shown: pd.DataFrame, everything: pd.DataFrame) -> str:
    return f", worst {len(shown)} of {len(everything)}" if len(shown) < len(everything) else ""


def _arrivals(figure: go.Figure, error_s: pd.Series) -> None:
    """Add a bar for each link: right of zero, messages arrived later than predicted."""
    unit, scale = time_unit(float(error_s.abs().max()) if len(error_s) else 0.0)
    links = [str(link) for link in error_s.index]
    names = [literal(link.replace("->", "→")) for link in links]
    # Words instead of a sign, so that the reader need not remember what the sign means.
    hover = [
        f"{literal(link)}: {format_s(abs(e))} {'later' if e > 0 else 'earlier'} than predicted"
        for link, e in zip(links, error_s, strict=True)
    ]
    look = {"name": "measured minus predicted arrival", "showlegend": False, "marker": {"color": BLUE}}
    figure.add_trace(row_bars([value * scale for value in error_s], names, hover, **look), row=1, col=2)
    figure.update_xaxes(title_text=f"measured − predicted arrival ({unit})", row=1, col=2)
    figure.update_yaxes(tickvals=names, ticktext=short(links), row=1, col=2)
    figure.update_yaxes(autorange="reversed", type="category", side="right", row=1, col=2)


def _add_pairs(figure: go.Figure, frame: pd.DataFrame, *, row: int, log: bool) -> None:
    """Add predicted_s and measured_s to the first column, joined by a line, and relative_error to their right."""
    names = list(frame.index)
    predicted, measured = frame["predicted_s"].tolist(), frame["measured_s"].tolist()
    errors = [_signed_percent(error) for error in frame["relative_error"]]
    unit, scale = time_unit(max([*predicted, *measured]))
    hover = [
        f"{name}: {format_s(a)} predicted, {format_s(b)}{'' if name.endswith(LINK) else ' measured'}"
        f"{f' ({error})' if error else ''}"
        for name, a, b, error in zip(names, predicted, measured, errors, strict=True)
    ]
    traces = [_spans(names, [a * scale for a in predicted], [b * scale for b in measured], 3)]
    for word, values, size, symbol, color in (
        ("measured", measured, 9, "circle", VERMILLION),
        ("predicted", predicted, 13, "circle-open", BLUE),
    ):
        marker = {"size": size, "color": color, "symbol": symbol, "line": {"width": 2, "color": color}}
        look = {"mode": "markers", "marker": marker, "name": word, "legendgroup": word, "showlegend": row == 1}
        x = [value * scale for value in values]
        traces.append(go.Scatter(x=x, y=names, hovertext=hover, hoverinfo="text", **look))
    figure.add_traces(traces, rows=row, cols=1)
    for name, error in zip(names, errors, strict=True):
        figure.add_annotation(
            text=error, x=1.01, xref="x domain", y=name, showarrow=False, xanchor="left", row=row, col=1
        )
    # Zero has no place on a logarithmic axis.
    ticks: dict[str, object] = {"rangemode": "tozero"}
    if log and (above := [value * scale for value in [*predicted, *measured] if value > 0]):
        ticks = log_axis(min(above), max(above), 1.3, "{:.3g}".format)
    figure.update_xaxes(title_text=f"duration ({unit})", **ticks, row=row, col=1)
    figure.update_yaxes(autorange="reversed", type="category", row=row, col=1)


def _spans(names: Sequence[str], begins: Iterable[float], ends: Iterable[float], width: int) -> go.Scatter:
    """Return faint lines on named rows, as one plotly trace."""
    rows = [(begin, end, name) for name, begin, end in zip(names, begins, ends, strict=True)]
    x = [place for begin, end, _ in rows for place in (begin, end, None)]
    y = [place for _, _, name in rows for place in (name, name, None)]
    return curve(x, y, None, FAINT, width, showlegend=False)


def _signed_percent(share: float) -> str:
    """Return a share such as ``−3.1 %``; empty for NaN."""
    return "" if pd.isna(share) else signed_share(share)


MOST_BLAMED = 14
"""Maximum number of links and devices that are shown: suspects first, then the largest differences."""
ROW_PX = 26
PARTS = {
    ("device", "duration"): ("computations take longer or shorter", BLUE),
    ("device", "delay"): ("computations begin late", GREY),
    ("link", "duration"): ("messages take longer or shorter", YELLOW),
    ("link", "latency"): ("latency", SKY),
    ("link", "both"): ("messages and their latency", VERMILLION),
    ("link", "delay"): ("messages leave late", ORANGE),
    ("nic", "delay"): ("messages come in another order", GREEN),
}
NEGLIGIBLE = 1e-9
"""Differences up to this share of an iteration are not shown, unless of a suspect, because they come from rounding."""


@figure_of(Comparison)
def blame(comparison: Comparison) -> go.Figure:
    """A bar for each link, device or NIC: seconds that it alone adds to the prediction (right) or saves (left).

    Whiskers are 95 % intervals. A number next to the bar is the time of its actions relative to the prediction.
    Raises TraceError for a measured trace that does not contain its schedule.
    """
    found = comparison.blame
    # What moves nothing would only push the suspects off the page.
    rows = found.table[found.table["named"] | (found.table["longer_s"].abs() > NEGLIGIBLE * found.iteration_s)]
    shown = rows.head(MOST_BLAMED)
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
        # An interval that is open at one end is drawn to its known value.
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
    ticks = [f"NIC of {name}" if of == "nic" else name for of, name in short_names]
    figure.update_yaxes(**by_name(names, 0.6), tickvals=names, ticktext=ticks)
    suspects = comparison.suspects
    named = [str(sentence) for sentence in suspects["sentence"]]
    title = named[0] if named else "no link and no device stands out"
    left_out = f" · first {len(shown)} of {len(rows)}" if len(shown) < len(rows) else ""
    figure.update_layout(showlegend=True)
    note = f"{what_ran(comparison)} · {comparison.verdict}{left_out} · whiskers: 95 % confidence"
    alt = f"{comparison.verdict}. {' '.join(f'{s}.' for s in suspects['sentence'].head(3))}"
    height = max(320, len(shown) * ROW_PX + 230)
    titled(figure, title, note, alt=alt, height=height, barmode="overlay", margin_r=96)
    return with_headings(figure)


def _bars(rows: pd.DataFrame, names: list[str], scale: float, words: str, color: str) -> go.Bar:
    known = np.isfinite(rows["high_s"].to_numpy(float))
    hover = [
        f"{literal(sentence)}<br>{format_s(low)} to {format_s(high)}" if np.isfinite(high) else literal(sentence)
        for sentence, low, high in zip(rows["sentence"], rows["low_s"], rows["high_s"], strict=True)
    ]
    # Without an upper end no whisker is drawn.
    above = np.where(known, (rows["high_s"] - rows["longer_s"]) * scale, 0.0).tolist()
    whiskers = {"type": "data", "array": above, "color": LINE_GREY, "thickness": 1.4, "width": 4}
    x, marker = (rows["longer_s"] * scale).tolist(), edged(color)
    return row_bars(x, names, hover, width=0.7, name=words, error_x=whiskers, marker=marker)


def _name(of: str, name: str) -> str:
    return literal(f"NIC of {name}" if of == "nic" else name.replace("->", "→"))


def _times(ratio: float, what: str) -> str:
    return "" if what == "delay" or math.isnan(ratio) else f"{ratio:.2f}" if ratio < 9.95 else f"{ratio:.0f}"
