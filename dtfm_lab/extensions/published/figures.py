"""Figure of published numbers and our predictions: each group's ratios on their bands."""

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from dtfm_lab.domain.units import by_key
from dtfm_lab.extensions.published.api import Group, Ledger, Row
from dtfm_lab.figures.palette import BLUE, CAUSE_COLORS, LINE_GREY
from dtfm_lab.figures.theme import by_name, curve, figure_of, literal, titled, wrapped

RED = CAUSE_COLORS["straggler"]
ROW_PX = 26
LEAST_PX = 360
BAND = "rgba(128, 128, 128, 0.30)"
BAND_WIDTH_PX = 12
PALE = 0.4
"""Opacity of rows whose prediction uses constants from their source, or that follow from other numbers (not
``Row.hard``)."""
FARTHEST = 2.0
"""Ratios beyond this value or below its inverse are drawn at the edge. The hover text has them."""
DIGITS = 3
"""Decimals of a ratio in the figure. Few, because a saved notebook holds thousands of them."""
GROUP = "<b>%{y}</b>"
"""First line of every hover text: the name of the group, which is also left of the row. plotly fills it in, so points
need not store it."""
LETTERS_A_LINE = 70
TICKS = (0.33, 0.5, 0.67, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.25, 1.5, 2, 3)


@figure_of(Ledger)
def ledger(ledger: Ledger) -> go.Figure:
    """Return a figure of the ratios of predicted to published numbers, with one line of dots per group.

    A red cross is outside its band, whether the miss is known or not. Hollow diamonds are the system's own predictions.
    Grey bars are the stated bands. Pale points use constants from their source, or follow from other numbers. Rows
    with a published 0 have no ratio and are left out. Hover texts have the assumptions.
    """
    groups = ledger.groups
    figure = go.Figure()
    if groups:
        _draw(figure, groups, ledger.rows)
    headline, _, how_well = ledger.headline.partition(". ")
    # Far misses would squeeze all other dots into one place.
    far = any(row.published > 0 and not 1 / FARTHEST <= row.ratio <= FARTHEST for row in ledger.rows)
    edge = f"; beyond {FARTHEST:g} times at the edge" if far else ""
    pale = "pale: with a fit to their source" if any(not row.hard for row in ledger.rows) else ""
    return titled(
        figure,
        headline,
        "; ".join(filter(None, [how_well, pale, f"grey: the stated bands{edge}"])) + f"; of all, {ledger.sentence}",
        alt=f"Published numbers against predictions: {ledger.headline}. Of all, {ledger.sentence}.",
        height=max(LEAST_PX, ROW_PX * len(groups)) + 190,
        legend_traceorder="normal",
    )


def _draw(figure: go.Figure, groups: Sequence[Group], rows: Sequence[Row]) -> None:
    name_of = {group.key: literal(f"{group.source}: {group.group}, {group.quantity}") for group in groups}
    names = list(name_of.values())
    shown = [row for row in rows if row.published > 0]
    place = {id(row): name_of[row.source, row.group, row.quantity] for row in shown}
    stripes: dict[str, list[float]] = {}
    for row in shown:
        # One stripe per line of dots, as wide as the widest band.
        stripes.setdefault(place[id(row)], []).extend(_within_reach(end) for end in _band_of(row))
    x = [at for ends in stripes.values() for at in (min(ends), max(ends), None)]
    y = [at for name in stripes for at in (name, name, None)]
    figure.add_trace(curve(x, y, None, BAND, BAND_WIDTH_PX, showlegend=False))
    theirs = [row for row in shown if row.theirs is not None]
    figure.add_scatter(
        x=[_within_reach(1 + (row.their_error or 0.0)) for row in theirs],
        y=[place[id(row)] for row in theirs],
        mode="markers",
        name="the system's own prediction",
        marker={"symbol": "diamond-open", "size": 8, "color": LINE_GREY},
        hovertext=[_their_hover(row) for row in theirs],
        hovertemplate=f"{GROUP}, their own prediction<br>%{{hovertext}}<extra></extra>",
        visible=bool(theirs),
    )
    # Misses last, so that none is hidden under a hit.
    inside_first = sorted(shown, key=lambda row: not row.inside)
    alike = by_key(((row.inside, row.hard, _of_many(row)), row) for row in inside_first)
    for (inside, hard, of_all), some in alike.items():
        look = {"color": BLUE, "size": 7} if inside else {"color": RED, "size": 9, "symbol": "x"}
        figure.add_scatter(
            x=[_within_reach(row.ratio) for row in some],
            y=[place[id(row)] for row in some],
            mode="markers",
            name="inside its band" if inside else "outside of it",
            showlegend=False,
            marker={**look, "opacity": 1.0 if hard else PALE},
            hovertext=[_hover(row) for row in some],
            hovertemplate=f"{GROUP}<br>%{{hovertext}}<br>{of_all}<extra></extra>",
        )
    reach = [_within_reach(ratio) for row in shown for ratio in (row.ratio, 1 + (row.their_error or 0.0))]
    far = max(1.1, *(max(ratio, 1 / ratio) for ratio in reach)) * 1.04
    # Ticks too close to 1 would overlap on a wide axis.
    ticks = [tick for tick in TICKS if 1 / far <= tick <= far]
    if far > 1.3:
        ticks = [tick for tick in ticks if tick not in (0.95, 1.05)]
    if far > 2:
        ticks = [tick for tick in ticks if tick not in (0.9, 1.1)]
    figure.update_xaxes(
        type="log",
        range=[-math.log10(far), math.log10(far)],
        tickvals=ticks,
        ticktext=[f"{tick:g}" for tick in ticks],
        title_text="predicted / published",
    )
    figure.update_yaxes(**by_name(names))
    figure.add_vline(x=1, line={"color": LINE_GREY, "width": 1}, layer="below")


def _band_of(row: Row) -> tuple[float, float]:
    """Return the lowest and highest ratio of predicted to published that is inside a row's band."""
    if not row.band.absolute:
        return row.band.low, row.band.high
    return max(1 / FARTHEST, 1 + row.band.low / row.published), 1 + row.band.high / row.published


def _within_reach(ratio: float) -> float:
    return round(min(FARTHEST, max(1 / FARTHEST, ratio)), DIGITS)


def _hover(row: Row) -> str:
    reason = row.known_miss.reason if row.known_miss is not None and not row.inside else ""
    about = (
        f"{literal(row.setting)}: published {row.published:,.4g}, predicted {_quantity(row.predicted, row)}: "
        f"{row.ratio:.3f}"
    )
    return "<br>".join([about, *_wrapped(row.fitted, row.note, reason)])


def _of_many(row: Row) -> str:
    """Return the end of a row's hover text. Rows with the same end share a trace, which stores it once."""
    evidence = f"{row.evidence.words}{'' if row.measured else ', not a measurement'}; band {row.band}"
    assumed = f"assumed: {'; '.join(row.assumptions)}" if row.assumptions else ""
    return "<br>".join([evidence, *_wrapped(assumed, row.cite)])


def _wrapped(*texts: str) -> list[str]:
    return [line for text in texts for line in wrapped(text, LETTERS_A_LINE)]


def _their_hover(row: Row) -> str:
    theirs = row.theirs or 0.0
    return f"{literal(row.setting)}: {_quantity(theirs, row)}, {theirs / row.published:.3f} of the published"


def _quantity(value: float, row: Row) -> str:
    return f"{value:,.4g} {literal(row.unit)}".rstrip()
