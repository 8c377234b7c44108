"""Proofs that no plan of a shape takes at most T seconds: without a cut first, which is quick, then with each cut."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.bounds.capacities import Capacities
from dtfm_lab.planning.iteration.bounds.device_classes import DeviceClasses
from dtfm_lab.planning.iteration.bounds.program import Shape, feasible, possible_stages
from dtfm_lab.planning.iteration.problem import IterationProblem

MOST_PROGRAMS = 2000
"""Most programs with a cut, times the numbers of devices on its sides, for one shape."""
MOST_SIDES = 50
"""Most numbers of devices on a side of a cut, for one shape; beyond, the cut is left out."""
MOST_FAILURES = 12
"""Shapes in a row that a cut did not help to refute, after which it is no longer tried."""


def batch_flop(problem: IterationProblem) -> float:
    """FLOP of all forwards and backwards of the batch, with the recomputation that the job asks for."""
    flop = problem.block_flop[-1] + problem.first_extra[0] + problem.last_extra[0]
    per_forward = 1.0 + problem.passes(1, problem.recomputations[0]).backward_per_forward
    return float(problem.job.global_batch * (flop * per_forward + problem.block_again_flop[-1]))


@dataclass(frozen=True, eq=False)
class Case:
    """Plans of one shape, one micro-batch and one family of schedules."""

    capacities: Capacities
    n_stages: int
    n_replicas: int


@dataclass(eq=False)
class Refuter:
    """Refutes seconds, case by case, and remembers what it has refuted: less time is refuted, too."""

    classes: DeviceClasses
    cuts: list[IntArray]
    prices: tuple[FloatArray, float] | None = None
    _flop: float = field(init=False)
    _flop_per_s: FloatArray = field(init=False)
    """(N,) of the fastest 1, 2, ... devices together."""
    _refuted_s: dict[object, float] = field(default_factory=dict)
    _failures: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problem = self.classes.problem
        self._flop = batch_flop(problem)
        self._flop_per_s = np.cumsum(np.sort(problem.flop_per_s)[::-1])

    def refutes(self, case: Case, limit_s: float) -> bool:
        """Whether no plan of the case takes at most ``limit_s``."""
        used = min(case.n_stages * case.n_replicas, len(self._flop_per_s))
        if limit_s <= max(self._refuted_s.get(case, 0.0), self._flop / self._flop_per_s[used - 1] * (1 - 1e-9)):
            return True
        upper = self._whole(case, limit_s)
        if upper is not None:
            for number, side in enumerate(self.cuts):
                if self._failures.get(number, 0) == MOST_FAILURES:
                    continue
                if self._refuted_with(side, number, case, limit_s, upper):
                    self._failures[number] = 0
                    break
                self._failures[number] = self._failures.get(number, 0) + 1
            else:
                return False
        self._refuted_s[case] = limit_s
        return True

    def _whole(self, case: Case, limit_s: float) -> FloatArray | None:
        """None where the case is refuted without a cut; else (Q, C) capacities of stages that may be."""
        capacities, count, n_replicas = case.capacities, self.classes.count, case.n_replicas
        side, on_side = np.zeros(len(count), dtype=np.int64), np.array([n_replicas])
        everything = np.full((len(capacities.kinds), len(count)), np.inf)
        capacity = capacities.of(limit_s, case.n_stages, n_replicas, side, on_side, everything)
        shape = Shape(case.n_stages, n_replicas)
        numbers = capacities.n_microbatches, capacities.problem.n_blocks
        if not feasible(shape, capacities.kinds, capacity, on_side, side, count, *numbers, self.prices):
            return None
        possible = possible_stages(capacity, on_side, shape, capacities.kinds, side, count, *numbers)
        upper: FloatArray = capacity[:, 0, 0] * possible
        return upper

    def _refuted_with(self, side: IntArray, number: int, case: Case, limit_s: float, upper: FloatArray) -> bool:
        capacities, n_stages, n_replicas = case.capacities, case.n_stages, case.n_replicas
        count, n_microbatches = self.classes.count, capacities.n_microbatches
        sizes = np.bincount(side, weights=count, minlength=2).astype(np.int64)
        on_side = np.arange(max(0, n_replicas - sizes[1]), min(n_replicas, sizes[0]) + 1)
        ways = list(_staying(sizes, n_stages, n_replicas))
        if len(on_side) > MOST_SIDES:
            return False
        if len(ways) * len(on_side) > MOST_PROGRAMS:
            ways = []  # only what holds for any of them is tried
        capacity = capacities.of(limit_s, n_stages, n_replicas, side, on_side, upper)
        crossing = np.floor(capacities.crossing(side, limit_s) + 1e-9)
        for staying in (None, *ways):
            if staying == (0, 0) and n_replicas * crossing < n_microbatches:
                continue
            if limit_s <= self._refuted_s.get((case, number, staying), 0.0):
                continue
            solvable = feasible(
                Shape(n_stages, n_replicas, staying), capacities.kinds, capacity, on_side, side, count,
                n_microbatches, capacities.problem.n_blocks, self.prices,
            )  # fmt: skip
            if solvable and (staying is not None or not ways):
                return False
            if not solvable:
                self._refuted_s[case, number, staying] = limit_s
                if staying is None:
                    return True
        return True


def _staying(sizes: IntArray, n_stages: int, n_replicas: int) -> Iterator[tuple[int, int]]:
    """How many pipelines may lie wholly on each side, the likeliest first: a plan found ends the proof early."""
    most = np.minimum(sizes // n_stages, n_replicas).tolist()
    found = [(a, b) for a in range(most[0] + 1) for b in range(min(most[1], n_replicas - a) + 1)]
    if n_stages == 1:
        found = [(a, b) for a, b in found if a + b == n_replicas]
    yield from sorted(found, key=lambda pair: (sum(pair) > 0, sum(pair) < n_replicas, -sum(pair), -max(pair)))
