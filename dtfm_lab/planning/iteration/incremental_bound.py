"""The lower bound beside a search for seconds or dollars: it rises while the search goes on, in a share of its time."""

import math
import time
from collections.abc import Callable, Iterator

from dtfm_lab.planning.iteration.candidate import Candidate
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.tables_of import Aim
from dtfm_lab.planning.objectives import SearchRequest

SCHEDULES = ("gpipe", "1f1b", "adaptive-1f1b")
"""Schedules of the plans that a bound is for, where the job names none: those that the search chooses from."""
SHARE = 0.25
"""Share of the search's time that may go into the bound."""
BEGIN = 0.3
"""Share of the time limit after which the bound is begun: with a better plan by then, it takes fewer trials."""


class IncrementalBound:
    """The bounds of one problem, updated between two steps of a search.

    A search that counts steps gets the whole bound with its last step, so that equal steps give equal bounds.
    """

    def __init__(self, problem: IterationProblem, aim: Aim, request: SearchRequest) -> None:
        from dtfm_lab.planning.iteration.bounds import price_bound, work_bound_s

        self._problem, self._aim, self._request = problem, aim, request
        self.iteration_s = work_bound_s(problem)
        """Seconds of an iteration that no plan is faster than."""
        self.dollars = price_bound(problem, SCHEDULES) if aim.dollars else 0.0
        """US dollars of an iteration that no plan is cheaper than; 0 in a search for seconds, which shows none."""
        self._rising: Iterator[float] | None = None
        self._best_s = math.inf
        self._spent_s = self._compiling_s = 0.0

    def update(self, candidate: Candidate, generation: int, spent_s: Callable[[], float]) -> None:
        """Let the bound rise, towards the best plan so far, within its share of the time."""
        request = self._request
        if not request.improve_bound:
            return
        if request.steps is not None:
            if candidate.complete and generation + 1 == request.steps:
                self._raise_until(candidate, math.inf)
            return
        self._compiling_s = max(self._compiling_s, candidate.compiling_s)
        searched_s = spent_s() - self._compiling_s
        if candidate.compiling_s == 0 and searched_s >= BEGIN * request.limit_s:
            self._raise_until(candidate, SHARE * searched_s)

    def _raise_until(self, candidate: Candidate, limit_s: float) -> None:
        from dtfm_lab.planning.iteration.bounds import iteration_bound_steps

        self._best_s = min(self._best_s, candidate.iteration_s)
        if self._rising is None:
            most = self._aim.max_price_per_hour
            self._rising = iteration_bound_steps(
                self._problem,
                lambda: self._best_s,
                SCHEDULES,
                max_price_per_hour=None if math.isinf(most) else most,
            )
        began = time.perf_counter()
        while self._spent_s + time.perf_counter() - began < limit_s:
            bound_s = next(self._rising, None)
            if bound_s is None:
                break
            self.iteration_s = max(self.iteration_s, bound_s)
        self._spent_s += time.perf_counter() - began
