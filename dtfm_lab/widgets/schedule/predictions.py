"""A schedule on a plan, computed on a thread, and its chart: the bars, ghosts of earlier ones, selection and file
exports."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import CAUSES, Trace, predicted_ends
from dtfm_lab.domain.trace.causes import Cause
from dtfm_lab.domain.units import format_s, format_share
from dtfm_lab.files.traces import save_chrome_trace
from dtfm_lab.planning.explain.iteration_analysis import CLASSES
from dtfm_lab.simulation import schedules, simulate
from dtfm_lab.simulation.memory import MemoryReport, memory
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import button, classed
from dtfm_lab.widgets.lab_state import Guard, LabState
from dtfm_lab.widgets.tasks import Result, begin, run_on_thread
from dtfm_lab.widgets.views.gantt import GanttView
from dtfm_lab.widgets.views.gantt.bars import NO_BARS, ROWS_PER_DEVICE, Chart, ChartRows, legend, units_of

WAITS = {
    Cause.SYNCHRONISATION: "for averaging",
    Cause.BANDWIDTH: "for bandwidth",
    Cause.LATENCY: "for latency",
    Cause.QUEUE: "behind other messages",
    Cause.DEPENDENCY: "for other devices",
    Cause.STRAGGLER: "for slow devices",
}
"""What an idle device waits for, in words."""
ON_PATH = {"device": ("computing", "ink"), "link": ("messages", "dark"), "synchronisation": ("averaging", "averaging")}
"""{kind of entry on the critical path: (its name, tone of its share)}, for ``GanttView.shares``."""
FLOP = "FLOP"
"""Source of predicted computing times if there is no profile."""
AS_SPECIFIED = " from FLOP and peak speed, links as drawn"
"""Part of the caption of a prediction from FLOP, for the network as drawn."""
FROM_PROFILE = " from the last profile"
LEAST_SHARE = 0.004
"""Minimum share of the iteration for a part of it to be shown."""


@dataclass(frozen=True, eq=False)
class ChartedPrediction:
    """A trace of a plan, and the chart's data."""

    plan: Plan
    trace: Trace
    chart: Chart
    rows: ChartRows
    caption: str
    memory: MemoryReport
    lacking: str
    """Which devices lack memory, how much, and what would fit. Empty if all fit."""
    shares: list[dict[str, Any]]
    """What the iteration's length consists of, for ``GanttView.shares``."""

    @property
    def source(self) -> str:
        """What the computing times were predicted from."""
        return FLOP if self.trace.context.clock == "model" else "the profile"

    @classmethod
    def of(cls, plan: Plan, trace: Trace, note: str = "") -> ChartedPrediction:
        """Return the trace with its chart. ``note`` is for the caption and says what the trace was predicted from."""
        rows = ChartRows(trace.context)
        report = memory(plan, trace=trace)
        frame = None if trace.after is None else trace.bubble
        trace.travel  # noqa: B018 (a cached property, computed here because the bar reads it on the kernel's loop)
        caption, shares = describe(trace, note, frame), [] if frame is None else shares_of(trace)
        return cls(plan, trace, rows.chart(trace), rows, caption, report, report.advice, shares)


def describe(trace: Trace, note: str = "", bubble: pd.DataFrame | None = None) -> str:
    """Return ``predicted 25.3 s from FLOP and peak · 41,439 tokens/s · MFU 4.7 % · devices wait 88.1 %, chiefly...``"""
    known = trace.metrics
    part = f"{trace.context.part}: " if trace.context.part else ""
    worth = f", {trace.context.basis.word}" if trace.context.basis.word else ""
    parts = [f"{part}predicted {format_s(trace.iteration_s)}{note}{worth}{_displayed_iteration(trace)}"]
    if known["tokens_per_s"] is not None:
        parts.append(f"{known['tokens_per_s']:,.0f} {trace.context.plan.counted}/s")
    if known["mfu"] is not None:
        parts.append(f"MFU {format_share(known['mfu'])}")
    if bubble is not None:
        share, cause, of_cause = _idle(bubble)
        chiefly = f", chiefly {WAITS[Cause(cause)]} ({format_share(of_cause)})" if round(share, 3) > 0 else ""
        parts.append(f"devices wait {format_share(share)}{chiefly}")
    return " · ".join(parts)


def _displayed_iteration(trace: Trace) -> str:
    """Return which iteration is drawn, if replicas average only in some iterations. Empty otherwise."""
    every = trace.context.synchronise_every
    if every == 1:
        return ""
    does = "averages" if (trace.typical_iteration + 1) % every == 0 else "does not average"
    return f", on average over {every:,} iterations (shown: one that {does})"


def shares_of(trace: Trace) -> list[dict[str, Any]]:
    """Return {"name", "share", "tone"} of the parts of the iteration's length, longest first.

    These are shares of the critical path, as in the sentence on what limits the plan.
    """
    summary = trace.critical_summary()
    rows = summary[summary["by"] == "what"]
    shares = dict.fromkeys(ON_PATH, 0.0)
    for name, share in zip(rows["name"], rows["share"], strict=True):
        shares[CLASSES.get(name, "device")] += float(share)
    said = sorted(((share, what) for what, share in shares.items() if share >= LEAST_SHARE), reverse=True)
    entries = [{"name": ON_PATH[what][0], "share": share, "tone": ON_PATH[what][1]} for share, what in said]
    entries[:1] = [first | {"name": f"critical path: {first['name']}"} for first in entries[:1]]
    return entries


def _idle(frame: pd.DataFrame) -> tuple[float, str, float]:
    """Return the share of device time without computing, its largest cause, and that cause's share of device time."""
    whole_s = float(frame["iteration_s"].sum())
    causes = {cause.value: float(frame[f"{cause}_s"].sum()) for cause in CAUSES}
    largest = max(causes, key=lambda cause: causes[cause])
    if whole_s <= 0:
        return 0.0, largest, 0.0
    return sum(causes.values()) / whole_s, largest, causes[largest] / whole_s


def predicted(plan: Plan, schedule: str, queueing: str, *, may_differ: bool = False) -> ChartedPrediction:
    """Predict a plan. With ``may_differ``, a schedule that lacks memory is replaced by the first that fits, if any
    does."""
    charted = ChartedPrediction.of(plan, simulate(plan, schedule, queueing=queueing), AS_SPECIFIED)
    # a trace includes waiting messages, so a schedule whose trace fits also fits by its order of passes
    if not may_differ or charted.memory.fits or (fitting := _fitting(plan, schedule)) == schedule:
        return charted
    note = f"{AS_SPECIFIED}, under {fitting} because {schedule} lacks memory"
    return ChartedPrediction.of(plan, simulate(plan, fitting, queueing=queueing), note)


def _fitting(plan: Plan, schedule: str) -> str:
    """Return the schedule if it fits in memory, else the first that does, else the schedule itself."""
    for name in (schedule, *schedules):
        with suppress(LabError):  # not every schedule suits every plan
            if memory(plan, name).fits:
                return name
    return schedule


def is_comparable(one: ChartedPrediction, other: ChartedPrediction) -> bool:
    """True if two predictions have the same network and job, by name, and their charts have the same rows."""
    names = [(prediction.plan.topology.name, prediction.plan.job.name) for prediction in (one, other)]
    return one.rows.shape == other.rows.shape and names[0] == names[1]


def changed_source(before: ChartedPrediction, after: ChartedPrediction) -> str:
    """Return how the seconds changed because they are now predicted from another source. Empty if the source is the
    same."""
    if before.source == after.source:
        return ""
    change = f"{format_s(before.trace.iteration_s)} \u2192 {format_s(after.trace.iteration_s)}"
    if after.source == FLOP:
        return f"Iteration {change}: predicted from FLOP again, because the profile is of the previous run."
    return f"Iteration {change}: predicted from the profile just taken, no longer from FLOP."


class PredictionChart(GanttView):
    """A chart whose ``show`` draws a prediction, and the one before as a thin line.

    Made for a pane: it fills its parent element, and leaves heading and legend to the lab.
    """

    def __init__(self, **traits: Any) -> None:
        super().__init__(**({"height": 0, "bare": True, "overview": False} | traits))
        self._stop: Callable[[], object] | None = None

    def show(self, prediction: ChartedPrediction, before: ChartedPrediction | None = None) -> None:
        """Draw a prediction. Bars of the same rows glide to their new places.

        ``before`` stays as a thin line under each lane, with a mark where it ended, if it has as many stages and
        replicas.
        """
        context, chart, rows = prediction.trace.context, prediction.chart, prediction.rows
        regions = {device.name: device.region for device in prediction.plan.topology.devices}
        # Several stages of one device get different shades.
        n_shades = context.stages_per_device
        # Bars of other rows have nowhere to glide from.
        has_ghost = before is not None and before is not prediction and before.rows.shape == rows.shape
        # One message, else the page would draw new bars with old rows.
        with self.hold_sync():
            self.set_predicted(
                chart,
                rows=rows.labels,
                names=[name for name in rows.names for _ in range(ROWS_PER_DEVICE)],
                devices=rows.devices,
                kinds=legend(n_shades),
                devices_per_pipeline=len(context.devices) if n_shades > 1 else 0,
                units=units_of(rows, regions),
                n_stages=len(context.devices),
                before=before.chart.bars if before is not None and has_ghost else NO_BARS,
            )
            displayed_s = prediction.chart.bars.end
            ends_s = predicted_ends(prediction.trace, float(displayed_s.max())) if len(displayed_s) else None
            self.interval = list(ends_s or ())
            self.title = f"One iteration under {context.schedule}"
            self.caption, self.stale = prediction.caption, ""
            self.shares = prediction.shares

    async def wait_for(self, work: Callable[[], Result], words: str, set_slow: Callable[[bool], None]) -> Result | None:
        """Run ``work`` on a thread and return its result, or raise what it raises. None once ``stop`` is called.

        If the work takes long, the chart shows ``words`` and ``set_slow(True)`` is called. ``set_slow(False)`` is
        called at the end.
        """
        stopped = (
            asyncio.Event()
        )  # one event per wait, because a kernel's cells and its messages may run on different loops
        self._stop = partial(asyncio.get_running_loop().call_soon_threadsafe, stopped.set)

        def on_slow() -> None:
            self.busy = words
            set_slow(True)

        try:
            return await run_on_thread(work, stopped, on_slow)
        finally:
            self._stop = None
            self.busy = ""
            set_slow(False)

    def stop(self) -> None:
        """Stop waiting for the work of ``wait_for``, which then returns None."""
        if self._stop is not None:
            self._stop()


class ScheduleChart:
    """``view`` draws a prediction and a measurement. It shares its selection with ``lab_state``."""

    def __init__(self, lab_state: LabState, words: str) -> None:
        self._lab_state = lab_state
        self._shown: ChartedPrediction | None = None
        self._drawn: tuple[Chart, ChartedPrediction | None] | None = None
        self._is_following = Guard()
        self.view = classed(PredictionChart(title="One iteration", empty_words=words), "dtfm-fill")
        lab_state.observe(lambda _: self._select(), ["selected", "selected_stage"])
        self.view.observe(lambda change: self._take_selected(change["name"]), ["selected", "selected_stage"])

    def draw(self, prediction: ChartedPrediction, before: ChartedPrediction | None = None) -> None:
        """Draw a prediction, with ``before`` as a line. What is drawn already is not sent again."""
        drawn, self._drawn, self._shown = self._drawn, (prediction.chart, before), prediction
        if drawn is None or drawn[0] is not prediction.chart or drawn[1] is not before:
            self.view.show(prediction, before)
        else:
            self.view.stale = ""
        self._select()

    def fill(self, measured: Trace) -> None:
        """Draw a measurement below the prediction, if it has as many rows."""
        if self._shown is not None and ChartRows(measured.context).shape == self._shown.rows.shape:
            self.view.show_measured(measured)

    def clear(self, words: str) -> None:
        """Show only these words."""
        self._shown = self._drawn = None
        self.view.clear()
        self.view.title, self.view.empty_words = "One iteration", words

    def _select(self) -> None:
        with self._is_following:
            self.view.selected = [name for name in self._lab_state.selected if name in self.view.devices]
            self.view.selected_stage = self._lab_state.selected_stage

    def _take_selected(self, name: str) -> None:
        if self._is_following:
            return
        if name == "selected":
            self._lab_state.selected = tuple(self.view.selected)
        else:
            self._lab_state.selected_stage = self.view.selected_stage


class GanttExports:
    """Two buttons that download a file from the page: the chart as an image, and the trace."""

    def __init__(
        self, chart: GanttView, trace: Callable[[], Trace | None], report_error: Callable[[str], None]
    ) -> None:
        self._chart, self._trace, self._report_error = chart, trace, report_error
        self.png = button(
            "PNG", "picture-o", "Save the visible chart as an image, on white, at double resolution", "78px"
        )
        self.trace = button(
            "Trace", "file-code-o", "Save the iteration for ui.perfetto.dev and chrome://tracing", "88px"
        )
        self.png.on_click(lambda _: chart.ask_png(f"{self._name()}.png"))
        self.trace.on_click(lambda _: begin(self._offer_trace(), report_error))
        self.view = w.HBox([self.png, self.trace])
        chart.observe(lambda _: self._follow(), "start")
        self._follow()

    async def _offer_trace(self) -> None:
        """Let the page download the trace as a file. Raises TraceError for a trace of more than 104 days."""
        if (trace := self._trace()) is None:
            return
        self.trace.disabled = True
        try:
            text = await asyncio.to_thread(chrome_text, trace)
        finally:
            self.trace.disabled = False
        self._chart.offer(f"{self._name()}.json", "application/json", text.encode())

    def _name(self) -> str:
        trace = self._trace()
        kind = "" if trace is None else f"-{trace.context.schedule}"
        return "iteration" + "".join(c if c.isalnum() or c in "-." else "-" for c in kind)

    def _follow(self) -> None:
        for each in (self.png, self.trace):
            each.disabled = not self._chart.start


def chrome_text(trace: Trace) -> str:
    """Return the trace in the Trace Event Format, as ``save_chrome_trace`` writes it."""
    with tempfile.TemporaryDirectory() as folder:
        return save_chrome_trace(trace, Path(folder) / "trace.json").read_text(encoding="utf-8")
