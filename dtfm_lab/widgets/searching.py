"""A search that runs beside the kernel's event loop and can be paused, stepped and stopped."""

from __future__ import annotations

import math
import threading
from collections.abc import Generator, Iterator

from dtfm_lab.planning import PlanStep


class BackgroundSearch:
    """Runs a stream of PlanSteps on a thread; whoever watches calls ``drain``.

    A thread and not a process: steps are small numpy work, and the interpreter hands the kernel its
    turn every few milliseconds. Of thousands of steps between two looks, those that improved wait to be
    seen, and the newest.
    """

    def __init__(self, steps: Iterator[PlanStep], linger_s: float = 0.0) -> None:
        """``linger_s``: how long each improvement stays before the search goes on, for slow motion."""
        self._linger_s = linger_s
        self._unseen: list[PlanStep] = []
        self._told = False
        """whether the newest of them improved"""
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
        """The steps since the last call that improved best or bound, and the newest.

        Raises what the search raised, once they are all out.
        """
        with self._looking:
            steps, self._unseen = self._unseen, []
        if not steps and self.error is not None:
            error, self.error = self.error, None
            raise error
        return steps

    def _work(self, steps: Iterator[PlanStep]) -> None:
        best_s, bound_s, generation = math.inf, -math.inf, -1
        try:
            for step in steps:
                better = step.best_s < best_s
                self._show(step, told=better or step.bound_s > bound_s)
                best_s, bound_s = step.best_s, step.bound_s
                if better:
                    self._stopped.wait(self._linger_s)
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

    def _show(self, step: PlanStep, *, told: bool) -> None:
        with self._looking:
            if self._unseen and not self._told:
                self._unseen.pop()
            self._unseen.append(step)
            self._told = told
