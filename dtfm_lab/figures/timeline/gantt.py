"""A trace as a Gantt chart: what every device did, and when, with messages as arrows and the critical path."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.schedule import COMPUTE, RECEIVES, SENDS, Action, Kind, Lane
from dtfm_lab.domain.trace import RunContext, Span, Trace, predicted_ends
from dtfm_lab.domain.units import FloatArray, format_range, format_s
from dtfm_lab.figures.palette import CONTENT, CRIMSON, EDGES, KIND_COLORS
from dtfm_lab.figures.strokes import packed, strokes
from dtfm_lab.figures.theme import CLEAR, WORDLESS, curve, figure_of, time_unit, titled
from dtfm_lab.figures.timeline.bars import Hover, Rows, bars

ALL_LANES = tuple(lane.value for lane in Lane)
ZONE = "rgba(128, 128, 128, 0.18)"
"""Colour of the interval in which a predicted iteration ends with 90 % confidence, on light and dark pages."""
MOST_BARS = 20_000
"""Maximum number of bars of a chart. With more, a browser takes many seconds to draw."""


@figure_of(Trace)
def gantt(
    trace: Trace,
    *,
    iteration: int | None = None,
    lanes: Sequence[str] = ALL_LANES,
    against: Trace | None = None,
    critical: bool = False,
    messages: bool = False,
) -> go.Figure:
    """One iteration: a row for each device and lane, first stage on top, and a bar for each action.

    If a device holds several stages, the bars of the first stage are darkest and of the last palest.

    Parameters
    ----------
    iteration
        The iteration to draw. None means the one nearest the median. A trace of a single iteration, such as a
        prediction, is drawn for any iteration of the other trace.
    lanes
        Any of "compute", "send", "receive". Above 20,000 bars, only computations are drawn.
    against
        A second trace of the same placement, hatched, below the first in each row.
    critical
        True to outline the bars on the critical path and join them by a line, for each trace with its column ``after``.
    messages
        True to draw an arrow from sender to receiver for each message, unless there are more than 600. It begins when
        the last byte leaves or, if sends have no lane, when the first byte leaves.

    Raises
    ------
    TraceError
        There is no such iteration, the traces have different placements, no lane is given, or no trace holds the
        critical path.
    UnknownName
        There is no such lane.
    """
    given = [trace] if against is None else [trace, against]
    devices = trace.context.devices
    if against is not None and against.context.devices != devices:
        raise TraceError("the two traces are of different placements; wanted two of one plan")
    wanted = _lanes(lanes)
    chosen = _iterations(given, iteration)
    sides = [spans_of(t, i, wanted) for t, i in zip(given, chosen, strict=True)]
    # A page with more bars hardly moves, so messages go first.
    if crowded := sum(map(len, sides)) > MOST_BARS:
        wanted = (Lane.COMPUTE,)
        sides = [spans_of(t, i, wanted) for t, i in zip(given, chosen, strict=True)]
    contexts = [t.context for t in given]
    rows = Rows(devices, wanted, len(sides), max(c.stages_per_device for c in contexts))
    words = _words(given)
    whole_s = max((span.end_s for spans in sides for span in spans), default=0.0)
    unit, scale = time_unit(whole_s)
    figure = go.Figure(bars(sides, contexts, rows, unit, words))
    remarks = [f"computations only: with messages, more than {MOST_BARS:,} bars"] if crowded else []
    if any(c.stages_per_device > 1 for c in contexts):
        remarks.append("paler: a device's later stages")
    if messages:
        trips = [trips_of(t, i) for t, i in zip(given, chosen, strict=True)]
        if (n := sum(map(len, trips))) > MOST_ARROWS:
            remarks.append(f"no arrows: {n:,} messages, more than {MOST_ARROWS}")
        else:
            figure.add_traces(arrows(trips, contexts, rows, unit, whole_s))
    if critical:
        known = [side for side, t in enumerate(given) if t.after is not None] or [0]
        paths = {side: given[side].critical_path(chosen[side]) for side in known}
        figure.add_traces(critical_path({side: (given[side], path) for side, path in paths.items()}, rows, scale))
    lengths_s = [float(t.end_s[t.iteration == i].max()) for t, i in zip(given, chosen, strict=True)]
    until_s = whole_s
    if between := predicted_ends(trace, lengths_s[0]):
        until_s = max(whole_s, between[1])
        zone = {"type": "rect", "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 0}, "layer": "below"}
        figure.add_shape(**zone, x0=between[0] * scale, x1=between[1] * scale, fillcolor=ZONE)
        remarks.append(f"shaded: where it ends with 90 % confidence, {format_range(*between)}")
    figure.update_xaxes(title_text=f"time since the iteration began ({unit})", range=[0, until_s * scale * 1.005])
    figure.update_yaxes(**rows.axis())
    look: dict[str, Any] = {"height": max(300, rows.height_px + 168), "uniformtext": {"minsize": 8, "mode": "hide"}}
    note = _subtitle(given, words, chosen, remarks)
    return titled(figure, _title(given, words, lengths_s), note, barmode="overlay", **look)


def _lanes(lanes: Sequence[str]) -> tuple[Lane, ...]:
    """Return the lanes of these names, from top to bottom. Raises UnknownName for other names, TraceError for none."""
    names = [lanes] if isinstance(lanes, str) else list(lanes)
    for name in names:
        if name not in ALL_LANES:
            raise unknown("lane", name, ALL_LANES)
    if not names:
        raise TraceError(f"no lanes to draw; wanted any of {', '.join(ALL_LANES)}")
    return tuple(lane for lane in Lane if lane.value in names)


def _iterations(traces: list[Trace], iteration: int | None) -> list[int]:
    """Return the iteration of each trace to draw. Raises TraceError if it was not traced."""
    if iteration is None:
        return [trace.typical_iteration for trace in traces]
    has_it = [iteration in trace.iteration for trace in traces]
    # A trace of one iteration can be compared with any iteration of the other trace.
    serves = [found or trace.n_iterations == 1 for found, trace in zip(has_it, traces, strict=True)]
    if not (any(has_it) and all(serves)):
        known = np.concatenate([trace.iteration for trace in traces])
        raise TraceError(f"iteration is {iteration}; wanted one that was traced, {known.min()} to {known.max()}")
    return [iteration if found else int(trace.iteration[0]) for found, trace in zip(has_it, traces, strict=True)]


def spans_of(trace: Trace, iteration: int, lanes: tuple[Lane, ...]) -> list[Span]:
    """Return the spans of an iteration that are on these lanes."""
    on_lanes = np.array([action.lane in lanes for action in trace.actions])
    keep = (trace.iteration == iteration) & on_lanes[trace.action]
    columns = (trace.replica, trace.action, trace.start_s, trace.end_s)
    rows = zip(*(column[keep].tolist() for column in columns), strict=True)
    return [Span(iteration, replica, trace.actions[a], start_s, end_s) for replica, a, start_s, end_s in rows]


def _words(traces: list[Trace]) -> list[str]:
    """Return a word for each trace that distinguishes it from the other; an empty one if there is only one trace."""
    if len(traces) == 1:
        return [""]
    for words in ([t.context.source for t in traces], [t.context.schedule for t in traces]):
        if words[0] != words[1]:
            return list(words)
    return ["first", "second"]


def _title(traces: list[Trace], words: list[str], lengths_s: list[float]) -> str:
    """Return schedules and clocks, and how long the iteration of each trace took."""
    contexts = [trace.context for trace in traces]
    schedule = " and ".join(dict.fromkeys(c.schedule for c in contexts))
    clock = " and ".join(dict.fromkeys(c.clock for c in contexts))
    took = ", ".join(f"{format_s(s)} {word}".strip() for word, s in zip(words, lengths_s, strict=True))
    return f"{schedule} · {clock} clock · {took} an iteration"


def _subtitle(traces: list[Trace], words: list[str], chosen: list[int], remarks: list[str]) -> str:
    context = traces[0].context
    parts = [f"{context.job} on {context.topology}"]
    parts += [f"{words[0]} above, {words[1]} below and hatched"] if len(traces) > 1 else [context.source]
    parts += [
        f"iteration {i} ({t.n_iterations} in all)" for t, i in zip(traces, chosen, strict=True) if t.n_iterations > 1
    ]
    measured = [trace.context for trace in traces if trace.context.source == "measured"]
    parts += [context.provenance.removeprefix(f"{context.clock} clock, ") for context in measured[:1]]
    return " · ".join(parts + remarks)


MOST_ARROWS = 600
"""Maximum number of arrows of a chart. More would hide the bars, so none is drawn for more messages."""
ARROW: dict[str, Any] = {"symbol": "arrow", "angleref": "previous", "opacity": 1, "line": {"width": 0}}
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
    """Return the messages of an iteration whose send and receive are both in the trace."""
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
    """Return arrows from the sender's row to the receiver's, one plotly trace per kind of message."""
    ways: dict[Kind, list[FloatArray]] = defaultdict(list)
    words: dict[Kind, list[str]] = defaultdict(list)
    data: dict[Kind, list[tuple[float, ...]]] = defaultdict(list)
    hovers = [Hover(context, unit, whole_s) for context in contexts]
    for side, (trips, hover) in enumerate(zip(sides, hovers, strict=True)):
        for trip in trips:
            kind = trip.send.kind
            # With a row for sends, the arrow begins where the bar ends.
            left_s = trip.send_end_s if Lane.SEND in rows.lanes else trip.send_start_s
            top, bottom = rows.strip(trip.send, trip.sender, side), rows.strip(trip.receive, trip.receiver, side)
            ends = (left_s * hover.scale, top.middle), (trip.receive_end_s * hover.scale, bottom.middle)
            ways[kind].append(np.array(ends))
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
            # Where messages have bars, these are in the legend already.
            showlegend=not {Lane.SEND, Lane.RECEIVE} & set(rows.lanes),
            line={"width": 1.2, "color": (color := EDGES.get(KIND_COLORS[kind], KIND_COLORS[kind]))},
            marker={**ARROW, "size": np.tile([0, 8, 0], len(ways[kind])), "color": color},
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
    """Return outlines of the bars on each side's critical path, and a line from one to the next.

    Messages whose lane is not drawn are drawn on the first lane of their devices.
    """
    bars: list[tuple[float, float, float, float]] = []
    points: list[Point] = []
    for side, (trace, path) in paths.items():
        for row, start_s, end_s in path[["row", "start_s", "end_s"]].itertuples(index=False):
            action, replica = trace.actions[trace.action[row]], int(trace.replica[row])
            shown = action.lane in rows.lanes
            strip = rows.strip(action, replica, side)
            if shown:
                bars.append((trace.start_s[row], trace.end_s[row], strip.middle, strip.height))
            # a receive's segment is drawn as the line from the end of its send
            points += [] if action.kind in RECEIVES else [(start_s, strip.middle)]
            # no line through a computation: it would cross the bar's number
            points += [GAP] if shown and action.kind in COMPUTE else []
            points.append((end_s, strip.middle))
        points.append(GAP)
    start_s, end_s, middle, height = np.array(bars).reshape(-1, 4).T
    look = {"color": CLEAR, "line": {"width": 2, "color": CRIMSON}}
    lasts, y, width = (column.astype(np.float32) for column in ((end_s - start_s) * scale, middle, height))
    outlines = go.Bar(orientation="h", base=packed(start_s * scale), x=lasts, y=y, width=width, marker=look)
    outlines.update(name="on the critical path", showlegend=False, hoverinfo="skip")
    along, across = (np.array(points, dtype=float) * (scale, 1)).T.astype(np.float32)
    group = {"legendgroup": "critical path"}
    casing = curve(along, across, "critical path", CASING, 4.5, showlegend=False, **group)
    lines = [casing, curve(along, across, "critical path", CRIMSON, 2, **group)]
    return [outlines, *lines]
