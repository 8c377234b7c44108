"""Annealing on the grid: every position counts, a move costs O(D), compiled.

A move swaps two devices (one may be on the bench), or lets two pipelines exchange their tails. What is
annealed is not the cost alone, a sum of maxima and flat almost everywhere: the mean group and the mean
link of each hop are added with a weight, and lead across the plateaus.
"""

from __future__ import annotations

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.kernels.board import (
    Board,
    exchange,
    keep,
    settle_groups,
    settle_links,
    settle_places,
    slowest_but,
    swap,
)
from dtfm_lab.planning.kernels.draw import State, below, uniform
from dtfm_lab.planning.kernels.matching import bottleneck

GROUP_WEIGHT, LINK_WEIGHT = 0.3, 1.0
"""of the mean group and of the mean links"""
TAILS = 0.2
"""share of moves that exchange tails"""
NEARBY = 0.3
"""share of swaps with a device that is placed alike in the network"""
REMATCH_EVERY = 256
"""moves a device, between two exact pairings of all hops"""


@compiled
def anneal_grid(
    board: Board,
    hot_s: float,
    cold_s: float,
    first_share: float,
    last_share: float,
    n_moves: int,
    state: State,
    best: IntArray,
) -> float:
    """Metropolis' walk of ``n_moves`` while the temperature falls from ``hot_s`` to ``cold_s``.

    The mean terms count by ``first_share`` of their weights at first and by ``last_share`` in the end.
    ``best`` (N,) becomes the cheapest row seen; its cost in seconds is returned. The board's row is
    where the walk starts and becomes where it ends.
    """
    n_stages, d, n = board.n_stages, board.n_replicas, len(board.row)
    placed = n_stages * d
    group_weight, link_weight = 0.0, 0.0
    hops, news_s = np.empty((4, 3), np.int64), np.empty((4, 3))
    settle_places(board)
    settle_groups(board)
    settle_links(board)
    best[:] = board.row
    best_s = np.inf
    slowest_s, groups_s, worst_s, now_s = 0.0, 0.0, 0.0, 0.0
    temperature_s, cooling = hot_s, np.log(cold_s / hot_s)
    for move in range(n_moves):
        if move % (REMATCH_EVERY * n) == 0:
            rematch(board)
            slowest_s, worst_s = board.slowest_s.max(), board.worst_s.sum()
            if slowest_s + worst_s < best_s - 1e-12:
                best_s = slowest_s + worst_s
                best[:] = board.row
        if move % 256 == 0:
            temperature_s = hot_s * np.exp(cooling * move / n_moves)
            share = first_share + (last_share - first_share) * move / n_moves
            group_weight, link_weight = share * GROUP_WEIGHT / n_stages, share * LINK_WEIGHT / d
            slowest_s, groups_s, worst_s = board.slowest_s.max(), board.slowest_s.sum(), board.worst_s.sum()
            now_s = slowest_s + group_weight * groups_s + worst_s + link_weight * board.links_s.sum()
        most_s = now_s - temperature_s * np.log(1.0 - uniform(state))
        if n_stages > 1 and d > 1 and uniform(state) < TAILS:
            s, i, j = below(state, n_stages - 1), below(state, d), below(state, d)
            if i == j:
                continue
            hops[0, 0], hops[0, 1], hops[0, 2] = s, i, j
            news_s[0, 0] = board.hop_s[board.row[s * d + i], board.row[(s + 1) * d + j]]
            news_s[0, 1] = board.hop_s[board.row[s * d + j], board.row[(s + 1) * d + i]]
            worst_change_s, link_change_s = _hop_changes(board, hops, news_s, 1)
            after_s = now_s + worst_change_s + link_weight * link_change_s
            if after_s <= most_s:
                _commit_hops(board, hops, news_s, 1)
                _exchange_tails(board, s, i, j)
                worst_s += worst_change_s
                now_s = after_s
                if slowest_s + worst_s < best_s - 1e-12:
                    best_s = slowest_s + worst_s
                    best[:] = board.row
            continue
        p = below(state, n)
        if uniform(state) < NEARBY:
            q = board.place[board.near[board.row[p], below(state, board.near.shape[1])]]
        else:
            q = below(state, n)
        if p > q:
            p, q = q, p
        if p >= placed or board.classes[board.row[p]] == board.classes[board.row[q]]:
            continue
        s, i, t, j = p // d, p % d, min(q // d, n_stages), q % d
        if q >= placed:
            j = q - placed
        count = _touched(board, s, i, t, j, hops, news_s)
        worst_change_s, link_change_s = _hop_changes(board, hops, news_s, count)
        path_s = worst_s + worst_change_s
        after_s = now_s + worst_change_s + link_weight * link_change_s
        if s == t:
            if after_s > most_s:
                continue
            swap(board, p, q)
            board.sums_s[s, i], board.sums_s[s, j] = board.sums_s[s, j], board.sums_s[s, i]
        else:
            others_s = slowest_but(board, s, t)
            left_s = board.slowest_s[s] + (board.slowest_s[t] if t < n_stages else 0.0)
            least_s = after_s - slowest_s + others_s - group_weight * left_s
            if least_s > most_s:
                continue
            exchange(board, s, i, t, j)
            first_s = board.reals[d + 2].max()
            second_s = board.reals[d + 3].max() if t < n_stages else 0.0
            new_slowest_s = max(others_s, first_s, second_s)
            after_s += new_slowest_s - slowest_s + group_weight * (first_s + second_s - left_s)
            if after_s > most_s:
                continue
            swap(board, p, q)
            keep(board, s, d + 2, first_s)
            if t < n_stages:
                keep(board, t, d + 3, second_s)
            slowest_s = new_slowest_s
        _commit_hops(board, hops, news_s, count)
        worst_s, now_s = path_s, after_s
        if slowest_s + worst_s < best_s - 1e-12:
            best_s = slowest_s + worst_s
            best[:] = board.row
    rematch(board)
    end_s = board.slowest_s.max() + board.worst_s.sum()
    if end_s < best_s - 1e-12:
        best_s = end_s
        best[:] = board.row
    return float(best_s)


@compiled
def rematch(board: Board) -> None:
    """Pair every two neighbouring groups as well as can be, where that is better than they are."""
    d = board.n_replicas
    row_of, tail = board.wholes[0], board.wholes[1]
    for s in range(board.n_stages - 1):
        here, there = board.row[s * d : (s + 1) * d], board.row[(s + 1) * d : (s + 2) * d]
        if bottleneck(board.hop_s, here, there, np.inf, board.reals, row_of) >= board.worst_s[s]:
            continue
        for t in range(s + 1, board.n_stages):
            stage = board.row[t * d : (t + 1) * d]
            tail[:] = stage
            stage[row_of] = tail
            tail_s = board.reals[d]
            tail_s[:] = board.sums_s[t]
            board.sums_s[t][row_of] = tail_s
        settle_places(board)
        settle_links(board)


@compiled
def _touched(board: Board, s: int, i: int, t: int, j: int, hops: IntArray, news_s: FloatArray) -> int:
    """List the hops that a swap of (s, i) and (t, j) changes: (hop, link, other link or -1), new seconds of each."""
    d, row, hop_s, last = board.n_replicas, board.row, board.hop_s, board.n_stages - 1
    a, b = row[s * d + i], row[t * d + j]
    n = 0
    if s == t:
        if s > 0:
            hops[n, 0], hops[n, 1], hops[n, 2] = s - 1, i, j
            news_s[n, 0], news_s[n, 1] = hop_s[row[(s - 1) * d + i], b], hop_s[row[(s - 1) * d + j], a]
            n += 1
        if s < last:
            hops[n, 0], hops[n, 1], hops[n, 2] = s, i, j
            news_s[n, 0], news_s[n, 1] = hop_s[b, row[(s + 1) * d + i]], hop_s[a, row[(s + 1) * d + j]]
            n += 1
        return n
    if s > 0:
        hops[n, 0], hops[n, 1], hops[n, 2] = s - 1, i, -1
        news_s[n, 0] = hop_s[row[(s - 1) * d + i], b]
        n += 1
    if t == s + 1 and t <= last:
        hops[n, 0], hops[n, 1], hops[n, 2] = s, i, j
        if i == j:
            hops[n, 2] = -1
            news_s[n, 0] = hop_s[b, a]
        else:
            news_s[n, 0], news_s[n, 1] = hop_s[b, row[t * d + i]], hop_s[row[s * d + j], a]
        n += 1
    else:
        if s < last:
            hops[n, 0], hops[n, 1], hops[n, 2] = s, i, -1
            news_s[n, 0] = hop_s[b, row[(s + 1) * d + i]]
            n += 1
        if t <= last:
            hops[n, 0], hops[n, 1], hops[n, 2] = t - 1, j, -1
            news_s[n, 0] = hop_s[row[(t - 1) * d + j], a]
            n += 1
    if t < last:
        hops[n, 0], hops[n, 1], hops[n, 2] = t, j, -1
        news_s[n, 0] = hop_s[a, row[(t + 1) * d + j]]
        n += 1
    return n


@compiled
def _hop_changes(board: Board, hops: IntArray, news_s: FloatArray, count: int) -> tuple[float, float]:
    """Change of the sum of worst links and of the sum of all; ``news_s[:, 2]`` becomes each hop's new worst."""
    worst_change_s, link_change_s = 0.0, 0.0
    for k in range(count):
        h, i, j = hops[k, 0], hops[k, 1], hops[k, 2]
        old_s, new_s = board.links_s[h, i], news_s[k, 0]
        link_change_s += new_s - old_s
        if j >= 0:
            link_change_s += news_s[k, 1] - board.links_s[h, j]
            old_s, new_s = max(old_s, board.links_s[h, j]), max(new_s, news_s[k, 1])
        worst_s = board.worst_s[h]
        if new_s < worst_s and old_s < worst_s:
            new_s = worst_s
        elif new_s < worst_s:  # the worst link left: who is next?
            for r in range(board.n_replicas):
                if r != i and r != j and board.links_s[h, r] > new_s:
                    new_s = board.links_s[h, r]
        news_s[k, 2] = new_s
        worst_change_s += new_s - worst_s
    return worst_change_s, link_change_s


@compiled
def _commit_hops(board: Board, hops: IntArray, news_s: FloatArray, count: int) -> None:
    for k in range(count):
        board.links_s[hops[k, 0], hops[k, 1]] = news_s[k, 0]
        if hops[k, 2] >= 0:
            board.links_s[hops[k, 0], hops[k, 2]] = news_s[k, 1]
        board.worst_s[hops[k, 0]] = news_s[k, 2]


@compiled
def _exchange_tails(board: Board, s: int, i: int, j: int) -> None:
    """Pipelines i and j change places after stage s (or before it, where that is less to do); hop s is done."""
    d = board.n_replicas
    first, last = (s + 1, board.n_stages) if 2 * (s + 1) > board.n_stages else (0, s + 1)
    for t in range(first, last):
        swap(board, t * d + i, t * d + j)
        board.sums_s[t, i], board.sums_s[t, j] = board.sums_s[t, j], board.sums_s[t, i]
    # links between two exchanged stages go along; hop s itself keeps the order of the stages that stayed
    hops = range(s + 1, board.n_stages - 1) if first else range(s + 1)
    for h in hops:
        board.links_s[h, i], board.links_s[h, j] = board.links_s[h, j], board.links_s[h, i]
