"""Simulate rings on the links of a plan, with all rounds of a ring taken together (``TaskGraph.rings``).

The result is when each replica has its average. It is the same as with messages one by one if two conditions hold.
First, no message of a pipeline needs a ring's NIC at the same time. Second, compression and steps take no time, or
nothing is cut into buckets. Otherwise it is an estimate. On identical hosts it was off by at most:

- 1.5 % if rings overlap with passes and pipelines send messages through the same NICs;
- 4 % if more than ``MOST_SHARED`` messages share some of their NICs, or are compressed in buckets;
- 4 % if there are more than ``MOST_PLAYED`` messages on links that differ.

If a ring repeats the same pattern from host to host, only the hosts of one period are simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dtfm_lab.domain.network import Links
from dtfm_lab.domain.schedule.task_graph import Ring, TaskGraph
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.simulation.kernels.rings import (
    BACK,
    CAME,
    CAME_BACK,
    FIRST,
    FIRST_BACK,
    RETURNED,
    SENT,
    SUMMED,
)

MOST_SHARED = 2_000_000
"""Maximum number of messages to simulate one by one if rings share some of their NICs, or if sums of several buckets
wait for each other. This many take half a second."""
MOST_PLAYED = 10_000_000
"""Maximum number of messages to simulate of all other rings. This many take a quarter of a second. If there are more, a
ring of equal replicas represents them (``_like_the_slowest``)."""


@dataclass(frozen=True, eq=False)
class RingInputs:
    """The inputs that determine the times of a graph's rings. Arrays have one entry per node."""

    graph: TaskGraph
    links: Links
    here: IntArray
    there: IntArray
    duration_s: FloatArray
    """Seconds of a node: one message for a send or receive, all sums together for a sum."""
    latency_s: FloatArray
    ready_s: FloatArray
    """For each first send of a ring, the second at which everything that it waits for has ended."""
    kernel: Callable[[str, int], Callable[..., object]]
    """Returns an inner loop by its name, compiled or not, for a number of messages: ``engine.kernel``."""


def play_rings(given: RingInputs, start_s: FloatArray, end_s: FloatArray, after: IntArray) -> None:
    """Fill the times of the rings' nodes, and ``after``, the node that each waited for. It is already filled for their
    first sends."""
    rings = given.graph.rings
    queues = np.array([_queues(given, ring) for ring in rings])
    for some in _together(queues):
        _play_together(given, [rings[at] for at in some], queues[some], start_s, end_s, after)


def _queues(given: RingInputs, ring: Ring) -> tuple[IntArray, IntArray]:
    """Return two arrays of (replicas,): the link or NIC that a message to the next replica occupies when it leaves, and
    the one when it arrives."""
    first = ring.send[:, 0]
    return given.links.queues(given.here[first], given.there[first])


def _together(queues: IntArray) -> list[list[int]]:
    """Group the rings so that no two groups share a link or NIC. Return the indices of each group's rings.

    ``queues`` is (rings, 2, replicas).
    """
    groups: list[tuple[set[int], list[int]]] = []
    for at, of_ring in enumerate(queues):
        used = set(of_ring[of_ring >= 0].tolist())
        sharing = [group for group in groups if group[0] & used]
        groups = [group for group in groups if not group[0] & used]
        used = used.union(*(others for others, _ in sharing))
        groups.append((used, [*(one for _, members in sharing for one in members), at]))
    return [sorted(members) for _, members in groups]


def _play_together(
    given: RingInputs,
    rings: Sequence[Ring],
    queues: IntArray,
    start_s: FloatArray,
    end_s: FloatArray,
    after: IntArray,
) -> None:
    """Simulate rings that share links or NICs. The buckets of all rings are columns of the same arrays."""
    n_rounds = rings[0].n_rounds
    send, receive, sums, step, send_back, receive_back = (
        np.hstack([getattr(ring, name) for ring in rings])
        for name in ("send", "receive", "sum", "step", "send_back", "receive_back")
    )
    of_ring = np.repeat(np.arange(len(rings)), [ring.send.shape[1] for ring in rings])
    ready_s = given.ready_s[send]
    parts = np.stack(
        [
            ready_s,
            given.duration_s[send],
            given.duration_s[send_back],
            given.latency_s[send],
            # the duration of a node covers the sums of all rounds
            given.duration_s[sums] / n_rounds,
            np.where(step >= 0, given.duration_s[step], 0.0),
        ]
    )
    times = _times(given.kernel, parts, queues[of_ring].transpose(1, 2, 0), of_ring, n_rounds)
    # what arrives at a replica was sent by the one before it
    before, latency_s = np.roll(times, 1, axis=1), np.roll(parts[3], 1, axis=0)
    summing_s = np.maximum(times[CAME], ready_s)
    for nodes, begin_s, finish_s in (
        (send, ready_s, times[SENT]),
        (receive, before[FIRST] + latency_s, times[CAME]),
        (sums, summing_s, times[SUMMED]),
        (send_back, times[RETURNED], times[BACK]),
        (receive_back, before[FIRST_BACK] + latency_s, times[CAME_BACK]),
    ):
        start_s[nodes], end_s[nodes] = begin_s, finish_s
    after[sums] = np.where(times[CAME] >= ready_s, receive, after[send])
    after[send_back] = np.where(step >= 0, step, sums)
    after[receive], after[receive_back] = np.roll(send, 1, axis=0), np.roll(send_back, 1, axis=0)
    steps = step >= 0
    start_s[step[steps]], end_s[step[steps]] = times[SUMMED][steps], times[RETURNED][steps]
    after[step[steps]] = sums[steps]


def _times(
    kernel: Callable[[str, int], Callable[..., object]],
    parts: FloatArray,
    queues: IntArray,
    of_ring: IntArray,
    n_rounds: int,
) -> FloatArray:
    """Return (8, replicas, buckets) times as ``ring_times`` fills them.

    ``parts`` is (6, replicas, buckets), as for ``ring_times``. ``queues`` is (2, replicas, buckets), the link or NIC
    that a message occupies when it leaves and when it arrives. ``of_ring`` is (buckets,), the ring of each bucket.
    """
    n = parts.shape[1]
    leaving, coming = queues[0], np.roll(queues[1], 1, axis=0)
    # a queue of only one link always serves messages in the order in which they left
    own = _is_own(leaving) and _is_own(coming)
    one_order = own and (parts[3] == parts[3, :, :1]).all()
    computes = bool(parts[4:].any())
    period = _period(np.concatenate([parts, _pattern(leaving)[None], _pattern(coming)[None]]))
    once = np.ascontiguousarray(parts[:, :period])
    n_messages = 2 * n_rounds * once[0].size
    times = np.zeros((8, *once[0].shape))
    if (one_order and not (computes and len(of_ring) > 1)) or n_messages > MOST_SHARED:
        sharing = np.maximum(_sharing(leaving, own), _sharing(coming, own))[:period]
        # an estimate: messages that share a queue take turns, so each takes that much longer
        once[1:3] *= sharing
        if n_messages > MOST_PLAYED:
            once, period = _like_the_slowest(once), 1
            times = np.zeros((8, *once[0].shape))
        turn = np.argsort(once[0], axis=1, kind="stable")
        kernel("ring_times", n_messages)(once, turn, of_ring, n_rounds, times)
    else:
        numbers = [_numbered(one[:period]) for one in (leaving, coming)]
        computer = of_ring + (int(of_ring.max()) + 1) * np.arange(period)[:, None]
        kernel("shared_ring_times", n_messages)(once, *numbers, computer, computes, n_rounds, times)
    return np.tile(times, (1, n // period, 1))


def _like_the_slowest(parts: FloatArray) -> FloatArray:
    """Return the (6, 1, buckets) parts of a ring of equal replicas that takes about as long.

    Each round takes as long as the slowest link or sum. If a message needs longer for one hop, on average over all
    links and including its latency and sum, a round takes that long. A bucket begins when the last replica has its
    gradients.
    """
    ready_s, moving_s, back_s, latency_s, sum_s, step_s = parts
    slowest = [np.max(one_s, axis=0) for one_s in (ready_s, moving_s, back_s, sum_s, step_s)]
    spare_s = (latency_s + moving_s + sum_s).mean(axis=0) - np.maximum(slowest[1], slowest[3])
    slowest.insert(3, np.maximum(spare_s, 0.0))
    return np.stack(slowest)[:, None]


def _is_own(queue: IntArray) -> bool:
    """Return True if each row has only one queue, and no two rows have the same. Rows are replicas, columns are
    buckets."""
    if (queue != queue[:, :1]).any():
        return False
    used = queue[:, 0][queue[:, 0] >= 0]
    return len(np.unique(used)) == len(used)


def _sharing(queue: IntArray, own: bool) -> IntArray:
    """Return (replicas, buckets) the number of links that share each queue; 1 if a link has its queue alone."""
    if own:
        return np.ones_like(queue)
    row = np.arange(len(queue))[:, None]
    pairs = np.unique(np.stack([queue.ravel(), (row + 0 * queue).ravel()]), axis=1)
    used, counts = np.unique(pairs[0], return_counts=True)
    counts[used < 0] = 1
    return np.asarray(counts[np.searchsorted(used, queue)])


def _numbered(queue: IntArray) -> IntArray:
    """Return the same queues with their numbers changed to 0, 1, 2, ...; -1 stays."""
    used, numbers = np.unique(queue, return_inverse=True)
    return np.asarray(numbers.reshape(queue.shape) - int(used[0] < 0))


def _pattern(queue: IntArray) -> FloatArray:
    """Return (replicas, buckets) numbers that describe how queues are shared. If two rows are equal, their queues are
    shared in the same way.

    An entry encodes two numbers: the distance to the first replica that uses the same queue, and the first bucket for
    which that replica uses it.
    """
    _, first, inverse = np.unique(queue, return_index=True, return_inverse=True)
    n_buckets = queue.shape[1]
    row, column = np.divmod(first, n_buckets)
    away = np.arange(len(queue))[:, None] - row[inverse.reshape(queue.shape)]
    pattern = away * n_buckets + column[inverse.reshape(queue.shape)]
    return np.asarray(np.where(queue < 0, -1, pattern), dtype=np.float64)


def _period(parts: FloatArray) -> int:
    """Return the number of replicas after which a ring repeats itself; all replicas if it does not. ``parts`` is (..,
    replicas, buckets)."""
    n = int(parts.shape[1])
    for period in range(1, n // 2 + 1):
        if n % period == 0 and (parts[:, period:] == parts[:, :-period]).all():
            return period
    return n
