"""From round trips to a Topology: one-way latencies, bandwidths, and times by message size."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dtfm_lab.domain.network import Device, Topology, segment_of
from dtfm_lab.domain.units import FloatArray, from_gbps, from_ms, to_gbps, to_ms

Timed = Mapping[tuple[int, int], Mapping[str, Any]]
"""By (timing host, answering host), the results of ``timing.time_both_ways``; each pair is in it once."""
STEADY = 1 / 64
"""Fraction of the largest message from which the bandwidth is the slope of times by size."""


def topology_of(devices: Sequence[Device], timed: Timed, *, name: str, facts: Sequence[str]) -> Topology:
    """The network of the timed pairs. Times of sizes that were too slow to measure are extrapolated linearly."""
    n = len(devices)
    sizes = np.array(sorted({size for one in timed.values() for way in ("there", "back") for size, _ in one[way]}))
    latency_s, bandwidth = np.zeros((n, n)), np.ones((n, n))
    message_s = np.full((n, n, len(sizes)), np.nan)
    for (a, b), one in timed.items():
        for i, j, way in ((a, b, "there"), (b, a, "back")):
            latency_s[i, j] = one["median_s"] / 2
            known, times = one_way_s(one["median_s"], one[way])
            bandwidth[i, j] = bandwidth_of(known, times)
            upper, share = segment_of(known, sizes)
            message_s[i, j] = times[upper - 1] + share * (times[upper] - times[upper - 1])
    latency_ms, gbps, message_ms = map(_four_digits, (to_ms(latency_s), to_gbps(bandwidth), to_ms(message_s)))
    today = time.strftime("%Y-%m-%d")
    description = f"Probed over TCP on {today}; latencies are halves of round trips. {'; '.join(facts)}."
    return Topology(
        tuple(devices),
        from_ms(latency_ms),
        from_gbps(gbps),
        name=name,
        description=description,
        message_bytes=sizes,
        message_s=from_ms(message_ms),
    )


def one_way_s(small_round_trip_s: float, round_trips: Sequence[tuple[int, float]]) -> tuple[FloatArray, FloatArray]:
    """(K,) sizes and (K,) one-way seconds: round trips minus half of a small one, made not to fall with size."""
    known, times = np.array(round_trips, dtype=float).T
    return known, np.maximum.accumulate(np.maximum(times - small_round_trip_s / 2, small_round_trip_s / 2))


def bandwidth_of(message_bytes: FloatArray, message_s: FloatArray) -> float:
    """Bytes per second of large messages: from the median slope between any two of them (Theil-Sen)."""
    from scipy.stats import theilslopes  # loaded here because it is slow to load and few commands need it

    large = message_bytes >= STEADY * message_bytes[-1]
    slope = float(theilslopes(message_s[large], message_bytes[large])[0]) if large.sum() > 1 else 0.0
    return 1 / slope if slope > 0 else float(message_bytes[-1] / message_s[-1])


def _four_digits(values: FloatArray) -> FloatArray:
    """Round to four digits: more than the measurements' precision, and files stay readable."""
    rounded: FloatArray = np.vectorize(lambda value: float(f"{value:.4g}"))(values)
    return rounded
