"""The errors of a prediction by kind of action, by stage and by link."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dtfm_lab.compare import Comparison
from dtfm_lab.compare.comparison import LINK_MODEL
from dtfm_lab.compare.errors import signed_share
from dtfm_lab.domain.schedule import COMPUTE, SENDS, Kind
from dtfm_lab.domain.trace import BY_MODEL
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import BLUE, FAINT, KIND_NAMES, VERMILLION
from dtfm_lab.figures.theme import (
    LEGEND_BELOW,
    literal,
    log_ticks,
    short,
    time_unit,
    titled,
)

LINK = f", {BY_MODEL}"
"""What the name of an action ends with that nobody timed."""
MOST_ROWS = 16
"""Most stages and links that are shown, those with the largest errors."""
KINDS = (*COMPUTE, *SENDS)
"""The kinds that are shown; a receive takes as long as its send."""


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
    figure = make_subplots(
        rows=2,
        cols=2,
        specs=[[{}, {"rowspan": 2}], [{}, None]],
        row_heights=[len(kinds) + 1, len(shown_stages) + 1],
        column_widths=[0.5, 0.5],
        vertical_spacing=110 / (rows * 26 + 200),
        horizontal_spacing=0.1,
        subplot_titles=[
            "duration of one action",
            f"arrival of messages{_of(shown_links, links)}<br>right of 0: later than predicted",
            f"computations of one iteration{_of(shown_stages, stages)}",
        ],
    )
    _add_pairs(figure, kinds, row=1, log=True)
    _add_pairs(figure, shown_stages, row=2, log=False)
    _arrivals(figure, shown_links["arrival_error_s"])
    figure.update_annotations(selector={"yref": "paper"}, font_size=13, yshift=4)
    context, error = comparison.measured.context, signed_share(comparison.iteration_error)
    return titled(
        figure,
        f"{context.schedule} · {context.clock} clock · {format_s(comparison.predicted_iteration_s)} predicted, "
        f"{format_s(comparison.measured.iteration_s)} measured an iteration ({error})",
        f"{context.provenance} · {context.job} on {context.topology} · {comparison.measured.n_iterations} iterations · "
        "means; errors: measured minus predicted, in per cent of the prediction",
        height=rows * 26 + 300,
        legend=LEGEND_BELOW,
        margin={"t": 150, "b": 100},
    )


def rows_of(table: pd.DataFrame) -> Iterator[Any]:
    """The rows of a table, each with its columns as attributes."""
    return table.itertuples(index=False)


def what_ran(comparison: Comparison) -> str:
    """Provenance, schedule, job and network of what was measured, for a subtitle."""
    context = comparison.measured.context
    return f"{context.provenance} · {context.schedule} · {context.job} on {context.topology}"


def _worst(frame: pd.DataFrame, errors: pd.Series) -> pd.DataFrame:
    """The rows of the largest errors, in their own order."""
    keep = errors.abs().nlargest(MOST_ROWS).index
    return frame.loc[frame.index.isin(keep)].copy() if len(frame) > MOST_ROWS else frame.copy()


def _of(shown: pd.DataFrame, everything: pd.DataFrame) -> str:
    return f", worst {len(shown)} of {len(everything)}" if len(shown) < len(everything) else ""


def _arrivals(figure: go.Figure, error_s: pd.Series) -> None:
    """Add a bar for each link: right of zero, messages arrived later than predicted."""
    unit, scale = time_unit(float(error_s.abs().max()) if len(error_s) else 0.0)
    links = [str(link) for link in error_s.index]
    names = [literal(link.replace("->", "→")) for link in links]
    figure.add_bar(
        orientation="h",
        x=[value * scale for value in error_s],
        y=names,
        name="measured minus predicted arrival",
        showlegend=False,
        marker={"color": BLUE},
        hovertext=[
            f"{literal(link)}: {format_s(abs(e))} {'later' if e > 0 else 'earlier'} than predicted"
            for link, e in zip(links, error_s, strict=True)
        ],
        hoverinfo="text",
        row=1,
        col=2,
    )
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


def _spans(names: Sequence[str], begins: Iterable[float], ends: Iterable[float], width: int) -> go.Scatter:
    """Faint lines on named rows, as one plotly trace."""
    rows = [(begin, end, name) for name, begin, end in zip(names, begins, ends, strict=True)]
    return go.Scatter(
        x=[place for begin, end, _ in rows for place in (begin, end, None)],
        y=[place for _, _, name in rows for place in (name, name, None)],
        mode="lines",
        line={"width": width, "color": FAINT},
        hoverinfo="skip",
        showlegend=False,
    )


def _signed_percent(share: float) -> str:
    """A share such as ``−3.1 %``; empty for NaN."""
    return "" if pd.isna(share) else signed_share(share)
