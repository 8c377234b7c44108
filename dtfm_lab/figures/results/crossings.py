"""Which system is fastest where: seconds along one axis with the stretches of each, or a map of two axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import CATEGORIES, EDGES, GREY, LINE_GREY
from dtfm_lab.figures.theme import LEGEND_BELOW, UNBOXED, literal, log_ticks, titled
from dtfm_lab.systems import CrossingPoint, Crossings
from dtfm_lab.systems.variations import Variation

AGAIN = ("solid", "dot", "dashdot", "longdash")
"""Strokes of the first systems, of those that have the same colours again, and so on; dashes are not compared."""
LEGEND_ROW_PX = 10
"""Pixels that a system adds to the legend, where two are in a row."""
SHADE = 0.13
"""Opacity of the stretch in which a system is fastest."""
LEAST_NAMED = 0.1
"""Share of the axis from which a stretch has room for its name."""
NAME_LETTERS = 24
MARGIN_OF_BAND = 0.1
"""Share of a system's part of the colour scale that is left free at either end."""
FULL_MARGIN = 1.0
"""Margin, of the second over the fastest, from which a cell has its full colour."""


def crossings(crossings: Crossings) -> go.Figure:
    """The seconds of every system along one axis, or a map of two axes of who is fastest, by how much.

    Along one axis, in logarithms, the stretch of each fastest system is shaded in its colour and ends at the crossing;
    systems that change the mathematics are dashed where they are not compared. Markers are values at which all systems
    chose anew. Over two axes a cell has the colour of the fastest, the fuller the more the second takes.

    Raises PlanError where nothing was compared yet.
    """
    if not crossings.points:
        raise PlanError("crossings of no values; wanted one at least")
    return _lines(crossings) if len(crossings.axes) == 1 else _map(crossings)


def _color(crossings: Crossings, labels: Sequence[str]) -> str:
    """The colour of a system; grey where several are alike, or none has a plan."""
    if len(labels) != 1:
        return GREY
    number = [one.label for one in crossings.systems].index(labels[0])
    return CATEGORIES[number % len(CATEGORIES)]


def _lines(crossings: Crossings) -> go.Figure:
    axis = crossings.axes[0]
    figure = go.Figure()
    for number, one in enumerate(crossings.systems):
        points = [point for point in crossings.points if one.label in point.seconds]
        if not points:
            continue
        color = _color(crossings, [one.label])
        color = EDGES.get(color, color)
        apart = one.label in crossings.apart
        dash = "dash" if apart else AGAIN[number // len(CATEGORIES) % len(AGAIN)]
        name = one.heading + (", not compared" if apart else "")
        figure.add_trace(
            go.Scatter(
                x=[point.values[0] for point in points],
                y=[point.seconds[one.label] for point in points],
                mode="lines+markers",
                name=literal(name),
                line={"color": color, "dash": dash, "width": 1.4 if apart else 2.2},
                marker={"size": [0 if point.refined else 6 for point in points], "color": color},
                hovertext=[_hover(crossings, point, one.label) for point in points],
                hoverinfo="text",
            )
        )
    low, high = crossings.points[0].values[0], crossings.points[-1].values[0]
    _shade(figure, crossings, low, high)
    if low <= axis.own <= high and axis.even:
        figure.add_vline(x=axis.own, line={"color": LINE_GREY, "width": 1.2, "dash": "dot"})
        figure.add_annotation(
            x=np.log10(axis.own), y=0, yref="paper", yanchor="bottom", xanchor="left", text="as it is", **UNBOXED
        )
    figure.update_xaxes(title_text=literal(axis.title), **_log_axis(axis, low, high))
    seconds = [second for point in crossings.points for second in point.seconds.values()]
    if seconds:
        least, most = min(seconds) / 1.2, max(seconds) * 1.2
        ticks = log_ticks(least, most)
        shown = {"tickvals": ticks, "ticktext": [f"{tick:,.12g}" for tick in ticks]}
        figure.update_yaxes(type="log", range=[np.log10(least), np.log10(most)], **shown)
    figure.update_yaxes(title_text="seconds an iteration")
    what = f"{crossings.job.name} on {crossings.topology.name}"
    return _worded(figure, crossings, f"Which system is fastest, over {axis.noun}: {what}")


def _shade(figure: go.Figure, crossings: Crossings, low: float, high: float) -> None:
    """The stretches of the fastest systems, with a name where there is room, and a line at every crossing."""
    if not crossings.axes[0].even or high <= low:
        return
    for begin, end, labels in crossings.stretches:
        color = _color(crossings, labels)
        figure.add_vrect(x0=begin, x1=end, fillcolor=color, opacity=SHADE, line_width=0, layer="below")
        share = np.log(end / begin) / np.log(high / low)
        if share < LEAST_NAMED:
            continue
        name = crossings.name_of(labels) if len(labels) < 2 else f"{len(labels)} alike"
        letters = max(6, int(NAME_LETTERS * share / 0.2))
        text = name if len(name) <= letters else f"{name[: letters - 1]}…"
        middle = float(np.log10(begin * end) / 2)
        figure.add_annotation(
            x=middle, y=1, yref="paper", yanchor="top", text=literal(text), font={"size": 11}, **UNBOXED
        )
    for one in crossings.crossings:
        figure.add_vline(x=one.value, line={"color": LINE_GREY, "width": 1})


def _log_axis(axis: Variation, low: float, high: float) -> dict[str, Any]:
    pad = (high / low) ** 0.02 if high > low else 1.5
    ticks = log_ticks(low / pad, high * pad)
    if axis.name in ("batch", "layers"):
        ticks = [low * 2**i for i in range(32) if low * 2**i <= high * pad]
        ticks = ticks[:: -(-len(ticks) // 9)]
    if not axis.even:
        ticks = axis.usual(0)
        return {
            "type": "log",
            "tickvals": ticks,
            "ticktext": [literal(axis.text(tick)) for tick in ticks],
            "range": [np.log10(low / pad), np.log10(high * pad)],
        }
    texts = [f"{tick:,.12g}" for tick in ticks]
    return {"type": "log", "range": [np.log10(low / pad), np.log10(high * pad)], "tickvals": ticks, "ticktext": texts}


def _hover(crossings: Crossings, point: CrossingPoint, label: str) -> str:
    values = " and ".join(axis.text(value) for axis, value in zip(crossings.axes, point.values, strict=True))
    lines = [crossings.headings[label], f"{format_s(point.seconds[label])} an iteration at {values}"]
    best = crossings.fastest(point)
    if best and label not in best:
        times = point.seconds[label] / point.seconds[best[0]]
        lines.append(f"{times:.2f} times {crossings.name_of(best)}")
    if (plan := point.plans.get(label)) is not None:
        lines.append(
            f"{plan.job.n_stages} stages x {plan.job.n_replicas} replicas, micro-batches {plan.job.microbatch}"
        )
    elif point.refined:
        lines.append("with the best of its plans of the values beside this one")
    return "<br>".join(literal(line) for line in lines)


def _map(crossings: Crossings) -> go.Figure:
    across, up = crossings.axes
    xs = sorted({point.values[0] for point in crossings.points})
    ys = sorted({point.values[1] for point in crossings.points})
    columns, rows = ({value: i for i, value in enumerate(values)} for values in (xs, ys))
    by: dict[tuple[str, ...], list[CrossingPoint]] = {}
    for point in crossings.points:
        by.setdefault(crossings.fastest(point), []).append(point)
    figure = go.Figure()
    shape = len(ys), len(xs)
    z, text, hover = np.full(shape, np.nan), np.full(shape, "", dtype=object), np.full(shape, "", dtype=object)
    stops: list[tuple[float, str]] = []
    for number, (labels, points) in enumerate(by.items()):
        color = _color(crossings, labels)
        stops += [(number / len(by), _pale(color)), ((number + 1 - MARGIN_OF_BAND / 2) / len(by), color)]
        for point in points:
            at = rows[point.values[1]], columns[point.values[0]]
            margin = point.margin(crossings.compared)
            full = FULL_MARGIN if margin is None else min(FULL_MARGIN, margin)
            z[at] = number + MARGIN_OF_BAND + (1 - 2 * MARGIN_OF_BAND) * full / FULL_MARGIN
            text[at] = "" if margin is None else f"+{margin:.0%}"
            hover[at] = _cell(crossings, point)
        marker = {"symbol": "square", "size": 12, "color": color}
        name = literal(crossings.name_of(labels))
        figure.add_trace(go.Scatter(x=[None], y=[None], mode="markers", marker=marker, name=name, hoverinfo="skip"))
    figure.add_trace(
        go.Heatmap(
            x=[_short(across, value) for value in xs],
            y=[_short(up, value) for value in ys],
            z=z,
            zmin=0,
            zmax=len(by),
            colorscale=[*stops, (1.0, stops[-1][1])],
            showscale=False,
            text=text,
            texttemplate="%{text}",
            hovertext=hover,
            hoverinfo="text",
            hoverongaps=False,
            xgap=2,
            ygap=2,
        )
    )
    figure.update_xaxes(title_text=literal(across.title), type="category", showgrid=False)
    figure.update_yaxes(title_text=literal(up.title), type="category", showgrid=False)
    what = f"{crossings.job.name} on {crossings.topology.name}"
    return _worded(figure, crossings, f"Which system is fastest, over {across.noun} and {up.noun}: {what}")


def _short(axis: Variation, value: float) -> str:
    """The value of a cell's row or column, without the unit, which the axis has."""
    return literal(axis.text(value).removesuffix(f" {axis.unit}"))


def _cell(crossings: Crossings, point: CrossingPoint) -> str:
    values = " and ".join(axis.text(value) for axis, value in zip(crossings.axes, point.values, strict=True))
    ranked = point.ranked([one.label for one in crossings.systems])
    lines = [values, *(f"{crossings.headings[one]}: {format_s(point.seconds[one])}" for one in ranked)]
    return "<br>".join(literal(line) for line in lines)


def _pale(color: str) -> str:
    """The colour with two thirds of white in it."""
    channels = (round(int(color[i : i + 2], 16) / 3 + 255 * 2 / 3) for i in (1, 3, 5))
    return "#" + "".join(f"{channel:02X}" for channel in channels)


def _worded(figure: go.Figure, crossings: Crossings, title: str) -> go.Figure:
    more_px = LEGEND_ROW_PX * len(crossings.systems) if len(crossings.axes) == 1 else 20
    if len(crossings.axes) == 1:
        how = "every system chooses anew at each marker, between two only the fastest do"
    else:
        how = "the fuller the colour, the more the second takes, as the number says"
    return titled(
        figure,
        title,
        f"{crossings.headline} · {how}",
        alt=f"{title}. {crossings.sentence}.",
        height=470 + more_px,
        legend=LEGEND_BELOW,
        showlegend=True,
        margin_b=100 + more_px,
    )
