"""Several planners on the same network, job and seed, with equal CPU time for each."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning import PlanStep, search
from dtfm_lab.planning.background_tasks import BackgroundTasks

TURN_S = 0.01
"""CPU seconds of a turn, or a little more: a step is not cut short"""
WAIT_S = 0.05
"""that a turn takes at most where a planner waits without working"""
ENDLESS_S = 1e6


def race(topology: Topology, job: Job, planners: Sequence[str], *, seed: int, cpu_s: float) -> Iterator[PlanStep]:
    """Steps of all the planners, mixed; ``seconds`` of each is the CPU time that its planner has used.

    Whoever has used the least CPU time has the next turn, so that at any moment all have used the same but for a
    turn, whatever the machine does besides. CPU time is the clock of the one thread that gives the turns, read
    around each step, and the clocks of the threads that a planner starts for itself, a solver's, which go on between
    its turns: so it may be ahead, and waits until the others have caught up, but is cut off at its ``cpu_s`` like
    everybody. Each pays for its own founding and for raising its own bound; compiling kernels, done once a machine,
    is nobody's. A planner leaves when it has used its time or has proved its best.

    Of a turn, the steps that improved best or bound are handed out, and the newest; of who leaves, the last once
    more, with all the time that it has used.

    Raises what ``search`` raises.
    """
    racers = [_Racer(topology, job, name, seed) for name in planners]
    try:
        while racers:
            yield from min(racers, key=lambda one: one.used_s).turn()
            for racer in [one for one in racers if one.ended or one.used_s >= cpu_s]:
                racers.remove(racer)
                racer.close()
                yield from racer.farewell()
    finally:
        for racer in racers:
            racer.close()


class _Racer:
    """One planner's search and the CPU time that it has used."""

    def __init__(self, topology: Topology, job: Job, planner: str, seed: int) -> None:
        self._tasks = BackgroundTasks()
        self._steps = search(topology, job, planner, seed=seed, seconds=ENDLESS_S, background_tasks=self._tasks)
        self._own_s, self._best_s, self._bound_s = 0.0, math.inf, -math.inf
        self._last: PlanStep | None = None
        self.ended = False

    @property
    def used_s(self) -> float:
        return self._own_s + self._tasks.cpu_s

    def turn(self) -> Iterator[PlanStep]:
        ends_s, latest = self.used_s + TURN_S, time.monotonic() + WAIT_S
        newest = None
        while self.used_s < ends_s and time.monotonic() < latest:
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
        if newest is not None:
            yield replace(newest, seconds=self.used_s)

    def farewell(self) -> Iterator[PlanStep]:
        if self._last is not None:
            yield replace(self._last, seconds=self.used_s)

    def close(self) -> None:
        close = getattr(self._steps, "close", None)
        if close is not None:
            close()  # a solver that is at work for it ends, too
