"""Times of messages between two hosts: one host times round trips, the other answers its requests.

The timing host either sends a message and waits for a small reply, or sends a small request and waits for a message.
Both directions are so timed by one clock, and the time of the small message is known from round trips of small
messages alone. The latencies of the two directions cannot be told apart: each is taken as half of a round trip.
"""

import contextlib
import socket
import statistics
import struct
import time
from collections.abc import Callable
from typing import Any

from dtfm_lab.domain.network import shortened
from dtfm_lab.runtime.protocol.connections import Channel, ConnectionLost, receive_exactly

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
