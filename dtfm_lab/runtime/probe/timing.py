"""How long messages take between two hosts: one times round trips, the other answers.

Whoever times sends a message and waits for a small reply, or asks for a message with a small request: either way
the clock is its own, and what the small one takes is known from round trips of small ones alone. So both directions
are timed from one end, and no two clocks need to agree. Latencies of the two directions cannot be told apart that
way: each is half of the round trip.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from dtfm_lab.domain.network import shortened
from dtfm_lab.runtime.probe.wire import Channel, Lost, admit, present, reason

SIZES = tuple(1024 * 4**k for k in range(8))
"""bytes, 1 KiB to 16 MiB"""
MOST_REPEATS = 15
LEAST_REPEATS = 3
"""of a size that are timed; of large ones another before them is not, for TCP opens its window first"""
LARGE = 2**16
"""bytes"""
PINGS = 100
LEAST_PINGS = 5
SILENCE_S = 30.0
"""without a byte, and the other host is given up"""
REQUEST = struct.Struct("!cQ")
TAKE, GIVE = b"T", b"G"
REPLY = b"received"


def answer_forever(server: socket.socket, token: str) -> None:
    """Accept whoever knows the token and answer its requests; ends when the server is closed."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(connection, token), daemon=True).start()


def _answer(connection: socket.socket, token: str) -> None:
    with connection, contextlib.suppress(OSError, Lost):
        admit(Channel(connection), token)
        connection.settimeout(SILENCE_S)
        buffer = memoryview(bytearray(max(SIZES)))
        while True:
            _fill(connection, buffer[: REQUEST.size])
            what, size = REQUEST.unpack(buffer[: REQUEST.size])
            if size > len(buffer):
                return
            if what == TAKE:
                _fill(connection, buffer[:size])
                connection.sendall(REPLY)
            else:
                connection.sendall(buffer[:size])


def time_both_ways(connection: socket.socket, token: str, seconds: float) -> dict[str, Any]:
    """Round trips to who answers at the other end, in about so many seconds.

    ``least_s`` and ``median_s`` of small ones, and pairs of size and median seconds, ``there`` with a message of
    that size and a small reply, ``back`` the other way round. Large sizes are left out where one message would take
    too long; each that is not is timed three times at least, which takes its time where round trips do. Raises Lost.
    """
    try:
        present(Channel(connection), token)
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
            "there": _sizes(lambda size: _take(connection, buffer, size), seconds / 2, small_s),
            "back": _sizes(lambda size: _give(connection, buffer, size), seconds / 2, small_s),
        }
    except OSError as error:
        raise Lost(reason(error)) from None


def checked_timing(answer: dict[str, Any]) -> dict[str, Any]:
    """What a host says it timed, if it is that; raises Lost."""
    try:
        least_s, median_s = float(answer["least_s"]), float(answer["median_s"])
        ways = {way: [(int(size), float(s)) for size, s in answer[way]] for way in ("there", "back")}
        if not 0 < least_s <= median_s or any(len(way) < 2 or min(way)[1] <= 0 for way in ways.values()):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise Lost(f"sent no times: {shortened(answer)}") from None
    return {"least_s": least_s, "median_s": median_s, **ways}


def _sizes(once: Callable[[int], float], seconds: float, small_s: float) -> list[tuple[int, float]]:
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
    """Seconds of a message there and a small reply."""
    REQUEST.pack_into(buffer, 0, TAKE, size)
    began_s = time.perf_counter()
    connection.sendall(buffer[: REQUEST.size + size])
    _fill(connection, memoryview(bytearray(len(REPLY))))
    return time.perf_counter() - began_s


def _give(connection: socket.socket, buffer: memoryview, size: int) -> float:
    """Seconds of a small request there and a message back."""
    began_s = time.perf_counter()
    connection.sendall(REQUEST.pack(GIVE, size))
    _fill(connection, buffer[:size])
    return time.perf_counter() - began_s


def _fill(connection: socket.socket, buffer: memoryview) -> None:
    """Read until the buffer is full."""
    done = 0
    while done < len(buffer):
        got = connection.recv_into(buffer[done:])
        if not got:
            raise ConnectionResetError("closed the connection")
        done += got
