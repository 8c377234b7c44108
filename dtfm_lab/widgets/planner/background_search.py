"""A search on a thread beside the kernel's event loop, which can be paused, stepped, slowed and stopped."""

import math
import threading
import time
from collections.abc import Generator, Iterator
from typing import NamedTuple

from dtfm_lab.planning import Cancellation, PlanStep
from dtfm_lab.widgets.tasks import KeptStream

PACE_CHECK_S = 0.05
"""Seconds between two looks at ``pace`` while a search waits, as it may have been changed."""


class Pace(NamedTuple):
    """Seconds that a step stays on the screen before the search goes on."""

    improved_s: float = 0.0
    """Of a step that improved the best."""
    other_s: float = 0.0
    """Of any other step."""


SPEEDS = {
    "slow motion": Pace(1.0, 0.1),
    "slow": Pace(0.4, 0.02),
    "to watch": Pace(0.15),
    "fast": Pace(0.03),
    "full speed": Pace(),
}
"""The offered paces, slowest first."""


class BackgroundSearch(KeptStream[PlanStep]):
    """Runs a search of one planner or several on a thread; ``drain`` returns the new steps.

    A thread suffices: planners spend their time in compiled code without the interpreter's lock, and the interpreter
    lets the kernel run every few milliseconds. Of thousands of steps between two calls of ``drain``, those are kept
    that improved, and of each planner the newest and the newest with a median.

    A pause takes effect between two steps: some 50 ms apart, 100 ms where a planner waits for a solver, 300 ms in the
    longest annealings of a plan by its seconds, which a stop ends at once.
    """

    def __init__(self, steps: Iterator[PlanStep], pace: Pace = SPEEDS["full speed"]) -> None:
        self.pace = pace
        """May be changed while the search runs."""
        self._superseded: dict[tuple[str, str], int] = {}
        """Numbers of the steps that are kept only while they are the newest, by planner and "newest" or "median"."""
        self._go = threading.Event()
        self._go.set()
        self._single_step = threading.Event()
        self._cancellation = Cancellation()
        super().__init__(steps)

    @property
    def paused(self) -> bool:
        return self.running and not self._go.is_set()

    def pause(self) -> None:
        if not self.stopped.is_set():  # a search that is stopping must not be held
            self._go.clear()

    def resume(self) -> None:
        self._single_step.clear()
        self._go.set()

    def step(self) -> None:
        """Run the search for one generation, then pause it."""
        self._single_step.set()
        self._go.set()

    def stop(self) -> None:
        """End the search; return at once."""
        super().stop()
        self._cancellation.set()
        self._go.set()

    def _take_unseen(self) -> dict[int, PlanStep]:
        self._superseded = {}
        return super()._take_unseen()

    def _follow(self, steps: Iterator[PlanStep]) -> None:
        with self._cancellation.heard():
            try:
                self._search(steps)
            finally:
                if isinstance(steps, Generator):
                    steps.close()  # ends its solver, too

    def _search(self, steps: Iterator[PlanStep]) -> None:
        best_s: dict[str, float] = {}
        bound_s: dict[str, float] = {}
        generation = -1
        for number, step in enumerate(steps):
            better = step.best_s < best_s.get(step.planner, math.inf)
            raised = step.bound_s > bound_s.get(step.planner, -math.inf)
            self._keep(number, step, improved=better or raised)
            best_s[step.planner], bound_s[step.planner] = step.best_s, step.bound_s
            if any(self.pace):
                self._hold(better)
            if self._single_step.is_set() and step.generation != generation:
                self._single_step.clear()
                self._go.clear()
            generation = step.generation
            if not self.stopped.is_set():  # a search that is stopped while it waits must not wait again
                self._go.wait()
            if self.stopped.is_set():
                return

    def _hold(self, better: bool) -> None:
        began = time.monotonic()
        while not self.stopped.is_set():
            left_s = began + (self.pace.improved_s if better else self.pace.other_s) - time.monotonic()
            if left_s <= 0:
                return
            self.stopped.wait(min(left_s, PACE_CHECK_S))

    def _keep(self, number: int, step: PlanStep, *, improved: bool) -> None:
        with self._lock:
            self._unseen[number] = step
            uses = ["newest"] if step.median_s is None else ["newest", "median"]
            for use in uses:
                before = self._superseded.pop((step.planner, use), None)
                if before is not None and before not in self._superseded.values():
                    del self._unseen[before]
            if not improved:
                self._superseded.update({(step.planner, use): number for use in uses})
