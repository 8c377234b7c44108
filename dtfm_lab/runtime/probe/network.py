"""From round trips to a Topology: one-way latencies, bandwidths, and times by message size."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dtfm_lab.domain.network import Device, Topology, segment_of
from dtfm_lab.domain.units import FloatArray, from_gbps, from_ms, to_gbps, to_ms

Timed = Mapping[tuple[int, int], Mapping[str, Any]]
"""By (timing host, answering host), the results of ``timing.time_both_ways``; each pair is in it once."""
INSIDE_LATENCY_S = 10e-6
"""Latency between two GPUs of a host, which is not timed."""
STEADY = 1 / 64
"""Fraction of the largest message from which the bandwidth is the slope of times by size."""


def topology_of(
    hosts: Sequence[Sequence[Device]],
    timed: Timed,
    *,
    name: str,
    facts: Sequence[str],
    inside_bytes_per_s: Sequence[float] = (),
) -> Topology:
    """The network of the timed pairs of hosts, each with one device or several.

    Times of sizes that were too slow to measure are extrapolated linearly. Links inside a host, which were not timed,
    have its ``inside_bytes_per_s``.
    """
    host = np.repeat(np.arange(len(hosts)), [len(devices) for devices in hosts])
    sizes = np.array(sorted({size for one in timed.values() for way in ("there", "back") for size, _ in one[way]}))
    latency_s = np.full((len(hosts),) * 2, INSIDE_LATENCY_S)
    bandwidth = np.diag(inside_bytes_per_s) if len(inside_bytes_per_s) else np.ones(latency_s.shape)
    message_s = np.full((*latency_s.shape, len(sizes)), np.nan)
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
    grid = np.ix_(host, host)
    return Topology(
        tuple(device for devices in hosts for device in devices),
        from_ms(latency_ms)[grid],
        from_gbps(gbps)[grid],
        name=name,
        description=description,
        message_bytes=sizes,
        message_s=from_ms(message_ms)[grid],
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
