"""What each training system would do with a network: its seconds as a bar, stacked by what they go to."""

import textwrap
from collections.abc import Sequence

import plotly.graph_objects as go

from dtfm_lab.domain.trace.causes import COMPUTE
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import CAUSE_COLORS, GREY, LINE_GREY
from dtfm_lab.figures.theme import LEGEND_BELOW, edged, literal, titled
from dtfm_lab.systems import Outcomes
from dtfm_lab.systems.bars import CHANGES, STACKED, Bar, bars

OURS = "dtfm-lab"
HIGHLIGHT = "rgba(128, 128, 128, 0.13)"
ROW_PX = 40
BAR_WIDTH = 0.62
ROOM = 1.4
"""Length of the axis against the longest bar; the rest is for the bar's number and times."""
REASON_LETTERS = 95
"""Most letters of a reason in the figure; its hover text has all."""
LETTERS_A_LINE = 80
BREAK_SHARE = 0.006
"""Width of the two gaps that break a bar which is longer than the axis, as a share of the axis."""


def strategies(outcomes: Outcomes) -> go.Figure:
    """A horizontal bar for each system, the fastest on top: seconds of an iteration, stacked by cause along the
    critical path, in all bars in the same order.

    The lab's own row is shaded. A dagger marks a system that changes the training itself, whose seconds alone do not
    compare. Where no plan fits, the reason is in place of the bar. A bar far beyond the others is broken; its number
    holds. Hover texts have the plan, the shares and the source.
    """
    drawn = bars(outcomes)
    figure = go.Figure([_of_cause(drawn, cause) for cause in _causes(drawn)])
    longest_s = max((bar.length_s for bar in drawn), default=0.0) or 1.0
    least_s = min((bar.outcome.iteration_s for bar in drawn if bar.outcome.iteration_s is not None), default=0.0)
    for row, bar in enumerate(drawn):
        if bar.outcome.strategy.name == OURS:
            edges = {"y0": row - 0.5, "y1": row + 0.5, "line_width": 0, "fillcolor": HIGHLIGHT, "layer": "below"}
            figure.add_shape(type="rect", xref="paper", x0=0, x1=1, yref="y", **edges)
        _note(figure, bar, row, least_s)
        if bar.cut:
            _break(figure, bar, row, ROOM * longest_s)
    figure.update_xaxes(title_text="an iteration (s)", range=[0, ROOM * longest_s], exponentformat="none")
    figure.update_yaxes(
        tickvals=list(range(len(drawn))),
        ticktext=[_name(bar) for bar in drawn],
        range=[len(drawn) - 0.5, -0.5],
        showgrid=False,
        zeroline=False,
    )
    return titled(
        figure,
        f"{outcomes.job.name} on {outcomes.topology.name}: {outcomes.sentence}",
        _subtitle(drawn),
        alt=_alt(outcomes, drawn),
        barmode="overlay",
        height=200 + ROW_PX * max(1, len(drawn)),
        legend={**LEGEND_BELOW, "traceorder": "normal"},
        margin_b=96,
    )


def _causes(drawn: Sequence[Bar]) -> list[str]:
    present = {cause for bar in drawn for cause, _, _ in bar.parts}
    return [cause for cause in STACKED if cause in present] + sorted(present - set(STACKED))


def _of_cause(drawn: Sequence[Bar], cause: str) -> go.Bar:
    """The part of every bar that goes to a cause."""
    parts = [(row, bar, part) for row, bar in enumerate(drawn) for part in bar.parts if part[0] == cause]
    before = [_before(bar, cause) for _, bar, _ in parts]
    return go.Bar(
        orientation="h",
        x=[drawn_s for _, _, (_, _, drawn_s) in parts],
        base=before,
        y=[row for row, _, _ in parts],
        width=BAR_WIDTH,
        name=cause,
        marker=edged(CAUSE_COLORS.get("busy" if cause == COMPUTE else cause, GREY)),
        hovertext=[_hover(bar, cause, part_s) for _, bar, (_, part_s, _) in parts],
        hoverinfo="text",
    )


def _before(bar: Bar, cause: str) -> float:
    """Length of the parts that are drawn before that of a cause."""
    causes = [each for each, _, _ in bar.parts]
    return sum(drawn_s for _, _, drawn_s in bar.parts[: causes.index(cause)])


def _hover(bar: Bar, cause: str, part_s: float) -> str:
    one = bar.outcome
    whole_s = one.iteration_s or part_s
    lines = [
        f"<b>{literal(bar.name)}</b>: {format_s(whole_s)} an iteration",
        f"{cause} {format_s(part_s)}, {part_s / whole_s:.0%}",
        literal(one.shape),
        *_wrapped(one.strategy.mathematics and f"{CHANGES} {one.strategy.mathematics}"),
        *_wrapped(one.strategy.cite),
    ]
    return "<br>".join(filter(None, lines))


def _name(bar: Bar) -> str:
    """The name beside the axis, in two lines where assumptions were changed; the lab's own in bold."""
    one = bar.outcome
    mark = f" {CHANGES}" if one.strategy.mathematics else ""
    name = literal(one.strategy.title) + mark
    changed = "".join(f"<br>{line}" for line in _wrapped(one.strategy.changed, 28))
    return f"<b>{name}</b>{changed}" if one.strategy.name == OURS else f"{name}{changed}"


def _note(figure: go.Figure, bar: Bar, row: int, least_s: float) -> None:
    """The seconds and times at a bar's end; or the reason in place of the bar."""
    one = bar.outcome
    if one.iteration_s is None:
        shown = one.reason if len(one.reason) <= REASON_LETTERS else f"{one.reason[: REASON_LETTERS - 1]}…"
        text, at, hover = f"no plan: {literal(shown)}", 0.0, "<br>".join(_wrapped(one.reason))
    else:
        fastest = least_s <= 0 or one.iteration_s == least_s
        times = "" if fastest else f", {_ratio(one.iteration_s / least_s)}×"
        text, at, hover = f"{format_s(one.iteration_s)}{times}", bar.length_s, literal(one.sentence)
    figure.add_annotation(
        x=at, y=row, text=text, hovertext=hover, showarrow=False, xanchor="left", xshift=4, bgcolor="rgba(0, 0, 0, 0)"
    )


def _ratio(ratio: float) -> str:
    return f"{ratio:,.{2 if ratio < 2 else 1 if ratio < 10 else 0}f}"


def _break(figure: go.Figure, bar: Bar, row: int, axis_s: float) -> None:
    """Two slashes across a bar that is longer than it is drawn."""
    for share in (0.90, 0.925):
        at, lean = share * bar.length_s, BREAK_SHARE * axis_s
        figure.add_shape(
            type="line",
            x0=at - lean,
            x1=at + lean,
            y0=row + BAR_WIDTH / 2 + 0.06,
            y1=row - BAR_WIDTH / 2 - 0.06,
            line={"color": LINE_GREY, "width": 3},
        )


def _subtitle(drawn: Sequence[Bar]) -> str:
    parts = ["critical path of an iteration, stacked by cause, of each system's fastest plan that fits"]
    parts += [f"{CHANGES} changes the training itself: seconds alone do not compare it"] * any(
        bar.outcome.strategy.mathematics for bar in drawn
    )
    parts += ["broken bars are longer than drawn"] * any(bar.cut for bar in drawn)
    return "; ".join(parts)


def _alt(outcomes: Outcomes, drawn: Sequence[Bar]) -> str:
    each = "; ".join(f"{bar.name} {bar.outcome.sentence}" for bar in drawn)
    return f"What each system would do with {outcomes.job.name} on {outcomes.topology.name}: {each}."


def _wrapped(text: str, letters: int = LETTERS_A_LINE) -> list[str]:
    return [literal(line) for line in textwrap.wrap(text, letters)]
