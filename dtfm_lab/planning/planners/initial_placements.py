"""Initial placements made from a hierarchical clustering of the devices.

On networks of regions, the best plans look alike. Some regions hold whole pipelines: their devices are assigned
round-robin to a run of stages. Others hold whole groups: a run of one stage. To make such plans, the leaves of the
clustering are put in order, and S stages are cut into runs in every way. A clustering leaves open which of two branches
comes first, so flipping branches at random gives many more plans of this kind.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.cost import total_costs
from dtfm_lab.planning.problem import Problem

LINKAGES = ("average", "complete", "ward")
"""Linkage methods of the clustering. ``ward`` is only used with flipped branches, because it is poor without them."""
OPTIMAL_ORDER_UP_TO = 256
"""Maximum number of devices for which the optimal leaf order is computed. With more, it takes too long."""
ALL_COMPOSITIONS_UP_TO = 10
"""Up to this number of stages, all ways to cut them into runs are used. With more, ``SAMPLED_COMPOSITIONS`` random ways
are used."""
SAMPLED_COMPOSITIONS = 500
"""Number of random ways to cut the stages into runs, if there are more than ``ALL_COMPOSITIONS_UP_TO`` stages."""
BATCH_ENTRIES = 4_000_000
"""Maximum number of array entries in a batch of placements priced at once. It limits memory."""
FLIPPED_ENTRIES = 4_000_000
"""Number of array entries priced to find one placement with flipped branches. This takes about 30 ms."""


class ClusteredPlacements:
    """Placements made by clustering one problem's devices. Each is a row of all N devices, with the idle ones last."""

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        self._problem = problem
        self.n_priced = 0
        """Number of placements priced so far."""
        runs = _compositions(problem.n_stages, rng)
        self._assignments = np.array([_round_robin(run, problem.n_replicas) for run in runs])

    def rows(self) -> tuple[IntArray, FloatArray]:
        """Return the placements from the clusterings without flipped branches, and their costs in seconds.

        The cheapest comes first. Of placements with the same cost, only one is returned.
        """
        rows = np.concatenate([self._assigned(order) for order in self._leaf_orders])
        cost_s = self._costs(rows)
        by_cost = np.argsort(cost_s, kind="stable")
        distinct = by_cost[np.diff(cost_s[by_cost], prepend=-np.inf) > 1e-9]
        return rows[distinct], cost_s[distinct]

    def flipped(self, rng: np.random.Generator) -> IntArray:
        """Return (N,) the cheapest placement over some leaf orders of one clustering, each with randomly flipped
        branches."""
        if self._problem.n_devices < 3:
            return self.leaf_order
        tree = self._trees[int(rng.integers(len(self._trees)))]
        entries = len(self._assignments) * self._problem.n_tasklets * self._problem.n_replicas
        tries = min(max(1, FLIPPED_ENTRIES // entries), 64)
        rows = np.concatenate([self._assigned(_flipped_order(tree, rng)) for _ in range(tries)])
        return np.asarray(rows[self._costs(rows).argmin()])

    @property
    def leaf_order(self) -> IntArray:
        """(N,) all devices, with near devices next to each other."""
        return self._leaf_orders[0]

    @cached_property
    def _distance_s(self) -> FloatArray:
        return np.asarray(scipy.spatial.distance.squareform(self._problem.pair.hop_s, checks=False))

    @cached_property
    def _trees(self) -> list[FloatArray]:
        return [scipy.cluster.hierarchy.linkage(self._distance_s, method) for method in LINKAGES]

    @cached_property
    def _leaf_orders(self) -> list[IntArray]:
        n = self._problem.n_devices
        if n < 3:
            return [np.arange(n)]
        trees = []
        # ward is poor without flipped branches, see LINKAGES
        for tree in self._trees[:-1]:
            trees.append(tree)
            if n <= OPTIMAL_ORDER_UP_TO:
                trees.append(scipy.cluster.hierarchy.optimal_leaf_ordering(tree, self._distance_s))
        return [np.asarray(scipy.cluster.hierarchy.leaves_list(tree), dtype=np.int64) for tree in trees]

    def _assigned(self, order: IntArray) -> IntArray:
        """Return (C, N) placements of the devices in this order, one for each of the C ways to cut the stages into
        runs."""
        n = self._problem.n_tasklets
        order = _idle_last(self._problem, order)
        return np.hstack([order[self._assignments], np.tile(order[n:], (len(self._assignments), 1))])

    def _costs(self, rows: IntArray) -> FloatArray:
        problem = self._problem
        self.n_priced += len(rows)
        grids = rows[:, : problem.n_tasklets].reshape(-1, problem.n_stages, problem.n_replicas)
        batch = max(1, BATCH_ENTRIES // (problem.n_tasklets * problem.n_replicas))
        return np.concatenate([total_costs(grids[i : i + batch], problem.pair) for i in range(0, len(grids), batch)])


def _flipped_order(tree: FloatArray, rng: np.random.Generator) -> IntArray:
    """Return a leaf order of the (N - 1, 4) linkage with every pair of branches in a random order."""
    n = len(tree) + 1
    branches: list[list[int]] = [[leaf] for leaf in range(n)]
    for (a, b), flip in zip(tree[:, :2].astype(int), rng.random(n - 1) < 0.5, strict=True):
        branches.append(branches[b] + branches[a] if flip else branches[a] + branches[b])
    return np.array(branches[-1], dtype=np.int64)


def _idle_last(problem: Problem, order: IntArray) -> IntArray:
    """Return the same order with the idle devices moved to the end. These are the devices with the most expensive
    links."""
    n_idle = problem.n_devices - problem.n_tasklets
    if not n_idle:
        return order
    # only each device's cheapest links, as many as devices are used, so far devices that stay idle do not count
    near = np.sort(problem.pair.hop_s + problem.pair.group_s, axis=1)[:, : problem.n_tasklets]
    worst = np.argsort(-near.sum(axis=1), kind="stable")[:n_idle]
    idle = np.isin(order, worst)
    return np.concatenate([order[~idle], order[idle]])


def _round_robin(runs: IntArray, n_replicas: int) -> IntArray:
    """Return (S x D,) the index of the leaf at each position. A run of k stages takes the next k x D leaves and assigns
    them to its stages round-robin."""
    ends = np.cumsum(runs) * n_replicas
    of_runs = np.split(np.arange(ends[-1]), ends[:-1])
    return np.concatenate([leaves.reshape(n_replicas, -1).T for leaves in of_runs]).ravel()


def _compositions(n: int, rng: np.random.Generator) -> Iterator[IntArray]:
    """Yield ways to cut n stages into runs, each as the lengths of the runs.

    These are all ways if n is at most ``ALL_COMPOSITIONS_UP_TO``. Otherwise they are all cuts into equal runs, and a
    random sample.
    """
    if n <= ALL_COMPOSITIONS_UP_TO:
        for cuts in range(1 << (n - 1)):
            yield _runs((cuts >> np.arange(n - 1)) & 1 == 1)
        return
    for part in range(1, n + 1):
        if n % part == 0:
            yield np.full(n // part, part)
    for _ in range(SAMPLED_COMPOSITIONS):
        # a random share of cuts, so that both short and long runs occur
        yield _runs(rng.random(n - 1) < 0.7 * rng.random())


def _runs(cuts: npt.NDArray[np.bool_]) -> IntArray:
    """Return the lengths of the runs. ``cuts[i]`` is True if a run ends between stages i and i + 1."""
    return np.diff(np.flatnonzero(np.concatenate([[True], cuts, [True]])))
