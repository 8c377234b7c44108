"""The search within one choice, which fixes tensor parallelism, sharding and averaging (``layouts.OF_CHOICES``).

It varies shape, devices, cut, micro-batches, pairing, order of passes and checkpointing.

A shape is a number of stages and of replicas. The search keeps a ``ShapeSearch`` for each shape, with its best plan so
far and the annealing that improves it. Annealing starts from a structured or a random placement, from the best plan of
the shape, or from the best plan of a neighbouring shape. The next shape to be annealed is the one with the best plan,
but each annealing makes its shape count a little worse. So good shapes get most of the work, and no shape is given up.
A shape whose plans would be good but lack memory is also tried with recomputation.

Annealing prices its moves by an estimate. Its result is annealed again, at a lower temperature, by the exact replay. If
the replay does not cover the job, or the NICs of its hosts, the simulator prices the plan.

Sources: annealing comes from Kirkpatrick, Gelatt and Vecchi (1983). The choice among shapes resembles a bandit, but it
goes by the minimum found, not by the mean. To anneal all shapes equally often would spend nearly all of the time on
shapes that cannot win.

While the compiled kernels load, the search shows a plan that fits (``wait_for_kernels``).
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
from dtfm_lab.planning.iteration.starts import STEADY, StartingPlans, Starts
from dtfm_lab.planning.iteration.structured.candidates import (
    REPLAYED_SCHEDULES,
    Candidate,
    PlanPricer,
    candidate_of,
    unpriced_plan,
)
from dtfm_lab.planning.problem import SHOWN, Individual, Population

FIRST_GROWTH = 0.12
"""Length of a shape's first annealing, as a multiple of the nominal length (``ESTIMATED_NS``)."""
FIRST_LENGTH = 1.0
"""Length of the second annealing of a shape, as a multiple of the nominal length."""
GROWTH = 1.2
"""Factor by which each annealing of a shape is longer than the one before. It is small because many short annealings
from different structures find more than few long ones."""
LONGEST = 12.0
"""Maximum length of an annealing, as a multiple of the nominal length, so that a search keeps looking at other
shapes."""
MOST_GROWTHS = 100
"""Annealings beyond this number are not made longer. By then each has reached ``LONGEST``."""
CURIOSITY = 0.1
"""Weight of annealing so far in a shape's priority. The priority is the log price of the shape's best plan, plus this
times the log of 1 + its total annealing length. The shape with the lowest priority is annealed next."""
MENDING_LENGTH = 0.5
"""Length of the annealing that mends a given plan before its shape is compared with others, in nominal lengths."""
MENDING_HOT = 0.001
"""First temperature of mending, as a share of the objective. It is low, because a few exchanges mend a plan that was
good before a device left or a link changed."""
NEAR_CURIOSITY = 0.03
"""Increase of a shape's priority with each annealing, in a search near given plans (see ``CURIOSITY``). Few shapes
compete there."""
NEAR_GROWTH = 1.1
"""Factor by which each annealing near given plans is longer than the one before."""
ESTIMATED_NS = 20e6
"""Nominal nanoseconds of an annealing by the estimate, at length 1. They set only the number of moves, so equal
seeds make equal moves on fast and on slow machines."""
REPLAYED_NS = 8e6
"""Nominal nanoseconds of an annealing by the replay, at length 1. Its moves cost more and gain less."""
COLD = 1e-4
"""Last temperature of annealing by the estimate, as a share of the objective."""
POLISH_HOT = 0.002
"""First temperature of annealing by the replay, as a share of the objective. It is low, because the estimate
has found the plan already."""
POLISH_COLD = 2e-5
"""Last temperature of annealing by the replay, as a share of the objective."""
POLISH_WITHIN = 1.005
"""The replay polishes plans that are estimated within this factor of the best plan of their shape."""
SHOWN_EVERY = 16
"""After this many shapes or placements a candidate is yielded even if there is nothing new. The caller can then check
the time limit."""
TIGHT = 1.5
"""Shapes that are short of memory are tried again with recomputation if they are good enough. With enough memory they
would have to take less than this multiple of the best plan's seconds."""
MOST_TIGHT = 40
"""Maximum number of shapes per kind of checkpointing that are tried again as ``TIGHT`` says, the most promising
first."""
PROMISING = 3
"""Number of shapes with recomputation, per kind of checkpointing, that get a full-length annealing in the first
round."""
FEW_ROWS = 12
"""Number of structured placements that are priced for every shape, however slow its plans are."""
HOPELESS = 2.0
"""A shape whose plan takes more than this multiple of the best plan's seconds gets no further placements and skips the
first round of annealing. It is annealed when its turn comes."""
MOST_ROUNDS = 3
"""Number of rounds after which a search without any valid plan gives up. The first round covers all shapes."""
LONGER = 4
"""While there is no valid plan, each round anneals a quarter as many shapes, each four times as long, so rounds take
about equally long. The shapes kept have the best plans by ``price``, raised a little by earlier annealing
(``CURIOSITY``)."""
FEWEST_LONGER = 24
"""Minimum number of shapes that a round of annealing covers (see ``LONGER``)."""
Given = tuple[Plan | None, Sequence[Plan]]
"""The plan that a search starts with, and the plans that it stays near."""


def search_iteration(
    problem: IterationProblem,
    rng: np.random.Generator,
    *,
    start: Plan | None = None,
    nearby: Sequence[Plan] = (),
    target: SearchTarget | None = None,
) -> Iterator[Candidate]:
    """Yield ever better plans of a problem, without end: one or more candidates per step, each the best so far.

    If there are plans ``nearby``, the search begins with them and tries only shapes next to the shapes of good plans.

    Equal problems and generators yield equal candidates. Raises PlanError if no plan is possible: at the call if the
    job's shape or the devices' memory rule all plans out, later if the limits of ``target`` do.
    """
    require_shapes(problem)
    # given plans fit already, so none has to be constructed
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
    """The search within one choice (a combination of ``OF_CHOICES``), which ``objective.Search`` runs.

    ``begin`` gives each shape structured placements, and ``improve`` anneals a shape when its turn comes. The best plan
    of a shape becomes the best of all once ``judge`` has priced it exactly.
    """

    def __init__(
        self,
        problem: IterationProblem,
        rng: np.random.Generator,
        given: Given,
        target: SearchTarget,
        fitting: FittingPlan,
    ) -> None:
        # the second search, which leaves the schedule open, draws the same random numbers
        unused = copy.deepcopy(rng)
        self.problem, self.target = problem, target
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
        self.queues = False
        """True if a plan was rejected only because its messages take too much memory while they wait."""
        begun = [self.starting_plans.of_plan(plan) for plan in (start, *nearby)]
        if self.nearby and not any(begun):  # nothing to search near to
            fitting = fitting_plan(problem)
            self.nearby, self.shape_searches = False, ShapeSearches(fitting.problem, target, fitting.others)
            self.shown = ShownShapes(self.shape_searches, problem.job)
            self.starting_plans = StartingPlans(problem, self.shape_searches, rng)
        self.given = [found for found in (*begun, self.starting_plans.of_fitting(fitting)) if found]
        self.opened = None if problem.job.schedule in REPLAYED_SCHEDULES else _without_schedule(problem, unused, target)

    def run(self) -> Iterator[Candidate]:
        """Yield ever better plans.

        If the schedule is not replayed, a second search leaves it open, and its plans are also tried under the job's
        schedule. So after any number of steps, the best plan is at least as good as the second search's plans under
        that schedule.
        """
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
        """Yield the first plans of all shapes, then anneal each for a short time, then the most promising. If plans are
        given to search near, yield only plans near them."""
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
        """Try the structured placements of all shapes, then of shapes with recomputation. Return the most promising
        shapes with recomputation (``PROMISING``)."""
        yield from self._first_plans(list(self.shape_searches))
        tight = self._tight()
        yield from self._first_plans([shape_search for shape_searches in tight for shape_search in shape_searches])
        return {shape_search for shape_searches in tight for shape_search in shape_searches[:PROMISING]}

    def improve(self, promising: set[ShapeSearch]) -> Iterator[Candidate]:
        """Anneal every shape for a short time, then always the shape that looks best."""
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
            # slices - 1: the first annealing of a shape was only a short look at it
            self._anneal(shape_search, annealing_length(FIRST_LENGTH, GROWTH, shape_search.slices - 1))
            self.judge(shape_search)
            yield self._candidate()

    def _near(self) -> Iterator[Candidate]:
        """Yield plans near the given ones.

        The given plans are mended first. After a device is lost or a link slows down, such a plan can be several times
        slower than after a few exchanges. Plans derived from it would be as slow. Then the best plan is reshaped to the
        shapes next to it, and stages along chains of clusters are tried. All of them are annealed a little at a time.
        """
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
                if (found := self.starting_plans.reshaped(shape_search, best)) is not None:
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
            self._anneal(shape_search, annealing_length(FIRST_GROWTH, NEAR_GROWTH, shape_search.slices))
            self.judge(shape_search)
            yield self._candidate()

    def _tight(self) -> list[list[ShapeSearch]]:
        """Return the searches of shapes that lack memory, with recomputation, as one list per kind of checkpointing.

        The most promising come first. A shape lacks memory if its plan does not fit, or if it fits only with so few
        micro-batches in flight that stages wait for each other.
        """
        if not self.others:
            return []
        most = math.inf if self.best is None else TIGHT * self.best[1].value
        tight = self.starting_plans.tight(self.shape_searches, most)
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
        """Try structured placements of every shape.

        If plans have to be simulated, which takes long, only the best of each shape is. Shapes of one stage come first:
        their estimates are exact, and the others have to beat them. The others follow in the order of their estimates.
        """
        quick = all(self._pricer(shape_search).replays for shape_search in shape_searches)
        for i in range(Starts.most_rows):
            for shape_search in shape_searches:
                if i >= FEW_ROWS and self._hopeless(shape_search):
                    continue
                if (named := self.starting_plans.structured(shape_search, i, chains=chains)) is not None:
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
        """Return True if a shape's best plan takes more than ``HOPELESS`` times the best of all."""
        return (
            self.best is not None
            and shape_search.best is not None
            and shape_search.best.price > HOPELESS * self.best[1].value
        )

    def _begin_beside(self) -> None:
        """Begin searches of the best plan's shape with micro-batch sizes between those tried so far."""
        assert self.best is not None
        shape_search, found = self.best
        for other in self.shape_searches.beside(shape_search):
            other.keep(replace(other.assessed(found.row, found.blocks, STEADY), operator="another micro-batch"))

    def _judged_long(self) -> bool:
        """Return True if a plan was simulated since the last call, so that the caller should check the time limit.
        Replays are too quick to count."""
        waited, self.waited = self.waited, False
        return waited and self.best is not None

    def judge(self, shape_search: ShapeSearch) -> bool:
        """Price the best plan of a shape exactly if it may be the best of all. Return True if it becomes the best of
        all."""
        best = shape_search.best
        if best is None or best.lacks > 0 or (self.best is not None and best.value >= self.best[1].value):
            return False
        if not best.judged:
            # if the estimate is as far off as the last plan's, this plan cannot win: no simulation is spent on it
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
        # the simulator has looked at memory already
        if self._pricer(shape_search).replays and (over := self._pricer(shape_search).over_bytes(shape_search, best)):
            shape_search.spare(over)
            self.queues = True
            return False
        self.best = shape_search, best
        return True

    def _anneal(self, shape_search: ShapeSearch, growth: float, *, mends: bool = False) -> None:
        """Anneal a shape by the estimate, then its result by the replay.

        ``growth`` is the length, as a multiple of the nominal length. ``mends`` starts from the shape's best plan.
        """
        assert shape_search.best is not None
        s, r = shape_search.shape
        begin, operator, hot = self.starting_plans.of_annealing(shape_search)
        if mends:
            begin, operator, hot = shape_search.best, "mended", MENDING_HOT
        self.operator = f"{operator}, {s} x {r}"
        # the divisor is the nominal nanoseconds of one move in this shape
        n_moves = int(ESTIMATED_NS * growth / (4000 + 12 * s * s + 25 * s * r + 30 * r + 6 * r * r)) + 20
        shape_search.slices += 1
        shape_search.work += growth
        found = shape_search.annealed(begin, hot, COLD, n_moves, self.random, exact=False)
        self.evaluations += n_moves
        if found.lacks > 0 or not self._pricer(shape_search).polishes:
            shape_search.keep(self.shown.tried(shape_search, found, operator))
        elif shape_search.best.lacks > 0 or found.value <= shape_search.best.value * POLISH_WITHIN:
            # as above, the nominal nanoseconds of one move, here with the replay
            one_ns = 7 * s * shape_search.tables.passes.n_microbatches * (1.3 / r + 0.35) + 5 * s * r * r + 3000
            n_exact = int(REPLAYED_NS * growth / one_ns) + 10
            found = shape_search.annealed(found, POLISH_HOT, POLISH_COLD, n_exact, self.random, exact=True)
            self.evaluations += n_exact
            # the replay leaves out shared NICs; a plan with shared NICs still has to be simulated
            found = replace(found, judged=self._pricer(shape_search).replays)
            shape_search.keep(self.shown.tried(shape_search, found, operator))
        else:
            self.shown.tried(shape_search, found, operator)

    def _nothing_fits(self) -> str:
        """Return one line that says which memory or limits all plans exceed."""
        limits = {"max_price_per_hour": self.target.max_price_per_hour, "max_iteration_s": self.target.max_iteration_s}
        kept = [f"{what} {limit:g}" for what, limit in limits.items() if limit < math.inf]
        refused = next((pricer.refusal for pricer in self.pricers.values() if pricer.refusal), "")
        if refused:
            return f"no plan was found that can be simulated and fits memory{' and limits' * bool(kept)}: {refused}"
        waiting = " while its messages wait" if self.queues else ""
        if not kept:
            return f"no plan fits the memory of the devices{waiting}"
        has = f"the memory of the devices{waiting}"
        return f"no plan was found that fits {has} and {' and '.join(kept)}; wanted higher limits"

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
    """Return a search of the same job with any schedule."""
    opened = replace(problem, job=problem.job.with_fields(schedule=None))
    return ChoiceAnnealing(opened, rng, (None, ()), target, fitting_plan(opened)).run()


def annealing_length(first: float, growth: float, n_before: int) -> float:
    """Return the length of an annealing that follows ``n_before`` others, as a multiple of the nominal length."""
    # After about 50 annealings the length is LONGEST. A search of minutes makes thousands, and growth ** n_before would
    # overflow a float.
    return min(first * growth ** min(n_before, MOST_GROWTHS), LONGEST)


def _priority(shape_search: ShapeSearch) -> float:
    if shape_search.best is None:
        return math.inf
    # on free devices a plan costs 0 dollars, which has no logarithm
    return math.log(max(shape_search.best.price, 1e-300)) + CURIOSITY * math.log1p(shape_search.work)


def _near_priority(shape_search: ShapeSearch) -> float:
    """Return a shape's priority in a search near given plans. The shape with the lowest is annealed next.

    It counts annealings, whatever their lengths. So no shape gets most of them if there are only a few.
    """
    assert shape_search.best is not None
    return math.log(max(shape_search.best.price, 1e-300)) + NEAR_CURIOSITY * shape_search.slices


# ---------------------------------------------------------------------------------------------------------------------
# What is shown of a search: the best plan of each shape that it has begun, and the newest.


CHECKPOINTED = {
    "none": "",
    "selective": ", attention recomputed",
    "block": ", blocks recomputed",
    "stage": ", stages recomputed",
}


class ShownShapes:
    """Plans of a search, numbered in the order in which they are first shown."""

    def __init__(self, shape_searches: ShapeSearches, job: Job) -> None:
        self._shape_searches, self._job = shape_searches, job
        self._tried: deque[tuple[ShapeSearch, KernelPlan]] = deque(maxlen=SHOWN)
        self._known: dict[KernelPlan, Individual] = {}
        self._newest: dict[ShapeSearch, Individual] = {}
        """The last shown best plan of each shape. It is shown as the parent of plans that were reheated from it."""
        self._n_shown = 0

    def tried(self, shape_search: ShapeSearch, found: KernelPlan, operator: str) -> KernelPlan:
        """Return the plan labelled with the operator that made it, and queue it for display. It is shown while it is
        among the newest valid plans."""
        found = replace(found, operator=operator)
        self._tried.append((shape_search, found))
        return found

    def population(self, best: tuple[ShapeSearch, KernelPlan]) -> Population:
        """Return the plans to show, at most ``SHOWN``. The best of all comes first. The best of each other shape and
        the newest follow, the lowest objective first."""
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
            # only a reheated plan was made from the best plan of its shape
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
            "The best plan and the newest that were tried. Annealing changes each and keeps the result if it is better."
        )
    return (
        f"The best plan of each shape and micro-batch, of {n_shapes} that fit, then the newest that were "
        "tried. The search anneals the shape that looks best, and gives up none."
    )


def _value(one: tuple[ShapeSearch, KernelPlan]) -> float:
    return one[1].value


# ---------------------------------------------------------------------------------------------------------------------
# The kernels of a search are compiled or loaded on a thread. Until they are ready, a plan that fits is shown.


QUICK_S = 0.4
"""Seconds to wait for kernels from the cache before a plan is made without them."""


def wait_for_kernels(
    problem: IterationProblem, fitting: FittingPlan, target: SearchTarget, start: Plan | None = None
) -> Generator[Candidate, None, float]:
    """Yield nothing if the kernels are ready, else a first plan, again and again, as incomplete candidates. Without a
    plan that can be shown, wait and yield nothing.

    Each has the seconds waited so far in ``compiling_s``. Returns all seconds waited. Time limits do not count them,
    since a machine compiles only once.
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
    """Begin to load or compile a search's kernels on a thread. Return the function that runs there."""
    from dtfm_lab.planning.iteration.bounds.iteration_bound import MOST_ENUMERATED

    compile_kernels = _compile_of_few if n_devices <= MOST_ENUMERATED else _compile
    start_once(compile_kernels, compile_kernels)
    return compile_kernels


def kernels_are_ready() -> bool:
    """Return True if this process has compiled or loaded the search's kernels, so that a replay begins at once."""
    return is_done(_compile) or is_done(_compile_of_few)


def _compile() -> None:
    """Call every kernel once, on a small problem, with arguments of the final types."""
    _compile_for(None)


def _compile_of_few() -> None:
    """Compile the kernels of ``_compile``, and the kernels of the bound for few devices. That bound needs a schedule of
    one stage per device."""
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
    plan = unpriced_plan(problem.topology, chosen, fitting.grid, problem.links.queueing, problem.efficiency)
    return candidate_of(plan, target, 1, "fits", complete=False)
