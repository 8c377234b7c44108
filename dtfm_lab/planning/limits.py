"""Turns what a planner yields into steps, until the limits of the request are reached or the best is proven."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from dtfm_lab.planning.objectives import SearchRequest
from dtfm_lab.planning.step import PROVEN, PlanStep

INITIAL_POPULATION_S = 1.0
"""Seconds that a search may take beyond its limit to complete its first generation."""


class SearchProgress(Protocol):
    """What a planner yields: a plan, and how far the search is."""

    @property
    def complete(self) -> bool:
        """False for progress within a generation, which is shown but not counted as a step."""
        ...

    @property
    def compiling_s(self) -> float:
        """Seconds waited so far for kernels to be compiled; no time limit counts them."""
        ...


F = TypeVar("F", bound=SearchProgress)
S = TypeVar("S", bound=PlanStep)


def steps_within(
    request: SearchRequest, found: Iterable[F], step_of: Callable[[F, int, Callable[[], float]], S]
) -> Iterator[S]:
    """The steps of a search; ``step_of`` makes one of what was found, of the generations before it, and of a clock.

    The clock tells the seconds since the search began, less those that the caller took between steps: it may show the
    step, pause, or run in slow motion.
    """
    began = time.perf_counter()
    generation, compiling_s, paused_s = 0, 0.0, 0.0

    def spent_s() -> float:
        return time.perf_counter() - began - paused_s

    for each in found:
        step = step_of(each, generation, spent_s)
        yielded = time.perf_counter()
        yield step
        paused_s += time.perf_counter() - yielded
        generation += each.complete
        if step.gap < PROVEN or generation == request.steps:
            return
        compiling_s = max(compiling_s, each.compiling_s)
        if spent_s() - compiling_s - request.limit_s >= (0.0 if generation else INITIAL_POPULATION_S):
            return
