"""The objectives iteration and price: plans of least simulated seconds, or of fewest dollars for a billion tokens.

The planner ``evolutionary`` stands for the search over everything. Any other searches for placements of low
communication cost in each shape, with equal shares; the simulator judges these, and the best is kept.
"""

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning.communication_search import CommunicationCost
from dtfm_lab.planning.iteration.incremental_bound import IncrementalBound
from dtfm_lab.planning.iteration.iteration_step import Candidate, IterationStep
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.search import search_iteration
from dtfm_lab.planning.iteration.system_choices import choices_of, leaves_open, search_choices
from dtfm_lab.planning.iteration.tables_of import Aim
from dtfm_lab.planning.objectives import SearchRequest, network_of, objectives, steps_within
from dtfm_lab.planning.step import PlanStep
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
        if leaves_open(request.job):
            problems = [_problem(*one, request) for one in choices_of(request.topology, request.job)]
            bound = IncrementalBound(problems, self._aim(request), request)
            return search_choices(request, self._search, bound, dollars=self.dollars)
        return self._search(request)

    def _aim(self, request: SearchRequest) -> Aim:
        return Aim(
            dollars=self.dollars,
            max_price_per_hour=_or_infinite(request.max_price_per_hour),
            max_iteration_s=_or_infinite(request.max_iteration_s),
        )

    def _search(self, request: SearchRequest) -> Iterator[IterationStep]:
        """The plans of one degree of tensor parallelism and one sharding."""
        topology, job = network_of(request.topology, request.job)
        request = replace(request, topology=topology, job=job)
        if self.dollars or request.max_price_per_hour is not None:
            _check_prices(topology, warns=request.start is None)
        if request.start is not None:
            _check_start(job, request.start)
        problem, aim = _problem(topology, job, request), self._aim(request)
        rng = np.random.default_rng(request.seed)
        if request.planner == OWN_PLANNER:
            found = search_iteration(problem, rng, start=request.start, aim=aim)
        else:
            found = placements_by(request, aim, rng)
        return self._steps(request, found, IncrementalBound([problem], aim, request))

    def _steps(
        self, request: SearchRequest, found: Iterator[Candidate], bound: IncrementalBound
    ) -> Iterator[IterationStep]:
        tokens = request.job.tokens

        def step_of(candidate: Candidate, generation: int, spent_s: Callable[[], float]) -> IterationStep:
            bound.update(candidate, generation, spent_s)
            value, least = candidate.iteration_s, bound.iteration_s
            if self.dollars:
                value, least = (dollars / tokens * TOKENS for dollars in (candidate.value, bound.dollars))
            return IterationStep(
                best=candidate.grid,
                best_s=value,
                bound_s=min(least, value),
                evaluations=candidate.evaluations,
                operator=candidate.operator,
                complete=candidate.complete,
                compiling_s=candidate.compiling_s,
                topology=request.topology,
                job=candidate.job(request.job),
                planner=request.planner,
                seed=request.seed,
                generation=generation,
                seconds=spent_s(),
                objective=self.name,
                candidate=candidate,
                iteration_bound_s=bound.iteration_s,
                queueing=request.queueing,
                efficiency=request.efficiency,
            )

        return steps_within(request, found, step_of)


def _problem(topology: Topology, job: Job, request: SearchRequest) -> IterationProblem:
    return IterationProblem.of(topology, job, request.queueing, efficiency=request.efficiency)


def _check_prices(topology: Topology, *, warns: bool) -> None:
    """Raises PlanError where no device has a price; warns of those that have none, as they count as free.

    A search that starts from a plan does not warn again.
    """
    free = [device.name for device in topology.devices if not device.price_per_hour]
    if len(free) == len(topology):
        raise PlanError(
            f"no device of {topology.name} has a price; wanted price_per_hour, or typical prices "
            f"(topology.with_typical_prices(), --typical-prices, or typical_prices: true in a file)"
        )
    if free and warns:
        more = f" and {len(free) - 3} more" if len(free) > 3 else ""
        log.warning("%s of %s have no price and count as free", ", ".join(free[:3]) + more, topology.name)


def _check_start(job: Job, start: Plan) -> None:
    """Raises PlanError where the job names stages or replicas and the start has others."""
    shape = start.placement.devices.shape
    wanted = job.n_stages, job.n_replicas
    if any(asked not in (None, found) for asked, found in zip(wanted, shape, strict=True)):
        asked = " x ".join("any" if n is None else str(n) for n in wanted)
        raise PlanError(f"start is a placement of {shape[0]} x {shape[1]}; the job wants {asked}")


def _or_infinite(limit: float | None) -> float:
    return math.inf if limit is None else float(limit)


objectives.register("iteration")(SimulatedObjective("iteration", "s", dollars=False))
objectives.register("price")(SimulatedObjective("price", "$ a billion tokens", dollars=True))
