"""Schedules of one plan under each other on one time axis."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go

from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.schedule import Lane
from dtfm_lab.domain.trace import RunContext, Span, Trace
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.palette import LINE_GREY
from dtfm_lab.figures.panels import stacked
from dtfm_lab.figures.theme import LEGEND_BELOW, literal, percent, time_unit, titled, with_headings
from dtfm_lab.figures.timeline.bars import LABELLED_UP_TO, Rows, bars
from dtfm_lab.figures.timeline.gantt import MOST_BARS, spans_of
from dtfm_lab.simulation.schedules import peak_activations

HEADING_PX = 36
LANE_PX = {20: 24, 15: 64, 9: 10**9}
"""Heights of a row in pixels, and the most rows at which each is used."""
LEVEL = 0.0005
"""Relative difference of two iterations up to which they count as equally long."""


def side_by_side(traces: Sequence[Trace], *, replica: int | None = None) -> go.Figure:
    """A small Gantt chart of the computations of one pipeline for each trace, with what it costs in time and memory.

    Parameters
    ----------
    traces
        Traces of one placement, under several schedules, or under one schedule with several settings.
    replica
        The pipeline to draw; None stands for the one whose last computation ends last in the first trace.

    Raises
    ------
    TraceError
        No traces, traces of different placements, no such replica, more than 20,000 bars.
    """
    replica = _checked(traces, replica)
    shown = [_of_one(trace, replica) for trace in traces]
    if (n_bars := sum(map(len, (spans for _, spans in shown)))) > MOST_BARS:
        raise TraceError(f"{len(traces)} traces have {n_bars:,} computations to draw; wanted at most {MOST_BARS:,}")
    n_rows = sum(len(context.devices) for context, _ in shown)
    lane_px = next(px for px, most in LANE_PX.items() if n_rows <= most)
    panels = [Rows(c.devices, (Lane.COMPUTE,), 1, c.stages_per_device, lane_px=lane_px) for c, _ in shown]
    names = _names([trace.context for trace in traces])
    lengths_s = [trace.iteration_s for trace in traces]
    ends_s = [float(trace.end_s[trace.iteration == trace.typical_iteration].max()) for trace in traces]
    unit, scale = time_unit(max(ends_s))
    drawn_px = sum(rows.height_px for rows in panels)
    total_px = drawn_px + HEADING_PX * (len(panels) - 1)
    headings = [_heading(trace, name) for trace, name in zip(traces, names, strict=True)]
    figure = stacked([rows.height_px for rows in panels], headings, gap_px=HEADING_PX, total_px=total_px)
    labelled = n_bars <= LABELLED_UP_TO
    named: set[str | None] = set()
    for number, ((context, spans), rows, end_s) in enumerate(zip(shown, panels, ends_s, strict=True), start=1):
        for bar in bars([spans], [context], rows, unit, [""], labelled=labelled):
            bar.showlegend = bool(bar.showlegend) and bar.name not in named
            named.add(bar.name)
            figure.add_trace(bar, row=number, col=1)
        axis = {**rows.axis(), "tickfont_size": 8 if lane_px < 15 else 11}
        figure.update_yaxes(**axis, row=number, col=1)
        figure.add_vline(x=end_s * scale, line={"width": 1.5, "color": LINE_GREY}, row=number, col=1)
    figure.update_xaxes(range=[0, max(ends_s) * scale * 1.01], zeroline=False)
    figure.update_xaxes(title_text=f"time since the iteration began ({unit})", row=len(panels), col=1)
    context = traces[0].context
    n_replicas = len(context.devices[0])
    remarks = [f"computations of pipeline {replica}" + (f", one of {n_replicas}" if n_replicas > 1 else "")]
    if any(trace.context.microbatches_per_replica for trace in traces):
        counts = sorted({trace.context.microbatch_counts[replica] for trace in traces})
        remarks.append(f"with {' or '.join(map(str, counts))} micro-batches of its own")
    remarks += ["paler: a device's later stages"] if any(c.stages_per_device > 1 for c, _ in shown) else []
    titled(
        figure,
        _title(names, lengths_s),
        " · ".join([f"{context.job} on {context.topology}", *remarks, "line: the iteration's end"]),
        alt=_alt(traces, names),
        barmode="overlay",
        height=max(300, int(total_px) + 202),
        hovermode="closest",
        legend=LEGEND_BELOW,
        margin_b=98,
        uniformtext={"minsize": 8, "mode": "hide"},
    )
    return with_headings(figure)


def _checked(traces: Sequence[Trace], replica: int | None) -> int:
    """The replica to draw; raises TraceError where the traces cannot be drawn together."""
    if not traces:
        raise TraceError("no traces to draw; wanted at least one")
    first = traces[0]
    devices = first.context.devices
    if any(trace.context.devices != devices for trace in traces):
        raise TraceError("the traces are of different placements; wanted all of one plan")
    n_replicas = len(devices[0])
    if replica is None:
        spans = spans_of(first, first.typical_iteration, (Lane.COMPUTE,))
        return max(spans, key=lambda span: (span.end_s, -span.replica)).replica
    if not 0 <= replica < n_replicas:
        raise TraceError(f"replica is {replica}; wanted 0 to {n_replicas - 1}")
    return replica


def _of_one(trace: Trace, replica: int) -> tuple[RunContext, list[Span]]:
    """Context and computations of one pipeline, as if it were the only one."""
    context = replace(
        trace.context,
        devices=tuple((group[replica],) for group in trace.context.devices),
        n_microbatches=trace.context.microbatch_counts[replica],
        microbatches_per_replica=(),
    )
    spans = spans_of(trace, trace.typical_iteration, (Lane.COMPUTE,))
    return context, [span._replace(replica=0) for span in spans if span.replica == replica]


def _held(trace: Trace) -> int | None:
    """Most activations that a device holds at once; None where the trace does not hold its schedule."""
    context = trace.context
    return max(peak_activations(context.recorded_schedule)) if context.orders else None


def _heading(trace: Trace, name: str) -> str:
    held = _held(trace)
    parts = [f"{format_s(trace.iteration_s)} an iteration", f"{percent(1 - trace.compute_share)} bubble"]
    size = " of smaller stages" if trace.context.stages_per_device > 1 else ""
    parts += [f"{held} activation{'s' * (held != 1)}{size} held at most"] if held is not None else []
    return f"<b>{literal(name)}</b> · " + " · ".join(parts)


def _names(contexts: Sequence[RunContext]) -> list[str]:
    """Each trace's schedule, and the settings in which it differs from the others."""
    settings: dict[str, list[Any]] = {
        "{}": [context.source for context in contexts],
        "{} clock": [context.clock for context in contexts],
        "{} micro-batches": [context.microbatches for context in contexts],
        "queueing {}": [context.queueing for context in contexts],
        "synchronisation {}": [context.synchronisation for context in contexts],
        "synchronising every {}": [context.synchronise_every for context in contexts],
    }
    differing = {words: values for words, values in settings.items() if len(set(values)) > 1}
    return [
        ", ".join([context.schedule, *(words.format(values[i]) for words, values in differing.items())])
        for i, context in enumerate(contexts)
    ]


def _title(names: Sequence[str], lengths_s: Sequence[float]) -> str:
    """The fastest schedules, and how much longer the slowest takes."""
    fastest, slowest = min(lengths_s), max(lengths_s)
    if slowest <= fastest * (1 + LEVEL):
        return f"{format_s(fastest)} an iteration" + (" with each" if len(names) > 1 else "")
    best = dict.fromkeys(name for name, s in zip(names, lengths_s, strict=True) if s <= fastest * (1 + LEVEL))
    worst = names[lengths_s.index(slowest)]
    are = "are" if len(best) > 1 else "is"
    return f"{' and '.join(best)} {are} fastest; {worst} takes {percent(slowest / fastest - 1)} longer"


def _alt(traces: Sequence[Trace], names: Sequence[str]) -> str:
    each = (
        f"{name} {format_s(t.iteration_s)} an iteration, {percent(1 - t.compute_share)} bubble"
        + ("" if (held := _held(t)) is None else f", {held} activations held at most")
        for t, name in zip(traces, names, strict=True)
    )
    return f"Schedules under each other on one time axis: {'; '.join(each)}."
