"""Simulated annealing, the local search of the evolutionary planner, in slices that a search can be stopped between."""

from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise

import numpy as np
from scipy.spatial.distance import cdist

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.kernels import grid_annealing, group_annealing, random_numbers
from dtfm_lab.planning.kernels.annealing_state import annealing_state
from dtfm_lab.planning.problem import Problem

SLICE_US = 50_000
"""Nominal microseconds of a slice. It sets how often a search can be watched, and changes no result."""
N_SIMILAR = 16
"""Number of most similar devices that a device is often swapped with."""
SIMILAR_UP_TO = 512
"""Most devices whose costs are compared to find similar ones; beyond, the devices with the cheapest links count."""


class SearchSpace(StrEnum):
    """What is annealed: grids, whose columns are pipelines, or groups, which are always matched at least cost."""

    GRID = "grid"
    GROUPS = "groups"


class Annealer:
    """Anneals rows of one problem, one after the other, with random numbers seeded once from ``rng``."""

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        self._problem = problem
        self._random = random_numbers.seeded(rng)
        self._state = annealing_state(
            problem.pair.group_s,
            problem.pair.hop_s,
            problem.classes,
            similar_devices(problem.pair.hop_s),
            problem.n_stages,
            problem.n_replicas,
        )

    def anneal(
        self, space: SearchSpace, row: IntArray, hot_s: float, cold_s: float, work_us: float, mean_share: float = 1.0
    ) -> Iterator[tuple[IntArray, float, int]]:
        """After every slice: the cheapest row so far, its cost in seconds and the moves of the slice.

        Parameters
        ----------
        hot_s, cold_s
            First and last temperature, above 0.
        work_us
            Length of the annealing in nominal microseconds, see ``move_us``. No clock is read: equal arguments
            give equal results.
        mean_share
            Initial weight of the mean terms, on the grid; it falls linearly to 0.
        """
        n_moves = max(1, int(work_us / move_us(space, self._problem.n_replicas)))
        n_slices = max(1, round(work_us / SLICE_US))
        ends = np.linspace(0, n_moves, n_slices + 1).astype(int)
        self._state.row[:] = row
        best, best_s, found = row, np.inf, np.empty_like(row)
        for start, end in pairwise(ends):
            first, last = start / n_moves, end / n_moves
            heat = hot_s * (cold_s / hot_s) ** first, hot_s * (cold_s / hot_s) ** last
            moves = int(end - start)
            if space is SearchSpace.GRID:
                shares = mean_share * (1 - first), mean_share * (1 - last)
                found_s = grid_annealing.anneal_grid(self._state, *heat, *shares, moves, self._random, found)
            else:
                found_s = group_annealing.anneal_groups(self._state, *heat, moves, self._random, found)
            if found_s < best_s:
                row = found.copy() if space is SearchSpace.GRID else self._aligned(found)
                # The kernels keep running sums, which lose all precision once a link of 1e20 s was part of them.
                if (exact_s := self._problem.cost(self._problem.grid(row))) < best_s:
                    best, best_s = row, exact_s
            yield best, best_s, moves

    def _aligned(self, row: IntArray) -> IntArray:
        """The row with its columns paired at least cost; the state of the annealing is left as it was."""
        current = self._state.row.copy()
        self._state.row[:] = row
        group_annealing.align(self._state)
        aligned = self._state.row.copy()
        self._state.row[:] = current
        return aligned


def move_us(space: SearchSpace, n_replicas: int) -> float:
    """Nominal microseconds of one move, as measured on an ordinary core with 4 to 32 replicas."""
    return 0.12 + 0.005 * n_replicas if space is SearchSpace.GRID else 0.065 * n_replicas**1.2


def similar_devices(hop_s: FloatArray) -> IntArray:
    """(N, K) for each device the K others whose costs to all devices are most like its own."""
    n = len(hop_s)
    unlike = cdist(hop_s, hop_s, "cityblock") if n <= SIMILAR_UP_TO else hop_s.copy()
    np.fill_diagonal(unlike, np.inf)
    near = np.argsort(unlike, axis=1, kind="stable")[:, : min(N_SIMILAR, n - 1)] if n > 1 else np.zeros((1, 1))
    return np.ascontiguousarray(near, dtype=np.int64)
