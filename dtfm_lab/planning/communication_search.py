"""The search for placements of low communication cost, the paper's objective: runs a planner until its limits are
reached or the best is proven."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.bounds.bound_search import CommunicationBound
from dtfm_lab.planning.bounds.lower_bound import lower_bound_s
from dtfm_lab.planning.cost import PairCosts, pair_costs
from dtfm_lab.planning.objectives import SearchRequest, check_start, network_of, objectives, steps_within
from dtfm_lab.planning.problem import Generation, Problem, canonical_order, planners
from dtfm_lab.planning.step import PlanStep

SHAPES_NAMED = 8


class CommunicationCost:
    """The paper's communication cost: synchronisation of the slowest group and the path through the groups."""

    unit = "s"

    def value(self, plan: Plan) -> float:
        """Seconds, equations 1 to 4 of the paper."""
        return plan.cost.total_s

    def search(self, request: SearchRequest) -> Iterator[PlanStep]:
        """Placements in one shape: the job's own, or else the most square one that uses all devices."""
        if request.max_price_per_hour is not None or request.max_iteration_s is not None:
            raise PlanError("objective communication knows no limits of price or seconds; wanted iteration or price")
        topology, job = network_of(request.topology, request.job)
        request = replace(request, topology=topology, job=job)
        if not job.shaped:
            job = job.fitted(len(topology))
        require_fit(topology, job)
        near = (one for one in request.nearby if one.placement.devices.shape == (job.n_stages, job.n_replicas))
        begun = request.start or next(near, None)
        start = None
        if begun is not None:
            check_start(job, begun)
            start = np.array([[topology.index(name) for name in group] for group in begun.stages])
        return _steps(request, job, start)


objectives.register("communication")(CommunicationCost())


def _steps(request: SearchRequest, job: Job, start: IntArray | None) -> Iterator[PlanStep]:
    """Runs the planner on the devices in canonical order and translates its grids back."""
    topology, run = request.topology, planners[request.planner]
    pair = pair_costs(topology, job)
    order = canonical_order(pair)
    square = np.ix_(order, order)
    problem = Problem(
        pair=PairCosts(np.ascontiguousarray(pair.group_s[square]), np.ascontiguousarray(pair.hop_s[square])),
        n_stages=job.n_stages,
        n_replicas=job.n_replicas,
        bound_s=lower_bound_s(topology, job),
        start=None if start is None else np.argsort(order)[start],
        background_tasks=request.background_tasks,
    )
    bound = CommunicationBound(problem, timed=request.steps is None, enabled=request.improve_bound)

    def step_of(found: Generation, generation: int, spent_s: Callable[[], float]) -> PlanStep:
        held = found.held
        in_topology = {
            "best": order[found.best],
            "bound_s": bound.update(found, generation, spent_s()),
            "held": None if held is None else lambda: held().changed(order.__getitem__),
        }
        return PlanStep(
            **vars(found) | in_topology,
            topology=topology,
            job=job,
            planner=request.planner,
            seed=request.seed,
            generation=generation,
            seconds=spent_s(),
        )

    return steps_within(request, run(problem, np.random.default_rng(request.seed)), step_of)


def require_fit(topology: Topology, job: Job) -> None:
    """Raise PlanError where the job has more tasklets than the topology has devices."""
    n = len(topology)
    if job.n_tasklets <= n:
        return
    shapes = [f"{n_stages} x {n_replicas}" for n_stages, n_replicas in job.shapes(n)][:SHAPES_NAMED]
    listed = " or ".join(filter(None, [", ".join(shapes[:-1]), *shapes[-1:]]))
    advice = f"{listed} would use all of them" if shapes else "fewer stages or replicas are needed"
    raise PlanError(
        f"{job.n_stages} stages x {job.n_replicas} replicas need {job.n_tasklets} devices, "
        f"{topology.name} has {n}; {advice}"
    )
