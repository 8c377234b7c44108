"""What is shown of a search while it runs: rows for the curves, and where its best puts each device."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dtfm_lab.planning import PlanStep
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner.background_search import BackgroundSearch, Pace
from dtfm_lab.widgets.tasks import FRAME_S

BREATH_S = 0.01
"""that the loop has for everything else, however late it is"""
SHOWN_S = 0.25
"""between two placements shown: what follows them redraws whole networks"""


async def watch(
    search: BackgroundSearch, show: Callable[[list[PlanStep]], None], tick: Callable[[], None] = lambda: None
) -> None:
    """Show the new steps of a search, ``FRAME_S`` apart, until it ends; ``tick`` in between. Stops it when cancelled.

    While nothing is new, and it is not paused either, there are no steps to show and time goes by.

    Raises what the search raised.
    """
    loop = asyncio.get_running_loop()
    try:
        while True:
            due_s = loop.time() + FRAME_S
            running = search.running  # before draining, so that nothing is missed at the end
            steps = search.drain()
            if steps or (running and not search.paused):
                show(steps)
            if not running:
                return
            tick()
            await asyncio.sleep(max(BREATH_S, due_s - loop.time()))
    finally:
        search.stop()


def rows(steps: Sequence[PlanStep]) -> np.ndarray:
    """(n, 5) for a ConvergenceView."""
    values = [
        (s.evaluations, s.seconds, s.best_s, s.bound_s, np.nan if s.median_s is None else s.median_s) for s in steps
    ]
    return np.array(values, dtype=float).reshape(-1, 5)


def as_steps(points: np.ndarray, last: PlanStep) -> list[PlanStep]:
    """Rows as steps of the search that ended in ``last``, for a figure; their placement is the last one's."""
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


class Clock:
    """Seconds of a search, also between its steps."""

    def __init__(self) -> None:
        self._told_s, self._at = 0.0, time.monotonic()

    def set(self, seconds: float) -> None:
        """By a step that has just come."""
        self._told_s, self._at = seconds, time.monotonic()

    def hold(self) -> None:
        """No time goes by while a search is paused."""
        self._at = time.monotonic()

    def read(self, pace: Pace) -> float:
        """It stands still while a step stays on the screen for long, which costs no budget."""
        return self._told_s + (0.0 if any(pace) else time.monotonic() - self._at)


class PlacementPreview:
    """Puts the best of a search on ``lab_state.shown_stages``, four times a second at most."""

    def __init__(self, lab_state: LabState) -> None:
        self._lab_state = lab_state
        self._best_s = np.inf
        self._due = 0.0

    def show(self, step: PlanStep) -> None:
        """Of a step that is newer than any before it."""
        if step.best_s >= self._best_s or time.monotonic() < self._due:
            return
        self._best_s, self._due = step.best_s, time.monotonic() + SHOWN_S
        names = step.topology.names
        self._lab_state.shown_stages = {
            names[device]: stage for stage, group in enumerate(step.devices.tolist()) for device in group
        }

    def end(self) -> None:
        """The plan speaks again."""
        self._lab_state.shown_stages = {}
