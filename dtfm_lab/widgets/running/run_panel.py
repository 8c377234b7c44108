"""The step Run: train for real, and draw measured bars, losses and events as they arrive."""

import asyncio
import warnings
from dataclasses import replace
from html import escape
from typing import Any, ClassVar

import numpy as np

from dtfm_lab import lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import RunContext, Trace
from dtfm_lab.domain.units import counted, format_s
from dtfm_lab.runtime.client import preload, run_report
from dtfm_lab.runtime.client.launch import Secret, start_mystery, what_runs, what_would_run
from dtfm_lab.runtime.client.run import Run
from dtfm_lab.runtime.protocol.run_options import RUN_CLOCKS
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.task_runner import usable_cores
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import Panel, button, classed, labelled, more_menu, pane, show, toolbar, values_of
from dtfm_lab.widgets.lab_state import LabState, is_another
from dtfm_lab.widgets.network.drawing import Drawing
from dtfm_lab.widgets.running.fault_controls import ACTIONS, RESUME, Departures, FaultControls
from dtfm_lab.widgets.running.mystery_controls import MysteryControls
from dtfm_lab.widgets.running.playback import Playback
from dtfm_lab.widgets.running.run_option_controls import CLOCK_NAMES, RunOptionControls, chip_words, explain_clock
from dtfm_lab.widgets.running.run_progress import (
    Happenings,
    LossGaps,
    RunProgress,
    describe,
    followed,
    listed,
    note_of,
    story_of,
    written_html,
)
from dtfm_lab.widgets.schedule.predictions import FROM_PROFILE, ChartedPrediction
from dtfm_lab.widgets.schedule.schedule_panel import SchedulePanel
from dtfm_lab.widgets.tasks import FRAME_S, begin, has_event_loop
from dtfm_lab.widgets.views.gantt.bars import ChartRows
from dtfm_lab.widgets.views.losses import LossView

STARTS = "Train on this machine with real workers and links as slow as drawn"
CLOCK_OPTIONS = list(zip(CLOCK_NAMES, RUN_CLOCKS, strict=True))
MYSTERY = "Run with one device or link secretly three times slower, then find it from the residuals"
WARM_AFTER_S = 4.0
"""Seconds after the first plan before torch is loaded. Until then, opening the lab needs the processor."""
NO_PLAN = "No plan yet: press Plan first"


class RunPanel(Panel):
    """Runs ``lab_state.plan``, then sets ``lab_state.measured``, ``lab_state.predicted`` and ``lab_state.comparison``.

    A kernel has one run at a time, because two would disturb each other's times. If the lab's cell is executed again,
    the next run stops the run of the earlier lab.
    """

    newest: ClassVar[Run | None] = None
    """The last run that any panel of this kernel has started."""

    def __init__(self, lab_state: LabState, schedule: SchedulePanel, drawing: Drawing | None = None) -> None:
        """``drawing`` is the network whose views play the iteration."""
        self._lab_state, self._schedule = lab_state, schedule
        self.run: Run | None = None
        self._is_concluding = self._is_warm = False
        self._plan: Plan | None = None
        """The plan that ``run`` trains, all of it or a part."""
        self._began_on: tuple[Topology | None, Job | None] = (None, None)
        self._reductions = ""
        """Text that says which part of the plan runs, and what replaces its model and links. Empty if everything runs
        as planned."""
        self._expected_s = 0.0
        """Predicted wall seconds of an iteration of ``run``. 0 before it has been profiled."""
        self.clock = labelled(w.Dropdown, "Clock", "150px", "0px", options=CLOCK_OPTIONS)
        self.clock.layout.min_width, self.clock.tooltip = (
            "136px",
            "How time is measured. Details explains the chosen clock",
        )
        self.chip = classed(w.HTML(layout=w.Layout(min_width="0", flex="1 1 auto")), "dtfm-run-chip")
        self.iterations = labelled(w.BoundedIntText, "Iterations", "130px", "62px", 8, min=1, max=10_000)
        self.start = button("Run", "", STARTS, "60px", style="primary")
        self.stop = button("Stop", "", "Stop all workers. Complete iterations are kept", "60px")
        self.mystery = button("Mystery", "", MYSTERY, "auto")
        self.guessing = MysteryControls(lab_state, self._say)
        self.happenings = Happenings()
        self.happened = classed(w.HTML(layout=w.Layout(min_width="0")), "dtfm-happened")
        self.progress = RunProgress()
        self.explain, self.status = w.HTML(), w.HTML()
        self.losses = LossView(title="Loss", height=0)
        self.written = w.HTML()
        self.options = RunOptionControls()
        self.faults = FaultControls(lab_state, self._report_error, self._disturbed)
        self.departures = Departures(lab_state, self._say, self._report_error)
        self.playback = Playback(lab_state, self._report_error, drawing)
        self._controls: dict[str, w.ValueWidget] = {"clock": self.clock, "iterations": self.iterations}
        self.view = self._laid_out()
        self.clock.observe(lambda _: self._explain_clock(), "value")
        self.start.on_click(lambda _: self.redo())
        self.stop.on_click(lambda _: self._press_stop())
        self.mystery.on_click(lambda _: self.begin_mystery())
        lab_state.observe(lambda _: self._take_plan(), "plan")
        lab_state.observe(lambda _: self._name_start(), ["plan", "choices"])
        lab_state.observe(lambda _: self._take_measured(), "measured")
        self._explain_clock()
        self._take_plan()
        self._show_happenings()

    def redo(self) -> None:
        if not self.start.disabled:
            self._begin()

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"options": self.options.settings()}

    def restore(self, settings: dict[str, Any]) -> None:
        super().restore(settings)
        self.options.restore(settings.get("options"))

    @property
    def run_options(self) -> dict[str, Any]:
        """Keywords of ``lab.run`` from the controls, other than schedule, clock and iterations."""
        return self.options.chosen(self.iterations.value)

    def begin_mystery(self, secret: Secret | np.random.Generator | None = None, title: str = "") -> None:
        """Start a run in which a link or device is secretly slow: the one in ``secret``, or a random one, from the
        generator if one is given. With a ``title``, guesses get a score."""
        if not self.start.disabled:
            self._begin(secret or np.random.default_rng(), title)

    def _laid_out(self) -> w.VBox:
        rarer = [self.explain, self.status, self.options.view, self.written]
        more = more_menu(rarer, "Details", "What this clock means here, the run's options, and the model's sample text")
        parts = [self.start, self.stop, self.iterations, self.clock, self.chip, self.mystery, self.faults.devices, more]
        chart = classed(w.Box([self._schedule.chart]), "dtfm-run-chart")
        heading = w.HTML("<h3>What happened</h3>")
        reported = classed(
            w.VBox([w.HBox([heading, self.progress.line]), self.happened, self.guessing.view]), "dtfm-told"
        )
        below = classed(w.Box([self.losses, reported]), "dtfm-run-below")
        return pane([toolbar(*parts), chart, below], "dtfm-run")

    def _begin(self, mystery: Secret | np.random.Generator | None = None, title: str = "") -> None:
        """Start a run. With ``mystery``, one device or link is secretly slow: the one in this Secret, or one that the
        generator chooses."""
        self._lab_state.message = ""
        try:
            plan = self._lab_state.chosen_plan
            if plan is None:
                return
            # Warnings of the start belong in the lab's list, not in the notebook's output.
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                options = values_of(self._controls) | {"queueing": self._lab_state.queueing} | self.run_options
                secret: Secret | None = None
                if mystery is None:
                    self.run = lab.start(plan, self._lab_state.schedule, **options)
                else:
                    self.run, secret = start_mystery(plan, self._lab_state.schedule, mystery, **options)
        except LabError as error:
            self._lab_state.report_error("run", str(error))
            return
        self.happenings.begin()
        # All workers may give the same warning. It is shown once.
        for line in dict.fromkeys(str(one.message) for one in caught):
            self.happenings.add(f"note: {line}")
        # Runs share the machine's cores, so one at a time, over all labs of a notebook.
        if RunPanel.newest is not None and RunPanel.newest.running:
            begin(asyncio.to_thread(RunPanel.newest.stop), self._report_error)
        RunPanel.newest = self.run
        self._plan, self._is_concluding, self._began_on = plan, False, (self._lab_state.topology, self._lab_state.job)
        self._lab_state.measured = self._lab_state.comparison = self._lab_state.ran = None
        self._expected_s = 0.0
        self.written.value = ""
        is_text = plan.job.counted == "tokens"
        self.losses.unit = "nats per token" if is_text else ""
        self.losses.beside = "held-out text" if is_text else "held-out samples"
        self.losses.reset(self.run.spec.first_iteration, self.run.spec.iterations)
        self.progress.begin()
        self.guessing.begin(secret, title)
        # The secret must not be in what the lab reports about the run.
        reported = self.run.spec if secret is None else replace(self.run.spec, emulated=None)
        self._reductions = run_report.describe_reductions(reported)
        if secret is not None:
            self.happenings.add("a mystery: one device or link is secretly slow. Find it from its bars and residuals")
        self.faults.watch(self.run, may_disturb=secret is None)
        self.departures.watch(self.run if secret is None else None)
        self.playback.begin_run()
        self._show_progress(self.run)
        self._schedule.chart.reset_measured()
        self._update_buttons()
        begin(self._watch(self.run), self._report_error)

    async def _watch(self, run: Run) -> None:
        shown_iteration, shown = (-1, 0), 0
        predicted, n_reported = False, 0
        rows, gaps = ChartRows(run.context()), LossGaps(self._schedule.chart)
        while True:
            running = run.running  # read before the spans, so that none is missed at the end
            replans = run.replans
            # A replan that has been answered: rows and prediction are of another plan from here on.
            if len(replans) > n_reported and "lost_s" in replans[-1]:
                n_reported, predicted, shown_iteration = len(replans), False, (-1, 0)
                self._take_up(run)
                rows = ChartRows(run.context())
            if run.profile and not predicted:
                expected = await asyncio.to_thread(_predicted, run, run.context(), " from the profile just taken")
                self._tell_prediction(expected.trace)
                self._schedule.show(expected)
                # A prediction of a part would replace the whole plan's in the bar.
                if run is self.run and not expected.trace.context.part:  # the bar says what the chart shows
                    self._lab_state.predicted = expected.trace
                self._expected_s = expected.trace.iteration_s * run.time_scale
                predicted = True
            last = run.spec.first_iteration + run.spec.iterations - 1
            n_faults = len(run.faults)
            iteration = gaps.iteration(run, min(run.last_whole + 1, last))
            spans = run.spans_of(iteration)
            is_again = n_faults > shown_iteration[1]  # after a fault the iteration starts again
            if (iteration, n_faults) != shown_iteration and (spans or is_again):
                self._schedule.chart.reset_measured(iteration)
                shown_iteration, shown = (iteration, n_faults), 0
            if len(spans) > shown:
                self._schedule.chart.extend_measured(*rows.bars(spans[shown:]))
                # Only new spans are sent, since an iteration may have many thousands.
                shown = len(spans)
            gaps.draw(run, shown_iteration[0])
            self._show_progress(run)
            if run is self.run:
                self.playback.look(run, self._expected_s / run.time_scale)
                self.playback.tell(run, self.faults.conditions)
            if not running:
                break
            await asyncio.sleep(FRAME_S)
        if run is self.run:
            self.playback.end_run()
        if run is self.run and run.status != "done":
            self._say(run.error or f"stopped after {len(run.losses)} of {counted(run.spec.iterations, 'iteration')}")
            self.losses.total = len(run.losses)  # the axis ends where the run did
        # Without an iteration nothing is measured.
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

    def _take_up(self, run: Run) -> None:
        """Show the devices of the new plan that the run has switched to, and log the switch."""
        if run is self.run:
            self._plan = run.spec.plan
            self.faults.watch(run)
            self._say(followed(run.replans[-1]))
            self.losses.marks = [*self.losses.marks, {"at": run.replans[-1]["iteration"], "text": "a new plan"}]

    async def _conclude(self, run: Run) -> None:
        measured = await asyncio.to_thread(run.trace)
        predicted = await asyncio.to_thread(_predicted, run, measured, FROM_PROFILE)
        if run is not self.run:
            return
        if (of := self._left_behind()) is not None:
            self._say(f"measured {format_s(measured.iteration_s)} per iteration for {of}, which is no longer open")
            return
        self.written.value = written_html(run, measured)
        self._schedule.show(predicted)
        self._schedule.chart.show_measured(measured)
        # Measured and predicted change together; else one would be compared with the other's predecessor.
        with self._lab_state.hold_trait_notifications():
            self._lab_state.measured, self._lab_state.ran = measured, self._plan
            if not measured.context.part:  # else the bar keeps the prediction of the plan
                self._lab_state.predicted = predicted.trace
        comparison = await asyncio.to_thread(lab.compare, predicted.trace, measured)
        if run is self.run:
            self._say(comparison.error_sentence)
            self._lab_state.comparison = comparison

    def _left_behind(self) -> str | None:
        """Return the names of the run's job and network, ``small on lecture-hall``, if others have been opened since.
        None if they are still open."""
        network, job = self._began_on
        others = ((network, self._lab_state.topology), (job, self._lab_state.job))
        if any(one is not None and other is not None and is_another(one, other) for one, other in others):
            return " on ".join(one.name for one in (job, network) if one is not None)
        return None

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
            pace += f"; an iteration takes about {self._expected_s:.2g} s"
        parts = [pace, run_report.describe_lateness(run), run_report.describe_checkpoint(run), self._reductions]
        self.status.value = markup.line(escape("; ".join(filter(None, parts))))
        self.losses.follow(run.losses, run.held_out, run.unigram_entropy)
        if not (self.stop.disabled and run.running):  # the user has pressed Stop
            self.progress.show(run)
        self.faults.show()
        self.happenings.look(run)
        self._show_happenings()
        self._lab_state.run_story = story_of(run) if run.running else ""
        self._lab_state.set_note("run", note_of(run) if run.running else "")
        self._lab_state.run_progress = run_report.describe_progress(run) if run.running else ""

    def _disturbed(self, device: str, do: str) -> None:
        """Report what the user has just done to a device."""
        assert self.run is not None
        done = {action["do"]: action["done"] for action in ACTIONS}[do]
        at = self.run.spec.first_iteration + len(self.run.losses)
        self.happenings.add(f"{done} in iteration {at}", device)
        if do != RESUME:
            self.losses.marks = [*self.losses.marks, {"at": at, "text": f"{device} {done}"}]

    def _say(self, text: str, device: str = "") -> None:
        self.happenings.add(text, device)
        self._show_happenings()

    def _show_happenings(self) -> None:
        self.happened.value = listed(self.happenings.lines)

    def _tell_prediction(self, profiled: Trace) -> None:
        """Report how much the profile has changed the prediction from FLOP."""
        before = None if profiled.context.part else self._lab_state.predicted
        was = "" if before is None else f"{format_s(before.iteration_s)} → "
        n = sum(len(group) for group in profiled.context.devices)
        self.happenings.add(f"{n} of {n} profiled: {was}{format_s(profiled.iteration_s)} predicted")

    def _take_plan(self) -> None:
        self._update_buttons()
        self.faults.offer(self._lab_state.plan)
        self._explain_clock()
        if self._lab_state.plan is not None and not self._is_warm and has_event_loop():
            self._is_warm = True
            asyncio.get_running_loop().call_later(WARM_AFTER_S, preload.warm_up)

    def _name_start(self) -> None:
        """Name on the button the part of the plan that would run, if it is not all of it."""
        try:
            plan = self._lab_state.chosen_plan
            part = "" if plan is None or plan.job.model is None else what_would_run(plan)
        except LabError:
            part = ""
        self._lab_state.run_part = part
        self.start.description = f"Train {part.removeprefix('the whole plan, ')}" if part else "Run"
        self.start.layout.width = "auto" if part else "60px"

    def _take_measured(self) -> None:
        """Show the losses of a measurement that another panel has set, for example from a file."""
        measured = self._lab_state.measured
        if measured is None or self.run is not None:
            return
        context = measured.context
        first = int(measured.iteration.min())
        self.losses.reset(first, len(context.losses))
        self.losses.follow(context.losses, context.held_out, context.unigram_entropy)
        self.losses.marks = [{"at": fault.iteration, "text": f"{fault.device} replaced"} for fault in context.faults]
        self.happenings.begin()
        self.happenings.add(f"an earlier run: {counted(measured.n_iterations, 'iteration')}, {context.provenance}")
        for fault in context.faults:
            self.happenings.add(describe(fault)[0], fault.device)
        self._say(f"measured {format_s(measured.iteration_s)} per iteration")

    def _explain_clock(self) -> None:
        clock, cores = self.clock.value, usable_cores()
        self.explain.value = explain_clock(clock, _n_workers(self._lab_state.plan), cores)
        self.chip.value = self.chip.tooltip = chip_words(clock, cores)

    def _report_error(self, message: str) -> None:
        self._lab_state.report_error("run", message)
        self._update_buttons()

    def _update_buttons(self) -> None:
        running = self.run is not None and self.run.running
        self.start.disabled = running or self._lab_state.plan is None
        self.start.tooltip = NO_PLAN if self._lab_state.plan is None else STARTS
        self.mystery.disabled = self.start.disabled
        why = NO_PLAN if self._lab_state.plan is None else "One run at a time: stop this one first"
        self.mystery.tooltip = why if self.start.disabled else MYSTERY
        self.stop.disabled = not running
        show(self.start if running else self.stop, False)  # hide one first: in a narrow row both would wrap
        show(self.stop if running else self.start, True)
        if not running:
            self._lab_state.run_progress = self._lab_state.run_story = ""
            self._lab_state.set_note("run", "")
        self._lab_state.set_busy("run", running or self._is_concluding)


def _predicted(run: Run, like: Trace | RunContext, note: str) -> ChartedPrediction:
    plan = run.spec.plan
    return ChartedPrediction.of(plan, simulate(plan, like=like), note)


def _n_workers(plan: Plan | None) -> int | None:
    """Return how many workers this machine would run. None without a plan, or if it cannot run."""
    if plan is None:
        return None
    try:
        return what_runs(plan, None)[0].job.n_tasklets
    except LabError:
        return None
