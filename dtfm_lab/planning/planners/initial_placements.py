"""Structured first placements: clusters of devices dealt out to runs of stages.

On networks of regions the best plans look alike: some regions hold whole pipelines (their devices are
dealt round-robin to a run of stages), others hold whole groups (a run of one stage). All ways to cut S
stages into runs, over the leaves of a hierarchical clustering, are such plans. A clustering leaves open
which of two branches comes first: turning branches by chance gives as many others of the same kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import squareform

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.cost import total_costs
from dtfm_lab.planning.problem import Problem

LINKAGES = ("average", "complete")
ALSO_TURNED = "ward"
"""a linkage that is poor as it stands and good with branches turned"""
OPTIMAL_ORDER_UP_TO = 256
"""devices; the best leaf order of more takes too long"""
ALL_COMPOSITIONS_UP_TO = 10
SAMPLED_COMPOSITIONS = 500
BATCH_ENTRIES = 4_000_000
TURNED_ENTRIES = 4_000_000
"""group entries to price for one start with turned branches: some 30 ms"""


class Structure:
    """The clusterings of one problem's devices; rows are all N devices in order, the bench last."""

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        self._problem = problem
        self.n_priced = 0
        """placements priced so far"""
        self._deals = np.array([_deal(runs, problem.n_replicas) for runs in _compositions(problem.n_stages, rng)])

    def rows(self) -> tuple[IntArray, FloatArray]:
        """The first starts, of different cost, cheapest first, and their costs."""
        rows = np.concatenate([self._dealt(order) for order in self._orders])
        cost_s = self._costs(rows)
        by_cost = np.argsort(cost_s, kind="stable")
        distinct = by_cost[np.diff(cost_s[by_cost], prepend=-np.inf) > 1e-9]
        return rows[distinct], cost_s[distinct]

    def turned(self, rng: np.random.Generator) -> IntArray:
        """Another start: the cheapest over some orders of one clustering whose branches are turned by chance."""
        if self._problem.n_devices < 3:
            return self._orders[0]
        tree = self._trees[int(rng.integers(len(self._trees)))]
        tries = max(1, TURNED_ENTRIES // (len(self._deals) * self._problem.n_tasklets * self._problem.n_replicas))
        rows = np.concatenate([self._dealt(_turned(tree, rng)) for _ in range(min(tries, 64))])
        return np.asarray(rows[self._costs(rows).argmin()])

    @property
    def leaves(self) -> IntArray:
        """(N,) all devices in an order in which near ones stand together."""
        return self._orders[0]

    @cached_property
    def _trees(self) -> list[FloatArray]:
        distance = squareform(self._problem.pair.hop_s, checks=False)
        return [linkage(distance, method) for method in (*LINKAGES, ALSO_TURNED)]

    @cached_property
    def _orders(self) -> list[IntArray]:
        n, hop_s = self._problem.n_devices, self._problem.pair.hop_s
        if n < 3:
            return [np.arange(n)]
        distance = squareform(hop_s, checks=False)
        orders = []
        for tree in self._trees[: len(LINKAGES)]:
            orders.append(leaves_list(tree))
            if n <= OPTIMAL_ORDER_UP_TO:
                orders.append(leaves_list(optimal_leaf_ordering(tree, distance)))
        return [np.asarray(order, dtype=np.int64) for order in orders]

    def _dealt(self, order: IntArray) -> IntArray:
        """(compositions, N) the order dealt out in every way."""
        n = self._problem.n_tasklets
        order = _bench_last(self._problem, order)
        return np.hstack([order[self._deals], np.tile(order[n:], (len(self._deals), 1))])

    def _costs(self, rows: IntArray) -> FloatArray:
        problem = self._problem
        self.n_priced += len(rows)
        grids = rows[:, : problem.n_tasklets].reshape(-1, problem.n_stages, problem.n_replicas)
        batch = max(1, BATCH_ENTRIES // (problem.n_tasklets * problem.n_replicas))
        return np.concatenate([total_costs(grids[i : i + batch], problem.pair) for i in range(0, len(grids), batch)])


def _turned(tree: FloatArray, rng: np.random.Generator) -> IntArray:
    """A leaf order of the (N - 1, 4) linkage with every pair of branches in a random order."""
    n = len(tree) + 1
    branches: list[list[int]] = [[leaf] for leaf in range(n)]
    for (a, b), turn in zip(tree[:, :2].astype(int), rng.random(n - 1) < 0.5, strict=True):
        branches.append(branches[b] + branches[a] if turn else branches[a] + branches[b])
    return np.array(branches[-1], dtype=np.int64)


def _bench_last(problem: Problem, order: IntArray) -> IntArray:
    """The same order with the devices that are worst connected at the end, as many as stay idle."""
    idle = problem.n_devices - problem.n_tasklets
    if not idle:
        return order
    near = np.sort(problem.pair.hop_s + problem.pair.group_s, axis=1)[:, : problem.n_tasklets]
    worst = np.argsort(-near.sum(axis=1), kind="stable")[:idle]
    away = np.isin(order, worst)
    return np.concatenate([order[~away], order[away]])


def _deal(runs: list[int], n_replicas: int) -> IntArray:
    """(S x D,) which leaf stands at each position: a run of k stages takes the next k x D leaves, dealt in turn."""
    grid, taken = [], 0
    for k in runs:
        grid.append((taken + np.arange(k * n_replicas)).reshape(n_replicas, k).T)
        taken += k * n_replicas
    return np.concatenate(grid).ravel()


def _compositions(n: int, rng: np.random.Generator) -> Iterator[list[int]]:
    """All ways to cut n into an ordered sum; a sample of them, equal parts first, where there are too many."""
    if n <= ALL_COMPOSITIONS_UP_TO:
        for cuts in range(1 << (n - 1)):
            yield _runs([(cuts >> i) & 1 == 1 for i in range(n - 1)])
        return
    for part in range(1, n + 1):
        if n % part == 0:
            yield [part] * (n // part)
    for _ in range(SAMPLED_COMPOSITIONS):
        yield _runs(list(rng.random(n - 1) < 0.7 * rng.random()))


def _runs(cuts: list[bool]) -> list[int]:
    runs = [1]
    for cut in cuts:
        if cut:
            runs.append(1)
        else:
            runs[-1] += 1
    return runs
