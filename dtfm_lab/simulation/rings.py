"""Rings whose rounds are taken together (``TaskGraph.rings``), on the links of a plan: when each replica has been
averaged.

Equal to the messages one by one where a ring has its links and cards for itself, or shares all of them with the same
other rings, and where sums and steps take no time or nothing is cut into buckets. Else an estimate: rings that share
some cards are taken to be in step, and pipelines' messages on these cards are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dtfm_lab.domain.network import Links
from dtfm_lab.domain.schedule.task_graph import Ring, TaskGraph
from dtfm_lab.domain.units import FloatArray, IntArray, by_key
from dtfm_lab.simulation.kernels import kernel
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


@dataclass(frozen=True, eq=False)
class RingInputs:
    """What decides the times of a graph's rings. Columns by node."""

    graph: TaskGraph
    links: Links
    here: IntArray
    there: IntArray
    duration_s: FloatArray
    """Of one message at both ends; of all the sums of a node together."""
    latency_s: FloatArray
    ready_s: FloatArray
    """Of a ring's first sends: when what they need has ended."""


def play_rings(given: RingInputs, start_s: FloatArray, end_s: FloatArray, after: IntArray) -> None:
    """Fill the times of the rings' nodes, and what each waited for; ``after`` of their first sends is known."""
    rings = given.graph.rings
    queues = [_queues(given, ring) for ring in rings]
    alike = by_key((_shared(given, ring, leaving), at) for at, (ring, (leaving, _)) in enumerate(zip(rings, queues)))
    sharing = _sharing([queues[some[0]] for some in alike.values()])
    for some, n_sharing in zip(alike.values(), sharing, strict=True):
        _play_together(given, [rings[at] for at in some], n_sharing, start_s, end_s, after)


def _queues(given: RingInputs, ring: Ring) -> tuple[IntArray, IntArray]:
    """(replicas,) each: what the messages to the next replica occupy where they leave, and where they come in."""
    first = ring.send[:, 0]
    return given.links.queues(given.here[first], given.there[first])


def _shared(given: RingInputs, ring: Ring, leaving: IntArray) -> tuple[bytes, bytes]:
    """Rings of one such key use the same links and cards, one after the other, with the same latencies."""
    return leaving.tobytes(), given.latency_s[ring.send[:, 0]].tobytes()


def _sharing(queues: Sequence[tuple[IntArray, IntArray]]) -> list[IntArray]:
    """Of each of these rings, (replicas,) how many links of rings share the card of the link to the next replica."""
    shares = [np.ones(len(leaving), dtype=np.int64) for leaving, _ in queues]
    for end in (0, 1):
        used, counts = np.unique(np.concatenate([one[end] for one in queues]), return_counts=True)
        counts[used < 0] = 1
        for share, one in zip(shares, queues, strict=True):
            np.maximum(share, counts[np.searchsorted(used, one[end])], out=share)
    return shares


def _play_together(
    given: RingInputs,
    rings: Sequence[Ring],
    n_sharing: IntArray,
    start_s: FloatArray,
    end_s: FloatArray,
    after: IntArray,
) -> None:
    """Rings on the same links, their buckets in one row."""
    n_rounds = rings[0].n_rounds
    send, receive, sums, step, send_back, receive_back = (
        np.hstack([getattr(ring, name) for ring in rings])
        for name in ("send", "receive", "sum", "step", "send_back", "receive_back")
    )
    computer = np.repeat(np.arange(len(rings)), [ring.send.shape[1] for ring in rings])
    ready_s = given.ready_s[send]
    parts = np.stack(
        [
            ready_s,
            given.duration_s[send] * n_sharing[:, None],
            given.duration_s[send_back] * n_sharing[:, None],
            given.latency_s[send],
            given.duration_s[sums] / n_rounds,
            np.where(step >= 0, given.duration_s[step], 0.0),
        ]
    )
    period = _period(parts)
    once = np.ascontiguousarray(parts[:, :period])
    turn = np.argsort(once[0], axis=1, kind="stable")
    times = np.zeros((8, *turn.shape))
    n_messages = 2 * n_rounds * turn.size
    kernel("ring_times", n_messages)(once[0], turn, *once[1:], computer, n_rounds, times)
    times = np.tile(times, (1, len(send) // period, 1))
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


def _period(parts: FloatArray) -> int:
    """Replicas after which a ring repeats itself; ``parts`` is (.., replicas, buckets)."""
    n = parts.shape[1]
    for period in range(1, n // 2 + 1):
        if n % period == 0 and (parts[:, period:] == parts[:, :-period]).all():
            return period
    return n
