"""Connections between the workers of a run, and their messages, stamped with when an emulated link delivers them.

A worker listens on one port for its whole life. After a worker is lost, all connections are made again. A number
from the coordinator, the epoch, distinguishes them from the earlier ones. Every connection starts with a hello: the
epoch, and the rank of the worker that connects. The listening worker acknowledges it, or says why not. The other one
tries again until its deadline.

Each directed pair has a socket, and a sender or receiver thread that blocks on it. The computing thread waits only on a
condition variable, so an error, a stop or the loss of a worker reaches it at once. Headers cross the socket. Contents
follow them there, or take another way that a ``Carrier`` opens, such as the process groups of ``group_pairs``.
"""

import contextlib
import queue
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import Passage
from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.runtime.protocol.certificates import Certificates
from dtfm_lab.runtime.protocol.channels import HANDSHAKE_S, Channel, ConnectionLost, whole_number
from dtfm_lab.runtime.protocol.connections import Listener, authenticated, receive_exactly
from dtfm_lab.runtime.worker.processors import CpuProcessor, Processor, ReceiveBuffer, SendBuffer

CONNECT_S = 20.0
"""Maximum seconds to connect to another worker. That worker listens before its address is published."""

Address = tuple[str, int]


class PeerListener:
    """Accepts the connections of other workers as soon as it is made. ``wait_for`` hands them out."""

    def __init__(self, host: str, secret: str, certificates: Certificates | None = None) -> None:
        self._accepted: dict[tuple[int, int], socket.socket] = {}
        self._attempts: dict[tuple[int, int], str] = {}
        """(epoch, rank) -> random token of the peer's call of ``connect_to_peer``, which repeats it in every hello.
        Entries stay when their connections have been handed out."""
        self._changed = threading.Condition()
        self._oldest_epoch = 0
        self.certificates = certificates
        listener = Listener(host, 0, secret, self._store_connection, certificates=certificates)
        self.address: Address = listener.address

    def wait_for(self, epoch: int, rank: int) -> socket.socket | None:
        """Wait for the connection from this rank and return it. None if the epoch has been abandoned."""
        with self._changed:
            self._changed.wait_for(lambda: (epoch, rank) in self._accepted or epoch < self._oldest_epoch)
            return self._accepted.pop((epoch, rank), None)

    def abandon_before(self, epoch: int) -> None:
        """Close the connections of older epochs, and refuse further ones."""
        with self._changed:
            self._oldest_epoch = max(self._oldest_epoch, epoch)
            for key in [key for key in self._accepted if key[0] < epoch]:
                self._accepted.pop(key).close()
            self._attempts = {key: attempt for key, attempt in self._attempts.items() if key[0] >= epoch}
            self._changed.notify_all()

    def _store_connection(self, channel: Channel) -> None:
        hello = channel.receive(HANDSHAKE_S)
        key = epoch, rank = whole_number(hello, "epoch"), whole_number(hello, "rank")
        attempt = str(hello["attempt"])[:64]
        with self._changed:
            if epoch < self._oldest_epoch:
                refusal = f"epoch {epoch} is over"
            elif self._attempts.get(key, attempt) != attempt:
                refusal = f"rank {rank} is connected already in epoch {epoch}"
            elif key in self._attempts and key not in self._accepted:
                # handed out already: what was sent over it would be missing on a new one
                refusal = f"rank {rank} has lost its connection of epoch {epoch}"
            else:
                channel.acknowledge()
                if key in self._accepted:  # the peer missed the acknowledgement, and connects again
                    self._accepted.pop(key).close()
                self._attempts[key] = attempt
                self._accepted[key] = channel.raw()
                self._changed.notify_all()
                return
        channel.send(refused=refusal)
        raise ValueError(refusal)


def connect_to_peer(
    address: Address, secret: str, epoch: int, rank: int, certificates: Certificates | None = None
) -> socket.socket:
    """Return a connection to another worker's listener, which has accepted it, for messages of ``rank``.

    Raises ConnectionLost after ``CONNECT_S``, and Refused if the other worker does not want it.
    """
    attempt = secrets.token_hex(8)
    hello = {"epoch": epoch, "rank": rank, "attempt": attempt}
    return authenticated(*address, secret, retry_s=CONNECT_S, certificates=certificates, hello=hello).raw()


HEADER = struct.Struct("<dddqqqqqq?")
"""A Passage, the iteration, the receive action (stage, kind, micro-batch, peer), the content's size in bytes, and
whether the receiver acknowledges it."""
ACKNOWLEDGEMENT = b"\x06"
"""What the receiver sends back, on the same connection, when the whole content has arrived."""
KINDS = list(Kind)
NONE = -(2**31)
"""Encodes None in a field of an action."""
SHORT = 1 << 14
"""Contents smaller than this many bytes are copied behind their header, so that both leave at once."""
NO_DELAY = Passage(0.0, 0.0, 0.0)
"""The stamp of a message that no emulated link delays."""


class Message(NamedTuple):
    """A received message."""

    content: torch.Tensor
    passage: Passage
    arrived_monotonic_s: float


class OutgoingMessage(NamedTuple):
    """A message in the queue of a sender thread."""

    iteration: int
    action: Action
    """The receive action at the other end."""
    buffer: SendBuffer
    n_bytes: int
    stamp: Callable[[], Passage]
    on_sent: Callable[[Passage], None]
    acknowledged: bool


class Aborted(Exception):
    """All connections were abandoned, because a worker of the run was lost."""


class Wire(Protocol):
    """One end of a directed pair, used by the pair's thread. Methods raise ConnectionError or OSError."""

    def send(self, header: bytes, buffer: SendBuffer) -> None:
        """Send a header and its content. Return when the content may be overwritten."""

    def receive(self, n_bytes: int) -> ReceiveBuffer:
        """Receive the content of a message, whose header has been received."""

    def abort(self) -> None:
        """End every wait that does not depend on the socket, which the caller closes. Called from any thread."""


class Carrier(Protocol):
    """Makes the wires that the contents of messages cross: sockets, or process groups."""

    def open(self, connection: socket.socket, secret: str, pair: tuple[int, int], *, sends: bool) -> Wire:
        """Return this worker's end of the wire of ``pair``, (sending rank, receiving rank). ``sends`` is True at the
        sending end."""


class SocketWire:
    """Sends contents through the socket, behind their headers."""

    def __init__(self, connection: socket.socket, processor: Processor) -> None:
        self._connection, self._processor = connection, processor

    def send(self, header: bytes, buffer: SendBuffer) -> None:
        _send_both(self._connection, header, _bytes_of(buffer.to_host()))

    def receive(self, n_bytes: int) -> ReceiveBuffer:
        host = self._processor.host_buffer(n_bytes)
        receive_exactly(self._connection, _bytes_of(host))
        return self._processor.receive_buffer(host)

    def abort(self) -> None:
        """Do nothing: shutting the socket ends its waits."""


class Transport:
    """The messages of one worker. Messages of one pair arrive in the order in which they were sent."""

    def __init__(
        self,
        listener: PeerListener,
        secret: str,
        epoch: int,
        rank: int,
        sources: Sequence[int],
        targets: Mapping[int, Address],
        processor: Processor | None = None,
        carrier: Carrier | None = None,
    ) -> None:
        """``sources``: ranks that send to this one. ``targets``: addresses of the ranks to which this one sends.

        Without a ``carrier``, contents follow their headers through the sockets.
        """
        self._listener, self._secret, self._epoch, self._rank = listener, secret, epoch, rank
        self._processor = CpuProcessor() if processor is None else processor
        self._carrier = carrier
        self._changed = threading.Condition()
        self._mailbox: dict[tuple[int, Action], tuple[ReceiveBuffer, Passage, float]] = {}
        self._n_unsent = 0
        self._failure: BaseException | None = None
        self._connections: list[socket.socket] = []
        self._wires: list[Wire] = []
        self._n_expected = len(sources) + len(targets)
        self.waiting = False
        """True if the computing thread is waiting for other workers."""
        self._outboxes: dict[int, queue.SimpleQueue[OutgoingMessage | None]] = {
            target: queue.SimpleQueue() for target in targets
        }
        for source in sources:
            self._start_thread(self._receive_all, source)
        for target, address in targets.items():
            self._start_thread(self._send_all, target, address)

    def wait_connected(self) -> None:
        """Wait until all connections are made.

        Raises ConnectionError or LabError if one fails, RuntimeError for anything unexpected, and Aborted after
        ``abort``.
        """
        self._wait_for(lambda: len(self._wires) == self._n_expected)
        self._check("connecting")

    def send(
        self,
        to: int,
        iteration: int,
        action: Action,
        content: torch.Tensor,
        stamp: Callable[[], Passage] = lambda: NO_DELAY,
        on_sent: Callable[[Passage], None] = lambda passage: None,
        *,
        acknowledged: bool = False,
    ) -> None:
        """Hand a copy of ``content`` to the sender thread. ``action`` is the receive that waits for it.

        Before the first byte, the sender thread calls ``stamp`` for the passage to write on the message. After the last
        byte it calls ``on_sent`` with that passage, but not after ``abort``. If ``acknowledged``, the message counts as
        sent when it has arrived at the other end, whatever that end is computing.
        """
        raw = content.detach().contiguous().view(-1).view(torch.uint8)
        buffer = self._processor.send_buffer(raw)
        with self._changed:
            # counted before it is queued, so that `flush` cannot miss it
            self._n_unsent += 1
        self._outboxes[to].put(OutgoingMessage(iteration, action, buffer, raw.numel(), stamp, on_sent, acknowledged))

    def receive(self, iteration: int, action: Action) -> Message:
        """Wait for the message of this receive action. Raises what ``wait_connected`` raises."""
        self.peek(iteration, action)
        buffer, passage, arrived_s = self._mailbox.pop((iteration, action))
        return Message(buffer.wait(), passage, arrived_s)

    def peek(self, iteration: int, action: Action) -> Passage:
        """Wait until this message has arrived, and leave it for ``receive``.

        Raises what ``wait_connected`` raises.
        """
        key = (iteration, action)
        self._wait_for(lambda: key in self._mailbox)
        if key not in self._mailbox:
            self._check(f"waiting for {action}")
        return self._mailbox[key][1]

    def flush(self) -> None:
        """Wait until every message has been sent, and acknowledged if that was asked for.

        Raises what ``wait_connected`` raises.
        """
        self._wait_for(lambda: self._n_unsent == 0)
        self._check("sending")

    @property
    def aborted(self) -> bool:
        return isinstance(self._failure, Aborted)

    def abort(self) -> None:
        """Abandon all connections. Every present and later wait raises Aborted."""
        self._fail(Aborted())
        # peers may still be connecting for this epoch
        self._listener.abandon_before(self._epoch + 1)
        for outbox in self._outboxes.values():
            outbox.put(None)

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        """Return when the condition holds or a connection has failed."""
        with self._changed:
            self.waiting = True
            self._changed.wait_for(lambda: condition() or self._failure is not None)
            self.waiting = False

    def _check(self, doing: str) -> None:
        if self.aborted:
            raise Aborted
        if isinstance(self._failure, ConnectionLost):
            raise ConnectionError(f"{doing}: the other end {self._failure}")
        if isinstance(self._failure, OSError):
            raise ConnectionError(f"{doing}: {self._failure}")
        if isinstance(self._failure, LabError):
            raise self._failure
        if self._failure is not None:
            raise RuntimeError(f"{doing}: {type(self._failure).__name__}: {self._failure}")

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self._failure is None or isinstance(error, Aborted):  # later failures follow from the first
                self._failure = error
            self._changed.notify_all()
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    # Wakes the threads that block on it. An encrypted socket's own method would forget its keys.
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)
            wires = list(self._wires)
        for wire in wires:
            wire.abort()

    def _start_thread(self, work: Callable[..., None], *args: object) -> None:
        def guarded() -> None:
            try:
                work(*args)
            except BaseException as error:
                self._fail(error)

        threading.Thread(target=guarded, daemon=True).start()

    def _register(self, connection: socket.socket) -> None:
        with self._changed:
            self._connections.append(connection)
            if self._failure is not None:
                raise self._failure  # raising Aborted instead would hide the first failure

    @contextlib.contextmanager
    def _wire(self, connection: socket.socket, pair: tuple[int, int], *, sends: bool) -> Iterator[Wire]:
        """Yield the wire of a pair whose socket is connected. From then on the pair counts as connected."""
        self._register(connection)
        wire: Wire
        if self._carrier is None:
            wire = SocketWire(connection, self._processor)
        else:
            wire = self._carrier.open(connection, self._secret, pair, sends=sends)
        with self._changed:
            self._wires.append(wire)
            failed = self._failure is not None
            self._changed.notify_all()
        # it failed before the wire was listed, so `_fail` did not abort it
        if failed:
            wire.abort()
        yield wire

    def _receive_all(self, source: int) -> None:
        accepted = self._listener.wait_for(self._epoch, source)
        if accepted is None:
            return
        with accepted as connection, self._wire(connection, (source, self._rank), sends=False) as wire:
            header = bytearray(HEADER.size)
            while True:
                receive_exactly(connection, memoryview(header))
                *passage, iteration, stage, kind, microbatch, peer, n_bytes, acknowledged = HEADER.unpack(header)
                buffer = wire.receive(n_bytes)
                # the moment of arrival, however long the computing thread takes to fetch it
                arrived_s = time.monotonic()
                if acknowledged:
                    connection.sendall(ACKNOWLEDGEMENT)
                numbers = (None if n == NONE else n for n in (microbatch, peer))
                with self._changed:
                    key = iteration, Action(stage, KINDS[kind], *numbers)
                    self._mailbox[key] = buffer, Passage(*passage), arrived_s
                    self._changed.notify_all()

    def _send_all(self, target: int, address: Address) -> None:
        with (
            connect_to_peer(address, self._secret, self._epoch, self._rank, self._listener.certificates) as connection,
            self._wire(connection, (self._rank, target), sends=True) as wire,
        ):
            while (message := self._outboxes[target].get()) is not None:
                passage, action = message.stamp(), message.action
                numbers = (NONE if n is None else n for n in (action.microbatch, action.peer))
                kind = KINDS.index(action.kind)
                header = HEADER.pack(
                    *passage, message.iteration, action.stage, kind, *numbers, message.n_bytes, message.acknowledged
                )
                wire.send(header, message.buffer)
                with self._changed:  # after an abort the iteration is void, and so is its span
                    if self._failure is not None:
                        raise self._failure
                    message.on_sent(passage)
                if message.acknowledged:
                    receive_exactly(connection, memoryview(bytearray(len(ACKNOWLEDGEMENT))))
                with self._changed:
                    self._n_unsent -= 1
                    self._changed.notify_all()


def _bytes_of(host: torch.Tensor) -> memoryview:
    return host.numpy().data


def _send_both(connection: socket.socket, header: bytes, content: memoryview) -> None:
    """Send a header and its content, together if the content is short."""
    if len(content) < SHORT:
        return connection.sendall(header + content)
    connection.sendall(header)
    connection.sendall(content)
