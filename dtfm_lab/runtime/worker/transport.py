"""Messages between workers over sockets, stamped with the time at which an emulated link delivers them.

A sender thread and a receiver thread for each directed pair own the blocking calls. The thread that computes only
ever waits on a condition, so an error, a stop or the loss of any worker reaches it at once; that, and that all
connections can be given up and made anew in the same process, is why these are plain sockets: gloo waits for a
stopped peer for as long as its timeout is, and cannot be told to stop waiting.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch

from dtfm_lab.domain.network import Passage
from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.runtime.gpu.nccl import NcclPairs
from dtfm_lab.runtime.protocol.connections import ConnectionLost, receive_exactly
from dtfm_lab.runtime.worker.peer_listener import Address, PeerListener, connect_to_peer
from dtfm_lab.runtime.worker.processors import Arriving, CpuProcessor, Leaving, Processor

HEADER = struct.Struct("<dddqqqqqq")
"""a Passage, the iteration, the receive as the program names it (stage, kind, micro-batch, peer), payload bytes"""
KINDS = list(Kind)
NOTHING = -(2**31)
"""where a field of an action is None"""


class Message(NamedTuple):
    payload: torch.Tensor
    passage: Passage
    arrived_monotonic_s: float


class Outgoing(NamedTuple):
    iteration: int
    action: Action
    """the receive at the other end"""
    leaving: Leaving
    n_bytes: int
    stamp: Callable[[], Passage]
    when_sent: Callable[[Passage], None]


class Aborted(Exception):
    """All connections were given up, because a worker of the run is lost."""


class Transport(Protocol):
    """How the messages of one worker get to others and come from them."""

    def send(
        self,
        to: int,
        iteration: int,
        action: Action,
        content: torch.Tensor,
        stamp: Callable[[], Passage],
        when_sent: Callable[[Passage], None],
    ) -> None: ...

    def receive(self, iteration: int, action: Action) -> Message: ...

    def flush(self) -> None: ...

    def abort(self) -> None: ...


class SocketTransport:
    """Point-to-point messages of one worker, in the order in which they are sent on each pair."""

    def __init__(
        self,
        listener: PeerListener,
        secret: str,
        epoch: int,
        rank: int,
        sources: Sequence[int],
        targets: Mapping[int, Address],
        processor: Processor | None = None,
        pairs: NcclPairs | None = None,
    ) -> None:
        """``sources``: ranks that send to this one; ``targets``: where the ranks are that it sends to.

        ``pairs`` carry contents from GPU to GPU; without them contents go by the sockets, after their headers.
        """
        self._listener, self._secret, self._epoch, self._rank = listener, secret, epoch, rank
        self._processor = CpuProcessor() if processor is None else processor
        self._pairs = pairs
        self._changed = threading.Condition()
        self._mailbox: dict[tuple[int, Action], tuple[Arriving, Passage, float]] = {}
        self._unsent = 0
        self._failure: BaseException | None = None
        self._connections: list[socket.socket] = []
        self._n_expected = len(sources) + len(targets)
        self.waits = False
        """whether the computing thread is waiting for others"""
        self._outbox: dict[int, queue.SimpleQueue[Outgoing | None]] = defaultdict(queue.SimpleQueue)
        for source in sources:
            self._thread(self._receive_all, source)
        for target, address in targets.items():
            self._thread(self._send_all, target, address, self._outbox[target])

    def send(
        self,
        to: int,
        iteration: int,
        action: Action,
        content: torch.Tensor,
        stamp: Callable[[], Passage],
        when_sent: Callable[[Passage], None],
    ) -> None:
        """Hand a copy of ``content`` to the sender thread; ``action`` is the receive that waits for it.

        There ``stamp`` is asked for the passage to write on it, before the first byte leaves, and
        ``when_sent`` is called with it after the last.
        """
        raw = content.detach().contiguous().view(-1).view(torch.uint8)
        leaving = self._processor.leaving(raw)
        with self._changed:
            self._unsent += 1
        self._outbox[to].put(Outgoing(iteration, action, leaving, raw.numel(), stamp, when_sent))

    def receive(self, iteration: int, action: Action) -> Message:
        """Wait for the message of this receive action; raises what broke the connection, or Aborted."""
        key = (iteration, action)
        with self._changed:
            self._wait_for(lambda: key in self._mailbox)
            if key in self._mailbox:
                arriving, *rest = self._mailbox.pop(key)
                return Message(arriving.ready(), *rest)
            raise self._broken(f"waiting for {action}")

    def flush(self) -> None:
        """Wait until every message has left."""
        with self._changed:
            self._wait_for(lambda: self._unsent == 0)
            if self._failure is not None:
                raise self._broken("sending")

    def stand(self) -> None:
        """Wait until all connections are there."""
        with self._changed:
            self._wait_for(lambda: len(self._connections) == self._n_expected)
            if self._failure is not None:
                raise self._broken("connecting")

    @property
    def aborted(self) -> bool:
        return isinstance(self._failure, Aborted)

    def abort(self) -> None:
        """Give up all connections; whoever waits, or will, gets Aborted."""
        self._fail(Aborted())
        if self._pairs is not None:
            self._pairs.abort()
        self._listener.abandon_before(self._epoch + 1)
        for outbox in self._outbox.values():
            outbox.put(None)

    def _wait_for(self, what: Callable[[], bool]) -> None:
        self.waits = True
        self._changed.wait_for(lambda: what() or self._failure is not None)
        self.waits = False

    def _broken(self, doing: str) -> Exception:
        if self.aborted:
            return Aborted()
        if isinstance(self._failure, ConnectionLost):
            return ConnectionError(f"{doing}: the other end {self._failure}")
        if isinstance(self._failure, OSError):
            return ConnectionError(f"{doing}: {self._failure}")
        return RuntimeError(f"{doing}: {type(self._failure).__name__}: {self._failure}")

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if not self.aborted:
                self._failure = error
            self._changed.notify_all()
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # wakes the threads that block on it

    def _thread(self, work: Callable[..., None], *args: object) -> None:
        threading.Thread(target=self._guarded, args=(work, *args), daemon=True).start()

    def _guarded(self, work: Callable[..., None], *args: object) -> None:
        try:
            work(*args)
        except BaseException as error:
            self._fail(error)

    def _joined(self, connection: socket.socket) -> socket.socket:
        with self._changed:
            self._connections.append(connection)
            if self._failure is not None:
                raise Aborted
            self._changed.notify_all()
        return connection

    def _receive_all(self, source: int) -> None:
        awaited = self._listener.wait_for(self._epoch, source)
        if awaited is None:
            return
        with awaited as connection:
            self._joined(connection)
            header = bytearray(HEADER.size)
            while True:
                receive_exactly(connection, memoryview(header))
                *passage, iteration, stage, kind, microbatch, peer, n_bytes = HEADER.unpack(header)
                if self._pairs is None:
                    host = self._processor.buffer(n_bytes)
                    receive_exactly(connection, memoryview(host.numpy()))
                    arrived_s, arriving = time.monotonic(), self._processor.arriving(host)
                else:
                    arriving = self._pairs.receive(source, n_bytes)
                    arrived_s = time.monotonic()
                numbers = (None if n == NOTHING else n for n in (microbatch, peer))
                message = arriving, Passage(*passage), arrived_s
                with self._changed:
                    self._mailbox[iteration, Action(stage, KINDS[kind], *numbers)] = message
                    self._changed.notify_all()

    def _send_all(self, target: int, address: Address, outbox: queue.SimpleQueue[Outgoing | None]) -> None:
        with connect_to_peer(address, self._secret, self._epoch, self._rank) as connection:
            self._joined(connection)
            while (out := outbox.get()) is not None:
                passage, action = out.stamp(), out.action
                numbers = (NOTHING if n is None else n for n in (action.microbatch, action.peer))
                kind = KINDS.index(action.kind)
                header = HEADER.pack(*passage, out.iteration, action.stage, kind, *numbers, out.n_bytes)
                if self._pairs is None:
                    _send_both(connection, header, memoryview(out.leaving.host().numpy()))
                else:
                    connection.sendall(header)
                    self._pairs.send(target, out.leaving)
                out.when_sent(passage)
                with self._changed:
                    self._unsent -= 1
                    self._changed.notify_all()


def _send_both(connection: socket.socket, header: bytes, payload: memoryview) -> None:
    """In one packet where they are short."""
    sent = connection.sendmsg([header, payload])
    if sent < len(header):
        connection.sendall(header[sent:])
        sent = len(header)
    if rest := payload[sent - len(header) :]:
        connection.sendall(rest)
