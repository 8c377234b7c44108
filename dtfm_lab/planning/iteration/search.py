"""The search over everything: shape, devices, cut, micro-batches, pairing, order of passes, checkpointing.

A shape is a number of stages and of replicas. The search keeps a ``ShapeSearch`` for each: its best plan so far, and
the annealing that improves it. An annealing starts from a structured placement, from the best plan of the shape, or
from that of a neighbouring shape. The next shape to be annealed is the one with the best plan, where the objective
counts a little more for every annealing that the shape has had. So good shapes get most of the work, and no shape is
given up. A shape whose plans would be good but lack memory is also tried with activations computed again.

An annealing prices its moves by an estimate. What it finds is annealed once more, at a lower temperature, by the
exact replay. Where the replay does not cover the job, or the NICs of its hosts, the simulator prices the
plan.

Sources: annealing is that of Kirkpatrick, Gelatt and Vecchi (1983). The choice among shapes resembles a bandit, but
it goes by the least value found and not by the mean. To anneal all shapes equally often would spend nearly all of the
time on shapes that cannot win.

While the compiled kernels are being loaded the search shows a plan that fits (``wait_for_kernels``).
"""

from __future__ import annotations

import copy
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job, even_shares
from dtfm_lab.domain.job.presets import TINY
from dtfm_lab.domain.network import Device, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning.background_tasks import is_done, start_once, while_compiling
from dtfm_lab.planning.iteration.fitting import fitting_plan
from dtfm_lab.planning.iteration.problem import IterationProblem, SearchTarget
from dtfm_lab.planning.iteration.shape_searches import (
    FittingPlan,
    KernelPlan,
    ShapeSearch,
    ShapeSearches,
    chosen_job,
    require_shapes,
)
from dtfm_lab.planning.iteration.starts import StartingPlans, Starts
from dtfm_lab.planning.iteration.structured.candidates import (
    REPLAYED_SCHEDULES,
    Candidate,
    PlanPricer,
    candidate_of,
    unpriced_plan,
)
from dtfm_lab.planning.problem import SHOWN, Individual, Population

STEADY = 1.5
"""Forwards ahead of new plans, as a multiple of those that a steady pipeline needs."""
FIRST_GROWTH = 0.12
"""Length of every shape's first annealing, in nominal ones."""
FIRST_LENGTH = 1.0
"""Length of the second annealing of a shape."""
GROWTH = 1.2
"""Factor by which each annealing of a shape is longer than the one before. It is small, because many short annealings
from different structures find more than few long ones."""
LONGEST = 12.0
"""Length that no annealing exceeds, so that a search keeps looking at other shapes."""
CURIOSITY = 0.1
"""By how much each e-fold of work raises a shape's price."""
MENDING_LENGTH = 0.5
"""Length of the annealing that mends a given plan before its shape is compared with others."""
MENDING_HOT = 0.001
"""Its first temperature: low, as a few exchanges mend a plan that was good before a device left or a link changed."""
NEAR_CURIOSITY = 0.03
"""By how much each annealing raises a shape's price in a search near given plans, where few shapes compete."""
NEAR_GROWTH = 1.1
"""Factor by which each of these annealings is longer than the one before."""
ESTIMATED_NS = 20e6
"""Nominal nanoseconds of a shape's first annealing by the estimate. They set the number of moves only, so that equal
seeds make equal moves on fast and on slow machines."""
REPLAYED_NS = 8e6
"""The same of the annealing by the replay, whose moves cost more and gain less."""
COLD = 1e-4
"""Last temperature of an annealing by the estimate, as a share of the plan's seconds."""
POLISH_HOT = 0.002
"""First temperature of an annealing by the replay: low, as the estimate has found the plan already."""
POLISH_COLD = 2e-5
"""Last temperature of an annealing by the replay."""
POLISH_WITHIN = 1.005
"""What is polished: plans estimated within this factor of the best plan of their shape."""
SHOWN_EVERY = 16
"""Shapes between two candidates that only show that the search goes on, so that the clock is looked at."""
TIGHT = 1.5
"""Shapes that are short of memory are tried again with activations computed again if, with memory enough, they would
take less than this multiple of the best plan's seconds."""
MOST_TIGHT = 40
"""Most such shapes, the most promising first."""
PROMISING = 3
"""Shapes with activations computed again, of each way, that are annealed at full length in the first round."""
FEW_ROWS = 12
"""Structured placements that are priced of every shape, however long its plans take."""
HOPELESS = 2.0
"""Shapes whose plan takes this multiple of the best get no further placements, and no part in the first annealing.
They are annealed when their turn comes."""
MOST_ROUNDS = 3
"""Rounds after which a search without any valid plan gives up. The first is over all shapes."""
LONGER = 4
"""Where there is no valid plan yet, each round anneals so many times longer, and so many times fewer shapes: those that
lack least. So every round takes as long as the one before."""
FEWEST_LONGER = 24
"""Shapes that every round has at least."""
Given = tuple[Plan | None, Sequence[Plan]]
"""The plan that a search starts with, and those near which alone it searches."""


def search_iteration(
    problem: IterationProblem,
    rng: np.random.Generator,
    *,
    start: Plan | None = None,
    nearby: Sequence[Plan] = (),
    target: SearchTarget | None = None,
) -> Iterator[Candidate]:
    """Ever better plans of a problem, endlessly: one or more candidates a step, each the best so far.

    Where there are plans ``nearby``, these are begun with and only shapes next to those of good plans are tried.

    Equal problems and generators yield equal candidates. Raises PlanError where no plan is possible: by the call where
    the job's shape or the devices' memory rule all out, later where the limits of ``target`` do.
    """
    require_shapes(problem)
    # plans that are given fit
    first, *others = problem.parts
    fitting = FittingPlan(first, tuple(others), problem.microbatches[0]) if nearby else fitting_plan(problem)
    return _run(problem, rng, (start, nearby), target or SearchTarget(), fitting)


def _run(
    problem: IterationProblem, rng: np.random.Generator, given: Given, target: SearchTarget, fitting: FittingPlan
) -> Iterator[Candidate]:
    compiling_s = yield from wait_for_kernels(problem, fitting, target, given[0])
    for candidate in ChoiceAnnealing(problem, rng, given, target, fitting).run():
        yield replace(candidate, compiling_s=compiling_s)


class ChoiceAnnealing:
    """The search of one choice: what ``objective.Search`` improves.

    Each shape begins with structured placements (``begin``) and is annealed when its turn comes (``improve``). The best
    plan of a shape becomes the best of all when ``judge`` has priced it exactly.
    """

    def __init__(
        self,
        problem: IterationProblem,
        rng: np.random.Generator,
        given: Given,
        target: SearchTarget,
        fitting: FittingPlan,
    ) -> None:
        unused = copy.deepcopy(rng)
        self.problem, self.rng, self.target = problem, rng, target
        self.random = rng.integers(0, 2**64, size=1, dtype=np.uint64)  # the word of state of ``random_numbers``
        start, nearby = given
        self.nearby = bool(nearby)
        self.shape_searches = ShapeSearches(fitting.problem, target, fitting.others, begun=not nearby)
        self.shown = ShownShapes(self.shape_searches, problem.job)
        self.others = [part.job.checkpoints for part in fitting.others]
        self.starting_plans = StartingPlans(problem, self.shape_searches, rng)
        self.pricers = {part.job.checkpoints: PlanPricer(part, target) for part in (fitting.problem, *fitting.others)}
        self.evaluations = 0
        self.operator = ""
        self.best: tuple[ShapeSearch, KernelPlan] | None = None
        self.waited = False
        begun = [self.starting_plans.of_plan(plan) for plan in (start, *nearby)]
        if self.nearby and not any(begun):  # nothing to search near to
            fitting = fitting_plan(problem)
            self.nearby, self.shape_searches = False, ShapeSearches(fitting.problem, target, fitting.others)
            self.shown = ShownShapes(self.shape_searches, problem.job)
            self.starting_plans = StartingPlans(problem, self.shape_searches, rng)
        self.given = [found for found in (*begun, self.starting_plans.of_fitting(fitting)) if found]
        self.opened = None if problem.job.schedule in REPLAYED_SCHEDULES else _without_schedule(problem, unused, target)

    def run(self) -> Iterator[Candidate]:
        """Ever better plans; for a schedule that is not replayed, none worse than the plans of as many steps of a
        search that leaves it open, under this schedule."""
        for candidate in self._annealed():
            if candidate.complete and self.opened is not None:
                self._take_opened(self.opened)
                yield self._candidate()
            else:
                yield candidate

    def _take_opened(self, opened: Iterator[Candidate]) -> None:
        try:
            candidate = next(each for each in opened if each.complete)
        except PlanError:  # such as no plan below the limits
            self.opened = None
            return
        given = self.starting_plans.of_candidate(candidate)
        if given is not None and self.best is not None:
            shape_search, found = given[0], self._pricer(given[0])(*given)
            self.evaluations += 1
            if found.lacks == 0 and found.value < self.best[1].value:
                self.best = shape_search, found
            shape_search.keep(found)

    def _annealed(self) -> Iterator[Candidate]:
        """The first plans of all shapes, a short annealing of each, and then of the most promising."""
        for shape_search, found in self.given:
            self.operator = "start"
            shape_search.keep(replace(found, operator="start"))
            if self.judge(shape_search):
                yield self._candidate(complete=False)
        if self.nearby and self.best is not None:
            yield from self._near()
            return
        promising = yield from self.begin()
        yield from self.improve(promising)

    def begin(self) -> Generator[Candidate, None, set[ShapeSearch]]:
        """The structured placements of all shapes; returns shapes with activations computed again that may win."""
        yield from self._first_plans(list(self.shape_searches))
        tight = self._tight()
        yield from self._first_plans([shape_search for shape_searches in tight for shape_search in shape_searches])
        return {shape_search for shape_searches in tight for shape_search in shape_searches[:PROMISING]}

    def improve(self, promising: set[ShapeSearch]) -> Iterator[Candidate]:
        """Anneal every shape for a short while, then always the shape that looks best."""
        for rounds in range(MOST_ROUNDS):
            by_priority = sorted(self.shape_searches, key=_priority)
            for i, shape_search in enumerate(by_priority[: max(FEWEST_LONGER, len(by_priority) // LONGER**rounds)]):
                if rounds == 0 and self._hopeless(shape_search):
                    continue
                self._anneal(shape_search, FIRST_LENGTH if shape_search in promising else FIRST_GROWTH * LONGER**rounds)
                if self.best and (self.judge(shape_search) or self._judged_long() or i % SHOWN_EVERY == 0):
                    yield self._candidate(complete=False)
            if self.best is not None:
                break
        yield self._candidate()
        while True:
            self._begin_beside()
            shape_search = min(self.shape_searches, key=_priority)
            self._anneal(shape_search, min(FIRST_LENGTH * GROWTH ** (shape_search.slices - 1), LONGEST))
            self.judge(shape_search)
            yield self._candidate()

    def _near(self) -> Iterator[Candidate]:
        """Plans near the given ones. These are mended first: with a lost device or a slower link a plan takes several
        times as long as it does after a few exchanges, and so would what is made of it. Then shapes next to the best
        one's are made of it, beside stages along chains of clusters, and all are annealed a little at a time."""
        for shape_search in [shape_search for shape_search in self.shape_searches if shape_search.best is not None]:
            self._anneal(shape_search, MENDING_LENGTH, mends=True)
            self.judge(shape_search)
            yield self._candidate()
        assert self.best is not None
        yield from self._first_plans(self.shape_searches.of_clusters(self.best[0]), chains=True)
        seen: set[ShapeSearch] = set()
        while True:
            best = self.best[0]
            for shape_search in [] if best in seen else self.shape_searches.next_to(best):
                if (found := self.starting_plans.reshaped(shape_search, best, STEADY)) is not None:
                    self.operator = "reshaped, {} x {}".format(*shape_search.shape)
                    self.evaluations += 1
                    shape_search.keep(found)
                    if self.judge(shape_search):
                        yield self._candidate(complete=False)
            seen.add(best)
            shape_search = min(
                (shape_search for shape_search in self.shape_searches if shape_search.best is not None),
                key=_near_priority,
            )
            self._anneal(shape_search, min(FIRST_GROWTH * NEAR_GROWTH**shape_search.slices, LONGEST))
            self.judge(shape_search)
            yield self._candidate()

    def _tight(self) -> list[list[ShapeSearch]]:
        """By checkpointing, the searches of shapes that lack memory, with activations computed again; the most
        promising come first.

        A shape lacks memory if its plan does not fit, or if it fits only with so few micro-batches under way that
        stages wait for each other."""
        if not self.others:
            return []
        most = math.inf if self.best is None else TIGHT * self.best[1].value
        tight = self.starting_plans.tight(self.shape_searches, most, STEADY)
        return [
            [
                self.shape_searches.begin(shape_search.shape, shape_search.microbatch, how)
                for shape_search in islice(
                    (shape_search for shape_search in tight if self.starting_plans.fits(shape_search, how)), MOST_TIGHT
                )
            ]
            for how in self.others
        ]

    def _pricer(self, shape_search: ShapeSearch) -> PlanPricer:
        return self.pricers[shape_search.checkpointing]

    def _first_plans(self, shape_searches: list[ShapeSearch], *, chains: bool = False) -> Iterator[Candidate]:
        """Structured placements of every shape. Simulations take long: the best of each shape alone is simulated, first
        those without hops, whose estimates are exact and which others have to beat, then by their estimates."""
        quick = all(self._pricer(shape_search).replays for shape_search in shape_searches)
        for i in range(Starts.most_rows):
            for shape_search in shape_searches:
                if i >= FEW_ROWS and self._hopeless(shape_search):
                    continue
                if (named := self.starting_plans.structured(shape_search, i, STEADY, chains=chains)) is not None:
                    self.operator, found = named
                    self.evaluations += 1
                    shape_search.keep(self.shown.tried(shape_search, found, self.operator))
                    taken = quick and self.judge(shape_search)
                    if taken or (self.best is not None and self.evaluations % SHOWN_EVERY == 0):
                        yield self._candidate(complete=False)
        by_promise = sorted(shape_searches, key=lambda one: (one.shape[0] > 1, _priority(one)))
        for shape_search in [] if quick else by_promise:
            if self.judge(shape_search) or self._judged_long():
                yield self._candidate(complete=False)

    def _hopeless(self, shape_search: ShapeSearch) -> bool:
        """Whether a shape's best plan takes ``HOPELESS`` times the best of all."""
        return (
            self.best is not None
            and shape_search.best is not None
            and shape_search.best.price > HOPELESS * self.best[1].value
        )

    def _begin_beside(self) -> None:
        """Begin searches of the best plan's shape with micro-batches whose sizes lie between those begun with."""
        assert self.best is not None
        shape_search, found = self.best
        for other in self.shape_searches.beside(shape_search):
            other.keep(replace(other.assessed(found.row, found.blocks, STEADY), operator="another micro-batch"))

    def _judged_long(self) -> bool:
        """Whether a plan was simulated since the last time, so that the clock should be looked at; not for replays."""
        waited, self.waited = self.waited, False
        return waited and self.best is not None

    def judge(self, shape_search: ShapeSearch) -> bool:
        """Whether the best plan of a shape is the best of all, which it then becomes; it is priced exactly first."""
        best = shape_search.best
        if best is None or best.lacks > 0 or (self.best is not None and best.value >= self.best[1].value):
            return False
        if not best.judged:
            if self.best is not None and best.value * shape_search.underestimated >= self.best[1].value:
                return False
            self.evaluations += 1
            pricer = self._pricer(shape_search)
            estimated, best = best.value, pricer(shape_search, best)
            shape_search.best = best
            if not pricer.replays and best.lacks == 0 and estimated > 0:
                shape_search.underestimated = max(best.value / estimated, 1.0)
            self.waited = not pricer.replays
            if best.lacks > 0 or (self.best is not None and best.value >= self.best[1].value):
                return False
        self.best = shape_search, best
        return True

    def _anneal(self, shape_search: ShapeSearch, growth: float, *, mends: bool = False) -> None:
        """Anneal a shape by the estimate, and what that finds by the replay; ``mends`` its best plan."""
        assert shape_search.best is not None
        s, r = shape_search.shape
        begin, operator, hot = self.starting_plans.of_annealing(shape_search, STEADY)
        if mends:
            begin, operator, hot = shape_search.best, "mended", MENDING_HOT
        self.operator = f"{operator}, {s} x {r}"
        n_moves = int(ESTIMATED_NS * growth / (4000 + 12 * s * s + 25 * s * r + 30 * r + 6 * r * r)) + 20
        shape_search.slices += 1
        shape_search.work += growth
        found = shape_search.annealed(begin, hot, COLD, n_moves, self.random, exact=False)
        self.evaluations += n_moves
        if found.lacks > 0 or not self._pricer(shape_search).polishes:
            shape_search.keep(self.shown.tried(shape_search, found, operator))
        elif shape_search.best.lacks > 0 or found.value <= shape_search.best.value * POLISH_WITHIN:
            one_ns = 7 * s * shape_search.tables.passes.n_microbatches * (1.3 / r + 0.35) + 5 * s * r * r + 3000
            n_exact = int(REPLAYED_NS * growth / one_ns) + 10
            found = shape_search.annealed(found, POLISH_HOT, POLISH_COLD, n_exact, self.random, exact=True)
            self.evaluations += n_exact
            found = replace(found, judged=self._pricer(shape_search).replays)
            shape_search.keep(self.shown.tried(shape_search, found, operator))
        else:
            self.shown.tried(shape_search, found, operator)

    def _nothing_fits(self) -> str:
        """The memory and the limits that no plan was found to keep, in one line."""
        limits = {"max_price_per_hour": self.target.max_price_per_hour, "max_iteration_s": self.target.max_iteration_s}
        kept = [f"{what} {limit:g}" for what, limit in limits.items() if limit < math.inf]
        refused = next((pricer.refusal for pricer in self.pricers.values() if pricer.refusal), "")
        if refused:
            return f"no plan was found that can be simulated and fits memory{' and limits' * bool(kept)}: {refused}"
        if not kept:
            return "no plan fits the memory of the devices"
        return f"no plan was found that fits the memory of the devices and {' and '.join(kept)}; wanted higher limits"

    def _candidate(self, *, complete: bool = True) -> Candidate:
        if self.best is None:
            raise PlanError(self._nothing_fits())
        shape_search, found = self.best
        return Candidate(
            best=shape_search.grid(found),
            best_s=found.value,
            evaluations=self.evaluations,
            operator=self.operator,
            complete=complete,
            held=partial(self.shown.population, self.best),
            topology=self.problem.topology,
            job=shape_search.job(found, self.problem.job),
            iteration_s=shape_search.seconds(found) if self.target.dollars else found.value,
        )


def _without_schedule(problem: IterationProblem, rng: np.random.Generator, target: SearchTarget) -> Iterator[Candidate]:
    """The search of the same job with any schedule."""
    opened = replace(problem, job=problem.job.with_fields(schedule=None))
    return ChoiceAnnealing(opened, rng, (None, ()), target, fitting_plan(opened)).run()


def _priority(shape_search: ShapeSearch) -> float:
    if shape_search.best is None:
        return math.inf
    return math.log(max(shape_search.best.price, 1e-300)) + CURIOSITY * math.log1p(shape_search.work)


def _near_priority(shape_search: ShapeSearch) -> float:
    """As ``_priority``, by the number of annealings: where these are few, no shape gets most of them."""
    assert shape_search.best is not None
    return math.log(max(shape_search.best.price, 1e-300)) + NEAR_CURIOSITY * shape_search.slices


# ---------------------------------------------------------------------------------------------------------------------
# What is shown of a search: the best plan of each shape that it has begun, and the newest.


CHECKPOINTED = {
    "none": "",
    "selective": ", attention computed again",
    "block": ", blocks computed again",
    "stage": ", stages computed again",
}


class ShownShapes:
    """Numbers the plans of a search in the order in which they are first shown."""

    def __init__(self, shape_searches: ShapeSearches, job: Job) -> None:
        self._shape_searches, self._job = shape_searches, job
        self._tried: deque[tuple[ShapeSearch, KernelPlan]] = deque(maxlen=SHOWN)
        self._known: dict[KernelPlan, Individual] = {}
        self._newest: dict[ShapeSearch, Individual] = {}
        """The best that was shown last of each shape: the parent of what follows it."""
        self._n_shown = 0

    def tried(self, shape_search: ShapeSearch, found: KernelPlan, operator: str) -> KernelPlan:
        """The same plan with what it was made from; kept to be shown for as long as it is among the newest."""
        found = replace(found, operator=operator)
        self._tried.append((shape_search, found))
        return found

    def population(self, best: tuple[ShapeSearch, KernelPlan]) -> Population:
        """The best of all, then those of the other shapes and the newest, the cheapest first, as the kernels priced
        them."""
        bests = [
            (shape_search, shape_search.best)
            for shape_search in self._shape_searches
            if shape_search is not best[0] and shape_search.best is not None
        ]
        bests = sorted((one for one in bests if one[1].lacks == 0), key=_value)
        kept = bests[: SHOWN - 1]
        known = {found for _, found in (best, *kept)}
        newest = [one for one in reversed(self._tried) if one[1].lacks == 0 and one[1] not in known]
        others = sorted([*kept, *newest[: SHOWN - 1 - len(kept)]], key=_value)
        self._known = {found: self._individual(shape_search, found) for shape_search, found in (best, *others)}
        return Population(individuals=tuple(self._known.values()), rule=_rule(len(bests) + 1))

    def _individual(self, shape_search: ShapeSearch, found: KernelPlan) -> Individual:
        if found in self._known:
            return self._known[found]
        before = self._newest.get(shape_search)
        s, r = shape_search.shape
        estimated = "" if found.judged else "; its cost is estimated"
        checkpointed = CHECKPOINTED[shape_search.checkpointing]
        one = Individual(
            number=self._n_shown,
            grid=shape_search.grid(found),
            cost_s=found.value,
            operator=found.operator,
            words=f"{s} x {r}, micro-batches of {shape_search.microbatch}{checkpointed}{estimated}",
            parents=() if before is None or found.operator != "reheated" else (before.childless,),
            is_estimate=not found.judged,
            chosen=partial(  # not shape_search.job, which would keep the whole search for as long as this is shown
                chosen_job,
                self._job,
                found.blocks,
                found.microbatch_counts,
                found.warmups,
                shape_search.microbatch,
                shape_search.checkpointing,
            ),
        )
        self._n_shown += 1
        if found is shape_search.best:
            self._newest[shape_search] = one
        return one


def _rule(n_shapes: int) -> str:
    if n_shapes == 1:
        return (
            "Shown are the best, and the newest that were tried. Each is annealed; what it becomes is kept if better."
        )
    return (
        f"Shown are the best of each shape and micro-batch, of {n_shapes} that fit, and then the newest that were "
        "tried. The search anneals the shape that looks best, and gives none up."
    )


def _value(one: tuple[ShapeSearch, KernelPlan]) -> float:
    return one[1].value


# ---------------------------------------------------------------------------------------------------------------------
# The kernels of a search, compiled or loaded on a thread, and a plan that fits until they are there.


QUICK_S = 0.4
"""Seconds to wait for kernels from the cache before a plan is made without them."""


def wait_for_kernels(
    problem: IterationProblem, fitting: FittingPlan, target: SearchTarget, start: Plan | None = None
) -> Generator[Candidate, None, float]:
    """Nothing where the kernels are ready; else a first plan, again and again, as incomplete candidates.

    Each has the seconds waited in ``compiling_s``; all of them are returned. Time limits do not count them, since a
    machine compiles only once.
    """
    began = time.perf_counter()
    compile_kernels = start_kernels(problem.n_devices)
    quick = start_once(compile_kernels, compile_kernels).wait(QUICK_S)
    first = None
    if not quick and start is not None and start.topology is problem.topology:
        first = candidate_of(start, target, 1, "start", complete=False)
    elif not quick and fitting.grid is not None and not target.limited:
        first = _first(problem, fitting, target)
    for _waited_s in while_compiling(compile_kernels, compile_kernels):
        if first is not None:
            yield replace(first, compiling_s=time.perf_counter() - began)
    return time.perf_counter() - began


def start_kernels(n_devices: int) -> Callable[[], None]:
    """Begin to load or compile a search's kernels on a thread; return what is done there."""
    from dtfm_lab.planning.iteration.bounds.iteration_bound import MOST_ENUMERATED

    compile_kernels = _compile_of_few if n_devices <= MOST_ENUMERATED else _compile
    start_once(compile_kernels, compile_kernels)
    return compile_kernels


def kernels_are_ready() -> bool:
    """Whether a search of this process has waited for its kernels, so that a replay begins at once."""
    return is_done(_compile) or is_done(_compile_of_few)


def _compile() -> None:
    """Call every kernel once, on a small problem, with arguments of the final types."""
    _compile_for(None)


def _compile_of_few() -> None:
    """The same, and of the bound of few devices, which is for schedules of one stage a device."""
    _compile_for(None)
    _compile_for(("1f1b",))


def _compile_for(schedules: tuple[str, ...] | None) -> None:
    from dtfm_lab.planning.iteration.bounds import iteration_bound_steps
    from dtfm_lab.planning.kernels.random_numbers import seeded

    links = 1.0 - np.eye(4)
    topology = Topology(tuple(Device(name=f"device {i}") for i in range(4)), links, links + np.eye(4))
    job = Job(model=TINY, n_stages=2, n_replicas=2, global_batch=8, microbatch=1, checkpointing="none")
    problem = IterationProblem.of(topology, job)
    (shape_search,) = ShapeSearches(problem, SearchTarget())
    found = shape_search.assessed(np.arange(4), np.array([4, 4]), 1.0)
    random = seeded(np.random.default_rng(0))
    shape_search.annealed(
        shape_search.annealed(found, 0.1, 0.01, 2, random, exact=False), 0.1, 0.01, 2, random, exact=True
    )
    for _bound_s in iteration_bound_steps(problem, found.value, schedules):
        pass


def _first(problem: IterationProblem, fitting: FittingPlan, target: SearchTarget) -> Candidate | None:
    assert fitting.grid is not None
    assert fitting.blocks is not None
    job, (n_stages, n_replicas) = problem.job, fitting.grid.shape
    microbatch_counts = np.array(
        job.microbatches_per_replica or even_shares(job.global_batch // fitting.microbatch, n_replicas)
    )
    warmups, checkpointing = np.array(job.warmups or [0] * n_stages), fitting.problem.job.checkpoints
    chosen = chosen_job(job, fitting.blocks, microbatch_counts, warmups, fitting.microbatch, checkpointing)
    plan = unpriced_plan(problem.topology, chosen, fitting.grid, problem.queueing, problem.efficiency)
    return candidate_of(plan, target, 1, "fits", complete=False)
