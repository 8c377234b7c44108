"""Runs a search for plans by an objective, step by step, until its limits are reached or the best is proven."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import QUEUEING, Topology, shortened
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import unknown
from dtfm_lab.planning.background_tasks import BackgroundTasks
from dtfm_lab.planning.objectives import SearchRequest, objectives
from dtfm_lab.planning.problem import planners
from dtfm_lab.planning.step import PlanStep
from dtfm_lab.simulation.efficiency import GivenEfficiency

DEFAULT_SECONDS = 2.0
"""Seconds of a search that is given neither steps nor seconds."""


def search(
    topology: Topology,
    job: Job,
    planner: str = "evolutionary",
    *,
    objective: str = "communication",
    seed: int = 0,
    steps: int | None = None,
    seconds: float | None = None,
    start: Plan | None = None,
    queueing: str = "pairs",
    efficiency: GivenEfficiency = None,
    max_price_per_hour: float | None = None,
    max_iteration_s: float | None = None,
    background_tasks: BackgroundTasks | None = None,
    improve_bound: bool = True,
) -> Iterator[PlanStep]:
    """Improving plans of the job: at least one step, one or more for each generation.

    Arguments are checked by the call itself, before the first step is computed.

    Parameters
    ----------
    planner
        A name in ``planners``. With the objectives iteration and price, ``evolutionary`` searches over everything that
        the job leaves open; any other gives its placements of each shape, of which the best by the objective is kept.
    objective
        A name in ``objectives``: communication, iteration or price.
    seed
        Seed of all random numbers. The same seed and ``steps`` give the same plan, bit for bit.
    steps, seconds
        Stop after so many generations or so much time; without either, after 2 seconds. A plan that
        is proven best ends the search early.
    start
        A plan to improve on, its devices found by name; of the same shape where the job names one.
    queueing
        Which messages wait for each other in the simulated iteration: those of ``pairs`` or of ``cards``.
    efficiency
        Share of their peak that devices reach, as ``simulate`` takes it.
    max_price_per_hour, max_iteration_s
        Only plans whose devices cost at most so many dollars an hour, or whose iteration takes at most so long.
    background_tasks
        Runs the threads that the planner starts, for a caller that counts their CPU time.
    improve_bound
        Whether a share of the time is spent on a tighter lower bound; False for the shortest searches.

    Raises
    ------
    PlanError
        The job needs more devices than there are, or no plan fits their memory or the limits; a seed, steps, seconds or
        limit out of range; a start of another shape.
    JobError
        The objective needs a model that the job does not have.
    UnknownName
        No such planner, objective or queueing; a device of the start that the topology does not have.
    """
    planners[planner]  # raises UnknownName
    minimised = objectives[objective]
    _check_limits(seed, steps, seconds)
    for what, most in (("max_price_per_hour", max_price_per_hour), ("max_iteration_s", max_iteration_s)):
        if most is not None and not (_number(most) and most > 0):
            raise PlanError(f"{what} is {shortened(most)}; wanted a number above 0")
    if start is not None and not isinstance(start, Plan):
        raise PlanError(f"start is {shortened(start)}; wanted a Plan")
    if queueing not in QUEUEING:
        raise unknown("queueing", queueing, QUEUEING)
    limit_s = math.inf if seconds is None else float(seconds)
    if steps is None and seconds is None:
        limit_s = DEFAULT_SECONDS
    steps_of = minimised.search(
        SearchRequest(
            topology=topology,
            job=job,
            planner=planner,
            seed=int(seed),
            steps=steps,
            limit_s=limit_s,
            start=start,
            queueing=queueing,
            efficiency=efficiency,
            max_price_per_hour=max_price_per_hour,
            max_iteration_s=max_iteration_s,
            background_tasks=background_tasks or BackgroundTasks(),
            improve_bound=improve_bound,
        )
    )
    return (replace(step, left_open=job.left_open) for step in steps_of)


def plan(
    topology: Topology,
    job: Job,
    planner: str = "evolutionary",
    *,
    objective: str = "communication",
    seed: int = 0,
    steps: int | None = None,
    seconds: float | None = None,
    start: Plan | None = None,
    queueing: str = "pairs",
    efficiency: GivenEfficiency = None,
    max_price_per_hour: float | None = None,
    max_iteration_s: float | None = None,
) -> Plan:
    """The best plan that ``search`` finds within its limits; an interrupt keeps the best so far."""
    best: PlanStep | None = None
    try:
        for step in search(
            topology,
            job,
            planner,
            objective=objective,
            seed=seed,
            steps=steps,
            seconds=seconds,
            start=start,
            queueing=queueing,
            efficiency=efficiency,
            max_price_per_hour=max_price_per_hour,
            max_iteration_s=max_iteration_s,
        ):
            best = step
    except KeyboardInterrupt:
        if best is None:
            raise
    assert best is not None, "a search yields at least one step"
    return best.plan


def _check_limits(seed: int, steps: int | None, seconds: float | None) -> None:
    if not _whole(seed) or seed < 0:
        raise PlanError(f"seed is {seed!r}; wanted a whole number, 0 or more")
    if steps is not None and (not _whole(steps) or steps < 1):
        raise PlanError(f"steps is {steps!r}; wanted a whole number, 1 or more")
    if seconds is not None and not (_number(seconds) and seconds > 0):
        raise PlanError(f"seconds is {seconds!r}; wanted a number above 0")


def _whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and math.isfinite(value)
