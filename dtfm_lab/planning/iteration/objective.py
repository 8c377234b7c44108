"""The objectives iteration and price: plans of least simulated seconds, or of fewest dollars for a billion tokens."""

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning.grouped_network import network_of
from dtfm_lab.planning.iteration.candidate import Candidate
from dtfm_lab.planning.iteration.incremental_bound import IncrementalBound
from dtfm_lab.planning.iteration.iteration_step import IterationStep
from dtfm_lab.planning.iteration.opponents import placements_by
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.search import search_iteration
from dtfm_lab.planning.iteration.system_choices import choices_of, leaves_open, search_choices
from dtfm_lab.planning.iteration.tables_of import Aim
from dtfm_lab.planning.limits import steps_within
from dtfm_lab.planning.objectives import SearchRequest, objectives
from dtfm_lab.planning.step import PlanStep

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
