"""Times of messages between two hosts, and the Topology of many: one host times round trips, the other answers.

The timing host either sends a message and waits for a small reply, or sends a small request and waits for a message.
Both directions are so timed by one clock, and the time of the small message is known from round trips of small
messages alone. The latencies of the two directions cannot be told apart: each is taken as half of a round trip.
"""

import contextlib
import socket
import statistics
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dtfm_lab.domain.network import Device, Topology, segment_of, shortened
from dtfm_lab.domain.units import GB, FloatArray, from_gbps, from_ms, to_gbps, to_ms
from dtfm_lab.runtime.protocol.channels import Channel, ConnectionLost
from dtfm_lab.runtime.protocol.connections import receive_exactly

SIZES = tuple(1024 * 4**k for k in range(8))
"""Message sizes in bytes, 1 KiB to 16 MiB."""
MOST_REPEATS = 15
LEAST_REPEATS = 3
"""Timed messages of each size. Before those of large sizes one is not timed, because TCP opens its window first."""
LARGE = 2**16
"""Bytes from which a size counts as large."""
PINGS = 100
LEAST_PINGS = 5
SILENCE_S = 30.0
"""Most seconds without a byte before the other host counts as lost."""
REQUEST = struct.Struct("!cQ")
"""The header of a request: TAKE or GIVE, and the message's size in bytes."""
TAKE, GIVE = b"T", b"G"
REPLY = b"received"


def answer_requests(channel: Channel) -> None:
    """Answer the requests of one timing host until it closes the connection."""
    with channel.raw() as connection, contextlib.suppress(OSError):
        connection.settimeout(SILENCE_S)
        buffer = memoryview(bytearray(max(SIZES)))
        while True:
            receive_exactly(connection, buffer[: REQUEST.size])
            what, size = REQUEST.unpack(buffer[: REQUEST.size])
            if size > len(buffer):
                return
            if what == TAKE:
                receive_exactly(connection, buffer[:size])
                connection.sendall(REPLY)
            else:
                connection.sendall(buffer[:size])


def time_both_ways(channel: Channel, seconds: float) -> dict[str, Any]:
    """Round-trip times to the host at the other end, measured for about ``seconds``. Raises OSError.

    Returns ``least_s`` and ``median_s`` of small messages, and lists of pairs (size in bytes, median seconds):
    ``there`` with a message of that size and a small reply, ``back`` with a small request and a message of that size.
    Sizes of which one message would take too long are left out; each other size is timed at least three times, even
    if that takes longer than ``seconds``.
    """
    connection = channel.raw()
    connection.settimeout(SILENCE_S)
    buffer = memoryview(bytearray(REQUEST.size + max(SIZES)))
    pings = [_take(connection, buffer, 0)]
    deadline_s = time.monotonic() + seconds / 6
    while len(pings) <= LEAST_PINGS or (len(pings) <= PINGS and time.monotonic() < deadline_s):
        pings.append(_take(connection, buffer, 0))
    small_s = statistics.median(pings[1:])
    return {
        "least_s": min(pings[1:]),
        "median_s": small_s,
        "there": _time_sizes(lambda size: _take(connection, buffer, size), seconds / 2, small_s),
        "back": _time_sizes(lambda size: _give(connection, buffer, size), seconds / 2, small_s),
    }


def checked_timing(answer: dict[str, Any]) -> dict[str, Any]:
    """The times in a host's answer, validated. Raises ConnectionLost."""
    try:
        least_s, median_s = float(answer["least_s"]), float(answer["median_s"])
        ways = {way: [(int(size), float(s)) for size, s in answer[way]] for way in ("there", "back")}
        if not 0 < least_s <= median_s or any(len(way) < 2 or min(way)[1] <= 0 for way in ways.values()):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise ConnectionLost(f"sent no times: {shortened(answer)}") from None
    return {"least_s": least_s, "median_s": median_s, **ways}


def _time_sizes(once: Callable[[int], float], seconds: float, small_s: float) -> list[tuple[int, float]]:
    timed: list[tuple[int, float]] = []
    for size in SIZES:
        deadline_s = time.monotonic() + seconds / len(SIZES)
        if size >= LARGE:
            once(size)
        samples = [once(size) for _ in range(LEAST_REPEATS)]
        while len(samples) < MOST_REPEATS and time.monotonic() < deadline_s:
            samples.append(once(size))
        timed.append((size, statistics.median(samples)))
        next_s = small_s + 4 * (timed[-1][1] - small_s)
        if len(timed) > 1 and next_s > seconds / 4:
            break
    return timed


def _take(connection: socket.socket, buffer: memoryview, size: int) -> float:
    """Seconds of a message of this size there and a small reply back."""
    REQUEST.pack_into(buffer, 0, TAKE, size)
    began_s = time.perf_counter()
    connection.sendall(buffer[: REQUEST.size + size])
    receive_exactly(connection, memoryview(bytearray(len(REPLY))))
    return time.perf_counter() - began_s


def _give(connection: socket.socket, buffer: memoryview, size: int) -> float:
    """Seconds of a small request there and a message of this size back."""
    began_s = time.perf_counter()
    connection.sendall(REQUEST.pack(GIVE, size))
    receive_exactly(connection, buffer[:size])
    return time.perf_counter() - began_s


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

    Times of sizes that were too slow to measure are extrapolated linearly. Links inside a host were not timed.
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
