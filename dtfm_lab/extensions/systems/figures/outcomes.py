"""Figures of training systems: what each would do with a network, as bars by cause, and which is fastest along an
axis."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.report import CHANGES
from dtfm_lab.domain.trace.causes import COMPUTE, STACKED
from dtfm_lab.domain.units import counted, format_s, format_share
from dtfm_lab.extensions.systems.api import CrossingPoint, Crossings, Outcomes
from dtfm_lab.extensions.systems.outcomes import Bar, bars
from dtfm_lab.figures.palette import CATEGORIES, CAUSE_COLORS, EDGES, GREY, LINE_GREY
from dtfm_lab.figures.theme import (
    UNBOXED,
    edged,
    figure_of,
    literal,
    log_axis,
    numbered_rows,
    row_bars,
    titled,
    upright,
    wrapped,
)

OURS = "dtfm-lab"
HIGHLIGHT = "rgba(128, 128, 128, 0.13)"
ROW_PX = 40
BAR_WIDTH = 0.62
ROOM = 1.4
"""Length of the axis, divided by the longest bar. The additional length is for a bar's seconds and ratio."""
REASON_LETTERS = 95
"""Maximum letters of a reason in the figure. Its hover text has all of it."""
LETTERS_A_LINE = 80
BREAK_SHARE = 0.006
"""Half the width of each slash across a bar that is cut because it is too long, as a share of the axis."""


@figure_of(Outcomes)
def strategies(outcomes: Outcomes) -> go.Figure:
    """Return a horizontal bar for each system, the fastest on top: seconds of an iteration, stacked by cause along the
    critical path. The order of causes is the same in all bars.

    The lab's own row is shaded. A dagger marks a system that changes the training itself, whose seconds alone do not
    compare. If no plan fits, the reason replaces the bar. A bar far longer than the others is broken, but its number is
    right. Hover texts have the plan, the shares and the source.
    """
    displayed = bars(outcomes)
    figure = go.Figure([_of_cause(displayed, cause) for cause in _causes(displayed)])
    # Without any plan, the axis still needs a length.
    longest_s = max((bar.length_s for bar in displayed), default=0.0) or 1.0
    least_s = min((bar.outcome.iteration_s for bar in displayed if bar.outcome.iteration_s is not None), default=0.0)
    for row, bar in enumerate(displayed):
        if bar.outcome.strategy.name == OURS:
            edges = {"y0": row - 0.5, "y1": row + 0.5, "line_width": 0, "fillcolor": HIGHLIGHT, "layer": "below"}
            figure.add_shape(type="rect", xref="paper", x0=0, x1=1, yref="y", **edges)
        _note(figure, bar, row, least_s)
        if bar.cut:
            _break(figure, bar, row, ROOM * longest_s)
    figure.update_xaxes(title_text="an iteration (s)", range=[0, ROOM * longest_s], exponentformat="none")
    figure.update_yaxes(**numbered_rows([_name(bar) for bar in displayed]))
    title = f"{outcomes.job.name} on {outcomes.topology.name}: {outcomes.sentence}"
    look = {"barmode": "overlay", "height": 200 + ROW_PX * max(1, len(displayed)), "legend_traceorder": "normal"}
    return titled(figure, title, _subtitle(displayed), alt=_alt(outcomes, displayed), **look)


def _causes(displayed: Sequence[Bar]) -> list[str]:
    present = {cause for bar in displayed for cause, _, _ in bar.parts}
    return [cause for cause in STACKED if cause in present] + sorted(present - set(STACKED))


def _of_cause(displayed: Sequence[Bar], cause: str) -> go.Bar:
    """Return the part of every bar for one cause."""
    parts = [(row, bar, part) for row, bar in enumerate(displayed) for part in bar.parts if part[0] == cause]
    before = [sum(displayed_s for _, _, displayed_s in bar.parts[: bar.parts.index(part)]) for _, bar, part in parts]
    return row_bars(
        [displayed_s for _, _, (_, _, displayed_s) in parts],
        [row for row, _, _ in parts],
        [_part_hover(bar, cause, part_s) for _, bar, (_, part_s, _) in parts],
        base=before,
        width=BAR_WIDTH,
        name=cause,
        marker=edged(CAUSE_COLORS.get("busy" if cause == COMPUTE else cause, GREY)),
    )


def _part_hover(bar: Bar, cause: str, part_s: float) -> str:
    one = bar.outcome
    whole_s = one.iteration_s or part_s
    lines = [
        f"<b>{literal(bar.name)}</b>: {format_s(whole_s)} an iteration",
        f"{cause} {format_s(part_s)}, {format_share(part_s / whole_s, 0)}",
        literal(one.shape),
        *wrapped(one.strategy.mathematics and f"{CHANGES} {one.strategy.mathematics}", LETTERS_A_LINE),
        *wrapped(one.strategy.cite, LETTERS_A_LINE),
    ]
    return "<br>".join(filter(None, lines))


def _name(bar: Bar) -> str:
    """Return the name next to the axis. Changed assumptions are on the next line. The lab's own name is bold."""
    one = bar.outcome
    mark = f" {CHANGES}" if one.strategy.mathematics else ""
    name = literal(one.strategy.title) + mark
    changed = "".join(f"<br>{line}" for line in wrapped(one.strategy.changed, 28))
    return f"<b>{name}</b>{changed}" if one.strategy.name == OURS else f"{name}{changed}"


def _note(figure: go.Figure, bar: Bar, row: int, least_s: float) -> None:
    """Add the seconds and the ratio at a bar's end, or the reason instead of a bar."""
    one = bar.outcome
    if one.iteration_s is None:
        shown = textwrap.shorten(one.reason, REASON_LETTERS, placeholder="…")
        text, at, hover = f"no plan: {literal(shown)}", 0.0, "<br>".join(wrapped(one.reason, LETTERS_A_LINE))
    else:
        fastest = least_s <= 0 or one.iteration_s == least_s
        times = "" if fastest else f", {_ratio(one.iteration_s / least_s)}×"
        text, at, hover = f"{format_s(one.iteration_s)}{times}", bar.length_s, literal(one.sentence)
    figure.add_annotation(x=at, y=row, text=text, hovertext=hover, xanchor="left", xshift=4, **UNBOXED)


def _ratio(ratio: float) -> str:
    return f"{ratio:,.{2 if ratio < 2 else 1 if ratio < 10 else 0}f}"


def _break(figure: go.Figure, bar: Bar, row: int, axis_s: float) -> None:
    """Add two slashes across a bar that is cut because it is too long."""
    for share in (0.90, 0.925):
        at, lean, reach = share * bar.length_s, BREAK_SHARE * axis_s, BAR_WIDTH / 2 + 0.06
        ends = {"x0": at - lean, "x1": at + lean, "y0": row + reach, "y1": row - reach}
        figure.add_shape(type="line", line={"color": LINE_GREY, "width": 3}, **ends)


def _subtitle(displayed: Sequence[Bar]) -> str:
    parts = ["each system's fastest plan that fits: critical path of an iteration, stacked by cause"]
    parts += [f"{CHANGES} changes the training itself: seconds alone do not compare it"] * any(
        bar.outcome.strategy.mathematics for bar in displayed
    )
    parts += ["broken bars are longer than drawn"] * any(bar.cut for bar in displayed)
    return "; ".join(parts)


def _alt(outcomes: Outcomes, displayed: Sequence[Bar]) -> str:
    each = "; ".join(f"{bar.name} {bar.outcome.sentence}" for bar in displayed)
    return f"What each system would do with {outcomes.job.name} on {outcomes.topology.name}: {each}."


AGAIN = ("solid", "dot", "dashdot", "longdash")
"""Line styles of the compared systems. The first systems, one per colour, have the first style. The next ones have the
same colours with the second style, and so on. Plain dashes mark systems that are not compared."""
LEGEND_ROW_PX = 10
"""Pixels that one system adds to the legend's height. The legend has two systems per row."""
SHADE = 0.13
"""Opacity of the shading where a system is fastest."""
LEAST_NAMED = 0.1
"""A range where a system is fastest shows the system's name if it has at least this share of the axis."""
NAME_LETTERS = 24


@figure_of(Crossings)
def crossings(crossings: Crossings) -> go.Figure:
    """Return the seconds of every system along one axis, both on logarithmic scales.

    The range in which a system is fastest is shaded in its colour and ends at the crossing. Systems that change the
    mathematics are dashed if they are not compared. Markers are values at which all systems chose their plans.

    Raises PlanError if nothing was compared yet.
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
        upright(figure, axis.own, "as it is", y=0, log=True)
    # A single value spans no range to take a share of.
    room = (high / low) ** 0.02 if high > low else 1.5
    figure.update_xaxes(title_text=literal(axis.title), **log_axis(low, high, room))
    if seconds := [second for point in crossings.points for second in point.seconds.values()]:
        figure.update_yaxes(title_text="seconds an iteration", **log_axis(min(seconds), max(seconds), 1.2))
    title = f"Which system is fastest, over {axis.noun}: {crossings.job.name} on {crossings.topology.name}"
    more_px = LEGEND_ROW_PX * len(crossings.systems)
    note = f"{crossings.headline} · every system chooses its plan at each marker; between two, only the fastest do"
    look = {"height": 470 + more_px, "showlegend": True, "margin_b": 100 + more_px}
    return titled(figure, title, note, alt=f"{title}. {crossings.sentence}.", **look)


def _color(crossings: Crossings, labels: Sequence[str]) -> str:
    """Return the colour of the single system in ``labels``. Grey if there are several, or none."""
    if len(labels) != 1:
        return GREY
    number = [one.label for one in crossings.systems].index(labels[0])
    return CATEGORIES[number % len(CATEGORIES)]


def _shade(figure: go.Figure, crossings: Crossings, low: float, high: float) -> None:
    """Shade the range of each fastest system, with its name if there is room, and add a line at every crossing."""
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
        # Plotly places annotations on a logarithmic axis by logarithms, unlike shapes.
        middle = float(np.log10(begin * end) / 2)
        figure.add_annotation(
            x=middle, y=1, yref="paper", yanchor="top", text=literal(text), font={"size": 11}, **UNBOXED
        )
    for one in found:
        figure.add_vline(x=one.value, line={"color": LINE_GREY, "width": 1})


def _hover(crossings: Crossings, point: CrossingPoint, label: str) -> str:
    at = crossings.axis.text(point.value)
    lines = [crossings.headings[label], f"{format_s(point.seconds[label])} an iteration at {at}"]
    best = crossings.fastest(point)
    if best and label not in best:
        times = point.seconds[label] / point.seconds[best[0]]
        lines.append(f"{times:.2f} times {crossings.name_of(best)}")
    if (plan := point.plans.get(label)) is not None:
        shape = f"{counted(plan.job.n_stages, 'stage')} x {counted(plan.job.n_replicas, 'replica')}"
        lines.append(f"{shape}, micro-batches {plan.job.microbatch}")
    elif point.refined:
        lines.append("with the best of its plans at the two neighbouring values")
    return "<br>".join(literal(line) for line in lines)
