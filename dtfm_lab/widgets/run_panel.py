"""Step 5: train for real, watch the losses fall and the measured bars fill in under the predicted ones."""

from __future__ import annotations

import asyncio
from html import escape
from typing import ClassVar

import ipywidgets as w

from dtfm_lab import lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.trace import RunContext, Trace
from dtfm_lab.files.losses import losses
from dtfm_lab.runtime import telling, warm
from dtfm_lab.runtime.launch import RUN_CLOCKS
from dtfm_lab.runtime.run import Run
from dtfm_lab.simulation import simulate
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.bars import ChartRows
from dtfm_lab.widgets.bench import Bench
from dtfm_lab.widgets.faults import FaultControls
from dtfm_lab.widgets.predictions import Prediction
from dtfm_lab.widgets.run_options import RunOptions
from dtfm_lab.widgets.schedule_panel import SchedulePanel
from dtfm_lab.widgets.tasks import FRAME_S, begin

CLOCKS = {
    "virtual": "no waiting: each worker adds its own CPU time and the drawn links' seconds to a logical clock",
    "paced": "in real time, slowed down so that this machine keeps up: a computation lasts as on the drawn device",
    "real": "this machine as it is: wall time, loopback instead of the drawn links",
}


class RunPanel:
    """Runs ``bench.plan``, then sets ``bench.measured``, ``bench.predicted`` and ``bench.comparison``.

    One run at a time in a kernel: the panel of a cell that was run again is out of sight, and two runs
    would disturb each other's times.
    """

    newest: ClassVar[Run | None] = None

    def __init__(self, bench: Bench, schedule: SchedulePanel) -> None:
        self._bench, self._schedule = bench, schedule
        self.run: Run | None = None
        self._expected_s = 0.0
        self.clock = w.Dropdown(options=list(RUN_CLOCKS), description="Clock", layout=w.Layout(width="190px"))
        self.iterations = w.BoundedIntText(
            8, min=1, max=10_000, description="Iterations", layout=w.Layout(width="160px")
        )
        narrow = w.Layout(width="105px")
        self.start = w.Button(
            description="Run", icon="play", button_style="primary", layout=narrow, tooltip="Start real workers"
        )
        self.stop = w.Button(description="Stop", icon="stop", layout=narrow, tooltip="End every worker", disabled=True)
        self.explain = w.HTML()
        self.status = w.HTML()
        self.losses = w.HTML(_losses(None))
        self.written = w.HTML()
        self.options = RunOptions()
        self.faults = FaultControls(self._complain)
        controls = w.HBox([self.clock, self.iterations, self.start, self.stop])
        beside = w.VBox([self.faults.view, self.written], layout=w.Layout(max_width="440px"))
        learning = w.HBox([self.losses, beside])
        self.view = w.VBox([controls, self.explain, self.status, learning, self.options.view])
        self.clock.observe(lambda _: self._explain(), "value")
        self.start.on_click(lambda _: self._begin())
        self.stop.on_click(lambda _: self.run and self.run.running and begin(self._stop(), self._complain))
        bench.observe(lambda _: self._planned(), "plan")
        self._explain()
        self._buttons()

    def _begin(self) -> None:
        self._bench.message = ""
        try:
            plan = self._bench.chosen_plan
            if plan is None:
                return
            self.run = lab.start(
                plan,
                self._bench.schedule,
                iterations=self.iterations.value,
                clock=self.clock.value,
                queueing=self._bench.queueing,
                **self.options.chosen(self.iterations.value),
            )
        except LabError as error:
            self._bench.complain("run", str(error))
            return
        if RunPanel.newest is not None and RunPanel.newest.running:
            begin(asyncio.to_thread(RunPanel.newest.stop), self._complain)
        RunPanel.newest = self.run
        self._bench.measured = self._bench.comparison = None
        self._expected_s = 0.0
        self.losses.value, self.written.value = _losses(None), ""
        self.faults.watch(self.run)
        self._schedule.chart.reset_measured()
        self._buttons()
        begin(self._watch(self.run), self._complain)

    async def _watch(self, run: Run) -> None:
        shown_iteration: tuple[int, int] | None = None
        shown = 0
        predicted = False
        rows = ChartRows(run.context())
        while True:
            running = run.running  # before looking, so that nothing is missed at the end
            if run.profile and not predicted:
                expected = await asyncio.to_thread(_predicted, run, run.context(), " from the profile just taken")
                self._schedule.show(expected)
                self._expected_s = expected.trace.iteration_s * run.time_scale
                predicted = True
            last = run.spec.first_iteration + run.spec.iterations - 1
            iteration, n_faults = min(run.last_whole + 1, last), len(run.faults)
            spans = run.spans_of(iteration)
            if (iteration, n_faults) != shown_iteration and spans:  # a fault lets an iteration begin anew
                self._schedule.chart.reset_measured(iteration)
                shown_iteration, shown = (iteration, n_faults), 0
            if len(spans) > shown:
                self._schedule.chart.extend_measured(*rows.bars(spans[shown:]))
                shown = len(spans)
            self._tell(run)
            if not running:
                break
            await asyncio.sleep(FRAME_S)
        self._buttons()
        if run.status == "stopped" and not run.losses:
            return
        await self._conclude(run)

    async def _conclude(self, run: Run) -> None:
        measured = await asyncio.to_thread(run.trace)
        self.written.value = _written(run, measured)
        predicted = await asyncio.to_thread(_predicted, run, measured, " from the profile taken before")
        self._schedule.show(predicted)
        self._schedule.chart.reset_measured(measured.typical_iteration)
        self._schedule.chart.extend_measured(*ChartRows(measured.context).chart(measured).bars)
        with self._bench.hold_trait_notifications():
            self._bench.measured, self._bench.predicted = measured, predicted.trace
        self._bench.comparison = await asyncio.to_thread(lab.compare, predicted.trace, measured)

    async def _stop(self) -> None:
        if self.run is not None:
            await asyncio.to_thread(self.run.stop)

    def _tell(self, run: Run) -> None:
        pace = telling.pace(run)
        if pace and run.running and self._expected_s:
            pace += f"; an iteration lasts some {self._expected_s:.2g} s"
        said = [telling.doing(run), pace, telling.counted(run), telling.kept(run), telling.reduced(run.spec)]
        self.status.value = markup.line(escape("; ".join(filter(None, said))))
        self.losses.value = _losses(run)
        self.faults.show()

    def _planned(self) -> None:
        self._buttons()
        if self._bench.plan is not None:
            self.faults.offer([name for stage in self._bench.plan.device_names for name in stage])
            warm.warm_up()  # so that the first run need not wait for torch

    def _explain(self) -> None:
        self.explain.value = markup.line(f"<b>{self.clock.value}</b>: {CLOCKS[self.clock.value]}.")

    def _complain(self, message: str) -> None:
        self._bench.complain("run", message)
        self._buttons()

    def _buttons(self) -> None:
        running = self.run is not None and self.run.running
        self.start.disabled = running or self._bench.plan is None
        self.stop.disabled = not running


def _losses(run: Run | None) -> str:
    """The training loss, and what it should be compared with."""
    if run is None:
        return markup.curve([], "training loss", "nats per token", x_label="iteration")
    return markup.curve(
        list(run.losses),
        "training loss",
        "nats per token",
        x_label="iteration",
        first=run.spec.first_iteration,
        beside=("held-out", run.held_out),
        reference=("unigram entropy", run.unigram_entropy),
    )


def _written(run: Run, measured: Trace) -> str:
    """What the trained model wrote, and the losses to take along."""
    text = "" if run.text is None else markup.quotation(*telling.written(run))
    return text + markup.download("Losses as CSV", "losses.csv", losses(measured).to_csv(index=False))


def _predicted(run: Run, like: Trace | RunContext, note: str) -> Prediction:
    plan = run.spec.plan
    return Prediction.of(plan, simulate(plan, like=like), note)
