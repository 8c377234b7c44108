"""The communication cost of a placement: equations 1 to 4 of the paper, with both directions of every link priced.

A pair of devices that exchange a message each way takes ``topology.round_trip_s``. On symmetric links this is exactly
the published 2 (alpha + c / beta). Shapes: N devices, S stages, D replicas.

Equation 4 orders the stages: the shortest open path through the coarsened graph.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from dtfm_lab.costs.seconds import shard
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import CostBreakdown
from dtfm_lab.domain.units import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class PairCosts:
    """Seconds between any two devices, (N, N) symmetric, zero on the diagonal."""

    group_s: FloatArray
    """Seconds if the two devices are partners in a data-parallel group: one gradient shard out and one back,
    equation 2."""
    hop_s: FloatArray
    """Seconds if the two devices are neighbours in a pipeline: a mini-batch's activations forward and their gradients
    back, equation 3."""


def pair_costs(topology: Topology, job: Job) -> PairCosts:
    """Return the pair costs of a job on a topology. Together with a placement, they give the communication cost."""
    return _pair_costs(topology, shard(job.gradient_bytes, job.n_replicas), job.hop_bytes)


@lru_cache(maxsize=2)
def _pair_costs(topology: Topology, shard_bytes: float, hop_bytes: float) -> PairCosts:
    return PairCosts(group_s=topology.round_trip_s(shard_bytes), hop_s=topology.round_trip_s(hop_bytes))


def group_costs(groups: IntArray, group_pair_s: FloatArray) -> FloatArray:
    """Return (..., S) seconds in which each group of (..., S, D) devices synchronises: equation 2.

    Every member sends a shard to every other member and gets one back, one peer after the other. The group waits for
    its slowest member.
    """
    within: FloatArray = group_pair_s[groups[..., :, None], groups[..., None, :]]
    return np.asarray(within.sum(axis=-1).max(axis=-1))


def bottleneck_matching(cost: FloatArray) -> tuple[float, IntArray]:
    """Return the assignment of columns to rows whose most expensive pair is cheapest; ties go to the smallest sum.

    Returns the cost of the most expensive pair and (D,) the column of each row. Exact: the answer is the smallest
    threshold such that the pairs up to it contain a perfect matching. The threshold is at least the largest of the row
    and column minima, which is usually the answer already. If not, a binary search finds it.
    """
    floor = max(cost.min(axis=1).max(), cost.min(axis=0).max())
    if not _matchable(cost, floor):
        # the answer is one of the costs above the floor
        thresholds = np.unique(cost[cost > floor])
        low, high = 0, len(thresholds) - 1
        while low < high:
            middle = (low + high) // 2
            if _matchable(cost, thresholds[middle]):
                high = middle
            else:
                low = middle + 1
        floor = thresholds[low]
    forbidden = 2.0 * len(cost) * floor or 1.0  # more than all allowed pairs together, whatever the scale
    _, columns = scipy.optimize.linear_sum_assignment(np.where(cost <= floor, cost, forbidden))
    return float(floor), columns.astype(np.int64)


def _matchable(cost: FloatArray, threshold: float) -> bool:
    above: npt.NDArray[np.bool_] = cost > threshold
    return not above[scipy.optimize.linear_sum_assignment(above)].any()


def coarsened_weights(groups: IntArray, hop_pair_s: FloatArray) -> FloatArray:
    """Return (S, S) symmetric weights of the coarsened graph: the bottleneck between every two (S, D) groups,
    equation 3."""
    weights = np.zeros((len(groups), len(groups)))
    for a, b in combinations(range(len(groups)), 2):
        weights[a, b], _ = bottleneck_matching(hop_pair_s[np.ix_(groups[a], groups[b])])
    return weights + weights.T


def align(groups: IntArray, order: IntArray, hop_pair_s: FloatArray) -> IntArray:
    """Return the (S, D) grid of the groups in stage order; its columns are pipelines.

    Each device is followed in its column by its partner in the bottleneck matching of the two neighbouring groups.
    Every hop of the grid therefore costs what its edge of the coarsened graph weighs.
    """
    grid = groups[order].copy()
    for s in range(len(grid) - 1):
        _, columns = bottleneck_matching(hop_pair_s[np.ix_(grid[s], grid[s + 1])])
        grid[s + 1] = grid[s + 1, columns]
    return grid


def hop_costs(grid: IntArray, hop_pair_s: FloatArray) -> FloatArray:
    """Return (..., S-1) seconds of each hop of (..., S, D) grids, whose columns are pipelines."""
    return np.asarray(hop_pair_s[grid[..., :-1, :], grid[..., 1:, :]].max(axis=-1))


def total_costs(grid: IntArray, pair: PairCosts) -> FloatArray:
    """Return (...) seconds of (..., S, D) grids, whose columns are pipelines: equation 1."""
    total: FloatArray = group_costs(grid, pair.group_s).max(axis=-1) + hop_costs(grid, pair.hop_s).sum(axis=-1)
    return total


def price_placement(topology: Topology, job: Job, devices: IntArray) -> CostBreakdown:
    """Return the cost of a (S, D) grid. Its columns are the pipelines, even if another pairing would be cheaper."""
    pair = pair_costs(topology, job)
    return CostBreakdown(
        group_s=group_costs(devices, pair.group_s),
        hop_s=hop_costs(devices, pair.hop_s),
        weights_s=coarsened_weights(devices, pair.hop_s),
    )


EXACT_UP_TO = 14
"""Maximum number of nodes for Held-Karp. With more nodes, the last percent is not worth its memory and time."""


def path_cost(weights: FloatArray, order: IntArray) -> float:
    """Return the sum of the edges along the path."""
    return float(weights[order[:-1], order[1:]].sum())


def shortest_path(weights: FloatArray) -> IntArray:
    """Return (S,) the nodes of the cheapest open path through (S, S) symmetric weights. Of its two ends, the node with
    the smaller number comes first.

    Exact up to ``EXACT_UP_TO`` nodes (Held and Karp 1962). With more nodes, ``short_path`` finds a good path that may
    not be the shortest. Deterministic.
    """
    order = _held_karp(weights) if len(weights) <= EXACT_UP_TO else _short(weights)
    return order if order[0] <= order[-1] else order[::-1].copy()


@lru_cache(maxsize=EXACT_UP_TO)
def _layers(n: int) -> tuple[tuple[IntArray, IntArray, IntArray], ...]:
    """Return every way to extend a path by one node. There is one entry per number of visited nodes, from 1 to n - 1.

    An entry has three arrays. The first has all sets of that many visited nodes, as bit masks. The other two have one
    element per extension: the index of the extended set in the first array, and the next node.
    """
    masks = np.arange(1 << n)
    visited = (masks[:, None] >> np.arange(n)) & 1
    layers = []
    for size in range(1, n):
        layer = masks[visited.sum(axis=1) == size]
        row, node = np.nonzero(visited[layer] == 0)
        layers.append((layer, row, node))
    return tuple(layers)


def _held_karp(weights: FloatArray) -> IntArray:
    """Return the shortest path by dynamic programming.

    ``reach[visited, last]`` is the cost of the cheapest path over the visited set that ends in ``last``.
    """
    n = len(weights)
    reach = np.full((1 << n, n), np.inf)
    reach[1 << np.arange(n), np.arange(n)] = 0.0
    for layer, row, node in _layers(n):
        onward = (reach[layer][:, :, None] + weights).min(axis=1)
        reach[layer[row] | (1 << node), node] = onward[row, node]
    visited = (1 << n) - 1
    order = [int(reach[visited].argmin())]
    while len(order) < n:
        visited ^= 1 << order[-1]
        order.append(int((reach[visited] + weights[order[-1]]).argmin()))
    return np.array(order)


def _short(weights: FloatArray) -> IntArray:
    from dtfm_lab.planning.kernels.coarsened_graph import short_path  # imports numba, which takes a while

    order, tour = (np.zeros(len(weights), dtype=np.int64) for _ in range(2))
    short_path(weights, tour, order)
    return order


def row_of(grid: IntArray, n_devices: int) -> IntArray:
    """Return (N,) devices of a (S, D) grid, followed by the idle ones in order of index."""
    idle = np.ones(n_devices, dtype=bool)
    idle[grid] = False
    return np.concatenate([grid.ravel(), np.flatnonzero(idle)])


# ---------------------------------------------------------------------------------------------------------------------
# A lower bound on the communication cost of all placements, from which a plan's gap is computed.
#
# There are two relaxations, both valid for any symmetric pair costs and even if devices stay idle. The larger bound is
# used. The plan uses n = S x D of the N devices.
#
# **Order statistics.** Whichever partners a device has, it costs at least as much as its D - 1 cheapest ones. The
# slowest of the n used devices is no faster than the n-th fastest of all. A hop costs at least the cheapest link of
# any of its 2 D devices. Every other hop uses different devices, so h such hops cost at least the 2D-th, 4D-th, ...
# smallest of the cheapest links.
#
# **Clusters.** Order statistics bound the two parts separately. On real networks they compete: hops are cheapest if
# each pipeline stays within a region, synchronisation is cheapest if each group does. Take a level t. Clusters are the
# components of the graph of all links cheaper than t. Hops below t stay within clusters, so the hops of t or more cut
# the stages into segments within which each pipeline stays in one cluster. In a segment of l stages, a cluster of size
# c holds at most c // l of the D pipelines, and so at most as many members of any group there. This limits the number
# of cheap partners of a device. The device therefore costs at least ``partners(device, l)``, which grows with l.
#
# If the data-parallel cost is at most x, segments of l or more stages can only use devices with
# ``partners(device, l) <= x`` in clusters of l or more devices. These devices fill ``u(l)`` whole stages. The fewest
# segments that cover the S stages are found by taking the longest first. Their number is the sum over l of
# (u(l) - u(l + 1)) / l, rounded up. One less than that is the minimum number of hops of t or more. Multiply it by the
# distance to the level below and sum over the levels: this bounds the pipeline cost for a given x. The bound is the
# smallest sum of x and the pipeline cost, over all x.
#
# On all five networks of the paper, where devices fall into regions, the cluster bound equals the optimum. With jitter
# on every link, gaps remain.


WORK = 4_000_000
"""Maximum number of matrix entries to process over all levels and segment lengths. With more devices, fewer levels are
tried, but at least 3."""
CLUSTERS_UP_TO = 2048
"""Maximum number of devices for the cluster bound. With more devices, the bound uses only order statistics."""
MAX_BUDGETS = 400
"""Maximum number of data-parallel costs x that the cluster bound tries (``_budgets``)."""


def lower_bound_s(topology: Topology, job: Job) -> float:
    """Return a lower bound in seconds on the cost of every placement of the job. The comment above derives it."""
    return _kept_bound_s(pair_costs(topology, job), job.n_stages, job.n_replicas)


def quick_bound_s(topology: Topology, job: Job) -> float:
    """Return a lower bound in seconds from order statistics alone. It takes a hundredth of the time of
    ``lower_bound_s``."""
    return bound_of_pairs(pair_costs(topology, job), job.n_stages, job.n_replicas, clusters=False)


@lru_cache(maxsize=8)
def _kept_bound_s(pair: PairCosts, n_stages: int, n_replicas: int) -> float:
    """Return the bound of ``lower_bound_s``, cached.

    Jobs with the same message sizes get the same ``pair`` object, so they share an entry if their shape is equal too.
    """
    return bound_of_pairs(pair, n_stages, n_replicas)


def bound_of_pairs(pair: PairCosts, n_stages: int, n_replicas: int, *, clusters: bool = True) -> float:
    """Return the bound of ``lower_bound_s`` for S stages of D replicas on any symmetric pair costs. 0 if there are
    fewer devices than S x D, or only one. Without ``clusters``, it uses only order statistics."""
    n_devices = len(pair.hop_s)
    if n_devices < max(2, n_stages * n_replicas):
        return 0.0
    group = _Partners(pair.group_s, n_stages, n_replicas)
    pipeline_s = least_hop_sum_s(pair.hop_s, n_stages, n_replicas)
    if n_stages == 1 or not clusters or n_devices > CLUSTERS_UP_TO:
        return group.least_s + pipeline_s
    lengths = _lengths(n_stages, n_devices)
    levels = list(_levels(pair.hop_s, max(3, int(WORK / (n_devices**2 * len(lengths))))))
    partners = [[group.cost_s(labels, length) for length in lengths] for _, labels in levels]
    budgets = _budgets(np.concatenate([cost for level in partners for cost in level]), group.least_s)
    hops_s = np.zeros(len(budgets))
    below_s = 0.0
    for (level_s, _), level in zip(levels, partners, strict=True):
        hops_s += (level_s - below_s) * _least_hops(level, lengths, budgets, n_stages, n_replicas)
        below_s = level_s
    return float((budgets + np.maximum(hops_s, pipeline_s)).min())


def least_hop_sum_s(hop_s: FloatArray, n_stages: int, n_replicas: int) -> float:
    """Return a lower bound on the sum of all hops, by order statistics.

    Hops 1, 3, 5, ... share no device, so h of them use 2 D h devices. The same holds for hops 2, 4, 6, ...
    """
    cheapest, each = np.sort((hop_s + np.diag(np.full(len(hop_s), np.inf))).min(axis=1)), 2 * n_replicas
    return float(sum(cheapest[: each * n][each - 1 :: each].sum() for n in (n_stages // 2, (n_stages - 1) // 2)))


def nearest_partners(group_s: FloatArray) -> IntArray:
    """Return (N, N - 1) all other devices, cheapest partner first."""
    apart = group_s + np.diag(np.full(len(group_s), np.inf))
    return np.asarray(np.argsort(apart, axis=1, kind="stable")[:, :-1])


class _Partners:
    """Lower bounds on each device's seconds with its D - 1 partners.

    A device's bound is the sum over its D - 1 cheapest partners. In a long segment, only part of each cluster can be
    its partners, so the sum may be larger.
    """

    def __init__(self, group_s: FloatArray, n_stages: int, n_replicas: int) -> None:
        self._nearest = nearest_partners(group_s)
        self._cost_s: FloatArray = np.take_along_axis(group_s, self._nearest, axis=1)
        self._n_stages, self._wanted = n_stages, n_replicas - 1
        self._free_s: FloatArray = self._cost_s[:, : self._wanted].sum(axis=1)
        self.least_s = float(np.sort(self._free_s)[n_stages * n_replicas - 1])
        self._labels: IntArray | None = None

    def cost_s(self, labels: IntArray, length: int) -> FloatArray:
        """Return (N,) minimum seconds that each device spends on its partners in a segment of ``length`` or more
        stages.

        ``labels`` is the cluster of each device. inf for a device that cannot be in such a segment.
        """
        if length == 1:
            return self._free_s
        if labels is not self._labels:
            self._rank_by_cluster(labels)
        # pipelines of a segment of this length that fit into the device's cluster
        share = self._sizes // length
        allowed = self._rank < share[self._nearest]
        count = allowed.cumsum(axis=1)
        cost = np.where(allowed & (count <= self._wanted), self._cost_s, 0.0).sum(axis=1)
        cost[(share == 0) | (count[:, -1] < self._wanted)] = np.inf
        return self._first_of_each_cluster(cost, labels, share * self._n_stages)

    def _rank_by_cluster(self, labels: IntArray) -> None:
        """Rank each device's partners by cost, separately for each cluster. In a device's own cluster, rank 0 is the
        device itself."""
        self._labels = labels
        self._sizes = np.bincount(labels)[labels]
        cluster = labels[self._nearest]
        by_cluster = np.argsort(cluster, axis=1, kind="stable")
        grouped = np.take_along_axis(cluster, by_cluster, axis=1)
        place = np.arange(grouped.shape[1])
        starts = np.where(np.diff(grouped, axis=1, prepend=-1) != 0, place, 0)
        rank = np.empty_like(by_cluster)
        np.put_along_axis(rank, by_cluster, place - np.maximum.accumulate(starts, axis=1), axis=1)
        self._rank = rank + (cluster == labels[:, None])

    @staticmethod
    def _first_of_each_cluster(cost: FloatArray, labels: IntArray, most: IntArray) -> FloatArray:
        """Return the costs, with inf for devices that are not among the ``most`` cheapest of their cluster.

        The pipelines of a cluster cannot use more devices than that.
        """
        order = np.lexsort((cost, labels))
        place = np.arange(len(order))
        starts = np.maximum.accumulate(np.where(np.diff(labels[order], prepend=-1) != 0, place, 0))
        cost = cost.copy()
        cost[order[place - starts >= most[order]]] = np.inf
        return cost


def _levels(hop_s: FloatArray, at_most: int) -> Iterator[tuple[float, IntArray]]:
    """Yield (level in seconds, (N,) cluster of each device) for ascending levels.

    The levels are the distances at which single-linkage clustering merges clusters. If there are more than ``at_most``,
    evenly spaced ones are used. Devices are in one cluster if links cheaper than the level connect them.
    """
    n = len(hop_s)
    tree = scipy.cluster.hierarchy.linkage(scipy.spatial.distance.squareform(hop_s, checks=False), "single")
    heights = np.unique(tree[:, 2])
    new = np.diff(heights, prepend=-np.inf) > 1e-12 * heights[-1]
    heights = heights[new]  # heights that differ by rounding are one level
    if len(heights) > at_most:
        heights = heights[np.linspace(0, len(heights) - 1, at_most).astype(int)]
    for height in heights:
        below, labels = tree[tree[:, 2] < height], np.arange(n)
        if len(below):
            # halfway between two heights, so that rounding cannot move a merge across the cut
            cut = 0.5 * (height + below[-1, 2])
            labels = scipy.cluster.hierarchy.fcluster(tree, cut, "distance").astype(np.int64)
        yield float(height), labels


def _lengths(n_stages: int, n_devices: int) -> list[int]:
    """Return the segment lengths in stages to distinguish, ascending from 1: all, or some if there are more than 10
    stages or 256 devices."""
    if n_stages <= 10 and n_devices <= 256:
        return list(range(1, n_stages + 1))
    most = 16 if n_devices <= 256 else 4
    return sorted({int(length) for length in np.geomspace(1, n_stages, min(most, n_stages)).round()})


def _budgets(costs: FloatArray, least_s: float) -> FloatArray:
    """Return the data-parallel costs x to try, ascending from ``least_s``. Each represents all costs up to the next."""
    values = np.unique(costs[np.isfinite(costs) & (costs > least_s)])
    if len(values) > MAX_BUDGETS:
        values = values[np.linspace(0, len(values) - 1, MAX_BUDGETS).astype(int)]
    return np.concatenate([[least_s], values])


def _least_hops(
    partners: list[FloatArray], lengths: list[int], budgets: FloatArray, n_stages: int, n_replicas: int
) -> FloatArray:
    """Return, for each budget, the minimum number of hops that cost the level or more.

    ``partners`` has each device's minimum seconds at this level, one array per segment length. A budget covers the
    placements whose data-parallel cost is below the next budget.
    """
    below = np.append(budgets[1:], np.inf)
    segments = np.zeros(len(budgets))
    longer = np.zeros(len(budgets))
    # segments counted at a length are at most one stage shorter than the next length distinguished
    longest = [length - 1 for length in (*lengths[1:], n_stages + 1)]
    for cost, length, most in reversed(list(zip(partners, lengths, longest, strict=True))):
        stages = np.minimum(np.searchsorted(np.sort(cost), below) // n_replicas, n_stages)
        stages = np.maximum(stages, longer) if length > 1 else np.full(len(budgets), n_stages)
        segments += (stages - longer) / most
        longer = stages
    return np.asarray(np.ceil(segments - 1e-9) - 1)


# ---------------------------------------------------------------------------------------------------------------------
# Classes of devices. Devices of one class can change places without changing any plan's cost, or with little change.


def interchangeable(kinds: npt.NDArray[Any], matrices: tuple[FloatArray, ...]) -> IntArray:
    """Return (N,) number of each device's class, classes in the order of their first devices.

    Two devices are in one class if three things hold. Their (N, K) kinds are equal. Every (N, N) matrix gives them
    equal entries from and to each third device. Their two entries for each other are equal.
    """
    both = [np.sort(one, axis=1) for matrix in matrices for one in (matrix, matrix.T)]
    # devices whose sorted links differ are never interchangeable, so only the others are compared link by link
    profile = np.unique(np.hstack([kinds, *both]), axis=0, return_inverse=True)[1].reshape(-1, 1)
    classes = grouped(profile, matrices, 0.0, len(kinds), mutual=True)
    assert classes is not None, "there are at most as many classes as devices"
    return classes


def link_matrices(topology: Topology) -> tuple[FloatArray, ...]:
    """Return the (N, N) matrices that describe links: latency, bandwidth and the seconds of each measured message
    size."""
    links = (topology.latency_s, topology.bandwidth_bytes_per_s)
    if topology.message_s is None:
        return links
    return (*links, *np.moveaxis(np.nan_to_num(topology.message_s, nan=-1.0), 2, 0))


def grouped(
    kinds: npt.NDArray[Any],
    matrices: tuple[FloatArray, ...],
    tolerance: float,
    most: int,
    *,
    mutual: bool = False,
) -> IntArray | None:
    """Return (N,) class of each device. The devices of a class have the kind of its first device, and the same links
    within a relative tolerance.

    None if there are more than ``most`` classes. With ``mutual``, the links between each device and the first one must
    also be equal in both directions.
    """
    n = len(kinds)
    of_device = np.full(n, -1, dtype=np.int64)
    n_classes = 0
    for first in range(n):
        if of_device[first] >= 0:
            continue
        if n_classes == most:
            return None
        alike = (of_device < 0) & (kinds == kinds[first]).all(axis=1)
        others = np.flatnonzero(alike & (np.arange(n) != first))
        for matrix in matrices:
            others = others[_alike(matrix, first, others, tolerance) & _alike(matrix.T, first, others, tolerance)]
            if mutual:
                others = others[matrix[first, others] == matrix[others, first]]
        of_device[first] = n_classes
        of_device[others] = n_classes
        n_classes += 1
    return of_device


def _alike(matrix: FloatArray, first: int, others: IntArray, tolerance: float) -> npt.NDArray[np.bool_]:
    """Return True for each of ``others`` whose links to every third device equal those of ``first``, within
    ``tolerance``."""
    if not len(others) or tolerance == np.inf:
        return np.ones(len(others), dtype=bool)
    rows, row = matrix[others], matrix[first][None, :]
    third = np.ones((len(others), len(matrix)), dtype=bool)
    third[:, first] = False
    third[np.arange(len(others)), others] = False
    alike = np.maximum(rows, row) <= np.minimum(rows, row) * (1 + tolerance) if tolerance else rows == row
    return np.asarray((alike | ~third).all(axis=1))
