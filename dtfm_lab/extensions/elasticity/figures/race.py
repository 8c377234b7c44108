"""Figures that compare policies: bars that show what their time was spent on, or curves over one quantity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import format_share, in_figures
from dtfm_lab.extensions.elasticity.figures.history import PARTS, parts
from dtfm_lab.extensions.elasticity.history import History
from dtfm_lab.extensions.elasticity.race import RATE, Race
from dtfm_lab.figures.palette import CATEGORIES, EDGES, LINE_GREY
from dtfm_lab.figures.theme import (
    UNBOXED,
    duration,
    figure_of,
    literal,
    log_axis,
    numbered_rows,
    row_bars,
    titled,
    upright,
)

ROW_PX = 38
LOG_FROM = 4.0
"""An axis is logarithmic if its largest value is at least this many times its smallest."""


class By(NamedTuple):
    """A measure by which policies are ranked."""

    value: Callable[[History], float]
    """Returns the number by which a history is ranked. Larger is better."""
    wins: str
    """What the best policy does, in words, such as "trains most"."""
    text: Callable[[History], str]
    """Returns the text next to a history's bar."""
    axis: str


def _foresight(history: History) -> str:
    share = history.share_of_bound
    return "" if share is None else f", {format_share(share, 0)} of foresight"


BY = {
    "samples": By(
        lambda one: one.goodput,
        "trains most",
        lambda one: f"{one.goodput:.4g} samples/s{_foresight(one)}",
        "samples per second",
    ),
    "dollars": By(
        lambda one: one.samples / one.dollars,
        "trains most per dollar",
        lambda one: f"{in_figures(one.samples / one.dollars)} samples per dollar",
        "samples per dollar",
    ),
    "foresight": By(
        lambda one: one.share_of_bound or 0.0,
        "comes nearest to foresight",
        lambda one: f"{format_share(one.share_of_bound or 0.0)} of foresight",
        "share of foresight",
    ),
}


@figure_of(Sequence, Mapping, Race, wanted="histories, or a Race")
def race(histories: Sequence[History] | Mapping[str, History] | Race, by: str = "samples") -> go.Figure:
    """Compare histories, or the policies of a Race.

    Each history has a bar that shows what its time was spent on, and its result. The best is on top. Histories with
    local steps come last, because they train differently. A Race has a curve per policy, with the best value, or the
    values at which another policy becomes best.

    Parameters
    ----------
    histories
        By name, or a list. Histories of a list are named after their policies.
    by
        ``samples``, ``dollars`` (samples per dollar) or ``foresight`` (share of the bound of perfect foresight).

    Raises
    ------
    UnknownName
        ``by`` is unknown.
    TraceError
        No history, histories of different lengths, or a measure that needs prices or a bound that they lack.
    """
    if by not in BY:
        raise unknown("way to rank histories", by, list(BY))
    if isinstance(histories, Race):
        _check([one for point in histories.points for one in point.histories], by)
        return _curves(histories, by)
    given = list(histories.values()) if isinstance(histories, Mapping) else list(histories)
    names = list(histories) if isinstance(histories, Mapping) else _names(given)
    _check(given, by)
    # Samples of different hours cannot be ranked.
    if len({one.availability.end_s for one in given}) > 1:
        ends = ", ".join(f"{name} {one.availability.end_s:g} s" for name, one in zip(names, given, strict=True))
        raise TraceError(f"race of histories that differ in length: {ends}; wanted the same hours")
    # Local steps train differently from the others, so these policies come last.
    rank = {name: (one.local_steps > 1, -BY[by].value(one)) for name, one in zip(names, given, strict=True)}
    by_rank = sorted(zip(names, given, strict=True), key=lambda each: rank[each[0]])
    return _bars(dict(by_rank), by)


def _check(histories: Sequence[History], by: str) -> None:
    if not histories:
        raise TraceError("race of no histories; wanted at least one")
    for one in histories:
        if by == "dollars" and not one.dollars:
            raise TraceError(
                f"{one.policy} on {one.availability.name} costs nothing; wanted a price_per_hour of devices"
            )
        if by == "foresight" and one.share_of_bound is None:
            raise TraceError(f"{one.policy} was replayed with bound=False; wanted a history with foresight")


def _names(histories: Sequence[History]) -> list[str]:
    """Return a name per history: its policy, with the availability if that differs, and a number if names are still
    equal."""
    several = len({one.availability.name for one in histories}) > 1
    names = [f"{one.policy}, {one.availability.name}" if several else one.policy for one in histories]
    return [name if names.count(name) == 1 else f"{name} ({at + 1})" for at, name in enumerate(names)]


def _bars(ranked: Mapping[str, History], by: str) -> go.Figure:
    figure = go.Figure()
    before = np.zeros(len(ranked))
    rows = list(range(len(ranked)))
    split = [parts(one) for one in ranked.values()]
    for part, color in PARTS.items():
        shares = np.array([of[part] / one.availability.end_s for of, one in zip(split, ranked.values(), strict=True)])
        if not shares.any():
            continue
        hover = [f"{literal(name)}: {format_share(share)} {part}" for name, share in zip(ranked, shares, strict=True)]
        look = {"name": part, "marker_color": color, "width": 0.62}
        figure.add_trace(row_bars(shares.tolist(), rows, hover, base=before.tolist(), **look))
        before = before + shares
    for row, one in enumerate(ranked.values()):
        figure.add_annotation(x=1.01, y=row, text=BY[by].text(one), xanchor="left", **UNBOXED)
    figure.update_xaxes(range=[0, 1.42], tickvals=[0, 0.25, 0.5, 0.75, 1], tickformat=".0%", title_text="of the time")
    figure.update_yaxes(**numbered_rows([literal(name) for name in ranked]))
    best, worst = next(iter(ranked)), list(ranked)[-1]
    hours = {one.availability.name for one in ranked.values()}
    title = f"{hours.pop() + ': ' if len(hours) == 1 else ''}{best} {BY[by].wins}"
    note = "; ".join(filter(None, [_spread(ranked, worst, by), _whose(ranked.values())]))
    alt = "; ".join(f"{name} {BY[by].text(one)}" for name, one in ranked.items())
    return titled(figure, title, note, alt=alt, height=190 + ROW_PX * len(ranked), barmode="overlay")


def _spread(ranked: Mapping[str, History], worst: str, by: str) -> str:
    best = next(iter(ranked.values()))
    if len(ranked) == 1:
        return ""
    least = BY[by].value(ranked[worst])
    times = f"{BY[by].value(best) / least:.3g} times" if least else "more than"
    skipping = " (some of them trained with part of the model)" if best.skipping_samples else ""
    what = BY[by].axis.replace(" per second", "")
    return f"{times} the {what} of {worst}{skipping}; bars show where the time went"


def _whose(histories: Iterable[History]) -> str:
    """Return a note if devices come and go at different times in these histories. "" otherwise."""
    hours = [one.availability for one in histories]
    events = {(each.time_s.tobytes(), each.device.tobytes(), each.comes.tobytes()) for each in hours}
    return "not all of the same hours" if len(events) > 1 else ""


def _curves(race: Race, by: str) -> go.Figure:
    figure = go.Figure()
    values = [point.value for point in race.points]
    most = 0.0
    for number, name in enumerate(race.policies):
        heights = [BY[by].value(point.histories[number]) for point in race.points]
        most = max(most, *heights)
        color = CATEGORIES[number % len(CATEGORIES)]
        color = EDGES.get(color, color)
        figure.add_scatter(
            x=values, y=heights, mode="lines+markers", name=literal(name), line={"color": color, "width": 2.2},
            marker={"color": color, "size": 6}, hoverinfo="text",
            hovertext=[f"{literal(name)} at {literal(_at(race, v))}: {h:.4g} {BY[by].axis}"
                       for v, h in zip(values, heights, strict=True)],
        )  # fmt: skip
    # Values over decades would crowd at one end of a linear axis.
    log = values[0] > 0 and values[-1] / values[0] >= LOG_FROM
    if len(race.policies) == 1:
        best = race.best
        figure.add_scatter(
            x=[best.value], y=[BY[by].value(best.histories[0])], mode="markers",
            name=f"most samples: {_at(race, best.value)}",
            marker={"symbol": "star", "size": 16, "color": CATEGORIES[1], "line": {"width": 1, "color": LINE_GREY}},
            hoverinfo="skip",
        )  # fmt: skip
    for number, (name, value) in enumerate(race.formulas.items()):
        # One above the other, so that labels of formulas that agree can both be read.
        upright(figure, value, f"{name} {duration(value)}", log=log, y=0.02 + 0.07 * number)
    for lead in race.leads:
        text = f"{_at(race, lead.value)}: {literal(lead.after)}"
        upright(figure, lead.value, text, log=log, dash="solid", y=0.98)
    figure.update_xaxes(title_text=_axis(race), **(log_axis(values[0], values[-1], 1.07) if log else {}))
    figure.update_yaxes(title_text=BY[by].axis, range=[0, 1.12 * most or 1.0])
    hours = race.points[0].histories[0].availability.name
    note = "each marker is a replay of all hours" + ("; bisection finds where the lead changes" if race.leads else "")
    alt = f"{hours}, over {race.over}: {race.sentence}."
    return titled(figure, f"{hours}: {race.sentence}", note, alt=alt, height=470, showlegend=True)


def _axis(race: Race) -> str:
    if race.over == "every_s":
        return "seconds of training between two checkpoints"
    if race.over != RATE:
        return literal(race.over.removesuffix("_s").replace("_", " ")) + " (s)" * race.over.endswith("_s")
    first = race.points[0]
    once_s = first.histories[0].availability.mean_between_losses_s * first.value
    losses = "" if once_s == np.inf else f" (1 is a loss every {duration(once_s)})"
    return f"rate of arrivals and departures{losses}"


def _at(race: Race, value: float) -> str:
    if race.over == RATE:
        return f"{value:.3g} times as many changes"
    return duration(value) if race.over.endswith("_s") else f"{value:.4g}"
