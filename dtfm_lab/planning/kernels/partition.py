"""Cost, crossover and diversity of partitions, compiled: all of ``planners.dtfm`` but its local search.

A partition is (N,) the group of each device: stages 0 to S - 1, and S for idle devices.
"""

from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.kernels.coarsened_graph import coarsen, improve_path, shortest_path
from dtfm_lab.planning.kernels.cyclic import CyclicSearch
from dtfm_lab.planning.kernels.cyclic import improve as improve_partition
from dtfm_lab.planning.kernels.random_numbers import RandomState, below

EXACT_UP_TO = 14
"""Most stages whose order is proven best."""
TOURS = 4
"""Number of tours with more stages: nearest neighbours from so many stages, each improved."""


class Pricing(NamedTuple):
    """Pair costs, and the scratch space to price one partition into S stages of D replicas."""

    group_s: FloatArray
    """(N, N) pair costs in a group."""
    hop_s: FloatArray
    """(N, N) pair costs over a hop."""
    groups: IntArray
    """(S, D) devices of the partition priced last, ascending."""
    order: IntArray
    """(S,) best order of its groups."""
    weights_s: FloatArray
    """(S, S) weights of its coarsened graph."""
    filled: IntArray
    """(K,) scratch: devices in each group so far."""
    reals: FloatArray
    """(D + 2, D) scratch of the matchings."""
    row_of: IntArray
    """(D,) scratch of the matchings."""
    reach_s: FloatArray
    """(2^S, S) scratch of the exact order; (1, S) where S is too large for it."""
    tour: IntArray
    """(S,) scratch of the heuristic order."""


def pricing(group_s: FloatArray, hop_s: FloatArray, n_stages: int, n_replicas: int, n_groups: int) -> Pricing:
    """Scratch space to price one partition at a time."""
    n_sets = 1 << n_stages if n_stages <= EXACT_UP_TO else 1
    groups, order = np.zeros((n_stages, n_replicas), dtype=np.int64), np.zeros(n_stages, dtype=np.int64)
    filled, row_of = np.zeros(n_groups, dtype=np.int64), np.zeros(n_replicas, dtype=np.int64)
    weights_s, reach_s = np.zeros((n_stages, n_stages)), np.zeros((n_sets, n_stages))
    reals = np.zeros((n_replicas + 2, n_replicas))
    return Pricing(group_s, hop_s, groups, order, weights_s, filled, reals, row_of, reach_s, order.copy())


@compiled
def price(scratch: Pricing, group_of: IntArray) -> float:
    """Seconds of a partition, equations 2 to 4; its placement is left in ``scratch.groups`` and ``scratch.order``."""
    n_stages, n_replicas = scratch.groups.shape
    scratch.filled[:] = 0
    for v in range(len(group_of)):
        group = group_of[v]
        if group < n_stages:
            scratch.groups[group, scratch.filled[group]] = v
            scratch.filled[group] += 1
    slowest_s = 0.0
    for s in range(n_stages):
        for i in range(n_replicas):
            sum_s = 0.0
            for j in range(n_replicas):
                sum_s += scratch.group_s[scratch.groups[s, i], scratch.groups[s, j]]
            slowest_s = max(slowest_s, sum_s)
    coarsen(scratch.hop_s, scratch.groups, scratch.weights_s, scratch.reals, scratch.row_of)
    if n_stages <= EXACT_UP_TO:
        return slowest_s + shortest_path(scratch.weights_s, scratch.reach_s, scratch.order)
    return slowest_s + _heuristic_path(scratch.weights_s, scratch.tour, scratch.order)


@compiled
def _heuristic_path(weights_s: FloatArray, tour: IntArray, order: IntArray) -> float:
    """Fill ``order`` with a good path and return its seconds, for more stages than the exact order is found for."""
    n = len(order)
    best_s = np.inf
    for start in range(TOURS):
        for place in range(n):
            tour[place] = place
        at = start * n // TOURS
        for place in range(n):  # the rest of the tour is the stages not visited yet
            tour[place], tour[at] = tour[at], tour[place]
            at = place + 1
            for k in range(place + 2, n):
                if weights_s[tour[place], tour[k]] < weights_s[tour[place], tour[at]]:
                    at = k
            at = min(at, n - 1)
        improve_path(weights_s, tour)
        sum_s = 0.0
        for place in range(n - 1):
            sum_s += weights_s[tour[place], tour[place + 1]]
        if sum_s < best_s:
            best_s = sum_s
            order[:] = tour
    return best_s


@compiled
def crossover(
    donor: IntArray, child: IntArray, n_genes: int, size: IntArray, state: RandomState, genes: IntArray
) -> None:
    """Copy some genes of the donor into ``child``, a copy of the recipient; then restore the sizes of its groups.

    ``size`` (K,) is the number of devices of each group, ``genes`` (N + K,) scratch. Device by device, those of
    groups that are too large move to the first group that is too small.
    """
    n = len(child)
    for v in range(n):
        genes[v] = v
    for i in range(min(n_genes, n)):
        j = i + below(state, n - i)
        genes[i], genes[j] = genes[j], genes[i]
        child[genes[i]] = donor[genes[i]]
    excess = genes[n:]
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
def diversity(population: IntArray, cost_s: FloatArray, n_stages: int, n_replicas: int, shared: IntArray) -> float:
    """Diversity of (P, N) partitions, as ``planners.evolutionary.diversity``; ``shared`` is (S, S) scratch."""
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
def reproduce(
    pricing: Pricing,
    search: CyclicSearch,
    population: IntArray,
    n_genes: int,
    size: IntArray,
    state: RandomState,
    genes: IntArray,
    child: IntArray,
) -> tuple[int, int, float]:
    """Fill ``child`` with the improved offspring of two random parents; donor, recipient, and its cost in seconds."""
    donor, recipient = below(state, len(population)), below(state, len(population))
    child[:] = population[recipient]
    crossover(population[donor], child, n_genes, size, state, genes)
    improve_partition(search, child)
    return donor, recipient, price(pricing, child)
