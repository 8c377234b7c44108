"""Authenticated TCP connections between the processes of a run or of a probe.

``multiprocessing.connection.Listener`` authenticates within ``accept`` and without a deadline, so that one silent
connection keeps all others out. Here one thread serves all that are not yet authenticated, however many they are, and
drops the oldest of the address that has most of them. A genuine one that is dropped tries again until its deadline.
With certificates, both ends must hold the run's key (TLS 1.3), and all that follows is encrypted. One thread at a time
uses an encrypted socket: TLS has one state for both directions.
"""

import asyncio
import contextlib
import errno
import random
import secrets
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from dtfm_lab.domain.errors import LabError
from dtfm_lab.runtime.protocol.certificates import Certificates
from dtfm_lab.runtime.protocol.channels import (
    HANDSHAKE_S,
    PROTOCOL,
    Channel,
    ConnectionLost,
    Refused,
    judged,
    line_of,
    plain_address,
    question_for,
    reason,
    respond,
    values_of,
)

__all__ = [
    "HANDSHAKE_S",
    "PROTOCOL",
    "RETRY_S",
    "Channel",
    "ConnectionLost",
    "Listener",
    "Refused",
    "address_for_others",
    "any_address",
    "authenticated",
    "connect",
    "is_loopback",
    "reason",
    "receive_exactly",
    "respond",
]

T = TypeVar("T")

MOST_PENDING = 512
"""Most connections that may be authenticating at once; for a further one an old one is dropped."""
GRACE_S = 0.5
"""Seconds for which none is dropped: many genuine ones may come at once; further ones wait in the system's queue."""
LONGEST_ANSWER = 4096
"""Most bytes of a line from somebody who is not authenticated."""
RETRY_S = 0.2
"""Seconds between attempts to connect."""
ACCEPT_RETRY_S = 0.05
"""Seconds to wait after a connection could not be accepted, such as with too many files open."""
OTHER_RUN = "shows a certificate that is not this run's"
DROPPED = "did not authenticate before {} others came"


class Listener:
    """Accepts connections on one port and hands those that authenticate to ``on_connection``."""

    def __init__(
        self,
        address: str,
        port: int,
        secret: str,
        on_connection: Callable[[Channel], None],
        on_rejection: Callable[[str, str], None] = lambda peer, why: None,
        *,
        certificates: Certificates | None = None,
    ) -> None:
        """Raises LabError if the port cannot be listened on, and FileError if the certificates cannot be read.

        Parameters
        ----------
        port
            0 for any free port.
        on_connection
            Called on the connection's own thread, and may stay there. If it raises an OSError, or a KeyError,
            TypeError or ValueError because of what it received, the connection is closed and rejected.
        on_rejection
            Called with the address of the other end and the reason; must not wait.
        certificates
            Of the run: connections are encrypted, and the other end must hold the key, too.
        """
        self._secret, self._on_connection, self._on_rejection = secret, on_connection, on_rejection
        self._certificates = certificates
        if certificates is not None:
            _ = certificates.server  # says now what is wrong with the files
        self._socket = _listening_socket(address, port)
        self._socket.setblocking(False)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._closed = False
        self._pending: dict[asyncio.Task[None], tuple[str, float]] = {}
        """The address of each connection that is authenticating, and since when; the oldest first."""
        self._loop = asyncio.SelectorEventLoop()
        threading.Thread(target=self._serve, name="listener", daemon=True).start()
        self._accepting = asyncio.run_coroutine_threadsafe(self._accept_all(), self._loop)

    def close(self) -> None:
        """Free the port. Connections that were handed over stay open."""
        if not self._closed:
            self._closed = True
            self._accepting.cancel()
            with contextlib.suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(HANDSHAKE_S)
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    async def _end(self) -> None:
        tasks = list(self._pending)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loop.remove_reader(self._socket)
        self._socket.close()

    async def _accept_all(self) -> None:
        while not self._closed:
            try:
                connection, end = await self._loop.sock_accept(self._socket)
            except OSError:
                self._make_room(0.0)
                await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            while len(self._pending) >= MOST_PENDING and not self._make_room(GRACE_S):
                await asyncio.sleep(ACCEPT_RETRY_S)
            address = plain_address(end[0]) if end else ""  # macOS names no end that has hung up already
            try:
                if self._certificates is not None:
                    connection = self._certificates.server.wrap_socket(
                        connection, server_side=True, do_handshake_on_connect=False
                    )
            except OSError:  # it has hung up already
                connection.close()
                continue
            task = self._loop.create_task(self._admit(connection, address))
            self._pending[task] = address, time.monotonic()
            task.add_done_callback(partial(self._forget, connection, address))

    def _make_room(self, older_s: float) -> bool:
        """Drop one that is so old, of the address that has most connections; whether there was one."""
        until_s = time.monotonic() - older_s
        n_of = Counter(address for address, _ in self._pending.values())
        old = [task for task, (_, since_s) in self._pending.items() if since_s <= until_s]
        if not old:
            return False
        task = max(old, key=lambda task: n_of[self._pending[task][0]])  # the oldest of these: it is the first
        del self._pending[task]
        task.cancel()
        return True

    def _forget(self, connection: socket.socket, peer: str, task: asyncio.Task[None]) -> None:
        self._pending.pop(task, None)
        if task.cancelled():  # perhaps before it began
            connection.close()
            self._on_rejection(peer, "came too late" if self._closed else DROPPED.format(MOST_PENDING))

    async def _admit(self, connection: socket.socket, peer: str) -> None:
        try:
            channel = await self._authenticated(connection)
        except TimeoutError:
            connection.close()
            self._on_rejection(peer, f"said nothing for {HANDSHAKE_S:g} s")
        except (OSError, ValueError) as error:
            connection.close()
            self._on_rejection(peer, reason(error) if isinstance(error, OSError) else str(error))
        else:
            threading.Thread(target=self._hand_over, args=(channel,), daemon=True).start()

    async def _authenticated(self, connection: socket.socket) -> Channel:
        """The channel, once the other end has proved that it holds the secret. Raises OSError or TimeoutError."""
        if isinstance(connection, ssl.SSLSocket):
            await asyncio.wait_for(self._when_ready(connection, connection.do_handshake), HANDSHAKE_S)
            assert self._certificates is not None
            _require_pinned(connection, self._certificates)
        nonce = secrets.token_hex(16)
        _send_whole(connection, line_of(question_for(nonce)))
        answer = values_of(await asyncio.wait_for(self._line(connection), HANDSHAKE_S))
        reply, refusal = judged(answer, self._secret, nonce)
        _send_whole(connection, line_of(reply))
        if refusal:
            raise ConnectionLost(refusal)
        return Channel(connection)

    async def _line(self, connection: socket.socket) -> bytes:
        """One line, after which the other end waits for an answer."""
        line = b""
        while not line.endswith(b"\n"):
            if not (chunk := await self._when_ready(connection, partial(connection.recv, LONGEST_ANSWER))):
                raise ConnectionLost("closed the connection")
            line += chunk
            if len(line) > LONGEST_ANSWER or b"\n" in line[:-1]:
                raise ConnectionLost("speaks another protocol")
        return line

    async def _when_ready(self, connection: socket.socket, work: Callable[[], T]) -> T:
        """The result of ``work`` on a socket that does not block, tried again whenever there is something to read."""
        while True:
            try:
                return work()
            except (BlockingIOError, ssl.SSLWantReadError):
                readable = asyncio.Event()
                self._loop.add_reader(connection, readable.set)
                try:
                    await readable.wait()
                finally:
                    self._loop.remove_reader(connection)

    def _hand_over(self, channel: Channel) -> None:
        try:
            if self._closed:
                raise ConnectionLost("came too late")
            self._on_connection(channel)
        except (OSError, KeyError, TypeError, ValueError) as error:
            channel.close()
            self._on_rejection(channel.peer, str(error))


def _send_whole(connection: socket.socket, line: bytes) -> None:
    """Send a short line on a socket that does not block: the system's buffer has room for it."""
    if connection.send(line) != len(line):
        raise ConnectionLost("takes nothing")


def _require_pinned(connection: ssl.SSLSocket, certificates: Certificates) -> None:
    """Raise Refused where the other end does not hold the key of this run's certificate."""
    if connection.getpeercert(binary_form=True) != certificates.pinned:
        raise Refused(OTHER_RUN)


def _listening_socket(address: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family = found[0][0]
        both = address == "::" and socket.has_dualstack_ipv6()
        return socket.create_server((address, port), family=family, backlog=1024, dualstack_ipv6=both)
    except OverflowError:
        raise LabError(f"port {port} is out of range; wanted 0 to 65535") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise LabError(f"port {port} on {address} is taken; wanted a free one") from None
        if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            raise LabError(f"{address} is no address of this machine; wanted one, such as 0.0.0.0 for all") from None
        raise LabError(f"cannot listen at {address} port {port}: {reason(error)}") from None


def connect(
    address: str,
    port: int,
    *,
    within_s: float = HANDSHAKE_S,
    retry_s: float = 0.0,
    certificates: Certificates | None = None,
) -> Channel:
    """A connection to a listener, not yet authenticated: see ``respond``.

    One attempt takes at most ``within_s``; attempts are repeated for ``retry_s``. Raises ConnectionLost, Refused where
    the other end does not hold the key of ``certificates``, and LabError for a port out of range.
    """
    if not 0 < port < 2**16:  # glibc takes the rest of a division
        raise LabError(f"port {port} is out of range; wanted 1 to 65535")
    deadline_s = time.monotonic() + retry_s
    while True:
        try:
            left_s = max(deadline_s - time.monotonic(), 0.1)
            connection = socket.create_connection((address, port), min(within_s, left_s) if retry_s else within_s)
            return Channel(connection) if certificates is None else _encrypted(connection, certificates)
        except Refused:
            raise
        except OSError as error:
            if time.monotonic() + RETRY_S > deadline_s:
                tried = f"could not be reached for {retry_s:g} s: " if retry_s else ""
                raise ConnectionLost(tried + reason(error)) from None
        time.sleep(RETRY_S)


def authenticated(
    address: str,
    port: int,
    secret: str,
    *,
    retry_s: float = 0.0,
    certificates: Certificates | None = None,
    hello: Mapping[str, Any] | None = None,
) -> Channel:
    """A connection that both ends have authenticated, and whose ``hello``, if any, the listening end has taken.

    A connection that is lost on the way is made again for ``retry_s``: a listener that is flooded drops some. Raises
    ConnectionLost, Refused where the other end gives a reason, and LabError for a port out of range.
    """
    deadline_s = time.monotonic() + retry_s
    while True:
        channel = connect(address, port, retry_s=max(deadline_s - time.monotonic(), 0.0), certificates=certificates)
        try:
            respond(channel, secret)
            if hello is not None:
                channel.introduce(**hello)
            return channel
        except ConnectionLost as error:
            channel.close()
            if isinstance(error, Refused) or time.monotonic() > deadline_s:
                raise
        time.sleep(RETRY_S * random.SystemRandom().uniform(0.5, 1.5))  # many that were dropped together come apart


def _encrypted(connection: socket.socket, certificates: Certificates) -> Channel:
    context = certificates.client  # says here what is wrong with the files
    try:
        connection.settimeout(HANDSHAKE_S)
        encrypted = context.wrap_socket(connection)
        _require_pinned(encrypted, certificates)
        return Channel(encrypted)
    except ssl.SSLCertVerificationError as error:
        raise Refused(f"{OTHER_RUN} ({error.verify_message})") from None
    except ssl.SSLError:
        raise ConnectionLost("does not speak TLS with this run's certificate") from None


def receive_exactly(connection: socket.socket, into: memoryview) -> None:
    """Fill ``into``. Raises ConnectionLost if the other end closes before."""
    while into:
        if not (n := connection.recv_into(into)):
            raise ConnectionLost("closed the connection")
        into = into[n:]


def address_for_others(address: str) -> str:
    """What other hosts connect to where this one listens: of all addresses the one that it would send from.

    Nothing is sent to find that out. Where this machine has no route, it is the machine's name.
    """
    if address not in ("", "0.0.0.0", "::"):
        return address
    family, anywhere = (socket.AF_INET6, "2001:db8::1") if ":" in address else (socket.AF_INET, "192.0.2.1")
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((anywhere, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()


def is_loopback(address: str) -> bool:
    return address.startswith("127.") or address in ("::1", "localhost")


def any_address() -> str:
    """What to listen on to be reached at every address of this machine, IPv4 and IPv6."""
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"
