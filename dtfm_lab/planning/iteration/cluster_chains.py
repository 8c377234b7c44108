"""Grids whose stages each lie within one cluster of near devices, along cheap chains of clusters.

On a network of regions with slow links between them, the best plan of many shapes has each stage's replicas in one
region, so that synchronisation is cheap, and the stages in regions that are near to each other. Annealing seldom finds
it from elsewhere, for all devices of a stage have to move together.
"""

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray

MOST_CLUSTERS, MOST_STAGES = 16, 16
"""Most clusters and stages for which chains are looked for; with more it takes longer than it saves."""
WIDTH = 12
"""Chains that are kept at each length."""
MOST_CHAINS = 4
"""Most grids of one shape: half of them have the least slowest hop, half the least sum of hops."""


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
        Whether the last stage sends to the first, as with a tied embedding.
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
    for slowest_first in (True, False):
        chains = _cheapest(between_s, capacity, n_stages, slowest_first=slowest_first, closed=closed)
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
