"""The lower bound beside a search for seconds or dollars: it rises while the search goes on, in a share of its time."""

import math
import time
from collections.abc import Callable, Iterator, Sequence

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning.iteration.left_open import choices_of, leaves_open
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.tables_of import SearchTarget
from dtfm_lab.planning.objectives import SearchRequest, network_of
from dtfm_lab.simulation.efficiency import GivenEfficiency

SCHEDULES = ("gpipe", "1f1b", "adaptive-1f1b")
"""Schedules of the plans that a bound is for, where the job names none: those that the search chooses from."""
SHARE, MOST_SHARE = 0.25, 0.5
"""Share of the search's time that may go into the bound while plans get better, and where none was better at all."""
FIRST_SHARE = 0.1
"""The same before the first generation is complete: a plan found by then is far from the best, and is kept where the
limit comes first."""
TURNS = 50
"""Times that the bound may rise for each step of a search that counts steps."""
MOST_DEVICES = 512
"""On networks of more devices the bound stays at the work of all devices: a proof of one shape takes minutes there."""
BEGIN = 0.3
"""Share of the time limit after which the bound is begun: with a better plan by then, it takes fewer trials."""


def rising_bounds(
    topology: Topology,
    job: Job,
    iteration_s: float | Callable[[], float],
    *,
    queueing: str = "pairs",
    lower_s: float = 0.0,
    max_price_per_hour: float | None = None,
    efficiency: GivenEfficiency = None,
) -> Iterator[float]:
    """Ever higher seconds that no plan of the job is faster than, for after a search has ended.

    They end where nothing more can be refuted. A caller may stop at any step; most take milliseconds. Of what the job
    leaves open between networks of groups, the choice with the least bound is raised first, as it alone decides.

    Parameters
    ----------
    job
        The job as it was searched, with all that it left open: not that of the plan that was found.
    iteration_s
        Seconds of the best plan, or a function that gives them whenever it is asked.
    lower_s
        A bound that is known already, from which this one rises.
    """
    from dtfm_lab.planning.iteration.bounds import iteration_bound_steps, least_of

    open_ = choices_of(topology, job) if leaves_open(job) else [(topology, job)]
    problems = [IterationProblem.of(*network_of(*one), queueing, efficiency=efficiency) for one in open_]
    limits = SCHEDULES, max_price_per_hour, lower_s
    return least_of([iteration_bound_steps(one, iteration_s, *limits) for one in problems])


class IncrementalBound:
    """The bounds of one or several problems, of which any may have the best plan, updated between steps of a search.

    A search that counts steps gets the bound with its last one, after so many ``TURNS`` a step: equal steps give equal
    bounds.
    """

    def __init__(self, problems: Sequence[IterationProblem], target: SearchTarget, request: SearchRequest) -> None:
        from dtfm_lab.planning.iteration.bounds import price_bound, work_bound_s

        self._problems, self._target, self._request = problems, target, request
        self.iteration_s = min(map(work_bound_s, problems))
        """Seconds of an iteration that no plan is faster than."""
        self.dollars = min(price_bound(one, SCHEDULES) for one in problems) if target.dollars else 0.0
        """US dollars of an iteration that no plan is cheaper than; 0 in a search for seconds, which shows none."""
        self._large = max(one.n_devices for one in problems) > MOST_DEVICES
        self._rising: Iterator[float] | None = None
        self._best_s = math.inf
        self._bettered_s = 0.0
        """When the search found its best plan, in seconds of searching."""
        self._spent_s = self._compiling_s = 0.0

    def update(
        self,
        best_s: float,
        generation: int,
        spent_s: Callable[[], float],
        *,
        complete: bool = True,
        compiling_s: float = 0.0,
    ) -> None:
        """Let the bound rise, towards the ``best_s`` seconds of the best plan so far, within its share of the time.

        ``complete`` and ``compiling_s`` are those of the generation that found it.
        """
        request = self._request
        if not request.improve_bound or self._large:
            return
        if request.steps is not None:
            if complete and generation + 1 == request.steps:
                self._raise_until(best_s, math.inf, TURNS * request.steps)
            return
        self._compiling_s = max(self._compiling_s, compiling_s)
        searched_s = spent_s() - self._compiling_s
        if best_s < self._best_s:
            self._best_s, self._bettered_s = best_s, searched_s
        if searched_s >= BEGIN * request.limit_s:  # which is 0 while kernels are compiled
            share_s = MOST_SHARE * searched_s - (MOST_SHARE - SHARE) * self._bettered_s
            self._raise_until(best_s, share_s if complete or generation else FIRST_SHARE * searched_s)

    def _raise_until(self, best_s: float, limit_s: float, most_turns: float = math.inf) -> None:
        from dtfm_lab.planning.iteration.bounds import iteration_bound_steps, least_of

        self._best_s = min(self._best_s, best_s)
        if self._rising is None:
            most = None if math.isinf(self._target.max_price_per_hour) else self._target.max_price_per_hour
            each = [iteration_bound_steps(one, lambda: self._best_s, SCHEDULES, most) for one in self._problems]
            self._rising = least_of(each)
        began = time.perf_counter()
        while self._spent_s + time.perf_counter() - began < limit_s and (most_turns := most_turns - 1) >= 0:
            bound_s = next(self._rising, None)
            if bound_s is None:
                break
            self.iteration_s = max(self.iteration_s, bound_s)
        self._spent_s += time.perf_counter() - began
