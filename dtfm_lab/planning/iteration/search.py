"""The search over everything: shape, devices, cut, micro-batches, pairing, order of passes, recomputation.

Every shape is an *arm*: it has a best plan, and annealing that starts from structured placements, from its best, or
from a neighbouring shape's. The next arm is the one whose best is least, raised a little by each annealing that it has
had: good shapes get most of the work, and none is ever given up. Annealing goes by an estimate; what it finds is
annealed again, colder, by the exact replay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.iteration.arms import Arm, Found
from dtfm_lab.planning.iteration.candidate import Candidate
from dtfm_lab.planning.iteration.nearness import Nearness
from dtfm_lab.planning.iteration.problem import IterationProblem
from dtfm_lab.planning.iteration.shapes import require_shapes, shapes_of
from dtfm_lab.planning.iteration.starts import Starts
from dtfm_lab.planning.iteration.tables_of import Aim, tables_of

if TYPE_CHECKING:
    from dtfm_lab.planning.iteration.kernels.annealing import Freedom

STEADY = 1.5
"""Forwards ahead of new plans, as a multiple of those that a steady pipeline needs."""
FIRST_GROWTH = 0.15
"""Length of every shape's first annealing, in nominal ones."""
LONGEST = 16.0
"""Length of the longest annealing; each of a shape's is twice as long as the one before."""
CURIOSITY = 0.05
"""By how much each e-fold of work raises a shape's price."""
ESTIMATED_NS, REPLAYED_NS = 12e6, 8e6
"""Nominal nanoseconds of an arm's first annealing by the estimate and by the replay; they only set numbers of moves."""
HOT, COLD = 0.01, 1e-4
REHEATED = (0.001, 0.015)
POLISH_HOT, POLISH_COLD = 0.002, 2e-5
POLISH_WITHIN = 1.03
"""What is polished: plans estimated within this factor of their arm's best."""


def search_iteration(
    problem: IterationProblem, rng: np.random.Generator, *, start: Plan | None = None, aim: Aim | None = None
) -> Iterator[Candidate]:
    """Ever better plans of a problem, endlessly: one or more candidates a step, each the best so far.

    Equal problems and generators yield equal candidates. Raises PlanError where no plan is possible.
    """
    require_shapes(problem)
    return _Search(problem, rng, start, aim or Aim()).run()


class _Search:
    def __init__(self, problem: IterationProblem, rng: np.random.Generator, start: Plan | None, aim: Aim) -> None:
        from dtfm_lab.planning.kernels.random_numbers import seeded

        self.problem, self.rng, self.aim = problem, rng, aim
        self.nearness = Nearness(problem)
        self.starts = Starts(problem, self.nearness)
        self.random = seeded(rng)
        self.evaluations = 0
        self.operator = ""
        self.best: tuple[Arm, Found] | None = None
        self.arms = list(self._arms())
        self.begin = start

    def run(self) -> Iterator[Candidate]:
        yield from self._first_plans()
        for arm in sorted(self.arms, key=self._priority):
            self._improve(arm, FIRST_GROWTH)
            if self._take(arm):
                yield self._candidate(self.operator, complete=False)
        yield self._candidate(self.operator)
        while True:
            arm = min(self.arms, key=self._priority)
            self._improve(arm, min(2.0 ** (arm.slices - 1), LONGEST))
            yield self._candidate(self.operator)

    def _first_plans(self) -> Iterator[Candidate]:
        """Structured placements of every shape, the shapes in an order that has all sizes early."""
        for i in range(8):
            for arm in self.arms:
                rows = list(self.starts.rows(*arm.shape))
                if i < len(rows):
                    self._consider_row(arm, rows[i][1])
                    if self._take(arm):
                        yield self._candidate(rows[i][0], complete=False)

    def _consider_row(self, arm: Arm, row: IntArray) -> None:
        found = arm.assessed(row, self._blocks(arm, row), STEADY)
        self.evaluations += 1
        arm.keep(found)

    def _blocks(self, arm: Arm, row: IntArray) -> IntArray:
        s, r = arm.shape
        if (given := self.problem.job.blocks_per_stage) is not None:
            return np.array(given, dtype=np.int64)
        return self.starts.cut(row[: s * r].reshape(s, r))

    def _take(self, arm: Arm) -> bool:
        """Whether the arm's best is the best of all, which it then becomes; it is replayed first."""
        best = arm.best
        if best is None or best.lacks > 0 or (self.best is not None and best.value >= self.best[1].value):
            return False
        if not best.replayed:
            exact = self._exact(arm, best)
            arm.best = exact
            if exact.lacks > 0 or (self.best is not None and exact.value >= self.best[1].value):
                return False
            best = exact
        self.best = arm, best
        return True

    def _exact(self, arm: Arm, found: Found) -> Found:
        self.evaluations += 1
        return arm.assessed(found.row, found.blocks, 0.0, shares=found.shares, ahead=found.ahead, exact=True)

    def _priority(self, arm: Arm) -> float:
        assert arm.best is not None
        return math.log(max(arm.best.price, 1e-300)) + CURIOSITY * math.log1p(arm.work)

    def _improve(self, arm: Arm, growth: float) -> None:
        """One annealing of an arm by the estimate, and of what it finds by the replay."""
        assert arm.best is not None
        s, r = arm.shape
        begin, operator, hot = self._begin(arm)
        n_moves = int(ESTIMATED_NS * growth / (4000 + 12 * s * s + 25 * s * r + 30 * r + 6 * r * r)) + 20
        arm.slices += 1
        arm.work += growth
        found = arm.annealed(begin, hot, COLD, n_moves, self.random, exact=False)
        self.evaluations += n_moves
        if found.lacks == 0 and (arm.best.lacks > 0 or found.value <= arm.best.value * POLISH_WITHIN):
            one_ns = 7 * s * arm.tables.n_microbatches * (1.3 / r + 0.35) + 5 * s * r * r + 3000
            n_exact = int(REPLAYED_NS * growth / one_ns) + 10
            found = arm.annealed(found, POLISH_HOT, POLISH_COLD, n_exact, self.random, exact=True)
            self.evaluations += n_exact
            arm.keep(found)
            self._take(arm)
        elif found.lacks > 0:
            arm.keep(found)
        self.operator = f"{operator}, {s} x {r}"

    def _begin(self, arm: Arm) -> tuple[Found, str, float]:
        """What an annealing starts from, its name, and the first temperature."""
        assert arm.best is not None
        if arm.rows is None:
            rows = [arm.assessed(row, self._blocks(arm, row), STEADY) for _, row in self.starts.rows(*arm.shape)]
            self.evaluations += len(rows)
            arm.rows = sorted(rows, key=lambda found: found.price)
        if arm.rows and self.rng.random() < 0.6:
            return arm.rows.pop(0), "structure", HOT
        u = self.rng.random()
        if u < 0.2:
            row = self.starts.random(self.rng)
            return arm.assessed(row, self._blocks(arm, row), STEADY), "chance", HOT
        return arm.best, "reheated", float(np.exp(self.rng.uniform(*np.log(REHEATED))))

    def _nothing_fits(self) -> str:
        """The memory and the limits that no plan was found to keep, in one line."""
        limits = {"max_price_per_hour": self.aim.max_price_per_hour, "max_iteration_s": self.aim.max_iteration_s}
        kept = [f"{what} {limit:g}" for what, limit in limits.items() if limit < math.inf]
        if not kept:
            return "no plan fits the memory of the devices"
        return f"no plan was found that fits the memory of the devices and {' and '.join(kept)}; wanted higher limits"

    def _candidate(self, operator: str, *, complete: bool = True) -> Candidate:
        if self.best is None:
            raise PlanError(self._nothing_fits())
        arm, found = self.best
        s, r = arm.shape
        plain = self.problem.job.schedule in ("1f1b", "gpipe")
        schedule = self.problem.job.schedule or "adaptive-1f1b"
        return Candidate(
            grid=found.row[: s * r].reshape(s, r).copy(),
            blocks=found.blocks,
            shares=found.shares,
            warmups=None if plain else found.ahead,
            schedule=schedule,
            microbatch=arm.microbatch,
            recompute=arm.recompute,
            value=found.value,
            iteration_s=found.value,
            evaluations=self.evaluations,
            operator=operator,
            complete=complete,
        )

    def _arms(self) -> Iterator[Arm]:
        job = self.problem.job
        for microbatch in self.problem.microbatches:
            tables = tables_of(self.problem, microbatch, job.recompute, self.aim, self.nearness)
            for shape in shapes_of(self.problem, microbatch):
                yield Arm(tables, shape, microbatch, job.recompute, self._freedom(), self._given_ahead)

    def _freedom(self) -> Freedom:
        from dtfm_lab.planning.iteration.kernels.annealing import Freedom

        job = self.problem.job
        return Freedom(
            fixed_shares=job.microbatches_per_replica is not None,
            fixed_blocks=job.blocks_per_stage is not None,
            fixed_ahead=job.schedule not in (None, "adaptive-1f1b") or job.warmups is not None,
        )

    def _given_ahead(self, n_stages: int) -> IntArray | None:
        job = self.problem.job
        if job.schedule == "gpipe":
            return np.full(n_stages, job.global_batch, dtype=np.int64)
        return None if job.warmups is None else np.array(job.warmups, dtype=np.int64)
