"""Structured first placements: clusters of devices dealt out to runs of stages.

On networks of regions the best plans look alike: some regions hold whole pipelines (their devices are
dealt round-robin to a run of stages), others hold whole groups (a run of one stage). All ways to cut S
stages into runs, over the leaves of a hierarchical clustering, are such plans.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import squareform

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.cost import total_costs
from dtfm_lab.planning.problem import Problem

LINKAGES = ("average", "complete")
ALL_COMPOSITIONS_UP_TO = 10
SAMPLED_COMPOSITIONS = 500
BATCH_ENTRIES = 4_000_000


def structured_rows(problem: Problem, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """Rows (all N devices in order, the bench last) of different cost, cheapest first, and their costs."""
    n_stages, n_replicas, n = problem.n_stages, problem.n_replicas, problem.n_tasklets
    deals = np.array([_deal(runs, n_replicas) for runs in _compositions(n_stages, rng)])
    leaves = [_bench_last(problem, order) for order in _leaf_orders(problem.pair.hop_s)]
    rows = np.concatenate([np.hstack([order[deals], np.tile(order[n:], (len(deals), 1))]) for order in leaves])
    batch = max(1, BATCH_ENTRIES // (n * n_replicas))
    grids = rows[:, :n].reshape(-1, n_stages, n_replicas)
    cost = np.concatenate([total_costs(grids[i : i + batch], problem.pair) for i in range(0, len(grids), batch)])
    by_cost = np.argsort(cost, kind="stable")
    distinct = by_cost[np.diff(cost[by_cost], prepend=-np.inf) > 1e-9]
    return rows[distinct], cost[distinct]


def _leaf_orders(hop_s: FloatArray) -> list[IntArray]:
    """Orders of all devices in which near devices stand together."""
    n = len(hop_s)
    if n < 3:
        return [np.arange(n)]
    distance = squareform(hop_s, checks=False)
    orders = []
    for method in LINKAGES:
        tree = linkage(distance, method)
        orders.append(leaves_list(tree))
        if n <= 256:
            orders.append(leaves_list(optimal_leaf_ordering(tree, distance)))
    return [np.asarray(order, dtype=np.int64) for order in orders]


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
