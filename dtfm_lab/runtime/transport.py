"""Messages between workers over gloo, stamped with the time at which an emulated link delivers them.

A sender thread and a receiver thread for each directed pair own the blocking gloo calls. The thread
that computes only ever waits on a condition, so an error or a stop reaches it at once.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from dtfm_lab.domain.links import Passage
from dtfm_lab.domain.schedule import Action

HEADER_BYTES = 64
"""three float64 of a Passage, padded so that the payload stays aligned"""


class Message(NamedTuple):
    payload: torch.Tensor
    passage: Passage
    arrived_monotonic_s: float


class Outgoing(NamedTuple):
    packet: torch.Tensor
    stamp: Callable[[], Passage]
    when_sent: Callable[[Passage], None]


class Incoming(NamedTuple):
    """A receive as the program names it, and the bytes that it brings."""

    action: Action
    n_bytes: int


class GlooTransport:
    """Point-to-point messages of one worker, in the order that the schedule fixes for each pair."""

    def __init__(
        self, incoming: Mapping[int, Callable[[int], Sequence[Incoming]]], targets: Sequence[int], iterations: range
    ) -> None:
        """``incoming``: by source rank, what it sends in an iteration, in order; ``targets``: ranks sent to."""
        self._changed = threading.Condition()
        self._mailbox: dict[tuple[int, Action], Message] = {}
        self._unsent = 0
        self._failure: BaseException | None = None
        self._outbox: dict[int, queue.SimpleQueue[Outgoing]] = defaultdict(queue.SimpleQueue)
        for source, messages in incoming.items():
            self._thread(self._receive_all, source, messages, iterations)
        for target in targets:
            self._thread(self._send_all, target, self._outbox[target])

    def send(
        self, to: int, content: torch.Tensor, stamp: Callable[[], Passage], when_sent: Callable[[Passage], None]
    ) -> None:
        """Hand a copy of ``content`` to the sender thread.

        There ``stamp`` is asked for the passage to write on it, before the first byte leaves, and
        ``when_sent`` is called with it after the last.
        """
        raw = content.detach().contiguous().view(-1).view(torch.uint8)
        packet = torch.empty(HEADER_BYTES + raw.numel(), dtype=torch.uint8)
        packet[HEADER_BYTES:] = raw
        with self._changed:
            self._unsent += 1
        self._outbox[to].put(Outgoing(packet, stamp, when_sent))

    def receive(self, iteration: int, action: Action) -> Message:
        """Wait for the message of this receive action; raises what broke the connection."""
        key = (iteration, action)
        with self._changed:
            self._changed.wait_for(lambda: key in self._mailbox or self._failure is not None)
            if key in self._mailbox:
                return self._mailbox.pop(key)
            raise ConnectionError(f"waiting for {action}: {self._failure}")

    def flush(self) -> None:
        """Wait until every message is with gloo's other end."""
        with self._changed:
            self._changed.wait_for(lambda: self._unsent == 0 or self._failure is not None)
            if self._failure is not None:
                raise ConnectionError(str(self._failure))

    def _thread(self, work: Callable[..., None], *args: object) -> None:
        threading.Thread(target=self._guarded, args=(work, *args), daemon=True).start()

    def _guarded(self, work: Callable[..., None], *args: object) -> None:
        try:
            work(*args)
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _receive_all(self, source: int, messages: Callable[[int], Sequence[Incoming]], iterations: range) -> None:
        for iteration in iterations:
            for action, n_bytes in messages(iteration):
                packet = torch.empty(HEADER_BYTES + n_bytes, dtype=torch.uint8)
                dist.recv(packet, src=source)
                arrived_s = time.monotonic()
                passage = Passage(*packet[:HEADER_BYTES].view(torch.float64)[:3].tolist())
                message = Message(packet[HEADER_BYTES:], passage, arrived_s)
                with self._changed:
                    self._mailbox[iteration, action] = message
                    self._changed.notify_all()

    def _send_all(self, target: int, outbox: queue.SimpleQueue[Outgoing]) -> None:
        while True:
            packet, stamp, when_sent = outbox.get()
            passage = stamp()
            packet[:HEADER_BYTES].view(torch.float64)[:3] = torch.tensor(passage, dtype=torch.float64)
            dist.send(packet, dst=target)
            when_sent(passage)
            with self._changed:
                self._unsent -= 1
                self._changed.notify_all()
