"""Step 5: train for real, watch the losses fall and the measured bars fill in under the predicted ones."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import ipywidgets as w

from dtfm_lab import lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.trace import RunContext, Trace
from dtfm_lab.runtime.launch import RUN_CLOCKS
from dtfm_lab.runtime.run import Run
from dtfm_lab.simulation import simulate
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.bars import ChartRows
from dtfm_lab.widgets.bench import Bench
from dtfm_lab.widgets.predictions import Prediction
from dtfm_lab.widgets.schedule_panel import SchedulePanel
from dtfm_lab.widgets.tasks import FRAME_S, begin

CLOCKS = {
    "virtual": "no waiting: each worker adds its own CPU time and the drawn links' seconds to a logical clock",
    "paced": "in real time, slowed down so that this machine keeps up: a computation lasts as on the drawn device",
    "real": "this machine as it is: wall time, loopback instead of the drawn links",
}
NO_LOSSES = markup.curve([], "training loss", "nats per token", x_label="iteration")


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
        self.losses = w.HTML(NO_LOSSES)
        controls = w.HBox([self.clock, self.iterations, self.start, self.stop])
        self.view = w.VBox([controls, self.explain, self.status, self.losses])
        self.clock.observe(lambda _: self._explain(), "value")
        self.start.on_click(lambda _: self._begin())
        self.stop.on_click(lambda _: self.run and self.run.running and begin(self._stop(), self._complain))
        bench.observe(lambda _: self._buttons(), "plan")
        self._explain()
        self._buttons()

    def _begin(self) -> None:
        self._bench.message = ""
        try:
            plan = self._bench.chosen_plan
            if plan is None:
                return
            if self._bench.queueing != "pairs":
                raise LabError(
                    f"messages queue by {self._bench.queueing}, which can be simulated; real runs play pairs"
                )
            self.run = lab.start(plan, self._bench.schedule, iterations=self.iterations.value, clock=self.clock.value)
        except LabError as error:
            self._bench.complain("run", str(error))
            return
        if RunPanel.newest is not None and RunPanel.newest.running:
            begin(asyncio.to_thread(RunPanel.newest.stop), self._complain)
        RunPanel.newest = self.run
        self._bench.measured = self._bench.comparison = None
        self._expected_s = 0.0
        self.losses.value = NO_LOSSES
        self._schedule.chart.reset_measured()
        self._buttons()
        begin(self._watch(self.run), self._complain)

    async def _watch(self, run: Run) -> None:
        shown_iteration, shown = -1, 0
        predicted = False
        rows = ChartRows(run.context())
        while True:
            running = run.running  # before looking, so that nothing is missed at the end
            if run.profile and not predicted:
                expected = await asyncio.to_thread(_predicted, run, run.context(), " from the profile just taken")
                self._schedule.show(expected)
                self._expected_s = expected.trace.iteration_s * run.time_scale
                predicted = True
            iteration = min(len(run.losses), run.spec.iterations - 1)
            spans = run.spans_of(iteration)
            if iteration != shown_iteration and spans:
                self._schedule.chart.reset_measured(iteration)
                shown_iteration, shown = iteration, 0
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
        measured = run.trace()
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
        n = len(run.losses)
        whole = f"{n} of {run.spec.iterations} iterations"
        doing = {
            "starting": f"starting {len(run.spec.workers)} workers (torch takes a few seconds)",
            "profiling": "rehearsing, to know what computations cost here",
            "running": f"{whole} done",
            "done": f"{whole} done",
            "stopped": f"stopped after {whole}",
            "failed": f"failed after {whole}",
        }[run.status]
        pace = ""
        if run.status == "running" and run.spec.clock == "paced" and self._expected_s:
            pace = f"; slowed down {run.time_scale:.3g} times, so an iteration lasts some {self._expected_s:.2g} s"
            if run.stretched:
                pace += f"; {run.stretched} computation times stretched, because the drawn devices outrun this machine"
        late = run.late_messages or run.overruns
        counted = f"; {run.late_messages} late messages, {run.overruns} overruns" if late else ""
        self.status.value = markup.line(doing + pace + counted)
        if n:
            self.losses.value = markup.curve(run.losses, "training loss", "nats per token", x_label="iteration")

    def _explain(self) -> None:
        self.explain.value = markup.line(f"<b>{self.clock.value}</b>: {CLOCKS[self.clock.value]}.")

    def _complain(self, message: str) -> None:
        self._bench.complain("run", message)
        self._buttons()

    def _buttons(self) -> None:
        running = self.run is not None and self.run.running
        self.start.disabled = running or self._bench.plan is None
        self.stop.disabled = not running


def _predicted(run: Run, like: Trace | RunContext, note: str) -> Prediction:
    plan = run.spec.plan
    return Prediction.of(plan, simulate(plan, like=like), note)
