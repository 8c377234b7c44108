"""Several planners on the same network, job and seed, with equal CPU time for each, and how they stand."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning import PlanStep, search
from dtfm_lab.planning.background_tasks import BackgroundTasks

TURN_S = 0.01
"""CPU seconds of a turn, or a little more, as a step is not cut short."""
WAIT_S = 0.05
"""Most seconds of a turn in which the planner waits without using the CPU."""
ENDLESS_S = 1e6
"""Seconds given to a search that is stopped from outside."""


def race(
    topology: Topology, job: Job, planners: Sequence[str], *, seed: int, cpu_s: float, **options: Any
) -> Iterator[PlanStep]:
    """Yield steps of all the planners, mixed; ``seconds`` of a step is the CPU time that its planner has used.

    The planner that has used the least CPU time has the next turn, so that at any moment all have used the same but
    for a turn, however busy the machine is. CPU time is that of the thread that runs the turns, read around each step,
    and of the threads that a planner starts, such as a solver's. These threads go on between turns, so that a planner
    may be ahead and then waits for the others. Its initial placements and its bound count as its time; compiling
    kernels, which happens once a machine, counts for no planner. A planner ends when it has used ``cpu_s`` or has
    proved its best.

    Of a turn, the steps that improved best or bound are yielded, and the newest; of a planner that ends, the last step
    again, with all the time that it has used.

    ``options`` are further keywords of ``planning.search``, such as the objective. Raises what ``search`` raises.
    """
    racers = [_Racer(topology, job, name, seed, options) for name in planners]
    try:
        while racers:
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
        """Search for ``TURN_S``; yield the steps that improved, and the newest."""
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

    def last_step(self) -> Iterator[PlanStep]:
        """Yield the newest step again, with the time used since."""
        if self._last is not None:
            yield replace(self._last, seconds=self.used_s)

    def close(self) -> None:
        """End the search, and its solver with it."""
        close = getattr(self._steps, "close", None)
        if close is not None:
            close()


@dataclass
class Standings:
    """The newest step of each planner of a race, and when it found its best."""

    newest: dict[str, PlanStep] = field(default_factory=dict)
    found_at_s: dict[str, float] = field(default_factory=dict)
    """CPU seconds that each planner had used when it found its best."""

    def add(self, steps: Iterable[PlanStep]) -> None:
        """Add steps, in the order in which they came."""
        for step in steps:
            before = self.newest.get(step.planner)
            if before is None or step.best_s < before.best_s:
                self.found_at_s[step.planner] = step.seconds
            self.newest[step.planner] = step

    @property
    def leader(self) -> PlanStep:
        """The newest step of the best planner; of equal ones, of the first to get there."""
        return min(self.newest.values(), key=lambda step: (step.best_s, self.found_at_s[step.planner]))

    @property
    def bound_s(self) -> float:
        """The highest bound that any planner has proved, which holds for all, but at most the best cost."""
        proved_s = max(step.bound_s for step in self.newest.values())
        return min(proved_s, self.leader.best_s)
