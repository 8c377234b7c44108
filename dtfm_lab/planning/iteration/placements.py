"""Placements from a planner for the communication cost, priced by the simulator.

The planner places every shape that divides the batch evenly. If no shape does, it places all shapes, with micro-batch
counts as even as possible. The best placement is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning.evaluate import why_not_simulated
from dtfm_lab.planning.iteration.problem import IterationProblem, SearchTarget, checkpointings_of
from dtfm_lab.planning.iteration.shape_searches import chosen_job, require_shapes, shapes_of
from dtfm_lab.planning.iteration.structured.candidates import Candidate, candidate_of
from dtfm_lab.planning.search import (
    CommunicationCost,
    SearchRequest,
)

MOST_STEPS = 64
"""Maximum number of generations of a planner for one placement. Beyond it, other seeds find more than further
generations."""
SCHEDULE = "1f1b"
"""Schedule if the job names none. Of the schedules for any network, it needs the least memory."""


def placements_by(
    request: SearchRequest, problem: IterationProblem, target: SearchTarget, rng: np.random.Generator
) -> Iterator[Candidate]:
    """Yield the best placement so far that a planner for communication finds, after each shape in each round. Yields
    nothing before the first placement that fits.

    Shapes that use most devices come first. In each round the planner has twice the generations of the round before, up
    to ``MOST_STEPS``. Raises PlanError: at the call if the job's shape rules all out, after the first round if none
    fits or can be simulated.
    """
    require_shapes(problem)
    return _placements_by(request, _shapes(problem), target, rng)


def _placements_by(
    request: SearchRequest, shapes: list[Job], target: SearchTarget, rng: np.random.Generator
) -> Iterator[Candidate]:
    best: Candidate | None = None
    evaluations = 0
    for steps in (min(2**i, MOST_STEPS) for i in count()):
        for job in shapes:
            seed = int(rng.integers(2**31))
            asked = SearchRequest(
                topology=request.topology,
                job=job,
                planner=request.planner,
                seed=seed,
                steps=steps,
                background_tasks=request.background_tasks,
                improve_bound=False,
            )
            *_, step = CommunicationCost().search(asked)
            evaluations += step.evaluations
            plan = step.plan.changed(queueing=request.queueing, efficiency=request.efficiency)
            operator = f"{plan.planner}, {job.n_stages} x {job.n_replicas}"
            plans = (plan.changed(job=chosen) for chosen in _checkpointed(plan))
            found = next(filter(None, (candidate_of(one, target, evaluations, operator) for one in plans)), None)
            if found is not None and (best is None or found.best_s < best.best_s):
                best = found
            if best is not None:
                yield best
        if best is None:
            if why := why_not_simulated(plan):
                raise PlanError(f"no placement of {request.job.name} by {request.planner} can be simulated: {why}")
            raise PlanError(
                f"no placement of {request.job.name} by {request.planner} fits the devices of {request.topology.name} "
                "and the limits; wanted planner evolutionary, more memory or looser limits"
            )


def _shapes(problem: IterationProblem) -> list[Job]:
    """Return the job in each shape that divides its batch evenly, or in every shape if no shape does. Shapes with
    the most devices come first."""
    job, microbatch = problem.job, problem.microbatches[0]
    found = shapes_of(problem, microbatch, most_shapes=problem.n_devices**2)
    even = [(s, r) for s, r in found if not job.global_batch % (r * microbatch)]
    return [
        job.with_fields(n_stages=s, n_replicas=r, microbatch=microbatch, schedule=job.schedule or SCHEDULE)
        for s, r in sorted(even or found, key=lambda shape: (-shape[0] * shape[1], shape))
    ]


def _checkpointed(plan: Plan) -> Iterator[Job]:
    """Yield the plan's job with its cut and micro-batch counts, and with each kind of checkpointing that it leaves
    open."""
    for job in checkpointings_of(plan.job):
        counts = np.array(job.microbatch_counts)
        yield chosen_job(job, np.array(plan.blocks_per_stage), counts, None, job.microbatch, job.checkpoints)
