"""The search over everything: shape, devices, cut, micro-batches, pairing, order of passes, checkpointing.

Every shape is an *arm*: it has a best plan, and annealing that starts from structured placements, from its best, or
from a neighbouring shape's. The next arm is the one whose best is least, raised a little by the annealing that it has
had: good shapes get most of the work, and none is ever given up. Shapes whose first plans would be good but lack
memory are tried with activations computed again, too. Annealing goes by an estimate; what it finds is
annealed again, colder, by the exact replay; where that does not cover the job or its hosts' cards, the simulator
judges.

Source: annealing is that of Kirkpatrick, Gelatt and Vecchi (1983). The choice among shapes is that of a bandit, but
with the least value found in the place of the mean: one annealing of every shape, again and again, would spend nearly
all of its time on shapes that cannot win.
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
from dtfm_lab.planning.iteration.arms import Arm, Arms, KernelPlan
from dtfm_lab.planning.iteration.beginnings import Beginnings
from dtfm_lab.planning.iteration.candidate import Candidate
from dtfm_lab.planning.iteration.fitting import Fitting, fitting_plan, require_shapes
from dtfm_lab.planning.iteration.judging import REPLAYED_SCHEDULES, Judge
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.shown import ShownArms
from dtfm_lab.planning.iteration.starts import Starts
from dtfm_lab.planning.iteration.tables_of import Aim
from dtfm_lab.planning.iteration.waiting import wait_for_kernels

STEADY = 1.5
"""Forwards ahead of new plans, as a multiple of those that a steady pipeline needs."""
FIRST_GROWTH = 0.12
"""Length of every shape's first annealing, in nominal ones."""
FIRST_LENGTH, GROWTH, LONGEST = 1.0, 1.2, 12.0
"""Length of the second annealing of a shape, the factor by which each is longer than the one before, and the most.

Many short ones from different structures find more than few long ones."""
CURIOSITY = 0.1
"""By how much each e-fold of work raises a shape's price."""
MENDING_LENGTH, MENDING_HOT = 0.5, 0.001
"""Length and first temperature of the annealing with which a given plan is mended, before its shape is compared."""
NEAR_CURIOSITY, NEAR_GROWTH = 0.03, 1.1
"""By how much each annealing raises a shape's price in a search near given plans, and lengthens the next one."""
ESTIMATED_NS, REPLAYED_NS = 20e6, 8e6
"""Nominal nanoseconds of an arm's first annealing by the estimate and by the replay; they only set numbers of moves."""
COLD = 1e-4
POLISH_HOT, POLISH_COLD = 0.002, 2e-5
POLISH_WITHIN = 1.005
"""What is polished: plans estimated within this factor of their arm's best."""
SHOWN_EVERY = 16
"""Arms between two candidates that only show that the search goes on."""
TIGHT, MOST_TIGHT = 1.5, 40
"""With activations computed again are tried shapes of which a first plan lacks memory, or is slowed by it, and would
take less than so many times the best, were there enough; and how many shapes at most, of the least such plans."""
PROMISING = 3
"""Shapes with activations computed again, of each way, that are annealed at full length in the first round."""
FEW_ROWS, HOPELESS = 12, 2.0
"""Structured placements of every shape; of the others, and of the first annealing, are left out shapes whose plan takes
so many times the best. These are annealed when their turn comes."""
MOST_ROUNDS = 3
"""Rounds over all arms after which a search without any valid plan gives up."""


def search_iteration(
    problem: IterationProblem,
    rng: np.random.Generator,
    *,
    start: Plan | None = None,
    nearby: Sequence[Plan] = (),
    aim: Aim | None = None,
) -> Iterator[Candidate]:
    """Ever better plans of a problem, endlessly: one or more candidates a step, each the best so far.

    Where there are plans ``nearby``, these are begun with and only shapes next to those of good plans are tried.

    Equal problems and generators yield equal candidates. Raises PlanError where no plan is possible: by the call where
    the job's shape or the devices' memory rule all out, later where the limits of ``aim`` do.
    """
    require_shapes(problem)
    # plans that are given fit
    first, *others = problem.parts
    fitting = Fitting(first, tuple(others), problem.microbatches[0]) if nearby else fitting_plan(problem)
    return _run(problem, rng, (start, nearby), aim or Aim(), fitting)


Given = tuple[Plan | None, Sequence[Plan]]
"""The plan that a search starts with, and those near which alone it searches."""


def _run(
    problem: IterationProblem, rng: np.random.Generator, given: Given, aim: Aim, fitting: Fitting
) -> Iterator[Candidate]:
    compiling_s = yield from wait_for_kernels(problem, fitting, aim, given[0])
    for candidate in _Search(problem, rng, given, aim, fitting).run():
        yield replace(candidate, compiling_s=compiling_s)


class _Search:
    def __init__(
        self, problem: IterationProblem, rng: np.random.Generator, given: Given, aim: Aim, fitting: Fitting
    ) -> None:
        from dtfm_lab.planning.kernels.random_numbers import seeded

        unused = copy.deepcopy(rng)
        self.problem, self.rng, self.aim = problem, rng, aim
        self.random = seeded(rng)
        start, nearby = given
        self.nearby = bool(nearby)
        self.arms = Arms(fitting.problem, aim, fitting.others, begun=not nearby)
        self.shown = ShownArms(self.arms, problem.job)
        self.others = [part.job.checkpoints for part in fitting.others]
        self.beginnings = Beginnings(problem, self.arms, rng)
        self.judges = {part.job.checkpoints: Judge(part, aim) for part in (fitting.problem, *fitting.others)}
        self.evaluations = 0
        self.operator = ""
        self.best: tuple[Arm, KernelPlan] | None = None
        self.waited = False
        begun = [self.beginnings.of_plan(plan) for plan in (start, *nearby)]
        if self.nearby and not any(begun):  # nothing to search near to
            fitting = fitting_plan(problem)
            self.nearby, self.arms = False, Arms(fitting.problem, aim, fitting.others)
            self.shown = ShownArms(self.arms, problem.job)
            self.beginnings = Beginnings(problem, self.arms, rng)
        self.given = [found for found in (*begun, self.beginnings.of_fitting(fitting)) if found]
        self.opened = None if problem.job.schedule in REPLAYED_SCHEDULES else _without_schedule(problem, unused, aim)

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
        given = self.beginnings.of_candidate(candidate)
        if given is not None and self.best is not None:
            arm, found = given[0], self._judge(given[0])(*given)
            self.evaluations += 1
            if found.lacks == 0 and found.value < self.best[1].value:
                self.best = arm, found
            arm.keep(found)

    def _annealed(self) -> Iterator[Candidate]:
        """The first plans of all shapes, a short annealing of each, and then of the most promising."""
        for arm, found in self.given:
            self.operator = "start"
            arm.keep(replace(found, operator="start"))
            if self._take(arm):
                yield self._candidate(complete=False)
        if self.nearby and self.best is not None:
            yield from self._near()
            return
        yield from self._first_plans(list(self.arms))
        tight = self._tight()
        yield from self._first_plans([arm for arms in tight for arm in arms])
        promising = {arm for arms in tight for arm in arms[:PROMISING]}
        for rounds in range(MOST_ROUNDS):
            for i, arm in enumerate(sorted(self.arms, key=_priority)):
                if rounds == 0 and self._hopeless(arm):
                    continue
                self._improve(arm, FIRST_LENGTH if arm in promising else FIRST_GROWTH * 4**rounds)
                if self.best and (self._take(arm) or self._judged_long() or i % SHOWN_EVERY == 0):
                    yield self._candidate(complete=False)
            if self.best is not None:
                break
        yield self._candidate()
        while True:
            self._begin_beside()
            arm = min(self.arms, key=_priority)
            self._improve(arm, min(FIRST_LENGTH * GROWTH ** (arm.slices - 1), LONGEST))
            self._take(arm)
            yield self._candidate()

    def _near(self) -> Iterator[Candidate]:
        """Plans near the given ones. These are mended first: with a lost device or a slower link a plan takes several
        times as long as it does after a few exchanges, and so would what is made of it. Then shapes next to the best
        one's are made of it, beside stages along chains of clusters, and all are annealed a little at a time."""
        for arm in [arm for arm in self.arms if arm.best is not None]:
            self._improve(arm, MENDING_LENGTH, mends=True)
            self._take(arm)
            yield self._candidate()
        assert self.best is not None
        yield from self._first_plans(self.arms.of_clusters(self.best[0]), chains=True)
        seen: set[Arm] = set()
        while True:
            best = self.best[0]
            for arm in [] if best in seen else self.arms.next_to(best):
                if (found := self.beginnings.reshaped(arm, best, STEADY)) is not None:
                    self.operator = "reshaped, {} x {}".format(*arm.shape)
                    self.evaluations += 1
                    arm.keep(found)
                    if self._take(arm):
                        yield self._candidate(complete=False)
            seen.add(best)
            arm = min((arm for arm in self.arms if arm.best is not None), key=_near_priority)
            self._improve(arm, min(FIRST_GROWTH * NEAR_GROWTH**arm.slices, LONGEST))
            self._take(arm)
            yield self._candidate()

    def _tight(self) -> list[list[Arm]]:
        """By checkpointing, arms with activations computed again, the most promising first, of shapes that lack memory
        for what else would be good: of plans that do not fit, and of those that do with few micro-batches under way,
        so that stages wait for each other."""
        if not self.others:
            return []
        most = math.inf if self.best is None else TIGHT * self.best[1].value
        tight = self.beginnings.tight(self.arms, most, STEADY)
        return [
            [
                self.arms.begin(arm.shape, arm.microbatch, how)
                for arm in islice((arm for arm in tight if self.beginnings.fits(arm, how)), MOST_TIGHT)
            ]
            for how in self.others
        ]

    def _judge(self, arm: Arm) -> Judge:
        return self.judges[arm.checkpointing]

    def _first_plans(self, arms: list[Arm], *, chains: bool = False) -> Iterator[Candidate]:
        """Structured placements of every shape. Simulations take long: the best of each shape alone is simulated, first
        those without hops, whose estimates are exact and which others have to beat, then by their estimates."""
        quick = all(self._judge(arm).replays for arm in arms)
        for i in range(Starts.most_rows):
            for arm in arms:
                if i >= FEW_ROWS and self._hopeless(arm):
                    continue
                if (named := self.beginnings.structured(arm, i, STEADY, chains=chains)) is not None:
                    self.operator, found = named
                    self.evaluations += 1
                    arm.keep(self.shown.tried(arm, found, self.operator))
                    if quick and self._take(arm):
                        yield self._candidate(complete=False)
        for arm in [] if quick else sorted(arms, key=lambda arm: (arm.shape[0] > 1, _priority(arm))):
            if self._take(arm) or self._judged_long():
                yield self._candidate(complete=False)

    def _hopeless(self, arm: Arm) -> bool:
        """Whether a shape's best plan takes ``HOPELESS`` times the best of all."""
        return self.best is not None and arm.best is not None and arm.best.price > HOPELESS * self.best[1].value

    def _begin_beside(self) -> None:
        """Begin the arms of the best's shape with micro-batches whose sizes lie between those begun with."""
        assert self.best is not None
        arm, found = self.best
        for other in self.arms.beside(arm):
            other.keep(replace(other.assessed(found.row, found.blocks, STEADY), operator="another micro-batch"))

    def _judged_long(self) -> bool:
        """Whether a plan was simulated since the last time, so that the clock should be looked at; not for replays."""
        waited, self.waited = self.waited, False
        return waited and self.best is not None

    def _take(self, arm: Arm) -> bool:
        """Whether the arm's best is the best of all, which it then becomes; it is judged first."""
        best = arm.best
        if best is None or best.lacks > 0 or (self.best is not None and best.value >= self.best[1].value):
            return False
        if not best.judged:
            if self.best is not None and best.value * arm.underestimated >= self.best[1].value:
                return False
            self.evaluations += 1
            judge = self._judge(arm)
            estimated, best = best.value, judge(arm, best)
            arm.best = best
            if not judge.replays and best.lacks == 0 and estimated > 0:
                arm.underestimated = max(best.value / estimated, 1.0)
            self.waited = not judge.replays
            if best.lacks > 0 or (self.best is not None and best.value >= self.best[1].value):
                return False
        self.best = arm, best
        return True

    def _improve(self, arm: Arm, growth: float, *, mends: bool = False) -> None:
        """One annealing of an arm by the estimate, and of what it finds by the replay; ``mends`` its best plan."""
        assert arm.best is not None
        s, r = arm.shape
        begin, operator, hot = self.beginnings.of_annealing(arm, STEADY)
        if mends:
            begin, operator, hot = arm.best, "mended", MENDING_HOT
        self.operator = f"{operator}, {s} x {r}"
        n_moves = int(ESTIMATED_NS * growth / (4000 + 12 * s * s + 25 * s * r + 30 * r + 6 * r * r)) + 20
        arm.slices += 1
        arm.work += growth
        found = arm.annealed(begin, hot, COLD, n_moves, self.random, exact=False)
        self.evaluations += n_moves
        if found.lacks > 0 or not self._judge(arm).polishes:
            arm.keep(self.shown.tried(arm, found, operator))
        elif arm.best.lacks > 0 or found.value <= arm.best.value * POLISH_WITHIN:
            one_ns = 7 * s * arm.tables.passes.n_microbatches * (1.3 / r + 0.35) + 5 * s * r * r + 3000
            n_exact = int(REPLAYED_NS * growth / one_ns) + 10
            found = arm.annealed(found, POLISH_HOT, POLISH_COLD, n_exact, self.random, exact=True)
            self.evaluations += n_exact
            found = replace(found, judged=self._judge(arm).replays)
            arm.keep(self.shown.tried(arm, found, operator))
        else:
            self.shown.tried(arm, found, operator)

    def _nothing_fits(self) -> str:
        """The memory and the limits that no plan was found to keep, in one line."""
        limits = {"max_price_per_hour": self.aim.max_price_per_hour, "max_iteration_s": self.aim.max_iteration_s}
        kept = [f"{what} {limit:g}" for what, limit in limits.items() if limit < math.inf]
        refused = next((judge.refusal for judge in self.judges.values() if judge.refusal), "")
        if refused:
            return f"no plan was found that can be simulated and fits memory{' and limits' * bool(kept)}: {refused}"
        if not kept:
            return "no plan fits the memory of the devices"
        return f"no plan was found that fits the memory of the devices and {' and '.join(kept)}; wanted higher limits"

    def _candidate(self, *, complete: bool = True) -> Candidate:
        if self.best is None:
            raise PlanError(self._nothing_fits())
        arm, found = self.best
        return Candidate(
            best=arm.grid(found),
            best_s=found.value,
            evaluations=self.evaluations,
            operator=self.operator,
            complete=complete,
            held=partial(self.shown.population, self.best),
            job=arm.job(found, self.problem.job),
            iteration_s=arm.seconds(found) if self.aim.dollars else found.value,
        )


def _without_schedule(problem: IterationProblem, rng: np.random.Generator, aim: Aim) -> Iterator[Candidate]:
    """The search of the same job with any schedule."""
    opened = replace(problem, job=problem.job.with_fields(schedule=None))
    return _Search(opened, rng, (None, ()), aim, fitting_plan(opened)).run()


def _priority(arm: Arm) -> float:
    if arm.best is None:
        return math.inf
    return math.log(max(arm.best.price, 1e-300)) + CURIOSITY * math.log1p(arm.work)


def _near_priority(arm: Arm) -> float:
    """As ``_priority``, by the number of annealings: where these are few, no shape gets most of them."""
    assert arm.best is not None
    return math.log(max(arm.best.price, 1e-300)) + NEAR_CURIOSITY * arm.slices
