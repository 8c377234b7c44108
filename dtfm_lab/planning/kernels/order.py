"""The shortest open path through the coarsened graph, compiled: equation 4."""

from __future__ import annotations

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.kernels.compiling import compiled


@compiled
def shortest(weights_s: FloatArray, reach_s: FloatArray, order: IntArray) -> float:
    """Fill (S,) ``order`` with the cheapest open path and return its seconds (Held and Karp 1962).

    ``reach_s`` is (2^S, S) scratch: the cheapest path over a set of visited nodes that ends in one of them.
    """
    n = len(weights_s)
    everyone = (1 << n) - 1
    for visited in range(1, everyone + 1):
        for last in range(n):
            reach_s[visited, last] = np.inf
    for first in range(n):
        reach_s[1 << first, first] = 0.0
    for visited in range(1, everyone):
        for last in range(n):
            so_far_s = reach_s[visited, last]
            if so_far_s < np.inf:
                for onward in range(n):
                    if not (visited >> onward) & 1:
                        there = visited | (1 << onward)
                        total_s = so_far_s + weights_s[last, onward]
                        if total_s < reach_s[there, onward]:
                            reach_s[there, onward] = total_s
    at = int(reach_s[everyone].argmin())
    shortest_s = reach_s[everyone, at]
    visited = everyone
    for place in range(n - 1, -1, -1):
        order[place] = at
        visited ^= 1 << at
        if place:
            at = int((reach_s[visited] + weights_s[at]).argmin())
    return float(shortest_s)


@compiled
def improve(weights_s: FloatArray, order: IntArray) -> None:
    """Shorten a path in place: reverse or move segments (2-opt, Or-opt) until neither helps."""
    n = len(order)
    piece = np.empty(3, np.int64)
    better = True
    while better:
        better = False
        for i in range(n - 1):
            for j in range(i + 1, n):
                change_s = 0.0
                if i > 0:
                    change_s += weights_s[order[i - 1], order[j]] - weights_s[order[i - 1], order[i]]
                if j < n - 1:
                    change_s += weights_s[order[i], order[j + 1]] - weights_s[order[j], order[j + 1]]
                if change_s < -1e-12:
                    order[i : j + 1] = order[i : j + 1][::-1].copy()
                    better = True
        for length in range(1, min(3, n - 1) + 1):
            for i in range(n - length + 1):
                better |= _move(weights_s, order, i, length, piece)


@compiled
def _move(weights_s: FloatArray, order: IntArray, i: int, length: int, piece: IntArray) -> bool:
    """Put the segment of ``length`` at i where it costs least, either way round; whether that helped."""
    n = len(order)
    first, last = order[i], order[i + length - 1]
    gain_s = 0.0
    if i > 0:
        gain_s += weights_s[order[i - 1], first]
    if i + length < n:
        gain_s += weights_s[last, order[i + length]]
    if i > 0 and i + length < n:
        gain_s -= weights_s[order[i - 1], order[i + length]]
    best_s, best_at, turned = gain_s - 1e-12, -1, False
    for at in range(n - length + 1):  # between the (at - 1)th and the at-th of the others
        if at == i:
            continue
        before = -1 if at == 0 else (order[at - 1] if at <= i else order[at - 1 + length])
        after = -1 if at == n - length else (order[at] if at < i else order[at + length])
        for turn in range(2):
            head, tail = (first, last) if turn == 0 else (last, first)
            cost_s = 0.0
            if before >= 0:
                cost_s += weights_s[before, head]
            if after >= 0:
                cost_s += weights_s[tail, after]
            if before >= 0 and after >= 0:
                cost_s -= weights_s[before, after]
            if cost_s < best_s:
                best_s, best_at, turned = cost_s, at, turn == 1
    if best_at < 0:
        return False
    for k in range(length):
        piece[k] = order[i + length - 1 - k] if turned else order[i + k]
    if best_at < i:
        for k in range(i - 1, best_at - 1, -1):
            order[k + length] = order[k]
    else:
        for k in range(i, best_at):
            order[k] = order[k + length]
    order[best_at : best_at + length] = piece[:length]
    return True
