"""The cyclic local search on groups of devices (Kang and Moon 2000), compiled; see ``planners.dtfm``.

A partition is (N,) the group of each device: stages 0 to S - 1, and S for the bench where devices stay idle.
The search moves devices between stages only: whoever is on the bench stays there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray


class Cycles(NamedTuple):
    """What the local search knows of N devices on S stages of D replicas, and its scratch."""

    n_replicas: int
    hop_s: FloatArray
    """(N, N) pair costs over a hop"""
    freed_s: FloatArray
    """(N, N) what a pair costs more over a hop than in a group"""
    classical: bool
    """whether all links count, or the fastest within a group only"""
    locked: npt.NDArray[np.bool_]
    """(N,) has moved"""
    filled: npt.NDArray[np.bool_]
    """(S,) has received a device"""
    members: IntArray
    """(N,) of the stage at hand, the first so many"""
    worth_s: FloatArray
    """(S + 1,) of each group to the device at hand"""
    moved: IntArray
    """(N,) the devices of a cycle in turn"""
    origin: IntArray
    """(N,) where each came from"""


def cycles(hop_s: FloatArray, group_s: FloatArray, n_stages: int, n_replicas: int, classical: bool) -> Cycles:
    """Room for one local search at a time."""
    n = len(hop_s)
    return Cycles(
        n_replicas=n_replicas,
        hop_s=hop_s,
        freed_s=hop_s - group_s,
        classical=classical,
        locked=np.zeros(n, dtype=np.bool_),
        filled=np.zeros(n_stages, dtype=np.bool_),
        members=np.zeros(n, dtype=np.int64),
        worth_s=np.zeros(n_stages + 1),
        moved=np.zeros(n, dtype=np.int64),
        origin=np.zeros(n, dtype=np.int64),
    )


@compiled
def exchange(room: Cycles, group_of: IntArray) -> None:
    """Improve a partition in place by cycles of moves; every group keeps its size.

    A cycle begins at the stage whose offer gains most. The device on offer moves where it gains most,
    that stage makes the next offer, and so on until a device moves into the first stage or a stage
    has nothing left to offer. Of all the points at which the mover could have gone to the first
    stage instead, the one with the largest sum of gains is kept, if that is above zero. A device
    moves once. The cycle after which every stage has received one, at the latest the S-th, ends the
    search and is taken back.
    """
    room.locked[:] = False
    room.filled[:] = False
    n_stages = len(room.filled)
    for cycle in range(n_stages):
        start, most_s = n_stages, -np.inf  # nobody's yet; a literal would compile all below twice
        for group in range(n_stages):
            device, _target, gain_s, _home_s = _offer(room, group_of, group, group)
            if device >= 0 and gain_s > most_s:
                start, most_s = group, gain_s
        if start == n_stages:
            return
        n_moves, kept = _cycle(room, group_of, start)
        last = room.filled.all() or cycle == n_stages - 1
        for i in range(n_moves - 1, -1 if last else kept, -1):
            group_of[room.moved[i]] = room.origin[i]
        if last:
            return
        group_of[room.moved[kept]] = start


@compiled
def _cycle(room: Cycles, group_of: IntArray, start: int) -> tuple[int, int]:
    """Moves from ``start`` on until a cycle closes: how many, and which of them had better gone to ``start``."""
    n_moves, kept, sum_s, most_s = 0, 0, 0.0, 0.0
    group = start
    while True:
        device, target, gain_s, home_s = _offer(room, group_of, group, start)
        if device < 0:
            room.filled[start] = True
            break
        if n_moves and sum_s + home_s > most_s:
            kept, most_s = n_moves, sum_s + home_s
        sum_s += gain_s
        room.moved[n_moves], room.origin[n_moves] = device, group
        n_moves += 1
        group_of[device] = target
        room.locked[device] = True
        room.filled[target] = True
        group = target
        if group == start:
            break
    return n_moves, kept


@compiled
def _offer(room: Cycles, group_of: IntArray, group: int, home: int) -> tuple[int, int, float, float]:
    """The device that a stage offers, where it goes, what that gains, and what going ``home`` would gain.

    The device is -1 where there is none. Among equals the first device and the first stage count.
    """
    n_members = 0
    for v in range(len(group_of)):
        room.members[n_members] = v
        n_members += group_of[v] == group
    members = room.members[:n_members]
    if room.classical:
        return _by_all_links(room, group_of, group, home, members)
    return _by_fastest_link(room, group_of, group, home, members)


@compiled
def _by_fastest_link(
    room: Cycles, group_of: IntArray, group: int, home: int, members: IntArray
) -> tuple[int, int, float, float]:
    """The paper's gain: the mean hop to another stage less the fastest link within the device's own.

    On offer is the device with the fastest link: a fast link serves a pipeline better than a group.
    """
    device, fastest_s = -1, np.inf
    for v in members:
        if not room.locked[v]:
            for u in members:
                if u != v and room.hop_s[v, u] < fastest_s:
                    device, fastest_s = v, room.hop_s[v, u]
    if device < 0:
        return -1, -1, -np.inf, -np.inf
    room.worth_s[:] = 0.0
    for u in range(len(group_of)):
        room.worth_s[group_of[u]] += room.hop_s[device, u]
    target, most_s = -1, -np.inf
    for other in range(len(room.filled)):
        n_there = room.n_replicas - (other == home and other != group)  # home has given one away
        room.worth_s[other] = room.worth_s[other] / n_there - fastest_s
        if other != group and room.worth_s[other] > most_s:
            target, most_s = other, room.worth_s[other]
    if target < 0:
        return -1, -1, -np.inf, -np.inf
    return device, target, most_s, -np.inf if home == group else room.worth_s[home]


@compiled
def _by_all_links(
    room: Cycles, group_of: IntArray, group: int, home: int, members: IntArray
) -> tuple[int, int, float, float]:
    """The classical gain: what the sum over all links falls by, hops between stages and shards within.

    On offer is the device with the largest gain.
    """
    device, target, most_s, home_s = -1, -1, -np.inf, -np.inf
    for v in members:
        if room.locked[v]:
            continue
        room.worth_s[:] = 0.0
        for u in range(len(group_of)):
            room.worth_s[group_of[u]] += room.freed_s[v, u]
        for other in range(len(room.filled)):
            gain_s = room.worth_s[other] - room.worth_s[group]
            if other != group and gain_s > most_s:
                device, target, most_s = v, other, gain_s
                home_s = -np.inf if home == group else room.worth_s[home] - room.worth_s[group]
    return device, target, most_s, home_s
