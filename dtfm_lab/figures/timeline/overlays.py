"""Drawings over the bars of a Gantt chart: messages as arrows, and the critical path."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dtfm_lab.domain.schedule import COMPUTE, RECEIVES, SENDS, Action, Kind, Lane
from dtfm_lab.domain.trace import RunContext, Trace
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.figures.palette import CONTENT, CRIMSON, EDGES, KIND_COLORS
from dtfm_lab.figures.strokes import packed, strokes
from dtfm_lab.figures.theme import WORDLESS
from dtfm_lab.figures.timeline.bars import Hover, Rows

MOST_ARROWS = 600
"""Most arrows of a chart; more would hide the bars."""
CASING = "rgba(255, 255, 255, 0.9)"
"""Casing around a line, which makes it stand out from any bar."""
Point = tuple[float, float]
"""Seconds, and pixels from the top."""
GAP: Point = (np.nan, np.nan)
"""The point that interrupts a line."""


class Trip(NamedTuple):
    """A message: its send, its receive, and when they happened."""

    send: Action
    sender: int
    """Replica of the sender."""
    receive: Action
    receiver: int
    """Replica of the receiver."""
    send_start_s: float
    send_end_s: float
    receive_end_s: float


def trips_of(trace: Trace, iteration: int) -> list[Trip]:
    """All messages of an iteration of which both ends were traced."""
    trips = []
    for send, receive in zip(*(rows.tolist() for rows in trace.message_rows(iteration)), strict=True):
        (sent, sender), (received, receiver) = (
            (trace.actions[trace.action[row]], int(trace.replica[row])) for row in (send, receive)
        )
        times = (trace.start_s[send], trace.end_s[send], trace.end_s[receive])
        trips.append(Trip(sent, sender, received, receiver, *map(float, times)))
    return trips


def arrows(
    sides: Sequence[Sequence[Trip]], contexts: Sequence[RunContext], rows: Rows, unit: str, whole_s: float
) -> list[go.Scatter]:
    """Arrows from the sender's row to the receiver's, one plotly trace for each kind of message."""
    ways: dict[Kind, list[FloatArray]] = defaultdict(list)
    words: dict[Kind, list[str]] = defaultdict(list)
    data: dict[Kind, list[tuple[float, ...]]] = defaultdict(list)
    hovers = [Hover(context, unit, whole_s) for context in contexts]
    for side, (trips, hover) in enumerate(zip(sides, hovers, strict=True)):
        for trip in trips:
            kind = trip.send.kind
            (left_s, top), (arrived_s, bottom) = _ends(trip, rows, side)
            ways[kind].append(np.array([(left_s * hover.scale, top), (arrived_s * hover.scale, bottom)]))
            there = hover.device(trip.receive.stage, trip.receiver)
            here = hover.device(trip.send.stage, trip.sender)
            words[kind] += [f"{here} → {there}"] * 2 + [WORDLESS]
            times = [hover.scale * s for s in (trip.send_start_s, trip.receive_end_s)]
            number = -1 if trip.send.microbatch is None else trip.send.microbatch
            data[kind] += [(*times, times[1] - times[0], number)] * 3
    return [
        go.Scatter(
            **strokes(ways[kind]),
            mode="lines+markers",
            name=CONTENT[kind],
            showlegend=not {Lane.SEND, Lane.RECEIVE} & set(rows.lanes),
            line={"width": 1.2, "color": (color := EDGES.get(KIND_COLORS[kind], KIND_COLORS[kind]))},
            marker={
                "symbol": "arrow",
                "angleref": "previous",
                "size": np.tile([0, 8, 0], len(ways[kind])),
                "color": color,
                "opacity": 1,
                "line": {"width": 0},
            },
            hovertext=words[kind],
            customdata=np.array(data[kind], dtype=np.float32),
            hovertemplate=f"{CONTENT[kind]}{' %{customdata[3]}' if data[kind][0][3] >= 0 else ''} · %{{hovertext}} · "
            f"{hovers[0].time('customdata[0]', 'customdata[1]', hovers[0].took('customdata[2]'))}<extra></extra>",
        )
        for kind in SENDS
        if kind in ways
    ]


def critical_path(
    paths: Mapping[int, tuple[Trace, pd.DataFrame]], rows: Rows, scale: float
) -> list[go.Bar | go.Scatter]:
    """Of each side, outlines of the bars on its critical path, and a line from one to the next.

    Messages whose lane is not drawn are passed on the first lane of their devices.
    """
    bars: list[tuple[float, float, float, float]] = []
    points: list[Point] = []
    for side, (trace, path) in paths.items():
        for row, start_s, end_s in path[["row", "start_s", "end_s"]].itertuples(index=False):
            action, replica = trace.actions[trace.action[row]], int(trace.replica[row])
            shown = action.lane in rows.lanes
            strip = rows.strip(action, replica, side) if shown else rows.first(action.stage, replica, side)
            if shown:
                bars.append((trace.start_s[row], trace.end_s[row], strip.middle, strip.height))
            # a receive's segment is drawn as the line from the end of its send
            points += [] if action.kind in RECEIVES else [(start_s, strip.middle)]
            # no line through a computation, where its number stands
            points += [GAP] if shown and action.kind in COMPUTE else []
            points.append((end_s, strip.middle))
        points.append(GAP)
    start_s, end_s, middle, height = np.array(bars).reshape(-1, 4).T
    outlines = go.Bar(
        orientation="h",
        base=packed(start_s * scale),
        x=((end_s - start_s) * scale).astype(np.float32),
        y=middle.astype(np.float32),
        width=height.astype(np.float32),
        name="on the critical path",
        showlegend=False,
        hoverinfo="skip",
        marker={"color": "rgba(0, 0, 0, 0)", "line": {"width": 2, "color": CRIMSON}},
    )
    along, across = (np.array(points, dtype=float) * (scale, 1)).T
    lines = [
        go.Scatter(
            x=along.astype(np.float32),
            y=across.astype(np.float32),
            mode="lines",
            name="critical path",
            legendgroup="critical path",
            showlegend=color == CRIMSON,
            hoverinfo="skip",
            line={"width": width, "color": color},
        )
        for width, color in ((4.5, CASING), (2, CRIMSON))
    ]
    return [outlines, *lines]


def _ends(trip: Trip, rows: Rows, side: int) -> tuple[Point, Point]:
    """Both ends of an arrow: on the lanes of sends and receives, or on the first lanes of the devices."""
    if Lane.SEND in rows.lanes:
        begin = trip.send_end_s, rows.strip(trip.send, trip.sender, side).middle
    else:
        begin = trip.send_start_s, rows.first(trip.send.stage, trip.sender, side).middle
    if Lane.RECEIVE in rows.lanes:
        return begin, (trip.receive_end_s, rows.strip(trip.receive, trip.receiver, side).middle)
    return begin, (trip.receive_end_s, rows.first(trip.receive.stage, trip.receiver, side).middle)
