"""A search that runs beside the kernel's event loop and can be paused, stepped, slowed and stopped."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Generator, Iterator
from typing import NamedTuple

from dtfm_lab.planning import PlanStep

HEED_S = 0.05
"""how soon a search that lingers heeds another pace"""


class Pace(NamedTuple):
    """For how many seconds a step stays on the screen before the search goes on."""

    improved_s: float = 0.0
    """a step that improved the best"""
    other_s: float = 0.0
    """any other"""


SPEEDS = {
    "slow motion": Pace(1.0, 0.1),
    "slow": Pace(0.4, 0.02),
    "to watch": Pace(0.15),
    "fast": Pace(0.03),
    "full speed": Pace(),
}
"""slowest first"""


class BackgroundSearch:
    """Runs a stream of PlanSteps, of one planner or several, on a thread; whoever watches calls ``drain``.

    A thread and not a process: planners spend their time in compiled code that needs no interpreter, and the
    interpreter hands the kernel its turn every few milliseconds. Of thousands of steps between two looks, those
    that improved wait to be seen, and of each planner the newest, and the newest that knows a median.

    A pause takes effect between two steps: some 50 ms apart, a tenth of a second where a planner waits for a solver.
    """

    def __init__(self, steps: Iterator[PlanStep], pace: Pace = SPEEDS["full speed"]) -> None:
        self.pace = pace
        """may be changed while it runs"""
        self._unseen: dict[int, PlanStep] = {}
        """by number, in the order of their coming"""
        self._passing: dict[tuple[str, str], int] = {}
        """(planner, what for) -> the number of a step that is to be seen only while it is the newest"""
        self._looking = threading.Lock()
        self._go = threading.Event()
        self._go.set()
        self._once = threading.Event()
        self._stopped = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, args=(steps,), daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @property
    def paused(self) -> bool:
        return self.running and not self._go.is_set()

    def pause(self) -> None:
        if not self._stopped.is_set():  # who was told to end must not be held before it does
            self._go.clear()

    def resume(self) -> None:
        self._once.clear()
        self._go.set()

    def step(self) -> None:
        """Go on for one generation, then pause."""
        self._once.set()
        self._go.set()

    def stop(self) -> None:
        """Ask it to end after the step at hand; does not wait."""
        self._stopped.set()
        self._go.set()

    def drain(self) -> list[PlanStep]:
        """The steps since the last call that improved best or bound, and the newest, in the order of their coming.

        Raises what the search raised, once they are all out.
        """
        with self._looking:
            unseen, self._unseen, self._passing = self._unseen, {}, {}
        if not unseen and self.error is not None:
            error, self.error = self.error, None
            raise error
        return [step for _, step in sorted(unseen.items())]

    def _work(self, steps: Iterator[PlanStep]) -> None:
        best_s: dict[str, float] = {}
        bound_s: dict[str, float] = {}
        generation = -1
        try:
            for number, step in enumerate(steps):
                better = step.best_s < best_s.get(step.planner, math.inf)
                raised = step.bound_s > bound_s.get(step.planner, -math.inf)
                self._show(number, step, told=better or raised)
                best_s[step.planner], bound_s[step.planner] = step.best_s, step.bound_s
                if any(self.pace):
                    self._linger(better)
                if self._once.is_set() and step.generation != generation:
                    self._once.clear()
                    self._go.clear()
                generation = step.generation
                if not self._stopped.is_set():  # told to stop while it held: nobody lets it go on again
                    self._go.wait()
                if self._stopped.is_set():
                    return
        except BaseException as error:
            self.error = error
        finally:
            if isinstance(steps, Generator):
                steps.close()  # a solver that is at work for it ends, too

    def _linger(self, better: bool) -> None:
        began = time.monotonic()
        while not self._stopped.is_set():
            left_s = began + (self.pace.improved_s if better else self.pace.other_s) - time.monotonic()
            if left_s <= 0:
                return
            self._stopped.wait(min(left_s, HEED_S))

    def _show(self, number: int, step: PlanStep, *, told: bool) -> None:
        with self._looking:
            self._unseen[number] = step
            uses = ["newest"] if step.median_s is None else ["newest", "median"]
            for use in uses:
                before = self._passing.pop((step.planner, use), None)
                if before is not None and before not in self._passing.values():
                    del self._unseen[before]
            if not told:
                self._passing.update({(step.planner, use): number for use in uses})
