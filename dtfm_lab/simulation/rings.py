"""Simulate rings whose rounds are taken together (``TaskGraph.rings``) on the links of a plan.

The result, when each replica has been averaged, equals the messages one by one under two conditions. No message of a
pipeline needs a ring's NIC at the same time. And compression and steps take no time, or nothing is cut into buckets.
Otherwise it is an estimate. On identical hosts it was off by at most:

- 1.5 % if messages of pipelines leave by the NICs of rings that overlap with passes;
- 4 % if more than ``MOST_SHARED`` messages share some of their NICs, or are compressed in buckets;
- 4 % if there are more than ``MOST_PLAYED`` messages on links that differ.

Rings that repeat themselves from host to host are simulated on the hosts of one period.
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
"""Maximum number of messages that are simulated one by one if rings share some of their NICs. It takes half a
second."""
MOST_PLAYED = 10_000_000
"""Maximum number of messages of all other rings that are simulated, in a quarter of a second. If there are more, a ring
of equal replicas represents them (``_like_the_slowest``)."""


@dataclass(frozen=True, eq=False)
class RingInputs:
    """The inputs that set the times of a graph's rings. The fields are columns by node."""

    graph: TaskGraph
    links: Links
    here: IntArray
    there: IntArray
    duration_s: FloatArray
    """Seconds of one message, at both ends, or of all the sums of a node together."""
    latency_s: FloatArray
    ready_s: FloatArray
    """For each first send of a ring, the second at which everything that it needs has ended."""
    kernel: Callable[[str, int], Callable[..., object]]
    """Returns the form of an inner loop that suits a number of messages: ``engine.kernel``."""


def play_rings(given: RingInputs, start_s: FloatArray, end_s: FloatArray, after: IntArray) -> None:
    """Fill the times of the rings' nodes, and the node that each waited for. ``after`` of their first sends is filled
    already."""
    rings = given.graph.rings
    queues = np.array([_queues(given, ring) for ring in rings])
    for some in _together(queues):
        _play_together(given, [rings[at] for at in some], queues[some], start_s, end_s, after)


def _queues(given: RingInputs, ring: Ring) -> tuple[IntArray, IntArray]:
    """Return (replicas,) the link or NIC that a message to the next replica occupies when it leaves, and when it
    arrives."""
    first = ring.send[:, 0]
    return given.links.queues(given.here[first], given.there[first])


def _together(queues: IntArray) -> list[list[int]]:
    """Return the rings in groups. No two groups share a link or NIC. ``queues`` is (rings, 2, replicas)."""
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
    """Simulate rings that share links or NICs, with their buckets in one row."""
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

    ``parts`` is (6, replicas, buckets), the arguments of the kernels. ``queues`` is (2, replicas, buckets), what the
    messages of each occupy. ``of_ring`` is (buckets,), the ring of each bucket.
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

    Its slowest link is always busy, unless messages need longer than that to go round, for which the mean of all links
    counts. A bucket is averaged after the last replica has its gradients.
    """
    ready_s, moving_s, back_s, latency_s, sum_s, step_s = parts
    slowest = [np.max(one_s, axis=0) for one_s in (ready_s, moving_s, back_s, sum_s, step_s)]
    spare_s = (latency_s + moving_s + sum_s).mean(axis=0) - np.maximum(slowest[1], slowest[3])
    slowest.insert(3, np.maximum(spare_s, 0.0))
    return np.stack(slowest)[:, None]


def _is_own(queue: IntArray) -> bool:
    """Return True if all buckets of a row use the same queue, and no two rows share one."""
    if (queue != queue[:, :1]).any():
        return False
    used = queue[:, 0][queue[:, 0] >= 0]
    return len(np.unique(used)) == len(used)


def _sharing(queue: IntArray, own: bool) -> IntArray:
    """Return (replicas, buckets) the number of links that share each queue. It is 1 for a queue of a single link."""
    if own:
        return np.ones_like(queue)
    row = np.arange(len(queue))[:, None]
    pairs = np.unique(np.stack([queue.ravel(), (row + 0 * queue).ravel()]), axis=1)
    used, counts = np.unique(pairs[0], return_counts=True)
    counts[used < 0] = 1
    return np.asarray(counts[np.searchsorted(used, queue)])


def _numbered(queue: IntArray) -> IntArray:
    """Return the same queues, counted from 0; -1 stays."""
    used, numbers = np.unique(queue, return_inverse=True)
    return np.asarray(numbers.reshape(queue.shape) - int(used[0] < 0))


def _pattern(queue: IntArray) -> FloatArray:
    """Return (replicas, buckets) numbers that describe how queues are shared. Rows are equal if their queues are shared
    in the same way.

    An entry encodes the distance to the first replica that uses the same queue, and the number of the queue among those
    that this replica uses first.
    """
    _, first, inverse = np.unique(queue, return_index=True, return_inverse=True)
    n_buckets = queue.shape[1]
    row, column = np.divmod(first, n_buckets)
    away = np.arange(len(queue))[:, None] - row[inverse.reshape(queue.shape)]
    pattern = away * n_buckets + column[inverse.reshape(queue.shape)]
    return np.asarray(np.where(queue < 0, -1, pattern), dtype=np.float64)


def _period(parts: FloatArray) -> int:
    """Return the number of replicas after which a ring repeats itself. ``parts`` is (.., replicas, buckets)."""
    n = int(parts.shape[1])
    for period in range(1, n // 2 + 1):
        if n % period == 0 and (parts[:, period:] == parts[:, :-period]).all():
            return period
    return n
