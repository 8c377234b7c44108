"""A trace as a Gantt chart: what every device did, and when."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.schedule import Lane
from dtfm_lab.domain.trace import Span, Trace, predicted_ends
from dtfm_lab.domain.units import format_range, format_s
from dtfm_lab.figures.theme import time_unit, titled
from dtfm_lab.figures.timeline.bars import Rows, bars
from dtfm_lab.figures.timeline.overlays import MOST_ARROWS, arrows, critical_path, trips_of

ALL_LANES = tuple(lane.value for lane in Lane)
ZONE = "rgba(128, 128, 128, 0.18)"
"""Colour of the interval in which an iteration ends, on light and dark pages alike."""
MOST_BARS = 20_000
"""Most bars of a chart; with more, a browser takes many seconds to draw."""


def gantt(
    trace: Trace,
    *,
    iteration: int | None = None,
    lanes: Sequence[str] = ALL_LANES,
    against: Trace | None = None,
    critical: bool = False,
    messages: bool = False,
) -> go.Figure:
    """One iteration: a row for each device and lane, first stage on top, a bar for each action.

    Where a device holds several stages, the bars of the first are darkest and those of the last palest.

    Parameters
    ----------
    iteration
        The iteration to draw; None stands for the one nearest the median. A trace of a single iteration, such as
        a prediction, is drawn whichever iteration of the other trace is asked for.
    lanes
        Any of "compute", "send", "receive". Above 20,000 bars only computations are drawn.
    against
        A second trace of the same placement, hatched, below the first in each row.
    critical
        Whether the bars that the iteration's length is made of are outlined and joined by a line, for each trace
        that has its column ``after``.
    messages
        Whether up to 600 arrows run from sender to receiver. They begin when the last byte leaves, or, where sends
        and receives have no lane, when the first does.

    Raises
    ------
    TraceError
        No such iteration; traces of different placements; no lane; a critical path that no trace holds.
    UnknownName
        No such lane.
    """
    given = [trace] if against is None else [trace, against]
    devices = trace.context.devices
    if against is not None and against.context.devices != devices:
        raise TraceError("the two traces are of different placements; wanted two of one plan")
    wanted = _lanes(lanes)
    chosen = _iterations(given, iteration)
    sides = [spans_of(t, i, wanted) for t, i in zip(given, chosen, strict=True)]
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
    return titled(
        figure,
        _title(given, words, lengths_s),
        _subtitle(given, words, chosen, remarks),
        barmode="overlay",
        height=max(300, rows.height_px + 168),
        uniformtext={"minsize": 8, "mode": "hide"},
    )


def _lanes(lanes: Sequence[str]) -> tuple[Lane, ...]:
    """The lanes of these names, from top to bottom."""
    names = [lanes] if isinstance(lanes, str) else list(lanes)
    for name in names:
        if name not in ALL_LANES:
            raise unknown("lane", name, ALL_LANES)
    if not names:
        raise TraceError(f"no lanes to draw; wanted any of {', '.join(ALL_LANES)}")
    return tuple(lane for lane in Lane if lane.value in names)


def _iterations(traces: list[Trace], iteration: int | None) -> list[int]:
    """The iteration of each trace to draw."""
    if iteration is None:
        return [trace.typical_iteration for trace in traces]
    has_it = [iteration in trace.iteration for trace in traces]
    serves = [found or trace.n_iterations == 1 for found, trace in zip(has_it, traces, strict=True)]
    if not (any(has_it) and all(serves)):
        known = np.concatenate([trace.iteration for trace in traces])
        raise TraceError(f"iteration is {iteration}; wanted one that was traced, {known.min()} to {known.max()}")
    return [iteration if found else int(trace.iteration[0]) for found, trace in zip(has_it, traces, strict=True)]


def spans_of(trace: Trace, iteration: int, lanes: tuple[Lane, ...]) -> list[Span]:
    """The spans of an iteration that are on these lanes."""
    drawn = np.array([action.lane in lanes for action in trace.actions])
    keep = (trace.iteration == iteration) & drawn[trace.action]
    columns = (trace.replica, trace.action, trace.start_s, trace.end_s)
    rows = zip(*(column[keep].tolist() for column in columns), strict=True)
    return [Span(iteration, replica, trace.actions[a], start_s, end_s) for replica, a, start_s, end_s in rows]


def _words(traces: list[Trace]) -> list[str]:
    """A word for each trace that distinguishes it from the other; an empty one where it is alone."""
    if len(traces) == 1:
        return [""]
    for words in ([t.context.source for t in traces], [t.context.schedule for t in traces]):
        if words[0] != words[1]:
            return list(words)
    return ["first", "second"]


def _title(traces: list[Trace], words: list[str], lengths_s: list[float]) -> str:
    """Schedules and clocks, and how long the iteration of each trace took."""
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
