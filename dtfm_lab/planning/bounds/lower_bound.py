"""A lower bound on the communication cost of all placements, from which a plan's gap is computed.

Two relaxations, both valid for any symmetric pair costs and also where devices may stay idle; the larger bound
counts. n = S x D devices are used of N.

**Order statistics.** A device costs at least its D - 1 cheapest partners, whichever it has, and the
slowest of the n used devices is no faster than the n-th fastest of all. A hop costs at least what any
of its 2 D devices has as its cheapest link; every other hop has devices of its own, so h such
hops cost at least the 2D-th, 4D-th, ... smallest of the cheapest links.

**Clusters.** Order statistics treat the two parts apart; on real networks they compete: hops are
cheapest with pipelines within a region, synchronisation with groups within a region. Take a level t, and call
the components of the graph of all links cheaper than t clusters. Hops below t stay within clusters, so
the hops of t or more cut the stages into segments within which each pipeline stays in one cluster. In a
segment of l stages a cluster of size c holds at most c // l of the D pipelines, hence at most as many
members of any group there; that limits how many cheap partners a device has, so it costs at least
``partners(device, l)``, growing with l. If the data-parallel cost is x at most, only devices with
``partners(device, l) <= x`` in clusters of l or more may serve in segments of l or longer: enough for
``u(l)`` whole stages. The fewest segments that cover S stages within these allowances (longest first:
sum over l of (u(l) - u(l + 1)) / l, rounded up) less one is the least number of hops of t or more.
Summed over levels, that count times the distance to the level below bounds the pipeline cost for given
x; the bound is the smallest sum over all x.

The cluster bound is the whole optimum on all five networks of the paper where devices fall into
regions; with jitter on every link gaps remain.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import scipy

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.cost import PairCosts, pair_costs

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
