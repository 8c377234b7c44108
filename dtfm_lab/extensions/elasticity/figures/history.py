"""Figures of the hours of a changing fleet: which devices are online when, and what every second was spent on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.units import BoolArray, FloatArray, IntArray, counted, format_share
from dtfm_lab.extensions.elasticity.availability import Availability
from dtfm_lab.extensions.elasticity.history import History, TimeUse
from dtfm_lab.figures.palette import BLUE, GREEN, GREY, LINE_GREY, ORANGE, PURPLE, SKY, VERMILLION, YELLOW
from dtfm_lab.figures.theme import duration, figure_of, numbered_rows, short, stacked, time_axis, titled, with_headings

COLORS = {
    TimeUse.TRAINING: GREEN,
    TimeUse.CHECKPOINT: SKY,
    TimeUse.REDONE: VERMILLION,
    TimeUse.RECONFIGURING: ORANGE,
    TimeUse.IDLE: PURPLE,
    TimeUse.STOPPED: GREY,
}
WORDS = {
    TimeUse.TRAINING: "useful training",
    TimeUse.CHECKPOINT: "writing checkpoints",
    TimeUse.REDONE: "lost work",
    TimeUse.RECONFIGURING: "reconfiguring",
    TimeUse.IDLE: "too few devices",
    TimeUse.STOPPED: "no device ready",
}
REDUNDANT = "redundant work"
"""Name of the part of training that is only useful if a device is lost."""
PARTS = {WORDS[TimeUse.TRAINING]: GREEN, REDUNDANT: YELLOW} | {
    WORDS[state]: COLORS[state] for state in TimeUse if state
}
"""Colour of each part of the time, by its name, in the order in which the parts are stacked."""
MOST_BINS = 300
"""Number of intervals into which the curve of samples per second and the band of states are divided."""
# Heights of the charts of a history, from top to bottom.
DEVICES_PX = 130
RATE_PX = 90
STATES_PX = 110
SAMPLES_PX = 190
DOLLARS_PX = 90
BETWEEN_PX = 44
BAND_ROW = 3


@figure_of(History)
def history(history: History) -> go.Figure:
    """Plot the history of a run on one axis of time.

    From top to bottom, it shows devices online and in use, samples per second, and the share of each interval spent in
    each state. Below are samples so far with the bound of perfect foresight, and dollars so far if devices have a
    price.
    """
    unit, in_s = time_axis(history.availability.end_s)
    heights = [DEVICES_PX, RATE_PX, STATES_PX, SAMPLES_PX] + [DOLLARS_PX] * bool(history.dollars)
    total_px = sum(heights) + (len(heights) - 1) * BETWEEN_PX
    headings = ["devices online and in use", "samples per second", "where the time goes"]
    headings += ["samples so far (thousands)"] + ["dollars so far"] * bool(history.dollars)
    figure = stacked(heights, headings, gap_px=BETWEEN_PX, total_px=total_px)
    _add_devices(figure, history, in_s)
    _add_rate(figure, history, in_s)
    _add_states(figure, history, in_s)
    _add_samples(figure, history, in_s)
    if history.dollars:
        _add_dollars(figure, history, in_s)
    figure.update_xaxes(range=[0, history.availability.end_s / in_s])
    figure.update_xaxes(title_text=f"time ({unit})", row=len(heights), col=1)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(range=[0, 1], tickformat=".0%", row=BAND_ROW, col=1)
    title = f"{history.policy} on {history.availability.name}: {history.goodput:.4g} samples/s"
    note, look = _subtitle(history), {"hovermode": "x unified", "bargap": 0, "barmode": "stack"}
    titled(figure, title, note, alt=f"{history.sentence}. {note}", height=total_px + 210, **look)
    return with_headings(figure)


def parts(history: History) -> dict[str, float]:
    """Return the seconds of each of ``PARTS``. Together they are the length of the history."""
    seconds = history.seconds
    found = {WORDS[state]: seconds[state.name.lower()] for state in TimeUse} | {REDUNDANT: seconds["redundant"]}
    return found | {WORDS[TimeUse.TRAINING]: seconds["training"] - seconds["redundant"]}


def _subtitle(history: History) -> str:
    shares = [
        f"{format_share(seconds / history.availability.end_s)} {name}" for name, seconds in parts(history).items()
    ]
    # Parts that round to nothing would only lengthen the line.
    sentences = [share for share in shares if not share.startswith("0.0 %")]
    if history.share_of_bound is not None:
        sentences.append(f"{format_share(history.share_of_bound)} of what perfect foresight allows")
    if history.dollars:
        sentences.append(f"${history.dollars:.4g}, ${history.dollars_per_million_samples:.4g} per million samples")
    return "; ".join(sentences)


def _add_devices(figure: go.Figure, history: History, in_s: float) -> None:
    at_s = np.unique(history.availability.time_s)
    # Availability and use change at different times, so each keeps its own times.
    there = history.availability.counts()
    end_s = history.availability.end_s
    serving = history.to_frame()["devices"].to_numpy()
    for x, y, name, color, fill in (
        (at_s, there, "online", LINE_GREY, None),
        (history.start_s, serving, "in use", BLUE, "tozeroy"),
    ):
        figure.add_scatter(
            x=np.append(x, end_s) / in_s, y=np.append(y, y[-1]) if len(y) else [0], mode="lines", name=name,
            line={"shape": "hv", "width": 1.5, "color": color}, fill=fill, fillcolor="rgba(0, 114, 178, 0.22)",
            hovertemplate="%{y}", row=1, col=1,
        )  # fmt: skip


def _add_rate(figure: go.Figure, history: History, in_s: float) -> None:
    edges = _edges(history)
    rate = np.diff(np.interp(edges, *_so_far(history, history.segment_samples))) / np.diff(edges)
    figure.add_scatter(
        x=edges / in_s, y=np.append(rate, rate[-1]), mode="lines", name="samples per second", showlegend=False,
        line={"shape": "hv", "width": 1.2, "color": GREEN}, hovertemplate="%{y:.4~g}", row=2, col=1,
    )  # fmt: skip


def _add_states(figure: go.Figure, history: History, in_s: float) -> None:
    edges, lasts = _edges(history), history.end_s - history.start_s
    redundant = np.array([*(operation.redundant_share for operation in history.operations), 0.0])[history.operation]
    shares = {WORDS[state]: (history.state == state).astype(float) for state in TimeUse}
    shares[REDUNDANT] = shares[WORDS[TimeUse.TRAINING]] * redundant
    shares[WORDS[TimeUse.TRAINING]] = shares[WORDS[TimeUse.TRAINING]] - shares[REDUNDANT]
    for name, color in PARTS.items():
        if not shares[name].any():
            continue
        share = np.diff(np.interp(edges, *_so_far(history, lasts * shares[name]))) / np.diff(edges)
        figure.add_bar(
            x=(edges[:-1] + edges[1:]) / 2 / in_s, y=share, width=np.diff(edges) / in_s, name=name,
            marker={"color": color, "line": {"width": 0}}, hovertemplate="%{y:.0%}", row=BAND_ROW, col=1,
        )  # fmt: skip


def _edges(history: History) -> FloatArray:
    return np.linspace(0.0, history.availability.end_s, MOST_BINS + 1)


def _so_far(history: History, amounts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return times, and the running total of ``amounts``. There is one amount per segment. Between the times, the
    total rises linearly."""
    return np.append(0.0, history.end_s), np.append(0.0, np.cumsum(amounts))


def _add_samples(figure: go.Figure, history: History, in_s: float) -> None:
    if history.foresight is not None:
        at_s, most = history.foresight
        figure.add_scatter(
            x=at_s / in_s, y=most / 1e3, mode="lines", name="bound: perfect foresight",
            line={"width": 1.5, "dash": "dash", "color": LINE_GREY}, hovertemplate="%{y:.4~g}", row=4, col=1,
        )  # fmt: skip
    at_s, samples = _so_far(history, history.segment_samples)
    figure.add_scatter(
        x=at_s / in_s, y=samples / 1e3, mode="lines", name="samples", line={"width": 2, "color": GREEN},
        hovertemplate="%{y:.4~g}", row=4, col=1,
    )  # fmt: skip


def _add_dollars(figure: go.Figure, history: History, in_s: float) -> None:
    here = history.availability
    times = np.append(here.time_s, here.end_s)
    per_s = np.cumsum(np.where(here.comes, 1.0, -1.0) * history.price_per_hour[here.device]) / 3600
    figure.add_scatter(
        x=np.append(0.0, times) / in_s,
        y=np.append([0.0, 0.0], np.cumsum(per_s * np.diff(times))), mode="lines", name="dollars",
        showlegend=False, line={"width": 1.5, "color": BLUE}, hovertemplate="$%{y:.4~g}", row=5, col=1,
    )  # fmt: skip


MOST_ROWS = 64
"""Maximum number of devices with a row each. If there are more, the figure shows only how many are online or lost."""
MOST_STAYS = 8_000
"""Maximum number of bars in all rows together."""
MOST_POINTS = 1_500
"""Number of intervals into which a long curve is divided. Each keeps its minimum and maximum."""
MOST_BARS = 120
"""Maximum number of bars that count losses. Each spans one of ``BAR_S`` seconds, or a whole number of days."""
BAR_S = (1, 10, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
COUNT_PX = 150
"""Height in pixels of the curve of devices online. Twice this if there are no rows of devices."""
LOST_PX = 90
"""Height in pixels of the bars that count losses."""
ROW_PX = 18
"""Height in pixels of a device's row."""
CROWDED_PX = 11
"""Height in pixels of a device's row if there are more than ``MANY_ROWS``."""
MANY_ROWS = 24
DAY_H = 24


class Stays(NamedTuple):
    """Intervals in which devices are online, as arrays with one entry per interval."""

    device: IntArray
    begin_s: FloatArray
    end_s: FloatArray
    lost: BoolArray
    """True if the device leaves at ``end_s``, False if it is still online at the end of the availability."""


@figure_of(Availability)
def availability(availability: Availability) -> go.Figure:
    """Plot the number of devices online over time.

    Up to 64 devices have a row each, with a bar per stay and a mark per loss. With more devices, or more than 8,000
    stays, bars count the losses in each interval. Devices that never arrive have no row.
    """
    unit, in_s = time_axis(availability.end_s)
    stays = stays_of(availability)
    coming = np.unique(stays.device)
    has_rows = len(coming) <= MOST_ROWS and len(stays.device) <= MOST_STAYS
    # Crowded rows stay readable without their names.
    row_px = CROWDED_PX if len(coming) > MANY_ROWS else ROW_PX
    heights = [COUNT_PX, max(1, len(coming)) * row_px] if has_rows else [2 * COUNT_PX, LOST_PX]
    never = f" ({len(availability.devices) - len(coming)} never arrive)" * (len(availability.devices) > len(coming))
    bar_s = _bar_s(availability.end_s)
    headings = ["devices online", f"each device{never}" if has_rows else f"lost in {duration(bar_s)}"]
    total_px = sum(heights) + BETWEEN_PX
    figure = stacked(heights, headings, gap_px=BETWEEN_PX, total_px=total_px)
    at_s, there = _curve(availability)
    figure.add_scatter(
        x=np.append(at_s, availability.end_s) / in_s, y=np.append(there, there[-1]), mode="lines", name="online",
        line={"shape": "hv", "width": 1.5, "color": BLUE}, fill="tozeroy", fillcolor="rgba(0, 114, 178, 0.22)",
        hovertemplate=f"%{{y}} online at %{{x:.4~r}} {unit}<extra></extra>", showlegend=not has_rows, row=1, col=1,
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
    length, look = f"{availability.end_s / in_s:.3g} {unit}", {"bargap": 0.2, "barmode": "overlay"}
    alt = _alt(availability, length)
    titled(figure, _title(availability, length), availability.source, alt=alt, height=total_px + 190, **look)
    return with_headings(figure)


def stays_of(availability: Availability) -> Stays:
    """Return every stay, sorted by device and time."""
    order = np.argsort(availability.device, kind="stable")
    device, time_s, comes = availability.device[order], availability.time_s[order], availability.comes[order]
    begins = np.flatnonzero(comes)
    lost = np.append(~comes[1:], False)[begins]
    ends_s = np.where(lost, np.append(time_s[1:], 0.0)[begins], availability.end_s)
    return Stays(device[begins], time_s[begins], ends_s, lost)


def _curve(availability: Availability) -> tuple[FloatArray, IntArray]:
    """Return times from second 0 on, and the number of devices online from each time to the next. A long curve keeps
    the minimum and maximum of each interval."""
    at_s, there = np.unique(availability.time_s), availability.counts()
    at_s = at_s if len(at_s) else np.zeros(1)
    if at_s[0] > 0:
        at_s, there = np.append(0.0, at_s), np.append(0, there)
    if len(at_s) <= 2 * MOST_POINTS:
        return at_s, there
    # Each slot keeps its lowest and highest value, so that a drop is not averaged away.
    slot = np.minimum((at_s / availability.end_s * MOST_POINTS).astype(int), MOST_POINTS - 1)
    order = np.lexsort((there, slot))
    edge = np.flatnonzero(np.diff(slot[order], prepend=-1))
    kept = np.unique(np.concatenate([[0], order[edge], order[np.append(edge[1:] - 1, len(order) - 1)]]))
    return at_s[kept], there[kept]


def _add_rows(figure: go.Figure, stays: Stays, in_s: float, unit: str) -> None:
    device, begin_s, end_s, lost = stays
    figure.add_bar(
        orientation="h", base=begin_s / in_s, x=(end_s - begin_s) / in_s, y=device, name="online",
        customdata=end_s / in_s, marker={"color": BLUE, "line": {"width": 0}},
        hovertemplate=f"%{{y}}: online from %{{base:.4~r}} to %{{customdata:.4~r}} {unit}<extra></extra>",
        row=2, col=1,
    )  # fmt: skip
    if lost.any():
        figure.add_scatter(
            x=end_s[lost] / in_s, y=device[lost], mode="markers", name="lost",
            marker={"symbol": "x-thin", "size": 6, "line": {"width": 2, "color": VERMILLION}},
            hovertemplate=f"%{{y}}: lost at %{{x:.4~r}} {unit}<extra></extra>", row=2, col=1,
        )  # fmt: skip


def _add_losses(figure: go.Figure, availability: Availability, bar_s: float, in_s: float, unit: str) -> None:
    """Add a bar for each interval with losses, as high as their number."""
    bar, n_lost = np.unique(availability.time_s[~availability.comes] // bar_s, return_counts=True)
    figure.add_bar(
        x=(bar + 0.5) * bar_s / in_s, y=n_lost, width=0.9 * bar_s / in_s, name="lost",
        marker={"color": VERMILLION, "line": {"width": 0}},
        hovertemplate=f"%{{y}} lost around %{{x:.4~r}} {unit}<extra></extra>", row=2, col=1,
    )  # fmt: skip
    figure.update_yaxes(rangemode="tozero", row=2, col=1)


def _bar_s(end_s: float) -> float:
    """Return the seconds that a bar of losses spans: the shortest span with at most ``MOST_BARS`` bars."""
    least_s = end_s / MOST_BARS
    return next((bar_s for bar_s in BAR_S if bar_s >= least_s), np.ceil(least_s / BAR_S[-1]) * BAR_S[-1])


def _title(availability: Availability, length: str) -> str:
    n_lost = int((~availability.comes).sum())
    losses = "1 loss" if n_lost == 1 else f"{n_lost:,} losses"
    return f"{availability.name}: {_present(availability)}, {losses} in {length}"


def _present(availability: Availability) -> str:
    counts, mean = availability.counts(), availability.present_s().sum() / availability.end_s
    return f"{mean:.3g} devices online on average ({counts.min()} to {counts.max()})"


def _alt(availability: Availability, length: str) -> str:
    n, n_lost = counted(len(availability.devices), "device"), int((~availability.comes).sum())
    times = "no device is lost" if not n_lost else counted(n_lost, "loss")
    return f"{availability.name}: {n} over {length}; {_present(availability)}; {times}."
