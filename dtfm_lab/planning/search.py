"""Runs a search for plans by an objective, step by step, until its limits are reached or the best is proven."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning.objectives import SearchRequest, objectives
from dtfm_lab.planning.problem import planners
from dtfm_lab.planning.step import PlanStep
from dtfm_lab.simulation.schedules import schedules


def search(
    topology: Topology, job: Job, planner: str = "evolutionary", *, objective: str = "communication", **options: Any
) -> Iterator[PlanStep]:
    """Improving plans of the job: at least one step, one or more for each generation.

    ``objective`` is a name in ``objectives``: communication, iteration or price. ``options`` are those of a
    ``SearchRequest``. Arguments are checked by the call itself, before the first step is computed.

    Raises
    ------
    PlanError
        The job needs more devices than there are, or no plan fits their memory or the limits; a seed, steps, seconds or
        limit out of range; a start of another shape.
    JobError
        The objective needs a model that the job does not have.
    UnknownName
        No such planner, objective, schedule or queueing; a device of the start that the topology does not have.
    """
    planners[planner]  # raises UnknownName
    if job.schedule is not None:
        schedules[job.schedule]
    steps = objectives[objective].search(SearchRequest(topology=topology, job=job, planner=planner, **options))
    return (replace(step, left_open=job.left_open) for step in steps)


def last_step(topology: Topology, job: Job, planner: str = "evolutionary", **options: Any) -> PlanStep:
    """The last step of ``search`` within its limits, the ``options``; an interrupt keeps the one so far."""
    best: PlanStep | None = None
    try:
        for step in search(topology, job, planner, **options):
            best = step
    except KeyboardInterrupt:
        if best is None:
            raise
    assert best is not None, "a search yields at least one step"
    return best


def plan(topology: Topology, job: Job, planner: str = "evolutionary", **options: Any) -> Plan:
    """The best plan that ``search`` finds within its limits, see ``last_step``."""
    return last_step(topology, job, planner, **options).plan
