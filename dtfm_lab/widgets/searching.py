"""A search that runs beside the kernel's event loop and can be paused, stepped and stopped."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Iterator

from dtfm_lab.planning import PlanStep


class BackgroundSearch:
    """Runs a stream of PlanSteps on a thread; whoever watches calls ``drain``.

    A thread and not a process: steps are small numpy work, and the interpreter hands the kernel its
    turn every few milliseconds.
    """

    def __init__(self, steps: Iterator[PlanStep], linger_s: float = 0.0) -> None:
        """``linger_s``: how long each improvement stays before the search goes on, for slow motion."""
        self._steps, self._linger_s = steps, linger_s
        self._seen: queue.SimpleQueue[PlanStep] = queue.SimpleQueue()
        self._go = threading.Event()
        self._go.set()
        self._stopped = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
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
        self._go.set()

    def stop(self) -> None:
        """Ask it to end after the step at hand; does not wait."""
        self._stopped.set()
        self._go.set()

    def drain(self) -> list[PlanStep]:
        """The steps since the last call; raises what the search raised, once they are all out."""
        steps = []
        while not self._seen.empty():
            steps.append(self._seen.get())
        if not steps and self.error is not None:
            error, self.error = self.error, None
            raise error
        return steps

    def _work(self) -> None:
        best_s = math.inf
        try:
            for step in self._steps:
                self._seen.put(step)
                if step.best_s < best_s:
                    best_s = step.best_s
                    self._stopped.wait(self._linger_s)
                self._go.wait()
                if self._stopped.is_set():
                    return
        except BaseException as error:
            self.error = error
