"""Compute latency and bandwidth of a pair of hosts from the times of their messages.

The latencies of the two directions cannot be separated. Each is taken as half of a round trip.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.units import FloatArray, format_s, to_gbps
from dtfm_lab.extensions.machines.probe.messages import SIZES
from dtfm_lab.runtime.protocol.channels import ConnectionLost


def checked_timing(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the times in a host's answer, after checking them. Raises ConnectionLost if they are invalid."""
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
    """Return one line on what was measured between host ``a``, which timed, and host ``b``: latency and both
    bandwidths."""
    there, back = (to_gbps(bandwidth_of(*one_way_s(timing["median_s"], timing[w]))) for w in ("there", "back"))
    latency, least = (format_s(timing[what] / 2) for what in ("median_s", "least_s"))
    return f"{a} - {b}: {latency} one way (at best {least}), {there:.3g} Gbit/s there, {back:.3g} back"


STEADY = 1 / 64
"""The bandwidth comes from messages of at least this share of the largest size. For these, seconds grow linearly with
size."""


def one_way_s(small_round_trip_s: float, round_trips: Sequence[tuple[int, float]]) -> tuple[FloatArray, FloatArray]:
    """Return (K,) sizes in bytes and (K,) one-way seconds.

    One way is the round trip minus half of a small round trip. Seconds are raised where needed, so that they never fall
    as sizes grow.
    """
    known, times = np.array(round_trips, dtype=float).T
    return known, np.maximum.accumulate(np.maximum(times - small_round_trip_s / 2, small_round_trip_s / 2))


def bandwidth_of(message_bytes: FloatArray, message_s: FloatArray) -> float:
    """Return the bytes per second of large messages, from the seconds of messages by size.

    It is the inverse of the median slope, over the lines from each large message to the largest. The slopes of all
    pairs (Theil-Sen) would be worse: between two small messages, a short delay of the computer outweighs the line. If
    the slope is 0, it is the size of the largest message divided by its seconds.
    """
    large = message_bytes >= STEADY * message_bytes[-1]
    more_bytes, more_s = message_bytes[-1] - message_bytes[large][:-1], message_s[-1] - message_s[large][:-1]
    slope = float(np.median(more_s / more_bytes)) if len(more_s) else 0.0
    return 1 / slope if slope > 0 else float(message_bytes[-1] / message_s[-1])
