"""Grids whose stages each lie within one cluster of near devices, along cheap chains of clusters.

On a network of regions with slow links between them, the best plan of many shapes has each stage's replicas in one
region, so that synchronisation is cheap, and the stages in regions that are near to each other. Annealing seldom finds
it from elsewhere, for all devices of a stage have to move together.
"""

from itertools import pairwise

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray

MOST_CLUSTERS = 64
"""Most clusters of a network for which chains are looked for."""
WIDTH = 40
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
    members = [np.flatnonzero(clusters == c) for c in range(n_clusters)]
    members = [each[np.argsort(-flop_per_s[each], kind="stable")] for each in members]
    capacity = [len(each) // n_replicas for each in members]
    if not 1 < n_clusters <= MOST_CLUSTERS or sum(capacity) < n_stages:
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

    def cost(chain: tuple[int, ...], end: bool) -> tuple[float, float]:
        hops = [between_s[a][b] for a, b in pairwise(chain)]
        hops += [between_s[chain[-1]][chain[0]]] if end and closed else []
        slowest, whole = max(hops, default=0.0), sum(hops)
        return (slowest, whole) if slowest_first else (whole, slowest)

    usable = [c for c, n in enumerate(capacity) if n]
    chains: list[tuple[int, ...]] = [(c,) for c in usable]
    for length in range(2, n_stages + 1):
        # a cluster's stages follow each other: a chain that comes back crosses twice
        longer = [
            (*chain, c)
            for chain in chains
            for c in usable
            if chain.count(c) < capacity[c] and (c == chain[-1] or c not in chain)
        ]
        chains = sorted(longer, key=lambda chain: (cost(chain, length == n_stages), chain))[:WIDTH]
    best: dict[tuple[int, ...], tuple[int, ...]] = {}
    for chain in chains:
        best.setdefault(tuple(sorted(chain)), chain)
    return list(best.values())


def _grid(chain: tuple[int, ...], members: list[IntArray], n_replicas: int) -> IntArray:
    taken = dict.fromkeys(chain, 0)
    rows = []
    for c in chain:
        rows.append(members[c][taken[c] : taken[c] + n_replicas])
        taken[c] += n_replicas
    return np.array(rows, dtype=np.int64)
