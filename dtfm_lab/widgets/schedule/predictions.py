"""A schedule on a plan, as the lab shows it. Threads compute it; it contains no widget."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import CAUSES, Trace
from dtfm_lab.domain.trace.causes import Cause
from dtfm_lab.domain.units import format_s
from dtfm_lab.simulation import schedules, simulate
from dtfm_lab.simulation.memory import MemoryReport, memory
from dtfm_lab.widgets.views.gantt.bars import Chart, ChartRows

WAITS = {
    Cause.SYNCHRONISATION: ("for averaging", "averaging"),
    Cause.BANDWIDTH: ("for bandwidth", "dark"),
    Cause.LATENCY: ("for latency", "middle"),
    Cause.QUEUE: ("behind others", "middle"),
    Cause.DEPENDENCY: ("for others", "light"),
    Cause.STRAGGLER: ("for slow devices", "light"),
}
"""What an idle device waits for, in words, and the tone of its share."""
FLOP = "FLOP"
"""What computations are predicted from where no profile has been taken."""
AS_DRAWN = " from FLOP and peak, links as drawn"
"""The note of a prediction of what is drawn and chosen."""
LEAST_SHARE = 0.004
"""Share of an iteration that is worth a word."""


@dataclass(frozen=True, eq=False)
class ChartedPrediction:
    """A trace of a plan, and what the chart shows of it."""

    plan: Plan
    trace: Trace
    chart: Chart
    rows: ChartRows
    caption: str
    memory: MemoryReport
    lacking: str
    """Which devices lack memory, how much, and what would fit; empty where all fits."""
    shares: list[dict[str, Any]]
    """What a device's time goes to, as ``GanttView.shares`` takes it."""

    @property
    def source(self) -> str:
        """What computations were predicted from."""
        return FLOP if self.trace.context.clock == "model" else "the profile"

    @classmethod
    def of(cls, plan: Plan, trace: Trace, note: str = "") -> ChartedPrediction:
        """Read the trace; ``note`` comes into the caption and names what the trace was predicted from."""
        rows = ChartRows(trace.context)
        report = memory(plan, trace=trace)
        frame = None if trace.after is None else trace.bubble
        trace.travel  # noqa: B018 (it is kept: the bar reads it on the kernel's loop)
        caption, shares = describe(trace, note, frame), [] if frame is None else shares_of(frame)
        return cls(plan, trace, rows.chart(trace), rows, caption, report, report.advice, shares)


def describe(trace: Trace, note: str = "", bubble: pd.DataFrame | None = None) -> str:
    """Return ``predicted 25.3 s from FLOP and peak · 41,439 tokens/s · MFU 4.7% · bubble 88.1%, chiefly latency``."""
    known = trace.metrics
    parts = [f"predicted {format_s(trace.iteration_s)}{note}{_drawn_iteration(trace)}"]
    if known["tokens_per_s"] is not None:
        parts.append(f"{known['tokens_per_s']:,.0f} {trace.context.counted}/s")
    if known["mfu"] is not None:
        parts.append(f"MFU {known['mfu']:.1%}")
    if bubble is not None:
        share, cause, of_cause = _idle(bubble)
        parts.append(f"bubble {share:.1%}" + (f", chiefly {cause} ({of_cause:.1%})" if round(share, 3) > 0 else ""))
    return " · ".join(parts)


def _drawn_iteration(trace: Trace) -> str:
    """Return which iteration is drawn, where not every one averages; else an empty text."""
    every = trace.context.synchronise_every
    if every == 1:
        return ""
    does = "averages" if (trace.typical_iteration + 1) % every == 0 else "does not average"
    return f", the mean of {every:,} iterations (drawn: one that {does})"


def shares_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return {"name", "share", "tone"} of what a device's time goes to, the mean of all, computing first, then the
    largest.

    ``frame`` is a trace's ``bubble``.
    """
    whole_s = float(frame["iteration_s"].sum())
    if whole_s <= 0:
        return []
    seconds = [(float(frame[f"{cause}_s"].sum()), name, tone) for cause, (name, tone) in WAITS.items()]
    largest_first = [(s / whole_s, name, tone) for s, name, tone in sorted(seconds, reverse=True)]
    said = [(share, name, tone) for share, name, tone in largest_first if share >= LEAST_SHARE]
    computing = {"name": "mean device computes", "share": float(frame["busy_s"].sum()) / whole_s, "tone": "ink"}
    return [
        computing,
        *(
            {"name": f"waits {name}" if number == 0 else name, "share": share, "tone": tone}
            for number, (share, name, tone) in enumerate(said)
        ),
    ]


def _idle(frame: pd.DataFrame) -> tuple[float, str, float]:
    """Return the share of device time without computing, its largest cause, and that cause's share."""
    whole_s = float(frame["iteration_s"].sum())
    causes = {cause.value: float(frame[f"{cause}_s"].sum()) for cause in CAUSES}
    largest = max(causes, key=lambda cause: causes[cause])
    if whole_s <= 0:
        return 0.0, largest, 0.0
    return sum(causes.values()) / whole_s, largest, causes[largest] / whole_s


def predicted(plan: Plan, schedule: str, queueing: str, *, may_differ: bool = False) -> ChartedPrediction:
    """Predict a plan; where its schedule lacks memory and ``may_differ``, under the first that has enough."""
    charted = ChartedPrediction.of(plan, simulate(plan, schedule, queueing=queueing), AS_DRAWN)
    # in a trace messages wait, so that a schedule whose trace fits fits by its order of passes, too
    if not may_differ or charted.memory.fits or (fitting := _fitting(plan, schedule)) == schedule:
        return charted
    note = f"{AS_DRAWN}, under {fitting} because {schedule} lacks memory"
    return ChartedPrediction.of(plan, simulate(plan, fitting, queueing=queueing), note)


def _fitting(plan: Plan, schedule: str) -> str:
    """Return the schedule if the devices have the memory for it, else the first that they have it for, else itself."""
    for name in (schedule, *schedules):
        with suppress(LabError):  # not every schedule suits every plan
            if memory(plan, name).fits:
                return name
    return schedule


def is_comparable(one: ChartedPrediction, other: ChartedPrediction) -> bool:
    """Whether two predictions have the same rows, of the same network and job."""
    names = [(prediction.plan.topology.name, prediction.plan.job.name) for prediction in (one, other)]
    return one.rows.shape == other.rows.shape and names[0] == names[1]


def changed_source(before: ChartedPrediction, after: ChartedPrediction) -> str:
    """Return how the seconds changed because they are predicted from something else; empty where they are not."""
    if before.source == after.source:
        return ""
    change = f"{format_s(before.trace.iteration_s)} \u2192 {format_s(after.trace.iteration_s)}"
    if after.source == FLOP:
        return f"Iteration {change}: predicted from FLOP again, as the profile is of what ran before."
    return f"Iteration {change}: predicted from the profile just taken, no longer from FLOP."
