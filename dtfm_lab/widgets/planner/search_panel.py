"""The mode Real: the search that makes the lab's plans, with its population and its curve, on demand or live."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from dtfm_lab import lab
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.options import Option
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s
from dtfm_lab.figures.measures import ObjectiveWords, measure_of
from dtfm_lab.planning import PlanStep, objectives, planners, simulated
from dtfm_lab.planning.adapting import nearest
from dtfm_lab.planning.problem import PopulationFrame
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import button, classed, more_menu, spacer, values_of
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.live_search import LiveSearch, SearchFrames, Shown, frame_of_plan
from dtfm_lab.widgets.planner.job_controls import COMMUNICATION, LABEL_WIDTH, ObjectiveControls
from dtfm_lab.widgets.planner.plan_words import say_without_plan
from dtfm_lab.widgets.planner.search_mode import BackgroundSearch, PlacementPreview, SearchMode, network_cells, rows
from dtfm_lab.widgets.tasks import FRAME_S, begin, has_event_loop
from dtfm_lab.widgets.views.convergence import ConvergenceView
from dtfm_lab.widgets.views.population import PopulationView

BEFORE = "before the last edit: "
SHORT_S = 0.1
"""Durations of at least this many seconds are shown to a tenth of a second, because finer digits would flicker."""
REPLAY_S = 0.15
"""Seconds that a frame stays when a search is replayed."""
NO_PLAN = "No plan yet: draw or open a network to see its search here."
NOT_WATCHED = "The search for this plan was not recorded. Press Plan to search and watch."


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """The planner, time limit and seed of a search. Each field is one control of the panel."""

    planner: Annotated[
        str, Option(help="Search algorithm: ours, the paper's, random, or the one with proofs.", choices=planners)
    ] = "evolutionary"
    seconds: Annotated[
        float, Option(help="Seconds of search. Ends earlier if the best is proven.", least=0.1, most=3600)
    ] = 3.0
    seed: Annotated[int, Option(help="The same seed gives the same search.", most=2**31)] = 0


class SearchPanel(SearchMode):
    """Sets ``lab_state.plan`` to the plan that the search finds. ``aims`` holds the objective.

    While the pane is on the screen, it draws ``lab_state.live_search``. A hidden pane draws it once it is shown. A
    search that the user starts replaces it. ``show_live`` is called with the drawn steps, the caption, and True if they
    are the first of another live search.
    """

    def __init__(
        self,
        lab_state: LabState,
        changed: Callable[[], None],
        aims: ObjectiveControls,
        show_live: Callable[[Sequence[Shown], str, bool], None],
        also: Sequence[w.Widget] = (),
    ) -> None:
        """``also`` are further widgets for the menu Settings."""
        plan = button("Plan", "", "Search for the best plan", "auto", style="primary")
        super().__init__(lab_state, changed, plan, SearchSettings, LABEL_WIDTH)
        self._aims, self._show_live = aims, show_live
        self.planner, self.seconds, self.seed = self._controls.values()
        self.population = classed(PopulationView(title="The search", has_curve=False), "dtfm-fill", "dtfm-searched")
        say_without_plan(lab_state, NO_PLAN, lambda words: self.population.set_trait("hint", words))
        self.curve = classed(ConvergenceView(height=0, empty=NOT_WATCHED), "dtfm-fill")
        self._traits = {"against": (self.curve, "against")}
        what = "The objective, your limits, the planner and the search time"
        more = more_menu([aims.objective, aims.limits, *self._controls.values(), *also], "Settings", what)
        self.bar = [self.start, self.stop, spacer(), more]
        self.view = w.VBox([self.population, self.curve])
        self._names: tuple[str, ...] = ()
        """Names of the devices in the pictures. Empty without pictures."""
        self._displayed: LiveSearch | None = None
        """The live search on display. None for a search that the user started, or for nothing."""
        self._n_displayed = 0
        """Number of the live search's steps that are drawn."""
        self._is_looked_at = self._follows = False
        self.population.observe(lambda _: self._play(), "playing")
        lab_state.observe(lambda _: self._age(), ["topology", "job"])
        lab_state.observe(lambda _: self._follow(), ["live_search", "plan"])
        lab_state.observe(lambda _: self._raise_bound(), "bound_s")

    def look(self, is_looked_at: bool) -> None:
        """Draw live searches from now on if ``is_looked_at``. Otherwise stop, and pause the replay."""
        self._is_looked_at = is_looked_at
        if is_looked_at:
            self._follow()
        else:
            self.population.playing = False

    def show_objective(self) -> None:
        """Label an empty curve for the chosen objective. A curve that shows a search keeps its label."""
        if not self.curve.points:
            self._show_measure(self._aims.measure)

    def _show_measure(self, measure: ObjectiveWords) -> None:
        self.curve.title = measure.title
        self.curve.show_measure(measure.objective)

    def _age(self) -> None:
        """Note on a finished search that the network or the job has changed since."""
        if self.search is None and self.curve.points and not self.curve.caption.startswith(BEFORE):
            self.curve.caption = f"{BEFORE}{self.curve.caption}"

    def _begin(self, topology: Topology, job: Job) -> BackgroundSearch:
        steps = lab.search(topology, job, **values_of(self._controls), **self._aims.options())
        self._lab_state.live_search = self._displayed = None
        self._clear()
        self.show_objective()
        return BackgroundSearch(steps, has_population=True)

    async def _watch(self, search: BackgroundSearch) -> None:
        preview, frames = PlacementPreview(self._lab_state), SearchFrames()
        last: PlanStep | None = None

        def show(steps: Sequence[PlanStep]) -> None:
            nonlocal last
            last = steps[-1]
            preview.show(last)
            self._draw([Shown(step, frames.of(step)) for step in steps], describe_progress(last))

        await search.watch_all(show)
        self.population.is_over = True
        if last is not None:
            found = last
            self.curve.caption = describe_progress(found, over=True)
            # A simulation takes a while on large networks, and the page must keep responding.
            self._lab_state.plan = await asyncio.to_thread(lambda: nearest(simulated(found.plan), None))

    def _clear(self) -> None:
        self._names = ()
        self.curve.reset()

    def _draw(self, shown: Sequence[Shown], caption: str) -> None:
        """Add steps to both pictures. The population starts over with the first frame and on another network."""
        step, frames = shown[-1].step, list[PopulationFrame]()
        for one, frame in shown:
            if frame is None:
                continue
            if one.topology.names != self._names:
                # Frames of another network cannot be drawn in the same picture.
                frames = []
                self._begin_population(one)
            frames.append(frame)
        self.population.follow(frames)
        self.curve.extend_all({step.planner: rows([one for one, _ in shown])}, caption)

    def _play(self) -> None:
        if self.population.playing and has_event_loop():
            begin(self.population.play(lambda: REPLAY_S), self._report_error)

    def _follow(self) -> None:
        """If the pane is on the screen, draw the live search. Draw the plan if its network has no live search."""
        if not self._is_looked_at or self.search is not None:
            return
        live, plan = self._lab_state.live_search, self._lab_state.plan
        if live is not None and not live.is_over:
            if not self._follows and has_event_loop():
                self._follows = True
                begin(self._draw_live(), self._report_error)
            return
        names = None if plan is None or self._lab_state.plan_is_stale else plan.topology.names
        if live is not None and live.shown and names in (None, live.shown[-1].step.topology.names):
            self._draw_more(live, is_over=True)
        elif plan is not None and names not in (None, self._names):
            self._draw_plan(plan)

    def _draw_plan(self, plan: Plan) -> None:
        self._clear()
        self._displayed = None
        self._begin_population(plan)
        self.population.follow([frame_of_plan(plan)])
        self.population.is_over = True

    def _begin_population(self, of: PlanStep | Plan) -> None:
        self._names = of.topology.names
        self.population.begin(network_cells(of.topology, of.job))
        self.population.unit = measure_of(of.objective).unit

    async def _draw_live(self) -> None:
        """Draw the newest live search as it progresses, until it is over or the pane is hidden."""
        try:
            while self._is_looked_at and self.search is None and (live := self._lab_state.live_search) is not None:
                is_over = live.is_over  # read before the steps, so that the last one is not missed
                if live.shown:
                    self._draw_more(live, is_over)
                if is_over and live is self._lab_state.live_search:
                    return
                await asyncio.sleep(FRAME_S)
        finally:
            self._follows = False

    def _draw_more(self, live: LiveSearch, is_over: bool) -> None:
        """Draw the new steps, or start over with another search."""
        if live is not self._displayed:
            self._clear()
            self._show_measure(measure_of(live.shown[0].step.objective))
            self._displayed, self._n_displayed = live, 0
        new, caption = live.shown[self._n_displayed :], self._describe(live, is_over)
        if new:
            self._draw(new, caption)
            self._show_live(new, caption, self._n_displayed == 0)
            self._n_displayed += len(new)
        elif is_over:
            self.curve.caption = caption
        self.population.is_over = is_over
        if is_over:
            self._raise_bound()

    def _raise_bound(self) -> None:
        """Draw the raised bound of a finished live search, so that it agrees with the rest of the screen.

        The search that found the plan's bound may not be the one that was drawn last.
        """
        live, plan = self._displayed, self._lab_state.bounded_plan
        if plan is None or self._lab_state.plan_is_stale:
            return
        bound_s = plan.iteration_lower_bound_s or 0.0
        is_newest = live is self._lab_state.live_search
        if live is None or not is_newest or not live.is_over or self._n_displayed < len(live.shown):
            return
        step = live.shown[-1].step
        is_of_plan = plan.topology.fingerprint == step.topology.fingerprint and plan.objective == step.objective
        # A bound above the best plan's seconds would be a contradiction on the screen.
        if is_of_plan and step.objective == "iteration" and min(bound_s, step.best_s) > step.bound_s:
            live.shown.append(Shown(replace(step, bound_s=min(bound_s, step.best_s)), None))
            self._draw_more(live, is_over=True)

    def _describe(self, live: LiveSearch, is_over: bool) -> str:
        """Return the live search's progress in words. Once it is over, say if the lab kept another plan than the one
        found."""
        step, plan = live.shown[-1].step, self._lab_state.plan
        found = f"live: {describe_progress(step, over=is_over)}"
        if not is_over or plan is None:
            return found
        if self._lab_state.plan_is_stale or plan.topology.fingerprint != step.topology.fingerprint:
            return BEFORE + found
        if plan.objective != step.objective:
            return found
        value, words = objectives[plan.objective].value(plan), measure_of(plan.objective).words
        return found if words(value) == words(step.best_s) else f"{found}; the plan is kept at {words(value)}"


def describe_progress(step: PlanStep, *, over: bool = False) -> str:
    """Return a search's progress in words. Once it is ``over``, a bound that may still rise is left out."""
    priced = f"{step.evaluations:,} plan{'s' * (step.evaluations != 1)} evaluated"
    spent = f"{step.seconds:.1f} s" if step.seconds >= SHORT_S else format_s(step.seconds)
    measure = measure_of(step.objective)
    shape = f" with {step.job.n_stages} x {step.job.n_replicas}" if step.objective != COMMUNICATION else ""
    found = f"generation {step.generation}, {priced} in {spent}: {measure.noun} {measure.words(step.best_s)}{shape}"
    rises = over and step.objective != COMMUNICATION
    return found if rises else f"{found}, {measure.gap_words(step.best_s, step.bound_s)}"
