"""Simulated annealing on the grid, whose columns are pipelines; a move costs O(D). Compiled.

A move swaps two devices (one may be idle), or exchanges the tails of two pipelines. The objective is not the cost
alone, which is a sum of maxima and constant almost everywhere: the mean group and the mean link of each hop are added
with a weight, and give a direction on the plateaus.
"""

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.kernels.annealing_state import (
    SIMILAR_SHARE,
    AnnealingState,
    exchanged_sums,
    recompute_groups,
    recompute_links,
    recompute_places,
    set_sums,
    slowest_except,
    swap,
)
from dtfm_lab.planning.kernels.coarsened_graph import bottleneck
from dtfm_lab.planning.kernels.random_numbers import RandomState, below, uniform

GROUP_WEIGHT, LINK_WEIGHT = 0.3, 1.0
"""Weights of the mean group and of the mean links."""
TAILS = 0.2
"""Share of moves that exchange the tails of two pipelines."""
REMATCH_EVERY = 256
"""Moves per device between two exact matchings of all hops."""


@compiled
def anneal_grid(
    state: AnnealingState,
    hot_s: float,
    cold_s: float,
    first_share: float,
    last_share: float,
    n_moves: int,
    random: RandomState,
    best: IntArray,
) -> float:
    """Metropolis steps, ``n_moves`` of them, while the temperature falls from ``hot_s`` to ``cold_s``.

    The weights of the mean terms go from ``first_share`` to ``last_share`` of their values. ``best`` (N,) becomes
    the cheapest row seen; its cost in seconds is returned. The state's row is the first and becomes the last.
    """
    n_stages, d, n = state.n_stages, state.n_replicas, len(state.row)
    placed = n_stages * d
    group_weight, link_weight = 0.0, 0.0
    hops, new_links_s = np.empty((4, 3), np.int64), np.empty((4, 3))
    recompute_places(state)
    recompute_groups(state)
    recompute_links(state)
    best[:] = state.row
    best_s = np.inf
    slowest_s, groups_s, worst_s, now_s = 0.0, 0.0, 0.0, 0.0
    temperature_s, cooling = hot_s, np.log(cold_s / hot_s)
    for move in range(n_moves):
        if move % (REMATCH_EVERY * n) == 0:
            rematch(state)
            slowest_s, worst_s = state.slowest_s.max(), state.worst_s.sum()
            if slowest_s + worst_s < best_s - 1e-12:
                best_s = slowest_s + worst_s
                best[:] = state.row
        if move % 256 == 0:
            temperature_s = hot_s * np.exp(cooling * move / n_moves)
            share = first_share + (last_share - first_share) * move / n_moves
            group_weight, link_weight = share * GROUP_WEIGHT / n_stages, share * LINK_WEIGHT / d
            slowest_s, groups_s, worst_s = state.slowest_s.max(), state.slowest_s.sum(), state.worst_s.sum()
            now_s = slowest_s + group_weight * groups_s + worst_s + link_weight * state.links_s.sum()
        most_s = now_s - temperature_s * np.log(1.0 - uniform(random))
        if n_stages > 1 and d > 1 and uniform(random) < TAILS:
            s, i, j = below(random, n_stages - 1), below(random, d), below(random, d)
            if i == j:
                continue
            hops[0, 0], hops[0, 1], hops[0, 2] = s, i, j
            new_links_s[0, 0] = state.hop_s[state.row[s * d + i], state.row[(s + 1) * d + j]]
            new_links_s[0, 1] = state.hop_s[state.row[s * d + j], state.row[(s + 1) * d + i]]
            worst_change_s, link_change_s = _hop_changes(state, hops, new_links_s, 1)
            after_s = now_s + worst_change_s + link_weight * link_change_s
            if after_s <= most_s:
                _commit_hops(state, hops, new_links_s, 1)
                _exchange_tails(state, s, i, j)
                worst_s += worst_change_s
                now_s = after_s
                if slowest_s + worst_s < best_s - 1e-12:
                    best_s = slowest_s + worst_s
                    best[:] = state.row
            continue
        # written out in both annealers: a call would count references to the state's arrays, a sixth of the time
        p = below(random, len(state.row))
        if uniform(random) < SIMILAR_SHARE:
            q = state.place[state.similar[state.row[p], below(random, state.similar.shape[1])]]
        else:
            q = below(random, len(state.row))
        if p > q:
            p, q = q, p
        if p >= placed or state.classes[state.row[p]] == state.classes[state.row[q]]:
            continue
        s, i, t, j = p // d, p % d, min(q // d, n_stages), q % d
        if q >= placed:
            j = q - placed
        count = _touched(state, s, i, t, j, hops, new_links_s)
        worst_change_s, link_change_s = _hop_changes(state, hops, new_links_s, count)
        path_s = worst_s + worst_change_s
        after_s = now_s + worst_change_s + link_weight * link_change_s
        if s == t:
            if after_s > most_s:
                continue
            swap(state, p, q)
            state.sums_s[s, i], state.sums_s[s, j] = state.sums_s[s, j], state.sums_s[s, i]
        else:
            others_s = slowest_except(state, s, t)
            left_s = state.slowest_s[s] + (state.slowest_s[t] if t < n_stages else 0.0)
            least_s = after_s - slowest_s + others_s - group_weight * left_s
            if least_s > most_s:
                continue
            exchanged_sums(state, s, i, t, j)
            first_s = state.reals[d + 2].max()
            second_s = state.reals[d + 3].max() if t < n_stages else 0.0
            new_slowest_s = max(others_s, first_s, second_s)
            after_s += new_slowest_s - slowest_s + group_weight * (first_s + second_s - left_s)
            if after_s > most_s:
                continue
            swap(state, p, q)
            set_sums(state, s, d + 2, first_s)
            if t < n_stages:
                set_sums(state, t, d + 3, second_s)
            slowest_s = new_slowest_s
        _commit_hops(state, hops, new_links_s, count)
        worst_s, now_s = path_s, after_s
        if slowest_s + worst_s < best_s - 1e-12:
            best_s = slowest_s + worst_s
            best[:] = state.row
    rematch(state)
    end_s = state.slowest_s.max() + state.worst_s.sum()
    if end_s < best_s - 1e-12:
        best_s = end_s
        best[:] = state.row
    return float(best_s)


@compiled
def rematch(state: AnnealingState) -> None:
    """Pair every two neighbouring groups by the bottleneck matching, where that is cheaper than the columns are."""
    d = state.n_replicas
    row_of, tail = state.integers[0], state.integers[1]
    for s in range(state.n_stages - 1):
        here, there = state.row[s * d : (s + 1) * d], state.row[(s + 1) * d : (s + 2) * d]
        if bottleneck(state.hop_s, here, there, np.inf, state.reals, row_of) >= state.worst_s[s]:
            continue
        for t in range(s + 1, state.n_stages):
            stage = state.row[t * d : (t + 1) * d]
            tail[:] = stage
            stage[row_of] = tail
            tail_s = state.reals[d]
            tail_s[:] = state.sums_s[t]
            state.sums_s[t][row_of] = tail_s
        recompute_places(state)
        recompute_links(state)


@compiled
def _touched(state: AnnealingState, s: int, i: int, t: int, j: int, hops: IntArray, new_links_s: FloatArray) -> int:
    """List the hops that a swap of (s, i) and (t, j) changes, as (hop, link, other link or -1), and their new costs."""
    d, row, hop_s, last = state.n_replicas, state.row, state.hop_s, state.n_stages - 1
    a, b = row[s * d + i], row[t * d + j]
    n = 0
    if s == t:
        if s > 0:
            hops[n, 0], hops[n, 1], hops[n, 2] = s - 1, i, j
            new_links_s[n, 0], new_links_s[n, 1] = hop_s[row[(s - 1) * d + i], b], hop_s[row[(s - 1) * d + j], a]
            n += 1
        if s < last:
            hops[n, 0], hops[n, 1], hops[n, 2] = s, i, j
            new_links_s[n, 0], new_links_s[n, 1] = hop_s[b, row[(s + 1) * d + i]], hop_s[a, row[(s + 1) * d + j]]
            n += 1
        return n
    if s > 0:
        hops[n, 0], hops[n, 1], hops[n, 2] = s - 1, i, -1
        new_links_s[n, 0] = hop_s[row[(s - 1) * d + i], b]
        n += 1
    if t == s + 1 and t <= last:
        hops[n, 0], hops[n, 1], hops[n, 2] = s, i, j
        if i == j:
            hops[n, 2] = -1
            new_links_s[n, 0] = hop_s[b, a]
        else:
            new_links_s[n, 0], new_links_s[n, 1] = hop_s[b, row[t * d + i]], hop_s[row[s * d + j], a]
        n += 1
    else:
        if s < last:
            hops[n, 0], hops[n, 1], hops[n, 2] = s, i, -1
            new_links_s[n, 0] = hop_s[b, row[(s + 1) * d + i]]
            n += 1
        if t <= last:
            hops[n, 0], hops[n, 1], hops[n, 2] = t - 1, j, -1
            new_links_s[n, 0] = hop_s[row[(t - 1) * d + j], a]
            n += 1
    if t < last:
        hops[n, 0], hops[n, 1], hops[n, 2] = t, j, -1
        new_links_s[n, 0] = hop_s[a, row[(t + 1) * d + j]]
        n += 1
    return n


@compiled
def _hop_changes(state: AnnealingState, hops: IntArray, new_links_s: FloatArray, count: int) -> tuple[float, float]:
    """Changes of the sums of worst links and of all links; ``new_links_s[:, 2]`` becomes each hop's new worst link."""
    worst_change_s, link_change_s = 0.0, 0.0
    for k in range(count):
        h, i, j = hops[k, 0], hops[k, 1], hops[k, 2]
        old_s, new_s = state.links_s[h, i], new_links_s[k, 0]
        link_change_s += new_s - old_s
        if j >= 0:
            link_change_s += new_links_s[k, 1] - state.links_s[h, j]
            old_s, new_s = max(old_s, state.links_s[h, j]), max(new_s, new_links_s[k, 1])
        worst_s = state.worst_s[h]
        if new_s < worst_s and old_s < worst_s:
            new_s = worst_s
        elif new_s < worst_s:  # the worst link changes: find the next worst
            for r in range(state.n_replicas):
                if r != i and r != j and state.links_s[h, r] > new_s:
                    new_s = state.links_s[h, r]
        new_links_s[k, 2] = new_s
        worst_change_s += new_s - worst_s
    return worst_change_s, link_change_s


@compiled
def _commit_hops(state: AnnealingState, hops: IntArray, new_links_s: FloatArray, count: int) -> None:
    for k in range(count):
        state.links_s[hops[k, 0], hops[k, 1]] = new_links_s[k, 0]
        if hops[k, 2] >= 0:
            state.links_s[hops[k, 0], hops[k, 2]] = new_links_s[k, 1]
        state.worst_s[hops[k, 0]] = new_links_s[k, 2]


@compiled
def _exchange_tails(state: AnnealingState, s: int, i: int, j: int) -> None:
    """Exchange pipelines i and j after stage s (or before it, where that is less work); hop s is up to date."""
    d = state.n_replicas
    first, last = (s + 1, state.n_stages) if 2 * (s + 1) > state.n_stages else (0, s + 1)
    for t in range(first, last):
        swap(state, t * d + i, t * d + j)
        state.sums_s[t, i], state.sums_s[t, j] = state.sums_s[t, j], state.sums_s[t, i]
    # links between two exchanged stages move with them; hop s itself keeps the order of the stages that stayed
    hops = range(s + 1, state.n_stages - 1) if first else range(s + 1)
    for h in hops:
        state.links_s[h, i], state.links_s[h, j] = state.links_s[h, j], state.links_s[h, i]
