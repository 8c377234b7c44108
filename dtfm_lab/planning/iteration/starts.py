"""Placements to begin with: by speed, by nearness, by both, and by chance; and the cut that goes with one.

Devices are near to each other by the seconds of one micro-batch's message there and back. Some grids have each stage
within one cluster of near devices, along cheap chains of clusters (a beam search, as the best chain of all is a
travelling salesman's). On a network of regions with slow links between them, the best plan of many shapes has each
stage's replicas in one region, so that synchronisation is cheap, and the stages in regions that are near to each other.
Annealing seldom finds it from elsewhere, for all devices of a stage have to move together.
"""

import heapq
from functools import cached_property
from itertools import product

import numpy as np
import scipy

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.problem import IterationProblem

MOST_NEIGHBOURS = 32
MOST_ORDERED = 256
"""Most devices for which the order of a tree's branches is made best; with more it takes too long."""


class Nearness:
    """The order, the clusters and the neighbours of a network's devices."""

    def __init__(self, problem: IterationProblem) -> None:
        one_way_s = problem.passes(problem.microbatches[0]).hop_s[0] + problem.latency_s
        self.distance_s: FloatArray = one_way_s + one_way_s.T
        """(N, N) seconds of one micro-batch's message there and one back."""

    @cached_property
    def _tree(self) -> FloatArray:
        pairs = scipy.spatial.distance.squareform(self.distance_s, checks=False)
        ordered = len(self.distance_s) <= MOST_ORDERED
        return np.array(scipy.cluster.hierarchy.linkage(pairs, method="average", optimal_ordering=ordered))

    @cached_property
    def order(self) -> IntArray:
        """(N,) devices in the order of a tree that joins the nearest first."""
        n = len(self.distance_s)
        return np.arange(n) if n < 3 else np.array(scipy.cluster.hierarchy.leaves_list(self._tree), dtype=np.int64)

    @cached_property
    def clusters(self) -> IntArray:
        """(N,) number of the cluster of each device: the tree is cut where its joints grow most."""
        n = len(self.distance_s)
        if n < 3:
            return np.arange(n)
        heights = np.maximum(self._tree[:, 2], 1e-12)
        at = int(np.argmax(heights[1:] / heights[:-1]))
        height = (heights[at] + heights[at + 1]) / 2
        return np.array(scipy.cluster.hierarchy.fcluster(self._tree, height, criterion="distance") - 1)

    @cached_property
    def neighbours(self) -> IntArray:
        """(N, K) the devices nearest to each, the nearest first."""
        n = len(self.distance_s)
        away_s = self.distance_s.copy()
        np.fill_diagonal(away_s, np.inf)
        return np.argsort(away_s, axis=1, kind="stable")[:, : min(n - 1, MOST_NEIGHBOURS)].astype(np.int64)


MOST_CLUSTERS, MOST_STAGES = 16, 16
"""Most clusters and stages for which chains are looked for; with more it takes longer than it saves."""
WIDTH = 12
"""Chains that are kept at each length."""
MOST_CHAINS = 4
"""Most grids of one shape along open chains, and as many along closed ones: half of them have the least slowest hop,
half the least sum of hops."""
MOST_KINDS = 8
"""Most kinds of equal devices of which a shape without hops is made."""
N_WHOLE = 4
"""Rows of the fastest devices, which come before those along chains; parts of the network follow."""
MOST_WINDOWS = 6
"""Most parts of the order by nearness that are tried for one shape."""


class Starts:
    """Rows of devices, (N,), of which the first S x R are a grid of S stages and the others idle."""

    def __init__(self, problem: IterationProblem, nearness: Nearness) -> None:
        self._problem, self._nearness, self.by_nearness = problem, nearness, nearness.order
        self._rows: dict[tuple[int, int, bool], list[tuple[str, IntArray]]] = {}
        self._block_flop = float(np.diff(problem.block_flop).mean())

    @cached_property
    def by_speed(self) -> IntArray:
        """(N,) devices, the fastest first, equal ones by nearness."""
        near = self.by_nearness
        return near[np.argsort(-self._problem.flop_per_s[near], kind="stable")]

    @cached_property
    def kinds(self) -> list[IntArray]:
        """Devices of equal speed, the most of all together first, those near each other beside each other."""
        near, speeds = self.by_nearness, self._problem.flop_per_s
        found = [near[speeds[near] == speed] for speed in np.unique(speeds)]
        return sorted(found, key=lambda kind: -float(speeds[kind].sum()))[:MOST_KINDS]

    most_rows = 2 * (2 + MOST_WINDOWS) + 2 * MOST_CHAINS + MOST_KINDS
    """Most rows of one shape."""

    def rows(self, n_stages: int, n_replicas: int, *, chains: bool = False) -> list[tuple[str, IntArray]]:
        """Named rows for one shape, those along ``chains`` alone or all; kept, as they are asked for one by one."""
        key = n_stages, n_replicas, chains
        if key not in self._rows:
            self._rows[key] = (self._chains if chains else self._made)(n_stages, n_replicas)
        return self._rows[key]

    def _made(self, n_stages: int, n_replicas: int) -> list[tuple[str, IntArray]]:
        n, row = n_stages * n_replicas, self._problem.row
        near, fast = self.by_nearness, self.by_speed
        keep = np.zeros(len(near), dtype=bool)
        keep[fast[:n]] = True
        fastest_near = near[keep[near]]
        orders = [("fastest, near", fastest_near), ("fastest", fast[:n])]
        if n < len(near):
            speeds = np.cumsum(np.concatenate([[0.0], self._problem.flop_per_s[near]]))
            windows = np.argsort(-(speeds[n:] - speeds[:-n]), kind="stable")
            apart = max(1, len(windows) // MOST_WINDOWS)
            chosen: list[int] = []
            for at in windows.tolist():
                if all(abs(at - other) >= apart for other in chosen):
                    chosen.append(at)
            orders += [(f"region {at}", near[at : at + n]) for at in chosen[:MOST_WINDOWS]]
        rows = []
        for name, order in orders:
            rows.append((f"{name}, pipelines", row(order.reshape(n_replicas, n_stages).T)))
            rows.append((f"{name}, groups", row(order.reshape(n_stages, n_replicas))))
        if n_stages == 1 and len(self.kinds) > 1:
            rows += [("equal, groups", row(kind[:n].reshape(1, n))) for kind in self.kinds if len(kind) >= n]
        return rows[:N_WHOLE] + self._chains(n_stages, n_replicas) + rows[N_WHOLE:]

    def _chains(self, n_stages: int, n_replicas: int) -> list[tuple[str, IntArray]]:
        """Named rows for one shape with each stage within a cluster."""
        problem, shape, closed = self._problem, (n_stages, n_replicas), self._problem.tied_parameters > 0
        near_by = self._nearness.clusters, self._nearness.distance_s
        chains = cluster_chains(*near_by, problem.flop_per_s, shape, closed=closed)
        return [(f"chain {i}, groups", self._problem.row(grid)) for i, grid in enumerate(chains)]

    def cut(self, grid: IntArray, room: IntArray | None = None) -> IntArray:
        """(S,) blocks so that the slowest stage is fastest, stages as fast as their devices in the mean; no stage more
        than the (S,) blocks that it has room for, as long as others have."""
        problem, n_stages = self._problem, len(grid)
        speed: FloatArray = problem.flop_per_s[grid].mean(axis=1)
        extra = np.zeros(n_stages)
        extra[0] += problem.first_extra[0]
        extra[-1] += problem.last_extra[0]
        takes = (extra + 2 * self._block_flop) / speed
        each = (self._block_flop / speed).tolist()
        most = [problem.n_blocks] * n_stages if room is None else room.tolist()
        blocks = [1] * n_stages
        # stages by the seconds that they would take with one more; those that are full wait until all are
        next_up = list(zip(takes.tolist(), range(n_stages), strict=True))
        waiting = [one for one in next_up if most[one[1]] <= 1]
        next_up = [one for one in next_up if most[one[1]] > 1]
        heapq.heapify(next_up)
        for _ in range(problem.n_blocks - n_stages):
            if not next_up:
                next_up, waiting, most = waiting, [], [problem.n_blocks] * n_stages
                heapq.heapify(next_up)
            takes_s, s = heapq.heappop(next_up)
            blocks[s] += 1
            one = (takes_s + each[s], s)
            if blocks[s] < most[s]:
                heapq.heappush(next_up, one)
            else:
                waiting.append(one)
        return np.array(blocks, dtype=np.int64)


def cluster_chains(
    clusters: IntArray, distance_s: FloatArray, flop_per_s: FloatArray, shape: tuple[int, int], *, closed: bool
) -> list[IntArray]:
    """(S, R) grids along cheap chains; empty where the clusters are too small for the shape.

    Parameters
    ----------
    clusters
        (N,) number of each device's cluster, from 0.
    distance_s
        (N, N) seconds of a message there and one back.
    flop_per_s
        (N,) speeds: of a cluster the fastest devices serve first.
    closed
        Whether the last stage sends to the first, as with a tied embedding: but once an iteration, so that open chains
        can be the better ones.
    """
    n_stages, n_replicas = shape
    n_clusters = int(clusters.max()) + 1
    if not 1 < n_clusters <= MOST_CLUSTERS or n_stages > MOST_STAGES:
        return []
    members = [np.flatnonzero(clusters == c) for c in range(n_clusters)]
    members = [each[np.argsort(-flop_per_s[each], kind="stable")] for each in members]
    capacity = [len(each) // n_replicas for each in members]
    if sum(capacity) < n_stages:
        return []
    between_s = np.array([[float(np.mean(distance_s[np.ix_(a, b)])) for b in members] for a in members]).tolist()
    found: dict[tuple[int, ...], IntArray] = {}
    for closes, slowest_first in product({False, closed}, (True, False)):
        chains = _cheapest(between_s, capacity, n_stages, slowest_first=slowest_first, closed=closes)
        for chain in chains[: MOST_CHAINS // 2]:
            found.setdefault(chain, _grid(chain, members, n_replicas))
    return list(found.values())


def _cheapest(
    between_s: list[list[float]], capacity: list[int], n_stages: int, *, slowest_first: bool, closed: bool
) -> list[tuple[int, ...]]:
    """Chains of clusters by a beam search, of the same clusters only the cheapest."""

    usable = [c for c, n in enumerate(capacity) if n]
    chains: list[tuple[float, float, tuple[int, ...]]] = [(0.0, 0.0, (c,)) for c in usable]
    for length in range(2, n_stages + 1):
        longer = []
        for first, second, chain in chains:
            for c in usable:
                # a cluster's stages follow each other: a chain that comes back crosses twice
                if chain.count(c) >= capacity[c] or (c != chain[-1] and c in chain):
                    continue
                slowest_s, sum_s = (first, second) if slowest_first else (second, first)
                hops = [between_s[chain[-1]][c]]
                hops += [between_s[c][chain[0]]] if closed and length == n_stages else []
                slowest_s, sum_s = max(slowest_s, *hops), sum_s + sum(hops)
                longer.append((*((slowest_s, sum_s) if slowest_first else (sum_s, slowest_s)), (*chain, c)))
        chains = sorted(longer)[:WIDTH]
    best: dict[tuple[int, ...], tuple[int, ...]] = {}
    for _, _, chain in chains:
        best.setdefault(tuple(sorted(chain)), chain)
    return list(best.values())


def _grid(chain: tuple[int, ...], members: list[IntArray], n_replicas: int) -> IntArray:
    taken = dict.fromkeys(chain, 0)
    rows = []
    for c in chain:
        rows.append(members[c][taken[c] : taken[c] + n_replicas])
        taken[c] += n_replicas
    return np.array(rows, dtype=np.int64)
