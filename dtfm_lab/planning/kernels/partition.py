"""Local search, cost and crossover of partitions, compiled: the loops of ``planners.dtfm``.

A partition is (N,) the group of each device: stages 0 to S - 1, and S for idle devices. The local search is the cyclic
one of Kang and Moon (2000). It only moves devices between stages: an idle device stays idle.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.kernels.coarsened_graph import coarsen, short_path, shortest_path, slowest_member_s
from dtfm_lab.planning.kernels.random_numbers import RandomState, below


class CyclicSearch(NamedTuple):
    """The costs of N devices on S stages of D replicas, and the scratch space for one local search at a time."""

    n_replicas: int
    hop_s: FloatArray
    """(N, N) seconds that two devices cost as neighbours in a pipeline (``PairCosts``)."""
    freed_s: FloatArray
    """(N, N) seconds of two devices as neighbours in a pipeline, minus their seconds as partners in a group."""
    classical: bool
    """True if gains count all links (``_by_all_links``). False if they count only the fastest link within a stage
    (``_by_fastest_link``)."""
    locked: npt.NDArray[np.bool_]
    """(N,) True if the device has moved already in this search."""
    filled: npt.NDArray[np.bool_]
    """(S,) True if the stage has received a device in this search."""
    members: IntArray
    """(N,) scratch: begins with the devices of the current stage."""
    group_gain_s: FloatArray
    """(S + 1,) gain of moving the current device to each group."""
    moved: IntArray
    """(N,) devices of the current cycle in the order of their moves."""
    origin: IntArray
    """(N,) stage that each device in ``moved`` came from."""


def cyclic_search(
    hop_s: FloatArray, group_s: FloatArray, n_stages: int, n_replicas: int, classical: bool
) -> CyclicSearch:
    """Return scratch space for one local search at a time."""
    n = len(hop_s)
    locked, filled = np.zeros(n, dtype=np.bool_), np.zeros(n_stages, dtype=np.bool_)
    members, moved, origin = (np.zeros(n, dtype=np.int64) for _ in range(3))
    gains_s = np.zeros(n_stages + 1)
    return CyclicSearch(n_replicas, hop_s, hop_s - group_s, classical, locked, filled, members, gains_s, moved, origin)


@compiled
def improve(scratch: CyclicSearch, group_of: IntArray) -> None:
    """Improve a partition in place by cycles of moves. Every group keeps its size.

    A cycle begins at the stage whose candidate gains most. The candidate moves to the stage where it gains most, and
    the next candidate comes from that stage. The cycle ends when a candidate moves into the first stage or a stage has
    no candidate left.

    Every move of a cycle could have closed it by going to the first stage instead. The move for which the sum of gains
    is largest does so, and the moves after it are undone. If no sum is positive, all moves of the cycle are undone.

    A device moves at most once in a search. The search ends after S cycles, or with the first cycle after which every
    stage has received a device. That last cycle is undone. It also ends if no stage has a candidate left.
    """
    scratch.locked[:] = False
    scratch.filled[:] = False
    n_stages = len(scratch.filled)
    for cycle in range(n_stages):
        start, most_s = n_stages, -np.inf  # no stage yet; with a literal, numba would compile all below twice
        for group in range(n_stages):
            device, _target, gain_s, _home_s = _candidate(scratch, group_of, group, group)
            if device >= 0 and gain_s > most_s:
                start, most_s = group, gain_s
        if start == n_stages:
            return
        n_moves, kept = _cycle(scratch, group_of, start)
        # moves after the one that closes the cycle are undone, and in the last cycle all of them
        last = scratch.filled.all() or cycle == n_stages - 1
        for i in range(n_moves - 1, -1 if last else kept, -1):
            group_of[scratch.moved[i]] = scratch.origin[i]
        if last:
            return
        group_of[scratch.moved[kept]] = start


@compiled
def _cycle(scratch: CyclicSearch, group_of: IntArray, start: int) -> tuple[int, int]:
    """Move devices, beginning at stage ``start``, until the cycle closes. Return the number of moves, and the index of
    the move that should close the cycle."""
    n_moves, kept, sum_s, most_s = 0, 0, 0.0, 0.0
    group = start
    while True:
        device, target, gain_s, home_s = _candidate(scratch, group_of, group, start)
        if device < 0:
            scratch.filled[start] = True
            break
        if n_moves and sum_s + home_s > most_s:
            kept, most_s = n_moves, sum_s + home_s
        sum_s += gain_s
        scratch.moved[n_moves], scratch.origin[n_moves] = device, group
        n_moves += 1
        group_of[device] = target
        scratch.locked[device] = True
        scratch.filled[target] = True
        group = target
        if group == start:
            break
    return n_moves, kept


@compiled
def _candidate(scratch: CyclicSearch, group_of: IntArray, group: int, home: int) -> tuple[int, int, float, float]:
    """Return the stage's candidate device, its target stage, and the gains in seconds of moving it there and to
    ``home``, the stage where the cycle began.

    The device is -1 if the stage has no candidate. Ties go to the first device and the first stage.
    """
    n_members = 0
    for v in range(len(group_of)):
        # written in any case; only a member advances the end, which saves a branch
        scratch.members[n_members] = v
        n_members += group_of[v] == group
    members = scratch.members[:n_members]
    if scratch.classical:
        return _by_all_links(scratch, group_of, group, home, members)
    return _by_fastest_link(scratch, group_of, group, home, members)


@compiled
def _by_fastest_link(
    scratch: CyclicSearch, group_of: IntArray, group: int, home: int, members: IntArray
) -> tuple[int, int, float, float]:
    """Return the candidate by the paper's gain: the mean hop to the other stage minus the fastest link within its own
    stage.

    The candidate is the device with the fastest link, because a fast link saves more in a pipeline than in a group.
    """
    device, fastest_s = -1, np.inf
    for v in members:
        if not scratch.locked[v]:
            for u in members:
                if u != v and scratch.hop_s[v, u] < fastest_s:
                    device, fastest_s = v, scratch.hop_s[v, u]
    if device < 0:
        return -1, -1, -np.inf, -np.inf
    scratch.group_gain_s[:] = 0.0
    for u in range(len(group_of)):
        scratch.group_gain_s[group_of[u]] += scratch.hop_s[device, u]
    target, most_s = -1, -np.inf
    for other in range(len(scratch.filled)):
        n_there = scratch.n_replicas - (other == home and other != group)  # one device has left home
        scratch.group_gain_s[other] = scratch.group_gain_s[other] / n_there - fastest_s
        if other != group and scratch.group_gain_s[other] > most_s:
            target, most_s = other, scratch.group_gain_s[other]
    if target < 0:
        return -1, -1, -np.inf, -np.inf
    return device, target, most_s, -np.inf if home == group else scratch.group_gain_s[home]


@compiled
def _by_all_links(
    scratch: CyclicSearch, group_of: IntArray, group: int, home: int, members: IntArray
) -> tuple[int, int, float, float]:
    """Return the candidate by the classical gain: how much the move lowers the sum over all links. Links between stages
    cost a hop, links within a stage the exchange of shards.

    The candidate is the device with the largest gain.
    """
    device, target, most_s, home_s = -1, -1, -np.inf, -np.inf
    for v in members:
        if scratch.locked[v]:
            continue
        scratch.group_gain_s[:] = 0.0
        # links to idle devices go to the last entry, which is never read
        for u in range(len(group_of)):
            scratch.group_gain_s[group_of[u]] += scratch.freed_s[v, u]
        for other in range(len(scratch.filled)):
            gain_s = scratch.group_gain_s[other] - scratch.group_gain_s[group]
            if other != group and gain_s > most_s:
                device, target, most_s = v, other, gain_s
                home_s = -np.inf if home == group else scratch.group_gain_s[home] - scratch.group_gain_s[group]
    return device, target, most_s, home_s


EXACT_UP_TO = 14
"""Maximum number of stages whose order is proven best. The scratch space grows with 2^S."""


class Pricing(NamedTuple):
    """Pair costs, and the scratch space to price one partition into S stages of D replicas."""

    group_s: FloatArray
    """(N, N) seconds that two devices cost as partners in a group (``PairCosts``)."""
    hop_s: FloatArray
    """(N, N) seconds that two devices cost as neighbours in a pipeline (``PairCosts``)."""
    groups: IntArray
    """(S, D) groups of the partition that was priced last, with their devices in ascending order."""
    order: IntArray
    """(S,) order of ``groups`` along the cheapest path found."""
    weights_s: FloatArray
    """(S, S) weights of the coarsened graph of ``groups``."""
    filled: IntArray
    """(K,) scratch: number of devices in each group so far."""
    reals: FloatArray
    """(D + 2, D) scratch for matchings."""
    row_of: IntArray
    """(D,) scratch for matchings."""
    reach_s: FloatArray
    """(2^S, S) scratch for the exact order; (1, S) if S is too large for it."""
    tour: IntArray
    """(S,) scratch for the heuristic order."""


def pricing(group_s: FloatArray, hop_s: FloatArray, n_stages: int, n_replicas: int, n_groups: int) -> Pricing:
    """Return scratch space to price one partition at a time."""
    n_sets = 1 << n_stages if n_stages <= EXACT_UP_TO else 1
    groups, order = np.zeros((n_stages, n_replicas), dtype=np.int64), np.zeros(n_stages, dtype=np.int64)
    filled, row_of = np.zeros(n_groups, dtype=np.int64), np.zeros(n_replicas, dtype=np.int64)
    weights_s, reach_s = np.zeros((n_stages, n_stages)), np.zeros((n_sets, n_stages))
    reals = np.zeros((n_replicas + 2, n_replicas))
    return Pricing(group_s, hop_s, groups, order, weights_s, filled, reals, row_of, reach_s, order.copy())


@compiled
def price(scratch: Pricing, group_of: IntArray) -> float:
    """Return the seconds of a partition, equations 1 to 4. ``scratch.groups`` and ``scratch.order`` become its
    placement."""
    n_stages = len(scratch.groups)
    scratch.filled[:] = 0
    for v in range(len(group_of)):
        group = group_of[v]
        if group < n_stages:
            scratch.groups[group, scratch.filled[group]] = v
            scratch.filled[group] += 1
    slowest_s = 0.0
    for s in range(n_stages):
        slowest_s = max(slowest_s, slowest_member_s(scratch.group_s, scratch.groups[s]))
    coarsen(scratch.hop_s, scratch.groups, scratch.weights_s, scratch.reals, scratch.row_of)
    if n_stages <= EXACT_UP_TO:
        return slowest_s + shortest_path(scratch.weights_s, scratch.reach_s, scratch.order)
    return slowest_s + short_path(scratch.weights_s, scratch.tour, scratch.order)


@compiled
def crossover(
    donor: IntArray, child: IntArray, n_genes: int, size: IntArray, state: RandomState, genes: IntArray
) -> None:
    """Copy the groups of ``n_genes`` random devices from ``donor`` into ``child``, then restore the sizes of its
    groups.

    ``child`` begins as a copy of the other parent. ``size`` (K,) is the number of devices of each group, ``genes`` (N +
    K,) is scratch. Device by device, members of groups that are too large move to the first group that is too small.
    """
    n = len(child)
    for v in range(n):
        genes[v] = v
    # Fisher-Yates, stopped early: no device is drawn twice
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
                # a filled group never becomes too small again, so the search for a free one never goes back
                free += 1
            excess[child[v]] -= 1
            excess[free] += 1
            child[v] = free


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
    """Fill ``child`` with the offspring of two random parents after a local search.

    Returns the indices of donor and recipient in ``population``, and the child's cost in seconds.
    """
    donor, recipient = below(state, len(population)), below(state, len(population))
    child[:] = population[recipient]
    crossover(population[donor], child, n_genes, size, state, genes)
    improve(search, child)
    return donor, recipient, price(pricing, child)
