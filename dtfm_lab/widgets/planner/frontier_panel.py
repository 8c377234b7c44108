"""The mode Frontier: seconds against dollars, searched in the background. Clicking a point uses its plan."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from dtfm_lab import planning
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.options import Option
from dtfm_lab.planning import Frontier
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import button, classed, more_menu, spacer, values_of
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner.search_mode import SearchMode
from dtfm_lab.widgets.tasks import FRAME_S, Stream
from dtfm_lab.widgets.views.frontier import NOTHING, FrontierView

WHAT = (
    "The fastest plan at each hourly price. Hollow: a faster plan is cheaper per token. Click a point to use its plan."
)


@dataclass(frozen=True, kw_only=True)
class FrontierSettings:
    """Settings of a frontier search."""

    seconds: Annotated[float, Option(help="Total seconds of all searches.", least=1, most=3600)] = 15.0
    searches: Annotated[
        int,
        Option(help="Number of searches: fastest, cheapest, and under limits in dollars per hour.", least=2, most=200),
    ] = 12
    seed: Annotated[int, Option(help="Seed of the searches.", most=2**31)] = 0


class FrontierPanel(SearchMode):
    """Sets ``lab_state.plan`` to the plan of the clicked point."""

    def __init__(self, lab_state: LabState, changed: Callable[[], None]) -> None:
        what = "Search for the fastest plan, the cheapest plan, and the best ones in between"
        super().__init__(
            lab_state, changed, button("Find frontier", "", what, "auto", style="primary"), FrontierSettings
        )
        self.frontier: Frontier | None = None
        self.seconds, self.searches, self.seed = self._controls.values()
        self.chart = classed(FrontierView(self._choose, height=0), "dtfm-fill")
        more = more_menu(
            list(self._controls.values()), "Frontier settings", "How many searches, for how long, and the seed"
        )
        self.bar = [self.start, self.stop, spacer(), more]
        self.view = w.VBox([self.chart, w.HTML(markup.line(WHAT))])
        lab_state.observe(lambda _: self._mark_chosen(), "plan")
        lab_state.observe(lambda _: None if self.search else self._describe(), ["topology", "job"])

    def _begin(self, topology: Topology, job: Job) -> Stream[Frontier]:
        asked = values_of(self._controls) | {"queueing": self._lab_state.queueing}
        found = planning.stream_frontier(topology, job, **asked)
        self._take(None)
        return Stream(found)

    async def _watch(self, search: Stream[Frontier]) -> None:
        began_s = time.monotonic()

        def tick() -> None:
            state = "stopping" if search.stopped.is_set() else f"{time.monotonic() - began_s:.0f} s"
            self.chart.caption = f"{state}: {self._progress}"

        await search.watch(self._take, tick, every_s=FRAME_S * 3)
        self._describe()

    @property
    def is_of_before(self) -> bool:
        """True if the frontier is for a network or a job before an edit, or if there is no frontier yet."""
        found, specified = self.frontier, self._lab_state.topology
        if found is None or specified is None or found.job != self._lab_state.job:
            return True
        return found.topology.fingerprint != specified.fingerprint

    def _describe(self) -> None:
        """Describe the frontier, and whether it is of a network or a job before an edit."""
        if self.frontier is not None:
            before = "Before the last edit: " if self.is_of_before else ""
            self.chart.caption = f"{before}{self.frontier.sentence}. {self.frontier.note}"

    @property
    def _progress(self) -> str:
        frontier = self.frontier
        if frontier is None:
            return "looking for the fastest plan"
        n = len(frontier)
        return f"search {frontier.searches + 1} of {frontier.n_searches}, {n} plan{'s' * (n != 1)} so far"

    def _take(self, frontier: Frontier | None) -> None:
        self.frontier = frontier
        self.chart.show(frontier)
        self._mark_chosen()

    def _mark_chosen(self) -> None:
        plans = () if self.frontier is None else self.frontier.plans
        plan = self._lab_state.plan
        self.chart.chosen = next((at for at, one in enumerate(plans) if one is plan), NOTHING)

    def _choose(self, point: int) -> None:
        if self.frontier is not None and not self.is_of_before and 0 <= point < len(self.frontier.plans):
            self._lab_state.plan = self.frontier.plans[point]
