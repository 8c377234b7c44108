"""Step 2: choose a job and a planner, and watch the cost fall; or let several planners race."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ipywidgets as w
import plotly.graph_objects as go

from dtfm_lab import figures, lab
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.units import format_s
from dtfm_lab.planning import PlanStep, planners
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.control_state import restore, settings
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner.background_search import SPEEDS, BackgroundSearch
from dtfm_lab.widgets.planner.job_controls import JobControls
from dtfm_lab.widgets.planner.planner_controls import button, seed_control, show_paused, speed_control
from dtfm_lab.widgets.planner.race_panel import RacePanel
from dtfm_lab.widgets.planner.search_display import Clock, PlacementPreview, as_steps, rows, watch
from dtfm_lab.widgets.tasks import begin
from dtfm_lab.widgets.views.as_figure import AsFigure
from dtfm_lab.widgets.views.convergence import ConvergenceView, gap_words

CSS = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
MODES = ("Search", "Race")
BUDGETS = ("seconds", "generations")
SHORT_S = 0.1
"""told to three digits; longer ones to a tenth of a second, so that the words keep still"""


class PlanPanel:
    """Sets ``lab_state.job`` from the controls and ``lab_state.plan`` from the search, or from whoever wins a race."""

    def __init__(self, lab_state: LabState, job: Job | None) -> None:
        self._lab_state = lab_state
        self.search: BackgroundSearch | None = None
        self._last: PlanStep | None = None
        self.job_controls = JobControls(lab_state, job)
        self.job, self.shape = self.job_controls.job, self.job_controls.shape
        self.batch, self.microbatch = self.job_controls.batch, self.job_controls.microbatch
        self.mode = w.ToggleButtons(
            options=list(MODES),
            tooltips=["One planner", "Several planners side by side"],
            style={"button_width": "90px"},
        )
        self.planner = w.Dropdown(
            options=list(planners),
            value="evolutionary",
            description="Planner",
            tooltip="Who searches: ours, the paper's, chance, or the one that proves",
            layout=w.Layout(width="172px"),
            style={"description_width": "55px"},
        )
        self.seed, self.speed = seed_control(), speed_control()
        self.budget = w.Dropdown(
            options=list(BUDGETS),
            description="Budget",
            tooltip="When the search ends, unless its best is proven before",
            layout=w.Layout(width="152px"),
            style={"description_width": "50px"},
        )
        self.seconds = w.BoundedFloatText(
            3.0, min=0.1, max=3600, step=1, tooltip="Seconds of search", layout=w.Layout(width="70px")
        )
        self.generations = w.BoundedIntText(
            50, min=1, max=10_000_000, tooltip="Generations", layout=w.Layout(width="70px", display="none")
        )
        self.plan = button("Plan", "search", "primary", "Search for the cheapest placement")
        self.pause = button("Pause", "pause", "", "Hold the search")
        self.step = button("Step", "step-forward", "", "Go on for one generation, then hold")
        self.stop = button("Stop", "stop", "", "End the search and keep the best")
        self.curve = ConvergenceView(title="Communication cost", height=240)
        self.figure = AsFigure(self._drawn, lab_state, self._report_error)
        self.note = w.HTML()
        self.race = RacePanel(lab_state, self._buttons)
        self._search_box = w.VBox(
            [
                w.HBox([self.planner, self.seed, self.budget, self.seconds, self.generations, self.speed]),
                w.HBox([self.plan, self.pause, self.step, self.stop, self.figure.button]),
                self.curve,
                self.figure.output,
            ]
        )
        style = w.HTML(f"<style>{CSS}</style>", layout=w.Layout(display="none"))
        self.view = w.VBox([style, self.job_controls.view, self.mode, self._search_box, self.race.view, self.note])
        self.mode.observe(lambda _: self._show_mode(), "value")
        self.budget.observe(lambda _: self._show_budget(), "value")
        self.speed.observe(lambda _: self._set_pace(), "value")
        self.plan.on_click(lambda _: self.redo())
        self.pause.on_click(lambda _: self._toggle())
        self.step.on_click(lambda _: self.search and self.search.step())
        self.stop.on_click(lambda _: self.search and self.search.stop())
        lab_state.observe(lambda _: self._tell(), ["topology", "job", "plan"])
        self._show_mode()
        self._tell()

    def settings(self) -> dict[str, Any]:
        return {
            "job": self.job_controls.settings(),
            "search": settings(self._controls) | {"against": self.curve.against},
            "race": self.race.settings(),
            "mode": self.mode.value,
        }

    def restore(self, values: dict[str, Any]) -> None:
        """What is missing, unknown or not possible is left as it is; nothing is begun."""
        parts = {name: values[name] for name in ("job", "search", "race") if isinstance(values.get(name), dict)}
        self.job_controls.restore(parts.get("job", {}))
        restore(self._controls, parts.get("search", {}))
        if parts.get("search", {}).get("against") in ("evaluations", "seconds"):
            self.curve.against = parts["search"]["against"]
        self.race.restore(parts.get("race", {}))
        if self._idle:
            restore({"mode": self.mode}, values)

    def redo(self) -> None:
        """What the button Plan does."""
        topology, job = self._lab_state.topology, self._lab_state.job
        if self.plan.disabled or topology is None or job is None:
            return
        self._lab_state.message = ""
        timed = self.budget.value == BUDGETS[0]
        try:
            steps = lab.search(
                topology,
                job,
                planner=self.planner.value,
                seed=self.seed.value,
                seconds=self.seconds.value if timed else None,
                steps=None if timed else self.generations.value,
            )
        except LabError as error:
            self._report_error(str(error))
            return
        self.mode.value = MODES[0]
        self.curve.reset()
        self.search = BackgroundSearch(steps, SPEEDS[self.speed.value])
        begin(self._watch(self.search), self._report_error)
        self._buttons()

    async def _watch(self, search: BackgroundSearch) -> None:
        placing, clock = PlacementPreview(self._lab_state), Clock()
        self._last = None

        def show(steps: Sequence[PlanStep]) -> None:
            if steps:
                self._last = steps[-1]
                clock.set(steps[-1].seconds)
                placing.show(steps[-1])
            if self._last is not None:
                seconds = clock.read(search.pace) if search.running else self._last.seconds
                self.curve.tell({self._last.planner: rows(steps)}, told(self._last, seconds))

        def tick() -> None:
            if search.paused:
                clock.hold()
            self._buttons()  # a step ends in a pause of its own

        try:
            await watch(search, show, tick)
            if self._last is not None:
                last = self._last
                self._lab_state.plan = await asyncio.to_thread(lambda: last.plan)
        finally:
            self.search = None
            placing.end()
            self._buttons()

    def _drawn(self) -> go.Figure | None:
        last = self._last
        if last is None or last.planner not in self.curve.points:
            return None
        return figures.convergence(as_steps(self.curve.points[last.planner], last), against=self.curve.against)

    def _toggle(self) -> None:
        if self.search is not None:
            (self.search.resume if self.search.paused else self.search.pause)()
        self._buttons()

    def _set_pace(self) -> None:
        if self.search is not None:
            self.search.pace = SPEEDS[self.speed.value]

    def _report_error(self, message: str) -> None:
        self._lab_state.report_error("plan", message)

    @property
    def _idle(self) -> bool:
        return self.search is None and self.race.search is None

    def _buttons(self) -> None:
        searching = self.search is not None
        self.plan.disabled = not self._idle or self._lab_state.topology is None or self._lab_state.job is None
        self.pause.disabled = self.step.disabled = self.stop.disabled = not searching
        show_paused(self.pause, self.search is not None and self.search.paused)
        self.race.buttons(free=not searching)
        self.mode.disabled = not self._idle
        if self._idle == ("plan" in self._lab_state.busy):
            self._lab_state.set_busy("plan", not self._idle)

    def _show_mode(self) -> None:
        racing = self.mode.value == MODES[1]
        self._search_box.layout.display = "none" if racing else ""
        self.race.view.layout.display = "" if racing else "none"

    def _show_budget(self) -> None:
        timed = self.budget.value == BUDGETS[0]
        self.seconds.layout.display = "" if timed else "none"
        self.generations.layout.display = "none" if timed else ""

    def _tell(self) -> None:
        plan = self._lab_state.plan
        self._buttons()
        if plan is None:
            self.note.value = ""
        elif self._lab_state.plan_is_stale:
            drawn = self._lab_state.topology is not None
            then = "plan again" if drawn else "what follows is of the network before; draw or open one to plan again"
            self.note.value = markup.line(f"The network or the job has changed since this plan: {then}.", "warning")
        else:
            cost = plan.cost
            idle = f", {len(plan.idle_devices)} devices idle" if plan.idle_devices else ""
            self.note.value = markup.line(
                f"<b>{format_s(cost.total_s)}</b> = data parallel {format_s(cost.data_parallel_s)} + pipeline "
                f"{format_s(cost.pipeline_s)}; lower bound {format_s(plan.lower_bound_s)}, gap {plan.gap:.1%}{idle}; "
                f"by {plan.planner}",
                "figure",
            )

    @property
    def _controls(self) -> dict[str, w.ValueWidget]:
        return {
            "planner": self.planner,
            "seed": self.seed,
            "budget": self.budget,
            "seconds": self.seconds,
            "generations": self.generations,
            "speed": self.speed,
        }


def told(step: PlanStep, seconds: float) -> str:
    """How far a search has come after so many seconds, in words."""
    priced = f"{step.evaluations:,} placement{'s' * (step.evaluations != 1)} priced"
    spent = f"{seconds:.1f} s" if seconds >= SHORT_S else format_s(seconds)
    return (
        f"generation {step.generation}, {priced} in {spent}: {format_s(step.best_s)}, "
        f"{gap_words(step.best_s, step.bound_s)}"
    )
