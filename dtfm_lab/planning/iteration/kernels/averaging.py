"""How the replicas of a stage average their gradients: a replay of ``domain.schedule.synchronisation``."""

from typing import NamedTuple

import numpy as np

from dtfm_lab.costs import seconds
from dtfm_lab.costs.seconds import AT_ONCE, CENTRAL, HIERARCHICAL, NOTHING, RING
from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.kernels.tables import (
    HOST,
    LATENCY,
    PER_BYTE,
    REGION,
    Tables,
    coded_bytes,
    moving_s,
)

shard = compiled(seconds.shard)
ring_rounds = compiled(seconds.ring_rounds)
coding_s = compiled(seconds.coding_s)
coded_in_shards = compiled(seconds.coded_in_shards)
coded_in_ring = compiled(seconds.coded_in_ring)
coded_at_root = compiled(seconds.coded_at_root)
coded_by_member = compiled(seconds.coded_by_member)
coded_by_leader = compiled(seconds.coded_by_leader)
sum_seconds = compiled(seconds.sum_seconds)


class GroupMessages(NamedTuple):
    """The messages of a group of R replicas, and how its gradients are coded."""

    there: FloatArray
    """(R, R) seconds for which a message of gradients occupies the link from row to column."""
    back: FloatArray
    """(R, R) seconds for which a message of the values that come back, averages or parameters, occupies the link. With
    hierarchical averaging, it is for a shard between leaders of regions."""
    late: FloatArray
    """(R, R) latencies in seconds."""
    whole_s: float
    """Seconds in which a device encodes or decodes its whole gradient; 0 if gradients are not compressed."""
    splits: bool
    """True if parameters come back, because replicas split the optimizer states."""
    apart: bool
    """True if replicas split the optimizer states, or average only every few iterations. Decoding the values that come
    back then counts as a sum (``costs.seconds.sum_seconds``)."""


@compiled
def average(tables: Tables, row: IntArray, n_parameters: float, done: FloatArray, last_s: FloatArray) -> None:
    """Turn ``done``, (R,), from the times at which each replica has finished its gradients into the times at which it
    has their averages.

    ``row`` (R,) are the group's devices. ``last_s`` (R,) becomes the seconds that decoding takes after that.
    """
    n, how = len(row), tables.synchronisation
    for i in range(n):
        last_s[i] = 0.0
    if n == 1 or how == NOTHING:
        return
    whole, returned = coded_bytes(n_parameters, tables.gradient), coded_bytes(n_parameters, tables.returned)
    whole_s = 0.0
    if tables.codes_gradients:
        whole_s = coding_s(n_parameters, tables.gradient.plain, tables.codec_bytes_per_s)
    leader, n_leaders = np.empty(n, np.int64), n
    if how == HIERARCHICAL:
        n_leaders = 0
        for i in range(n):
            leader[i] = i
            for j in range(i - 1, -1, -1):
                if tables.device[REGION, row[j]] == tables.device[REGION, row[i]]:
                    leader[i] = leader[j]
            n_leaders += leader[i] == i
        # between leaders travel shards of gradients, and `back` has the seconds of these
        returned = whole
    in_shards = how != CENTRAL and how != HIERARCHICAL
    there, back, late = np.empty((n, n)), np.empty((n, n)), np.empty((n, n))
    # the root sends whole averages over `there`, so it needs no `back`
    if how != CENTRAL:
        _fill(tables, row, shard(returned, n_leaders), back, late)
    _fill(tables, row, shard(whole, n) if in_shards else whole, there, late)
    splits = tables.splits_states
    messages = GroupMessages(there, back, late, whole_s, splits, splits or tables.synchronise_every > 1)
    if how == RING:
        _ring(messages, done, last_s)
    elif how == CENTRAL:
        _central(messages, done, last_s)
    elif how == HIERARCHICAL:
        _hierarchical(messages, leader, n_leaders, done, last_s)
    else:
        _sharded(messages, how == AT_ONCE, done, last_s)


@compiled
def _n_hosts(tables: Tables, row: IntArray) -> int:
    """Return the number of hosts of a row's devices."""
    n, found = len(row), 0
    for i in range(n):
        is_first = True
        for j in range(i):
            if tables.device[HOST, row[j]] == tables.device[HOST, row[i]]:
                is_first = False
                break
        found += is_first
    return found


@compiled
def _fill(tables: Tables, row: IntArray, n_bytes: float, moves: FloatArray, late: FloatArray) -> None:
    """Fill two (R, R) arrays for messages between a row's devices.

    ``moves`` are the seconds for which a message of ``n_bytes`` occupies its link, and ``late`` the latencies in
    seconds.
    """
    n, link = len(row), tables.link
    measured = len(tables.message_bytes) > 0
    slower = 1.0
    if len(tables.slowdowns) > 0:
        slower = tables.slowdowns[_n_hosts(tables, row)]
    for i in range(n):
        a = row[i]
        for j in range(n):
            once_s = moving_s(tables, a, row[j], n_bytes) if measured else n_bytes * link[PER_BYTE, a, row[j]]
            moves[i, j] = slower * once_s
            late[i, j] = link[LATENCY, a, row[j]]


@compiled
def _sharded(messages: GroupMessages, at_once: bool, done: FloatArray, last_s: FloatArray) -> None:
    """Every replica sends each other replica a shard, sums the shards that it gets, and sends its averaged shard to
    all.

    With ``at_once``, its messages leave at the same time, otherwise one after another.
    """
    moves, backs, late, whole_s, splits, apart = messages
    n = len(done)
    coded = coded_in_shards(whole_s, n, splits)
    sum_s, decode_s = sum_seconds(whole_s, coded, apart)
    turn, got, summed = np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        last_s[i] = decode_s
        done[i] += coded.pack_s
        got[i] = done[i]
    for i in range(n):
        t = done[i]
        for k in range(1, n):
            # everyone begins with the next replica, so that in each turn every replica receives one message
            j = i + k if i + k < n else i + k - n
            arrives = t + moves[i, j] + late[i, j]
            got[j] = max(got[j], arrives)
            if not at_once:
                # one after another: the next message leaves when this one has arrived
                t = arrives
        turn[i] = t
    for i in range(n):
        summed[i] = got[i] + sum_s
        got[i] = summed[i]
    for i in range(n):
        t = max(turn[i], summed[i])
        for k in range(1, n):
            j = i + k if i + k < n else i + k - n
            begins = max(summed[i], done[i] + moves[i, j]) if at_once else t
            t = begins + backs[i, j] + late[i, j]
            got[j] = max(got[j], t)
    for i in range(n):
        done[i] = got[i]


@compiled
def _central(messages: GroupMessages, done: FloatArray, last_s: FloatArray) -> None:
    """The first replica gathers whole gradients and sends whole averages."""
    moves, _, late, whole_s, _, apart = messages
    n, member = len(done), coded_by_member(whole_s)
    sum_s, last_s[0] = sum_seconds(whole_s, coded_at_root(n), apart)
    _, decode_s = sum_seconds(whole_s, member, apart)
    for i in range(1, n):
        last_s[i] = decode_s
        done[0] = max(done[0], done[i] + member.pack_s + moves[i, 0] + late[i, 0])
    done[0] += sum_s
    for i in range(1, n):
        done[i] = done[0] + moves[0, i] + late[0, i]


@compiled
def _ring(messages: GroupMessages, done: FloatArray, last_s: FloatArray) -> None:
    """Ring all-reduce: n - 1 rounds that sum, then n - 1 that pass on what comes back. Each replica sends to the
    next."""
    moves, backs, late, whole_s, splits, apart = messages
    n = len(done)
    rounds, coded = ring_rounds(n), coded_in_ring(whole_s, n, splits)
    sum_s, decode_s = sum_seconds(whole_s, coded, apart)
    free, came, summed = np.zeros(n), np.empty(n), np.empty(n)
    for i in range(n):
        last_s[i] = decode_s
        done[i] += coded.pack_s
        summed[i] = done[i]  # end of the last sum
    for k in range(2 * rounds):
        for i in range(n):
            j = i + 1 if i + 1 < n else 0
            free[i] = max(free[i], done[i]) + (moves[i, j] if k < rounds else backs[i, j])
            came[j] = free[i] + late[i, j]
        for i in range(n):
            if k < rounds:
                summed[i] = max(summed[i], came[i]) + sum_s
                done[i] = summed[i]
            else:
                done[i] = max(done[i], came[i])


@compiled
def _hierarchical(
    messages: GroupMessages, leader: IntArray, n_leaders: int, done: FloatArray, last_s: FloatArray
) -> None:
    """Average inside each region, then between the regions' first replicas, which pass the average on."""
    moves, shards, late, whole_s, _, apart = messages
    n, d = len(done), n_leaders
    size, sum_s, got = np.zeros(n), np.zeros(n), np.empty(n)
    for i in range(n):
        size[leader[i]] += 1
    for i in range(n):
        coded = coded_by_leader(whole_s, size[i], d) if leader[i] == i else coded_by_member(whole_s)
        sum_s[i], last_s[i] = sum_seconds(whole_s, coded, apart)
        done[i] += coded.pack_s
    for i in range(n):
        if leader[i] != i:
            to = leader[i]
            done[to] = max(done[to], done[i] + moves[i, to] + late[i, to])
    for i in range(n):
        if size[i] > 1:
            done[i] += sum_s[i]
        got[i] = done[i]
    # the first round exchanges shards to sum, the second the averaged shards
    for again in range(2 if d > 1 else 0):
        before = got.copy()
        for i in range(n):
            for j in range(n):
                if i != j and leader[i] == i and leader[j] == j:
                    begins = max(before[i], done[i] + shards[i, j]) if again else done[i]
                    got[j] = max(got[j], begins + shards[i, j] + late[i, j])
        for i in range(n if again == 0 else 0):
            got[i] += sum_s[i]
    for i in range(n):
        if leader[i] == i:
            done[i] = got[i]
    for i in range(n):
        if leader[i] != i:
            done[i] = done[leader[i]] + moves[leader[i], i] + late[leader[i], i]
