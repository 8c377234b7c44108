"""The objectives iteration and price, and the search over everything that a job leaves open.

The planner ``evolutionary`` stands for that search. It begins with structured plans (``iteration.structured``) and
anneals the best of them. Any other planner places each shape for a low communication cost (``placements``), and the
simulator chooses among its placements.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import in_a_row
from dtfm_lab.planning.iteration.bounds.iteration_bound import IncrementalBound
from dtfm_lab.planning.iteration.placements import placements_by
from dtfm_lab.planning.iteration.problem import IterationProblem, SearchTarget
from dtfm_lab.planning.iteration.search import search_iteration, start_kernels
from dtfm_lab.planning.iteration.structured import StructuredPlans
from dtfm_lab.planning.iteration.structured.candidates import Candidate, candidate_of, plan_of, unpriced_plan
from dtfm_lab.planning.iteration.structured.layouts import OF_CHOICES, WAYS_TO_AVERAGE, choices_of, leaves_open
from dtfm_lab.planning.problem import SHOWN, Individual, Population
from dtfm_lab.planning.search import (
    PROVEN,
    PlanStep,
    SearchRequest,
    check_start,
    network_of,
    objectives,
    require_prices,
    steps_within,
)

# ---------------------------------------------------------------------------------------------------------------------
# The objectives iteration and price: plans of least simulated seconds, or of fewest dollars for a billion tokens.


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
        return Search(request, self).steps()

    def target(self, request: SearchRequest) -> SearchTarget:
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
        problem, target = _problem(topology, job, request), self.target(request)
        found = placements_by(request, problem, target, np.random.default_rng(request.seed))
        return self._steps(request, found, IncrementalBound([problem], target, request))

    def _annealed(self, request: SearchRequest) -> Iterator[PlanStep]:
        """The plans of one degree of tensor parallelism, one sharding and one way to average."""
        topology, job = network_of(request.topology, request.job)
        request = replace(request, topology=topology, job=job)
        self._check(request)
        problem, target = _problem(topology, job, request), self.target(request)
        rng = np.random.default_rng(request.seed)
        found = search_iteration(problem, rng, start=request.start, nearby=request.nearby, target=target)
        return self._steps(request, found, IncrementalBound([problem], target, request))

    def _steps(self, request: SearchRequest, found: Iterator[Candidate], bound: IncrementalBound) -> Iterator[PlanStep]:
        def step_of(found: Candidate, generation: int, spent_s: Callable[[], float]) -> PlanStep:
            bound.update(found.iteration_s, generation, spent_s, complete=found.complete, compiling_s=found.compiling_s)
            step = self.step_of(request, found, bound)
            return replace(step, generation=generation, seconds=spent_s())

        return steps_within(request, found, step_of)

    def step_of(self, request: SearchRequest, found: Candidate, bound: IncrementalBound) -> PlanStep:
        """The step that shows a candidate, in the unit of the objective."""
        tokens = request.job.tokens
        value, least, held = found.iteration_s, bound.iteration_s, found.held
        if self.dollars:
            value, least = (dollars / tokens * TOKENS for dollars in (found.best_s, bound.dollars))
            held = None if found.held is None else partial(_in_dollars, found.held, TOKENS / tokens)
        return PlanStep(
            **vars(found) | {"best_s": value, "bound_s": min(least, value), "held": held},
            planner=request.planner,
            seed=request.seed,
            generation=0,
            seconds=0.0,
            objective=self.name,
            iteration_bound_s=min(bound.iteration_s, found.iteration_s),
            queueing=request.queueing,
            efficiency=request.efficiency,
        )


def _problem(topology: Topology, job: Job, request: SearchRequest) -> IterationProblem:
    return IterationProblem.of(topology, job, request.queueing, efficiency=request.efficiency)


def _in_dollars(held: Callable[[], Population], factor: float) -> Population:
    return held().changed(factor=factor)


# ---------------------------------------------------------------------------------------------------------------------
# The search over everything: structured plans first, then annealing of the best of them.
#
# Annealing takes tensor parallelism, sharding and the way to average as given; a *choice* is one combination of these.
# Structured plans tell which few choices are worth it. These are annealed by successive halving (Jamieson and Talwalkar
# 2016): in each round the choices that are left share the round's time, and the better half of them goes on. A choice's
# annealing is paused between its turns, never begun again.


MOST_CHOICES = 4
"""Most choices that are annealed; with more, each gets too little time to gain anything."""
CLOSE = 1.3
"""Choices whose best structured plan takes more than this multiple of the best one are not annealed. Annealing gains
up to 30 % on irregular networks, less on clusters."""
MOST_NEARBY = 6
"""Structured plans of a choice near which its annealing searches."""
MOST_SEARCHED = 16
"""Most devices of a network on which annealing begins from all shapes, not only near the structured plans: so few that
the shapes take no time, and irregular small networks have best plans that no structure suggests."""
MOST_ANNEALED = 512
"""Most devices, or groups of GPUs, of a network on which plans are annealed. On larger ones a move among so many equal
devices gains nothing in the seconds there are, and the tables of all pairs take gigabytes."""
ESTIMATED_SHARE = 0.25
"""Share of the time limit after which no further layout is estimated, once a plan fits."""
LEAST_ESTIMATED_S = 0.2
"""Seconds of estimates that there are even after the limit: on homogeneous clusters of thousands of GPUs the best of
them comes within 0.1 s."""
OTHER_WAYS_SHARE = 0.05
"""Share of the time limit in which the best plan of a turn is tried with other ways to average."""
STRUCTURED_SHARE = 0.4
"""Share of the time limit after which no further structured plan is simulated, once there is one."""
STRUCTURED_STEPS = 12
"""Structured plans that are simulated in a search that counts steps."""
FIRST_LEADER = 10**6
"""Number of the first plan that leads those of another choice: larger than any that a choice gives its own."""
_Fields = tuple[tuple[str, Any], ...]


@dataclass(eq=False)
class _Choice:
    """One choice, and how far its annealing is."""

    plans: Iterator[Candidate]
    """Its annealing, paused between two turns."""
    best: Candidate | None = None
    """Its best plan so far."""
    done: bool = False
    n_complete: int = 0
    """Complete steps so far."""
    evaluations: int = 0
    retried: Candidate | None = None
    """The plan for which the other ways to average were tried last."""

    @property
    def value(self) -> float:
        """The objective of its best plan; infinite where it has none."""
        return math.inf if self.best is None else self.best.best_s

    def advance(self) -> Candidate | None:
        """Take one step; None where there is none left."""
        found = next(self.plans, None)
        if found is None:
            self.done = True
            return None
        self.evaluations = found.evaluations
        if found.best_s < self.value:
            self.best = found
        self.n_complete += found.complete
        return found


class Search:
    """The search of one request, in four methods.

    1. ``begin`` yields the structured plans that fit, the best estimates first.
    2. ``improve`` yields what annealing makes of the best of them.
    3. ``judge`` keeps a plan if it is the best so far.
    4. ``bound`` raises the lower bound and so tells how much faster any other plan could be.

    ``steps`` calls them. Inside, plans are ``Candidate``s, with seconds or dollars of an iteration; a ``PlanStep`` is
    made of the best one for every step that is shown (``_shown``).
    """

    def __init__(self, request: SearchRequest, objective: SimulatedObjective) -> None:
        self.request, self.objective, self.target = request, objective, objective.target(request)
        self.structured = StructuredPlans(request, self.target)
        self.bounds = IncrementalBound(_bounded(request), self.target, request)
        self.best: Candidate | None = None
        self.choices: list[_Choice] = []
        self.error: LabError | None = None
        """What the latest choice to fail lacked."""
        self.start: Plan | None = None
        """The plan that the user gave, on the network of its groups."""
        self._turn: _Choice | None = None
        """The choice that is being annealed."""
        self._is_last_turn = False
        self._leaders: dict[Candidate, int] = {}
        """Numbers of the plans that led those of another choice."""
        self._paused_at_s = 0.0
        """Seconds of searching before the current step."""
        self._resumed: float | None = None
        """When the current step began; None while the caller has the turn."""
        self._first_estimate_s: float | None = None

    def steps(self) -> Iterator[PlanStep]:
        """The best plan so far, again and again, until the time is up or the plan is proven best.

        The clock runs while a step is made. The time that the caller takes between two steps does not count.
        """
        steps = self._steps()
        while True:
            self._resumed = time.perf_counter()
            step = next(steps, None)
            self._paused_at_s, self._resumed = self.spent_s, None
            if step is None:
                return
            yield step

    def _steps(self) -> Iterator[PlanStep]:
        for found in self.begin():
            self.judge(found)
            yield self._shown()
        if not self.finished:
            for found in self.improve():
                self.judge(found)
                self.bound(found)
                yield self._shown(found)
        if self.best is None:
            job, topology = self.request.job, self.request.topology
            raise self.error or PlanError(f"no plan of {job.name} fits {topology.name}")
        if all(choice.best is None for choice in self.choices):  # structured plans alone, all of them shown as progress
            yield self._shown(complete=True)

    @property
    def spent_s(self) -> float:
        """Seconds of searching so far."""
        now_s = 0.0 if self._resumed is None else time.perf_counter() - self._resumed
        return self._paused_at_s + now_s

    @property
    def finished(self) -> bool:
        """Whether the time is up or the best plan is proven; never before there is a plan."""
        if self.best is None:
            return False
        return self.spent_s >= self.request.limit_s or self._shown().gap < PROVEN

    def judge(self, found: Candidate) -> None:
        """Keep a plan if it is the best so far. Its value is exact: the replay or the simulator gave it."""
        if self.best is None or found.best_s < self.best.best_s:
            self.best = found

    def bound(self, newest: Candidate) -> None:
        """Let the lower bound rise towards the best plan, within its share of the time so far."""
        if self.best is None or self._turn is None:
            return
        generation = self._turn.n_complete - 1 if self._is_last_turn else -1  # counted steps: all of it with the last
        self.bounds.update(self.best.iteration_s, generation, lambda: self.spent_s, complete=newest.complete)

    # begin: the structured plans

    def begin(self) -> Iterator[Candidate]:
        """The given plan, then the structured plans that fit, as the simulator judges them."""
        timed = self.request.steps is None
        start_kernels(len(self.request.topology))  # beside the structured plans, which need none of them
        if (given := self._given()) is not None:
            yield given
        for _ in self.structured.estimate(self._estimated_enough if timed else lambda: False):
            pass
        for found in self.structured.simulated():
            yield found
            if self._share >= STRUCTURED_SHARE if timed else self.structured.n_simulated >= STRUCTURED_STEPS:
                return

    def _given(self) -> Candidate | None:
        """The plan that the user gave to start with, of those fields that the job leaves open."""
        start, asked = self.request.start, self.request.job
        if start is None or start.job.model is None or start.job.microbatch is None:
            return None
        pinned = {what: getattr(asked, what) for what in ("blocks_per_stage", "microbatches_per_replica", "warmups")}
        chosen = pinned | {what: getattr(start.job, what) for what in asked.left_open}
        try:
            job = asked.with_fields(**chosen)
            network = self.request.topology.grouped(job.group_gpus)
        except LabError:  # such as shares of another batch
            return None
        grid = np.array([[network.index(name) for name in group] for group in start.stages])
        if grid.shape != (job.n_stages, job.n_replicas):
            return None
        plan = unpriced_plan(network, job, grid, self.request.queueing, self.request.efficiency)
        found = candidate_of(plan, self.target, 1, "start", complete=False)
        if found is not None:
            self.start = plan
        return found

    def _estimated_enough(self) -> bool:
        """Whether estimates had their share of the time, counted from the first: the tables come before it.

        It is this thread's own time that counts: on a busy machine a poor first plan costs more than a late one.
        """
        if self._first_estimate_s is None:
            self._first_estimate_s = time.thread_time()
        own_s = time.thread_time() - self._first_estimate_s
        return own_s > ESTIMATED_SHARE * self.request.limit_s or (own_s > LEAST_ESTIMATED_S and self._share > 1.0)

    @property
    def _share(self) -> float:
        """Share of the time limit that is spent."""
        return self.spent_s / self.request.limit_s

    # improve: annealing of the choices

    def _requests(self) -> list[SearchRequest]:
        """One request for each choice that is annealed, the most promising first; that of a given start before all."""
        request = self.request
        of: dict[tuple[object, ...], tuple[_Fields, list[Plan]]] = {}
        if self.start is not None:
            of[self._kind_of(self.start.job)] = self._choice_of(self.start.job), [self.start]
        least = min((one.best_s for one in self.structured.judged), default=math.inf)
        for one in sorted(self.structured.judged, key=lambda judged: judged.best_s):
            job = one.job
            if one.best_s <= CLOSE * least and len(one.topology) <= MOST_ANNEALED:
                of.setdefault(self._kind_of(job), (self._choice_of(job), []))[1].append(plan_of(one, request))
                if job.checkpointing == "selective" and len(one.topology) <= MOST_SEARCHED:
                    # annealing tries the other checkpointings in all shapes, whatever structured plans took
                    others = job.with_fields(checkpointing=None, warmups=job.warmups)
                    of.setdefault(self._kind_of(others), (self._choice_of(others), [plan_of(one, request)]))
        if of:
            return [self._near(dict(choice), plans) for choice, plans in [*of.values()][:MOST_CHOICES]]
        if self.structured.judged:  # a network too large for annealing
            return []
        return [
            replace(request, topology=network, job=job, start=None, improve_bound=False)
            for network, job in _roomiest(choices_of(request.topology, request.job))
            if len(network) <= MOST_ANNEALED
        ]

    def _near(self, choice: dict[str, Any], plans: list[Plan]) -> SearchRequest:
        """The request to search near these plans of one choice."""
        job = self.request.job.with_fields(**choice, warmups=self.request.job.warmups)
        best, nearby = plans[0], tuple(plans[:MOST_NEARBY])
        if len(best.topology) <= MOST_SEARCHED:
            nearby = ()
        return replace(self.request, topology=best.topology, job=job, start=best, nearby=nearby, improve_bound=False)

    def _choice_of(self, job: Job) -> _Fields:
        """What an annealing takes as given, of the job of a plan.

        Where overlap is open it anneals without, which the replay plays exactly, and is tried at the end of each turn
        (``_other_ways``). Of checkpointing, what no annealing tries by itself is given.
        """
        fields: dict[str, Any] = {what: getattr(job, what) for what in OF_CHOICES}
        if self.request.job.overlap is None:
            fields["overlap"] = False
        if job.checkpointing == "selective":
            fields["checkpointing"] = "selective"
        return tuple(fields.items())

    def _kind_of(self, job: Job) -> tuple[object, ...]:
        """Choices of one kind have the same good placements, so that the best of them is annealed and its plans are
        tried in the ways of the others: where only averaging differs, or whether the optimiser's states are split."""
        return job.tensor_parallel, job.gathers_passes, job.checkpointing == "selective"

    def _annealed(self, request: SearchRequest) -> Iterator[Candidate]:
        """The plans of one choice until one is proven best; nothing is computed before the first of them is asked for.

        The proof is by the choice's own bound, which may be higher than that of all choices.
        """
        topology, job = network_of(request.topology, request.job)
        problem, rng = _problem(topology, job, request), np.random.default_rng(request.seed)
        bounds = IncrementalBound([problem], self.target, request)
        for found in search_iteration(problem, rng, start=request.start, nearby=request.nearby, target=self.target):
            yield found
            if self.objective.step_of(request, found, bounds).gap < PROVEN:
                return

    def improve(self) -> Iterator[Candidate]:
        """Anneal the choices by turns: all in the first round, then in each the better half, the last one to the end.

        After its turn, the best plan of a choice is tried in the other ways to average.
        """
        alive = self.choices = [_Choice(self._annealed(one)) for one in self._requests()]
        # a search that counts steps has time for all choices, so that none is worse for the others' sake
        rounds = 1 if self.request.steps is not None else math.ceil(math.log2(max(len(alive), 1))) + 1
        for number in range(rounds):
            for i, choice in enumerate(alive):
                yield from self._advanced(choice, number, rounds, len(alive) - i)
                yield from self._other_ways(choice)
                if self.finished:
                    return
            alive = sorted((one for one in alive if one.best is not None), key=lambda one: one.value)
            alive = alive[: (len(alive) + 1) // 2]

    def _advanced(self, choice: _Choice, number: int, rounds: int, left: int) -> Iterator[Candidate]:
        """The steps of a choice in its share of the round, of which ``left`` choices have not had theirs."""
        request = self.request
        self._turn, self._is_last_turn = choice, number == rounds - 1 and left == 1
        share, until_s = np.iinfo(np.int64).max, math.inf
        if request.steps is not None:
            share = request.steps
        elif not self._is_last_turn:
            round_ends_s = request.limit_s * (number + 1) / rounds
            until_s = self.spent_s + max(round_ends_s - self.spent_s, 0.0) / left
        while not choice.done and choice.n_complete < share:
            try:
                found = choice.advance()
            except LabError as error:
                self.error, choice.done = error, True
                found = None
            if found is not None:
                yield found
            if self.finished or self.spent_s >= until_s:
                break
        self._turn = None

    def _other_ways(self, choice: _Choice) -> Iterator[Candidate]:
        """The best plan of a choice, with its replicas averaging in the other ways that are open, where one is faster.

        This ends when it has taken ``OTHER_WAYS_SHARE`` of the time limit: large plans take long to simulate.
        """
        one, request = choice.best, self.request
        if one is None or one is choice.retried or self.best is None:
            return
        choice.retried = one
        if one.job.n_replicas == 1 or one.best_s > CLOSE * self.best.best_s:
            return
        began, best = time.perf_counter(), self.best
        for job in self._in_other_ways(one.job):
            plan = unpriced_plan(one.topology, job, one.best, request.queueing, request.efficiency)
            found = candidate_of(plan, self.target, one.evaluations, "averaged otherwise")
            if found is not None and found.best_s < best.best_s:
                best = found
            if request.steps is None and time.perf_counter() - began > OTHER_WAYS_SHARE * request.limit_s:
                break
        if best is not self.best:
            yield best

    def _in_other_ways(self, job: Job) -> Iterator[Job]:
        """The job of a plan with every other averaging, overlap and whole or split states that the request leaves
        open."""
        asked = self.request.job
        shardings = ("none", "zero-1") if asked.sharding is None and not job.gathers_passes else (job.sharding,)
        ways = WAYS_TO_AVERAGE if asked.synchronisation is None else (job.synchronisation,)
        overlaps = (True, False) if asked.overlap is None else (job.overlap,)
        for sharding, way, overlap in product(shardings, ways, overlaps):
            fields = {"sharding": sharding, "synchronisation": way, "overlap": overlap}
            if job.sharding == "zero-3" or all(getattr(job, what) == value for what, value in fields.items()):
                continue
            try:
                yield job.with_fields(**fields, warmups=job.warmups)
            except LabError:  # such as a hierarchy with split states
                continue

    # what is shown

    def _held(self, best: Candidate, newest: Candidate) -> Callable[[], Population] | None:
        """What the newest plan's choice holds, with the best of all as the first; None where that lies on a network of
        other groups."""
        if newest.held is None or newest.topology is not best.topology or newest.best_s <= best.best_s:
            return newest.held if newest.topology is best.topology else None
        number = self._leaders.setdefault(best, FIRST_LEADER + len(self._leaders))
        return partial(_led_by, newest.held, best, number)

    def _shown(self, newest: Candidate | None = None, *, complete: bool = False) -> PlanStep:
        """The best plan of all choices, with the counts of all of them, and what the newest plan's choice holds."""
        best = self.best
        assert best is not None
        n_complete = sum(choice.n_complete for choice in self.choices)
        if newest is not None and self._turn is not None:  # generations before this step
            n_complete -= newest.complete
        shown = replace(
            best,
            evaluations=self.structured.n_simulated + sum(choice.evaluations for choice in self.choices),
            operator=best.operator if newest is None else newest.operator,
            complete=complete if newest is None else newest.complete,
            held=None if newest is None else self._held(best, newest),
        )
        step = self.objective.step_of(self.request, shown, self.bounds)
        return replace(step, generation=max(0, n_complete), seconds=self.spent_s)


def _led_by(held: Callable[[], Population], best: Candidate, number: int) -> Population:
    """What a choice holds, behind the best of all."""
    population = held()
    first = Individual(
        number=number,
        grid=best.best,
        cost_s=best.best_s,
        operator=best.operator,
        words="the best of another choice, or averaged otherwise",
        chosen=lambda: best.job,
    )
    return replace(population, individuals=(first, *population.individuals[: SHOWN - 1]))


def _roomiest(choices: list[tuple[Topology, Job]]) -> list[tuple[Topology, Job]]:
    """Those choices that may fit where no structured plan does.

    How replicas average needs no memory, so one way is enough. Between whole states and states that are split in all
    parts, and between the least and the most tensor parallelism, the others need no less.
    """
    degrees = [job.tensor_parallel or 1 for _, job in choices]
    shardings = [job.sharding for _, job in choices]
    ends = {min(degrees), max(degrees)}, {shardings[0], "zero-3" if "zero-3" in shardings else shardings[-1]}
    found: dict[tuple[int, str | None], tuple[Topology, Job]] = {}
    for network, job in choices:
        if (job.tensor_parallel or 1) in ends[0] and job.sharding in ends[1]:
            found.setdefault((job.tensor_parallel or 1, job.sharding), (network, job))
    return list(found.values())


def _bounded(request: SearchRequest) -> list[IterationProblem]:
    """The problems of all choices, among which the best plan is."""
    how = {"efficiency": request.efficiency}
    return [
        IterationProblem.of(network, job, request.queueing, **how)
        for network, job in choices_of(request.topology, request.job)
    ]


objectives.register("iteration")(SimulatedObjective("iteration", "s", dollars=False))
objectives.register("price")(SimulatedObjective("price", "$ a billion tokens", dollars=True))
