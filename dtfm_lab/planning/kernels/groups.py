"""Annealing on groups in stage order: every hop is always paired as well as can be, compiled.

A move swaps two devices of different groups (one may be on the bench), or reverses a run of stages.
The acceptance threshold is drawn first: a move is rejected by its O(D) change of the groups where that
suffices, and matchings are abandoned as soon as they exceed what is left.
"""

from __future__ import annotations

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.kernels.board import Board, exchange, keep, settle_groups, settle_places, slowest_but, swap
from dtfm_lab.planning.kernels.draw import State, below, uniform
from dtfm_lab.planning.kernels.matching import bottleneck

GROUP_WEIGHT = 0.1
"""of the mean group"""
NEARBY = 0.3
"""share of swaps with a device that is placed alike in the network"""
REVERSALS = 0.1
"""share of moves that reverse a run of stages"""


@compiled
def anneal_groups(board: Board, hot_s: float, cold_s: float, n_moves: int, state: State, best: IntArray) -> float:
    """As ``anneal_grid``, on groups: ``best`` becomes the cheapest row, its columns not paired yet (``align``)."""
    n_stages, d, n = board.n_stages, board.n_replicas, len(board.row)
    group_weight = GROUP_WEIGHT / n_stages
    hops, news_s = np.empty(4, np.int64), np.empty(4)
    settle_places(board)
    settle_groups(board)
    for s in range(n_stages - 1):
        board.worst_s[s] = _weight(board, s, s + 1, np.inf)
    cheapest_s = np.inf
    for a in range(n):
        for b in range(n):
            if a != b:
                cheapest_s = min(cheapest_s, board.hop_s[a, b])
    slowest_s, groups_s, path_s = board.slowest_s.max(), board.slowest_s.sum(), board.worst_s.sum()
    best_s = slowest_s + path_s
    best[:] = board.row
    temperature_s, cooling = hot_s, np.log(cold_s / hot_s)
    for move in range(n_moves):
        if move % 64 == 0:
            temperature_s = hot_s * np.exp(cooling * move / n_moves)
            path_s = board.worst_s.sum()
        now_s = slowest_s + group_weight * groups_s + path_s
        most_s = now_s - temperature_s * np.log(1.0 - uniform(state))
        if n_stages > 2 and uniform(state) < REVERSALS:
            i, j = below(state, n_stages), below(state, n_stages)
            if i > j:
                i, j = j, i
            if i == j or (i == 0 and j == n_stages - 1):
                continue
            before_s = board.worst_s[i - 1] if i > 0 else 0.0
            after_s = board.worst_s[j] if j < n_stages - 1 else 0.0
            room_s = most_s - now_s + before_s + after_s
            new_before_s, new_after_s = 0.0, 0.0
            if i > 0:
                new_before_s = _weight(board, i - 1, j, room_s)
            if j < n_stages - 1 and new_before_s <= room_s:
                new_after_s = _weight(board, i, j + 1, room_s - new_before_s)
            if new_before_s + new_after_s > room_s:
                continue
            _reverse(board, i, j)
            if i > 0:
                board.worst_s[i - 1] = new_before_s
            if j < n_stages - 1:
                board.worst_s[j] = new_after_s
            path_s += new_before_s + new_after_s - before_s - after_s
        else:
            p = below(state, n)
            if uniform(state) < NEARBY:
                q = board.place[board.near[board.row[p], below(state, board.near.shape[1])]]
            else:
                q = below(state, n)
            if p > q:
                p, q = q, p
            s, t = p // d, min(q // d, n_stages)
            if s >= n_stages or s == t or board.classes[board.row[p]] == board.classes[board.row[q]]:
                continue
            exchange(board, s, p - s * d, t, q - t * d)
            first_s = board.reals[d + 2].max()
            second_s = board.reals[d + 3].max() if t < n_stages else 0.0
            left_s = board.slowest_s[s] + (board.slowest_s[t] if t < n_stages else 0.0)
            new_slowest_s = max(slowest_but(board, s, t), first_s, second_s)
            count = 0
            old_path_s = 0.0
            for h in (s - 1, s, t - 1, t):
                known = False
                for k in range(count):
                    known |= hops[k] == h
                if h >= 0 and h < n_stages - 1 and not known:
                    hops[count] = h
                    old_path_s += board.worst_s[h]
                    count += 1
            groups_change_s = group_weight * (first_s + second_s - left_s)
            room_s = most_s - (now_s + new_slowest_s - slowest_s + groups_change_s - old_path_s)
            if count * cheapest_s > room_s:
                continue
            swap(board, p, q)
            least_s = 0.0
            for k in range(count):
                news_s[k] = 0.0
                h = hops[k]
                if h == s - 1 or h == s:
                    news_s[k] = _cheapest_link(board, p, s - 1 if h == s - 1 else s + 1)
                if t < n_stages and (h == t - 1 or h == t):
                    news_s[k] = max(news_s[k], _cheapest_link(board, q, t - 1 if h == t - 1 else t + 1))
                least_s += news_s[k]
            new_path_s = 0.0
            for k in range(count):
                if new_path_s + least_s > room_s:
                    new_path_s = np.inf
                    break
                least_s -= news_s[k]
                news_s[k] = _weight(board, hops[k], hops[k] + 1, room_s - new_path_s - least_s)
                new_path_s += news_s[k]
            if new_path_s > room_s:
                swap(board, p, q)
                continue
            # the scratch rows of the sums are out of reach of the matchings
            keep(board, s, d + 2, first_s)
            if t < n_stages:
                keep(board, t, d + 3, second_s)
            for k in range(count):
                board.worst_s[hops[k]] = news_s[k]
            slowest_s = new_slowest_s
            groups_s += first_s + second_s - left_s
            path_s += new_path_s - old_path_s
        if slowest_s + path_s < best_s - 1e-9 * best_s:
            best_s = slowest_s + path_s
            best[:] = board.row
    return float(best_s)


@compiled
def align(board: Board) -> None:
    """Permute each stage of the row so that columns are pipelines, paired by the bottleneck matchings."""
    d = board.n_replicas
    row_of, kept = board.wholes[0], board.wholes[1]
    for s in range(board.n_stages - 1):
        _weight(board, s, s + 1, np.inf)
        there = board.row[(s + 1) * d : (s + 2) * d]
        kept[:] = there
        there[row_of] = kept


@compiled
def _cheapest_link(board: Board, p: int, stage: int) -> float:
    """What the device at position p pays at least to reach one of a stage."""
    d, device, found_s = board.n_replicas, board.row[p], np.inf
    for i in range(stage * d, (stage + 1) * d):
        found_s = min(found_s, board.hop_s[device, board.row[i]])
    return float(found_s)


@compiled
def _weight(board: Board, a: int, b: int, enough_s: float) -> float:
    """The matching of stages a and b, or some number above ``enough_s``; partners in scratch."""
    d = board.n_replicas
    here, there = board.row[a * d : (a + 1) * d], board.row[b * d : (b + 1) * d]
    return bottleneck(board.hop_s, here, there, enough_s, board.reals, board.wholes[0])


@compiled
def _reverse(board: Board, i: int, j: int) -> None:
    """Stages i to j in the opposite order, with all that is known of them."""
    d = board.n_replicas
    kept, kept_s = board.wholes[1], board.reals[0]
    first, last = i, j
    while first < last:
        here, there = board.row[first * d : (first + 1) * d], board.row[last * d : (last + 1) * d]
        kept[:] = here
        here[:] = there
        there[:] = kept
        for q in range(d):
            board.place[here[q]] = first * d + q
            board.place[there[q]] = last * d + q
        kept_s[:] = board.sums_s[first]
        board.sums_s[first] = board.sums_s[last]
        board.sums_s[last] = kept_s
        board.slowest_s[first], board.slowest_s[last] = board.slowest_s[last], board.slowest_s[first]
        first += 1
        last -= 1
    board.worst_s[i:j] = board.worst_s[i:j][::-1].copy()
