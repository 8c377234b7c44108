"""Compute when each replica of a ring has its average, without an action for each round. Replicas may become ready at
different times.

A device sends its messages in the order in which they become ready, and it receives only from the one device before it.
Messages therefore leave in the order in which they arrive, merged with the first message of each of the device's
buckets. One list of arrivals is passed from device to device around the ring, so no event queue is needed.
"""

import heapq

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray

# Rows of ``times``: when a message, a sum or a step of a replica ends, or its first message starts.
SENT = 0
"""End of the replica's last message of gradients."""
CAME = 1
"""End of the last message of gradients that the replica receives."""
SUMMED = 2
"""End of the replica's last sum."""
RETURNED = 3
"""End of the replica's step, or of its last sum without a step."""
BACK = 4
"""End of the replica's last message of averages."""
CAME_BACK = 5
"""End of the last message of averages that the replica receives."""
FIRST = 6
"""Start of the replica's first message of gradients."""
FIRST_BACK = 7
"""Start of the replica's first message of averages."""

# Kinds of events in ``shared_ring_times``.
SEND = 0
RECEIVE = 1
SUM = 2
STEP = 3


def ring_times(parts: FloatArray, turn: IntArray, computer: IntArray, n_rounds: int, times: FloatArray) -> None:
    """Fill ``times``, (8, devices, buckets) seconds, in the rows ``SENT`` to ``FIRST_BACK``.

    Exact if sums and steps take no time, or if there is one bucket. Otherwise it is an estimate: averages that arrive
    while sums wait are passed on only after these sums.

    Parameters
    ----------
    parts
        (6, devices, buckets) seconds. Row 0 is when a device can begin a bucket. Rows 1 and 2 are for how long a
        message of gradients, and one of averages, occupies the link to the next device. Row 3 is the latency of the
        link, row 4 one sum, and row 5 the step of the shard that a device averages.
    turn
        (devices, buckets) indices of the buckets of each device in the order in which it can begin them.
    computer
        (buckets,) number of each bucket's ring. Rings that share links have different devices, so the sums of one ring
        do not wait for those of another.
    n_rounds
        Number of sums of each device. A ring has n_rounds + 1 devices, but fewer may be given if it repeats itself.
    """
    ready_s, moving_s, back_s, latency_s, sum_s, step_s = parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]
    n, n_buckets = ready_s.shape
    last = 2 * n_rounds - 1
    most = 2 * n_rounds * n_buckets
    came_s, came_of = np.empty(most), np.empty(most, dtype=np.int64)
    going_s, going_of = np.empty(most), np.empty(most, dtype=np.int64)
    free_s, computed_s = np.zeros(n), np.zeros((n, n_buckets))
    next_turn = np.zeros(n, dtype=np.int64)
    arrived = np.zeros((n, n_buckets), dtype=np.int64)
    sent = np.zeros((n, n_buckets), dtype=np.int64)
    n_came, i, first_s = 0, -1, 0.0
    while True:
        begins = False
        if n_came == 0:  # nothing is under way: the earliest own bucket of any device begins
            i = -1
            for j in range(n):
                if next_turn[j] < n_buckets:
                    t = ready_s[j, turn[j, next_turn[j]]]
                    if i < 0 or t < first_s:
                        i, first_s = j, t
            if i < 0:
                return
            begins = True
        n_going, a = 0, 0
        while a < n_came or begins:
            own = next_turn[i] < n_buckets and (begins or ready_s[i, turn[i, next_turn[i]]] <= came_s[a])
            begins = False
            if own:
                b = turn[i, next_turn[i]]
                next_turn[i] += 1
                t = ready_s[i, b]
                # what came before its own gradients were whole can leave now
                n_steps = 1 + arrived[i, b]
                k = 0
            else:
                b, t = came_of[a], came_s[a]
                a += 1
                arrived[i, b] += 1
                if arrived[i, b] == n_rounds:
                    times[CAME, i, b] = t
                elif arrived[i, b] == last + 1:
                    times[CAME_BACK, i, b] = t
                if sent[i, b] == 0:  # its own gradients are not whole yet
                    continue
                n_steps, k = 1, arrived[i, b]
            for _ in range(n_steps):
                # message k - 1 was used, so that message k can leave
                c = computer[b]
                begin_s = max(t, computed_s[i, c]) if k > 0 else t
                if 0 < k <= n_rounds:
                    begin_s += sum_s[i, b]
                    if k == n_rounds:
                        times[SUMMED, i, b] = begin_s
                        begin_s += step_s[i, b]
                        times[RETURNED, i, b] = begin_s
                    computed_s[i, c] = begin_s
                if k <= last:
                    moves_s = moving_s[i, b] if k < n_rounds else back_s[i, b]
                    start_s = max(begin_s, free_s[i])
                    free_s[i] = start_s + moves_s
                    if k == 0:
                        times[FIRST, i, b] = start_s
                    elif k == n_rounds:
                        times[FIRST_BACK, i, b] = start_s
                    if k == n_rounds - 1:
                        times[SENT, i, b] = free_s[i]
                    elif k == last:
                        times[BACK, i, b] = free_s[i]
                    going_s[n_going] = start_s + latency_s[i, b] + moves_s
                    going_of[n_going] = b
                    n_going += 1
                    sent[i, b] += 1
                k += 1
        # what this device sends is what arrives at the next one
        came_s, going_s = going_s, came_s
        came_of, going_of = going_of, came_of
        n_came = n_going
        i = i + 1 if i + 1 < n else 0


def shared_ring_times(
    parts: FloatArray,
    leaving: IntArray,
    coming: IntArray,
    computer: IntArray,
    computes: bool,
    n_rounds: int,
    times: FloatArray,
) -> None:
    """Fill ``times`` like ``ring_times``, message by message.

    Also exact if rings share some of their NICs, or if sums of several buckets wait for each other.

    Parameters in addition to those of ``ring_times``
    ----------
    leaving, coming, computer
        (devices, buckets) indices. ``leaving`` is the link or NIC that a message to the next device occupies when it
        leaves. ``coming`` is the NIC that a message from the previous device occupies when it arrives; -1 for none.
        ``computer`` is the processor that computes the sums.
    computes
        True if any sum or step takes time.
    """
    ready_s, moving_s, back_s, latency_s, sum_s, step_s = parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]
    n, n_buckets = ready_s.shape
    n_messages = 2 * n_rounds
    left_s = np.zeros(leaving.max() + 1)
    came_s, computed_s = np.zeros(coming.max() + 2), np.zeros(computer.max() + 1)
    returned = np.zeros((n, n_buckets), dtype=np.bool_)
    held = np.zeros((n, n_buckets), dtype=np.int64)
    next_back = np.full((n, n_buckets), n_rounds + 1)
    # numba takes the type of an empty heap from an entry that was in it
    events = [(0.0, 0)]
    events.pop()
    for b in range(n_buckets):
        for i in range(n):
            # the whole event in one number, so that events at the same time have a fixed order
            heapq.heappush(events, (ready_s[i, b], (b * n + i) * n_messages * 4))
    while len(events) > 0:
        t, code = heapq.heappop(events)
        kind, rest = code % 4, code // 4
        k, at = rest % n_messages, rest // n_messages
        i, b = at % n, at // n
        there = i + 1 if i + 1 < n else 0
        came = False
        to_step = False
        if kind == SEND:
            q = leaving[i, b]
            start_s = max(t, left_s[q])
            moves_s = moving_s[i, b] if k < n_rounds else back_s[i, b]
            left_s[q] = start_s + moves_s
            if k == 0:
                times[FIRST, i, b] = start_s
            elif k == n_rounds:
                times[FIRST_BACK, i, b] = start_s
            if k == n_rounds - 1:
                times[SENT, i, b] = left_s[q]
            elif k == n_messages - 1:
                times[BACK, i, b] = left_s[q]
            first_s = start_s + latency_s[i, b]
            i = there
            if coming[i, b] >= 0:
                heapq.heappush(events, (first_s, ((b * n + i) * n_messages + k) * 4 + RECEIVE))
            else:
                came, t = True, first_s + moves_s
        elif kind == RECEIVE:
            before = i - 1 if i > 0 else n - 1
            moves_s = moving_s[before, b] if k < n_rounds else back_s[before, b]
            came_s[coming[i, b]] = max(t, came_s[coming[i, b]]) + moves_s
            came, t = True, came_s[coming[i, b]]
        if came:
            if k == n_rounds - 1:
                times[CAME, i, b] = t
            elif k == n_messages - 1:
                times[CAME_BACK, i, b] = t
            if k < n_rounds:
                t = max(t, ready_s[i, b])
                if computes:
                    heapq.heappush(events, (t, ((b * n + i) * n_messages + k) * 4 + SUM))
                else:
                    kind = SUM
            elif k < n_messages - 1:
                if returned[i, b]:
                    heapq.heappush(events, (t, ((b * n + i) * n_messages + k + 1) * 4))
                else:
                    # it passes averages on only after its own step
                    held[i, b] += 1
        if kind == SUM:
            if computes:
                c = computer[i, b]
                t = max(t, computed_s[c]) + sum_s[i, b]
                computed_s[c] = t
            if k < n_rounds - 1:
                heapq.heappush(events, (t, ((b * n + i) * n_messages + k + 1) * 4))
            else:
                times[SUMMED, i, b] = t
                if step_s[i, b] > 0:
                    heapq.heappush(events, (t, ((b * n + i) * n_messages + k) * 4 + STEP))
                else:
                    to_step = True
        elif kind == STEP:
            c = computer[i, b]
            t = max(t, computed_s[c]) + step_s[i, b]
            computed_s[c] = t
            to_step = True
        if to_step:
            times[RETURNED, i, b] = t
            returned[i, b] = True
            heapq.heappush(events, (t, ((b * n + i) * n_messages + n_rounds) * 4))
            for _ in range(held[i, b]):
                heapq.heappush(events, (t, ((b * n + i) * n_messages + next_back[i, b]) * 4))
                next_back[i, b] += 1
