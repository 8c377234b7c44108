"""The lower bound after a search has ended. It rises for as long as the caller waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dtfm_lab.costs.efficiency import GivenEfficiency
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning.iteration.bounds import iteration_bound_steps, least_of
from dtfm_lab.planning.iteration.bounds.iteration_bound import SCHEDULES
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.structured.layouts import choices_of, leaves_open
from dtfm_lab.planning.search import network_of


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
    """Yield lower bounds in seconds that no plan of the job can beat. They never fall. For use after a search has
    ended.

    The iterator ends once the bound can rise no further. A caller may stop at any step. Most steps take milliseconds.
    Among the choices that the job leaves open, the one with the lowest bound is raised first, because it alone decides.

    Parameters
    ----------
    job
        The job as it was searched, with everything that it left open, not the job of the plan that was found.
    iteration_s
        Seconds of the best plan, or a function that returns them at any time.
    lower_s
        A bound that is known already, from which this one rises.
    """
    open_ = choices_of(topology, job) if leaves_open(job) else [(topology, job)]
    problems = [IterationProblem.of(*network_of(*one), queueing, efficiency=efficiency) for one in open_]
    limits = SCHEDULES, max_price_per_hour, lower_s
    return least_of([iteration_bound_steps(one, iteration_s, *limits) for one in problems])
