"""The coordinator's handle of a worker of another host, which may fall silent, come back, or be taken over.

A silent worker is waited for: its link may come back, and then nothing is lost. Where another process knocks for its
rank, the silent one is lost at once. One that speaks after the knock lives, and the other process is refused, so a
rank is never held twice.
"""

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

from dtfm_lab.runtime.coordinator.worker_handle import WorkerHandle
from dtfm_lab.runtime.protocol.message_stream import MessageStream

SILENT_S = 5.0
"""A worker that sent nothing for so long is silent; heartbeats come every half second."""
PROOF_S = 1.0
"""A message that comes so long after a knock was sent after it."""


class RemoteWorker(WorkerHandle):
    """One worker on another host."""

    def __init__(self, rank: int, stream: MessageStream, round_trip_s: float, own_address: str, await_s: float) -> None:
        """``await_s``: how long a silent worker is waited for; ``own_address``: of its host, as others reach it."""
        super().__init__(rank, stream, None)
        self.round_trip_s, self.own_address = round_trip_s, own_address
        self.knocked_s: Callable[[], float | None] = lambda: None
        """When another process knocked for this rank; None where none does."""
        self.refuse: Callable[[], None] = lambda: None
        """Turns that other process away."""
        self.heard_exit = False
        """Whether its process has said that it exits as ordered."""
        self._stream, self._await_s = stream, await_s
        self._unread: list[dict[str, Any]] = []

    def pump(self) -> None:
        """Read what has come, for a later ``receive``, so that its silence is noticed while others are waited for."""
        messages = super().receive()
        self.heard_exit = self.heard_exit or any(message["event"] == "exits" for message in messages)
        self._unread += messages

    def receive(self) -> list[dict[str, Any]]:
        self.pump()
        unread, self._unread = self._unread, []
        return unread

    @property
    def is_silent(self) -> bool:  # type: ignore[override]
        return self.silent_for_s > SILENT_S

    @property
    def silent_for_s(self) -> float:
        return time.monotonic() - self.last_message_s

    def is_stuck(self) -> bool:
        """Return whether it is silent and another process wants its rank, which is refused where it is not."""
        if (knocked_s := self.knocked_s()) is None:
            return False
        if self.last_message_s > knocked_s + PROOF_S:
            self.refuse()
            return False
        return self.is_silent

    def why_gone(self) -> str | None:
        if not self.is_open:
            return "hung up"
        return f"was silent for {self._await_s:g} s" if self.silent_for_s > self._await_s else None

    def dismiss(self, status: int, why: str) -> None:
        """Order its process to exit and its host not to start it again."""
        with contextlib.suppress(OSError):
            self._stream.send_bytes(json.dumps({"do": "exit", "status": status, "why": why}).encode())
        self._stream.finish_sending()
