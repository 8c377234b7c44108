"""Authenticated TCP connections between the processes of a run.

``multiprocessing.connection.Listener`` authenticates within ``accept`` and without a deadline, so one silent connection
keeps all others out. Here each connection authenticates on its own thread, at most ``MOST_PENDING`` at once. A further
one replaces the oldest connection of the address that has the most. A genuine peer that is dropped tries again until
its deadline. With certificates, both ends must hold the run's key (TLS 1.3), and everything that follows is encrypted.
Only one thread at a time uses an encrypted socket, because TLS has one state for both directions.
"""

import contextlib
import errno
import random
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.runtime.protocol.certificates import Certificates
from dtfm_lab.runtime.protocol.channels import (
    HANDSHAKE_S,
    Channel,
    ConnectionLost,
    Refused,
    challenge,
    plain_address,
    reason,
    respond,
)

MOST_PENDING = 128
"""Maximum number of connections that authenticate at once. For a further one, an old one is dropped."""
GRACE_S = 0.5
"""Seconds in which a new connection is never dropped. Many genuine ones may arrive at once; further ones wait in the
system's queue."""
RETRY_S = 0.2
"""Seconds between attempts to connect."""
LOOK_EVERY_S = 0.5
"""Seconds between checks whether the listener was closed."""
ACCEPT_RETRY_S = 0.05
"""Seconds to wait after a connection could not be accepted, for instance because too many files are open."""
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
            The run's. With them, connections are encrypted, and the other end must hold the key too.
        """
        self._secret, self._on_connection, self._on_rejection = secret, on_connection, on_rejection
        self._certificates = certificates
        if certificates is not None:
            _ = certificates.server  # raises here if something is wrong with the files
        self._socket = _listening_socket(address, port)
        self._socket.settimeout(LOOK_EVERY_S)  # macOS does not wake a thread whose socket is shut down
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._closed = False
        self._pending: dict[socket.socket, tuple[str, float]] = {}
        """Address and start time of each connection that is authenticating, the oldest first."""
        self._lock = threading.Lock()
        self._accepting = threading.Thread(target=self._accept_all, name="listener", daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """Free the port. Connections that were handed over stay open."""
        with self._lock:
            self._closed = True
            pending, self._pending = self._pending, {}
        for connection in (self._socket, *pending):
            _shut(connection)  # wakes the thread that waits for it
        self._accepting.join()

    def _accept_all(self) -> None:
        with self._socket:
            while not self._closed:
                try:
                    connection, end = self._socket.accept()
                except TimeoutError:
                    continue
                except OSError:
                    self._make_room(0.0)
                    time.sleep(ACCEPT_RETRY_S)
                    continue
                while len(self._pending) >= MOST_PENDING and not self._make_room(GRACE_S):
                    time.sleep(ACCEPT_RETRY_S)
                # On macOS, the address is empty if the other end has hung up already.
                self._admit(connection, plain_address(end[0]) if end else "")

    def _admit(self, connection: socket.socket, peer: str) -> None:
        """Authenticate a connection on its own thread."""
        try:
            connection.settimeout(HANDSHAKE_S)
            if self._certificates is not None:
                connection = self._certificates.server.wrap_socket(
                    connection, server_side=True, do_handshake_on_connect=False
                )
        except OSError:  # it has hung up already
            connection.close()
            return
        with self._lock:
            self._pending[connection] = peer, time.monotonic()
        threading.Thread(target=self._authenticate, args=(connection, peer), daemon=True).start()

    def _make_room(self, older_s: float) -> bool:
        """Drop one connection that is at least ``older_s`` old, from the address with the most connections. Return
        False if no connection is that old."""
        with self._lock:
            until_s = time.monotonic() - older_s
            n_of = Counter(address for address, _ in self._pending.values())
            old = [one for one, (_, since_s) in self._pending.items() if since_s <= until_s]
            if not old:
                return False
            dropped = max(old, key=lambda one: n_of[self._pending[one][0]])  # the oldest of these: it is the first
            del self._pending[dropped]
        _shut(dropped)
        return True

    def _authenticate(self, connection: socket.socket, peer: str) -> None:
        """Hand the connection over once the other end has proved that it holds the secret, or reject it."""
        why = ""
        try:
            if isinstance(connection, ssl.SSLSocket) and self._certificates is not None:
                connection.do_handshake()
                _require_pinned(connection, self._certificates)
            channel = Channel(connection)
            challenge(channel, self._secret)
        except TimeoutError:
            why = f"said nothing for {HANDSHAKE_S:g} s"
        except (OSError, ValueError) as error:
            why = reason(error) if isinstance(error, OSError) else str(error)
        with self._lock:
            if self._pending.pop(connection, None) is None or self._closed:
                why = "came too late" if self._closed else DROPPED.format(MOST_PENDING)
        if not why:
            try:
                return self._on_connection(channel)
            except (OSError, KeyError, TypeError, ValueError) as error:
                why = str(error)
        connection.close()
        self._on_rejection(peer, why)


def _shut(connection: socket.socket) -> None:
    """End all waits of other threads on a socket. An encrypted socket's own method would forget its keys."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _require_pinned(connection: ssl.SSLSocket, certificates: Certificates) -> None:
    """Raise Refused if the other end does not hold the key of this run's certificate."""
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
            raise LabError(f"{address} is not an address of this machine; wanted one, or 0.0.0.0 for all") from None
        raise LabError(f"cannot listen at {address} port {port}: {reason(error)}") from None


def connect(
    address: str,
    port: int,
    *,
    retry_s: float = 0.0,
    certificates: Certificates | None = None,
) -> Channel:
    """Return a connection to a listener, not yet authenticated: see ``respond``.

    One attempt takes at most ``HANDSHAKE_S``. Attempts are repeated for ``retry_s``. Raises ConnectionLost, Refused if
    the other end does not hold the key of ``certificates``, and LabError for a port out of range or certificates that
    cannot be read.
    """
    if not 0 < port < 2**16:  # glibc would use the port modulo 2**16
        raise LabError(f"port {port} is out of range; wanted 1 to 65535")
    deadline_s = time.monotonic() + retry_s
    while True:
        try:
            left_s = max(deadline_s - time.monotonic(), 0.1)
            connection = socket.create_connection((address, port), min(HANDSHAKE_S, left_s) if retry_s else HANDSHAKE_S)
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
    """Return a connection that both ends have authenticated. If there is a ``hello``, the listening end has accepted
    it.

    A connection that is lost in the process is made again for ``retry_s``, because a flooded listener drops some.
    Raises ConnectionLost, Refused if the other end gives a reason or does not hold the key of ``certificates``, and
    LabError for a port out of range or certificates that cannot be read.
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
        # Random, so that connections that were dropped together do not come back together.
        time.sleep(RETRY_S * random.SystemRandom().uniform(0.5, 1.5))


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
    """Fill ``into``. Raises ConnectionLost if the other end closes first."""
    while into:
        if not (n := connection.recv_into(into)):
            raise ConnectionLost("closed the connection")
        into = into[n:]


def is_loopback(address: str) -> bool:
    return address.startswith("127.") or address in ("::1", "localhost")


def any_address() -> str:
    """Return the address that listens on all addresses of this machine: IPv4 and IPv6 if the system supports both on
    one socket, otherwise IPv4 only."""
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"
