"""The order of the stages: the shortest open path through the coarsened graph, equation 4."""

from functools import lru_cache

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray

EXACT_UP_TO = 14
"""Most nodes for Held-Karp; beyond, it takes more memory and time than the last percent is worth."""
STARTS = 8
"""Nodes that the heuristic begins a path from."""
SWEEPS = 50
"""Most rounds of local search on one path."""


def path_cost(weights: FloatArray, order: IntArray) -> float:
    """Sum of the edges along the path."""
    return float(weights[order[:-1], order[1:]].sum())


def shortest_path(weights: FloatArray) -> IntArray:
    """(S,) node order of the cheapest open path through (S, S) symmetric weights, its smaller end first.

    Exact up to 14 nodes (Held and Karp 1962); above, nearest neighbour from several starts, each
    improved by 2-opt and Or-opt until neither helps: good, not proven. Deterministic.
    """
    order = _held_karp(weights) if len(weights) <= EXACT_UP_TO else _heuristic(weights)
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


def _heuristic(weights: FloatArray) -> IntArray:
    n = len(weights)
    starts = np.argsort(weights.sum(axis=1), kind="stable")[np.linspace(0, n - 1, min(n, STARTS)).astype(int)]
    paths = [_improved(weights, _nearest_neighbour(weights, int(start))) for start in starts]
    return min(paths, key=lambda order: path_cost(weights, order))


def _nearest_neighbour(weights: FloatArray, start: int) -> IntArray:
    order, left = [start], np.ones(len(weights), dtype=bool)
    left[start] = False
    while left.any():
        order.append(int(np.where(left, weights[order[-1]], np.inf).argmin()))
        left[order[-1]] = False
    return np.array(order)


def _improved(weights: FloatArray, order: IntArray) -> IntArray:
    """Local search by 2-opt (reverse a segment) and Or-opt (move a segment of up to three) until neither helps."""
    best_s = path_cost(weights, order)
    for _ in range(SWEEPS):
        order, cost_s = _or_opt(weights, _two_opt(weights, order))
        if cost_s >= best_s - 1e-12:
            break
        best_s = cost_s
    return order


def _two_opt(weights: FloatArray, order: IntArray) -> IntArray:
    """Reverse the segment that helps most, until none does."""
    n = len(order)
    i, j = np.triu_indices(n, 1)
    for _ in range(SWEEPS * n):
        w = np.pad(weights[np.ix_(order, order)], 1)  # beyond both ends nothing is paid
        change = w[i, j + 1] + w[i + 1, j + 2] - w[i, i + 1] - w[j + 1, j + 2]
        if change[k := int(change.argmin())] >= -1e-12:
            break
        order = order.copy()
        order[i[k] : j[k] + 1] = order[i[k] : j[k] + 1][::-1]
    return order


def _or_opt(weights: FloatArray, order: IntArray) -> tuple[IntArray, float]:
    """The path after the best move of a segment of up to three nodes, possibly reversed, and its cost."""
    n = len(order)
    w = np.pad(weights, (0, 1))  # node n lies beyond both ends and costs nothing
    best, best_s = order, path_cost(weights, order)
    for length in (1, 2, 3):
        for i in range(n - length + 1):
            rest = np.delete(order, np.s_[i : i + length])
            before, after = np.append(n, rest), np.append(rest, n)
            for piece in (order[i : i + length], order[i : i + length][::-1]):
                insertion = w[before, piece[0]] + w[piece[-1], after] - w[before, after]
                j = int(insertion.argmin())
                moved = np.concatenate([rest[:j], piece, rest[j:]])
                if (cost_s := path_cost(weights, moved)) < best_s - 1e-12:
                    best, best_s = moved, cost_s
    return best, best_s
