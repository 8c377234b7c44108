"""Simulated annealing on groups in stage order. The cost of a hop is its bottleneck matching. Compiled.

A move swaps two devices of different groups (or a placed one with an idle one), or reverses a run of stages. The
acceptance threshold is drawn before the move. Often the change of the groups, found in O(D), already exceeds it, and
the move is rejected without a matching. A matching stops as soon as it exceeds what the threshold leaves.

Source: Kirkpatrick, Gelatt and Vecchi, *Optimization by simulated annealing* (1983). An alternative moves devices on a
grid whose columns are the pipelines. Its moves take a fifteenth of the time. In equal time they find nothing better,
because the best pairing of a new group then needs a search too.
"""

from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.compiling import compiled, inlined
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.kernels.coarsened_graph import bottleneck
from dtfm_lab.planning.kernels.random_numbers import RandomState, below, uniform

GROUP_WEIGHT = 0.1
"""Weight of the mean group's cost. Annealing adds it to the cost of the slowest group, which gives a direction on
plateaus. Chosen by hand."""
REVERSALS = 0.1
"""Share of moves that reverse a run of stages. Chosen by hand. A reversal needs at most two matchings (it is the 2-opt
move). Only reversals repair a path that crosses the network twice."""
SIMILAR_SHARE = 0.3
"""Share of swaps in which the partner is one of the device's most similar devices. Chosen by hand."""
COOLED_EVERY = 64
"""Number of moves after which the temperature is lowered. Chosen by hand: an exponential takes as long as a small move.
The path's sum is also recomputed then, before rounding errors add up."""
BETTER = 1e-9
"""Relative gain above which a row replaces the best one, larger than rounding errors. Chosen by hand."""


class AnnealingState(NamedTuple):
    """The row of devices that is annealed, with its costs.

    It holds all N devices: S stages of D replicas at positions stage x D + replica, followed by the idle ones.
    """

    n_stages: int
    n_replicas: int
    group_s: FloatArray
    """(N, N) seconds that two devices cost as partners in a group (``PairCosts``)."""
    hop_s: FloatArray
    """(N, N) seconds that two devices cost as neighbours in a pipeline (``PairCosts``)."""
    classes: IntArray
    """(N,) class of each device. Swapping two devices of one class changes nothing."""
    similar: IntArray
    """(N, K) the K most similar other devices of each device. Swapping two such devices changes the cost little."""
    row: IntArray
    """(N,) device at each position."""
    place: IntArray
    """(N,) position of each device."""
    sums_s: FloatArray
    """(S, D) sum of each placed device's costs to its partners."""
    slowest_s: FloatArray
    """(S,) largest entry of ``sums_s`` in each group."""
    worst_s: FloatArray
    """(S - 1,) cost of each hop: its bottleneck matching."""
    reals: FloatArray
    """(D + 4, D) working memory: D + 2 rows for matchings, and two for the sums of changed groups."""
    integers: IntArray
    """(2, D) working memory: a row for the partners of a matching, and one for devices that change places."""


def annealing_state(
    group_s: FloatArray, hop_s: FloatArray, classes: IntArray, similar: IntArray, n_stages: int, n_replicas: int
) -> AnnealingState:
    """Return a state whose row has the devices in order of index. The caller sets ``row``, and the ``recompute``
    functions derive the rest from it."""
    s, d, n_hops = n_stages, n_replicas, max(n_stages - 1, 1)
    row = np.arange(len(hop_s))
    sums = np.zeros((s, d)), np.zeros(s), np.zeros(n_hops)
    scratch = np.zeros((d + 4, d)), np.zeros((2, d), dtype=np.int64)
    return AnnealingState(s, d, group_s, hop_s, classes, similar, row, row.copy(), *sums, *scratch)


@compiled
def swap(state: AnnealingState, p: int, q: int) -> None:
    """Exchange the devices at positions p and q of the row. The caller updates the costs."""
    a, b = state.row[p], state.row[q]
    state.row[p], state.row[q] = b, a
    state.place[a], state.place[b] = q, p


@compiled
def recompute_places(state: AnnealingState) -> None:
    """Recompute ``place`` from ``row``."""
    for p in range(len(state.row)):
        state.place[state.row[p]] = p


@compiled
def recompute_groups(state: AnnealingState) -> None:
    """Recompute ``sums_s`` and ``slowest_s`` from the row."""
    d = state.n_replicas
    for s in range(state.n_stages):
        state.slowest_s[s] = 0.0
        for i in range(d):
            device, total_s = state.row[s * d + i], 0.0
            for j in range(d):
                if j != i:
                    total_s += state.group_s[device, state.row[s * d + j]]
            state.sums_s[s, i] = total_s
            state.slowest_s[s] = max(state.slowest_s[s], total_s)


@compiled
def exchanged_sums(state: AnnealingState, s: int, i: int, t: int, j: int) -> None:
    """Compute the groups' sums after the devices at (s, i) and (t, j) are exchanged, without exchanging them.

    Rows D + 2 and D + 3 of ``reals`` become the sums of groups s and t. ``t == S`` means the idle devices.
    """
    d = state.n_replicas
    a, b = state.row[s * d + i], state.row[t * d + j]
    _sums_after(state, s, i, a, b, d + 2)
    if t < state.n_stages:
        _sums_after(state, t, j, b, a, d + 3)


@compiled
def _sums_after(state: AnnealingState, s: int, i: int, gone: int, new: int, at: int) -> None:
    d = state.n_replicas
    total_s = 0.0
    for q in range(d):
        if q != i:
            partner = state.row[s * d + q]
            cost_s = state.group_s[new, partner]
            state.reals[at, q] = state.sums_s[s, q] - state.group_s[gone, partner] + cost_s
            total_s += cost_s
    state.reals[at, i] = total_s


@compiled
def slowest_except(state: AnnealingState, s: int, t: int) -> float:
    """Return the cost of the slowest of all groups other than s and t."""
    found_s = 0.0
    for g in range(state.n_stages):
        if g != s and g != t and state.slowest_s[g] > found_s:
            found_s = state.slowest_s[g]
    return found_s


@compiled
def set_sums(state: AnnealingState, s: int, at: int, slowest_s: float) -> None:
    """Set the sums of group s to row ``at`` of ``reals``, and its slowest member's to ``slowest_s``."""
    state.sums_s[s] = state.reals[at]
    state.slowest_s[s] = slowest_s


@compiled
def anneal_groups(
    state: AnnealingState, hot_s: float, cold_s: float, n_moves: int, random: RandomState, best: IntArray
) -> float:
    """Take ``n_moves`` Metropolis steps while the temperature falls from ``hot_s`` to ``cold_s``.

    The steps begin with the state's row and change it. ``best`` (N,) becomes the cheapest row seen, and its cost in
    seconds is returned. The columns of ``best`` are not pipelines yet: call ``align``.
    """
    n_stages = state.n_stages
    # the weight is for the mean group, but the loop below keeps the sum over groups
    group_weight = GROUP_WEIGHT / n_stages
    # a swap changes two stages, each with a hop before and after it
    hops, new_links_s = np.empty(4, np.int64), np.empty(4)
    recompute_places(state)
    recompute_groups(state)
    for s in range(n_stages - 1):
        state.worst_s[s] = _weight(state, s, s + 1, np.inf)
    cheapest_s = _cheapest_hop(state.hop_s)
    slowest_s, groups_s, path_s = state.slowest_s.max(), state.slowest_s.sum(), state.worst_s.sum()
    best_s = slowest_s + path_s
    best[:] = state.row
    temperature_s, cooling = hot_s, np.log(cold_s / hot_s)
    for move in range(n_moves):
        if move % COOLED_EVERY == 0:
            temperature_s = hot_s * np.exp(cooling * move / n_moves)
            path_s = state.worst_s.sum()
        now_s = slowest_s + group_weight * groups_s + path_s
        # Metropolis: accept up to this cost. It is drawn first, so that a move can be rejected before its matchings.
        most_s = now_s - temperature_s * np.log(1.0 - uniform(random))
        if n_stages > 2 and uniform(random) < REVERSALS:
            kept, path_change_s = _try_reversal(state, most_s - now_s, random)
            if not kept:
                continue
        else:
            kept, slowest_s, groups_change_s, path_change_s = _try_swap(
                state, now_s, most_s, slowest_s, group_weight, cheapest_s, hops, new_links_s, random
            )
            if not kept:
                continue
            groups_s += groups_change_s
        path_s += path_change_s
        if slowest_s + path_s < best_s - BETTER * best_s:
            best_s = slowest_s + path_s
            best[:] = state.row
    return float(best_s)


@inlined
def _cheapest_hop(hop_s: FloatArray) -> float:
    """Return the seconds of the cheapest hop between any two devices."""
    cheapest_s = np.inf
    for a in range(len(hop_s)):
        for b in range(len(hop_s)):
            if a != b:
                cheapest_s = min(cheapest_s, hop_s[a, b])
    return cheapest_s


@inlined
def _try_reversal(state: AnnealingState, room_s: float, random: RandomState) -> tuple[bool, float]:
    """Reverse a run of stages if the path grows by at most ``room_s``. Return True if it was reversed, and the change
    of the path in seconds.

    Groups and the hops within the run stay the same. Only the hops at its two ends are matched again.
    """
    n_stages = state.n_stages
    i, j = below(random, n_stages), below(random, n_stages)
    if i > j:
        i, j = j, i
    # reversing the whole path changes no hop
    if i == j or (i == 0 and j == n_stages - 1):
        return False, 0.0
    before_s = state.worst_s[i - 1] if i > 0 else 0.0
    after_s = state.worst_s[j] if j < n_stages - 1 else 0.0
    # the two hops at the ends are replaced, so what they cost now may be spent again
    room_s = room_s + before_s + after_s
    new_before_s, new_after_s = 0.0, 0.0
    if i > 0:
        new_before_s = _weight(state, i - 1, j, room_s)
    if j < n_stages - 1 and new_before_s <= room_s:
        new_after_s = _weight(state, i, j + 1, room_s - new_before_s)
    if new_before_s + new_after_s > room_s:
        return False, 0.0
    _reverse(state, i, j)
    if i > 0:
        state.worst_s[i - 1] = new_before_s
    if j < n_stages - 1:
        state.worst_s[j] = new_after_s
    return True, new_before_s + new_after_s - before_s - after_s


@inlined
def _try_swap(
    state: AnnealingState,
    now_s: float,
    most_s: float,
    slowest_s: float,
    group_weight: float,
    cheapest_s: float,
    hops: IntArray,
    new_links_s: FloatArray,
    random: RandomState,
) -> tuple[bool, float, float, float]:
    """Swap two devices of different groups, or one with an idle one, if the total then costs at most ``most_s``.

    Returns True if they were swapped, the seconds of the slowest group, and the changes of the groups' sum and of the
    path. Groups are priced first, in O(D). A changed hop costs at least the new device's cheapest link, so most moves
    are rejected before any matching. ``now_s`` is the present total and ``slowest_s`` the present slowest group.
    ``hops`` and ``new_links_s`` are (4,) scratch.
    """
    n_stages, d = state.n_stages, state.n_replicas
    p = below(random, len(state.row))
    if uniform(random) < SIMILAR_SHARE:
        q = state.place[state.similar[state.row[p], below(random, state.similar.shape[1])]]
    else:
        q = below(random, len(state.row))
    if p > q:
        p, q = q, p  # idle devices are last, so only q can be idle
    s, t = p // d, min(q // d, n_stages)
    if s >= n_stages or s == t or state.classes[state.row[p]] == state.classes[state.row[q]]:
        return False, slowest_s, 0.0, 0.0
    exchanged_sums(state, s, p - s * d, t, q - t * d)
    first_s = state.reals[d + 2].max()
    second_s = state.reals[d + 3].max() if t < n_stages else 0.0
    left_s = state.slowest_s[s] + (state.slowest_s[t] if t < n_stages else 0.0)
    new_slowest_s = max(slowest_except(state, s, t), first_s, second_s)
    count, old_path_s = _changed_hops(state, s, t, hops)
    groups_change_s = group_weight * (first_s + second_s - left_s)
    room_s = most_s - (now_s + new_slowest_s - slowest_s + groups_change_s - old_path_s)
    if count * cheapest_s > room_s:
        return False, slowest_s, 0.0, 0.0
    swap(state, p, q)
    # a matching uses a link of every device, so each new device's cheapest link bounds its hops
    least_s = 0.0
    for k in range(count):
        new_links_s[k] = 0.0
        h = hops[k]
        if h == s - 1 or h == s:
            new_links_s[k] = _cheapest_link(state, p, s - 1 if h == s - 1 else s + 1)
        if t < n_stages and (h == t - 1 or h == t):
            # a hop between s and t has two new devices; the larger bound holds
            new_links_s[k] = max(new_links_s[k], _cheapest_link(state, q, t - 1 if h == t - 1 else t + 1))
        least_s += new_links_s[k]
    new_path_s = 0.0
    for k in range(count):
        if new_path_s + least_s > room_s:
            new_path_s = np.inf
            break
        least_s -= new_links_s[k]
        new_links_s[k] = _weight(state, hops[k], hops[k] + 1, room_s - new_path_s - least_s)
        new_path_s += new_links_s[k]
    if new_path_s > room_s:
        swap(state, p, q)
        return False, slowest_s, 0.0, 0.0
    # the matchings do not overwrite the scratch rows of the sums
    set_sums(state, s, d + 2, first_s)
    if t < n_stages:
        set_sums(state, t, d + 3, second_s)
    for k in range(count):
        state.worst_s[hops[k]] = new_links_s[k]
    return True, new_slowest_s, first_s + second_s - left_s, new_path_s - old_path_s


@inlined
def _changed_hops(state: AnnealingState, s: int, t: int, hops: IntArray) -> tuple[int, float]:
    """Fill ``hops`` with the hops before and after stages s and t, each once. Return how many they are and their
    present seconds."""
    count, old_path_s = 0, 0.0
    for h in (s - 1, s, t - 1, t):
        # if s and t are neighbours, the hop between them is in the list twice
        known = False
        for k in range(count):
            known |= hops[k] == h
        if h >= 0 and h < state.n_stages - 1 and not known:
            hops[count] = h
            old_path_s += state.worst_s[h]
            count += 1
    return count, old_path_s


@compiled
def align(state: AnnealingState) -> None:
    """Reorder the devices within each stage of the row so that its columns are pipelines, paired by the bottleneck
    matchings."""
    d = state.n_replicas
    row_of, kept = state.integers[0], state.integers[1]
    for s in range(state.n_stages - 1):
        # without a limit the matching is completed, so the partners in scratch are valid
        _weight(state, s, s + 1, np.inf)
        there = state.row[(s + 1) * d : (s + 2) * d]
        kept[:] = there
        there[row_of] = kept


@compiled
def _cheapest_link(state: AnnealingState, p: int, stage: int) -> float:
    """Return the cost of the cheapest link from the device at position p to a device of the stage."""
    d, device, found_s = state.n_replicas, state.row[p], np.inf
    for i in range(stage * d, (stage + 1) * d):
        found_s = min(found_s, state.hop_s[device, state.row[i]])
    return float(found_s)


@compiled
def _weight(state: AnnealingState, a: int, b: int, enough_s: float) -> float:
    """Return the seconds of the bottleneck matching of stages a and b, or some number above ``enough_s``. Row 0 of
    ``integers`` becomes the partners."""
    d = state.n_replicas
    here, there = state.row[a * d : (a + 1) * d], state.row[b * d : (b + 1) * d]
    return bottleneck(state.hop_s, here, there, enough_s, state.reals, state.integers[0])


@compiled
def _reverse(state: AnnealingState, i: int, j: int) -> None:
    """Reverse the order of stages i to j in the row, with the costs of their groups and of the hops between them."""
    d = state.n_replicas
    kept, kept_s = state.integers[1], state.reals[0]
    first, last = i, j
    while first < last:
        here, there = state.row[first * d : (first + 1) * d], state.row[last * d : (last + 1) * d]
        kept[:] = here
        here[:] = there
        there[:] = kept
        for q in range(d):
            state.place[here[q]] = first * d + q
            state.place[there[q]] = last * d + q
        kept_s[:] = state.sums_s[first]
        state.sums_s[first] = state.sums_s[last]
        state.sums_s[last] = kept_s
        state.slowest_s[first], state.slowest_s[last] = state.slowest_s[last], state.slowest_s[first]
        first += 1
        last -= 1
    state.worst_s[i:j] = state.worst_s[i:j][::-1].copy()
