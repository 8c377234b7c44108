"""The objectives iteration and price: plans of least simulated seconds, or of fewest dollars for a billion tokens.

The planner ``evolutionary`` stands for the search over everything. Any other searches for placements of low
communication cost in each shape, with equal shares (as even as they divide, where no shape has equal ones); the
simulator judges these, and the best is kept.

Where tensor parallelism or sharding is left open, there is one search for each choice, and the best of them go on:
successive halving (Jamieson and Talwalkar 2016): in each round the choices left share the round's time, and the better
half of them goes on. A choice is a search of its own, on the network of its groups; it is paused, never begun anew.
"""

from __future__ import annotations

import logging
import math
import time
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
from dtfm_lab.planning.iteration.fitting import require_shapes, shapes_of
from dtfm_lab.planning.iteration.incremental_bound import IncrementalBound
from dtfm_lab.planning.iteration.judging import candidate_of
from dtfm_lab.planning.iteration.left_open import checkpointings_of, choices_of, leaves_open
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.search import search_iteration
from dtfm_lab.planning.iteration.tables_of import Aim
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
from dtfm_lab.planning.step import PROVEN, PlanStep

MOST_STEPS = 64
"""Most generations of a planner for one placement; after as many rounds of doubling, other seeds find more."""
SCHEDULE = "1f1b"
"""Schedule of a job that names none: of those for any network, the one that holds least memory."""


def placements_by(
    request: SearchRequest, problem: IterationProblem, aim: Aim, rng: np.random.Generator
) -> Iterator[Candidate]:
    """The best so far of the placements that a planner for communication finds, a step a shape and round.

    Shapes that use most devices come first; in each round a planner has twice the generations of the round before.
    Raises PlanError: by the call where the job's shape rules all out, after the first round where none fits.
    """
    require_shapes(problem)
    return _placements_by(request, _shapes(problem), aim, rng)


def _placements_by(
    request: SearchRequest, shapes: list[Job], aim: Aim, rng: np.random.Generator
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
            found = next(filter(None, (candidate_of(one, aim, evaluations, operator) for one in plans)), None)
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
        if leaves_open(request.job):
            problems = [_problem(*one, request) for one in choices_of(request.topology, request.job)]
            bound = IncrementalBound(problems, self._aim(request), request)
            return search_choices(request, self._search, bound, dollars=self.dollars)
        return self._search(request)

    def _aim(self, request: SearchRequest) -> Aim:
        limits = {what: getattr(request, what) for what in ("max_price_per_hour", "max_iteration_s")}
        return Aim(dollars=self.dollars, **{what: float(most) for what, most in limits.items() if most is not None})

    def _search(self, request: SearchRequest) -> Iterator[PlanStep]:
        """The plans of one degree of tensor parallelism and one sharding."""
        topology, job = network_of(request.topology, request.job)
        request = replace(request, topology=topology, job=job)
        if self.dollars or request.max_price_per_hour is not None:
            require_prices(topology)
            free = [device.name for device in topology.devices if not device.price_per_hour]
            if free and request.start is None:  # a search that starts from a plan does not warn again
                log.warning("%s of %s have no price and count as free", in_a_row(free, 3), topology.name)
        if request.start is not None:
            check_start(job, request.start)
        problem, aim = _problem(topology, job, request), self._aim(request)
        rng = np.random.default_rng(request.seed)
        if request.planner == OWN_PLANNER:
            found = search_iteration(problem, rng, start=request.start, nearby=request.nearby, aim=aim)
        else:
            found = placements_by(request, problem, aim, rng)
        return self._steps(request, found, IncrementalBound([problem], aim, request))

    def _steps(self, request: SearchRequest, found: Iterator[Candidate], bound: IncrementalBound) -> Iterator[PlanStep]:
        tokens = request.job.tokens

        def step_of(found: Candidate, generation: int, spent_s: Callable[[], float]) -> PlanStep:
            bound.update(found.iteration_s, generation, spent_s, complete=found.complete, compiling_s=found.compiling_s)
            value, least, held = found.iteration_s, bound.iteration_s, found.held
            if self.dollars:
                value, least = (dollars / tokens * TOKENS for dollars in (found.best_s, bound.dollars))
                held = None if found.held is None else partial(_in_dollars, found.held, TOKENS / tokens)
            return PlanStep(
                **vars(found) | {"best_s": value, "bound_s": min(least, value), "held": held},
                topology=request.topology,
                planner=request.planner,
                seed=request.seed,
                generation=generation,
                seconds=spent_s(),
                objective=self.name,
                iteration_bound_s=bound.iteration_s,
                queueing=request.queueing,
                efficiency=request.efficiency,
            )

        return steps_within(request, found, step_of)


def _problem(topology: Topology, job: Job, request: SearchRequest) -> IterationProblem:
    return IterationProblem.of(topology, job, request.queueing, efficiency=request.efficiency)


def _in_dollars(held: Callable[[], Population], factor: float) -> Population:
    return held().changed(factor=factor)


objectives.register("iteration")(SimulatedObjective("iteration", "s", dollars=False))
objectives.register("price")(SimulatedObjective("price", "$ a billion tokens", dollars=True))


FIRST_ROUND = 0.4
"""Share of the time after which no further choice is begun, once there is a plan."""


@dataclass(eq=False)
class _Choice:
    """One choice and how far its search is."""

    steps: Iterator[PlanStep]
    dollars: float = 0.0
    """No plan of the choice takes fewer, of a search for dollars; dollars for a billion tokens."""
    latest: PlanStep | None = None
    done: bool = False
    taken: int = 0
    """Complete steps so far."""

    def advance(self) -> bool:
        """Take one step; False where there is none left or nothing fits."""
        step = next(self.steps, None)
        if step is None:
            self.done = True
            return False
        self.latest = step
        self.taken += step.complete
        self.dollars = max(self.dollars, step.bound_s)
        return True


def _value(choice: _Choice) -> float:
    """The objective of its best plan; infinite where it has none."""
    return math.inf if choice.latest is None else choice.latest.best_s


def search_choices(
    request: SearchRequest,
    search: Callable[[SearchRequest], Iterator[PlanStep]],
    bound: IncrementalBound,
    *,
    dollars: bool,
) -> Iterator[PlanStep]:
    """The steps of all choices, each with the best plan of any and a bound that holds for all.

    ``search`` searches one choice. Raises PlanError, by the first step, where no choice has a plan.
    """
    choices = []
    for network, job in choices_of(request.topology, request.job):
        start = request.start
        if start is not None and (start.job.tensor_parallel, start.job.sharding) != (job.tensor_parallel, job.sharding):
            start = None
        own = replace(request, topology=network, job=job, start=start, improve_bound=False)
        choices.append(_Choice(_begun(search, own)))
    return _Halving(request, choices, bound, dollars).steps()


def _begun(search: Callable[[SearchRequest], Iterator[PlanStep]], request: SearchRequest) -> Iterator[PlanStep]:
    """The steps of a search that is begun with the first of them, not now."""
    yield from search(request)


class _Halving:
    def __init__(self, request: SearchRequest, choices: list[_Choice], bound: IncrementalBound, dollars: bool) -> None:
        self.request, self.choices, self.bound, self.dollars = request, choices, bound, dollars
        self.spent_s = 0.0
        self.error: PlanError | None = None

    def steps(self) -> Iterator[PlanStep]:
        """Rounds over fewer and fewer choices; the last one goes on to the end."""
        alive = self.choices
        rounds = math.ceil(math.log2(max(len(alive), 1))) + 1
        for number in range(rounds):
            for i, choice in enumerate(alive):
                if number == 0 and i and self.best is not None and self.spent_s > FIRST_ROUND * self.request.limit_s:
                    break
                yield from self._advanced(choice, number, rounds, len(alive) - i)
                if self.finished:
                    return
            alive = sorted((one for one in alive if one.latest is not None), key=_value)
            if not alive:
                raise self.error or PlanError(f"no plan of {self.request.job.name} fits {self.request.topology.name}")
            alive = alive[: max(1, (len(alive) + 1) // 2)]

    @property
    def best(self) -> PlanStep | None:
        """The step with the best plan of any choice."""
        found = [one.latest for one in self.choices if one.latest is not None]
        return min(found, key=lambda step: step.best_s, default=None)

    @property
    def finished(self) -> bool:
        """Whether the time is up or the best plan is proven."""
        best = self.best
        if best is None:
            return False
        return self.spent_s >= self.request.limit_s or self._merged(best, best).gap < PROVEN

    def _advanced(self, choice: _Choice, number: int, rounds: int, left: int) -> Iterator[PlanStep]:
        """The steps of a choice in its share of the round."""
        request = self.request
        last = number == rounds - 1
        if request.steps is not None:
            share, until_s = max(1, round(request.steps * 2.0 ** (number - rounds + 1))), math.inf
        else:
            share = np.iinfo(np.int64).max
            round_s = request.limit_s * (number + 1) / rounds
            until_s = math.inf if last else self.spent_s + max(round_s - self.spent_s, 0.0) / left
        while not choice.done and choice.taken < share:
            began, compiled_s = time.perf_counter(), 0.0 if choice.latest is None else choice.latest.compiling_s
            try:
                moved = choice.advance()
            except PlanError as error:
                self.error, choice.done, moved = error, True, False
            best = self.best
            if moved and best is not None:
                generation = choice.taken - 1 if last else -1  # the whole bound comes with the very last step
                self.bound.update(best.iteration_s, generation, lambda: self.spent_s)
            self.spent_s += time.perf_counter() - began
            if moved and choice.latest is not None and best is not None:
                self.spent_s -= choice.latest.compiling_s - compiled_s
                yield self._merged(best, choice.latest)
            if self.finished or (choice.latest is not None and self.spent_s >= until_s):
                return

    def _merged(self, best: PlanStep, newest: PlanStep) -> PlanStep:
        """The best plan of all choices, with what all of them say."""
        bound_s = self.bound.iteration_s
        dollars = min(choice.dollars for choice in self.choices)
        return replace(
            best,
            bound_s=min(dollars if self.dollars else bound_s, best.best_s),
            iteration_bound_s=min(bound_s, best.iteration_s),
            evaluations=sum(choice.latest.evaluations for choice in self.choices if choice.latest is not None),
            operator=newest.operator,
            complete=newest.complete,
            held=newest.held if newest is best else None,  # another choice's are placements of another network
            generation=max(0, sum(choice.taken for choice in self.choices) - newest.complete),
            seconds=self.spent_s,
        )
