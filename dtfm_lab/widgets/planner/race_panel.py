"""Several planners side by side: their curves, a table of their standings, and buttons that take over a plan."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import ipywidgets as w
import plotly.graph_objects as go

from dtfm_lab import figures
from dtfm_lab.domain.errors import LabError
from dtfm_lab.planning import PlanStep, planners, simulated
from dtfm_lab.planning.step import PROVEN
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.controls import (
    button,
    classed,
    more_menu,
    restore_values,
    seconds_control,
    show,
    spacer,
    values_of,
)
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.measures import measure_of
from dtfm_lab.widgets.planner.background_search import BackgroundSearch
from dtfm_lab.widgets.planner.objective_controls import COMMUNICATION
from dtfm_lab.widgets.planner.racing import race
from dtfm_lab.widgets.planner.search_controls import AXES, PlacementPreview, SearchControls, as_steps, rows, watch
from dtfm_lab.widgets.planner.standings import Standings
from dtfm_lab.widgets.tasks import begin
from dtfm_lab.widgets.views.as_figure import AsFigure
from dtfm_lab.widgets.views.convergence import ConvergenceView

RACED = ("evolutionary", "dtfm", "hybrid", "random")
"""Planners that are chosen at first, in the order of their colours."""
FAIR = "Same network, job and seed; equal CPU seconds for each, its solver's included: who has used least goes next."


class RacePanel:
    """Sets ``lab_state.plan`` to the plan that is taken over; ``changed`` is called when a race begins or ends."""

    def __init__(
        self, lab_state: LabState, changed: Callable[[], None], options: Callable[[], dict[str, Any]] = dict
    ) -> None:
        self._lab_state, self._changed, self._options = lab_state, changed, options
        self._report_error = partial(lab_state.report_error, "plan")
        self.planners = {
            name: w.Checkbox(
                name in RACED, description=name, indent=False, layout=w.Layout(width="auto", margin="2px 14px 2px 0")
            )
            for name in [*RACED, *(name for name in planners if name not in RACED)]
        }
        self.controls = SearchControls(
            self._show_paused, "Hold the race", "End the race; every best can still be taken"
        )
        self.seed, self.speed = self.controls.seed, self.controls.speed
        self.pause, self.stop = self.controls.pause, self.controls.stop
        self.seconds = seconds_control(
            "Seconds each",
            ("180px", "98px"),
            3.0,
            "Seconds that each planner may compute; waiting for the others does not count",
        )
        self.start = button("Race", "", "Start all of them", "auto", style="primary")
        self.curve = classed(
            ConvergenceView(
                title="Race", height=0, against="seconds", clock="seconds of processor time of each planner"
            ),
            "dtfm-fill",
        )
        self.standings = Standings(self._take)
        self._measure = self.standings.measure
        self.figure = AsFigure(self._make_figure, lab_state, self._report_error)
        self._controls: dict[str, w.ValueWidget] = {"seed": self.seed, "seconds": self.seconds, "speed": self.speed}
        chosen = w.HBox([w.Label("Planners"), *self.planners.values()])
        rarer = [chosen, self.seconds, self.speed, self.seed, w.HTML(markup.line(FAIR, "note"))]
        rarer += [self.figure.button, self.figure.output]
        more = more_menu(rarer, tooltip="Who races, for how long, and how")
        self.bar: list[w.Widget] = [self.start, self.pause, self.stop, spacer(), more]
        self.view = w.VBox([self.curve, self.standings.view])
        self.start.on_click(lambda _: self.redo())
        for box in self.planners.values():
            box.observe(lambda _: self.update_buttons(), "value")
        self.update_buttons()

    @property
    def search(self) -> BackgroundSearch | None:
        """The race that runs; None while none does."""
        return self.controls.search

    @property
    def chosen(self) -> list[str]:
        return [name for name, box in self.planners.items() if box.value]

    def settings(self) -> dict[str, Any]:
        return values_of(self._controls) | {"planners": self.chosen, "against": self.curve.against}

    def restore(self, settings: dict[str, Any]) -> None:
        """Set the controls to saved values; unknown or impossible values are ignored."""
        restore_values(self._controls, settings)
        wanted = settings.get("planners")
        if isinstance(wanted, list | tuple):
            for name, box in self.planners.items():
                box.value = name in wanted
        if settings.get("against") in AXES:
            self.curve.against = settings["against"]

    def redo(self) -> None:
        topology, job = self._lab_state.topology, self._lab_state.job
        if self.start.disabled or topology is None or job is None:
            return
        self._lab_state.message = ""
        self.curve.reset()
        options = self._options()
        self._measure = self.standings.measure = measure_of(options.get("objective", COMMUNICATION))
        self.curve.show_measure(self._measure.objective)
        self.standings.begin(self.chosen)
        steps = race(topology, job, self.chosen, seed=self.seed.value, cpu_s=self.seconds.value, **options)
        begin(self._watch(self.controls.start(steps)), self._report_error)
        self._changed()

    def update_buttons(self, *, free: bool = True) -> None:
        """Enable the buttons that can be used; ``free`` is False while a single search runs."""
        ready = self._lab_state.topology is not None and self._lab_state.job is not None and len(self.chosen) > 0
        self.start.disabled = self.search is not None or not free or not ready
        self.controls.update()
        show(self.start, self.search is None)
        for one in (self.pause, self.stop):
            show(one, self.search is not None)

    async def _watch(self, search: BackgroundSearch) -> None:
        preview = PlacementPreview(self._lab_state)

        def show(steps: Sequence[PlanStep]) -> None:
            if steps:
                self.standings.update(steps)
                preview.show(self.standings.leader)
            by_planner: dict[str, list[PlanStep]] = {}
            for step in steps:
                by_planner.setdefault(step.planner, []).append(step)
            self.curve.extend_all({name: rows(some) for name, some in by_planner.items()}, self._describe(search))

        try:
            await watch(search, show)
            self.curve.caption = self._describe(search)
        except LabError as error:
            self._report_error(str(error))
        finally:
            self.controls.search = None
            preview.end()
            self.standings.show()
            self._changed()

    def _describe(self, search: BackgroundSearch) -> str:
        """Return in words how far the race has come and which planners lead."""
        if not self.standings.newest:
            return ""
        leader, bound_s = self.standings.leader, self.standings.bound_s
        used_s = max(step.seconds for step in self.standings.newest.values())
        state = "paused after" if search.paused else "after" if search.running else "over after"
        ties = [s.planner for s in self.standings.newest.values() if s.best_s <= leader.best_s * (1 + PROVEN)]
        leaders = f"{_listed(ties)} lead{'s' if len(ties) == 1 else ''}"
        words = self._measure.gap_words(leader.best_s, bound_s)
        with_what = f"{leaders} with {self._measure.words(leader.best_s)}, {words}"
        return f"{state} {used_s:.1f} s of processor time each: {with_what}"

    def _take(self, planner: str) -> None:
        step = self.standings.newest[planner]
        begin(self._take_step(step), self._report_error)

    async def _take_step(self, step: PlanStep) -> None:
        self._lab_state.plan = await asyncio.to_thread(lambda: simulated(step.plan))

    def _make_figure(self) -> go.Figure | None:
        newest = dict(self.standings.newest)
        points = dict(self.curve.points)
        steps = {name: as_steps(points[name], newest[name]) for name in newest if name in points}
        return figures.convergence(steps, against=self.curve.against) if steps else None

    def _show_paused(self) -> None:
        if self.search is not None:
            self.curve.caption = self._describe(self.search)
        self.update_buttons()


def _listed(names: Sequence[str]) -> str:
    """Return ``a``, ``a and b``, or ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
