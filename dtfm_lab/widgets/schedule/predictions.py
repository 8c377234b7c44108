"""What the lab says about a schedule on a plan: computed on a thread, shown on the kernel's event loop."""

from __future__ import annotations

from dataclasses import dataclass

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import CAUSES, Trace
from dtfm_lab.domain.units import format_bytes, format_s
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.memory import MemoryReport, memory
from dtfm_lab.simulation.memory_advice import advice
from dtfm_lab.widgets.views.gantt.bars import Chart, ChartRows


@dataclass(frozen=True, eq=False)
class Prediction:
    """A trace of a plan and what is shown of it."""

    plan: Plan
    trace: Trace
    chart: Chart
    rows: ChartRows
    caption: str
    memory: MemoryReport
    lacking: str
    """who lacks memory, how much and what would fit; empty where all fits"""

    @classmethod
    def of(cls, plan: Plan, trace: Trace, note: str = "") -> Prediction:
        rows = ChartRows(trace.context)
        report = memory(plan, trace=trace)
        return cls(plan, trace, rows.chart(trace), rows, told(trace, note), report, lacking(plan, trace, report))


def told(trace: Trace, note: str = "") -> str:
    """``predicted 25.3 s from FLOP and peak · 41,439 tokens/s · MFU 4.7% · bubble 88.1%, chiefly latency (60.2%)``"""
    known = trace.metrics
    parts = [f"predicted {format_s(trace.iteration_s)}{note}{_of_several(trace)}"]
    if known["tokens_per_s"] is not None:
        parts.append(f"{known['tokens_per_s']:,.0f} tokens/s")
    if known["mfu"] is not None:
        parts.append(f"MFU {known['mfu']:.1%}")
    if trace.after is not None:
        share, cause, of_cause = idle(trace)
        parts.append(f"bubble {share:.1%}" + (f", chiefly {cause} ({of_cause:.1%})" if share > 0 else ""))
    return " · ".join(parts)


def _of_several(trace: Trace) -> str:
    """Which iteration is drawn, where not every one averages."""
    every = trace.context.synchronise_every
    if every == 1:
        return ""
    does = "averages" if (trace.typical_iteration + 1) % every == 0 else "does not average"
    return f", the mean of {every:,} iterations (drawn: one that {does})"


def idle(trace: Trace) -> tuple[float, str, float]:
    """The share of device time without computing, its largest cause, and the share that is."""
    frame = trace.bubble
    whole_s = float(frame["iteration_s"].sum())
    causes = {cause.value: float(frame[f"{cause}_s"].sum()) for cause in CAUSES}
    largest = max(causes, key=lambda cause: causes[cause])
    if whole_s <= 0:
        return 0.0, largest, 0.0
    return sum(causes.values()) / whole_s, largest, causes[largest] / whole_s


def lacking(plan: Plan, trace: Trace, report: MemoryReport) -> str:
    if report.fits:
        return ""
    # advice goes by the order alone, which may fit where messages that wait for their turn do not
    return advice(plan, _schedule(trace)) or report.sentence


@dataclass(frozen=True)
class Candidate:
    """A row of the comparison of schedules."""

    name: str
    iteration_s: float
    bubble: float
    """share of device time without computing"""
    memory: str
    """what the worst device needs and has"""
    fits: bool

    @classmethod
    def of(cls, plan: Plan, schedule: str, queueing: str) -> Candidate:
        trace = simulate(plan, schedule, queueing=queueing)
        report = memory(plan, trace=trace)
        return cls(schedule, trace.iteration_s, idle(trace)[0], _worst(report), report.fits)


def _worst(report: MemoryReport) -> str:
    position, replica = report.worst
    needs, has = report.peak_bytes[position, replica], report.limit_bytes[position, replica]
    return f"{format_bytes(needs)} of {format_bytes(has)} on {report.devices[position][replica]}"


def _schedule(trace: Trace) -> Schedule:
    return Schedule.from_orders(trace.context.schedule, trace.context.orders)
