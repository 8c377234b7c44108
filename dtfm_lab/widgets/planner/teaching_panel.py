"""The mode Teaching: a slow search to watch, scrub and ask about, compared with the real planner's result."""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.options import Option
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.units import IntArray, format_s
from dtfm_lab.planning import evaluate, plan, simulated
from dtfm_lab.planning.problem import PopulationFrame
from dtfm_lab.planning.search import PROVEN
from dtfm_lab.planning.teaching import PACE_S, SEED, teach
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import SavedControls, classed, controls_for, more_menu, spacer
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner.search_mode import SHOWN_S, network_cells, stages_by_name
from dtfm_lab.widgets.planner.short_searches import is_priced_alike
from dtfm_lab.widgets.tasks import Paced, Stream, begin, has_event_loop
from dtfm_lab.widgets.views.population import PopulationView

PACES = {"slow": 0.48, "to watch": PACE_S, "fast": 0.1}
"""Seconds that a generation stays on the screen."""
REFERENCE_S = 1.0
"""Seconds of the real search that the slow one is compared with."""
NO_NETWORK = "Open or draw a network to watch a slow search."


@dataclass(frozen=True, kw_only=True)
class TeachingSettings:
    """Speed and seed of the search to watch."""

    pace: Annotated[
        str,
        Option(
            help="How long each generation stays on the screen. The search itself is not slowed.", choices=tuple(PACES)
        ),
    ] = "to watch"
    seed: Annotated[int, Option(help="Seed of the random numbers.", most=2**31)] = SEED


class TeachingTask(NamedTuple):
    """The network, the job and the seed of a search."""

    topology: Topology
    job: Job
    seed: int


class TeachingPanel(SavedControls):
    """Sets ``lab_state.shown_stages`` to the displayed individual, and ``plan`` if the user takes it."""

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state = lab_state
        self._report_error = partial(lab_state.report_error, "plan")
        self.search: Stream[PopulationFrame] | None = None
        """The running search. None if none runs, even if frames are left to show."""
        self.reference: Plan | None = None
        """The real planner's plan for the same network and job, for comparison. None until it is found."""
        self._task: TeachingTask | None = None
        self._is_shown = False
        self._pace = Paced(SHOWN_S * 0.9)
        self.view = classed(PopulationView(self._take, hint=NO_NETWORK), "dtfm-fill")
        self._controls = controls_for(TeachingSettings)
        self.pace, self.seed = self._controls.values()
        more = more_menu(list(self._controls.values()), "Speed", "How fast generations are shown, and the seed")
        self.bar: list[w.Widget] = [spacer(), more]
        self.view.observe(lambda _: self._play(), "playing")
        self.view.observe(lambda _: self._show(), ["frame", "chosen"])
        self.seed.observe(lambda _: self.forget(), "value")
        lab_state.observe(lambda _: self._follow(), ["topology", "job", "plan"])

    def enter(self) -> None:
        """Show the mode: start the search and draw its first generation. Playback waits for Play."""
        self._is_shown = True
        self._prepare()
        self._show()

    def leave(self) -> None:
        """Hide the mode: pause the playback, and let the map show the plan again."""
        if not self._is_shown:
            return
        self._is_shown = False
        self.view.playing = False
        if self.view.frames:
            self._lab_state.shown_stages = {}
            self._lab_state.set_note("plan", "")

    def forget(self) -> None:
        """Drop the search. The next one starts from scratch."""
        if self.search is not None:
            self.search.stop()
            self.search = None
        self._task = None
        self.view.playing = False
        if self.view.frames:
            self.view.begin(self.view.cells)
            self._lab_state.shown_stages = {}
        if self._is_shown:
            self._prepare()

    @property
    def sentence(self) -> str:
        """The headline: the real planner's result, and the slow search's progress."""
        view = self.view
        if not view.frames:
            return ""
        frame = view.frames[min(view.frame, len(view.frames) - 1)]
        real = f"{_result(self.reference)}. " if self.reference is not None else ""
        watch = f"Watch a simple search find it: {len(frame.individuals)} random placements"
        return f"{real}{watch}, generation {frame.generation}, {format_s(frame.best.cost_s)}."

    def _wanted(self) -> TeachingTask | None:
        """Return the search to watch: the network, and the job in the plan's shape. None without a network or a job.

        Without a current plan, a job that leaves its shape open gets the most square one.
        """
        topology, job, plan = self._lab_state.topology, self._lab_state.job, self._lab_state.plan
        if topology is None or job is None:
            return None
        if plan is not None and not self._lab_state.plan_is_stale:
            job = plan.job
        return TeachingTask(topology, job if job.shaped else job.fitted(len(topology)), self.seed.value)

    def _follow(self) -> None:
        """Start over if the network or the shape has changed."""
        try:
            wanted = self._wanted()
        except LabError:
            wanted = None
        if self._task is not None and (wanted is None or not _alike(wanted, self._task)):
            self.reference = None
            self.forget()
        elif self._is_shown:
            self._prepare()

    def _prepare(self) -> None:
        """Start the search on its thread, unless it was started before."""
        if self._task is not None or not has_event_loop():
            return
        try:
            task = self._wanted()
            if task is None:
                self.view.hint = NO_NETWORK
                return
            frames = teach(task.topology, task.job, np.random.default_rng(task.seed))
        except LabError as error:
            self.view.hint = str(error)
            return
        self._task = task
        self.view.begin(network_cells(task.topology, task.job))
        self.view.hint = "Evaluating twenty random placements …"
        self.search = Stream(frames)
        begin(self._watch(self.search, task), self._report_error)
        begin(self._refer(task), self._report_error)

    async def _watch(self, search: Stream[PopulationFrame], task: TeachingTask) -> None:
        def show(frames: list[PopulationFrame]) -> None:
            if self._task is task:
                first = not self.view.frames
                self.view.extend(frames)
                if first:
                    self._show()

        try:
            await search.watch_all(show)
            if self._task is task:
                self.view.is_over = True
        finally:
            if self.search is search:
                self.search = None

    async def _refer(self, task: TeachingTask) -> None:
        found = await asyncio.to_thread(lambda: plan(task.topology, task.job, seed=0, seconds=REFERENCE_S))
        if self._task is task:
            self.reference = found
            with self.view.hold_sync():
                self.view.bound_s, self.view.planner_s = found.lower_bound_s, found.cost.total_s
            self._show()

    def _play(self) -> None:
        if self.view.playing:
            self._prepare()
            if has_event_loop():
                begin(self.view.play(lambda: PACES[self.pace.value]), self._report_error)
        self._show(now=True)

    def _show(self, *, now: bool = False) -> None:
        """Show the individual on the network's views, about four times per second during playback."""
        one = self.view.shown
        if one is None or not self._is_shown or self._task is None:
            return
        self._lab_state.set_note("plan", self.sentence)
        if self._pace.is_due() or now or not self.view.playing:
            self._lab_state.shown_stages = stages_by_name(self._task.topology, one.grid)

    def _take(self, number: int) -> None:
        self.view.playing = False
        begin(self._take_over(number), self._report_error)

    async def _take_over(self, number: int) -> None:
        task = self._task
        if task is None:
            return
        grid = self.view.individuals[number].grid
        plan = await asyncio.to_thread(plan_of, task.topology, task.job, grid)
        if self._task is task:
            self._lab_state.plan = plan
            cost = format_s(plan.cost.total_s)
            self._lab_state.set_note("plan", f"Placement {number} is now the plan: {cost} of communication.")


def _result(reference: Plan) -> str:
    """Return ``Best possible: 456 ms of messages``, or the best that the real planner found."""
    did = "Best possible" if reference.gap < PROVEN else "Best found"
    return f"{did}: {format_s(reference.cost.total_s)} of messages"


def plan_of(topology: Topology, job: Job, grid: IntArray) -> Plan:
    """Return the plan of a (S, D) grid whose columns are its pipelines, with its iteration time."""
    ranks = Placement(grid).rank_map(len(topology))
    return simulated(evaluate(topology, job, rank_map=ranks))


def _alike(one: TeachingTask, other: TeachingTask) -> bool:
    """True if two tasks have the same placements at the same costs, for example if only a plan's stage sizes
    changed."""
    shapes = [(task.job.n_stages, task.job.n_replicas, task.seed) for task in (one, other)]
    if shapes[0] != shapes[1] or one.topology.names != other.topology.names:
        return False
    return is_priced_alike(one[:2], other[:2])
