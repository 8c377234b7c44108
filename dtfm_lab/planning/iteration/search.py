"""The search over everything: shape, devices, cut, micro-batches, pairing, order of passes, checkpointing.

A shape is a number of stages and of replicas. The search keeps a ``ShapeSearch`` for each: its best plan so far, and
the annealing that improves it. An annealing starts from a structured placement, from the best plan of the shape, or
from that of a neighbouring shape. The next shape to be annealed is the one with the best plan, where the objective
counts a little more for every annealing that the shape has had. So good shapes get most of the work, and no shape is
given up. A shape whose plans would be good but lack memory is also tried with activations computed again.

An annealing prices its moves by an estimate. What it finds is annealed once more, at a lower temperature, by the exact
replay. Where the replay does not cover the job, or the network cards of its hosts, the simulator prices the plan.

Sources: annealing is that of Kirkpatrick, Gelatt and Vecchi (1983). The choice among shapes resembles a bandit, but it
goes by the least value found and not by the mean. To anneal all shapes equally often would spend nearly all of the time
on shapes that cannot win.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning.iteration.candidate import Candidate
from dtfm_lab.planning.iteration.fitting import FittingPlan, fitting_plan, require_shapes
from dtfm_lab.planning.iteration.judging import REPLAYED_SCHEDULES, PlanPricer
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.shape_searches import KernelPlan, ShapeSearch, ShapeSearches
from dtfm_lab.planning.iteration.shown import ShownShapes
from dtfm_lab.planning.iteration.starting_plans import StartingPlans
from dtfm_lab.planning.iteration.starts import Starts
from dtfm_lab.planning.iteration.tables_of import SearchTarget
from dtfm_lab.planning.iteration.waiting import wait_for_kernels

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
ESTIMATED_NS, REPLAYED_NS = 20e6, 8e6
"""Nominal nanoseconds of a shape's first annealing, by the estimate and by the replay. They set numbers of moves only,
so that equal seeds make equal moves on fast and on slow machines."""
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
TIGHT, MOST_TIGHT = 1.5, 40
"""With activations computed again are tried shapes of which a first plan lacks memory, or is slowed by it, and would
take less than so many times the best, were there enough; and how many shapes at most, of the least such plans."""
PROMISING = 3
"""Shapes with activations computed again, of each way, that are annealed at full length in the first round."""
FEW_ROWS, HOPELESS = 12, 2.0
"""Structured placements of every shape; of the others, and of the first annealing, are left out shapes whose plan takes
so many times the best. These are annealed when their turn comes."""
MOST_ROUNDS = 3
"""Rounds after which a search without any valid plan gives up. The first is over all shapes."""
LONGER = 4
"""Where there is no valid plan yet, each round anneals so many times longer, and so many times fewer shapes: those that
lack least. So every round takes as long as the one before."""
FEWEST_LONGER = 24
"""Shapes that every round has at least."""


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


Given = tuple[Plan | None, Sequence[Plan]]
"""The plan that a search starts with, and those near which alone it searches."""


def _run(
    problem: IterationProblem, rng: np.random.Generator, given: Given, target: SearchTarget, fitting: FittingPlan
) -> Iterator[Candidate]:
    compiling_s = yield from wait_for_kernels(problem, fitting, target, given[0])
    for candidate in _Search(problem, rng, given, target, fitting).run():
        yield replace(candidate, compiling_s=compiling_s)


class _Search:
    def __init__(
        self,
        problem: IterationProblem,
        rng: np.random.Generator,
        given: Given,
        target: SearchTarget,
        fitting: FittingPlan,
    ) -> None:
        from dtfm_lab.planning.kernels.random_numbers import seeded

        unused = copy.deepcopy(rng)
        self.problem, self.rng, self.target = problem, rng, target
        self.random = seeded(rng)
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
            if self._take(shape_search):
                yield self._candidate(complete=False)
        if self.nearby and self.best is not None:
            yield from self._near()
            return
        yield from self._first_plans(list(self.shape_searches))
        tight = self._tight()
        yield from self._first_plans([shape_search for shape_searches in tight for shape_search in shape_searches])
        promising = {shape_search for shape_searches in tight for shape_search in shape_searches[:PROMISING]}
        for rounds in range(MOST_ROUNDS):
            by_priority = sorted(self.shape_searches, key=_priority)
            for i, shape_search in enumerate(by_priority[: max(FEWEST_LONGER, len(by_priority) // LONGER**rounds)]):
                if rounds == 0 and self._hopeless(shape_search):
                    continue
                self._improve(
                    shape_search, FIRST_LENGTH if shape_search in promising else FIRST_GROWTH * LONGER**rounds
                )
                if self.best and (self._take(shape_search) or self._judged_long() or i % SHOWN_EVERY == 0):
                    yield self._candidate(complete=False)
            if self.best is not None:
                break
        yield self._candidate()
        while True:
            self._begin_beside()
            shape_search = min(self.shape_searches, key=_priority)
            self._improve(shape_search, min(FIRST_LENGTH * GROWTH ** (shape_search.slices - 1), LONGEST))
            self._take(shape_search)
            yield self._candidate()

    def _near(self) -> Iterator[Candidate]:
        """Plans near the given ones. These are mended first: with a lost device or a slower link a plan takes several
        times as long as it does after a few exchanges, and so would what is made of it. Then shapes next to the best
        one's are made of it, beside stages along chains of clusters, and all are annealed a little at a time."""
        for shape_search in [shape_search for shape_search in self.shape_searches if shape_search.best is not None]:
            self._improve(shape_search, MENDING_LENGTH, mends=True)
            self._take(shape_search)
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
                    if self._take(shape_search):
                        yield self._candidate(complete=False)
            seen.add(best)
            shape_search = min(
                (shape_search for shape_search in self.shape_searches if shape_search.best is not None),
                key=_near_priority,
            )
            self._improve(shape_search, min(FIRST_GROWTH * NEAR_GROWTH**shape_search.slices, LONGEST))
            self._take(shape_search)
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
                    taken = quick and self._take(shape_search)
                    if taken or (self.best is not None and self.evaluations % SHOWN_EVERY == 0):
                        yield self._candidate(complete=False)
        by_promise = sorted(shape_searches, key=lambda one: (one.shape[0] > 1, _priority(one)))
        for shape_search in [] if quick else by_promise:
            if self._take(shape_search) or self._judged_long():
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

    def _take(self, shape_search: ShapeSearch) -> bool:
        """Whether the best plan of a shape is the best of all, which it then becomes; it is priced exactly first."""
        best = shape_search.best
        if best is None or best.lacks > 0 or (self.best is not None and best.value >= self.best[1].value):
            return False
        if not best.judged:
            if self.best is not None and best.value * shape_search.underestimated >= self.best[1].value:
                return False
            self.evaluations += 1
            judge = self._pricer(shape_search)
            estimated, best = best.value, judge(shape_search, best)
            shape_search.best = best
            if not judge.replays and best.lacks == 0 and estimated > 0:
                shape_search.underestimated = max(best.value / estimated, 1.0)
            self.waited = not judge.replays
            if best.lacks > 0 or (self.best is not None and best.value >= self.best[1].value):
                return False
        self.best = shape_search, best
        return True

    def _improve(self, shape_search: ShapeSearch, growth: float, *, mends: bool = False) -> None:
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
        refused = next((judge.refusal for judge in self.pricers.values() if judge.refusal), "")
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
            job=shape_search.job(found, self.problem.job),
            iteration_s=shape_search.seconds(found) if self.target.dollars else found.value,
        )


def _without_schedule(problem: IterationProblem, rng: np.random.Generator, target: SearchTarget) -> Iterator[Candidate]:
    """The search of the same job with any schedule."""
    opened = replace(problem, job=problem.job.with_fields(schedule=None))
    return _Search(opened, rng, (None, ()), target, fitting_plan(opened)).run()


def _priority(shape_search: ShapeSearch) -> float:
    if shape_search.best is None:
        return math.inf
    return math.log(max(shape_search.best.price, 1e-300)) + CURIOSITY * math.log1p(shape_search.work)


def _near_priority(shape_search: ShapeSearch) -> float:
    """As ``_priority``, by the number of annealings: where these are few, no shape gets most of them."""
    assert shape_search.best is not None
    return math.log(max(shape_search.best.price, 1e-300)) + NEAR_CURIOSITY * shape_search.slices
