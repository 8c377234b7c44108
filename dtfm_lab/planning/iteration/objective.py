"""The objectives iteration and price, and the search over everything that a job leaves open.

The planner ``evolutionary`` runs that search. It begins with structured plans (``iteration.structured``) and anneals
the best of them. Any other planner places each shape for a low communication cost (``placements``), and the simulator
chooses among its placements.
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
    Stopwatch,
    check_start,
    network_of,
    objectives,
    require_prices,
    steps_within,
)

# ---------------------------------------------------------------------------------------------------------------------
# The objectives iteration and price: minimise simulated seconds, or US dollars per billion tokens.


log = logging.getLogger(__name__)
OWN_PLANNER = "evolutionary"
"""Name of the planner that searches everything that a job leaves open."""
TOKENS = 1e9
"""Prices are for this number of tokens."""


@dataclass(frozen=True)
class SimulatedObjective:
    """An objective that the simulator measures: seconds of an iteration, or US dollars per billion tokens."""

    name: str
    unit: str
    dollars: bool

    def value(self, plan: Plan) -> float:
        """Return seconds, or US dollars per billion tokens. Raises PlanError for a plan that was not simulated."""
        found = plan.price_per_billion_tokens if self.dollars else plan.iteration_s
        if found is None:
            raise PlanError(f"plan of {plan.job.name} was not simulated; wanted one with iteration_s")
        return found

    def search(self, request: SearchRequest) -> Iterator[PlanStep]:
        """Search everything that the job leaves open: shape, devices, cut, micro-batches, schedule, recomputation.

        A planner other than ``evolutionary`` only places devices in each shape. Raises JobError for a job without a
        model.
        """
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
        """Place the job's shapes with a planner for communication. Tensor parallelism, sharding and averaging get
        defaults if the job leaves them open."""
        self._check(request)
        topology, job = network_of(request.topology, request.job)
        request = replace(request, topology=topology, job=job)
        problem, target = _problem(topology, job, request), self.target(request)
        found = placements_by(request, problem, target, np.random.default_rng(request.seed))
        return self._steps(request, found, IncrementalBound([problem], target, request))

    def _annealed(self, request: SearchRequest) -> Iterator[PlanStep]:
        """Search plans of one degree of tensor parallelism, one sharding and one way to average."""
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
        """Return a step of the search that reports this candidate, with values in the unit of the objective."""
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
# Annealing keeps tensor parallelism, sharding and the way to average fixed. A *choice* is one combination of these.
# Structured plans show which few choices are worth it. These are annealed by successive halving (Jamieson and Talwalkar
# 2016): in each round the remaining choices share the round's time, and the better half of them continues. A choice's
# annealing is paused between its turns, never restarted.


MOST_CHOICES = 4
"""Maximum number of choices (combinations of ``OF_CHOICES``) that are annealed. With more, each gets too little time to
gain anything."""
CLOSE = 1.3
"""A choice is annealed only if its best structured plan takes at most this multiple of the best choice's time.
Annealing gains up to 30 % on irregular networks, and less on clusters."""
MOST_NEARBY = 6
"""Annealing searches near at most this many of a choice's best structured plans."""
MOST_SEARCHED = 16
"""Up to this number of devices, annealing begins from all shapes, not only near the structured plans. So few devices
have few shapes, and the best plans of small irregular networks often have no structure."""
MOST_ANNEALED = 512
"""Plans are annealed up to this number of devices or groups of GPUs. On larger networks, moving one of many equal
devices gains nothing in the seconds available, and the tables of all pairs take gigabytes."""
ESTIMATED_SHARE = 0.25
"""From this share of the time limit on, no further layout is estimated once a plan fits."""
LEAST_ESTIMATED_S = 0.2
"""Seconds of CPU time after which estimates end if the time limit is over, unless they ended at ``ESTIMATED_SHARE``. On
homogeneous clusters of thousands of GPUs the best estimate is found within 0.1 s."""
OTHER_WAYS_SHARE = 0.05
"""Share of the time limit for trying the best plan of a turn with other ways to average."""
STRUCTURED_SHARE = 0.4
"""From this share of the time limit on, no further structured plan is simulated once a plan fits."""
STRUCTURED_STEPS = 12
"""Number of structured plans that are simulated if the search counts steps."""
FIRST_LEADER = 10**6
"""The best plan of all may be shown in front of the plans of another choice. The first plan that is shown there gets
this number, and the next ones count up. A choice numbers its own plans from 0 and never comes that far."""
_Fields = tuple[tuple[str, Any], ...]


@dataclass(eq=False)
class _Choice:
    """One choice (a combination of ``OF_CHOICES``) and the progress of its annealing."""

    plans: Iterator[Candidate]
    """Its annealing, paused between two turns."""
    best: Candidate | None = None
    """Its best plan so far."""
    done: bool = False
    n_complete: int = 0
    """Number of complete steps so far."""
    evaluations: int = 0

    @property
    def value(self) -> float:
        """Objective of its best plan; infinite before it has a plan."""
        return math.inf if self.best is None else self.best.best_s

    def advance(self) -> Candidate | None:
        """Take one step and return its plan; None if no step is left."""
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
    2. ``improve`` yields the plans that annealing makes of the best of them.
    3. ``judge`` keeps a plan if it is the best so far.
    4. ``bound`` raises the lower bound, which says how much faster any other plan could be.

    ``steps`` calls them. Within these methods, plans are ``Candidate`` objects with the seconds or dollars of an
    iteration.
    ``_shown`` turns the best one into a ``PlanStep`` for every step that is shown.
    """

    def __init__(self, request: SearchRequest, objective: SimulatedObjective) -> None:
        self.request, self.objective, self.target = request, objective, objective.target(request)
        self.structured = StructuredPlans(request, self.target)
        self.bounds = IncrementalBound(_bounded(request), self.target, request)
        self.best: Candidate | None = None
        self.choices: list[_Choice] = []
        self.error: LabError | None = None
        """The latest error from annealing a choice. ``steps`` raises it if the search finds no plan."""
        self.start: Plan | None = None
        """The plan that the user gave, on the network of its groups of GPUs."""
        self._retried: set[tuple[bytes, Job]] = set()
        """Placements and jobs for which the other ways to average were tried."""
        self._turn: _Choice | None = None
        """The choice that is being annealed."""
        self._is_last_turn = False
        self._leaders: dict[Candidate, int] = {}
        """Plans that were shown in front of the plans of another choice -> their number (see ``FIRST_LEADER``)."""
        self._stopwatch = Stopwatch()
        self._first_estimate_s: float | None = None

    def steps(self) -> Iterator[PlanStep]:
        """Yield the best plan so far, again and again, until the time or the steps are used up, or the plan is proven
        best."""
        self._stopwatch = Stopwatch()  # no time counts before the first step is asked for
        for step in self._steps():
            with self._stopwatch.paused():
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
        """Seconds spent searching so far."""
        return self._stopwatch.spent_s()

    @property
    def finished(self) -> bool:
        """True if a plan was found and the time is up or the plan is proven best."""
        if self.best is None:
            return False
        return self.spent_s >= self.request.limit_s or self._shown().gap < PROVEN

    def judge(self, found: Candidate) -> None:
        """Keep a plan if it is the best so far. Its value is exact, from the replay or the simulator."""
        if self.best is None or found.best_s < self.best.best_s:
            self.best = found

    def bound(self, newest: Candidate) -> None:
        """Raise the lower bound towards the best plan, within its share of the time so far."""
        if self.best is None or self._turn is None:
            return
        # a search that counts steps spends all steps of the bound with the last choice
        generation = self._turn.n_complete - 1 if self._is_last_turn else -1
        self.bounds.update(self.best.iteration_s, generation, self._stopwatch.spent_s, complete=newest.complete)

    # begin: the structured plans

    def begin(self) -> Iterator[Candidate]:
        """Yield the user's plan, then the structured plans that fit, priced by the simulator."""
        timed = self.request.steps is None
        if (given := self._given()) is not None:
            yield given
        self.structured.estimate(self._estimated_enough if timed else lambda: False)
        for found in self.structured.simulated():
            # Not earlier: numba compiles one thread at a time, and the first plan waits for the simulator's kernels.
            start_kernels(len(self.request.topology))
            if found is not None:
                yield found
            enough = self._share >= STRUCTURED_SHARE if timed else self.structured.n_simulated >= STRUCTURED_STEPS
            if enough and self.best is not None:
                return

    def _given(self) -> Candidate | None:
        """Return the user's starting plan with the fields that the job pins; None if the job rules it out, or if it
        does not fit."""
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
        """Return True if estimates had their share of the time, counted from the first estimate, after the tables are
        built.

        The clock is the CPU time of this thread. On a busy machine a poor first plan costs more than a late one.
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
        """Return one request per choice to anneal, the most promising first. If the user gave a plan, its choice comes
        before all others. If no structured plan fits, they are for the choices that may fit nevertheless
        (``_roomiest``). Empty if the network is too large for annealing (``MOST_ANNEALED``)."""
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
                    # on small networks annealing tries the other kinds of checkpointing in all shapes, too
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
        """Return the request to search near these plans of one choice. On networks of up to ``MOST_SEARCHED`` devices,
        it searches all shapes instead, beginning with the best plan."""
        job = self.request.job.with_fields(**choice, warmups=self.request.job.warmups)
        best, nearby = plans[0], tuple(plans[:MOST_NEARBY])
        if len(best.topology) <= MOST_SEARCHED:
            nearby = ()
        return replace(self.request, topology=best.topology, job=job, start=best, nearby=nearby, improve_bound=False)

    def _choice_of(self, job: Job) -> _Fields:
        """Return the fields of a plan's job that annealing keeps fixed.

        If overlap is open, annealing runs without it, which the replay plays exactly. Overlap is tried at the end of
        each turn (``_other_ways``). Checkpointing is fixed only if it is selective, which no annealing tries by itself.
        """
        fields: dict[str, Any] = {what: getattr(job, what) for what in OF_CHOICES}
        if self.request.job.overlap is None:
            fields["overlap"] = False
        if job.checkpointing == "selective":
            fields["checkpointing"] = "selective"
        return tuple(fields.items())

    def _kind_of(self, job: Job) -> tuple[object, ...]:
        """Return the kind of a choice. Choices of one kind have the same good placements.

        They differ only in how replicas average, and in sharding: none or zero-1, or else zero-2 or zero-3. So only
        the best choice of a kind is annealed. Its plans are then tried with other ways to average and, unless they
        use zero-2 or zero-3, with the other one of none and zero-1 (``_in_other_ways``).
        """
        return job.tensor_parallel, job.gathers_passes, job.checkpointing == "selective"

    def _annealed(self, request: SearchRequest) -> Iterator[Candidate]:
        """Yield the plans of one choice until one is proven best. Nothing is computed before the first one is
        requested.

        The proof uses the choice's own bound, which may be higher than the bound of all choices.
        """
        topology, job = network_of(request.topology, request.job)
        problem, rng = _problem(topology, job, request), np.random.default_rng(request.seed)
        bounds = IncrementalBound([problem], self.target, request)
        for found in search_iteration(problem, rng, start=request.start, nearby=request.nearby, target=self.target):
            yield found
            if self.objective.step_of(request, found, bounds).gap < PROVEN:
                return

    def improve(self) -> Iterator[Candidate]:
        """Anneal the choices in turns: all of them in the first round, the better half in each further round, and the
        last one to the end.

        The best plan so far is first tried with the other ways to average, which the estimate may have misjudged. So is
        the best plan of each choice after its turn.
        """
        yield from self._other_ways(self.best)
        alive = self.choices = [_Choice(self._annealed(one)) for one in self._requests()]
        # a search that counts steps gives each choice all of them: no choice gets fewer because of the others
        rounds = 1 if self.request.steps is not None else math.ceil(math.log2(max(len(alive), 1))) + 1
        for number in range(rounds):
            for i, choice in enumerate(alive):
                yield from self._advanced(choice, number, rounds, len(alive) - i)
                yield from self._other_ways(choice.best)
                if self.finished:
                    return
            alive = sorted((one for one in alive if one.best is not None), key=lambda one: one.value)
            alive = alive[: (len(alive) + 1) // 2]

    def _advanced(self, choice: _Choice, number: int, rounds: int, left: int) -> Iterator[Candidate]:
        """Yield the steps of a choice in its share of the round. ``left`` is the number of choices, including this one,
        whose turn is not over."""
        request = self.request
        self._turn, self._is_last_turn = choice, number == rounds - 1 and left == 1
        share, until_s = np.iinfo(np.int64).max, math.inf
        if request.steps is not None:
            share = request.steps
        elif self._is_last_turn:
            until_s = request.limit_s * (1 - OTHER_WAYS_SHARE)
        else:
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

    def _other_ways(self, one: Candidate | None) -> Iterator[Candidate]:
        """Try a plan with the other ways to average that the job leaves open. Yield the best result if it beats the
        best plan.

        This stops after ``OTHER_WAYS_SHARE`` of the time limit, because large plans take long to simulate.
        """
        request = self.request
        if one is None or self.best is None or one.job.n_replicas == 1 or one.best_s > CLOSE * self.best.best_s:
            return
        key = one.best.tobytes(), one.job
        if key in self._retried:
            return
        self._retried.add(key)
        began, best = time.perf_counter(), self.best
        for job in self._in_other_ways(one.job):
            plan = unpriced_plan(one.topology, job, one.best, request.queueing, request.efficiency)
            found = candidate_of(plan, self.target, one.evaluations, "averaged otherwise", best=best.best_s)
            if found is not None and found.best_s < best.best_s:
                best = found
            if request.steps is None and time.perf_counter() - began > OTHER_WAYS_SHARE * request.limit_s:
                break
        if best is not self.best:
            yield best

    def _in_other_ways(self, job: Job) -> Iterator[Job]:
        """Yield a plan's job with every other open combination of averaging, overlap, and whole or split states. Yield
        nothing for zero-3, which averages in its passes."""
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
            except LabError:  # such as hierarchical averaging with split states
                continue

    # what is shown

    def _held(self, best: Candidate, newest: Candidate) -> Callable[[], Population] | None:
        """Return the newest plan's population, led by the best plan of all. None if there is no population, or if the
        two plans have different groups of GPUs."""
        if newest.held is None or newest.topology is not best.topology or newest.best_s <= best.best_s:
            return newest.held if newest.topology is best.topology else None
        number = self._leaders.setdefault(best, FIRST_LEADER + len(self._leaders))
        return partial(_led_by, newest.held, best, number)

    def _shown(self, newest: Candidate | None = None, *, complete: bool = False) -> PlanStep:
        """Return the step that shows the best plan of all choices, their total counts, and the newest plan's
        population."""
        best = self.best
        assert best is not None
        n_complete = sum(choice.n_complete for choice in self.choices)
        if newest is not None and self._turn is not None:  # count only the generations before this step
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
    """Return the population of a choice, led by the best plan of all."""
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
    """Return the choices that may fit although no structured plan does.

    Only the first way to average is kept, because averaging seldom decides whether a plan fits. Only the least and the
    most of tensor parallelism and of sharding are kept. What lies between them needs at least as much memory as one of
    the two.
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
    """Return the problems of all choices, which together contain the best plan."""
    how = {"efficiency": request.efficiency}
    return [
        IterationProblem.of(network, job, request.queueing, **how)
        for network, job in choices_of(request.topology, request.job)
    ]


objectives.register("iteration")(SimulatedObjective("iteration", "s", dollars=False))
objectives.register("price")(SimulatedObjective("price", "$ a billion tokens", dollars=True))
