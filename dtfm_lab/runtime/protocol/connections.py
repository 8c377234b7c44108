"""Authenticated TCP connections between the processes of a run or of a probe.

Both ends prove that they hold a shared secret without sending it: each answers the other's random nonce with an HMAC.
``multiprocessing.connection.Listener`` does that too, but authenticates within ``accept`` and without a deadline, so
that one silent connection keeps all others out, and it gives no reason for a refusal. Here every connection is
authenticated on a thread of its own and within ``HANDSHAKE_S``. Messages are JSON, never pickles. What follows the
handshake is not encrypted.
"""

import contextlib
import errno
import hmac
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened

PROTOCOL = 2
"""Version of the handshake and of the probe's messages. Other versions are refused."""
LONGEST_LINE = 2**20
"""Most bytes of one line of JSON."""
HANDSHAKE_S = 5.0
"""Seconds within which each message of a handshake must arrive."""
MOST_PENDING = 64
"""Most connections that may be authenticating at once; further ones are refused."""
RETRY_S = 0.2
"""Seconds between attempts to connect."""
ACCEPT_RETRY_S = 0.05
"""Seconds to wait after a connection could not be accepted, such as with too many files open."""


class ConnectionLost(ConnectionError):
    """The other end closed the connection, was silent or broke the protocol. The message is a predicate of it."""


class Refused(ConnectionLost):
    """The other end refused the connection; the message is its reason."""


class Channel:
    """Lines of JSON in both directions over one socket, each with a deadline."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peer = str(connection.getpeername()[0])
        """The IP address of the other end."""
        self.own_address = str(connection.getsockname()[0])
        """The IP address of this end."""

    def send(self, **values: Any) -> None:
        """Send one line. Raises ConnectionLost."""
        try:
            self.socket.settimeout(HANDSHAKE_S)
            self.socket.sendall(json.dumps(values).encode() + b"\n")
        except OSError as error:
            raise ConnectionLost(reason(error)) from None

    def receive(self, within_s: float) -> dict[str, Any]:
        """The next line. Raises ConnectionLost if none arrives in time, Refused if it is a refusal."""
        deadline_s = time.monotonic() + within_s
        line = b""
        while not line.endswith(b"\n"):
            try:
                self.socket.settimeout(max(deadline_s - time.monotonic(), 1e-3))
                seen = self.socket.recv(1 << 16, socket.MSG_PEEK)  # what follows the line is for another reader
                line += self.socket.recv(seen.find(b"\n") + 1 or len(seen)) if seen else b""
            except TimeoutError:
                raise ConnectionLost(f"said nothing for {within_s:g} s") from None
            except OSError as error:
                raise ConnectionLost(reason(error)) from None
            if not seen:
                raise ConnectionLost("closed the connection")
            if len(line) > LONGEST_LINE:
                raise ConnectionLost("sent a line without end")
        try:
            values = json.loads(line)
        except ValueError:
            values = None
        if not isinstance(values, dict):
            raise ConnectionLost("speaks another protocol")
        if "refused" in values:
            raise Refused(str(values["refused"]))
        return values

    def raw(self) -> socket.socket:
        """The socket without a deadline, for bytes that are not lines."""
        self.socket.settimeout(None)
        return self.socket

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()


def challenge(channel: Channel, secret: str) -> None:
    """Authenticate the connecting end, then prove this end to it. Raises ConnectionLost."""
    own_nonce = secrets.token_hex(16)
    channel.send(protocol=PROTOCOL, nonce=own_nonce)
    answer = channel.receive(HANDSHAKE_S)
    if answer.get("protocol") != PROTOCOL:
        found = f"speaks version {shortened(answer.get('protocol'))} of the protocol"
        channel.send(refused=f"{found}; the listener speaks {PROTOCOL}")
        raise ConnectionLost(f"{found}; wanted {PROTOCOL}, the same dtfm_lab everywhere")
    nonces = f"{own_nonce} {answer.get('nonce')}"
    if not hmac.compare_digest(_proof(secret, "join", nonces), str(answer.get("proof"))):
        channel.send(refused="its token is another; wanted the one that the listener printed")
        raise ConnectionLost("does not know the token")
    channel.send(proof=_proof(secret, "listen", nonces))


def respond(channel: Channel, secret: str) -> None:
    """Answer the listening end's ``challenge`` and authenticate that end. Raises ConnectionLost or Refused."""
    question = channel.receive(HANDSHAKE_S)
    if "protocol" not in question:
        raise ConnectionLost("speaks another protocol")
    own_nonce = secrets.token_hex(16)
    nonces = f"{question.get('nonce')} {own_nonce}"
    channel.send(protocol=PROTOCOL, nonce=own_nonce, proof=_proof(secret, "join", nonces))
    answer = channel.receive(HANDSHAKE_S)
    if not hmac.compare_digest(_proof(secret, "listen", nonces), str(answer.get("proof"))):
        raise ConnectionLost("does not know the token itself")


def _proof(secret: str, role: str, nonces: str) -> str:
    return hmac.new(secret.encode(), f"{role} {nonces}".encode(), "sha256").hexdigest()


class Listener:
    """Accepts connections on one port and hands those that authenticate to ``on_connection``."""

    def __init__(
        self,
        address: str,
        port: int,
        secret: str,
        on_connection: Callable[[Channel], None],
        on_rejection: Callable[[str, str], None] = lambda peer, why: None,
    ) -> None:
        """Raises LabError if the port cannot be listened on.

        Parameters
        ----------
        port
            0 for any free port.
        on_connection
            Called on the connection's own thread, and may stay there. If it raises an OSError, or a KeyError,
            TypeError or ValueError because of what it received, the connection is closed and rejected.
        on_rejection
            Called with the address of the other end and the reason.
        """
        self._secret, self._on_connection, self._on_rejection = secret, on_connection, on_rejection
        self._socket = _listening_socket(address, port)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._closed = False
        self._pending = threading.BoundedSemaphore(MOST_PENDING)
        threading.Thread(target=self._accept_all, daemon=True).start()

    def close(self) -> None:
        """Free the port. Connections that were handed over stay open."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._socket.close()

    def _accept_all(self) -> None:
        while not self._closed:
            try:
                connection, (peer, *_) = self._socket.accept()
            except OSError:
                time.sleep(ACCEPT_RETRY_S)
                continue
            if self._pending.acquire(blocking=False):
                threading.Thread(target=self._admit, args=(connection, peer), daemon=True).start()
            else:
                connection.close()
                self._on_rejection(peer, f"was one of more than {MOST_PENDING} that connect at once")

    def _admit(self, connection: socket.socket, peer: str) -> None:
        try:
            try:
                channel = Channel(connection)
                challenge(channel, self._secret)
            finally:
                self._pending.release()
            if self._closed:
                raise ConnectionLost("came too late")
            self._on_connection(channel)
        except (OSError, KeyError, TypeError, ValueError) as error:
            connection.close()
            self._on_rejection(peer, str(error))


def _listening_socket(address: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family, backlog=128)
    except OverflowError:
        raise LabError(f"port {port} is out of range; wanted 0 to 65535") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise LabError(f"port {port} on {address} is taken; wanted a free one") from None
        if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            raise LabError(f"{address} is no address of this machine; wanted one, such as 0.0.0.0 for all") from None
        raise LabError(f"cannot listen at {address} port {port}: {reason(error)}") from None


def connect(address: str, port: int, *, within_s: float = HANDSHAKE_S, retry_s: float = 0.0) -> Channel:
    """A connection to a listener, not yet authenticated: see ``respond``.

    One attempt takes at most ``within_s``; attempts are repeated for ``retry_s``. Raises ConnectionLost, and LabError
    for a port out of range.
    """
    deadline_s = time.monotonic() + retry_s
    while True:
        try:
            left_s = max(deadline_s - time.monotonic(), 0.1)
            return Channel(socket.create_connection((address, port), min(within_s, left_s) if retry_s else within_s))
        except OverflowError:
            raise LabError(f"port {port} is out of range; wanted 1 to 65535") from None
        except OSError as error:
            if time.monotonic() + RETRY_S > deadline_s:
                tried = f"could not be reached for {retry_s:g} s: " if retry_s else ""
                raise ConnectionLost(tried + reason(error)) from None
        time.sleep(RETRY_S)


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


def reason(error: OSError) -> str:
    """What went wrong, in lower case and without the error's number."""
    return "timed out" if isinstance(error, TimeoutError) else (error.strerror or str(error)).lower()
