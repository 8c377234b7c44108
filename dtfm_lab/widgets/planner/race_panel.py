"""The mode Race: several planners side by side, their curves, a table of how they stand, and the leader's plan."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Annotated, Any

import ipywidgets as w

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.options import Option
from dtfm_lab.planning import PlanStep, planners, simulated
from dtfm_lab.planning.step import PROVEN
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.controls import button, checkbox, classed, more_menu, spacer
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.measures import MEASURES, TIMES, ObjectiveWords, measure_of, percent
from dtfm_lab.widgets.planner.objective_controls import COMMUNICATION
from dtfm_lab.widgets.planner.plan_words import html_table
from dtfm_lab.widgets.planner.racing import Standings, race
from dtfm_lab.widgets.planner.search_mode import (
    AXES,
    SHOWN_S,
    BackgroundSearch,
    PlacementPreview,
    SearchMode,
    rows,
)
from dtfm_lab.widgets.tasks import Paced, begin
from dtfm_lab.widgets.views.convergence import ConvergenceView

RACED = ("evolutionary", "dtfm", "hybrid", "random")
"""Planners that are chosen at first, in the order of their colours."""
FAIR = "Same network, job and seed; equal CPU seconds for each, its solver's included: who has used least goes next."
HEAD = ("", "best", "behind", "computed", "priced", "found at", "planner")


@dataclass(frozen=True, kw_only=True)
class RaceSettings:
    """What a race is asked with."""

    seconds: Annotated[
        float,
        Option(
            help="Seconds that each planner may compute; waiting for the others does not count.", least=0.1, most=3600
        ),
    ] = 3.0
    seed: Annotated[int, Option(help="Of every planner's search.", most=2**31)] = 0


class RacePanel(SearchMode):
    """Sets ``lab_state.plan`` to the leader's plan when that is taken over."""

    def __init__(
        self, lab_state: LabState, changed: Callable[[], None], options: Callable[[], dict[str, Any]] = dict
    ) -> None:
        start = button("Race", "", "Start all of them", "auto", style="primary")
        super().__init__(lab_state, changed, start, RaceSettings)
        self._options = options
        self.standings = Standings()
        self._measure: ObjectiveWords = MEASURES[COMMUNICATION]
        self.planners = {
            name: checkbox(name, name in RACED) for name in [*RACED, *(one for one in planners if one not in RACED)]
        }
        self.seconds, self.seed = self._controls.values()
        self.take = button("Take the leader's plan", "", "Go on with the best plan of the race", "auto", disabled=True)
        clock = "seconds of processor time of each planner"
        self.curve = classed(ConvergenceView(title="Race", height=0, against="seconds", clock=clock), "dtfm-fill")
        self.table = classed(w.HTML(), "dtfm-race-table")
        rarer = [
            w.Label("Planners"),
            w.HBox(list(self.planners.values()), layout=w.Layout(grid_gap="4px 18px")),
            *self._controls.values(),
        ]
        rarer += [w.HTML(markup.line(FAIR, "note"))]
        more = more_menu(rarer, tooltip="Who races, for how long, and how")
        self.bar = [self.start, self.stop, self.take, spacer(), more]
        self.view = w.VBox([self.curve, self.table])
        self.take.on_click(lambda _: begin(self._take_leader(), self._report_error))
        for box in self.planners.values():
            box.observe(lambda _: self.update_buttons(), "value")
        self.update_buttons()

    @property
    def chosen(self) -> list[str]:
        """Names of the planners that race, in the order of their colours."""
        return [name for name, box in self.planners.items() if box.value]

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"planners": self.chosen, "against": self.curve.against}

    def restore(self, settings: Mapping[str, Any]) -> None:
        super().restore(settings)
        wanted = settings.get("planners")
        if isinstance(wanted, list | tuple):
            for name, box in self.planners.items():
                box.value = name in wanted
        if settings.get("against") in AXES:
            self.curve.against = settings["against"]

    @property
    def _is_ready(self) -> bool:
        return super()._is_ready and len(self.chosen) > 0

    def _begin(self, topology: Topology, job: Job) -> BackgroundSearch:
        options = self._options()
        self._measure = measure_of(options.get("objective", COMMUNICATION))
        self.standings, self.table.value, self.take.disabled = Standings(), "", True
        self.curve.reset()
        self.curve.show_measure(self._measure.objective)
        return BackgroundSearch(
            race(topology, job, self.chosen, seed=self.seed.value, cpu_s=self.seconds.value, **options)
        )

    async def _watch(self) -> None:
        assert self.search is not None
        preview, table = PlacementPreview(self._lab_state), Paced(SHOWN_S)

        def show(steps: Sequence[PlanStep]) -> None:
            self.standings.add(steps)
            preview.show(self.standings.leader)
            by_planner: dict[str, list[PlanStep]] = {}
            for step in steps:
                by_planner.setdefault(step.planner, []).append(step)
            self.curve.extend_all({name: rows(some) for name, some in by_planner.items()}, self._describe("after"))
            if table.is_due():
                self._show_table()

        try:
            await self.search.watch_all(show)
        finally:
            if self.standings.newest:
                self.curve.caption = self._describe("over after")
                self._show_table()
                self.take.disabled = False

    def _describe(self, state: str) -> str:
        """Return in words how far the race has come and which planners lead."""
        standings = self.standings
        leader = standings.leader
        used_s = max(step.seconds for step in standings.newest.values())
        ties = [s.planner for s in standings.newest.values() if s.best_s <= leader.best_s * (1 + PROVEN)]
        leaders = " and ".join(filter(None, [", ".join(ties[:-1]), ties[-1]]))
        words = self._measure.gap_words(leader.best_s, standings.bound_s)
        return (
            f"{state} {used_s:.1f} s of processor time each: {leaders} lead{'s' if len(ties) == 1 else ''} with "
            f"{self._measure.words(leader.best_s)}, {words}"
        )

    def _show_table(self) -> None:
        """Write a row for each planner, in the order and the colours of their curves."""
        best_s = self.standings.leader.best_s
        lines = []
        for place, name in enumerate(self.curve.points):
            step = self.standings.newest[name]
            behind = step.best_s / best_s - 1
            lines.append(
                (
                    f'<i class="dtfm-race-mark dtfm-series-{place}"></i>',
                    self._measure.words(step.best_s),
                    "–" if behind <= PROVEN else f"{1 + behind:,.0f} times" if behind + 1 >= TIMES else percent(behind),
                    f"{step.seconds:.2f} s",
                    _compact(step.evaluations),
                    f"{self.standings.found_at_s[name]:.2f} s",
                    escape(name),
                )
            )
        self.table.value = html_table("dtfm-race", HEAD, lines, label="planners")

    async def _take_leader(self) -> None:
        leader = self.standings.leader
        self._lab_state.plan = await asyncio.to_thread(lambda: simulated(leader.plan))


def _compact(count: int) -> str:
    for power, letter in ((9, "G"), (6, "M")):
        if count >= 10**power:
            return f"{count / 10**power:.3g} {letter}"
    return f"{count:,}"
