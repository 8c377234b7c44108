"""Proofs that no plan of a shape takes at most T seconds: without a cut first, which is quick, then with each cut.

A proof is a configuration program (Gilmore and Gomory, *A linear programming approach to the cutting-stock problem*,
1961), solved with HiGHS: a sum over all devices would not see that a stage needs R of them that keep up. A plan of T
seconds has, for every stage, a kind and a number of devices on side 0 of the cut, and R devices of which each passes at
least the micro-batches of its pipeline; these are N over the R pipelines. So with u the whole number of stages of a
configuration (kind, devices on side 0) and z the devices of a class that are in one, staying or crossing, it solves

- sum of z over configurations <= the devices of the class;
- for every configuration: z of each side = (devices on that side) u, of which so many stay as pipelines stay there;
- for every configuration: sum of z x capacity >= N u;
- one first stage, one last, S in all, with all blocks of the model.

Where this has no solution, even with fractional z, no plan of this shape takes T seconds. Capacities grow with T, and
with them the set of solutions, so that T can be bisected.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import scipy

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.bounds.capacities import Capacities
from dtfm_lab.planning.iteration.bounds.device_classes import DeviceClasses
from dtfm_lab.planning.iteration.bounds.stage_kinds import FIRST, LAST, MIDDLE, SOLE, StageKinds
from dtfm_lab.planning.iteration.problem import IterationProblem

INFEASIBLE = 2
"""HiGHS's status for a program without solution; with any other status a solution may exist."""
MOST_NODES = 200
LARGEST = 6000
"""Most columns of a program that is solved; a larger one counts as feasible."""
LARGEST_WHOLE = 1500
"""Most columns of a program whose stages are tried as whole numbers."""
MOST_SECONDS = 2.0
"""Seconds after which the solver gives up, on a machine that is busy with other things."""


@dataclass(frozen=True, eq=False)
class Shape:
    """S stages, R replicas; which pipelines stay on a side of the cut."""

    n_stages: int
    n_replicas: int
    staying: tuple[int, int] | None = None
    """Pipelines that lie wholly on side 0, and on side 1; all others cross. None for any numbers."""


def feasible(
    shape: Shape,
    kinds: StageKinds,
    capacity: FloatArray,
    on_side: IntArray,
    side: IntArray,
    count: IntArray,
    n_microbatches: int,
    n_blocks: int,
    prices: tuple[FloatArray, float] | None = None,
) -> bool:
    """False where no plan of this shape has these (Q, I, 2, C) capacities.

    ``prices`` are those of an hour of each class, and the most that all used devices together may cost.
    """
    if shape.staying is None:
        capacity = np.stack([capacity.max(axis=2), np.zeros_like(capacity[:, :, 0])], axis=2)
    else:
        allowed = (on_side >= shape.staying[0]) & (on_side <= shape.n_replicas - shape.staying[1])
        capacity = capacity * allowed[None, :, None, None]
        for s in (0, 1):
            if shape.staying[s] == 0:
                capacity[:, :, 0, side == s] = 0.0
        if shape.n_replicas == sum(shape.staying):
            capacity[:, :, 1] = 0.0
    possible = possible_stages(capacity, on_side, shape, kinds, side, count, n_microbatches, n_blocks)
    if not possible.any():
        return False
    q_u, i_u = np.nonzero(possible)
    number = np.full(possible.shape, -1)
    number[q_u, i_u] = np.arange(len(q_u))
    q, i, crosses, c = np.nonzero((capacity > 0) & possible[:, :, None, None])
    return _solve(
        shape, kinds, q_u, on_side[i_u], number[q, i], crosses, c, capacity[q, i, crosses, c], side, count,
        n_microbatches, n_blocks, prices,
    )  # fmt: skip


def possible_stages(
    capacity: FloatArray,
    on_side: IntArray,
    shape: Shape,
    kinds: StageKinds,
    side: IntArray,
    count: IntArray,
    n_microbatches: int,
    n_blocks: int,
) -> npt.NDArray[np.bool_]:
    """(Q, I) configurations in which the best devices could pass all micro-batches; none where these are too few."""
    possible = _possible(capacity, on_side, shape, side, count, n_microbatches)
    possible &= (kinds.blocks <= n_blocks - (shape.n_stages - 1))[:, None]
    possible &= ((kinds.role == SOLE) == (shape.n_stages == 1))[:, None]
    if not _roles_possible(np.asarray(possible.any(axis=1)), kinds, shape.n_stages, n_blocks):
        possible[:] = False
    return possible


def _possible(
    capacity: FloatArray, n_side0: IntArray, shape: Shape, side: IntArray, count: IntArray, n_microbatches: int
) -> npt.NDArray[np.bool_]:
    """(Q, I) configurations whose best devices of each side, taken together, could pass all micro-batches."""
    best = capacity.max(axis=2)
    total = np.zeros(best.shape[:2])
    for s in (0, 1):
        wanted = np.broadcast_to((n_side0 if s == 0 else shape.n_replicas - n_side0)[None, :], total.shape).copy()
        here = np.flatnonzero(side == s)
        if len(here):
            order = np.argsort(-best[:, :, here], axis=2, kind="stable")
            for rank in range(len(here)):
                c = here[order[:, :, rank]]
                cap = np.take_along_axis(best, c[:, :, None], axis=2)[:, :, 0]
                taken = np.where(cap > 0, np.minimum(count[c], wanted), 0)
                total += taken * cap
                wanted -= taken
        total[wanted > 0] = -np.inf
    possible: npt.NDArray[np.bool_] = total >= n_microbatches
    return possible


def _roles_possible(kinds_possible: npt.NDArray[np.bool_], kinds: StageKinds, n_stages: int, n_blocks: int) -> bool:
    """Whether roles are filled and the blocks add up, by the least and the most blocks of each role."""
    if (kinds.required > 0).any():
        return bool(kinds_possible[kinds.required > 0].all())
    least = most = 0
    for role, n in _wanted(n_stages):
        blocks = kinds.blocks[kinds_possible & (kinds.role == role)]
        if n and not len(blocks):
            return False
        if n:
            least, most = least + n * int(blocks.min()), most + n * int(blocks.max())
    return least <= n_blocks <= most


def _wanted(n_stages: int) -> tuple[tuple[int, int], ...]:
    return ((SOLE, 1),) if n_stages == 1 else ((FIRST, 1), (MIDDLE, n_stages - 2), (LAST, 1))


def _solve(
    shape: Shape,
    kinds: StageKinds,
    q_u: IntArray,
    n_side0: IntArray,
    u_of_z: IntArray,
    crosses: IntArray,
    c: IntArray,
    cap: FloatArray,
    side: IntArray,
    count: IntArray,
    n_microbatches: int,
    n_blocks: int,
    prices: tuple[FloatArray, float] | None,
) -> bool:
    n_u, n_z, n_classes = len(q_u), len(c), len(count)
    if n_u + n_z > LARGEST:
        return True
    u = n_z + np.arange(n_u)
    z = np.arange(n_z)
    rows: list[tuple[IntArray, IntArray, FloatArray]] = [(c, z, np.ones(n_z))]
    low, high = [np.zeros(n_classes)], [count.astype(float)]
    n_rows = n_classes

    def add(row: IntArray, z_value: FloatArray, which: IntArray, u_value: FloatArray, most: float) -> None:
        """One row a configuration: sum of z_value z - u_value u, from 0 to ``most``."""
        nonlocal n_rows
        rows.append((n_rows + row, z[which], z_value))
        rows.append((n_rows + np.arange(n_u), u, -u_value))
        low.append(np.zeros(n_u))
        high.append(np.full(n_u, most))
        n_rows += n_u

    for s, wanted in ((0, n_side0), (1, shape.n_replicas - n_side0)):
        here = np.flatnonzero(side[c] == s)
        if len(here) or wanted.any():
            add(u_of_z[here], np.ones(len(here)), here, wanted.astype(float), 0.0)
        staying = here[crosses[here] == 0]
        if shape.staying is not None and shape.staying[s] > 0:
            add(u_of_z[staying], np.ones(len(staying)), staying, np.full(n_u, float(shape.staying[s])), 0.0)
    add(u_of_z, cap / n_microbatches, z, np.ones(n_u), np.inf)
    of_role = [(kinds.role[q_u] == role, n) for role, n in _wanted(shape.n_stages)]
    if (kinds.required > 0).any():
        of_role = [(q_u == q, int(kinds.required[q])) for q in range(len(kinds))]
    for which, n in (*of_role, (kinds.blocks[q_u], n_blocks)):
        rows.append((np.full(n_u, n_rows), u, np.asarray(which, dtype=float)))
        low.append(np.array([float(n)]))
        high.append(np.array([float(n)]))
        n_rows += 1
    if prices is not None:
        rows.append((np.full(n_z, n_rows), z, prices[0][c]))
        low.append(np.array([-np.inf]))
        high.append(np.array([prices[1]]))
        n_rows += 1
    row, column, value = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    matrix = scipy.sparse.csc_array((value, (row, column)), shape=(n_rows, n_z + n_u))
    bounds = scipy.optimize.Bounds(0, np.concatenate([count[c], np.full(n_u, shape.n_stages)]))
    constraints = scipy.optimize.LinearConstraint(matrix, np.concatenate(low), np.concatenate(high))
    whole = np.concatenate([np.zeros(n_z), np.ones(n_u)])
    for integrality in (0 * whole, whole) if n_u + n_z <= LARGEST_WHOLE else (0 * whole,):
        # fractional stages come first: they are refuted much faster, where they are
        options = {"node_limit": MOST_NODES, "time_limit": MOST_SECONDS}
        answer = scipy.optimize.milp(
            whole * 0, integrality=integrality, bounds=bounds, constraints=constraints, options=options
        )
        if answer.status == INFEASIBLE:
            return False
    return True


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
