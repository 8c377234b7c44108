"""The objectives iteration and price: plans of least simulated seconds, or of fewest dollars for a billion tokens.

The planner ``evolutionary`` stands for the search over everything. Any other searches for placements of low
communication cost in each shape, with equal shares (as even as they divide, where no shape has equal ones); the
simulator judges these, and the best is kept.

The search over everything begins with structured plans (``iteration.structured``), and anneals the best of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import numpy as np

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import in_a_row
from dtfm_lab.planning.evaluate import why_not_simulated
from dtfm_lab.planning.iteration.candidate import Candidate, chosen_job
from dtfm_lab.planning.iteration.choices import ChoiceSearch
from dtfm_lab.planning.iteration.fitting import require_shapes, shapes_of
from dtfm_lab.planning.iteration.incremental_bound import IncrementalBound
from dtfm_lab.planning.iteration.judging import candidate_of
from dtfm_lab.planning.iteration.left_open import checkpointings_of, leaves_open
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.search import search_iteration
from dtfm_lab.planning.iteration.tables_of import SearchTarget
from dtfm_lab.planning.objectives import (
    CommunicationCost,
    SearchRequest,
    check_start,
    network_of,
    objectives,
    require_prices,
    steps_within,
)
from dtfm_lab.planning.problem import Population
from dtfm_lab.planning.step import PlanStep

MOST_STEPS = 64
"""Most generations of a planner for one placement; after as many rounds of doubling, other seeds find more."""
SCHEDULE = "1f1b"
"""Schedule of a job that names none: of those for any network, the one that holds least memory."""


def placements_by(
    request: SearchRequest, problem: IterationProblem, target: SearchTarget, rng: np.random.Generator
) -> Iterator[Candidate]:
    """The best so far of the placements that a planner for communication finds, a step a shape and round.

    Shapes that use most devices come first; in each round a planner has twice the generations of the round before.
    Raises PlanError: by the call where the job's shape rules all out, after the first round where none fits.
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
    """The job in each shape that its batch divides into evenly, or else in each shape, most devices first."""
    job, microbatch = problem.job, problem.microbatches[0]
    found = shapes_of(problem, microbatch, most_shapes=problem.n_devices**2)
    even = [(s, r) for s, r in found if not job.global_batch % (r * microbatch)]
    return [
        job.with_fields(n_stages=s, n_replicas=r, microbatch=microbatch, schedule=job.schedule or SCHEDULE)
        for s, r in sorted(even or found, key=lambda shape: (-shape[0] * shape[1], shape))
    ]


def _checkpointed(plan: Plan) -> Iterator[Job]:
    """The plan's job with its cut and shares, and with each checkpointing that it leaves open."""
    for job in checkpointings_of(plan.job):
        counts = np.array(job.microbatch_counts)
        yield chosen_job(job, np.array(plan.blocks_per_stage), counts, None, job.microbatch, job.checkpoints)


log = logging.getLogger(__name__)
OWN_PLANNER = "evolutionary"
"""Name of the planner that stands for the search over everything."""
TOKENS = 1e9
"""Tokens whose price is minimised."""


@dataclass(frozen=True)
class SimulatedObjective:
    """What the simulator says of a plan: seconds of its iteration, or what a billion tokens cost."""

    name: str
    unit: str
    dollars: bool

    def value(self, plan: Plan) -> float:
        """Seconds, or dollars for a billion tokens."""
        found = plan.price_per_billion_tokens if self.dollars else plan.iteration_s
        if found is None:
            raise PlanError(f"plan of {plan.job.name} was not simulated; wanted one with iteration_s")
        return found

    def search(self, request: SearchRequest) -> Iterator[PlanStep]:
        """Plans of everything that the job leaves open: shape, devices, cut, shares, schedule, recomputation."""
        request.job.modelled()
        if request.planner != OWN_PLANNER:
            return self._placed(request)
        if request.nearby and not leaves_open(request.job):
            return self._annealed(request)
        self._check(request)
        return ChoiceSearch(request, self._target(request), self._annealed, self.steps_of).steps()

    def _target(self, request: SearchRequest) -> SearchTarget:
        limits = {what: getattr(request, what) for what in ("max_price_per_hour", "max_iteration_s")}
        return SearchTarget(
            dollars=self.dollars, **{what: float(most) for what, most in limits.items() if most is not None}
        )

    def _check(self, request: SearchRequest) -> None:
        topology = request.topology
        if self.dollars or request.max_price_per_hour is not None:
            require_prices(topology)
            free = [device.name for device in topology.devices if not device.price_per_hour]
            if free and request.start is None:  # a search that starts from a plan does not warn again
                log.warning("%s of %s have no price and count as free", in_a_row(free, 3), topology.name)
        if request.start is not None:
            check_start(request.job, request.start)

    def _placed(self, request: SearchRequest) -> Iterator[PlanStep]:
        """The placements of a planner for communication, of the job with its defaults for what this leaves open."""
        self._check(request)
        topology, job = network_of(request.topology, request.job)
        request = replace(request, topology=topology, job=job)
        problem, target = _problem(topology, job, request), self._target(request)
        found = placements_by(request, problem, target, np.random.default_rng(request.seed))
        return self._steps(request, found, IncrementalBound([problem], target, request))

    def _annealed(self, request: SearchRequest) -> Iterator[PlanStep]:
        """The plans of one degree of tensor parallelism, one sharding and one way to average."""
        topology, job = network_of(request.topology, request.job)
        request = replace(request, topology=topology, job=job)
        self._check(request)
        problem, target = _problem(topology, job, request), self._target(request)
        rng = np.random.default_rng(request.seed)
        found = search_iteration(problem, rng, start=request.start, nearby=request.nearby, target=target)
        return self._steps(request, found, IncrementalBound([problem], target, request))

    def _steps(self, request: SearchRequest, found: Iterator[Candidate], bound: IncrementalBound) -> Iterator[PlanStep]:
        def step_of(found: Candidate, generation: int, spent_s: Callable[[], float]) -> PlanStep:
            bound.update(found.iteration_s, generation, spent_s, complete=found.complete, compiling_s=found.compiling_s)
            step = self.steps_of(request, found, bound)
            return replace(step, generation=generation, seconds=spent_s())

        return steps_within(request, found, step_of)

    def steps_of(self, request: SearchRequest, found: Candidate, bound: IncrementalBound) -> PlanStep:
        """The step that shows a candidate, in the unit of the objective."""
        tokens = request.job.tokens
        value, least, held = found.iteration_s, bound.iteration_s, found.held
        if self.dollars:
            value, least = (dollars / tokens * TOKENS for dollars in (found.best_s, bound.dollars))
            held = None if found.held is None else partial(_in_dollars, found.held, TOKENS / tokens)
        return PlanStep(
            **vars(found) | {"best_s": value, "bound_s": min(least, value), "held": held},
            topology=request.topology,
            planner=request.planner,
            seed=request.seed,
            generation=0,
            seconds=0.0,
            objective=self.name,
            iteration_bound_s=bound.iteration_s,
            queueing=request.queueing,
            efficiency=request.efficiency,
        )


def _problem(topology: Topology, job: Job, request: SearchRequest) -> IterationProblem:
    return IterationProblem.of(topology, job, request.queueing, efficiency=request.efficiency)


def _in_dollars(held: Callable[[], Population], factor: float) -> Population:
    return held().changed(factor=factor)


objectives.register("iteration")(SimulatedObjective("iteration", "s", dollars=False))
objectives.register("price")(SimulatedObjective("price", "$ a billion tokens", dollars=True))
