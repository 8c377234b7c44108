"""What a search and a race have in common: controls that steer it, and how its steps are shown while it runs."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import ipywidgets as w
import numpy as np

from dtfm_lab.planning import PlanStep
from dtfm_lab.widgets.controls import button, labelled, seed_control
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner.background_search import SPEEDS, BackgroundSearch, Pace
from dtfm_lab.widgets.tasks import FRAME_S

AXES = ("evaluations", "seconds")
"""What a convergence curve may be drawn against."""


LEAST_SLEEP_S = 0.01
"""Fewest seconds that are left to the rest of the event loop between two updates of the display."""
SHOWN_S = 0.25
"""Seconds between two placements shown, as each redraws whole networks."""


class SearchControls:
    """Seed, pace, Pause and Stop of the search that runs; ``changed`` is called when it is paused or goes on."""

    def __init__(self, changed: Callable[[], None], pause_tooltip: str, stop_tooltip: str) -> None:
        self._changed = changed
        self.search: BackgroundSearch | None = None
        """The search that runs; None while none does."""
        self.seed = seed_control("Equal seeds and generations give equal plans")
        self.speed = labelled(
            w.SelectionSlider,
            "Speed",
            "265px",
            "45px",
            options=list(SPEEDS),
            value="to watch",
            tooltip="How long an improvement stays on the screen; may be moved while it runs, and costs no budget",
        )
        self.pause = button("Pause", "", pause_tooltip, "auto")
        self.stop = button("Stop", "", stop_tooltip, "auto")
        self.speed.observe(lambda _: self._set_pace(), "value")
        self.pause.on_click(lambda _: self._toggle())
        self.stop.on_click(lambda _: self._stop())

    def start(self, steps: Iterator[PlanStep]) -> BackgroundSearch:
        """Run the steps on a thread at the chosen pace."""
        self.search = BackgroundSearch(steps, SPEEDS[self.speed.value])
        return self.search

    def update(self) -> None:
        """Enable the buttons while a search runs; Pause is Resume while it is paused."""
        self.pause.disabled = self.stop.disabled = self.search is None
        paused = self.search is not None and self.search.paused
        self.pause.description = "Resume" if paused else "Pause"

    def _stop(self) -> None:
        if self.search is not None:
            self.search.stop()

    def _toggle(self) -> None:
        if self.search is not None:
            (self.search.resume if self.search.paused else self.search.pause)()
        self._changed()

    def _set_pace(self) -> None:
        if self.search is not None:
            self.search.pace = SPEEDS[self.speed.value]


async def watch(
    search: BackgroundSearch, show: Callable[[list[PlanStep]], None], tick: Callable[[], None] = lambda: None
) -> None:
    """Call ``show`` with the new steps and then ``tick``, ``FRAME_S`` apart, until the search ends.

    ``show`` is called without steps, too, so that a clock can be redrawn, but not while the search is paused. The
    search is stopped when this is cancelled. Raises what the search raised.
    """
    loop = asyncio.get_running_loop()
    try:
        while True:
            due_s = loop.time() + FRAME_S
            running = search.running  # read before draining, so that no last step is missed
            steps = search.drain()
            if steps or (running and not search.paused):
                show(steps)
            if not running:
                return
            tick()
            await asyncio.sleep(max(LEAST_SLEEP_S, due_s - loop.time()))
    finally:
        search.stop()


def rows(steps: Sequence[PlanStep]) -> np.ndarray:
    """Return an (n, 5) array for a ConvergenceView."""
    values = [
        (s.evaluations, s.seconds, s.best_s, s.bound_s, np.nan if s.median_s is None else s.median_s) for s in steps
    ]
    return np.array(values, dtype=float).reshape(-1, 5)


def as_steps(points: np.ndarray, last: PlanStep) -> list[PlanStep]:
    """Return rows as steps of the search that ended in ``last``, for a figure. All have the last one's placement."""
    return [
        replace(
            last,
            evaluations=int(evaluations),
            seconds=seconds,
            best_s=best_s,
            bound_s=bound_s,
            median_s=None if np.isnan(median_s) else median_s,
        )
        for evaluations, seconds, best_s, bound_s, median_s in points.tolist()
    ]


class SearchClock:
    """Seconds of a search, also between its steps."""

    def __init__(self) -> None:
        self._step_s, self._at = 0.0, time.monotonic()

    def set(self, seconds: float) -> None:
        """Set the clock to the seconds of a step that has just come."""
        self._step_s, self._at = seconds, time.monotonic()

    def hold(self) -> None:
        """Stop the clock until the next call, as while the search is paused."""
        self._at = time.monotonic()

    def read(self, pace: Pace) -> float:
        """Return the seconds. The clock stops at a slow pace, as waiting costs no budget."""
        return self._step_s + (0.0 if any(pace) else time.monotonic() - self._at)


class PlacementPreview:
    """Sets ``lab_state.shown_stages`` to the best of a search, at most four times a second."""

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state = lab_state
        self._best_s = np.inf
        self._due = 0.0

    def show(self, step: PlanStep) -> None:
        """Show a step's placement where it is better than the one shown."""
        if step.best_s >= self._best_s or time.monotonic() < self._due:
            return
        self._best_s, self._due = step.best_s, time.monotonic() + SHOWN_S
        names = step.topology.names
        self._lab_state.shown_stages = {
            names[device]: stage for stage, group in enumerate(step.devices.tolist()) for device in group
        }

    def end(self) -> None:
        """End the preview: views show the plan again."""
        self._lab_state.shown_stages = {}
