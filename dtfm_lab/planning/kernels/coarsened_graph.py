"""The coarsened graph, compiled.

Its edges weigh what the bottleneck matching of two groups costs. The functions compute these weights, the shortest open
path, and the total cost after every swap of two devices.
"""

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray

TOURS = 4
"""Number of tours that ``short_path`` builds. It keeps the shortest. Each begins at a different node, goes to the
nearest unvisited node each time, and is then improved."""


@compiled
def bottleneck(
    hop_s: FloatArray, left: IntArray, right: IntArray, enough_s: float, reals: FloatArray, row_of: IntArray
) -> float:
    """Match ``left`` with ``right`` so that the most expensive pair is cheapest. Return the seconds of that pair.

    ``row_of`` becomes, for each of ``right``, its partner's index in ``left``. As soon as the answer is known to exceed
    ``enough_s``, the function returns some number above it, and ``row_of`` is undefined.

    Rows are matched one after the other, each along the augmenting path whose most expensive pair is cheapest. The
    threshold is the most expensive pair so far. It only rises, so any pair up to it can be used freely.

    Parameters
    ----------
    reals
        (D + 2, D) scratch space.
    """
    n = len(left)
    reach = reals[n]
    before = reals[n + 1]
    threshold_s = 0.0
    for j in range(n):
        reach[j] = np.inf
        row_of[j] = -1
    # every row and column pays at least its cheapest pair, which is usually the answer already
    for i in range(n):
        cheapest = np.inf
        for j in range(n):
            cost = hop_s[left[i], right[j]]
            reals[i, j] = cost
            cheapest = min(cheapest, cost)
            reach[j] = min(reach[j], cost)
        threshold_s = max(threshold_s, cheapest)
    for j in range(n):
        threshold_s = max(threshold_s, reach[j])
    if threshold_s > enough_s:
        return threshold_s
    # a free column within the threshold needs no search for an augmenting path
    for i in range(n):
        free = -1
        for j in range(n):
            if row_of[j] < 0 and reals[i, j] <= threshold_s:
                free = j
                break
        if free >= 0:
            row_of[free] = i
            continue
        for j in range(n):
            reach[j] = reals[i, j]
            before[j] = -1.0
        while True:
            nearest, at = np.inf, -1
            for j in range(n):
                if before[j] > -2.0 and reach[j] < nearest:
                    nearest, at = reach[j], j
                    # the threshold never falls, so a cheaper free column would gain nothing
                    if nearest <= threshold_s and row_of[j] < 0:
                        break
            threshold_s = max(threshold_s, nearest)
            if threshold_s > enough_s:
                return threshold_s
            if row_of[at] < 0:
                break
            row = row_of[at]
            came = before[at]
            before[at] = -2.0 - (came + 1.0)  # marks it as visited and keeps its predecessor in the same number
            for j in range(n):
                if before[j] > -2.0 and reals[row, j] < reach[j]:
                    reach[j] = reals[row, j]
                    before[j] = float(at)
        while True:
            came = before[at] if before[at] > -2.0 else -before[at] - 3.0
            if came < 0:
                row_of[at] = i
                break
            row_of[at] = row_of[int(came)]
            at = int(came)
    return threshold_s


@compiled
def coarsen(hop_s: FloatArray, groups: IntArray, weights_s: FloatArray, reals: FloatArray, row_of: IntArray) -> None:
    """Fill (S, S) ``weights_s`` with the bottleneck matchings of every two of the (S, D) groups."""
    for a in range(len(groups)):
        weights_s[a, a] = 0.0
        for b in range(a + 1, len(groups)):
            weights_s[a, b] = bottleneck(hop_s, groups[a], groups[b], np.inf, reals, row_of)
            weights_s[b, a] = weights_s[a, b]


@compiled
def shortest_path(weights_s: FloatArray, reach_s: FloatArray, order: IntArray) -> float:
    """Fill (S,) ``order`` with the cheapest open path and return its seconds (Held and Karp 1962).

    ``reach_s`` is (2^S, S) scratch. Entry (set, node) is the cost of the cheapest path that visits the set and ends at
    the node. Only sets of up to half of the nodes are filled. A path consists of two such halves and the edge between
    them.
    """
    n = len(weights_s)
    all_nodes, half = (1 << n) - 1, (n + 1) // 2
    inside, outside = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    order[0] = 0
    if n == 1:
        return 0.0
    for visited in range(1, all_nodes):
        n_inside = _split(visited, n, inside, outside)
        if n_inside > half:
            continue
        for i in range(n_inside):
            # swapped out and back below: the innermost loop makes no copy of the set
            last = inside[i]
            inside[i] = inside[n_inside - 1]
            least_s = 0.0 if n_inside == 1 else np.inf
            for j in range(n_inside - 1):
                least_s = min(least_s, reach_s[visited ^ (1 << last), inside[j]] + weights_s[last, inside[j]])
            reach_s[visited, last] = least_s
            inside[i] = last
    shortest_s = np.inf
    first_half, tail, head = 0, 0, 0
    for visited in range(1, all_nodes):
        n_inside = _split(visited, n, inside, outside)
        if n_inside == half:
            for i in range(half):
                for j in range(n - half):
                    a, b = inside[i], outside[j]
                    total_s = reach_s[visited, a] + weights_s[a, b] + reach_s[all_nodes ^ visited, b]
                    if total_s < shortest_s:
                        shortest_s, first_half, tail, head = total_s, visited, a, b
    _walk(weights_s, reach_s, first_half, tail, order[:half][::-1])
    _walk(weights_s, reach_s, all_nodes ^ first_half, head, order[half:])
    return shortest_s


@compiled
def _split(visited: int, n: int, inside: IntArray, outside: IntArray) -> int:
    """List the nodes inside and outside a set, in two arrays of (S + 1,), and return the size of the set. It has no
    branches."""
    n_inside = 0
    for node in range(n):
        # both are written in any case: only one index advances, so that no branch is mispredicted
        inside[n_inside] = node
        outside[node - n_inside] = node
        n_inside += (visited >> node) & 1
    return n_inside


@compiled
def _walk(weights_s: FloatArray, reach_s: FloatArray, visited: int, at: int, order: IntArray) -> None:
    """Fill ``order`` with the cheapest path through the nodes of the bit set ``visited`` that ends at node ``at``, last
    node first."""
    for place in range(len(order)):
        order[place] = at
        visited ^= 1 << at
        least_s, before = np.inf, at
        for node in range(len(weights_s)):
            if (visited >> node) & 1 and reach_s[visited, node] + weights_s[at, node] < least_s:
                least_s, before = reach_s[visited, node] + weights_s[at, node], node
        at = before


@compiled
def short_path(weights_s: FloatArray, tour: IntArray, order: IntArray) -> float:
    """Fill (S,) ``order`` with a good path and return its seconds. Use it if there are too many nodes for the exact
    path.

    It builds tours of nearest neighbours from several nodes and improves each by 2-opt and Or-opt. ``tour`` is (S,)
    scratch.
    """
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
def improve_path(weights_s: FloatArray, order: IntArray) -> None:
    """Shorten a path in place: reverse or move segments (2-opt, Or-opt) until neither helps.

    A change within rounding of the weights does not count. Otherwise the search could cycle forever.
    """
    n = len(order)
    piece = np.empty(3, np.int64)
    rounding_s = 1e-12 * max(1.0, weights_s.max())
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
                if change_s < -rounding_s:
                    order[i : j + 1] = order[i : j + 1][::-1].copy()
                    better = True
        # Or-opt: Or (1976) moves segments of up to three nodes
        for length in range(1, min(3, n - 1) + 1):
            for i in range(n - length + 1):
                better |= _move(weights_s, order, i, length, piece, rounding_s)


@compiled
def _move(weights_s: FloatArray, order: IntArray, i: int, length: int, piece: IntArray, rounding_s: float) -> bool:
    """Move the segment of ``length`` nodes at place i to where it costs least, possibly reversed. Return True if that
    helped."""
    n = len(order)
    first, last = order[i], order[i + length - 1]
    gain_s = 0.0
    if i > 0:
        gain_s += weights_s[order[i - 1], first]
    if i + length < n:
        gain_s += weights_s[last, order[i + length]]
    if i > 0 and i + length < n:
        gain_s -= weights_s[order[i - 1], order[i + length]]
    best_s, best_at, turned = gain_s - rounding_s, -1, False
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


@compiled
def exchange_costs(grid: IntArray, group_pair_s: FloatArray, hop_pair_s: FloatArray) -> FloatArray:
    """Return (N, N) seconds after devices a and b of the (S, D) grid change places.

    The stage order is kept, and pipelines are paired again. The diagonal has the cost without an exchange. Entries for
    two devices of one group or two idle ones are infinite, because nothing would change.

    Each exchange changes two groups and at most four hops. Only these are priced again. For 64 devices that takes a few
    milliseconds, so nothing cleverer, such as lower bounds of exchanges, is worth its code.
    """
    (n_stages, n_replicas), n = grid.shape, len(hop_pair_s)
    stage, replica = np.full(n, -1), np.full(n, -1)
    group_s, hop_s = np.empty(n_stages), np.zeros(n_stages)
    reals, row_of = np.empty((n_replicas + 2, n_replicas)), np.empty(n_replicas, np.int64)
    changed = grid.copy()
    for s in range(n_stages):
        for r in range(n_replicas):
            stage[grid[s, r]], replica[grid[s, r]] = s, r
        group_s[s] = slowest_member_s(group_pair_s, grid[s])
        if s:
            hop_s[s] = bottleneck(hop_pair_s, grid[s - 1], grid[s], np.inf, reals, row_of)
    costs = np.full((n, n), np.inf)
    for a in range(n):
        costs[a, a] = group_s.max() + hop_s.sum()
        for b in range(a):
            if stage[a] == stage[b]:
                continue
            if stage[a] >= 0:
                changed[stage[a], replica[a]] = b
            if stage[b] >= 0:
                changed[stage[b], replica[b]] = a
            slowest_s, hops_s = 0.0, 0.0
            for s in range(n_stages):
                here = s == stage[a] or s == stage[b]
                slowest_s = max(slowest_s, slowest_member_s(group_pair_s, changed[s]) if here else group_s[s])
                if s and (here or s - 1 == stage[a] or s - 1 == stage[b]):
                    hops_s += bottleneck(hop_pair_s, changed[s - 1], changed[s], np.inf, reals, row_of)
                else:
                    hops_s += hop_s[s]
            costs[a, b] = costs[b, a] = slowest_s + hops_s
            if stage[a] >= 0:
                changed[stage[a], replica[a]] = a
            if stage[b] >= 0:
                changed[stage[b], replica[b]] = b
    return costs


@compiled
def slowest_member_s(pair_s: FloatArray, group: IntArray) -> float:
    """Return the seconds in which a group synchronises: the cost of its slowest member, equation 2."""
    slowest_s = 0.0
    for a in group:
        own_s = 0.0
        for b in group:
            own_s += pair_s[a, b]
        slowest_s = max(slowest_s, own_s)
    return slowest_s
