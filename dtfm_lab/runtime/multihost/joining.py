"""A worker's end of the rendezvous: it knocks at the coordinator's, and keeps its clock.

A worker connects twice: for orders and events, and to ask for the time. Monotonic clocks of different hosts have
different origins, so a worker regularly asks for the coordinator's time and keeps the answer with the shortest round
trip; the remaining error is at most half of that round trip.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.runtime.protocol.certificates import Certificates
from dtfm_lab.runtime.protocol.connections import (
    HANDSHAKE_S,
    RETRY_S,
    Channel,
    ConnectionLost,
    Refused,
    connect,
    respond,
)
from dtfm_lab.runtime.protocol.message_stream import MessageStream

AWAIT_S = 300.0
"""Seconds that a worker tries to reach the coordinator, and that the coordinator waits for a worker."""
SILENT_S = 30.0
"""Seconds without an acknowledgement after which a connection between worker and coordinator counts as lost."""
ASK_EVERY_S = 5.0
"""Seconds between requests for the time: clocks of computers drift apart by tens of microseconds a second."""
N_REQUESTS = 8
"""Requests of which the one with the shortest round trip counts."""
APPEAR_S = 15.0
"""Seconds within which a file of the first host is seen in a shared folder."""


class RunOver(Exception):
    """The run has ended; ``status`` is the exit status of this host."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class CoordinatorClock:
    """The difference between this host's monotonic clock and the coordinator's, measured anew every few seconds."""

    def __init__(self, connection: MessageStream) -> None:
        self._connection = connection
        self.round_trip_s = self._offset_s = 0.0
        self.ask()
        threading.Thread(target=self._ask_forever, daemon=True).start()

    def ask(self) -> None:
        """Measure the difference anew. Raises OSError or EOFError if the coordinator does not answer."""
        answers = []
        for _ in range(N_REQUESTS):
            asked_s = time.monotonic()
            self._connection.send_bytes(b"?")
            theirs_s = float(self._connection.recv_bytes())
            answered_s = time.monotonic()
            answers.append((answered_s - asked_s, (asked_s + answered_s) / 2 - theirs_s))
        self.round_trip_s, self._offset_s = min(answers)

    def offset_s(self) -> float:
        """Seconds to add to a moment in an order to have it by this host's clock."""
        return self._offset_s

    def _ask_forever(self) -> None:
        with contextlib.suppress(OSError, EOFError):  # the worker notices the loss of the coordinator by itself
            while True:
                time.sleep(ASK_EVERY_S)
                self.ask()


@dataclass(frozen=True)
class Joined:
    """What a worker that was let in has."""

    connection: MessageStream
    own_address: str
    """Of this host, as other hosts reach it."""
    clock: CoordinatorClock
    changes: dict[str, Any]
    """Fields of the RunSpec that differ from those in the run folder: where the run is resumed."""


def join_run(
    address: str,
    port: int,
    secret: str,
    rank: int,
    host: str = "",
    *,
    await_s: float = AWAIT_S,
    silent_s: float = SILENT_S,
    certificates: Certificates | None = None,
) -> Joined:
    """Knock at the coordinator's rendezvous as the worker of this rank.

    Raises ConnectionLost if the coordinator cannot be reached for ``await_s`` or does not hold the secret, Refused if
    it belongs to another run, RunOver where the run has ended, LabError where this host lacks the run's folders, and
    EOFError or OSError if it gives up before.
    """
    clock_channel = _authenticated(address, port, secret, await_s, certificates)
    with _may_come_back():
        clock_channel.send(purpose="clock")
    clock_channel.lose_when_silent(silent_s)
    clock = CoordinatorClock(MessageStream(clock_channel.raw()))
    channel = _authenticated(address, port, secret, await_s, certificates)
    with _may_come_back():
        channel.send(rank=rank, host=host, address=channel.own_address, round_trip_s=clock.round_trip_s)
        answer = channel.receive(HANDSHAKE_S)
    if "over" in answer:
        raise RunOver(int(answer["over"]), str(answer.get("why")))
    with _may_come_back():
        try:
            _require_shared(answer.get("shared"), host)
        except LabError as error:
            channel.send(cannot=str(error))
            raise
        channel.send(ready=True)
    channel.lose_when_silent(silent_s)
    return Joined(MessageStream(channel.raw()), channel.own_address, clock, dict(answer["changes"]))


@contextlib.contextmanager
def _may_come_back() -> Iterator[None]:
    """Raise EOFError in place of ConnectionLost: a coordinator that is lost after it was reached may come back."""
    try:
        yield
    except Refused:
        raise
    except ConnectionLost as error:
        raise EOFError(str(error)) from None


def _require_shared(shared: dict[str, str] | None, host: str) -> None:
    """Raise LabError where the checkpoint folder here is not the first host's, in which it has just made a file."""
    if shared is None:
        return
    folder, deadline_s = Path(shared["folder"]), time.monotonic() + APPEAR_S
    while not (folder / shared["file"]).exists():
        if not folder.is_dir() or time.monotonic() > deadline_s:
            raise LabError(f"checkpoint_folder {folder} on host {host} is not the first host's; wanted a shared folder")
        time.sleep(0.2)


def _authenticated(address: str, port: int, secret: str, wait_s: float, certificates: Certificates | None) -> Channel:
    deadline_s = time.monotonic() + wait_s
    while True:
        channel = connect(address, port, retry_s=max(deadline_s - time.monotonic(), 0.1), certificates=certificates)
        try:
            respond(channel, secret)
            return channel
        except ConnectionLost as error:
            channel.close()
            if isinstance(error, Refused) or time.monotonic() > deadline_s:
                raise
        time.sleep(RETRY_S)
