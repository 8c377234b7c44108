"""All small changes of one placement, priced at once: where the time of a search goes.

A **row** is the order of all N devices: position p = stage x D + replica for the first S x D, the rest
sit on the bench. A move swaps two positions (one may be on the bench), or lets two pipelines exchange
their tails after a stage. Hundreds of moves share their look-ups, so pricing all of them with numpy
takes a fraction of a microsecond each.

What a walk descends on is not the cost alone: the cost is a sum of maxima, flat almost everywhere, so
the mean group and the mean link of each hop are added with a small weight. They lead across plateaus.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.problem import Problem

WINDOW_WORK = 80_000
"""matrix entries to look at for one set of moves; larger placements are seen through a random window"""
TAILS = 256


@dataclass(frozen=True, eq=False)
class Moves:
    """Priced moves: swaps of positions ``first`` and ``second`` then tails of pipelines."""

    change_s: FloatArray
    """(M,) change of the walk's energy"""
    first: IntArray
    """(M,) position; for a tail, of pipeline r in the stage after which tails change"""
    second: IntArray
    """(M,) position; for a tail, of pipeline u in the same stage"""
    n_swaps: int


@dataclass(frozen=True, eq=False)
class _Window:
    """The positions looked at, and which pairs of them share a hop."""

    at: IntArray
    """(W,) positions"""
    placed: IntArray
    """(P,) those not on the bench"""
    i: IntArray
    """(swaps,) rows and"""
    j: IntArray
    """(swaps,) columns of the W x W matrix of swaps"""
    same: tuple[IntArray, IntArray]
    """pairs in one stage"""
    adjacent: tuple[IntArray, IntArray]
    """pairs in neighbouring stages, the earlier first"""
    tails: tuple[IntArray, IntArray, IntArray]
    """stage, pipeline, pipeline"""


class Neighbourhood:
    """Prices the moves around a row; ``group_weight`` and ``link_weight`` are of the mean terms."""

    def __init__(self, problem: Problem, group_weight: float = 0.3, link_weight: float = 1.0) -> None:
        self.problem = problem
        self._s, self._d, self._n = problem.n_stages, problem.n_replicas, problem.n_devices
        self._placed = self._s * self._d
        self._group_weight = group_weight / self._s
        self._link_weight = link_weight / self._d
        self._size = min(self._n, max(2, int((WINDOW_WORK / self._d) ** 0.5)))

    def grid(self, row: IntArray) -> IntArray:
        return row[: self._placed].reshape(self._s, self._d)

    def repaired(self, row: IntArray) -> IntArray:
        """The same groups, best paired and in the best order."""
        return np.concatenate([self.problem.repaired(self.grid(row)).ravel(), row[self._placed :]])

    def energy(self, row: IntArray) -> float:
        """What moves change: the cost plus the mean terms."""
        grid, pair = self.grid(row), self.problem.pair
        links = pair.hop_s[grid[:-1], grid[1:]]
        group_s = pair.group_s[grid[:, :, None], grid[:, None, :]].sum(axis=2).max(axis=1)
        return float(
            group_s.max()
            + self._group_weight * group_s.sum()
            + links.max(axis=1).sum()
            + self._link_weight * links.sum()
        )

    def moves(self, row: IntArray, rng: np.random.Generator) -> Moves:
        """All moves of the row, or all within a random window of it."""
        window = self._whole if self._size == self._n else self._window(rng)
        hops = _Hops(self, row, window)
        change = self._group_changes(row, window) + hops.changes()
        first, second = window.at[window.i], window.at[window.j]
        swaps = np.where(
            self.problem.classes[row[first]] == self.problem.classes[row[second]],
            np.inf,
            change[window.i, window.j],
        )
        stage, r, u = window.tails
        return Moves(
            change_s=np.concatenate([swaps, hops.tail_changes()]),
            first=np.concatenate([first, stage * self._d + r]),
            second=np.concatenate([second, stage * self._d + u]),
            n_swaps=len(first),
        )

    def apply(self, row: IntArray, moves: Moves, k: int) -> IntArray:
        """The row after move k."""
        row, p, q = row.copy(), moves.first[k], moves.second[k]
        if k < moves.n_swaps:
            row[p], row[q] = row[q], row[p]
        else:
            grid = self.grid(row)
            stage, r, u = p // self._d + 1, p % self._d, q % self._d
            grid[stage:, [r, u]] = grid[stage:, [u, r]]
        return row

    @cached_property
    def _whole(self) -> _Window:
        return self._pairs_of(np.arange(self._n), np.arange((self._s - 1) * self._d * self._d))

    def _window(self, rng: np.random.Generator) -> _Window:
        at = np.sort(rng.choice(self._n, self._size, replace=False))
        return self._pairs_of(at, rng.integers(0, max(1, (self._s - 1) * self._d * self._d), TAILS))

    def _pairs_of(self, at: IntArray, tails: IntArray) -> _Window:
        stage = at // self._d
        placed = at < self._placed
        i, j = np.triu_indices(len(at), 1)
        useful = placed[i]
        both = placed[:, None] & placed
        gap = stage - stage[:, None]
        off_diagonal = ~np.eye(len(at), dtype=bool)
        k, r, u = np.unravel_index(tails, (max(self._s - 1, 1), self._d, self._d))
        keep = (r < u) & (self._s > 1)
        return _Window(
            at=at,
            placed=at[placed],
            i=i[useful],
            j=j[useful],
            same=_nonzero(both & (gap == 0) & off_diagonal),
            adjacent=_nonzero(both & (gap == 1)),
            tails=(k[keep], r[keep], u[keep]),
        )

    def _group_changes(self, row: IntArray, window: _Window) -> FloatArray:
        """(W, W) change by swapping: the slowest group, and the mean group."""
        n_stages, n_replicas = self._s, self._d
        group_s = self.problem.pair.group_s
        grid, devices, placed = self.grid(row), row[window.at], window.placed
        stage, replica = placed // n_replicas, placed % n_replicas
        sums = group_s[grid[:, :, None], grid[:, None, :]].sum(axis=2)
        slowest = np.append(sums.max(axis=1), 0.0)  # the bench, last, costs nothing
        to_window = group_s[grid[:, :, None], devices]  # (S, D, W)
        stay = sums[stage] - group_s[row[placed][:, None], grid[stage]]  # (P, D) without the leaving device
        stay[np.arange(len(placed)), replica] = -np.inf
        after = (to_window[stage] + stay[:, :, None]).max(axis=1)
        arriving = to_window.sum(axis=1)[stage] - group_s[row[placed][:, None], devices]
        group = np.zeros((len(window.at), len(window.at)))
        group[: len(placed)] = np.maximum(after, arriving)
        stages = np.minimum(window.at // n_replicas, n_stages)
        others = _largest_without_two(slowest)[stages[:, None], stages]
        change = np.maximum(np.maximum(group, group.T), others) - slowest.max()
        one = self._group_weight * (group - slowest[stages][:, None])
        change += one + one.T
        change[window.same] = 0.0
        return np.asarray(change)


class _Hops:
    """Changes of the hops around one row. Hop s + 1 joins stages s and s + 1; hops 0 and S are free."""

    def __init__(self, neighbourhood: Neighbourhood, row: IntArray, window: _Window) -> None:
        self._window, self._hop_s = window, neighbourhood.problem.pair.hop_s
        self._weight, self._grid = neighbourhood._link_weight, neighbourhood.grid(row)
        n_stages, n_replicas = self._grid.shape
        self._links = np.zeros((n_stages + 1, n_replicas))
        self._links[1:-1] = self._hop_s[self._grid[:-1], self._grid[1:]]
        top = np.argsort(-self._links, axis=1, kind="stable")[:, :3]
        self._top = np.zeros((n_stages + 1, 3))
        self._top[:, : top.shape[1]] = np.take_along_axis(self._links, top, axis=1)
        self._column = np.full((n_stages + 1, 3), -1)
        self._column[:, : top.shape[1]] = top
        placed = window.placed
        self._stage, self._replica = placed // n_replicas, placed % n_replicas
        devices = row[window.at]
        before = self._grid[np.maximum(self._stage - 1, 0), self._replica]
        after = self._grid[np.minimum(self._stage + 1, n_stages - 1), self._replica]
        self._from_before = self._hop_s[before[:, None], devices]  # (P, W)
        self._to_after = self._hop_s[after[:, None], devices]
        self._from_before[self._stage == 0] = 0.0
        self._to_after[self._stage == n_stages - 1] = 0.0

    def changes(self) -> FloatArray:
        """(W, W) change by swapping two positions of the window."""
        left, right = self._one(self._stage, self._from_before), self._one(self._stage + 1, self._to_after)
        n = len(self._window.at)
        change = np.zeros((n, n))
        change[: len(left)] = left + right
        change += change.T
        i, j = self._window.same
        r, u = self._replica[i], self._replica[j]
        change[i, j] = self._two(self._stage[i], r, u, self._from_before[i, j], self._from_before[j, i]) + self._two(
            self._stage[i] + 1, r, u, self._to_after[i, j], self._to_after[j, i]
        )
        i, j = self._window.adjacent
        r, u = self._replica[i], self._replica[j]
        shared = self._two(self._stage[j], r, u, self._to_after[i, j], self._from_before[j, i])
        change[i, j] += np.where(r == u, 0.0, shared) - right[i, j] - left[j, i]
        return change

    def tail_changes(self) -> FloatArray:
        """(tails,) change by exchanging the tails of two pipelines after a stage."""
        k, r, u = self._window.tails
        here, there = self._grid[k], self._grid[k + 1] if len(k) else self._grid[k]
        n = np.arange(len(k))
        return self._two(k + 1, r, u, self._hop_s[here[n, r], there[n, u]], self._hop_s[here[n, u], there[n, r]])

    def _one(self, hop: IntArray, new: FloatArray) -> FloatArray:
        """(P, W) change of a hop when the link of each placed position becomes ``new``."""
        r = self._replica
        without = np.where(self._column[hop, 0] == r, self._top[hop, 1], self._top[hop, 0])
        old = self._top[hop, 0] + self._weight * self._links[hop, r]
        change: FloatArray = np.maximum(new, without[:, None]) + self._weight * new - old[:, None]
        return change

    def _two(self, hop: IntArray, r: IntArray, u: IntArray, new_r: FloatArray, new_u: FloatArray) -> FloatArray:
        """Change of hops when their links r and u become new."""
        first, second = self._column[hop, 0], self._column[hop, 1]
        top = self._top[hop]
        gone_first, gone_second = (first == r) | (first == u), (second == r) | (second == u)
        without = np.where(gone_first, np.where(gone_second, top[:, 2], top[:, 1]), top[:, 0])
        worst = np.maximum(np.maximum(new_r, new_u), without)
        links = new_r + new_u - self._links[hop, r] - self._links[hop, u]
        change: FloatArray = worst - top[:, 0] + self._weight * links
        return change


def _largest_without_two(values: FloatArray) -> FloatArray:
    """``[a, b]``: the largest of the values other than a and b; 0 where none is left."""
    top = np.argsort(-values, kind="stable")[:3]
    first, second, third = np.append(values[top], [0.0, 0.0])[:3]
    at = np.arange(len(values))
    gone_first = (at[:, None] == top[0]) | (at == top[0])
    gone_second = (at[:, None] == top[1]) | (at == top[1])
    left: FloatArray = np.where(gone_first, np.where(gone_second, third, second), first)
    return left


def _nonzero(mask: npt.NDArray[np.bool_]) -> tuple[IntArray, IntArray]:
    i, j = np.nonzero(mask)
    return i, j
