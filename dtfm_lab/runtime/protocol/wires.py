"""One thread that serves all connections of this process that are not yet authenticated, or encrypted.

An encrypted connection is read and written by this thread alone, because a TLS object must not be used by two threads,
and because ``select`` does not see what it has decrypted. Everybody else has one end of a pair of local sockets: a
plain socket, whose bytes are encrypted and decrypted on their way.
"""

import asyncio
import atexit
import contextlib
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from dtfm_lab.runtime.protocol.certificates import Certificates

T = TypeVar("T")

SILENT_S = 30.0
"""Seconds without an acknowledgement after which the system ends a connection, whether used or idle."""
N_PROBES = 3
"""Unanswered probes after which an idle connection is lost."""
CHUNK = 1 << 18
"""Most bytes that are encrypted or decrypted at once."""
LOCAL_BUFFER = 1 << 20


class OtherRun(ssl.SSLError):
    """The other end does not hold the key of this run's certificate."""


class _Shared:
    """The event loop of this process, on a daemon thread, and its relays."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.relays: set[Relay] = set()


_shared = _Shared()
if hasattr(os, "register_at_fork"):
    # a fork has no copy of the thread, and perhaps a lock that nobody opens
    os.register_at_fork(after_in_child=lambda: _shared.__init__())  # type: ignore[misc]


def loop() -> asyncio.AbstractEventLoop:
    """The loop of this process."""
    with _shared.lock:
        if _shared.loop is None:
            _shared.loop = asyncio.SelectorEventLoop()
            threading.Thread(target=_shared.loop.run_forever, name="wires", daemon=True).start()
        return _shared.loop


def run(work: Coroutine[Any, Any, T], within_s: float) -> T:
    """Run on the loop and return the result. Raises TimeoutError, and what it raises."""
    return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, within_s), loop()).result()


def lose_when_silent(connection: socket.socket, silent_s: float = SILENT_S) -> None:
    """Let the system end a TCP connection whose other end has acknowledged nothing for so long."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        each_s = max(1, round(silent_s / (N_PROBES + 1)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, each_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, each_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, N_PROBES)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(silent_s * 1000))


class LoopConnection:
    """A connection on the loop, encrypted where ``certificates`` are given. Methods raise OSError."""

    def __init__(self, connection: socket.socket, certificates: Certificates | None, *, listens: bool) -> None:
        connection.setblocking(False)
        self.socket = connection
        self._certificates = certificates
        self._flushing = asyncio.Lock()
        self.tls: ssl.SSLObject | None = None
        if certificates is not None:
            self.received, self.to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
            context = certificates.server if listens else certificates.client
            self.tls = context.wrap_bio(self.received, self.to_send, server_side=listens)

    async def greet(self) -> None:
        """Agree on keys, where the connection is encrypted. Raises OtherRun for another certificate."""
        if self.tls is None:
            return
        assert self._certificates is not None
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            except ssl.SSLCertVerificationError as error:
                await self._flush()
                raise OtherRun(f"shows a certificate that is not this run's ({error.verify_message})") from None
        await self._flush()
        if self.tls.getpeercert(binary_form=True) != self._certificates.pinned:
            raise OtherRun("shows a certificate that is not this run's")

    async def read(self, most: int = CHUNK) -> bytes:
        """Bytes as they come; none once the other end has closed."""
        if self.tls is None:
            return await loop().sock_recv(self.socket, most)
        while True:
            try:
                return self.tls.read(most)
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    async def write(self, content: bytes | memoryview) -> None:
        if self.tls is None:
            return await loop().sock_sendall(self.socket, content)
        left = memoryview(content)
        while left:  # nothing waits here: what is encrypted goes to memory
            left = left[self.tls.write(left) :]
        return await self._flush()

    async def finish(self) -> None:
        """Tell the other end that nothing more comes from here."""
        if self.tls is not None:
            with contextlib.suppress(ssl.SSLError):
                self.tls.unwrap()
            await self._flush()
        self.socket.shutdown(socket.SHUT_WR)

    async def _fill(self) -> None:
        if chunk := await loop().sock_recv(self.socket, CHUNK):
            self.received.write(chunk)
        else:
            self.received.write_eof()

    async def _flush(self) -> None:
        async with self._flushing:  # reading has things to send, too
            while self.to_send.pending:
                await loop().sock_sendall(self.socket, self.to_send.read())


class Relay:
    """Carries bytes between an encrypted wire and a local socket until either closes."""

    def __init__(self, wire: LoopConnection) -> None:
        self._wire = wire
        self.inner, self._outer = socket.socketpair()
        """``inner``: the plain socket for everybody else."""
        for end in (self.inner, self._outer):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LOCAL_BUFFER)
        self._outer.setblocking(False)
        self._busy = False
        _shared.relays.add(self)
        self._task = loop().create_task(self._carry())

    @property
    def has_unsent(self) -> bool:
        """Whether bytes that were written to ``inner`` are not yet with the system."""
        with contextlib.suppress(OSError):  # nothing is there, or it is closed
            if self._outer.recv(1, socket.MSG_PEEK):
                return True
        return self._busy  # asked last: it is set before anything is taken from there

    async def _carry(self) -> None:
        both = [loop().create_task(way) for way in (self._send(), self._receive())]
        try:
            await asyncio.gather(*both)
        except OSError:
            self._busy = False
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            _shared.relays.discard(self)
            self._outer.close()
            self._wire.socket.close()

    async def _send(self) -> None:
        while True:
            await self._something_to_send()
            self._busy = True
            if not (chunk := await loop().sock_recv(self._outer, CHUNK)):
                break
            await self._wire.write(chunk)
            self._busy = False
        await self._wire.finish()
        self._busy = False

    async def _something_to_send(self) -> None:
        there = asyncio.Event()
        loop().add_reader(self._outer, there.set)
        try:
            await there.wait()
        finally:
            loop().remove_reader(self._outer)

    async def _receive(self) -> None:
        while chunk := await self._wire.read():
            await loop().sock_sendall(self._outer, chunk)
        self._outer.shutdown(socket.SHUT_WR)


def drain(within_s: float = 2.0) -> None:
    """Wait until all that was written to encrypted connections is with the system: before a process exits at once."""
    deadline_s = time.monotonic() + within_s
    while any(relay.has_unsent for relay in list(_shared.relays)) and time.monotonic() < deadline_s:
        time.sleep(0.005)


atexit.register(drain)
