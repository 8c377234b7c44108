"""Seconds against dollars: a frontier that is searched beside the page, and a click that takes one of its plans."""

import time
from collections.abc import Callable
from functools import partial

import ipywidgets as w
import plotly.graph_objects as go

from dtfm_lab import figures, planning
from dtfm_lab.domain.errors import LabError
from dtfm_lab.planning import Frontier
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.controls import button, classed, labelled, more_menu, seconds_control, seed_control, spacer
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.panel import SavedControls
from dtfm_lab.widgets.tasks import FRAME_S, Stream, begin
from dtfm_lab.widgets.views.as_figure import AsFigure
from dtfm_lab.widgets.views.frontier import NOTHING, FrontierView

WHAT = (
    "Plans of which no other is both as fast and as cheap an hour; hollow points are dearer by the token than a faster "
    "one. Click a point: its plan is the lab's."
)


class FrontierPanel(SavedControls):
    """Sets ``lab_state.plan`` to the plan of the point that is clicked; ``changed`` is called when a search begins or
    ends."""

    def __init__(self, lab_state: LabState, changed: Callable[[], None]) -> None:
        self._lab_state, self._changed = lab_state, changed
        self._report_error = partial(lab_state.report_error, "plan")
        self.search: Stream[Frontier] | None = None
        """The search that runs; None while none does."""
        self.frontier: Frontier | None = None
        self.seconds = seconds_control(
            "Seconds", ("150px", "60px"), 15.0, "Seconds of all searches together", least=1.0
        )
        self.searches = labelled(
            w.BoundedIntText,
            "Searches",
            "135px",
            "62px",
            12,
            min=2,
            max=200,
            tooltip="The fastest, the cheapest, and those under limits of dollars an hour",
        )
        self.seed = seed_control("Of the searches")
        self.start = button(
            "Find it",
            "",
            "Search for the frontier: the fastest, the cheapest, and those between",
            "auto",
            style="primary",
        )
        self.stop = button("Stop", "", "End after the search at hand and keep what is found", "auto", disabled=True)
        self.chart = classed(FrontierView(self._choose, height=0), "dtfm-fill")
        self.figure = AsFigure(self._make_figure, lab_state, self._report_error)
        self._controls = {
            "seconds": self.seconds,
            "searches": self.searches,
            "seed": self.seed,
        }
        self.note = w.HTML(markup.line(WHAT))
        more = more_menu([self.seconds, self.searches, self.seed, self.figure.button, self.figure.output])
        self.bar: list[w.Widget] = [self.start, self.stop, spacer(), more]
        self.view = w.VBox([self.chart, self.note])
        self.start.on_click(lambda _: self.redo())
        self.stop.on_click(lambda _: self._stop())
        lab_state.observe(lambda _: self._mark_chosen(), "plan")

    def redo(self) -> None:
        topology, job = self._lab_state.topology, self._lab_state.job
        if self.start.disabled or topology is None or job is None:
            return
        self._lab_state.message = ""
        try:
            found = planning.stream_frontier(
                topology,
                job,
                seconds=self.seconds.value,
                searches=self.searches.value,
                seed=self.seed.value,
                queueing=self._lab_state.queueing,
            )
        except LabError as error:
            self._report_error(str(error))
            return
        self._take(None)
        self.search = Stream(found)
        begin(self._watch(self.search), self._report_error)
        self._changed()

    def update_buttons(self, *, free: bool) -> None:
        """Enable the buttons that can be used; ``free`` is False while something else is searched."""
        ready = self._lab_state.topology is not None and self._lab_state.job is not None
        self.start.disabled = self.search is not None or not free or not ready
        self.stop.disabled = self.search is None or self.search.stopped.is_set()

    async def _watch(self, search: Stream[Frontier]) -> None:
        began_s = time.monotonic()

        def tick() -> None:
            self.chart.caption = self._describe(time.monotonic() - began_s, search)

        try:
            await search.watch(self._take, tick, every_s=FRAME_S * 3)
            if self.frontier is not None:
                self.chart.caption = f"{self.frontier.sentence}. {self.frontier.note}"
        finally:
            self.search = None
            self._changed()

    def _describe(self, seconds: float, search: Stream[Frontier]) -> str:
        frontier = self.frontier
        state = "stopping" if search.stopped.is_set() else f"{seconds:.0f} s"
        if frontier is None:
            return f"{state}: looking for the fastest plan"
        n = len(frontier)
        return f"{state}: search {frontier.searches + 1} of {frontier.n_searches}, {n} plan{'s' * (n != 1)} so far"

    def _take(self, frontier: Frontier | None) -> None:
        self.frontier = frontier
        self.chart.show(frontier)
        self._mark_chosen()

    def _mark_chosen(self) -> None:
        plans = () if self.frontier is None else self.frontier.plans
        plan = self._lab_state.plan
        self.chart.chosen = next((at for at, one in enumerate(plans) if one is plan), NOTHING)

    def _choose(self, point: int) -> None:
        if self.frontier is not None and 0 <= point < len(self.frontier.plans):
            self._lab_state.plan = self.frontier.plans[point]

    def _stop(self) -> None:
        if self.search is not None:
            self.search.stop()
        self._changed()

    def _make_figure(self) -> go.Figure | None:
        return None if self.frontier is None else figures.frontier(self.frontier)
