"""Partitions priced, crossed and compared, compiled: what ``planners.dtfm`` does but for the local search.

A partition is (N,) the group of each device: stages 0 to S - 1, and S for the bench where devices stay idle.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.kernels.cyclic import Cycles, exchange
from dtfm_lab.planning.kernels.draw import State, below
from dtfm_lab.planning.kernels.matching import weigh
from dtfm_lab.planning.kernels.order import improve, shortest

EXACT_UP_TO = 14
"""stages whose order is proven best"""
TOURS = 4
"""beyond: nearest neighbours from so many stages, each improved"""


class Pricing(NamedTuple):
    """What a price needs of the devices, and its scratch: S stages of D replicas."""

    group_s: FloatArray
    """(N, N) pair costs in a group"""
    hop_s: FloatArray
    """(N, N) pair costs over a hop"""
    groups: IntArray
    """(S, D) the devices of the partition priced last, rising"""
    order: IntArray
    """(S,) the order of its groups"""
    weights_s: FloatArray
    """(S, S) its coarsened graph"""
    filled: IntArray
    """(K,)"""
    reals: FloatArray
    """(D + 2, D)"""
    row_of: IntArray
    """(D,)"""
    reach_s: FloatArray
    """(2^S, S), next to nothing where S is too large"""
    tour: IntArray
    """(S,)"""


def pricing(group_s: FloatArray, hop_s: FloatArray, n_stages: int, n_replicas: int, n_groups: int) -> Pricing:
    """Room for one price at a time."""
    return Pricing(
        group_s=group_s,
        hop_s=hop_s,
        groups=np.zeros((n_stages, n_replicas), dtype=np.int64),
        order=np.zeros(n_stages, dtype=np.int64),
        weights_s=np.zeros((n_stages, n_stages)),
        filled=np.zeros(n_groups, dtype=np.int64),
        reals=np.zeros((n_replicas + 2, n_replicas)),
        row_of=np.zeros(n_replicas, dtype=np.int64),
        reach_s=np.zeros((1 << n_stages if n_stages <= EXACT_UP_TO else 1, n_stages)),
        tour=np.zeros(n_stages, dtype=np.int64),
    )


@compiled
def price(room: Pricing, group_of: IntArray) -> float:
    """Seconds of a partition, equations 2 to 4; ``room.groups`` and ``room.order`` then hold its best placement."""
    n_stages, n_replicas = room.groups.shape
    room.filled[:] = 0
    for v in range(len(group_of)):
        group = group_of[v]
        if group < n_stages:
            room.groups[group, room.filled[group]] = v
            room.filled[group] += 1
    slowest_s = 0.0
    for s in range(n_stages):
        for i in range(n_replicas):
            sum_s = 0.0
            for j in range(n_replicas):
                sum_s += room.group_s[room.groups[s, i], room.groups[s, j]]
            slowest_s = max(slowest_s, sum_s)
    weigh(room.hop_s, room.groups, room.weights_s, room.reals, room.row_of)
    if n_stages <= EXACT_UP_TO:
        return slowest_s + shortest(room.weights_s, room.reach_s, room.order)
    return slowest_s + _short(room.weights_s, room.tour, room.order)


@compiled
def _short(weights_s: FloatArray, tour: IntArray, order: IntArray) -> float:
    """A good path where the best one takes too long: fill ``order``, return its seconds."""
    n = len(order)
    best_s = np.inf
    for start in range(TOURS):
        for place in range(n):
            tour[place] = place
        at = start * n // TOURS
        for place in range(n):  # the rest of the tour are the stages not visited yet
            tour[place], tour[at] = tour[at], tour[place]
            at = place + 1
            for k in range(place + 2, n):
                if weights_s[tour[place], tour[k]] < weights_s[tour[place], tour[at]]:
                    at = k
            at = min(at, n - 1)
        improve(weights_s, tour)
        sum_s = 0.0
        for place in range(n - 1):
            sum_s += weights_s[tour[place], tour[place + 1]]
        if sum_s < best_s:
            best_s = sum_s
            order[:] = tour
    return best_s


@compiled
def cross(giver: IntArray, child: IntArray, n_genes: int, size: IntArray, state: State, points: IntArray) -> None:
    """Give ``child``, a copy of one parent, some genes of the other; then restore the sizes of its groups.

    ``size`` (K,) is what each group shall hold, ``points`` (N + K,) scratch. Device by device, whoever is in too
    large a group goes to the first that has room.
    """
    n = len(child)
    for v in range(n):
        points[v] = v
    for i in range(min(n_genes, n)):
        j = i + below(state, n - i)
        points[i], points[j] = points[j], points[i]
        child[points[i]] = giver[points[i]]
    excess = points[n:]
    excess[:] = -size
    for v in range(n):
        excess[child[v]] += 1
    free = 0
    for v in range(n):
        if excess[child[v]] > 0:
            while excess[free] >= 0:
                free += 1
            excess[child[v]] -= 1
            excess[free] += 1
            child[v] = free


@compiled
def variety(population: IntArray, cost_s: FloatArray, n_stages: int, n_replicas: int, shared: IntArray) -> float:
    """``planning.population.diversity`` of (P, N) partitions; ``shared`` is (S, S) scratch."""
    best = population[cost_s.argmin()]
    n_pairs = n_stages * n_replicas * (n_replicas - 1) // 2
    if len(population) < 2 or n_pairs == 0:
        return 0.0
    together = 0
    for other in population:
        shared[:] = 0
        for v in range(len(best)):
            if best[v] < n_stages and other[v] < n_stages:
                shared[best[v], other[v]] += 1
        for a in range(n_stages):
            for b in range(n_stages):
                together += shared[a, b] * (shared[a, b] - 1) // 2
    return 1.0 - (together - n_pairs) / (n_pairs * (len(population) - 1))


@compiled
def breed(
    pricing: Pricing,
    cycles: Cycles,
    population: IntArray,
    n_genes: int,
    size: IntArray,
    state: State,
    points: IntArray,
    child: IntArray,
) -> tuple[int, int, float]:
    """Fill ``child`` with the improved offspring of two random parents: who they are, and its seconds."""
    giver, taker = below(state, len(population)), below(state, len(population))
    child[:] = population[taker]
    cross(population[giver], child, n_genes, size, state, points)
    exchange(cycles, child)
    return giver, taker, price(pricing, child)
