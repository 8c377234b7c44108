"""The protocol of two processes on one socket: a handshake in lines of JSON.

In the handshake both ends prove that they hold a shared secret, which is never sent: each end answers the other's
random nonce with an HMAC. Messages are JSON, never pickles. Every line is checked for its length, its depth and its
numbers.
"""

import contextlib
import hmac
import json
import math
import secrets
import socket
import sys
import time
from typing import Any, Protocol

from dtfm_lab.domain.network import shortened

PROTOCOL = 3
"""Version of the handshake. Other versions are refused."""
LONGEST_LINE = 2**16
"""Maximum bytes in one line of JSON."""
LONGEST_ANSWER = 4096
"""Maximum bytes in a line from a peer that is not authenticated."""
LONGEST_REASON = 300
"""Maximum characters of a refusal that are shown."""
LARGEST = 2**31
"""Largest number that ``whole_number`` accepts from another process."""
HANDSHAKE_S = 5.0
"""Seconds within which each message of a handshake must arrive."""
SILENT_S = 30.0
"""Seconds without an acknowledgement after which the system ends a connection, used or idle."""
N_PROBES = 3
"""Unanswered probes after which an idle connection is lost."""


class ConnectionLost(ConnectionError):
    """The other end closed the connection, was silent or broke the protocol. The message says which."""


class Refused(ConnectionLost):
    """The other end refused the connection. The message is its reason."""


class Channel:
    """Lines of JSON in both directions over one socket, each with a deadline."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.peer = self.own_address = ""
        """The IP addresses of the other end and of this one. Empty for a socket that is not TCP."""
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            # small messages leave at once
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.lose_when_silent()
            self.peer = plain_address(str(connection.getpeername()[0]))
            self.own_address = plain_address(str(connection.getsockname()[0]))

    def lose_when_silent(self, silent_s: float = SILENT_S) -> None:
        """Let the system end a TCP connection if the other end has acknowledged nothing for ``silent_s``. Systems other
        than Linux use their default time."""
        if self.socket.family not in (socket.AF_INET, socket.AF_INET6):
            return
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sys.platform == "linux":
            each_s = max(1, round(silent_s / (N_PROBES + 1)))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, each_s)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, each_s)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, N_PROBES)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(silent_s * 1000))

    def send(self, **values: Any) -> None:
        """Send one line. Raises ConnectionLost."""
        try:
            self.socket.settimeout(HANDSHAKE_S)
            self.socket.sendall(json.dumps(values).encode() + b"\n")
        except OSError as error:
            raise ConnectionLost(reason(error)) from None

    def receive(self, within_s: float, longest: int = LONGEST_LINE) -> dict[str, Any]:
        """Return the next line, of at most ``longest`` bytes.

        Raises ConnectionLost if none arrives in time, or if it is too long or not a JSON object. Raises Refused if it
        is a refusal.
        """
        deadline_s = time.monotonic() + within_s
        line = b""
        while not line.endswith(b"\n"):
            if (left_s := deadline_s - time.monotonic()) <= 0:
                raise ConnectionLost(f"said nothing for {within_s:g} s" if not line else "sends too slowly")
            try:
                self.socket.settimeout(left_s)
                byte = self.socket.recv(1)  # one at a time: what follows the line is for another reader
            except TimeoutError:
                continue
            except OSError as error:
                raise ConnectionLost(reason(error)) from None
            if not byte:
                raise ConnectionLost("closed the connection")
            line += byte
            if len(line) > longest:
                raise ConnectionLost("sent a line without end")
        return values_of(line)

    def introduce(self, **hello: Any) -> None:
        """Send the first line after ``respond`` and wait until the other end has accepted it. Raises ConnectionLost."""
        self.send(**hello)
        if not self.receive(HANDSHAKE_S).get("taken"):
            raise ConnectionLost("speaks another protocol")

    def acknowledge(self) -> None:
        """Tell the other end that its hello was accepted: see ``introduce``. Raises ConnectionLost."""
        self.send(taken=True)

    def raw(self) -> socket.socket:
        """Return the socket without a deadline, for bytes that are not lines."""
        self.socket.settimeout(None)
        return self.socket

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()


def values_of(line: bytes) -> dict[str, Any]:
    """Return the values in one line. Raises ConnectionLost if it is not a JSON object, Refused if it is a refusal."""
    try:
        values = json.loads(line, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):  # many nested brackets cause a RecursionError
        values = None
    if not isinstance(values, dict):
        raise ConnectionLost("speaks another protocol")
    if "refused" in values:
        raise Refused(" ".join(str(values["refused"]).split())[:LONGEST_REASON])
    return values


def whole_number(values: dict[str, Any], name: str) -> int:
    """Return ``values[name]``, which must be a whole number from 0 to ``LARGEST``. Raises ValueError if it is not, and
    KeyError if it is missing."""
    number = values[name]
    # not isinstance, because True is an int, too
    if type(number) is not int or not 0 <= number <= LARGEST:
        raise ValueError(f"{name} is {shortened(number)}; wanted 0 to {LARGEST}")
    return number


def challenge(channel: Channel, secret: str) -> None:
    """Make the other end prove that it holds the secret, and prove it too. Raises ConnectionLost.

    This is the listening end's part of the handshake. ``respond`` is the connecting end's part.
    """
    # A fresh number from both ends, so that an old proof cannot be repeated.
    own_nonce = secrets.token_hex(16)
    channel.send(protocol=PROTOCOL, nonce=own_nonce)
    answer = channel.receive(HANDSHAKE_S, LONGEST_ANSWER)
    if answer.get("protocol") != PROTOCOL:
        found = f"speaks version {shortened(answer.get('protocol'))} of the protocol"
        # Sent before the connection closes, so that the other end can tell its user what to do.
        channel.send(refused=f"{found}; the listener speaks {PROTOCOL}")
        raise ConnectionLost(f"{found}; wanted {PROTOCOL}, the same dtfm_lab everywhere")
    nonces = f"{own_nonce} {answer.get('nonce')}"
    if not _same(_proof(secret, "join", nonces), answer.get("proof")):
        channel.send(refused="its token is another; wanted the one that the listener printed")
        raise ConnectionLost("does not know the token")
    channel.send(proof=_proof(secret, "listen", nonces))


def respond(channel: Channel, secret: str) -> None:
    """Answer the listening end's challenge and authenticate that end. Raises ConnectionLost or Refused."""
    question = channel.receive(HANDSHAKE_S)
    if "protocol" not in question:
        raise ConnectionLost("speaks another protocol")
    own_nonce = secrets.token_hex(16)
    nonces = f"{question.get('nonce')} {own_nonce}"
    channel.send(protocol=PROTOCOL, nonce=own_nonce, proof=_proof(secret, "join", nonces))
    answer = channel.receive(HANDSHAKE_S)
    if not _same(_proof(secret, "listen", nonces), answer.get("proof")):
        raise ConnectionLost("does not know the token itself")


def _same(proof: str, found: Any) -> bool:
    # compares in constant time, so that a proof cannot be guessed byte by byte
    return isinstance(found, str) and hmac.compare_digest(proof.encode(), found.encode(errors="replace"))


def _proof(secret: str, role: str, nonces: str) -> str:
    return hmac.new(secret.encode(), f"{role} {nonces}".encode(errors="replace"), "sha256").hexdigest()


def _finite(number: str) -> float:
    if not math.isfinite(value := float(number)):
        raise ValueError(number)
    return value


def plain_address(address: str) -> str:
    """Return an IPv4 address without the prefix that a socket for both families adds: ``::ffff:10.0.0.1``."""
    return address.removeprefix("::ffff:") if "." in address else address


def reason(error: OSError) -> str:
    """Return what went wrong, without the error's number."""
    if isinstance(error, TimeoutError):
        return "timed out"
    return error.strerror.lower() if error.strerror else str(error)


class MessageConnection(Protocol):
    """Messages to and from another process: the pipe of a process on this machine, or a socket to another host."""

    def fileno(self) -> int: ...
    def send_bytes(self, buf: bytes, /) -> None: ...
    def recv_bytes(self) -> bytes: ...
    def poll(self) -> bool: ...
    def close(self) -> None: ...
