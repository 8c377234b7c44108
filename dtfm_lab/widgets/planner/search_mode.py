"""The common part of the Search pane's searches: a start button, Stop, and the steps that a search yields."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning import Cancellation, PlanStep
from dtfm_lab.planning.cost import pair_costs
from dtfm_lab.planning.teaching_operators import places_of
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import SavedControls, button, controls_for, show
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.live_search import PopulationSampler
from dtfm_lab.widgets.tasks import Paced, Stream, begin
from dtfm_lab.widgets.views.population import cells_of

SHOWN_S = 0.25
"""Minimum seconds between two shown placements, because each redraws whole networks."""


class _Last(NamedTuple):
    """The newest step of a planner. If ``is_superseded``, it improved nothing, and the next step replaces it."""

    number: int
    step: PlanStep
    is_superseded: bool


class BackgroundSearch(Stream[PlanStep]):
    """Runs a search of one or more planners on a thread.

    A thread suffices: planners spend their time in compiled code that releases the interpreter's lock, and the
    interpreter lets the kernel run every few milliseconds. Of the thousands of steps between two calls of ``drain``, it
    keeps those that improved the best or the bound, and each planner's newest step, with its newest median.

    ``stop`` ends even a long simulated annealing at once, although a single step of it takes 300 ms. With
    ``has_population``, some steps, including the last, hold the search's population.
    """

    def __init__(self, steps: Iterator[PlanStep], *, has_population: bool = False) -> None:
        self._cancellation = Cancellation()
        self._sampler = PopulationSampler() if has_population else None
        self._last: dict[str, _Last] = {}
        self._best_s: dict[str, float] = {}
        self._bound_s: dict[str, float] = {}
        super().__init__(steps)

    def stop(self) -> None:
        super().stop()
        self._cancellation.set()

    def _follow(self, items: Iterator[PlanStep]) -> None:
        with self._cancellation.heard():
            super()._follow(items)
        if self._sampler is not None and (newest := self.newest) is not None:
            number = self._last[newest.planner].number + 1
            self._keep(number, newest, sampled=self._sampler.sampled(newest, last=True))

    def _keep(self, number: int, item: PlanStep, sampled: PlanStep | None = None) -> None:
        if self._sampler is not None:
            item = sampled or self._sampler.sampled(item)
        name, last = item.planner, self._last.get(item.planner)
        improved = item.best_s < self._best_s.get(name, math.inf) or item.bound_s > self._bound_s.get(name, -math.inf)
        self._best_s[name], self._bound_s[name] = item.best_s, item.bound_s
        with self._lock:
            # The page draws less often than steps come, so steps without news make room for newer ones.
            if last is not None and last.is_superseded and self._unseen.pop(last.number, None) is not None:
                # A sampled population or median must outlive the step that brought it.
                item = item if item.median_s is not None else replace(item, median_s=last.step.median_s)
                item = item if item.population is not None else replace(item, population=last.step.population)
            self._unseen[number] = item
        self._last[name] = _Last(number, item, not improved)


class SearchMode(SavedControls):
    """A way to search. A subclass makes ``bar`` and ``view``, starts a search and shows what it yields.

    The pane runs one search at a time. ``changed`` is called when one starts or ends.
    """

    bar: list[w.Widget]
    view: w.Widget

    def __init__(
        self, lab_state: LabState, changed: Callable[[], None], start: w.Button, settings: type, label_width: str = ""
    ) -> None:
        """``settings`` is the dataclass of the search's options, see ``controls_for``."""
        self._lab_state, self._changed, self.start = lab_state, changed, start
        self._controls = controls_for(settings, label_width)
        self._report_error = partial(lab_state.report_error, "plan")
        self.search: Stream[Any] | None = None
        """The running search. None if none runs."""
        self.stop = button("Stop", "", "End the search and keep the best", "auto")
        self.start.on_click(lambda _: self.redo())
        self.stop.on_click(lambda _: self._stop())
        show(self.stop, False)

    def redo(self) -> None:
        """Start the search, as the button does."""
        topology, job = self._lab_state.topology, self._lab_state.job
        if self.start.disabled or topology is None or job is None:
            return
        self._lab_state.message = ""
        try:
            search = self.search = self._begin(topology, job)
        except LabError as error:
            self._report_error(str(error))
            return
        begin(self._run(search), self._report_error)
        self._changed()

    def update_buttons(self, *, free: bool = True) -> None:
        """Enable the buttons that can be used. ``free`` is False while another mode searches."""
        runs = self.search is not None
        self.start.disabled = runs or not free or not self._is_ready
        self.stop.disabled = self.search is None or self.search.stopped.is_set()
        show(self.start, not runs)
        show(self.stop, runs)

    @property
    def _is_ready(self) -> bool:
        return self._lab_state.topology is not None and self._lab_state.job is not None

    def _begin(self, topology: Topology, job: Job) -> Stream[Any]:
        """Start the search. Raises LabError if it cannot start."""
        raise NotImplementedError

    async def _watch(self, search: Any) -> None:
        """Show what the search yields until it ends. ``_begin`` has started it."""
        raise NotImplementedError

    async def _run(self, search: Stream[Any]) -> None:
        try:
            await self._watch(search)
        finally:
            self.search = None
            self._lab_state.shown_stages = {}  # views show the plan again
            self._changed()

    def _stop(self) -> None:
        if self.search is not None:
            self.search.stop()
        self._changed()


class PlacementPreview:
    """Sets ``lab_state.shown_stages`` to a search's best placement, at most four times per second."""

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state, self._pace, self._best_s = lab_state, Paced(SHOWN_S), math.inf

    def show(self, step: PlanStep) -> None:
        """Show a step's placement if it is better than the one shown."""
        if step.best_s < self._best_s and self._pace.is_due():
            self._best_s = step.best_s
            self._lab_state.shown_stages = stages_by_name(step.topology, step.devices)


def network_cells(topology: Topology, job: Job) -> dict[str, Any]:
    """Return ``PopulationView.cells``, the places of devices in the pictures. They do not depend on the job's shape."""
    place_of, places = places_of(topology, pair_costs(topology, job))
    return cells_of(place_of, places, topology.names)


def stages_by_name(topology: Topology, grid: np.ndarray) -> dict[str, int]:
    """Return {device: stage} of the devices in use. ``grid`` is (S, D) device indices."""
    names = topology.names
    return {names[device]: stage for stage, group in enumerate(grid.tolist()) for device in group}


def rows(steps: Sequence[PlanStep]) -> np.ndarray:
    """Return an (n, 5) array of evaluations, seconds, best, bound and median for a ConvergenceView."""
    values = [(step.evaluations, step.seconds, step.best_s, step.bound_s, step.median_s) for step in steps]
    return np.array(values, dtype=float).reshape(-1, 5)
