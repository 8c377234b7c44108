"""Plans of the planners for communication, judged by the simulator: each shape with equal shares, the best kept."""

import math
from collections.abc import Iterator
from itertools import count

import numpy as np

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning.communication_search import CommunicationCost
from dtfm_lab.planning.iteration.candidate import Candidate
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.tables_of import Aim
from dtfm_lab.planning.objectives import SearchRequest
from dtfm_lab.simulation.efficiency import GivenEfficiency
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.simulate import iteration_seconds

MOST_STEPS = 64
"""Most generations of a planner for one placement; after as many rounds of doubling, other seeds find more."""
SCHEDULE = "1f1b"
"""Schedule of a job that names none: of those for any network, the one that holds least memory."""


def placements_by(request: SearchRequest, aim: Aim, rng: np.random.Generator) -> Iterator[Candidate]:
    """The best so far of the placements that a planner for communication finds, a step a shape and round.

    Shapes that use most devices come first; in each round a planner has twice the generations of the round before.
    Raises PlanError, after the first round, where none fits.
    """
    shapes = _shapes(request)
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
                limit_s=math.inf,
                background_tasks=request.background_tasks,
                improve_bound=False,
            )
            *_, step = CommunicationCost().search(asked)
            evaluations += step.evaluations
            plan = step.plan.changed(queueing=request.queueing, efficiency=request.efficiency)
            parts = IterationProblem.of(
                request.topology, plan.job, request.queueing, efficiency=request.efficiency
            ).parts
            tried = (_judged(plan.changed(job=part.job), aim, evaluations, request.efficiency) for part in parts)
            found = next((one for one in tried if one is not None), None)
            if found is not None and (best is None or found.value < best.value):
                best = found
            if best is not None:
                yield best
        if best is None:
            raise PlanError(
                f"no placement of {request.job.name} by {request.planner} fits the devices of {request.topology.name} "
                "and the limits; wanted planner evolutionary, more memory or looser limits"
            )


def _shapes(request: SearchRequest) -> list[Job]:
    job, n = request.job, len(request.topology)
    microbatch = job.microbatch or 1
    wanted = job.n_stages, job.n_replicas
    jobs = []
    for n_used in range(n, 0, -1):
        for s, r in job.with_fields(microbatch=microbatch).shapes(n_used):
            if all(a in (None, b) for a, b in zip(wanted, (s, r), strict=True)):
                given = {"n_stages": s, "n_replicas": r, "microbatch": microbatch}
                jobs.append(job.with_fields(**given, schedule=job.schedule or SCHEDULE))
    return jobs


def _judged(plan: Plan, aim: Aim, evaluations: int, efficiency: GivenEfficiency) -> Candidate | None:
    """The plan as a candidate; None where it does not fit the memory or the limits."""
    job = plan.job
    try:
        if plan.price_per_hour > aim.max_price_per_hour or not memory(plan).fits:
            return None
        iteration_s = iteration_seconds(plan, efficiency=efficiency)
    except LabError:  # such as a schedule that does not divide
        return None
    if iteration_s > aim.max_iteration_s:
        return None
    blocks = plan.blocks_per_stage
    assert blocks is not None, "the job has a model"
    return Candidate(
        grid=plan.placement.devices,
        blocks=np.array(blocks),
        shares=np.array(job.microbatch_counts),
        warmups=None,
        schedule=job.schedule_name,
        microbatch=job.microbatch,
        checkpointing=job.checkpoints,
        value=iteration_s * plan.price_per_hour / 3600 if aim.dollars else iteration_s,
        iteration_s=iteration_s,
        evaluations=evaluations,
        operator=f"{plan.planner}, {job.n_stages} x {job.n_replicas}",
    )
