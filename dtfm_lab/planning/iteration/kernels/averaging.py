"""How the replicas of a stage average their gradients: ``domain.schedule.synchronisation``, replayed."""

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.kernels.tables import (
    AT_ONCE,
    CENTRAL,
    HIERARCHICAL,
    RING,
    Tables,
    gradient_bytes,
    moving_s,
)


@compiled
def average(
    tables: Tables, row: IntArray, ready: FloatArray, n_parameters: float, done: FloatArray, last_s: FloatArray
) -> None:
    """Fill ``done`` (R,): when each replica of a group has its averages.

    ``ready`` (R,) is when its own gradients are whole, ``row`` (R,) its devices. ``last_s`` (R,) becomes the seconds
    that decoding the averages takes after that.
    """
    r = len(row)
    done[:], last_s[:] = ready, 0.0
    if r == 1:
        return
    whole = gradient_bytes(tables, n_parameters)
    coding_s = 0.0
    if tables.codes_gradients:
        coding_s = n_parameters * tables.bytes_per_element / tables.codec_bytes_per_s
    if tables.synchronisation == RING:
        _ring(tables, row, whole / r, coding_s, done, last_s)
    elif tables.synchronisation == CENTRAL:
        _central(tables, row, whole, coding_s, done, last_s)
    elif tables.synchronisation == HIERARCHICAL:
        _hierarchical(tables, row, whole, coding_s, done, last_s)
    else:
        _sharded(tables, row, whole / r, coding_s, tables.synchronisation == AT_ONCE, done, last_s)


@compiled
def messages(tables: Tables, row: IntArray, n_bytes: float, moves: FloatArray, late: FloatArray) -> None:
    """Fill (R, R) seconds for which a message between two of a row's devices occupies its link, and latencies."""
    n = len(row)
    latency_s, s_per_byte = tables.latency_s, tables.s_per_byte
    measured = len(tables.message_bytes) > 0
    for i in range(n):
        a = row[i]
        for j in range(n):
            moves[i, j] = moving_s(tables, a, row[j], n_bytes) if measured else n_bytes * s_per_byte[a, row[j]]
            late[i, j] = latency_s[a, row[j]]


@compiled
def _coded_s(tables: Tables, coding_s: float, total: float, n: int, unpacked: float) -> tuple[float, float]:
    """Seconds of each of n sums that code ``total`` gradients together, and of the last decoding.

    Where replicas step alone in between, the decoding is a sum, too, and all of them take the mean.
    """
    if tables.synchronise_every == 1:
        return (coding_s * total / n if n else 0.0), coding_s * unpacked
    each_s = coding_s * (total + unpacked) / (n + 1)
    return each_s, each_s


@compiled
def _sharded(
    tables: Tables,
    row: IntArray,
    shard: float,
    coding_s: float,
    at_once: bool,
    done: FloatArray,
    last_s: FloatArray,
) -> None:
    """Every replica sends shards to all others, in turn or at once, and then its averaged shard."""
    n = len(row)
    moves, late = np.empty((n, n)), np.empty((n, n))
    messages(tables, row, shard, moves, late)
    share = (n - 1) / n
    sum_s, decode_s = _coded_s(tables, coding_s, 1.0, 1, share)
    last_s[:] = decode_s
    turn, got = np.empty(n), np.empty(n)
    for i in range(n):
        done[i] += coding_s * share
    got[:] = done
    for i in range(n):
        t = done[i]
        for k in range(1, n):
            j = i + k if i + k < n else i + k - n
            arrives = t + moves[i, j] + late[i, j]
            got[j] = max(got[j], arrives)
            if not at_once:
                t = arrives
        turn[i] = t
    summed = got + sum_s
    got[:] = summed
    for i in range(n):
        t = max(turn[i], summed[i])
        for k in range(1, n):
            j = i + k if i + k < n else i + k - n
            begins = max(summed[i], done[i] + moves[i, j]) if at_once else t
            t = begins + moves[i, j] + late[i, j]
            got[j] = max(got[j], t)
    done[:] = got


@compiled
def _central(
    tables: Tables, row: IntArray, whole: float, coding_s: float, done: FloatArray, last_s: FloatArray
) -> None:
    """The first replica gathers whole gradients and sends whole averages."""
    n = len(row)
    sum_s, last_s[0] = _coded_s(tables, coding_s, float(n), 1, 0.0)
    _, decode_s = _coded_s(tables, coding_s, 0.0, 0, 1.0)
    t = done[0]
    for i in range(1, n):
        last_s[i] = decode_s
        begins = done[i] + coding_s
        t = max(t, begins + moving_s(tables, row[i], row[0], whole) + tables.latency_s[row[i], row[0]])
    done[0] = t + sum_s
    for i in range(1, n):
        done[i] = done[0] + moving_s(tables, row[0], row[i], whole) + tables.latency_s[row[0], row[i]]


@compiled
def _ring(tables: Tables, row: IntArray, shard: float, coding_s: float, done: FloatArray, last_s: FloatArray) -> None:
    """n - 1 rounds that sum, n - 1 that spread; each replica sends to the next."""
    n = len(row)
    sum_s, decode_s = _coded_s(tables, coding_s, 2 * (n - 1) / n, n - 1, (n - 1) / n)
    last_s[:] = decode_s
    for i in range(n):
        done[i] += coding_s / n
    moves, late = np.empty(n), np.empty(n)
    for i in range(n):
        j = i + 1 if i + 1 < n else 0
        moves[i], late[i] = moving_s(tables, row[i], row[j], shard), tables.latency_s[row[i], row[j]]
    free, came = np.zeros(n), np.empty(n)
    summed = done.copy()  # end of the last sum
    for k in range(2 * (n - 1)):
        for i in range(n):
            j = i + 1 if i + 1 < n else 0
            free[i] = max(free[i], done[i]) + moves[i]
            came[j] = free[i] + late[i]
        for i in range(n):
            if k < n - 1:
                summed[i] = max(summed[i], came[i]) + sum_s
                done[i] = summed[i]
            else:
                done[i] = max(summed[i], came[i], done[i])


@compiled
def _hierarchical(
    tables: Tables, row: IntArray, whole: float, coding_s: float, done: FloatArray, last_s: FloatArray
) -> None:
    """Averages inside each region, then between the regions' first replicas, which send them on."""
    n = len(row)
    leader, size = np.empty(n, np.int64), np.zeros(n, np.int64)
    d = 0
    for i in range(n):
        leader[i] = i
        for j in range(i):
            if tables.region[row[j]] == tables.region[row[i]]:
                leader[i] = j
                break
        size[leader[i]] += 1
        d += leader[i] == i
    again = (d - 1) / d if d > 1 else 1.0
    sum_s, packed, summed = np.zeros(n), np.zeros(n), np.empty(n)
    for i in range(n):
        received = size[i] - 1.0
        n_sums, total, unpacked = 0, 0.0, 1.0
        if leader[i] == i:
            unpacked = (d - 1) / d
            if received > 0:
                n_sums, total = 1, received + again
            else:
                packed[i] = coding_s * (d - 1) / d
            if d > 1:
                n_sums, total = n_sums + 1, total + 1.0
        else:
            packed[i] = coding_s
        sum_s[i], last_s[i] = _coded_s(tables, coding_s, total, n_sums, unpacked)
        done[i] += packed[i]
    summed[:] = done
    for i in range(n):
        if leader[i] != i:
            to = leader[i]
            arrives = done[i] + moving_s(tables, row[i], row[to], whole) + tables.latency_s[row[i], row[to]]
            summed[to] = max(summed[to], arrives)
    for i in range(n):
        if leader[i] == i:
            done[i] = summed[i] + (sum_s[i] if size[i] > 1 else 0.0)
    if d > 1:
        _between_leaders(tables, row, whole / d, sum_s, leader, done)
    for i in range(n):
        if leader[i] != i:
            to = leader[i]
            done[i] = done[to] + moving_s(tables, row[to], row[i], whole) + tables.latency_s[row[to], row[i]]


@compiled
def _between_leaders(
    tables: Tables, row: IntArray, shard: float, sum_s: FloatArray, leader: IntArray, done: FloatArray
) -> None:
    n = len(row)
    got = done.copy()
    for i in range(n):
        for j in range(n):
            if i != j and leader[i] == i and leader[j] == j:
                arrives = done[i] + moving_s(tables, row[i], row[j], shard) + tables.latency_s[row[i], row[j]]
                got[j] = max(got[j], arrives)
    summed = got + sum_s
    got[:] = summed
    for i in range(n):
        for j in range(n):
            if i != j and leader[i] == i and leader[j] == j:
                moves = moving_s(tables, row[i], row[j], shard)
                arrives = max(summed[i], done[i] + moves) + moves + tables.latency_s[row[i], row[j]]
                got[j] = max(got[j], arrives)
    for i in range(n):
        if leader[i] == i:
            done[i] = got[i]
