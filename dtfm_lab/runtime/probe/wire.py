"""Connections of a probe: JSON lines, each within its time, between processes that know the same token."""

from __future__ import annotations

import contextlib
import errno
import hmac
import json
import secrets
import socket
import time
from typing import Any

from dtfm_lab.domain.errors import LabError, RunError
from dtfm_lab.domain.network import shortened

PROTOCOL = 1
"""of all that probes say to each other; whoever speaks another is refused"""
LONGEST_LINE = 2**20
"""bytes"""
HANDSHAKE_S = 5.0
"""for a newcomer to show that it knows the token"""


class Lost(Exception):
    """The other end is gone, silent, or speaks something else; the message says which."""


class Refused(Lost):
    """The other end said why it does not want us."""


class Channel:
    """JSON lines both ways over one socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = b""

    @property
    def peer(self) -> str:
        return str(self.socket.getpeername()[0])

    def send(self, **values: Any) -> None:
        try:
            self.socket.settimeout(HANDSHAKE_S)
            self.socket.sendall(json.dumps(values).encode() + b"\n")
        except OSError as error:
            raise Lost(reason(error)) from None

    def receive(self, within_s: float) -> dict[str, Any]:
        """The next line; raises Lost where none came in time, or Refused where it says so."""
        deadline_s = time.monotonic() + within_s
        while b"\n" not in self._read:
            try:
                self.socket.settimeout(max(deadline_s - time.monotonic(), 1e-3))
                chunk = self.socket.recv(1 << 16)
            except TimeoutError:
                raise Lost(f"said nothing for {within_s:g} s") from None
            except OSError as error:
                raise Lost(reason(error)) from None
            if not chunk:
                raise Lost("closed the connection")
            self._read += chunk
            if len(self._read) > LONGEST_LINE:
                raise Lost("sent a line without end")
        line, self._read = self._read.split(b"\n", 1)
        try:
            values = json.loads(line)
        except ValueError:
            values = None
        if not isinstance(values, dict):
            raise Lost("speaks no probe")
        if "refused" in values:
            raise Refused(str(values["refused"]))
        return values

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()


def admit(channel: Channel, token: str) -> None:
    """Let the other end prove that it knows the token, and prove it in turn; raises Lost."""
    ours = secrets.token_hex(16)
    channel.send(probe=PROTOCOL, nonce=ours)
    theirs = channel.receive(HANDSHAKE_S)
    if theirs.get("probe") != PROTOCOL:
        found = f"speaks version {shortened(theirs.get('probe'))} of the probe"
        channel.send(refused=f"{found}; the listener speaks {PROTOCOL}")
        raise Lost(f"{found}; wanted {PROTOCOL}, the same dtfm_lab everywhere")
    nonces = f"{ours} {theirs.get('nonce')}"
    if not hmac.compare_digest(_proof(token, "join", nonces), str(theirs.get("proof"))):
        channel.send(refused="its token is another; wanted the one that the listener printed")
        raise Lost("does not know the token")
    channel.send(proof=_proof(token, "listen", nonces))


def present(channel: Channel, token: str) -> None:
    """The other side of ``admit``; raises Lost or Refused."""
    theirs = channel.receive(HANDSHAKE_S)
    if "probe" not in theirs:
        raise Lost("speaks no probe")
    ours = secrets.token_hex(16)
    nonces = f"{theirs.get('nonce')} {ours}"
    channel.send(probe=PROTOCOL, nonce=ours, proof=_proof(token, "join", nonces))
    answer = channel.receive(HANDSHAKE_S)
    if not hmac.compare_digest(_proof(token, "listen", nonces), str(answer.get("proof"))):
        raise Lost("does not know the token itself")


def _proof(token: str, role: str, nonces: str) -> str:
    return hmac.new(token.encode(), f"{role} {nonces}".encode(), "sha256").hexdigest()


def serve_at(address: str, port: int) -> socket.socket:
    """A listening socket; raises LabError where there can be none."""
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family)
    except OverflowError:
        raise LabError(f"port {port} is out of range; wanted 0 to 65535") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise LabError(f"port {port} on {address} is taken; wanted a free one") from None
        if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            raise LabError(f"{address} is no address of this machine; wanted one, such as 0.0.0.0 for all") from None
        raise LabError(f"cannot listen at {address} port {port}: {reason(error)}") from None


def call(address: str, port: int, within_s: float) -> socket.socket:
    """A connection to who listens there; raises Lost."""
    try:
        return socket.create_connection((address, port), timeout=within_s)
    except OverflowError:
        raise LabError(f"port {port} is out of range; wanted 1 to 65535") from None
    except OSError as error:
        raise Lost(reason(error)) from None


def call_until(address: str, port: int, wait_s: float) -> socket.socket:
    """As ``call``, again and again until somebody listens there; raises RunError after ``wait_s``."""
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            return call(address, port, max(0.1, min(5.0, deadline_s - time.monotonic())))
        except Lost as error:
            if time.monotonic() + 0.2 > deadline_s:
                raise RunError(f"nobody could be reached at {address} port {port} for {wait_s:g} s: {error}") from None
        time.sleep(0.2)


def host_and_port(text: str, *, default_host: str | None = None) -> tuple[str, int]:
    """``10.0.0.1:4711``, ``[::1]:4711``, and where a host may be left out ``4711``; raises LabError."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or default_host or ""
    if not host or not port.isdecimal() or int(port) > 65535:
        wanted = "HOST:PORT" if default_host is None else "PORT or ADDRESS:PORT"
        raise LabError(f"{shortened(text)} is no address; wanted {wanted}, PORT up to 65535")
    return host, int(port)


def check_options(**ranges: tuple[float, float, float]) -> None:
    """Each a value, the least and the most that it may be; raises LabError."""
    for what, (value, least, most) in ranges.items():
        if not least <= value <= most:
            raise LabError(f"{what} of a probe is {shortened(value)}; wanted {least} to {most}")


def is_loopback(address: str) -> bool:
    return address.startswith("127.") or address in ("::1", "localhost")


def reason(error: OSError) -> str:
    return "timed out" if isinstance(error, TimeoutError) else (error.strerror or str(error)).lower()
