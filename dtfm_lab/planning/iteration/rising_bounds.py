"""The lower bound after a search has ended: it rises for as long as the caller waits."""

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
    open_ = choices_of(topology, job) if leaves_open(job) else [(topology, job)]
    problems = [IterationProblem.of(*network_of(*one), queueing, efficiency=efficiency) for one in open_]
    limits = SCHEDULES, max_price_per_hour, lower_s
    return least_of([iteration_bound_steps(one, iteration_s, *limits) for one in problems])
