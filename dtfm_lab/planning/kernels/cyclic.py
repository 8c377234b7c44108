"""The cyclic local search on groups of devices (Kang and Moon 2000), compiled; see ``planners.dtfm``.

A partition is (N,) the group of each device: stages 0 to S - 1, and S for idle devices. The search moves devices
between stages only: an idle device stays idle.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray


class CyclicSearch(NamedTuple):
    """The costs of N devices on S stages of D replicas, and the scratch space of one local search."""

    n_replicas: int
    hop_s: FloatArray
    """(N, N) pair costs over a hop."""
    freed_s: FloatArray
    """(N, N) cost of a pair over a hop less its cost in a group."""
    classical: bool
    """Whether all links count, or only the fastest within a group."""
    locked: npt.NDArray[np.bool_]
    """(N,) whether the device has moved already."""
    filled: npt.NDArray[np.bool_]
    """(S,) whether the stage has received a device."""
    members: IntArray
    """(N,) devices of the current stage in the first places."""
    group_gain_s: FloatArray
    """(S + 1,) what moving the current device to each group gains."""
    moved: IntArray
    """(N,) devices of the current cycle in the order of their moves."""
    origin: IntArray
    """(N,) stage that each of them came from."""


def cyclic_search(
    hop_s: FloatArray, group_s: FloatArray, n_stages: int, n_replicas: int, classical: bool
) -> CyclicSearch:
    """Scratch space for one local search at a time."""
    n = len(hop_s)
    locked, filled = np.zeros(n, dtype=np.bool_), np.zeros(n_stages, dtype=np.bool_)
    members, moved, origin = (np.zeros(n, dtype=np.int64) for _ in range(3))
    gains_s = np.zeros(n_stages + 1)
    return CyclicSearch(n_replicas, hop_s, hop_s - group_s, classical, locked, filled, members, gains_s, moved, origin)


@compiled
def improve(scratch: CyclicSearch, group_of: IntArray) -> None:
    """Improve a partition in place by cycles of moves; every group keeps its size.

    A cycle begins at the stage whose candidate gains most. The candidate moves to the stage where it gains most,
    the next candidate comes from that stage, and so on until one moves into the first stage or a stage
    has no candidate left. Of all the moves at which the cycle could have been closed, by a move to the first
    stage instead, the one with the largest sum of gains is kept, if that is above zero. A device
    moves once. The cycle after which every stage has received a device, at the latest the S-th, ends the
    search and is undone.
    """
    scratch.locked[:] = False
    scratch.filled[:] = False
    n_stages = len(scratch.filled)
    for cycle in range(n_stages):
        start, most_s = n_stages, -np.inf  # no stage yet; a literal would compile all below twice
        for group in range(n_stages):
            device, _target, gain_s, _home_s = _candidate(scratch, group_of, group, group)
            if device >= 0 and gain_s > most_s:
                start, most_s = group, gain_s
        if start == n_stages:
            return
        n_moves, kept = _cycle(scratch, group_of, start)
        last = scratch.filled.all() or cycle == n_stages - 1
        for i in range(n_moves - 1, -1 if last else kept, -1):
            group_of[scratch.moved[i]] = scratch.origin[i]
        if last:
            return
        group_of[scratch.moved[kept]] = start


@compiled
def _cycle(scratch: CyclicSearch, group_of: IntArray, start: int) -> tuple[int, int]:
    """Move devices from ``start`` on until the cycle closes; the number of moves, and the one that should close it."""
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
    """The candidate of a stage, its target, the gain of that move, and the gain of a move to ``home``.

    The device is -1 where there is none. Of equal ones, the first device and the first stage are taken.
    """
    n_members = 0
    for v in range(len(group_of)):
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
    """The paper's gain: the mean hop to another stage less the fastest link within the device's own.

    The candidate is the device with the fastest link, for a fast link saves more in a pipeline than in a group.
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
        n_there = scratch.n_replicas - (other == home and other != group)  # home has given one away
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
    """The classical gain: the decrease of the sum over all links, of hops between stages and shards within.

    The candidate is the device with the largest gain.
    """
    device, target, most_s, home_s = -1, -1, -np.inf, -np.inf
    for v in members:
        if scratch.locked[v]:
            continue
        scratch.group_gain_s[:] = 0.0
        for u in range(len(group_of)):
            scratch.group_gain_s[group_of[u]] += scratch.freed_s[v, u]
        for other in range(len(scratch.filled)):
            gain_s = scratch.group_gain_s[other] - scratch.group_gain_s[group]
            if other != group and gain_s > most_s:
                device, target, most_s = v, other, gain_s
                home_s = -np.inf if home == group else scratch.group_gain_s[home] - scratch.group_gain_s[group]
    return device, target, most_s, home_s
