"""Whose fault an iteration's error is: the change of its length, shared out among what differed.

An iteration is as long as the longest chain of actions that wait for each other. Let every duration, every
latency and every delay move from its predicted to its measured value, all of them together and evenly: at each
moment the iteration grows by what grows on the chain that is longest then. Added up over the whole way, that
shares the error out, and nobody answers for time spent waiting for others (Aumann and Shapley 1974).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dtfm_lab.compare.waits import Waits
from dtfm_lab.domain.units import FloatArray, IntArray

LOOKS = 17
"""at the longest chain, on the way from predicted to measured"""
Mask = npt.NDArray[np.bool_]
AT_ONCE = 16
"""iterations that are played side by side; more take memory"""


class Times(NamedTuple):
    """(nodes, iterations) what each action takes by itself. Played after what it waits for, it is when it was."""

    duration_s: FloatArray
    latency_s: FloatArray
    """of receives: from the start of the send to the first byte; 0 of all others"""
    late_s: FloatArray
    """started so much later than it could have"""

    @classmethod
    def of(cls, waits: Waits, start_s: FloatArray, end_s: FloatArray, link: IntArray | None) -> Times:
        """From when everything happened, (nodes, iterations) each.

        ``link`` numbers the links where first bytes may wait before the receiver's card: the latency of a link is then
        the shortest of its messages'.
        """
        received = waits.send_of >= 0
        latency_s = np.zeros_like(start_s)
        latency_s[received] = (start_s - start_s[waits.send_of])[received]
        if link is not None:
            shortest_s = np.full((link.max() + 1, start_s.shape[1]), np.inf)
            np.minimum.at(shortest_s, link[received], latency_s[received])
            latency_s[received] = shortest_s[link[received]]
        could_s = np.zeros_like(start_s)
        for at, sources in enumerate(waits.before):
            if sources:
                could_s[at] = end_s[list(sources)].max(axis=0)
            if received[at]:
                could_s[at] = np.maximum(could_s[at], start_s[waits.send_of[at]] + latency_s[at])
        return cls(end_s - start_s, latency_s, start_s - could_s)


def shares(
    waits: Waits, predicted: Times, measured: Times, group: IntArray, late_group: IntArray, n_groups: int
) -> FloatArray:
    """(3, groups, iterations) seconds by which each group made each iteration longer than predicted, by durations,
    latencies and delays.

    (nodes,) ``group`` tells whose each action's duration and latency are, ``late_group`` whose its delay.
    """
    n_iterations = measured.duration_s.shape[1]
    found = np.zeros((3, n_groups, n_iterations))
    for first in range(0, n_iterations, AT_ONCE):
        part = slice(first, first + AT_ONCE)
        begin, end = (Times(*(column[:, part] for column in times)) for times in (predicted, measured))
        found[:, :, part] = _shared(waits, begin, end, group, late_group, n_groups)
    return found


def _shared(waits: Waits, begin: Times, end: Times, group: IntArray, late_group: IntArray, n_groups: int) -> FloatArray:
    n_iterations = begin.duration_s.shape[1]
    way = np.tile(np.linspace(0.0, 1.0, LOOKS), n_iterations)
    of = np.repeat(np.arange(n_iterations), LOOKS)
    change = Times(*(b - a for a, b in zip(begin, end, strict=True)))
    whole_s, last, came_from, from_start = _played(waits, begin, change, way, of)
    chains = list(_chains(last, came_from, from_start))
    growth_s = np.zeros(len(way))
    for column, at, ended, by_start in chains:
        moved = ended * change.duration_s[at, of[column]] + by_start * change.latency_s[at, of[column]]
        growth_s[column] += moved + change.late_s[at, of[column]]
    weight = _weights(*(each.reshape(n_iterations, LOOKS) for each in (way, whole_s, growth_s))).ravel()
    found = np.zeros((3, n_groups, n_iterations))
    for column, at, ended, by_start in chains:
        iteration, share = of[column], weight[column]
        np.add.at(found[0], (group[at], iteration), share * ended * change.duration_s[at, iteration])
        np.add.at(found[1], (group[at], iteration), share * by_start * change.latency_s[at, iteration])
        np.add.at(found[2], (late_group[at], iteration), share * change.late_s[at, iteration])
    return found


def _chains(last: IntArray, came_from: IntArray, from_start: Mask) -> Iterator[tuple[IntArray, IntArray, Mask, Mask]]:
    """Back along the longest chain of every column at once: columns, their nodes, whether a node's own duration counts
    (not where its start was what the next one waited for), and whether it waited for its send's start."""
    column, at = np.arange(len(last)), last
    ended = np.ones(len(last), dtype=bool)
    while len(column):
        by_start = from_start[at, column]
        yield column, at, ended, by_start
        at = came_from[at, column]
        goes_on = at >= 0
        column, at, ended = column[goes_on], at[goes_on], ~by_start[goes_on]


def _weights(way: FloatArray, whole_s: FloatArray, growth_s: FloatArray) -> FloatArray:
    """(iterations, looks) for how much of the way each look's chain is taken for the longest.

    The length is the largest of many straight lines, so where two neighbouring ones meet, one follows the other; that
    way all growth adds up to the whole error, however few the looks.
    """
    offset_s = whole_s - growth_s * way
    with np.errstate(divide="ignore", invalid="ignore"):
        meet = (offset_s[:, :-1] - offset_s[:, 1:]) / (growth_s[:, 1:] - growth_s[:, :-1])
    middle = (way[:, :-1] + way[:, 1:]) / 2
    meet = np.clip(np.where(np.isfinite(meet), meet, middle), way[:, :-1], way[:, 1:])
    weight: FloatArray = np.diff(meet, axis=1, prepend=0.0, append=1.0)
    return weight


def _played(
    waits: Waits, begin: Times, change: Times, way: FloatArray, of: IntArray
) -> tuple[FloatArray, IntArray, IntArray, Mask]:
    """All looks at all iterations at once, a column each: its length, the node that ends last, and per node the one
    that it waited for last (-1: none) and whether for that one's start."""
    shape = len(waits.nodes), len(way)
    start_s, end_s = np.empty(shape), np.empty(shape)
    came_from = np.full(shape, -1, dtype=np.int64)
    from_start = np.zeros(shape, dtype=bool)
    columns = np.arange(shape[1])
    send_of = waits.send_of.tolist()
    for at in waits.order:
        could_s: FloatArray | float = 0.0
        if sources := waits.before[at]:
            if len(sources) == 1:
                could_s = end_s[sources[0]]
                came_from[at] = sources[0]
            else:
                ends_s = end_s[list(sources)]
                best = ends_s.argmax(axis=0)
                could_s = ends_s[best, columns]
                came_from[at] = np.array(sources)[best]
        if (send := send_of[at]) >= 0:
            there_s = start_s[send] + begin.latency_s[at, of] + way * change.latency_s[at, of]
            by_start = there_s >= could_s if sources else np.ones(shape[1], dtype=bool)
            from_start[at] = by_start
            came_from[at][by_start] = send
            could_s = np.maximum(could_s, there_s) if sources else there_s
        start_s[at] = could_s + begin.late_s[at, of] + way * change.late_s[at, of]
        end_s[at] = start_s[at] + begin.duration_s[at, of] + way * change.duration_s[at, of]
    return end_s.max(axis=0), end_s.argmax(axis=0), came_from, from_start
