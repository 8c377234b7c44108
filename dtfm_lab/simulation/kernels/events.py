"""The event loop: when each node starts, given its predecessors. The same source runs compiled and uncompiled.

A node is one action of one device. Nodes start in the order of the times at which they are ready. Ties go to the lower
index, so equal inputs give equal traces, bit by bit.
"""

import heapq
from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.schedule.task_graph import RECEIVE, SEND
from dtfm_lab.domain.units import FloatArray, IntArray

STARTED = -1
"""Value in the count of missing predecessors that marks a node as started."""


class Nodes(NamedTuple):
    """The nodes of a task graph, as (n,) columns."""

    role: IntArray
    """``SEND``, ``RECEIVE`` or ``COMPUTATION``, as in a TaskGraph."""
    duration_s: FloatArray
    """Seconds of a computation, or of a message's bytes on its link (at both ends)."""
    latency_s: FloatArray
    """For sends: seconds until the first byte reaches the receiver. Other entries are ignored."""
    partner: IntArray
    """For sends: index of the node that receives the message. Other entries are ignored."""


class Queues(NamedTuple):
    """Queues of nodes that wait for each other, such as the messages on one link."""

    of_node: IntArray
    """(n,) number of each node's queue, from 0; -1 for none."""
    n_queues: int


class Edges(NamedTuple):
    """Which nodes wait for which. The nodes that wait for node i are successors[successors_from[i] : successors_from[i
    + 1]]."""

    n_predecessors: IntArray
    """(n,) number of nodes that each node waits for. They must have ended, except that a receive only needs its send to
    have started."""
    successors_from: IntArray
    successors: IntArray


class NodeTimes(NamedTuple):
    """Results of the event loop, as (n,) columns that it fills."""

    start_s: FloatArray
    end_s: FloatArray
    after: IntArray
    """The node that each node waited for last; -1 for none. A receive may wait for the first byte from its send. All
    other waits are for the end of a node."""
    before: IntArray
    """The previous node in the node's queue, such as its link or NIC; -1 for none."""
    ahead: IntArray
    """If messages of the node's pair take turns, the receive of the pair's previous message; -1 for none."""
    order: IntArray
    """The nodes in the order in which they started."""


def event_loop(
    nodes: Nodes, links: Queues, pairs: Queues, edges: Edges, released_s: FloatArray, times: NodeTimes
) -> int:
    """Fill the times of all nodes and return the number of nodes that ran. If some did not, they wait for each other in
    a cycle.

    ``links`` has the queue of each message's link or NIC. ``pairs`` has one queue for each pair of devices whose
    messages take turns. Only one message of a pair, in either direction, is in flight at a time. No node starts before
    its (n,) ``released_s``.

    The function fills arrays instead of returning them. Returning one runs Python code, and numba turns an interrupt
    there into a SystemError.
    """
    role, duration_s, latency_s, partner = nodes
    queue, n_queues = links
    turn, n_turns = pairs
    n_predecessors, successors_from, successors = edges
    start_s, end_s, after, before, ahead, order = times
    n = len(role)
    start_s[:], end_s[:], after[:], before[:], ahead[:] = 0.0, 0.0, -1, -1, -1
    ready_s = released_s.copy()
    missing = n_predecessors.copy()
    free_s, last = np.zeros(n_queues), np.full(n_queues, -1)
    last_sent, behind = np.full(n_turns, -1), np.full(n, -1)
    # numba takes the type of an empty heap from an entry that was in it
    ready = [(0.0, 0)]
    ready.pop()
    for i in range(n):
        if missing[i] == 0:
            heapq.heappush(ready, (ready_s[i], i))
    done = 0
    while len(ready) > 0:
        at_s, i = heapq.heappop(ready)
        t, q = turn[i], queue[i]
        # messages that take turns wait until the previous one of their pair has arrived
        if t >= 0 and last_sent[t] >= 0 and ahead[i] < 0:
            j = last_sent[t]
            if behind[j] >= 0 or missing[partner[j]] != STARTED:  # others wait already, or it has not arrived
                while behind[j] >= 0:
                    j = behind[j]
                behind[j] = i
                continue
            ahead[i] = partner[j]
            if end_s[ahead[i]] > at_s:
                behind[j], after[i] = i, ahead[i]
                heapq.heappush(ready, (end_s[ahead[i]], i))
                continue
        if t >= 0:
            last_sent[t] = i
        order[done] = i
        done += 1
        missing[i] = STARTED
        if q >= 0:
            before[i] = last[q]
            if free_s[q] > at_s:
                at_s = free_s[q]
                after[i] = last[q]
            last[q] = i
        finish_s = at_s + duration_s[i]
        if q >= 0:
            free_s[q] = finish_s
        start_s[i], end_s[i] = at_s, finish_s
        if role[i] == RECEIVE and behind[partner[i]] >= 0:
            j = behind[partner[i]]
            ahead[j] = i
            if finish_s > ready_s[j] or after[j] < 0:
                after[j] = i
            heapq.heappush(ready, (max(ready_s[j], finish_s), j))
        if role[i] == SEND:
            j = partner[i]
            first_s = at_s + latency_s[i]
            # a predecessor that ends at 0 s delays nothing, but is still the one that it waited for
            if first_s > ready_s[j] or after[j] < 0:
                ready_s[j], after[j] = max(first_s, released_s[j]), i
            missing[j] -= 1
            if missing[j] == 0:
                heapq.heappush(ready, (ready_s[j], j))
        for k in range(successors_from[i], successors_from[i + 1]):
            j = successors[k]
            if finish_s > ready_s[j] or after[j] < 0:
                ready_s[j], after[j] = max(finish_s, released_s[j]), i
            missing[j] -= 1
            if missing[j] == 0:
                heapq.heappush(ready, (ready_s[j], j))
    return done


def longest_paths(
    nodes: Nodes, edges: Edges, before: IntArray, ahead: IntArray, order: IntArray, left_s: FloatArray
) -> None:
    """Fill ``left_s``: (n,) seconds from each node's start to the last end of all nodes that depend on it.

    Queues keep their order, and so do messages that take turns. ``before``, ``ahead`` and ``order`` are as in
    ``NodeTimes``.
    """
    role, duration_s, latency_s, partner = nodes
    _, successors_from, successors = edges
    n = len(role)
    behind, next_sent = np.full(n, -1), np.full(n, -1)
    for i in range(n):
        if before[i] >= 0:
            behind[before[i]] = i
        if ahead[i] >= 0:
            next_sent[ahead[i]] = i
    for at in range(n - 1, -1, -1):
        # backwards in the order of starts: all that depends on a node is known before the node
        i = order[at]
        longest_s = 0.0
        for k in range(successors_from[i], successors_from[i + 1]):
            longest_s = max(longest_s, left_s[successors[k]])
        if behind[i] >= 0:
            longest_s = max(longest_s, left_s[behind[i]])
        if next_sent[i] >= 0:
            longest_s = max(longest_s, left_s[next_sent[i]])
        left_s[i] = duration_s[i] + longest_s
        if role[i] == SEND:
            left_s[i] = max(left_s[i], latency_s[i] + left_s[partner[i]])
