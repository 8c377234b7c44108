"""The program on each host of a probe: it times messages to another host, and answers that host's messages.

The timing host either sends a message and waits for a small reply, or sends a small request and waits for a message. So
one clock times both directions. Round trips of two small messages tell how long the small reply or request takes.

This file is also a program, which a probe over ssh sends to each host: ``serve``. It is therefore ASCII, and imports
only the standard library of Python 3.7.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import os
import socket
import statistics
import struct
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

SIZES = tuple(1024 * 4**k for k in range(8))
"""Message sizes in bytes, 1 KiB to 16 MiB."""
MOST_REPEATS = 15
LEAST_REPEATS = 3
"""Minimum number of timed messages per size. Before these, one message of each large size is sent and not timed,
because TCP opens its window first."""
LARGE = 2**16
"""Size in bytes from which a message counts as large."""
PINGS = 100
LEAST_PINGS = 5
SILENCE_S = 30.0
"""Maximum seconds without a byte before the other host counts as lost."""
REQUEST = struct.Struct("!cQ")
"""Header of a request: TAKE or GIVE, and the message's size in bytes."""
TAKE = b"T"
"""Asks the other host to receive a message and to confirm it with ``REPLY``."""
GIVE = b"G"
"""Asks the other host to send a message."""
REPLY = b"received"


def answer_requests(connection: socket.socket) -> None:
    """Answer the requests of one timing host until it closes the connection, or sends nothing for ``SILENCE_S``."""
    with connection, contextlib.suppress(OSError):
        connection.settimeout(SILENCE_S)
        buffer = memoryview(bytearray(max(SIZES)))
        while True:
            _receive(connection, buffer[: REQUEST.size])
            what, size = REQUEST.unpack(buffer[: REQUEST.size])
            # No other host may make this host send more than its buffer holds.
            if size > len(buffer):
                return
            if what == TAKE:
                _receive(connection, buffer[:size])
                connection.sendall(REPLY)
            else:
                connection.sendall(buffer[:size])


def time_both_ways(connection: socket.socket, seconds: float, silence_s: float = SILENCE_S) -> dict[str, Any]:
    """Time round trips to the host at the other end for about ``seconds``. Raises OSError.

    Returns ``least_s`` and ``median_s``, seconds of a round trip of two small messages, and two lists of pairs (size in
    bytes, median seconds). In ``there``, a message of that size gets a small reply. In ``back``, a small request gets a
    message of that size. ``spread`` is one standard deviation of the logarithm of the seconds of one large message.

    Sizes that would take too long for one message are omitted. Other sizes are timed at least three times, even if that
    takes longer than ``seconds``.
    """
    connection.settimeout(silence_s)
    buffer = memoryview(bytearray(REQUEST.size + max(SIZES)))
    # The first message also opens TCP's window, so it is not counted.
    pings = [_take(connection, buffer, 0)]
    deadline_s = time.monotonic() + seconds / 6
    while len(pings) <= LEAST_PINGS or (len(pings) <= PINGS and time.monotonic() < deadline_s):
        pings.append(_take(connection, buffer, 0))
    small_s = statistics.median(pings[1:])
    there, once = _time_sizes(lambda size: _take(connection, buffer, size), seconds / 2, small_s)
    # Timed from this end as well, so that the clocks of the two hosts need not agree.
    back, again = _time_sizes(lambda size: _give(connection, buffer, size), seconds / 2, small_s)
    # The spread of the logarithms, since times vary by a factor and not by an amount.
    spread = math.sqrt(statistics.mean(map(statistics.variance, once + again)))
    return {"least_s": min(pings[1:]), "median_s": small_s, "there": there, "back": back, "spread": spread}


def together_bytes_per_s(connections: list[socket.socket], seconds: float, silence_s: float = SILENCE_S) -> float:
    """Return bytes per second that several connections send together, for about ``seconds``. Raises OSError.

    Every stream sends one message after the other, all of the same size. It is the largest size at which all streams
    together should send one message each within a quarter of the time. One stream is timed to find it.
    """
    buffer = memoryview(bytearray(REQUEST.size + max(SIZES)))
    for connection in connections:
        connection.settimeout(silence_s)
    size = SIZES[0]
    # The largest size that still leaves each connection several messages.
    for larger in SIZES[1:]:
        began_s = time.monotonic()
        _take(connections[0], buffer, size)
        if 4 * len(connections) * (time.monotonic() - began_s) > seconds / 4:
            break
        size = larger
    began_s = time.monotonic()

    def sent_bytes(connection: socket.socket) -> int:
        own, moved = memoryview(bytearray(REQUEST.size + size)), 0
        # At least one message each, or a slow link would count as none.
        while not moved or time.monotonic() < began_s + seconds:
            _take(connection, own, size)
            moved += size
        return moved

    with ThreadPoolExecutor(len(connections)) as pool:
        return sum(pool.map(sent_bytes, connections)) / (time.monotonic() - began_s)


def _time_sizes(
    once: Callable[[int], float], seconds: float, small_s: float
) -> tuple[list[tuple[int, float]], list[list[float]]]:
    """Return the median seconds of each size, and the logarithms of all samples of the two largest."""
    timed: list[tuple[int, float]] = []
    logarithms: list[list[float]] = []
    for size in SIZES:
        deadline_s = time.monotonic() + seconds / len(SIZES)
        if size >= LARGE:
            # Opens the window for this size, uncounted.
            once(size)
        samples = [once(size) for _ in range(LEAST_REPEATS)]
        while len(samples) < MOST_REPEATS and time.monotonic() < deadline_s:
            samples.append(once(size))
        timed.append((size, statistics.median(samples)))
        logarithms.append([math.log(sample) for sample in samples])
        # Sizes grow fourfold, and so does the part of the time that is not latency.
        next_s = small_s + 4 * (timed[-1][1] - small_s)
        if len(timed) > 1 and next_s > seconds / 4:
            break
    return timed, logarithms[-2:]


def _take(connection: socket.socket, buffer: memoryview, size: int) -> float:
    """Return the seconds of a round trip: a message of this size to the other host, and a small reply."""
    REQUEST.pack_into(buffer, 0, TAKE, size)
    began_s = time.perf_counter()
    connection.sendall(buffer[: REQUEST.size + size])
    _receive(connection, memoryview(bytearray(len(REPLY))))
    return time.perf_counter() - began_s


def _give(connection: socket.socket, buffer: memoryview, size: int) -> float:
    """Return the seconds of a round trip: a small request to the other host, and a message of this size back."""
    began_s = time.perf_counter()
    connection.sendall(REQUEST.pack(GIVE, size))
    _receive(connection, buffer[:size])
    return time.perf_counter() - began_s


def _receive(connection: socket.socket, into: memoryview) -> None:
    """Fill ``into``. Raises ConnectionError if the other end closes early."""
    while into:
        n = connection.recv_into(into)
        if not n:
            raise ConnectionError("closed the connection")
        into = into[n:]


# Everything below is used only by the program on a host.
NONCE = 16
"""Bytes of a random number."""
PROOF = 32
"""Bytes of the proof that its sender holds the token: a SHA-256 digest."""
REACH_S = 4.0
"""Seconds within which another host must answer and prove that it holds the token."""
MOST_THREADS = 512
"""Maximum number of threads. Further connections are closed."""


def serve() -> None:
    """Serve as one host of a probe over ssh until standard input ends or the deadline passes. Leaves nothing behind.

    The first line of standard input is JSON: the ``token``, the ``mark`` that starts each printed line, and ``ends_s``,
    the seconds until the deadline. Each further line is an order, answered by one line.
    """
    settings = json.loads(sys.stdin.readline())
    token, mark = settings["token"].encode(), settings["mark"]
    # An ssh that was cut off leaves no program behind on the host.
    deadline = threading.Timer(settings["ends_s"], os._exit, [1])
    deadline.daemon = True
    deadline.start()
    listener = _listening_socket()
    threading.Thread(target=_accept_all, args=(listener, token), daemon=True).start()
    _print(mark, {"port": listener.getsockname()[1], "addresses": _own_addresses()})
    for line in sys.stdin:  # orders run in other threads, so that this one notices the end of input at once
        threading.Thread(target=_obey, args=(json.loads(line), token, mark), daemon=True).start()
    os._exit(0)


def _obey(order: dict[str, Any], token: bytes, mark: str) -> None:
    if "reach" in order:
        _print(mark, {"reached": _reached(order["reach"], token)})
        return
    try:
        with _connected(order["address"], order["port"], token) as connection:
            answer = time_both_ways(connection, order["seconds"], order["silence_s"])
        if order.get("streams"):
            answer["together_bytes_per_s"] = _together(order, token)
        _print(mark, answer)
    except OSError as error:
        _print(mark, {"lost": error.strerror or str(error)})


def _together(order: dict[str, Any], token: bytes) -> float:
    with contextlib.ExitStack() as stack:
        others = [
            stack.enter_context(_connected(order["address"], order["port"], token)) for _ in range(order["streams"])
        ]
        return together_bytes_per_s(others, order["seconds"] / 2, order["silence_s"])


def _print(mark: str, answer: dict[str, Any]) -> None:
    try:
        os.write(1, (mark + json.dumps(answer) + "\n").encode())
    except OSError:  # ssh has ended
        os._exit(1)


def _reached(others: dict[str, tuple[list[str], int]], token: bytes) -> dict[str, dict[str, str]]:
    """Try to reach other hosts at all of their addresses. Return one entry per host, by name.

    ``at`` is the first address at which the host proves that it holds the token. If it does so nowhere, ``why`` has the
    reasons.
    """
    # Until a thread says otherwise.
    said = {(name, address): "timed out" for name, (addresses, _) in others.items() for address in addresses}

    def attempt(name: str, address: str, port: int) -> None:
        try:
            _connected(address, port, token).close()
            said[name, address] = ""
        except (OSError, UnicodeError) as error:
            said[name, address] = getattr(error, "strerror", None) or str(error)

    threads = [threading.Thread(target=attempt, args=(*each, others[each[0]][1]), daemon=True) for each in said]
    for thread in threads:
        thread.start()
    deadline_s = time.monotonic() + REACH_S
    for thread in threads:
        # One deadline for all, however many addresses do not answer.
        thread.join(max(deadline_s - time.monotonic(), 0))
    answer = {}
    for name, (addresses, _) in others.items():
        at = [address for address in addresses if not said[name, address]]
        why = ", ".join(address + " " + said[name, address].lower() for address in addresses)
        answer[name] = {"at": at[0]} if at else {"why": why}
    return answer


def _connected(address: str, port: int, token: bytes) -> socket.socket:
    """Return a connection to another host, after both ends proved that they hold the token. Raises OSError."""
    connection = socket.create_connection((address, port), REACH_S / 2)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own, answer = os.urandom(NONCE), bytearray(NONCE + PROOF)
        connection.sendall(own)
        _receive(connection, memoryview(answer))
        # Both ends' random bytes, so that an old proof cannot be replayed.
        nonces = own + bytes(answer[:NONCE])
        if not hmac.compare_digest(bytes(answer[NONCE:]), _proof(token, b"listens", nonces)):
            raise ConnectionError("is another program")
        connection.sendall(_proof(token, b"connects", nonces))
        return connection
    except OSError:
        connection.close()
        raise


def _accept_all(listener: socket.socket, token: bytes) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # too many open files, or the other end has closed
            # The pause keeps a full table of files from turning into a busy loop.
            time.sleep(0.05)
            continue
        # A port open to the network must not start threads without end.
        if threading.active_count() < MOST_THREADS:
            threading.Thread(target=_admit, args=(connection, token), daemon=True).start()
        else:
            connection.close()


def _admit(connection: socket.socket, token: bytes) -> None:
    with connection, contextlib.suppress(OSError):
        connection.settimeout(REACH_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        theirs, own, proof = bytearray(NONCE), os.urandom(NONCE), bytearray(PROOF)
        _receive(connection, memoryview(theirs))
        nonces = bytes(theirs) + own
        connection.sendall(own + _proof(token, b"listens", nonces))
        _receive(connection, memoryview(proof))
        if hmac.compare_digest(bytes(proof), _proof(token, b"connects", nonces)):
            answer_requests(connection)


def _proof(token: bytes, role: bytes, nonces: bytes) -> bytes:
    return hmac.new(token, role + nonces, "sha256").digest()


def _listening_socket() -> socket.socket:
    """Listen on a free port of every address, including IPv6 if available."""
    try:
        listener = socket.socket(socket.AF_INET6)
        # Off, so that one socket takes IPv4 as well.
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::", 0))
    except OSError:
        listener = socket.socket(socket.AF_INET)
        listener.bind(("0.0.0.0", 0))
    listener.listen(64)
    return listener


def _own_addresses() -> list[str]:
    """Return addresses of this host: the one that ssh used, then those from which it would send to distant hosts."""
    found = os.environ.get("SSH_CONNECTION", "").split()[2:3]
    for family, anywhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as unsent:
            unsent.connect((anywhere, 9))
            found.append(str(unsent.getsockname()[0]))
    return list(dict.fromkeys(found))
