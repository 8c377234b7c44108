"""Which devices are there when: how many, and a row for each of a few."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.availability import Availability
from dtfm_lab.domain.units import BoolArray, FloatArray, IntArray
from dtfm_lab.figures.palette import BLUE, VERMILLION
from dtfm_lab.figures.theme import (
    count,
    duration,
    numbered_rows,
    short,
    stacked,
    time_axis,
    titled,
    with_headings,
)

MOST_ROWS = 64
"""Most devices that have rows of their own; of more, only their number is drawn."""
MOST_STAYS = 8_000
"""Most bars of all rows together."""
MOST_POINTS = 1_500
"""Intervals of which a long curve keeps the fewest and the most."""
MOST_BARS = 120
"""Most bars of losses; each is of one of these many seconds, or of a whole number of days."""
BAR_S = (1, 10, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
COUNT_PX, LOST_PX, ROW_PX, CROWDED_PX, BETWEEN_PX = 150, 90, 18, 11, 44
MANY_ROWS = 24
DAY_H = 24


class Stays(NamedTuple):
    """Every time that a device is there."""

    device: IntArray
    begin_s: FloatArray
    end_s: FloatArray
    lost: BoolArray
    """Whether it leaves then; else it is there to the end."""


def availability(availability: Availability) -> go.Figure:
    """How many devices are present over time and, of up to 64, a bar for each stay and a mark for each loss; of more,
    how many are lost in each interval. Devices that never come have no row."""
    unit, in_s = time_axis(availability.end_s)
    stays = stays_of(availability)
    coming = np.unique(stays.device)
    has_rows = len(coming) <= MOST_ROWS and len(stays.device) <= MOST_STAYS
    row_px = CROWDED_PX if len(coming) > MANY_ROWS else ROW_PX
    heights = [COUNT_PX, max(1, len(coming)) * row_px] if has_rows else [2 * COUNT_PX, LOST_PX]
    never = f" ({len(availability.devices) - len(coming)} never come)" * (len(availability.devices) > len(coming))
    bar_s = _bar_s(availability.end_s)
    headings = ["devices present", f"each of them{never}" if has_rows else f"lost in {duration(bar_s)}"]
    total_px = sum(heights) + BETWEEN_PX
    figure = stacked(heights, headings, gap_px=BETWEEN_PX, total_px=total_px)
    at_s, there = _curve(availability)
    figure.add_scatter(
        x=np.append(at_s, availability.end_s) / in_s, y=np.append(there, there[-1]), mode="lines", name="present",
        line={"shape": "hv", "width": 1.5, "color": BLUE}, fill="tozeroy", fillcolor="rgba(0, 114, 178, 0.22)",
        hovertemplate=f"%{{y}} present at %{{x:.4~r}} {unit}<extra></extra>", showlegend=not has_rows, row=1, col=1,
    )  # fmt: skip
    if has_rows:
        names = short([availability.devices[device] for device in coming])
        _add_rows(figure, stays._replace(device=np.searchsorted(coming, stays.device)), in_s, unit)
        figure.update_yaxes(**numbered_rows(names), tickfont_size=9 if row_px < ROW_PX else 11, row=2, col=1)
    else:
        _add_losses(figure, availability, bar_s, in_s, unit)
    figure.update_yaxes(range=[0, max(1, int(there.max())) * 1.06], row=1, col=1)
    figure.update_xaxes(range=[0, availability.end_s / in_s], showgrid=True)
    if unit == "h" and 3 * DAY_H <= availability.end_s / in_s <= 31 * DAY_H:
        figure.update_xaxes(dtick=DAY_H)
    figure.update_xaxes(title_text=f"time ({unit})", row=2, col=1)
    titled(
        figure,
        _title(availability, f"{availability.end_s / in_s:.3g} {unit}"),
        availability.source,
        alt=_alt(availability, f"{availability.end_s / in_s:.3g} {unit}"),
        height=total_px + 190,
        bargap=0.2,
        barmode="overlay",
    )
    return with_headings(figure)


def stays_of(availability: Availability) -> Stays:
    """Every stay, by device and time."""
    order = np.argsort(availability.device, kind="stable")
    device, time_s, comes = availability.device[order], availability.time_s[order], availability.comes[order]
    begins = np.flatnonzero(comes)
    lost = np.append(~comes[1:], False)[begins]
    ends_s = np.where(lost, np.append(time_s[1:], 0.0)[begins], availability.end_s)
    return Stays(device[begins], time_s[begins], ends_s, lost)


def _curve(availability: Availability) -> tuple[FloatArray, IntArray]:
    """When how many are there from then on, from second 0; of a long one the fewest and the most of each interval."""
    at_s, there = np.unique(availability.time_s), availability.counts()
    at_s = at_s if len(at_s) else np.zeros(1)
    if at_s[0] > 0:
        at_s, there = np.append(0.0, at_s), np.append(0, there)
    if len(at_s) <= 2 * MOST_POINTS:
        return at_s, there
    slot = np.minimum((at_s / availability.end_s * MOST_POINTS).astype(int), MOST_POINTS - 1)
    order = np.lexsort((there, slot))
    edge = np.flatnonzero(np.diff(slot[order], prepend=-1))
    kept = np.unique(np.concatenate([[0], order[edge], order[np.append(edge[1:] - 1, len(order) - 1)]]))
    return at_s[kept], there[kept]


def _add_rows(figure: go.Figure, stays: Stays, in_s: float, unit: str) -> None:
    device, begin_s, end_s, lost = stays
    figure.add_bar(
        orientation="h", base=begin_s / in_s, x=(end_s - begin_s) / in_s, y=device, name="present",
        customdata=end_s / in_s, marker={"color": BLUE, "line": {"width": 0}},
        hovertemplate=f"%{{y}}: present from %{{base:.4~r}} to %{{customdata:.4~r}} {unit}<extra></extra>",
        row=2, col=1,
    )  # fmt: skip
    if lost.any():
        figure.add_scatter(
            x=end_s[lost] / in_s, y=device[lost], mode="markers", name="lost",
            marker={"symbol": "x-thin", "size": 6, "line": {"width": 2, "color": VERMILLION}},
            hovertemplate=f"%{{y}}: lost at %{{x:.4~r}} {unit}<extra></extra>", row=2, col=1,
        )  # fmt: skip


def _add_losses(figure: go.Figure, availability: Availability, bar_s: float, in_s: float, unit: str) -> None:
    """A bar for each interval in which devices are lost, as high as they are many."""
    bar, n_lost = np.unique(availability.time_s[~availability.comes] // bar_s, return_counts=True)
    figure.add_bar(
        x=(bar + 0.5) * bar_s / in_s, y=n_lost, width=0.9 * bar_s / in_s, name="lost",
        marker={"color": VERMILLION, "line": {"width": 0}},
        hovertemplate=f"%{{y}} lost around %{{x:.4~r}} {unit}<extra></extra>", row=2, col=1,
    )  # fmt: skip
    figure.update_yaxes(rangemode="tozero", row=2, col=1)


def _bar_s(end_s: float) -> float:
    """Seconds of a bar of losses: the least of which not too many fit."""
    least_s = end_s / MOST_BARS
    return next((bar_s for bar_s in BAR_S if bar_s >= least_s), np.ceil(least_s / BAR_S[-1]) * BAR_S[-1])


def _title(availability: Availability, length: str) -> str:
    n_lost = int((~availability.comes).sum())
    losses = "1 loss" if n_lost == 1 else f"{n_lost:,} losses"
    return f"{availability.name}: {_present(availability)}, {losses} in {length}"


def _present(availability: Availability) -> str:
    counts, mean = availability.counts(), availability.present_s().sum() / availability.end_s
    return f"{mean:.3g} devices present in the mean ({counts.min()} to {counts.max()})"


def _alt(availability: Availability, length: str) -> str:
    n, n_lost = count(len(availability.devices), "device"), int((~availability.comes).sum())
    times = "nobody is lost" if not n_lost else f"{count(n_lost, 'time')} one is lost"
    return f"{availability.name}: {n} over {length}; {_present(availability)}; {times}."
