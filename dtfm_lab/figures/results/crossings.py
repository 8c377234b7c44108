"""Which system is fastest where: seconds along one axis, with the stretches of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import CATEGORIES, EDGES, GREY, LINE_GREY
from dtfm_lab.figures.theme import LEGEND_BELOW, UNBOXED, literal, log_ticks, titled
from dtfm_lab.systems import CrossingPoint, Crossings

AGAIN = ("solid", "dot", "dashdot", "longdash")
"""Strokes of the first systems, of those that have the same colours again, and so on; dashes are not compared."""
LEGEND_ROW_PX = 10
"""Pixels that a system adds to the legend, where two are in a row."""
SHADE = 0.13
"""Opacity of the stretch in which a system is fastest."""
LEAST_NAMED = 0.1
"""Share of the axis from which a stretch has room for its name."""
NAME_LETTERS = 24


def crossings(crossings: Crossings) -> go.Figure:
    """The seconds of every system along one axis, in logarithms.

    The stretch of each fastest system is shaded in its colour and ends at the crossing; systems that change the
    mathematics are dashed where they are not compared. Markers are values at which all systems chose anew.

    Raises PlanError where nothing was compared yet.
    """
    if not crossings.points:
        raise PlanError("crossings of no values; wanted one at least")
    axis, figure = crossings.axis, go.Figure()
    for number, one in enumerate(crossings.systems):
        points = [point for point in crossings.points if one.label in point.seconds]
        color = _color(crossings, [one.label])
        color = EDGES.get(color, color)
        apart = one.label in crossings.apart
        dash = "dash" if apart else AGAIN[number // len(CATEGORIES) % len(AGAIN)]
        figure.add_scatter(
            x=[point.value for point in points],
            y=[point.seconds[one.label] for point in points],
            mode="lines+markers",
            name=literal(one.heading + (", not compared" if apart else "")),
            line={"color": color, "dash": dash, "width": 1.4 if apart else 2.2},
            marker={"size": [0 if point.refined else 6 for point in points], "color": color},
            hovertext=[_hover(crossings, point, one.label) for point in points],
            hoverinfo="text",
        )
    low, high = crossings.points[0].value, crossings.points[-1].value
    _shade(figure, crossings, low, high)
    if low <= axis.own <= high:
        figure.add_vline(x=axis.own, line={"color": LINE_GREY, "width": 1.2, "dash": "dot"})
        figure.add_annotation(
            x=np.log10(axis.own), y=0, yref="paper", yanchor="bottom", xanchor="left", text="as it is", **UNBOXED
        )
    pad = (high / low) ** 0.02 if high > low else 1.5
    _scale(figure.update_xaxes, low / pad, high * pad, axis.title)
    if seconds := [second for point in crossings.points for second in point.seconds.values()]:
        _scale(figure.update_yaxes, min(seconds) / 1.2, max(seconds) * 1.2, "seconds an iteration")
    title = f"Which system is fastest, over {axis.noun}: {crossings.job.name} on {crossings.topology.name}"
    more_px = LEGEND_ROW_PX * len(crossings.systems)
    return titled(
        figure,
        title,
        f"{crossings.headline} · every system chooses anew at each marker, between two only the fastest do",
        alt=f"{title}. {crossings.sentence}.",
        height=470 + more_px,
        legend=LEGEND_BELOW,
        showlegend=True,
        margin_b=100 + more_px,
    )


def _color(crossings: Crossings, labels: Sequence[str]) -> str:
    """The colour of a system; grey where several are alike, or none has a plan."""
    if len(labels) != 1:
        return GREY
    number = [one.label for one in crossings.systems].index(labels[0])
    return CATEGORIES[number % len(CATEGORIES)]


def _shade(figure: go.Figure, crossings: Crossings, low: float, high: float) -> None:
    """The stretches of the fastest systems, with a name where there is room, and a line at every crossing."""
    if high <= low:
        return
    found = crossings.crossings
    ends = [low, *(one.value for one in found), high]
    fastest = [crossings.fastest(crossings.points[0]), *(one.after for one in found)]
    for begin, end, labels in zip(ends, ends[1:], fastest, strict=False):
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
    for one in found:
        figure.add_vline(x=one.value, line={"color": LINE_GREY, "width": 1})


def _scale(update: Callable[..., object], low: float, high: float, title: str) -> None:
    """A logarithmic axis with round numbers."""
    ticks = log_ticks(low, high)
    texts = [f"{tick:,.12g}" for tick in ticks]
    update(type="log", range=[np.log10(low), np.log10(high)], tickvals=ticks, ticktext=texts, title_text=literal(title))


def _hover(crossings: Crossings, point: CrossingPoint, label: str) -> str:
    at = crossings.axis.text(point.value)
    lines = [crossings.headings[label], f"{format_s(point.seconds[label])} an iteration at {at}"]
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
