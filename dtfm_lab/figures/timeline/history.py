"""Hours of a changing fleet: what every second went to."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.history import History, State
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.figures.palette import BLUE, GREEN, GREY, LINE_GREY, ORANGE, PURPLE, SKY, VERMILLION, YELLOW
from dtfm_lab.figures.theme import (
    stacked,
    time_axis,
    titled,
    with_headings,
)

COLORS = {
    State.TRAINING: GREEN,
    State.CHECKPOINT: SKY,
    State.REDONE: VERMILLION,
    State.RECONFIGURING: ORANGE,
    State.IDLE: PURPLE,
    State.STOPPED: GREY,
}
WORDS = {
    State.TRAINING: "training that counts",
    State.CHECKPOINT: "writing checkpoints",
    State.REDONE: "lost, to be done again",
    State.RECONFIGURING: "reconfiguring",
    State.IDLE: "too few devices",
    State.STOPPED: "nobody there",
}
REDUNDANT = "redundant, for a loss"
"""The part of training that only a loss makes useful; the rest of training counts."""
PARTS = {WORDS[State.TRAINING]: GREEN, REDUNDANT: YELLOW} | {WORDS[state]: COLORS[state] for state in State if state}
"""Colours of what time goes to, in the order in which it is stacked."""
MOST_BINS = 300
"""Intervals into which the band of states is cut."""
DEVICES_PX, RATE_PX, STATES_PX, SAMPLES_PX, DOLLARS_PX = 130, 90, 110, 190, 90
BETWEEN_PX = 44
BAND_ROW = 3


def history(history: History) -> go.Figure:
    """Devices that are there and that serve, samples a second, the share of every interval that each state takes, and
    the samples so far beside the most that foresight would have; where devices have a price, dollars so far. One axis
    of time."""
    unit, in_s = time_axis(history.availability.end_s)
    heights = [DEVICES_PX, RATE_PX, STATES_PX, SAMPLES_PX] + [DOLLARS_PX] * bool(history.dollars)
    total_px = sum(heights) + (len(heights) - 1) * BETWEEN_PX
    headings = [
        "devices: there, and serving",
        "samples a second",
        "what the time goes to",
        "samples so far (thousands)",
    ]
    headings += ["dollars so far"] * bool(history.dollars)
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
    titled(
        figure,
        f"{history.policy} on {history.availability.name}: {history.goodput:.4g} samples/s",
        _subtitle(history),
        alt=f"{history.sentence}. " + _subtitle(history),
        height=total_px + 210,
        hovermode="x unified",
        bargap=0,
        barmode="stack",
    )
    return with_headings(figure)


def parts(history: History) -> dict[str, float]:
    """Seconds of each of ``PARTS``, which add up to the end."""
    seconds = history.seconds
    found = {WORDS[state]: seconds[state.name.lower()] for state in State} | {REDUNDANT: seconds["redundant"]}
    return found | {WORDS[State.TRAINING]: seconds["training"] - seconds["redundant"]}


def _subtitle(history: History) -> str:
    shares = [f"{seconds / history.availability.end_s:.1%} {name}" for name, seconds in parts(history).items()]
    told = [share for share in shares if not share.startswith("0.0%")]
    if history.share_of_bound is not None:
        told.append(f"{history.share_of_bound:.1%} of what nobody exceeds who knows the future")
    if history.dollars:
        told.append(f"{history.dollars:.4g} $, {history.dollars_per_million_samples:.4g} $ a million samples")
    return "; ".join(told)


def _add_devices(figure: go.Figure, history: History, in_s: float) -> None:
    at_s = np.unique(history.availability.time_s)
    there = history.availability.counts()
    end_s = history.availability.end_s
    serving = history.to_frame()["devices"].to_numpy()
    for x, y, name, color, fill in (
        (at_s, there, "there", LINE_GREY, None),
        (history.start_s, serving, "serving", BLUE, "tozeroy"),
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
        x=edges / in_s, y=np.append(rate, rate[-1]), mode="lines", name="samples a second", showlegend=False,
        line={"shape": "hv", "width": 1.2, "color": GREEN}, hovertemplate="%{y:.4~g}", row=2, col=1,
    )  # fmt: skip


def _add_states(figure: go.Figure, history: History, in_s: float) -> None:
    edges, lasts = _edges(history), history.end_s - history.start_s
    redundant = np.array([*(operation.redundant_share for operation in history.operations), 0.0])[history.operation]
    shares = {WORDS[state]: (history.state == state).astype(float) for state in State}
    shares[REDUNDANT] = shares[WORDS[State.TRAINING]] * redundant
    shares[WORDS[State.TRAINING]] = shares[WORDS[State.TRAINING]] - shares[REDUNDANT]
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
    """Times, and the sum of the segments' amounts by then, each of which comes evenly over its segment."""
    return np.append(0.0, history.end_s), np.append(0.0, np.cumsum(amounts))


def _add_samples(figure: go.Figure, history: History, in_s: float) -> None:
    if history.foresight is not None:
        at_s, most = history.foresight
        figure.add_scatter(
            x=at_s / in_s, y=most / 1e3, mode="lines", name="the most that foresight would have",
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
