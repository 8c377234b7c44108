"""The paper's evaluation and one step of its search without a compiler: the opponent of our speed figures.

Python, numpy, scipy and networkx, one partition at a time, written with care. It is correct: matchings by bisection
over the thresholds, Held and Karp's path over all starts at once, gains of one group's members only. Devices
N = S x D, none idle, as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import networkx as nx
import numpy as np
from scipy.optimize import linear_sum_assignment

Matching = Callable[[np.ndarray], float]


def cost(group_of: np.ndarray, group_s: np.ndarray, hop_s: np.ndarray, bottleneck: Matching) -> float:
    """Seconds of a partition, (N,) group of each device: equations 2 to 4."""
    groups = [np.flatnonzero(group_of == k) for k in range(group_of.max() + 1)]
    synchronisation_s = max(group_s[np.ix_(group, group)].sum(axis=1).max() for group in groups)
    weights = np.zeros((len(groups), len(groups)))
    for a, b in combinations(range(len(groups)), 2):
        weights[a, b] = weights[b, a] = bottleneck(hop_s[np.ix_(groups[a], groups[b])])
    return float(synchronisation_s + shortest_path(weights.tolist()))


def bottleneck_by_networkx(cost_s: np.ndarray) -> float:
    """The smallest threshold up to which networkx finds a perfect matching."""
    n = len(cost_s)

    def perfect(threshold: float) -> bool:
        graph = nx.Graph()
        graph.add_nodes_from(range(2 * n))
        graph.add_edges_from((i, n + j) for i, j in np.argwhere(cost_s <= threshold).tolist())
        return len(nx.bipartite.hopcroft_karp_matching(graph, top_nodes=range(n))) == 2 * n

    return _first(np.unique(cost_s), perfect)


def bottleneck_by_scipy(cost_s: np.ndarray) -> float:
    """The smallest threshold up to which scipy finds a perfect matching."""

    def perfect(threshold: float) -> bool:
        above = cost_s > threshold
        return not above[linear_sum_assignment(above)].any()

    return _first(np.unique(cost_s), perfect)


def _first(thresholds: np.ndarray, holds: Callable[[float], bool]) -> float:
    low, high = 0, len(thresholds) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(thresholds[middle]) else (middle + 1, high)
    return float(thresholds[low])


def shortest_path(weights: list[list[float]]) -> float:
    """The open travelling salesman's path, by Held and Karp's table."""
    n = len(weights)
    reach = {(1 << last, last): 0.0 for last in range(n)}
    for size in range(2, n + 1):
        for nodes in combinations(range(n), size):
            visited = sum(1 << node for node in nodes)
            for last in nodes:
                before = visited ^ (1 << last)
                reach[visited, last] = min(reach[before, node] + weights[node][last] for node in nodes if node != last)
    return min(reach[(1 << n) - 1, last] for last in range(n))


def crossover(donor: np.ndarray, recipient: np.ndarray, n_genes: int, rng: np.random.Generator) -> np.ndarray:
    """The recipient with some genes of the donor, its groups then restored to equal sizes."""
    child = recipient.copy()
    genes = rng.choice(len(child), n_genes, replace=False)
    child[genes] = donor[genes]
    sizes = np.bincount(child, minlength=child.max() + 1)
    full = len(child) // len(sizes)
    for device in range(len(child)):
        if sizes[child[device]] > full:
            free = int(np.argmax(sizes < full))
            sizes[child[device]] -= 1
            sizes[free] += 1
            child[device] = free
    return child


def improved(group_of: np.ndarray, hop_s: np.ndarray) -> np.ndarray:
    """The cyclic local search with the paper's gain, as ``planning.kernels.cyclic`` describes it."""
    now = group_of.copy()
    n_groups = now.max() + 1
    locked, filled = np.zeros(len(now), dtype=bool), np.zeros(n_groups, dtype=bool)
    for cycle in range(n_groups):
        before = now.copy()
        candidates = [_candidate(now, hop_s, locked, group) for group in range(n_groups)]
        start = int(np.argmax([gain_s.max() for _, gain_s in candidates]))
        if candidates[start][0] < 0:
            return before
        group, moves, sum_s, most_s, kept = start, [], 0.0, 0.0, 0
        while True:
            device, gain_s = _candidate(now, hop_s, locked, group)
            if device < 0:
                filled[start] = True
                break
            if moves and sum_s + gain_s[start] > most_s:
                kept, most_s = len(moves), sum_s + gain_s[start]
            target = int(np.argmax(gain_s))
            sum_s += gain_s[target]
            moves.append((device, target))
            now[device], locked[device], filled[target] = target, True, True
            group = target
            if group == start:
                break
        now = before
        if filled.all() or cycle == n_groups - 1:
            return before
        for device, target in moves[:kept]:
            now[device] = target
        now[moves[kept][0]] = start
    return now


def _candidate(now: np.ndarray, hop_s: np.ndarray, locked: np.ndarray, group: int) -> tuple[int, np.ndarray]:
    """The device with the fastest link within its group, -1 if none, and (S,) its gain in every other."""
    members = np.flatnonzero(now == group)
    within = hop_s[np.ix_(members, members)].copy()
    np.fill_diagonal(within, np.inf)
    within[locked[members]] = np.inf
    fastest_s = within.min(axis=1, initial=np.inf)
    if not len(members) or np.isinf(fastest_s.min()):
        return -1, np.full(now.max() + 1, -np.inf)
    device = int(members[fastest_s.argmin()])
    gain_s = np.bincount(now, weights=hop_s[device]) / np.bincount(now) - fastest_s.min()
    gain_s[group] = -np.inf
    return device, gain_s
