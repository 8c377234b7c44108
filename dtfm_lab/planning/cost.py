"""What a placement costs: equations 1 to 4 of the paper, both directions of every link priced, and the order of
the stages.

A pair of devices that exchange a message each way takes ``topology.round_trip_s``: on symmetric
links exactly the published 2 (alpha + c / beta). Shapes: N devices, S stages, D replicas.

The order of the stages is the shortest open path through the coarsened graph, equation 4.
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
    """As partners in a data-parallel group: one gradient shard out and one back, equation 2."""
    hop_s: FloatArray
    """As neighbours in a pipeline: a mini-batch's activations forward and their gradients back, equation 3."""


def pair_costs(topology: Topology, job: Job) -> PairCosts:
    """The pair costs of a job on a topology; the communication cost depends on nothing else."""
    return _pair_costs(topology, shard(job.gradient_bytes, job.n_replicas), job.hop_bytes)


@lru_cache(maxsize=2)
def _pair_costs(topology: Topology, shard_bytes: float, hop_bytes: float) -> PairCosts:
    return PairCosts(group_s=topology.round_trip_s(shard_bytes), hop_s=topology.round_trip_s(hop_bytes))


def group_costs(groups: IntArray, group_pair_s: FloatArray) -> FloatArray:
    """(..., S) seconds that each group of (..., S, D) devices synchronises: equation 2.

    Every member sends a shard to every other and gets one back, one peer after the other; the
    group waits for its slowest member.
    """
    within: FloatArray = group_pair_s[groups[..., :, None], groups[..., None, :]]
    return np.asarray(within.sum(axis=-1).max(axis=-1))


def bottleneck_matching(cost: FloatArray) -> tuple[float, IntArray]:
    """The assignment of columns to rows whose dearest pair is cheapest; of such assignments, the one of least sum.

    Returns the dearest pair's cost and, (D,), the column of each row. Exact: the answer is the smallest threshold
    such that the pairs up to it contain a perfect matching. It is at least the dearest of the cheapest
    entries of each row and column, which usually is the answer already; else a binary search finds it.
    """
    floor = max(cost.min(axis=1).max(), cost.min(axis=0).max())
    if not _matchable(cost, floor):
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
    """(S, S) symmetric weights of the coarsened graph: the bottleneck between every two (S, D) groups, equation 3."""
    weights = np.zeros((len(groups), len(groups)))
    for a, b in combinations(range(len(groups)), 2):
        weights[a, b], _ = bottleneck_matching(hop_pair_s[np.ix_(groups[a], groups[b])])
    return weights + weights.T


def align(groups: IntArray, order: IntArray, hop_pair_s: FloatArray) -> IntArray:
    """The (S, D) grid of the groups in stage order, whose columns are pipelines.

    Column by column each device is followed by its partner in the bottleneck matching of the two
    neighbouring groups, so every hop of the grid costs what its edge of the coarsened graph weighs.
    """
    grid = groups[order].copy()
    for s in range(len(grid) - 1):
        _, columns = bottleneck_matching(hop_pair_s[np.ix_(grid[s], grid[s + 1])])
        grid[s + 1] = grid[s + 1, columns]
    return grid


def hop_costs(grid: IntArray, hop_pair_s: FloatArray) -> FloatArray:
    """(..., S-1) seconds of each hop of (..., S, D) grids, as their columns pair."""
    return np.asarray(hop_pair_s[grid[..., :-1, :], grid[..., 1:, :]].max(axis=-1))


def total_costs(grid: IntArray, pair: PairCosts) -> FloatArray:
    """(...) seconds of (..., S, D) grids, as their columns pair: equation 1."""
    total: FloatArray = group_costs(grid, pair.group_s).max(axis=-1) + hop_costs(grid, pair.hop_s).sum(axis=-1)
    return total


def price_placement(topology: Topology, job: Job, devices: IntArray) -> CostBreakdown:
    """The cost of a (S, D) grid exactly as its columns pair, whether or not that is the best pairing."""
    pair = pair_costs(topology, job)
    return CostBreakdown(
        group_s=group_costs(devices, pair.group_s),
        hop_s=hop_costs(devices, pair.hop_s),
        weights_s=coarsened_weights(devices, pair.hop_s),
    )


EXACT_UP_TO = 14
"""Most nodes for Held-Karp; beyond, it takes more memory and time than the last percent is worth."""


def path_cost(weights: FloatArray, order: IntArray) -> float:
    """Sum of the edges along the path."""
    return float(weights[order[:-1], order[1:]].sum())


def shortest_path(weights: FloatArray) -> IntArray:
    """(S,) node order of the cheapest open path through (S, S) symmetric weights, its smaller end first.

    Exact up to 14 nodes (Held and Karp 1962); above, ``short_path`` of the kernels: good, not proven. Deterministic.
    """
    order = _held_karp(weights) if len(weights) <= EXACT_UP_TO else _short(weights)
    return order if order[0] <= order[-1] else order[::-1].copy()


@lru_cache(maxsize=EXACT_UP_TO)
def _layers(n: int) -> tuple[tuple[IntArray, IntArray, IntArray], ...]:
    """Every extension of a path by one node, by number of visited nodes: (visited set as bits, row, next node)."""
    masks = np.arange(1 << n)
    visited = (masks[:, None] >> np.arange(n)) & 1
    layers = []
    for size in range(1, n):
        layer = masks[visited.sum(axis=1) == size]
        row, node = np.nonzero(visited[layer] == 0)
        layers.append((layer, row, node))
    return tuple(layers)


def _held_karp(weights: FloatArray) -> IntArray:
    """Dynamic programme over ``reach[visited, last]``, the cheapest path over the visited set that ends in last."""
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
    """(N,) devices of a (S, D) grid, then the idle ones by number."""
    idle = np.ones(n_devices, dtype=bool)
    idle[grid] = False
    return np.concatenate([grid.ravel(), np.flatnonzero(idle)])


# ---------------------------------------------------------------------------------------------------------------------
# A lower bound on the communication cost of all placements, from which a plan's gap is computed.
#
# Two relaxations, both valid for any symmetric pair costs and also where devices may stay idle; the larger bound
# counts. n = S x D devices are used of N.
#
# **Order statistics.** A device costs at least its D - 1 cheapest partners, whichever it has, and the
# slowest of the n used devices is no faster than the n-th fastest of all. A hop costs at least what any
# of its 2 D devices has as its cheapest link; every other hop has devices of its own, so h such
# hops cost at least the 2D-th, 4D-th, ... smallest of the cheapest links.
#
# **Clusters.** Order statistics treat the two parts apart; on real networks they compete: hops are
# cheapest with pipelines within a region, synchronisation with groups within a region. Take a level t, and call
# the components of the graph of all links cheaper than t clusters. Hops below t stay within clusters, so
# the hops of t or more cut the stages into segments within which each pipeline stays in one cluster. In a
# segment of l stages a cluster of size c holds at most c // l of the D pipelines, hence at most as many
# members of any group there; that limits how many cheap partners a device has, so it costs at least
# ``partners(device, l)``, growing with l. If the data-parallel cost is x at most, only devices with
# ``partners(device, l) <= x`` in clusters of l or more may serve in segments of l or longer: enough for
# ``u(l)`` whole stages. The fewest segments that cover S stages within these allowances (longest first:
# sum over l of (u(l) - u(l + 1)) / l, rounded up) less one is the least number of hops of t or more.
# Summed over levels, that count times the distance to the level below bounds the pipeline cost for given
# x; the bound is the smallest sum over all x.
#
# The cluster bound is the whole optimum on all five networks of the paper where devices fall into
# regions; with jitter on every link gaps remain.


WORK = 4_000_000
"""Matrix entries to process, over all levels and segment lengths; more devices mean fewer levels."""
CLUSTERS_UP_TO = 2048
"""Most devices for the cluster bound; with more, order statistics alone count."""
MAX_BUDGETS = 400
"""Most data-parallel costs to try."""


def lower_bound_s(topology: Topology, job: Job) -> float:
    """Seconds that every placement of the job on the topology costs at least; see the module's docstring."""
    return _kept_bound_s(pair_costs(topology, job), job.n_stages, job.n_replicas)


def quick_bound_s(topology: Topology, job: Job) -> float:
    """Seconds that every placement costs at least by order statistics alone, in a hundredth of the time."""
    return bound_of_pairs(pair_costs(topology, job), job.n_stages, job.n_replicas, clusters=False)


@lru_cache(maxsize=8)
def _kept_bound_s(pair: PairCosts, n_stages: int, n_replicas: int) -> float:
    """One bound for all jobs of a shape whose messages are alike: ``pair`` is the same object then."""
    return bound_of_pairs(pair, n_stages, n_replicas)


def bound_of_pairs(pair: PairCosts, n_stages: int, n_replicas: int, *, clusters: bool = True) -> float:
    """The same bound for S stages of D replicas on any symmetric pair costs."""
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
    """Lower bound on the sum of all hops, by order statistics.

    Hops 1, 3, 5, ... share no device, nor do hops 2, 4, 6, ...: h of them use 2 D h devices.
    """
    cheapest, each = np.sort((hop_s + np.diag(np.full(len(hop_s), np.inf))).min(axis=1)), 2 * n_replicas
    return float(sum(cheapest[: each * n][each - 1 :: each].sum() for n in (n_stages // 2, (n_stages - 1) // 2)))


def nearest_partners(group_s: FloatArray) -> IntArray:
    """(N, N - 1) all other devices, cheapest partner first."""
    apart = group_s + np.diag(np.full(len(group_s), np.inf))
    return np.asarray(np.argsort(apart, axis=1, kind="stable")[:, :-1])


class _Partners:
    """Each device's cost of the D - 1 cheapest partners that the clusters allow."""

    def __init__(self, group_s: FloatArray, n_stages: int, n_replicas: int) -> None:
        self._nearest = nearest_partners(group_s)
        self._cost_s: FloatArray = np.take_along_axis(group_s, self._nearest, axis=1)
        self._n_stages, self._wanted = n_stages, n_replicas - 1
        self._free_s: FloatArray = self._cost_s[:, : self._wanted].sum(axis=1)
        self.least_s = float(np.sort(self._free_s)[n_stages * n_replicas - 1])
        self._labels: IntArray | None = None

    def cost_s(self, labels: IntArray, length: int) -> FloatArray:
        """(N,) least seconds in segments of ``length`` stages or more; inf for a device that cannot be in one."""
        if length == 1:
            return self._free_s
        if labels is not self._labels:
            self._rank_by_cluster(labels)
        share = self._sizes // length
        allowed = self._rank < share[self._nearest]
        count = allowed.cumsum(axis=1)
        cost = np.where(allowed & (count <= self._wanted), self._cost_s, 0.0).sum(axis=1)
        cost[(share == 0) | (count[:, -1] < self._wanted)] = np.inf
        return self._first_of_each_cluster(cost, labels, share * self._n_stages)

    def _rank_by_cluster(self, labels: IntArray) -> None:
        """Rank each device's partners by cost within their clusters; in its own cluster the device comes first."""
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
        """Keep the cheapest devices of each cluster, as many as ``most``: its pipelines have no more stages."""
        order = np.lexsort((cost, labels))
        place = np.arange(len(order))
        starts = np.maximum.accumulate(np.where(np.diff(labels[order], prepend=-1) != 0, place, 0))
        cost = cost.copy()
        cost[order[place - starts >= most[order]]] = np.inf
        return cost


def _levels(hop_s: FloatArray, at_most: int) -> Iterator[tuple[float, IntArray]]:
    """(level in seconds, (N,) cluster of each device), ascending: single linkage cut below each of its heights."""
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
            cut = 0.5 * (height + below[-1, 2])
            labels = scipy.cluster.hierarchy.fcluster(tree, cut, "distance").astype(np.int64)
        yield float(height), labels


def _lengths(n_stages: int, n_devices: int) -> list[int]:
    """Segment lengths to distinguish, 1 first; the more devices, the fewer."""
    if n_stages <= 10 and n_devices <= 256:
        return list(range(1, n_stages + 1))
    most = 16 if n_devices <= 256 else 4
    return sorted({int(length) for length in np.geomspace(1, n_stages, min(most, n_stages)).round()})


def _budgets(costs: FloatArray, least_s: float) -> FloatArray:
    """Data-parallel costs to try, ascending; each represents all costs up to the next."""
    values = np.unique(costs[np.isfinite(costs) & (costs > least_s)])
    if len(values) > MAX_BUDGETS:
        values = values[np.linspace(0, len(values) - 1, MAX_BUDGETS).astype(int)]
    return np.concatenate([[least_s], values])


def _least_hops(
    partners: list[FloatArray], lengths: list[int], budgets: FloatArray, n_stages: int, n_replicas: int
) -> FloatArray:
    """(budgets,) least number of hops of this level or more, with a data-parallel cost below the next budget."""
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
# Which devices are alike: those of a class can change places without changing any plan's cost, or change it little.


def interchangeable(kinds: npt.NDArray[Any], matrices: tuple[FloatArray, ...]) -> IntArray:
    """(N,) number of the class of each device, classes in the order of their first devices.

    Two devices are of one class where their (N, K) kinds are equal, they are equally far from and to every third
    device by every (N, N) matrix, and each is as far from the other as the other from it.
    """
    both = [np.sort(one, axis=1) for matrix in matrices for one in (matrix, matrix.T)]
    # devices with other distances, whatever these lead to, need not be compared one by one
    profile = np.unique(np.hstack([kinds, *both]), axis=0, return_inverse=True)[1].reshape(-1, 1)
    classes = grouped(profile, matrices, 0.0, len(kinds), mutual=True)
    assert classes is not None, "there are at most as many classes as devices"
    return classes


def link_matrices(topology: Topology) -> tuple[FloatArray, ...]:
    """The (N, N) matrices that say what a link is: latency, bandwidth, the seconds of each measured message size."""
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
    """(N,) classes, each of devices like its first one, links alike within a relative tolerance; None where they are
    more than ``most``. Where ``mutual``, each is also as far from the first one as that one from it."""
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
    """Which of ``others`` have links to all third devices like those of ``first``."""
    if not len(others) or tolerance == np.inf:
        return np.ones(len(others), dtype=bool)
    rows, row = matrix[others], matrix[first][None, :]
    third = np.ones((len(others), len(matrix)), dtype=bool)
    third[:, first] = False
    third[np.arange(len(others)), others] = False
    alike = np.maximum(rows, row) <= np.minimum(rows, row) * (1 + tolerance) if tolerance else rows == row
    return np.asarray((alike | ~third).all(axis=1))
