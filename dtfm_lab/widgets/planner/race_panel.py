"""The mode Race: several planners compared by their curves and a table, and the leader's plan."""

import asyncio
import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Annotated, Any

import pandas as pd

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.options import Option
from dtfm_lab.domain.registry import listed
from dtfm_lab.domain.units import TIMES, by_key
from dtfm_lab.figures.measures import MEASURES, ObjectiveWords, format_count, measure_of, percent
from dtfm_lab.planning import PlanStep, planners, search, simulated
from dtfm_lab.planning.background_tasks import BackgroundTasks
from dtfm_lab.planning.search import PROVEN
from dtfm_lab.widgets import markup
from dtfm_lab.widgets import quiet as w
from dtfm_lab.widgets.controls import button, checkbox, classed, more_menu, show, spacer
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.live_search import Shown
from dtfm_lab.widgets.planner.job_controls import COMMUNICATION
from dtfm_lab.widgets.planner.search_mode import SHOWN_S, BackgroundSearch, PlacementPreview, SearchMode, rows
from dtfm_lab.widgets.tasks import Paced, begin
from dtfm_lab.widgets.views.convergence import ConvergenceView

RACED = ("evolutionary", "dtfm", "hybrid", "random")
"""Planners that race by default, in the order of their colours."""
NO_RACE = "No race yet. Planners search this network with equal CPU time; the lowest curve leads."
CPU_CLOCK = "CPU seconds per planner"
FAIR = "Same network, job, seed and CPU seconds for each planner, solvers included. The one that used least goes next."
TURN_S = 0.01
"""CPU seconds per turn. A turn may take longer, because a step is not interrupted."""
WAIT_S = 0.05
"""Maximum wall-clock seconds of a turn. It ends the turn of a planner that waits without using the CPU."""
ENDLESS_S = 1e6
"""Time limit in seconds of a search that the race stops itself."""
HEAD = ("", "best", "behind", "computed", "priced", "found at", "planner")


@dataclass(frozen=True, kw_only=True)
class RaceSettings:
    """Settings of a race."""

    seconds: Annotated[
        float,
        Option(help="CPU seconds per planner. Waiting for the others does not count.", least=0.1, most=3600),
    ] = 3.0
    seed: Annotated[int, Option(help="Seed of every planner's search.", most=2**31)] = 0


class RacePanel(SearchMode):
    """Sets ``lab_state.plan`` to the leader's plan when the user takes it."""

    def __init__(
        self, lab_state: LabState, changed: Callable[[], None], options: Callable[[], dict[str, Any]] = dict
    ) -> None:
        start = button("Start race", "", "Start all chosen planners", "auto", style="primary")
        super().__init__(lab_state, changed, start, RaceSettings)
        self._options = options
        self.standings = Standings()
        self._measure: ObjectiveWords = MEASURES[COMMUNICATION]
        self.planners = {
            name: checkbox(name, name in RACED) for name in [*RACED, *(one for one in planners if one not in RACED)]
        }
        self.seconds, self.seed = self._controls.values()
        self.take = button(
            "Take the leader's plan", "", "Use the best plan of the race as the lab's plan", "auto", disabled=True
        )
        axes = {"against": "seconds", "clock": CPU_CLOCK}
        self.curve = classed(ConvergenceView(title="Race", height=0, **axes, empty=NO_RACE), "dtfm-fill")
        self._traits = {"against": (self.curve, "against")}
        self.table = classed(w.HTML(), "dtfm-race-table")
        rarer = [
            w.Label("Planners"),
            w.HBox(list(self.planners.values()), layout=w.Layout(grid_gap="4px 18px")),
            *self._controls.values(),
        ]
        rarer += [w.HTML(markup.line(FAIR, "note"))]
        more = more_menu(rarer, "Planners", "Which planners race, for how long, and the seed")
        self.bar = [self.start, self.stop, self.take, spacer(), more]
        self.live = classed(w.VBox(), "dtfm-searched")
        """The pictures of the live search, shown until the first race."""
        self.view = w.VBox([self.live, self.curve, self.table])
        self.take.on_click(lambda _: begin(self._take_leader(), self._report_error))
        for box in self.planners.values():
            box.observe(lambda _: self.update_buttons(), "value")
        self.update_buttons()

    @property
    def chosen(self) -> list[str]:
        """Names of the planners that the user has chosen to race, in the order of their colours."""
        return [name for name, box in self.planners.items() if box.value]

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"planners": self.chosen}

    def restore(self, settings: Mapping[str, Any]) -> None:
        super().restore(settings)
        wanted = settings.get("planners")
        if isinstance(wanted, list | tuple):
            for name, box in self.planners.items():
                box.value = name in wanted

    @property
    def _is_ready(self) -> bool:
        return super()._is_ready and len(self.chosen) > 0

    def _begin(self, topology: Topology, job: Job) -> BackgroundSearch:
        options = self._options()
        self._measure = measure_of(options.get("objective", COMMUNICATION))
        self.standings, self.table.value, self.take.disabled = Standings(), "", True
        self.curve.reset()
        self.curve.clock = CPU_CLOCK
        show(self.live, False)
        self.curve.show_measure(self._measure.objective)
        return BackgroundSearch(
            race(topology, job, self.chosen, seed=self.seed.value, cpu_s=self.seconds.value, **options)
        )

    async def _watch(self, search: BackgroundSearch) -> None:
        preview, table = PlacementPreview(self._lab_state), Paced(SHOWN_S)

        def show(steps: Sequence[PlanStep]) -> None:
            self.standings.add(steps)
            preview.show(self.standings.leader)
            by_planner = by_key((step.planner, step) for step in steps)
            self.curve.extend_all({name: rows(some) for name, some in by_planner.items()}, self._describe("after"))
            if table.is_due():
                self._show_table()

        try:
            await search.watch_all(show)
        finally:
            # Also after an error or Stop: what was found so far counts.
            if self.standings.newest:
                self.curve.caption = self._describe("over after")
                self._show_table()
                self.take.disabled = False

    def show_live(self, shown: Sequence[Shown], caption: str, is_another: bool) -> None:
        """Draw new steps of the live search, until the first race. ``is_another`` is True at the start of a search."""
        if self.search is not None or self.standings.newest:
            return
        steps = [one.step for one in shown]
        if is_another:
            self.curve.reset()
            self.curve.show_measure(steps[-1].objective)
            self.curve.clock = "seconds of search"
        self.curve.extend_all({steps[-1].planner: rows(steps)}, f"No race yet; {caption}")

    def _describe(self, state: str) -> str:
        """Return in words how far the race is and which planners lead."""
        standings = self.standings
        leader = standings.leader
        used_s = max(step.seconds for step in standings.newest.values())
        # Values so close are as good as equal.
        ties = [s.planner for s in standings.newest.values() if s.best_s <= leader.best_s * (1 + PROVEN)]
        words = self._measure.gap_words(leader.best_s, standings.bound_s)
        lead = f"{listed(ties)} lead{'s' if len(ties) == 1 else ''} with {self._measure.words(leader.best_s)}"
        return f"{state} {used_s:.1f} s of processor time each: {lead}, {words}"

    def _show_table(self) -> None:
        """Write one row per planner, in the order and the colours of their curves."""
        best_s = self.standings.leader.best_s
        lines = []
        for place, name in enumerate(self.curve.points):
            step = self.standings.newest[name]
            behind = step.best_s / best_s - 1
            times = f"{1 + behind:,.0f} times" if behind + 1 >= TIMES else percent(behind)
            mark, best = f'<i class="dtfm-race-mark dtfm-series-{place}"></i>', self._measure.words(step.best_s)
            where = "–" if behind <= PROVEN else times
            used, found = f"{step.seconds:.2f} s", f"{self.standings.found_at_s[name]:.2f} s"
            lines.append((mark, best, where, used, format_count(step.evaluations), found, escape(name)))
        self.table.value = markup.table(pd.DataFrame(lines, columns=HEAD), "dtfm-race", "planners")

    async def _take_leader(self) -> None:
        leader = self.standings.leader
        self._lab_state.plan = await asyncio.to_thread(lambda: simulated(leader.plan))


def race(
    topology: Topology, job: Job, planners: Sequence[str], *, seed: int, cpu_s: float, **options: Any
) -> Iterator[PlanStep]:
    """Yield steps of all planners, interleaved. ``seconds`` of a step is the CPU time that its planner has used.

    The planner that has used the least CPU time gets the next turn. So all planners have used the same CPU time to
    within one turn, however busy the machine is. Threads that a planner starts, such as a solver's, count as well. They
    continue between turns, so a planner may get ahead and then waits for the others. The time for initial placements
    and bounds counts. The time for compiling kernels does not. A planner ends when it has used ``cpu_s`` or has proved
    its best.

    A turn yields the steps that improved the best or the bound, and the newest. A planner that ends yields its last
    step again, with all its time.

    ``options`` are further keywords of ``planning.search``. Raises what ``search`` raises.
    """
    racers = [_Racer(topology, job, name, seed, options) for name in planners]
    try:
        while racers:
            # The planner that used least goes next, so that all have had equally much at any moment.
            yield from min(racers, key=lambda one: one.used_s).turn()
            for racer in [one for one in racers if one.ended or one.used_s >= cpu_s]:
                racers.remove(racer)
                racer.close()
                yield from racer.last_step()
    finally:
        for racer in racers:
            racer.close()


class _Racer:
    """One planner's search and the CPU time that it has used."""

    def __init__(self, topology: Topology, job: Job, planner: str, seed: int, options: Mapping[str, Any]) -> None:
        self._tasks = BackgroundTasks()
        # The race counts CPU seconds itself, so the planner gets no separate limit.
        self._steps = search(
            topology, job, planner, seed=seed, seconds=ENDLESS_S, background_tasks=self._tasks, **options
        )
        self._own_s, self._best_s, self._bound_s = 0.0, math.inf, -math.inf
        self._last: PlanStep | None = None
        self.ended = False

    @property
    def used_s(self) -> float:
        return self._own_s + self._tasks.cpu_s

    def turn(self) -> Iterator[PlanStep]:
        """Search for ``TURN_S`` and yield the steps that improved, and the newest."""
        # A planner that waits for a thread uses no CPU time, and must not hold up the others for ever.
        ends_s, latest = self.used_s + TURN_S, time.monotonic() + WAIT_S
        newest = None
        while self.used_s < ends_s and time.monotonic() < latest:
            # Time of this thread only, so that the drawing and other processes do not count.
            began_s = time.thread_time()
            step = next(self._steps, None)
            self._own_s += time.thread_time() - began_s
            if step is None:
                self.ended = True
                break
            newest = self._last = step
            if step.best_s < self._best_s or step.bound_s > self._bound_s:
                self._best_s, self._bound_s = step.best_s, step.bound_s
                newest = None
                yield replace(step, seconds=self.used_s)
        # The newest step shows that the planner still searches, even if nothing improved.
        if newest is not None:
            yield replace(newest, seconds=self.used_s)

    def last_step(self) -> Iterator[PlanStep]:
        """Yield the newest step again, with all the CPU time that the planner has used by now."""
        if self._last is not None:
            yield replace(self._last, seconds=self.used_s)

    def close(self) -> None:
        """End the search and its solver."""
        if isinstance(self._steps, Generator):
            self._steps.close()


@dataclass
class Standings:
    """The newest step of each planner in a race, and when it found its best."""

    newest: dict[str, PlanStep] = field(default_factory=dict)
    found_at_s: dict[str, float] = field(default_factory=dict)
    """CPU seconds that each planner had used when it found its best."""

    def add(self, steps: Iterable[PlanStep]) -> None:
        """Add steps in the order in which they arrived."""
        for step in steps:
            before = self.newest.get(step.planner)
            if before is None or step.best_s < before.best_s:
                self.found_at_s[step.planner] = step.seconds
            self.newest[step.planner] = step

    @property
    def leader(self) -> PlanStep:
        """The newest step of the best planner. Of equal ones, the first to get there."""
        return min(self.newest.values(), key=lambda step: (step.best_s, self.found_at_s[step.planner]))

    @property
    def bound_s(self) -> float:
        """The highest bound that any planner has proved. It holds for all, and is at most the best cost."""
        proved_s = max(step.bound_s for step in self.newest.values())
        return min(proved_s, self.leader.best_s)
