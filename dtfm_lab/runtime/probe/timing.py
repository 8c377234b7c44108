"""What follows from timed messages: latency and bandwidth of a pair of hosts, and the Topology of many.

The latencies of the two directions cannot be told apart: each is taken as half of a round trip.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dtfm_lab.domain.network import MOST_SPREAD, Device, Topology, segment_of, shortened
from dtfm_lab.domain.units import GB, FloatArray, format_s, from_gbps, from_ms, to_gbps, to_ms
from dtfm_lab.runtime.probe.messages import SIZES
from dtfm_lab.runtime.protocol.channels import ConnectionLost


def checked_timing(answer: dict[str, Any]) -> dict[str, Any]:
    """The times in a host's answer, validated. Raises ConnectionLost."""
    try:
        least_s, median_s, spread = (float(answer[what]) for what in ("least_s", "median_s", "spread"))
        ways = {way: [(int(size), float(s)) for size, s in answer[way]] for way in ("there", "back")}
        if not (0 < least_s <= median_s and 0 <= spread < 1e6):
            raise ValueError
        if any(len(way) < 2 or min(way)[1] <= 0 for way in ways.values()):
            raise ValueError
        if any(tuple(size for size, _ in way) != SIZES[: len(way)] for way in ways.values()):
            raise ValueError
    except (KeyError, OverflowError, TypeError, ValueError):
        raise ConnectionLost(f"sent no times: {shortened(answer)}") from None
    return {"least_s": least_s, "median_s": median_s, "spread": spread, **ways}


def sentence_of_pair(a: str, b: str, timing: Mapping[str, Any]) -> str:
    """What was measured from host ``a``, which timed, to ``b`` and back, in one line."""
    there, back = (to_gbps(bandwidth_of(*one_way_s(timing["median_s"], timing[w]))) for w in ("there", "back"))
    latency, least = (format_s(timing[what] / 2) for what in ("median_s", "least_s"))
    return f"{a} - {b}: {latency} one way (at best {least}), {there:.3g} Gbit/s there, {back:.3g} back"


Timed = Mapping[tuple[int, int], Mapping[str, Any]]
"""By (timing host, answering host), the results of ``time_both_ways``; each pair is in it once."""
INSIDE_LATENCY_S, INSIDE_BYTES_PER_S = 10e-6, 25 * GB
"""Latency and bandwidth between two GPUs of a host, which are not timed: about those of 16 lanes of PCIe 4.0."""
STEADY = 1 / 64
"""Fraction of the largest message from which the bandwidth is the slope of times by size."""


def topology_of(
    hosts: Sequence[Sequence[Device]],
    timed: Timed,
    *,
    name: str,
    facts: Sequence[str],
) -> Topology:
    """The network of the timed pairs of hosts, each with one device or several.

    Times of sizes that were too slow to measure are extrapolated linearly. Links inside a host were not timed. The
    network's spread is that of single large messages, over all pairs: of the minutes of a probe, not of a day.
    """
    host = np.repeat(np.arange(len(hosts)), [len(devices) for devices in hosts])
    sizes = np.array(sorted({size for one in timed.values() for way in ("there", "back") for size, _ in one[way]}))
    latency_s = np.full((len(hosts),) * 2, INSIDE_LATENCY_S)
    bandwidth = np.full(latency_s.shape, INSIDE_BYTES_PER_S)
    message_s = np.full((*latency_s.shape, len(sizes)), np.nan)
    for (a, b), one in timed.items():
        for i, j, way in ((a, b, "there"), (b, a, "back")):
            latency_s[i, j] = one["median_s"] / 2
            known, times = one_way_s(one["median_s"], one[way])
            bandwidth[i, j] = bandwidth_of(known, times)
            upper, share = segment_of(known, sizes)
            message_s[i, j] = times[upper - 1] + share * (times[upper] - times[upper - 1])
    latency_ms, gbps, message_ms = map(_four_digits, (to_ms(latency_s), to_gbps(bandwidth), to_ms(message_s)))
    today, spreads = time.strftime("%Y-%m-%d"), [one["spread"] for one in timed.values()]
    description = f"Probed over TCP on {today}; latencies are halves of round trips. {'; '.join(facts)}."
    grid = np.ix_(host, host)
    return Topology(
        tuple(device for devices in hosts for device in devices),
        from_ms(latency_ms)[grid],
        from_gbps(gbps)[grid],
        name=name,
        description=description,
        link_spread=float(f"{min(float(np.hypot.reduce(spreads)) / len(spreads) ** 0.5, MOST_SPREAD):.2g}"),
        message_bytes=sizes,
        message_s=from_ms(message_ms)[grid],
    )


def one_way_s(small_round_trip_s: float, round_trips: Sequence[tuple[int, float]]) -> tuple[FloatArray, FloatArray]:
    """(K,) sizes and (K,) one-way seconds: round trips minus half of a small one, made not to fall with size."""
    known, times = np.array(round_trips, dtype=float).T
    return known, np.maximum.accumulate(np.maximum(times - small_round_trip_s / 2, small_round_trip_s / 2))


def bandwidth_of(message_bytes: FloatArray, message_s: FloatArray) -> float:
    """Bytes per second of large messages: from the median of the slopes between each of them and the largest.

    Not of all pairs (Theil-Sen): between two of the smaller ones a computer that was late for a moment counts more than
    the line.
    """
    large = message_bytes >= STEADY * message_bytes[-1]
    more_bytes, more_s = message_bytes[-1] - message_bytes[large][:-1], message_s[-1] - message_s[large][:-1]
    slope = float(np.median(more_s / more_bytes)) if len(more_s) else 0.0
    return 1 / slope if slope > 0 else float(message_bytes[-1] / message_s[-1])


def _four_digits(values: FloatArray) -> FloatArray:
    """Round to four digits: more than the measurements' precision, and files stay readable."""
    rounded: FloatArray = np.vectorize(lambda value: float(f"{value:.4g}"))(values)
    return rounded
