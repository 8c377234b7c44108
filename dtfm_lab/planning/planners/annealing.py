"""The local search of the flagship: two annealers, cut into slices that a search can be stopped between."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise

import numpy as np
from scipy.spatial.distance import cdist

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.kernels import draw, grids, groups
from dtfm_lab.planning.kernels.board import board
from dtfm_lab.planning.problem import Problem

SLICE_US = 50_000
"""of one slice, by the rough figures below; sets how often a search can be looked at, no result's meaning"""
NEAR = 16
"""devices placed most alike, that a device is often swapped with"""
ALIKE_UP_TO = 512
"""devices; with more, those with the cheapest links stand for those placed alike"""


class Terrain(StrEnum):
    """What is annealed."""

    GRID = "grid"
    GROUPS = "groups"


class Annealer:
    """Walks from row to row of one problem; all chance is drawn from ``rng`` once."""

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        self._problem = problem
        self._state = draw.seeded(rng)
        self._board = board(
            problem.pair.group_s,
            problem.pair.hop_s,
            problem.classes,
            placed_alike(problem.pair.hop_s),
            problem.n_stages,
            problem.n_replicas,
            np.arange(problem.n_devices),
        )

    def walk(
        self, terrain: Terrain, row: IntArray, hot_s: float, cold_s: float, work_us: float, mean_share: float = 1.0
    ) -> Iterator[tuple[IntArray, float, int]]:
        """The cheapest row so far, its cost and the moves of the slice, after every slice of the walk.

        Parameters
        ----------
        hot_s, cold_s
            First and last temperature, above 0.
        work_us
            Length of the walk in microseconds, by rough figures of a move's cost and not by any clock:
            equal arguments make equal walks.
        mean_share
            Weight of the mean terms at first, on the grid; they fade to nothing.
        """
        n_moves = max(1, int(work_us / move_us(terrain, self._problem.n_replicas)))
        n_slices = max(1, round(work_us / SLICE_US))
        ends = np.linspace(0, n_moves, n_slices + 1).astype(int)
        self._board.row[:] = row
        best, best_s, found = row, np.inf, np.empty_like(row)
        for start, end in pairwise(ends):
            first, last = start / n_moves, end / n_moves
            heat = hot_s * (cold_s / hot_s) ** first, hot_s * (cold_s / hot_s) ** last
            moves = int(end - start)
            if terrain is Terrain.GRID:
                shares = mean_share * (1 - first), mean_share * (1 - last)
                found_s = grids.anneal_grid(self._board, *heat, *shares, moves, self._state, found)
            else:
                found_s = groups.anneal_groups(self._board, *heat, moves, self._state, found)
            if found_s < best_s:
                row = found.copy() if terrain is Terrain.GRID else self._aligned(found)
                # A walk keeps running sums, of which nothing is left once a link of 1e20 s has come and gone.
                if (true_s := self._cost(row)) < best_s:
                    best, best_s = row, true_s
            yield best, best_s, moves

    def _cost(self, row: IntArray) -> float:
        problem = self._problem
        return problem.cost(row[: problem.n_tasklets].reshape(problem.n_stages, problem.n_replicas))

    def _aligned(self, row: IntArray) -> IntArray:
        """The row with its columns paired; the walk goes on from where it was."""
        here = self._board.row.copy()
        self._board.row[:] = row
        groups.align(self._board)
        aligned = self._board.row.copy()
        self._board.row[:] = here
        return aligned


def move_us(terrain: Terrain, n_replicas: int) -> float:
    """Rough microseconds of one move on an ordinary core: measured at 4 to 32 replicas."""
    return 0.12 + 0.005 * n_replicas if terrain is Terrain.GRID else 0.065 * n_replicas**1.2


def placed_alike(hop_s: FloatArray) -> IntArray:
    """(N, K) for each device the K others that see most alike costs."""
    n = len(hop_s)
    unlike = cdist(hop_s, hop_s, "cityblock") if n <= ALIKE_UP_TO else hop_s.copy()
    np.fill_diagonal(unlike, np.inf)
    near = np.argsort(unlike, axis=1, kind="stable")[:, : min(NEAR, n - 1)] if n > 1 else np.zeros((1, 1))
    return np.ascontiguousarray(near, dtype=np.int64)
