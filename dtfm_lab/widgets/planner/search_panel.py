"""The mode Real: the planner that makes the lab's plans, watched as a curve."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import ipywidgets as w

from dtfm_lab import lab
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.options import Option
from dtfm_lab.domain.units import format_s
from dtfm_lab.planning import PlanStep, planners, simulated
from dtfm_lab.widgets.controls import button, classed, more_menu, spacer
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.measures import measure_of
from dtfm_lab.widgets.planner.objective_controls import LABEL_WIDTH, ObjectiveControls
from dtfm_lab.widgets.planner.search_mode import AXES, BackgroundSearch, PlacementPreview, SearchMode, rows
from dtfm_lab.widgets.views.convergence import ConvergenceView

SHORT_S = 0.1
"""Seconds from which a duration is shown to a tenth of a second, so that the text does not flicker."""


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """What a search is asked with."""

    planner: Annotated[
        str, Option(help="Who searches: ours, the paper's, chance, or the one that proves.", choices=planners)
    ] = "evolutionary"
    seconds: Annotated[
        float, Option(help="Seconds of search, unless its best is proven before.", least=0.1, most=3600)
    ] = 3.0
    seed: Annotated[int, Option(help="Equal seeds give equal searches.", most=2**31)] = 0


class SearchPanel(SearchMode):
    """Sets ``lab_state.plan`` to what the search finds; ``aims`` says what that makes least."""

    def __init__(
        self, lab_state: LabState, changed: Callable[[], None], aims: ObjectiveControls, details: w.Widget
    ) -> None:
        plan = button("Plan", "", "Search for the best plan", "auto", style="primary")
        super().__init__(lab_state, changed, plan, SearchSettings, LABEL_WIDTH)
        self._aims = aims
        self.planner, self.seconds, self.seed = self._controls.values()
        self.curve = classed(ConvergenceView(height=0), "dtfm-fill")
        table = more_menu([details], "The plan", "Its stages and pipelines as a table")
        more = more_menu([aims.objective, aims.limits, *self._controls.values()])
        self.bar = [self.start, self.stop, spacer(), table, more]
        self.view = w.VBox([self.curve])

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"against": self.curve.against}

    def restore(self, settings: Mapping[str, Any]) -> None:
        super().restore(settings)
        if settings.get("against") in AXES:
            self.curve.against = settings["against"]

    def show_objective(self) -> None:
        """Write the curve in the chosen objective's words, unless it holds a search for another one."""
        if not self.curve.points:
            measure = self._aims.measure
            self.curve.title = measure.title
            self.curve.show_measure(measure.objective)

    def _begin(self, topology: Topology, job: Job) -> BackgroundSearch:
        steps = lab.search(
            topology,
            job,
            planner=self.planner.value,
            seed=self.seed.value,
            seconds=self.seconds.value,
            **self._aims.options(),
        )
        self.curve.reset()
        self.show_objective()
        return BackgroundSearch(steps)

    async def _watch(self) -> None:
        assert self.search is not None
        preview = PlacementPreview(self._lab_state)
        last: PlanStep | None = None

        def show(steps: Sequence[PlanStep]) -> None:
            nonlocal last
            last = steps[-1]
            preview.show(last)
            self.curve.extend_all({last.planner: rows(steps)}, describe_progress(last))

        await self.search.watch_all(show)
        if last is not None:
            found = last
            self._lab_state.plan = await asyncio.to_thread(lambda: simulated(found.plan))


def describe_progress(step: PlanStep) -> str:
    """Return in words how far a search has come."""
    priced = f"{step.evaluations:,} plan{'s' * (step.evaluations != 1)} priced"
    spent = f"{step.seconds:.1f} s" if step.seconds >= SHORT_S else format_s(step.seconds)
    measure = measure_of(step.objective)
    shape = f" with {step.job.n_stages} x {step.job.n_replicas}" if step.objective != "communication" else ""
    return (
        f"generation {step.generation}, {priced} in {spent}: {measure.noun} {measure.words(step.best_s)}{shape}, "
        f"{measure.gap_words(step.best_s, step.bound_s)}"
    )
