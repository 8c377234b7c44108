"""Several planners side by side, ours against the paper's: curves, standings, and whose plan is taken over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as w
import plotly.graph_objects as go

from dtfm_lab import figures
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.units import format_s
from dtfm_lab.planning import PlanStep, planners
from dtfm_lab.planning.search import PROVEN
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.control_state import restore, settings
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner.background_search import SPEEDS, BackgroundSearch
from dtfm_lab.widgets.planner.planner_controls import button, seed_control, show_paused, speed_control
from dtfm_lab.widgets.planner.racing import race
from dtfm_lab.widgets.planner.search_display import PlacementPreview, as_steps, rows, watch
from dtfm_lab.widgets.planner.standings import Standings
from dtfm_lab.widgets.tasks import begin
from dtfm_lab.widgets.views.as_figure import AsFigure
from dtfm_lab.widgets.views.convergence import ConvergenceView, gap_words

RACED = ("evolutionary", "dtfm", "hybrid", "random")
"""at first, in the order of their colours; others can be added"""
FAIR = "Same network, job and seed; equal CPU seconds for each, its solver's included: who has used least goes next."


class RacePanel:
    """Sets ``lab_state.plan`` where somebody takes one over; ``running`` tells ``changed`` when it turns."""

    def __init__(self, lab_state: LabState, changed: Callable[[], None]) -> None:
        self._lab_state, self._changed = lab_state, changed
        self.search: BackgroundSearch | None = None
        self.planners = {
            name: w.Checkbox(
                name in RACED, description=name, indent=False, layout=w.Layout(width="auto", margin="2px 14px 2px 0")
            )
            for name in [*RACED, *(name for name in planners if name not in RACED)]
        }
        self.seed, self.speed = seed_control(), speed_control()
        self.seconds = w.BoundedFloatText(
            3.0,
            min=0.1,
            max=3600,
            step=1,
            description="CPU s each",
            tooltip="CPU seconds that each planner gets",
            layout=w.Layout(width="150px"),
            style={"description_width": "75px"},
        )
        self.start = button("Race", "flag-checkered", "primary", "Start all of them")
        self.pause = button("Pause", "pause", "", "Hold the race")
        self.stop = button("Stop", "stop", "", "End the race; every best can still be taken")
        self.curve = ConvergenceView(title="Race", height=260, against="seconds", clock="CPU seconds of each planner")
        self.standings = Standings(self._take)
        self.figure = AsFigure(self._drawn, lab_state, self._report_error)
        self.view = w.VBox(
            [
                w.HBox([w.Label("Planners", layout=w.Layout(margin="2px 10px 2px 4px")), *self.planners.values()]),
                w.HBox([self.seconds, self.seed, self.speed]),
                w.HBox([self.start, self.pause, self.stop, self.figure.button]),
                w.HTML(markup.line(FAIR, "note")),
                self.curve,
                self.standings.view,
                self.figure.output,
            ]
        )
        self.start.on_click(lambda _: self.redo())
        self.pause.on_click(lambda _: self._toggle())
        self.stop.on_click(lambda _: self.search and self.search.stop())
        self.speed.observe(lambda _: self._set_pace(), "value")
        for box in self.planners.values():
            box.observe(lambda _: self.buttons(), "value")
        self.buttons()

    @property
    def chosen(self) -> list[str]:
        return [name for name, box in self.planners.items() if box.value]

    def settings(self) -> dict[str, Any]:
        return settings(self._controls) | {"planners": self.chosen, "against": self.curve.against}

    def restore(self, values: dict[str, Any]) -> None:
        restore(self._controls, values)
        wanted = values.get("planners")
        if isinstance(wanted, list | tuple):
            for name, box in self.planners.items():
                box.value = name in wanted
        if values.get("against") in ("evaluations", "seconds"):
            self.curve.against = values["against"]

    def redo(self) -> None:
        """What the button Race does."""
        topology, job = self._lab_state.topology, self._lab_state.job
        if self.start.disabled or topology is None or job is None:
            return
        self._lab_state.message = ""
        self.curve.reset()
        self.standings.begin(self.chosen)
        steps = race(topology, job, self.chosen, seed=self.seed.value, cpu_s=self.seconds.value)
        self.search = BackgroundSearch(steps, SPEEDS[self.speed.value])
        begin(self._watch(self.search), self._report_error)
        self._changed()

    def buttons(self, *, free: bool = True) -> None:
        """``free``: nothing else searches."""
        racing = self.search is not None
        ready = self._lab_state.topology is not None and self._lab_state.job is not None and len(self.chosen) > 0
        self.start.disabled = racing or not free or not ready
        self.pause.disabled = self.stop.disabled = not racing
        show_paused(self.pause, self.search is not None and self.search.paused)

    async def _watch(self, search: BackgroundSearch) -> None:
        placing = PlacementPreview(self._lab_state)

        def show(steps: Sequence[PlanStep]) -> None:
            if steps:
                self.standings.hear(steps)
                placing.show(self.standings.leader)
            by_planner: dict[str, list[PlanStep]] = {}
            for step in steps:
                by_planner.setdefault(step.planner, []).append(step)
            self.curve.tell({name: rows(some) for name, some in by_planner.items()}, self._told(search))

        try:
            await watch(search, show)
            self.curve.caption = self._told(search)
        except LabError as error:
            self._report_error(str(error))
        finally:
            self.search = None
            placing.end()
            self.standings.settle()
            self._changed()

    def _told(self, search: BackgroundSearch) -> str:
        if not self.standings.newest:
            return ""
        leader, bound_s = self.standings.leader, self.standings.bound_s
        used_s = max(step.seconds for step in self.standings.newest.values())
        state = "paused after" if search.paused else "after" if search.running else "over after"
        ties = [s.planner for s in self.standings.newest.values() if s.best_s <= leader.best_s * (1 + PROVEN)]
        who = f"{_listed(ties)} lead{'s' if len(ties) == 1 else ''}"
        return f"{state} {used_s:.1f} CPU s each at most: {who} with {format_s(leader.best_s)}, " + gap_words(
            leader.best_s, bound_s
        )

    def _take(self, planner: str) -> None:
        self._lab_state.plan = self.standings.newest[planner].plan

    def _drawn(self) -> go.Figure | None:
        newest = dict(self.standings.newest)
        points = dict(self.curve.points)
        steps = {name: as_steps(points[name], newest[name]) for name in newest if name in points}
        return figures.convergence(steps, against=self.curve.against) if steps else None

    def _toggle(self) -> None:
        if self.search is not None:
            (self.search.resume if self.search.paused else self.search.pause)()
            self.curve.caption = self._told(self.search)
        self.buttons()

    def _set_pace(self) -> None:
        if self.search is not None:
            self.search.pace = SPEEDS[self.speed.value]

    def _report_error(self, message: str) -> None:
        self._lab_state.report_error("plan", message)

    @property
    def _controls(self) -> dict[str, w.ValueWidget]:
        return {"seed": self.seed, "seconds": self.seconds, "speed": self.speed}


def _listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``"""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
