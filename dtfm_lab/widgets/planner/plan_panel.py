"""The pane Search: watch a slow search think, run the real one, let planners race, see seconds against dollars, or
arrange the devices by hand."""

import asyncio
from collections.abc import Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import ipywidgets as w
import plotly.graph_objects as go

from dtfm_lab import figures, lab, planning
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s
from dtfm_lab.lab.memory_warnings import held_memory
from dtfm_lab.planning import PlanStep, planners, simulated, why_they_differ
from dtfm_lab.simulation.memory_advice import advice
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.controls import (
    button,
    classed,
    menu,
    more_menu,
    pane,
    restore_values,
    segments,
    show,
    spacer,
    toolbar,
    values_of,
)
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.measures import measure_of
from dtfm_lab.widgets.panel import Panel
from dtfm_lab.widgets.planner.background_search import BackgroundSearch
from dtfm_lab.widgets.planner.by_hand import ByHandPanel
from dtfm_lab.widgets.planner.frontier_panel import FrontierPanel
from dtfm_lab.widgets.planner.job_controls import JobControls
from dtfm_lab.widgets.planner.objective_controls import ObjectiveControls
from dtfm_lab.widgets.planner.plan_words import headline, tables
from dtfm_lab.widgets.planner.race_panel import RacePanel
from dtfm_lab.widgets.planner.search_controls import (
    AXES,
    PlacementPreview,
    SearchClock,
    SearchControls,
    as_steps,
    rows,
    watch,
)
from dtfm_lab.widgets.planner.teaching_panel import TeachingPanel
from dtfm_lab.widgets.tasks import begin, has_event_loop
from dtfm_lab.widgets.views.as_figure import AsFigure
from dtfm_lab.widgets.views.convergence import ConvergenceView

TEACHING, REAL, RACE, FRONTIER, BY_HAND = MODES = ("Teaching", "Real", "Race", "Frontier", "By hand")
MODES_BEFORE = {"Search": REAL}
"""Modes that saved files may name otherwise."""
STEP = "plan"
"""Name of this pane."""
BUDGETS = ("seconds", "generations")
SETTLED_S = 0.4
"""Seconds that a plan stands before it is compared with that of least communication cost."""
COMMUNICATION_S = 0.4
"""Seconds of the search for that."""
SHORT_S = 0.1
"""Seconds from which a duration is shown to a tenth of a second, so that the text does not flicker."""


class PlanPanel(Panel):
    """Sets ``lab_state.job`` from the controls and ``lab_state.plan`` from a search, or from the winner of a race."""

    def __init__(self, lab_state: LabState, job: Job | None) -> None:
        self.lab_state = lab_state
        self._report_error = partial(lab_state.report_error, "plan")
        self._last: PlanStep | None = None
        """The newest step of the last search."""
        self.job_controls = JobControls(lab_state, job)
        self.job, self.shape = self.job_controls.job, self.job_controls.shape
        self.batch, self.microbatch = self.job_controls.batch, self.job_controls.microbatch
        self.schedule = self.job_controls.schedule
        self.mode = classed(
            segments(
                MODES,
                [
                    "A slow search from chance, a generation at a time",
                    "The planner that makes the lab's plans",
                    "Several planners side by side",
                    "Seconds against dollars: many plans",
                    "Beat the planner: arrange the devices yourself",
                ],
            ),
            "dtfm-modes",
        )
        self.objective_controls = ObjectiveControls(lab_state, self._show_objective)
        self.objective = self.objective_controls.objective
        self.planner = menu(
            "Planner",
            "172px",
            "55px",
            list(planners),
            "Who searches: ours, the paper's, chance, or the one that proves",
            value="evolutionary",
        )
        self.controls = SearchControls(self._update_buttons, "Hold the search", "End the search and keep the best")
        self.seed, self.speed = self.controls.seed, self.controls.speed
        self.pause, self.stop = self.controls.pause, self.controls.stop
        self.budget = menu(
            "Budget", "152px", "50px", list(BUDGETS), "When the search ends, unless its best is proven before"
        )
        self.seconds = w.BoundedFloatText(
            3.0, min=0.1, max=3600, step=1, tooltip="Seconds of search", layout=w.Layout(width="70px")
        )
        self.generations = w.BoundedIntText(
            50, min=1, max=10_000_000, tooltip="Generations", layout=w.Layout(width="70px", display="none")
        )
        self.plan = button("Plan", "", "Search for the best plan", "auto", style="primary")
        self.step = button("Step", "", "Go on for one generation, then hold", "auto")
        self.curve = classed(ConvergenceView(height=0), "dtfm-fill")
        self.figure = AsFigure(self._make_figure, lab_state, self._report_error)
        self.note, self.alarm, self.details = w.HTML(), w.HTML(), w.HTML()
        self.note.add_class("dtfm-plan-note")
        self.alarm.add_class("dtfm-plan-alarm")
        self.teaching = TeachingPanel(lab_state)
        self.by_hand = ByHandPanel(lab_state)
        self.race = RacePanel(lab_state, self._update_buttons, self.objective_controls.options)
        self.frontier = FrontierPanel(lab_state, self._update_buttons)
        self._controls: dict[str, w.ValueWidget] = {
            "planner": self.planner,
            "seed": self.seed,
            "budget": self.budget,
            "seconds": self.seconds,
            "generations": self.generations,
            "speed": self.speed,
        }
        aims = self.objective_controls
        budget = w.HBox([self.budget, self.seconds, self.generations])
        table = more_menu([self.details], "The plan", "Its stages and pipelines as a table, and why it is this one")
        search_more = [aims.objective, aims.more, aims.limits, self.planner, budget, self.speed, self.seed]
        search_more += [self.figure.button, self.figure.output]
        bars = {
            TEACHING: [spacer(), more_menu([*self.teaching.more, self.teaching.figure.output])],
            REAL: [self.plan, self.pause, self.step, self.stop, spacer(), table, more_menu(search_more)],
            RACE: self.race.bar,
            FRONTIER: self.frontier.bar,
            BY_HAND: self.by_hand.bar,
        }
        self._bars = {mode: w.HBox(children) for mode, children in bars.items()}
        for bar in self._bars.values():
            bar.add_class("dtfm-mode-bar")
        row = toolbar(self.mode, *self._bars.values())
        self._mains = {
            TEACHING: self.teaching.view,
            REAL: w.VBox([self.curve, self.alarm, self.note]),
            RACE: self.race.view,
            FRONTIER: self.frontier.view,
            BY_HAND: self.by_hand.view,
        }
        for main in self._mains.values():
            classed(main, "dtfm-fill", "dtfm-mode-main")
        self.view = pane(Path(__file__).with_suffix(".css"), [row, *self._mains.values()])
        self.mode.observe(lambda _: self._show_mode(), "value")
        self.budget.observe(lambda _: self._show_budget(), "value")
        self.plan.on_click(lambda _: self.redo())
        self.step.on_click(lambda _: self._step())
        lab_state.observe(lambda _: self._describe_plan(), ["topology", "job", "plan"])
        lab_state.observe(lambda _: self._enter(), ["pane", "topology", "plan"])
        self._show_mode()
        self._show_objective()
        self._describe_plan()

    @property
    def search(self) -> BackgroundSearch | None:
        """The search that runs; None while none does."""
        return self.controls.search

    def settings(self) -> dict[str, Any]:
        return {
            "job": self.job_controls.settings(),
            "search": values_of(self._controls) | {"against": self.curve.against},
            "objective": self.objective_controls.settings(),
            "race": self.race.settings(),
            "frontier": self.frontier.settings(),
            "teaching": self.teaching.settings(),
            "mode": self.mode.value,
        }

    def restore(self, settings: dict[str, Any]) -> None:
        parts = {name: settings[name] for name in ("job", "search", "race") if isinstance(settings.get(name), dict)}
        self.job_controls.restore(parts.get("job", {}))
        self.objective_controls.restore(settings.get("objective"))
        restore_values(self._controls, parts.get("search", {}))
        if parts.get("search", {}).get("against") in AXES:
            self.curve.against = parts["search"]["against"]
        self.race.restore(parts.get("race", {}))
        self.frontier.restore(settings.get("frontier"))
        self.teaching.restore(settings.get("teaching"))
        mode = settings.get("mode")
        if self._is_idle and isinstance(mode, str):
            restore_values({"mode": self.mode}, {"mode": MODES_BEFORE.get(mode, mode)})

    def redo(self) -> None:
        topology, job = self.lab_state.topology, self.lab_state.job
        if self.plan.disabled or topology is None or job is None:
            return
        self.lab_state.message = ""
        timed = self.budget.value == BUDGETS[0]
        try:
            steps = lab.search(
                topology,
                job,
                planner=self.planner.value,
                seed=self.seed.value,
                seconds=self.seconds.value if timed else None,
                steps=None if timed else self.generations.value,
                **self.objective_controls.options(),
            )
        except LabError as error:
            self._report_error(str(error))
            return
        self.mode.value = REAL
        self.curve.reset()
        self._show_objective(restart=True)
        begin(self._watch(self.controls.start(steps)), self._report_error)
        self._update_buttons()

    async def _watch(self, search: BackgroundSearch) -> None:
        preview, clock = PlacementPreview(self.lab_state), SearchClock()
        self._last = None

        def show_steps(steps: Sequence[PlanStep]) -> None:
            if steps:
                self._last = steps[-1]
                clock.set(steps[-1].seconds)
                preview.show(steps[-1])
            if self._last is not None:
                seconds = clock.read(search.pace) if search.running else self._last.seconds
                self.curve.extend_all({self._last.planner: rows(steps)}, describe_progress(self._last, seconds))

        def tick() -> None:
            if search.paused:
                clock.hold()
            self._update_buttons()  # a single step ends in a pause

        try:
            await watch(search, show_steps, tick)
            if self._last is not None:
                last = self._last
                self.lab_state.plan = await asyncio.to_thread(lambda: simulated(last.plan))
        finally:
            self.controls.search = None
            preview.end()
            self._update_buttons()

    def _step(self) -> None:
        if self.search is not None:
            self.search.step()

    def _make_figure(self) -> go.Figure | None:
        last = self._last
        if last is None or last.planner not in self.curve.points:
            return None
        return figures.convergence(as_steps(self.curve.points[last.planner], last), against=self.curve.against)

    @property
    def _is_idle(self) -> bool:
        return self.search is None and self.race.search is None and self.frontier.search is None

    def _update_buttons(self) -> None:
        self.plan.disabled = not self._is_idle or self.lab_state.topology is None or self.lab_state.job is None
        self.controls.update()
        self.step.disabled = self.search is None
        show(self.plan, self.search is None)
        for one in (self.pause, self.step, self.stop):
            show(one, self.search is not None)
        self.race.update_buttons(free=self.search is None and self.frontier.search is None)
        self.frontier.update_buttons(free=self.search is None and self.race.search is None)
        self.mode.disabled = not self._is_idle
        if self._is_idle == ("plan" in self.lab_state.busy):
            self.lab_state.set_busy("plan", not self._is_idle)

    def _show_mode(self) -> None:
        for mode in MODES:
            show(self._bars[mode], self.mode.value == mode)
            show(self._mains[mode], self.mode.value == mode)
        self._enter()

    def _enter(self) -> None:
        """Tell the modes that show something on the network whether they are looked at."""
        looked_at = self.mode.value if self.lab_state.pane == STEP else ""
        for mode, part in ((TEACHING, self.teaching), (BY_HAND, self.by_hand)):
            if looked_at != mode:
                part.leave()
        for mode, part in ((TEACHING, self.teaching), (BY_HAND, self.by_hand)):
            if looked_at == mode:
                part.enter()

    def _show_objective(self, *, restart: bool = False) -> None:
        """Write the curve in the chosen objective's words, unless it holds a search for another one."""
        if restart or not self.curve.points:
            measure = self.objective_controls.measure
            self.curve.title = measure.title
            self.curve.show_measure(measure.objective)

    def _show_budget(self) -> None:
        timed = self.budget.value == BUDGETS[0]
        show(self.seconds, timed)
        show(self.generations, not timed)

    def _describe_plan(self) -> None:
        """Write both seconds of the plan, and its table; a thread looks whether its devices have the memory."""
        plan = self.lab_state.plan
        self._update_buttons()
        self.details.value = self.alarm.value = ""
        if plan is None:
            self.note.value = ""
        elif self.lab_state.plan_is_stale:
            drawn = self.lab_state.topology is not None
            then = "plan again" if drawn else "what follows is of the network before; draw or open one to plan again"
            self.note.value = markup.line(f"The network or the job has changed since this plan: {then}.", "warning")
        else:
            self.note.value = markup.line(headline(plan), "figure")
            self.details.value = tables(plan)
            if has_event_loop():
                begin(self._add_details(plan, self.lab_state.job), self._report_error)

    async def _add_details(self, plan: Plan, job: Job | None) -> None:
        """Add which devices lack memory, and, for a plan that stays, why the least communication cost is another."""
        lacking = await asyncio.to_thread(_lacking, plan)
        if not self._is_described(plan):
            return
        self.alarm.value = markup.warning(lacking)
        await asyncio.sleep(SETTLED_S)
        if job is None or not self._is_fastest(plan) or not self._is_described(plan):
            return
        why = await asyncio.to_thread(_difference, plan, job)
        if why and self._is_described(plan):
            why = f'<div class="dtfm-plan-why">{escape(why)}</div>'
            self.details.value = why + tables(plan)

    def _is_fastest(self, plan: Plan) -> bool:
        """Whether the plan was found as the fastest of all, not as one of few dollars."""
        frontier = self.frontier.frontier
        cheaper = frontier is not None and any(one is plan for one in frontier.plans[1:])
        limited = {"max_price_per_hour", "max_iteration_s"} & set(self.objective_controls.options())
        return plan.objective == "iteration" and not cheaper and not limited

    def _is_described(self, plan: Plan) -> bool:
        """Whether this plan's table is still what is shown."""
        return self.lab_state.plan is plan and bool(self.details.value)


def _lacking(plan: Plan) -> str:
    """Return which devices lack memory under the plan's schedule, and what would fit; empty where all have enough."""
    report = held_memory(plan)
    return "" if report is None or report.fits else advice(plan) or report.sentence


def _difference(plan: Plan, job: Job) -> str:
    """Return why the plan of least communication cost is another one; empty where that cannot be said."""
    try:
        other = planning.plan(plan.topology, job, seed=0, seconds=COMMUNICATION_S)
        return why_they_differ(plan, other)
    except LabError:
        return ""


def describe_progress(step: PlanStep, seconds: float) -> str:
    """Return in words how far a search has come after so many seconds."""
    priced = f"{step.evaluations:,} plan{'s' * (step.evaluations != 1)} priced"
    spent = f"{seconds:.1f} s" if seconds >= SHORT_S else format_s(seconds)
    measure = measure_of(step.objective)
    shape = f" with {step.job.n_stages} x {step.job.n_replicas}" if step.objective != "communication" else ""
    return (
        f"generation {step.generation}, {priced} in {spent}: {measure.noun} {measure.words(step.best_s)}{shape}, "
        f"{measure.gap_words(step.best_s, step.bound_s)}"
    )
