"""The step Run: train for real, with losses and measured bars drawn as they come in."""

import asyncio
import os
import warnings
from html import escape
from pathlib import Path
from typing import Any, ClassVar

import ipywidgets as w
import plotly.graph_objects as go
import traitlets

from dtfm_lab import figures, lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import RunContext, Trace
from dtfm_lab.files.traces import losses
from dtfm_lab.runtime.client import preload, run_report
from dtfm_lab.runtime.client.launch import what_runs
from dtfm_lab.runtime.client.run import Run
from dtfm_lab.runtime.protocol.run_options import RUN_CLOCKS
from dtfm_lab.simulation import simulate
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.controls import button, restore_values, stylesheet, values_of
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.network.drawing import Drawing
from dtfm_lab.widgets.panel import Panel
from dtfm_lab.widgets.running import clocks
from dtfm_lab.widgets.running.fault_controls import FaultControls
from dtfm_lab.widgets.running.playback import Playback
from dtfm_lab.widgets.running.run_option_controls import RunOptionControls
from dtfm_lab.widgets.running.run_progress import RunProgress
from dtfm_lab.widgets.schedule.predictions import Prediction
from dtfm_lab.widgets.schedule.schedule_panel import SchedulePanel
from dtfm_lab.widgets.tasks import FRAME_S, begin
from dtfm_lab.widgets.views.as_figure import AsFigure
from dtfm_lab.widgets.views.document_view import PLAYED
from dtfm_lab.widgets.views.gantt.bars import ChartRows
from dtfm_lab.widgets.views.losses import LossView


class RunPanel(Panel):
    """Runs ``lab_state.plan``, then sets ``lab_state.measured``, ``lab_state.predicted`` and ``lab_state.comparison``.

    A kernel has one run at a time, as two would disturb each other's times: starting a run stops the one that an
    earlier panel, whose cell was run again, has started.
    """

    hint = "real torch workers on this machine, links as slow as drawn"

    newest: ClassVar[Run | None] = None
    """The last run that any panel of this kernel has started."""

    def __init__(self, lab_state: LabState, schedule: SchedulePanel, drawing: Drawing | None = None) -> None:
        """``drawing`` is the network on whose views the iteration is played."""
        self._lab_state, self._schedule = lab_state, schedule
        self.run: Run | None = None
        self._is_concluding = False
        self._plan: Plan | None = None
        """The plan that ``run`` runs, or runs a part of."""
        self._expected_s = 0.0
        """Predicted wall seconds of an iteration of ``run``; 0 before its profile has been taken."""
        self.clock = w.Dropdown(options=list(RUN_CLOCKS), description="Clock", layout=w.Layout(width="190px"))
        self.iterations = w.BoundedIntText(
            8, min=1, max=10_000, description="Iterations", layout=w.Layout(width="160px")
        )
        self.start = button("Run", "play", "Start real workers", style="primary")
        self.stop = button("Stop", "stop", "End every worker", disabled=True)
        self.progress = RunProgress()
        self.explain, self.warned, self.status = w.HTML(), w.HTML(), w.HTML()
        self.losses = LossView(title="Loss", layout=w.Layout(margin="0 12px 8px 0"))
        self.written = w.HTML()
        self.options = RunOptionControls()
        self.faults = FaultControls(lab_state, self._report_error)
        self.playback = Playback(lab_state, self._report_error)
        if drawing is not None:
            for name in PLAYED:
                traitlets.dlink((self.playback, name), (drawing, name))
        self.as_figure = AsFigure(self._figure, lab_state, self._report_error)
        self._controls: dict[str, w.ValueWidget] = {"clock": self.clock, "iterations": self.iterations}
        self.view = self._laid_out()
        self.clock.observe(lambda _: self._explain_clock(), "value")
        self.start.on_click(lambda _: self.redo())
        self.stop.on_click(lambda _: self._press_stop())
        lab_state.observe(lambda _: self._take_plan(), "plan")
        self._explain_clock()
        self._take_plan()

    def redo(self) -> None:
        if not self.start.disabled:
            self._begin()

    def settings(self) -> dict[str, Any]:
        return values_of(self._controls) | {"options": self.options.settings()}

    def restore(self, settings: dict[str, Any]) -> None:
        restore_values(self._controls, settings)
        self.options.restore(settings.get("options"))

    @property
    def run_options(self) -> dict[str, Any]:
        """Keywords of ``lab.run`` that the controls are set to, beyond schedule, clock and iterations."""
        return self.options.chosen(self.iterations.value)

    def _laid_out(self) -> w.VBox:
        controls = w.HBox([self.clock, self.iterations, self.start, self.stop, self.progress.view])
        beside = w.VBox([self.faults.log, self.written, self.as_figure.button], layout=w.Layout(width="34%"))
        losses = w.VBox([self.losses], layout=w.Layout(flex="1 1 420px", min_width="0", overflow="visible"))
        learning = w.HBox([losses, beside])
        rows = [controls, self.playback.view]
        rows += [self.explain, self.warned, self.status, self.faults.devices, learning, self.as_figure.output]
        return w.VBox([stylesheet(Path(__file__).with_name("run.css")), *rows, self.options.view])

    def _begin(self) -> None:
        self._lab_state.message = self.warned.value = ""
        try:
            plan = self._lab_state.chosen_plan
            if plan is None:
                return
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                self.run = lab.start(
                    plan,
                    self._lab_state.schedule,
                    iterations=self.iterations.value,
                    clock=self.clock.value,
                    queueing=self._lab_state.queueing,
                    **self.run_options,
                )
        except LabError as error:
            self._lab_state.report_error("run", str(error))
            return
        lines = dict.fromkeys(str(one.message) for one in caught)
        self.warned.value = "".join(markup.line(escape(line), "warning") for line in lines)
        if RunPanel.newest is not None and RunPanel.newest.running:
            begin(asyncio.to_thread(RunPanel.newest.stop), self._report_error)
        RunPanel.newest = self.run
        self._plan, self._is_concluding = plan, False
        self._lab_state.measured = self._lab_state.comparison = self._lab_state.ran = None
        self._expected_s = 0.0
        self.written.value = ""
        self.losses.reset(self.run.spec.first_iteration, self.run.spec.iterations)
        self.progress.begin(self.run.spec.iterations)
        self.faults.watch(self.run)
        self.playback.begin_run()
        self._schedule.chart.reset_measured()
        self._update_buttons()
        begin(self._watch(self.run), self._report_error)

    async def _watch(self, run: Run) -> None:
        shown_iteration: tuple[int, int] | None = None
        shown = 0
        predicted = False
        rows = ChartRows(run.context())
        while True:
            running = run.running  # read before the spans, so that none is missed at the end
            if run.profile and not predicted:
                expected = await asyncio.to_thread(_predicted, run, run.context(), " from the profile just taken")
                self._schedule.show(expected)
                self._expected_s = expected.trace.iteration_s * run.time_scale
                predicted = True
            last = run.spec.first_iteration + run.spec.iterations - 1
            iteration, n_faults = min(run.last_whole + 1, last), len(run.faults)
            spans = run.spans_of(iteration)
            if (iteration, n_faults) != shown_iteration and spans:  # after a fault the iteration starts again
                self._schedule.chart.reset_measured(iteration)
                shown_iteration, shown = (iteration, n_faults), 0
            if len(spans) > shown:
                self._schedule.chart.extend_measured(*rows.bars(spans[shown:]))
                shown = len(spans)
            self._show_progress(run)
            if run is self.run:
                self.playback.look(run, self._expected_s / run.time_scale)
                self.playback.tell(run, self.faults.conditions)
            if not running:
                break
            await asyncio.sleep(FRAME_S)
        if run is self.run:
            self.playback.end_run()
        if run.status == "stopped" and not run.losses:
            self._update_buttons()
            return
        self._is_concluding = run is self.run
        self._update_buttons()
        try:
            await self._conclude(run)
        finally:
            if run is self.run:
                self._is_concluding = False
                self._update_buttons()

    async def _conclude(self, run: Run) -> None:
        measured = await asyncio.to_thread(run.trace)
        predicted = await asyncio.to_thread(_predicted, run, measured, " from the profile taken before")
        if run is not self.run:
            return
        self.written.value = _written(run, measured)
        self._schedule.show(predicted)
        self._schedule.chart.reset_measured(measured.typical_iteration)
        self._schedule.chart.extend_measured(*ChartRows(measured.context).chart(measured).bars)
        with self._lab_state.hold_trait_notifications():
            self._lab_state.measured, self._lab_state.predicted = measured, predicted.trace
            self._lab_state.ran = self._plan
        comparison = await asyncio.to_thread(lab.compare, predicted.trace, measured)
        if run is self.run:
            self._lab_state.comparison = comparison

    def _press_stop(self) -> None:
        if self.run is not None and self.run.running:
            self.stop.disabled = True
            self.progress.stopping()
            begin(asyncio.to_thread(self.run.stop), self._report_error)

    def _show_progress(self, run: Run) -> None:
        if run is not self.run:
            return
        pace = run_report.describe_pace(run)
        if pace and run.running and self._expected_s:
            pace += f"; an iteration lasts some {self._expected_s:.2g} s"
        parts = [
            pace,
            run_report.describe_lateness(run),
            run_report.describe_checkpoint(run),
            run_report.describe_reductions(run.spec),
        ]
        self.status.value = markup.line(escape("; ".join(filter(None, parts))))
        self.losses.follow(run.losses, run.held_out, run.unigram_entropy)
        if not (self.stop.disabled and run.running):  # the person has pressed Stop
            self.progress.show(run)
        self.faults.show()

    def _take_plan(self) -> None:
        self._update_buttons()
        self.faults.offer(self._lab_state.plan)
        self._explain_clock()
        if self._lab_state.plan is not None:
            preload.warm_up()  # torch is loaded before the first run is started

    def _explain_clock(self) -> None:
        self.explain.value = clocks.explained(self.clock.value, _n_workers(self._lab_state.plan), _n_cores())

    def _figure(self) -> go.Figure | None:
        if self.run is None or not self.run.losses:
            return None
        return figures.losses(self._lab_state.measured or self.run.trace())

    def _report_error(self, message: str) -> None:
        self._lab_state.report_error("run", message)
        self._update_buttons()

    def _update_buttons(self) -> None:
        running = self.run is not None and self.run.running
        self.start.disabled = running or self._lab_state.plan is None
        self.stop.disabled = not running
        self._lab_state.set_busy("run", running or self._is_concluding)


def _written(run: Run, measured: Trace) -> str:
    """Return what the trained model wrote, and a link to the losses."""
    text = "" if run.text is None else markup.quotation(*run_report.generated_text(run))
    return text + markup.download(
        "Losses as CSV", "losses.csv", losses(measured).to_csv(index=False).encode(), "text/csv"
    )


def _predicted(run: Run, like: Trace | RunContext, note: str) -> Prediction:
    plan = run.spec.plan
    return Prediction.of(plan, simulate(plan, like=like), note)


def _n_workers(plan: Plan | None) -> int | None:
    """Return how many workers this machine would run; None where no plan can run."""
    if plan is None:
        return None
    try:
        return what_runs(plan, None)[0].job.n_tasklets
    except LabError:
        return None


def _n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
