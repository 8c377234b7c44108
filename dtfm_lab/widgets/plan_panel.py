"""Step 2: choose a job and a planner, and watch the cost fall."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import ipywidgets as w
import numpy as np

from dtfm_lab import lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.units import format_s
from dtfm_lab.files import job_names, override
from dtfm_lab.planning import PlanStep, planners
from dtfm_lab.planning.search import PROVEN
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.bench import Bench
from dtfm_lab.widgets.convergence import ConvergenceView
from dtfm_lab.widgets.searching import BackgroundSearch
from dtfm_lab.widgets.tasks import FRAME_S, begin

SPEEDS = {"to watch": 0.15, "slow motion": 1.0, "full speed": 0.0}
"""seconds for which each improvement stays on the screen"""


class PlanPanel:
    """Sets ``bench.job`` from the controls and ``bench.plan`` from the search."""

    def __init__(self, bench: Bench, job: Job | None) -> None:
        self._bench, self._base = bench, job
        self.search: BackgroundSearch | None = None
        names = list(dict.fromkeys([*([job.name] if job else []), *job_names()]))
        narrow = w.Layout(width="210px")
        self.job = w.Dropdown(options=names, value=job.name if job else "small", description="Job", layout=narrow)
        self.shape = w.Dropdown(description="Shape", layout=w.Layout(width="250px"))
        self.batch = w.BoundedIntText(1, min=1, max=1_000_000, description="Batch", layout=w.Layout(width="160px"))
        self.microbatch = w.BoundedIntText(
            1, min=1, max=100_000, description="Micro-batch", layout=w.Layout(width="160px")
        )
        self.planner = w.Dropdown(options=list(planners), value="evolutionary", description="Planner", layout=narrow)
        self.seed = w.BoundedIntText(0, min=0, max=2**31, description="Seed", layout=w.Layout(width="160px"))
        self.seconds = w.BoundedFloatText(
            3.0, min=0.1, max=3600, step=1, description="Seconds", layout=w.Layout(width="160px")
        )
        self.speed = w.Dropdown(options=list(SPEEDS), description="Speed", layout=narrow)
        self.plan = _button("Plan", "search", "primary", "Search for the cheapest placement")
        self.pause = _button("Pause", "pause", "", "Hold the search")
        self.step = _button("Step", "step-forward", "", "Go on for one generation, then hold")
        self.stop = _button("Stop", "stop", "", "End the search and keep the best")
        self.curve = ConvergenceView(title="Communication cost", height=240)
        self.note = w.HTML()
        self.view = w.VBox(
            [
                w.HBox([self.job, self.shape, self.batch, self.microbatch]),
                w.HBox([self.planner, self.seed, self.seconds, self.speed]),
                w.HBox([self.plan, self.pause, self.step, self.stop, self.note]),
                self.curve,
            ]
        )
        self._take_job()
        self.job.observe(lambda _: self._take_job(), "value")
        for control in (self.shape, self.batch, self.microbatch):
            control.observe(lambda _: self._set_job(), "value")
        self.plan.on_click(lambda _: self._begin())
        self.pause.on_click(lambda _: self._toggle())
        self.step.on_click(lambda _: self.search and self.search.step())
        self.stop.on_click(lambda _: self.search and self.search.stop())
        bench.observe(lambda _: self._offer_shapes(), "topology")
        bench.observe(lambda _: self._tell(), ["topology", "job", "plan"])
        self._buttons()

    def _take_job(self) -> None:
        """Fill the controls from the chosen job."""
        given = self._base is not None and self.job.value == self._base.name
        self._chosen = self._base if given and self._base is not None else lab.load_job(self.job.value)
        self._filling = True
        self.batch.value, self.microbatch.value = self._chosen.global_batch, self._chosen.microbatch
        self._filling = False
        self._offer_shapes()

    def _offer_shapes(self) -> None:
        """The shapes that use all devices or, where there are none, as many as can be used."""
        topology = self._bench.topology
        if topology is None:
            self._bench.job = None
            return
        job = self._sized(self._chosen)
        usable = next((n for n in range(len(topology), 0, -1) if job.shapes(n)), 0)
        shapes = job.shapes(usable) if usable else [(1, 1)]
        wanted = self.shape.value or (self._chosen.n_stages, self._chosen.n_replicas)
        fitted = lab.fitted(job, usable) if usable else job
        self._filling = True
        self.shape.options = [(_shape(s, r), (s, r)) for s, r in shapes]
        fallback = (fitted.n_stages, fitted.n_replicas)
        self.shape.value = wanted if wanted in shapes else fallback if fallback in shapes else shapes[0]
        self._filling = False
        self._set_job()

    def _sized(self, job: Job) -> Job:
        """The job with the batch of the controls, in one pipeline, which any shape can start from."""
        if job.model is None:
            return job
        try:
            return override(
                job, n_stages=1, n_replicas=1, global_batch=self.batch.value, microbatch=self.microbatch.value
            )
        except LabError:
            return job

    def _set_job(self) -> None:
        if self._filling or self.shape.value is None:
            return
        n_stages, n_replicas = self.shape.value
        sizes = (
            {}
            if self._chosen.model is None
            else {
                "global_batch": self.batch.value,
                "microbatch": self.microbatch.value,
            }
        )
        try:
            self._bench.job = override(self._chosen, n_stages=n_stages, n_replicas=n_replicas, **sizes)
            self._bench.message = ""
        except LabError as error:
            self._bench.job = None
            self._bench.complain("plan", str(error))
        self._buttons()

    def _begin(self) -> None:
        topology, job = self._bench.topology, self._bench.job
        if topology is None or job is None:
            return
        self._bench.message = ""
        try:
            steps = lab.search(
                topology, job, planner=self.planner.value, seed=self.seed.value, seconds=self.seconds.value
            )
        except LabError as error:
            self._bench.complain("plan", str(error))
            return
        self.curve.reset()
        self.search = BackgroundSearch(steps, SPEEDS[self.speed.value])
        begin(self._watch(self.search), self._complain)
        self._buttons()

    async def _watch(self, search: BackgroundSearch) -> None:
        last: PlanStep | None = None
        try:
            while True:
                running = search.running  # before draining, so that nothing is missed at the end
                if steps := search.drain():
                    last = steps[-1]
                    self._draw(steps)
                if not running:
                    break
                self._buttons()  # a step ends in a pause of its own
                await asyncio.sleep(FRAME_S)
        finally:
            self.search = None
            self._buttons()
        if last is not None:
            self._bench.plan = last.plan

    def _draw(self, steps: Sequence[PlanStep]) -> None:
        rows = np.array([[s.evaluations, s.seconds, s.best_s, s.bound_s] for s in steps])
        self.curve.extend(rows, series=steps[-1].planner)
        s = steps[-1]
        verdict = "proven best" if s.gap < PROVEN else f"none below {format_s(s.bound_s)}, gap {s.gap:.1%}"
        self.curve.caption = (
            f"generation {s.generation}, {s.evaluations:,} placement{'s' * (s.evaluations != 1)} priced "
            f"in {s.seconds:.1f} s: {format_s(s.best_s)}, {verdict}"
        )

    def _toggle(self) -> None:
        if self.search is not None:
            (self.search.resume if self.search.paused else self.search.pause)()
        self._buttons()

    def _complain(self, message: str) -> None:
        self._bench.complain("plan", message)

    def _buttons(self) -> None:
        searching = self.search is not None
        self.plan.disabled = searching or self._bench.topology is None or self._bench.job is None
        self.pause.disabled = self.step.disabled = self.stop.disabled = not searching
        paused = searching and self.search is not None and self.search.paused
        self.pause.description, self.pause.icon = ("Resume", "play") if paused else ("Pause", "pause")

    def _tell(self) -> None:
        plan = self._bench.plan
        self._buttons()
        if plan is None:
            self.note.value = ""
        elif self._bench.plan_is_stale:
            drawn = self._bench.topology is not None
            then = "plan again" if drawn else "what follows is of the network before; draw or open one to plan again"
            self.note.value = markup.line(f"The network or the job has changed since this plan: {then}.", "warning")
        else:
            cost = plan.cost
            idle = f", {len(plan.idle_devices)} devices idle" if plan.idle_devices else ""
            self.note.value = markup.line(
                f"<b>{format_s(cost.total_s)}</b> = data parallel {format_s(cost.data_parallel_s)} + pipeline "
                f"{format_s(cost.pipeline_s)}; lower bound {format_s(plan.lower_bound_s)}, gap {plan.gap:.1%}{idle}",
                "figure",
            )


def _shape(n_stages: int, n_replicas: int) -> str:
    return " x ".join(
        f"{n} {what}{'' if n == 1 else 's'}" for n, what in ((n_stages, "stage"), (n_replicas, "replica"))
    )


def _button(text: str, icon: str, style: str, tooltip: str, **options: Any) -> w.Button:
    layout = w.Layout(width="105px")
    return w.Button(description=text, icon=icon, button_style=style, tooltip=tooltip, layout=layout, **options)
