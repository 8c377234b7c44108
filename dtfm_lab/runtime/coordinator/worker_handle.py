"""The coordinator's handle of one worker: it sends orders, receives answers and observes the worker's process.

A worker of another host may fall silent, come back, or be taken over. A silent one is waited for: its link may come
back, and then nothing is lost. Where another process knocks for its rank, the silent one is lost at once. One that
speaks after the knock lives, and the other process is refused, so a rank is never held twice.

A worker may live and send heartbeats, and be stuck. A computation may take the longer of ``LEAST_S`` and ``TIMES``
times the longest one that the calibration timed on that worker, in wall seconds with all workers busy at once (nine of
ten took less). Padding of the paced clock, ordered slowdowns, links and waiting for a shared GPU do not count, as they
come before or after the computation itself. Before the calibration is over, and in orders that are not computations
(making connections, reading and writing a checkpoint), ``UNKNOWN_S`` is the limit. The same limits hold for a worker
whose heartbeats stop: a call in C that holds Python's lock stops them, too.
"""

import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.process import BaseProcess
from typing import Any

import psutil

from dtfm_lab.domain.schedule import Kind
from dtfm_lab.runtime.coordinator.calibration import MeasuredDurations
from dtfm_lab.runtime.protocol.channels import MessageConnection, MessageStream
from dtfm_lab.runtime.protocol.orders import Evaluate, Exit, Iterate, Order, Write, to_line
from dtfm_lab.runtime.protocol.run_options import RunSpec

LEAST_S = 30.0
"""A computation may always take so long: machines swap, and others use them, too."""
TIMES = 20.0
"""A computation may take so many times what the longest one took in calibration."""
UNKNOWN_S = 300.0
"""Limit of what nobody has timed before."""
GAP_S = 2.0
"""Where the coordinator itself has not looked for so long, because it was stopped, that time counts for no worker."""
OF_COMPUTATIONS = (Iterate.do, Evaluate.do)
"""Orders in which a worker without heartbeats must be computing."""


class ReportedWork:
    """What one worker said last that it works at."""

    def __init__(self) -> None:
        self.at = ""
        """In words; empty where it waits, sleeps, or has said nothing yet."""
        self.computes = False
        self.since_s = time.monotonic()
        """Since when, by the coordinator's monotonic clock; of a worker that waits, when it said so."""

    def heard(self, message: Mapping[str, Any]) -> None:
        """Take in a message of the worker."""
        self.at, self.computes, self.since_s = "", False, time.monotonic()
        if message.get("event") == "alive" and message.get("at"):
            self.at, self.computes = message["at"], message["computes"]
            self.since_s -= message["for_s"]


class WorkLimits:
    """The limits of every rank."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._computing_s: list[float] | None = None
        self._looked_s = time.monotonic()

    def calibrated(self, measured: Mapping[tuple[int, int, Kind], MeasuredDurations]) -> None:
        """Learn from the calibration how long computations take."""
        longest_s = [0.0] * len(self._spec.workers)
        for (stage, replica, _), figures in measured.items():
            rank = self._spec.rank(stage, replica)
            longest_s[rank] = max(longest_s[rank], figures.crowded_wall_s)
        self._computing_s = [max(LEAST_S, TIMES * each_s) for each_s in longest_s]

    def look(self, all_progress: Iterable[ReportedWork]) -> None:
        """To be called before each round of checks."""
        now_s = time.monotonic()
        if (gap_s := now_s - self._looked_s) > GAP_S:
            for progress in all_progress:
                progress.since_s = min(progress.since_s + gap_s, now_s)
        self._looked_s = now_s

    def overdue(self, rank: int, progress: ReportedWork, do: str) -> str | None:
        """Return what the worker has been at for too long while ``do`` is ordered, a predicate; None if nothing."""
        limit_s = self._limit_s(rank, progress, do)
        if time.monotonic() - progress.since_s <= limit_s:
            return None
        what = f"was at {progress.at}" if progress.at else "gave no sign of life"
        return f"{what} for more than {limit_s:.0f} s"

    def _limit_s(self, rank: int, progress: ReportedWork, do: str) -> float:
        computes = progress.computes or (not progress.at and do in OF_COMPUTATIONS)
        if computes and self._computing_s is not None:
            return self._computing_s[rank]
        if do == Write.do:  # text, a model's forward for each byte
            return UNKNOWN_S + self._spec.sample_bytes
        return UNKNOWN_S


STOPPED_S = 1.0
"""A worker of this machine whose process has been stopped for so long is stuck."""


class WorkerHandle:
    """One worker; ``process`` is None where it runs on another host: see ``RemoteWorker``."""

    round_trip_s = 0.0
    """Seconds that an order and its answer are on their way."""
    is_silent = False
    """Whether nothing is known of it, as its link may be down: what it works at is not held against it."""

    def __init__(self, rank: int, connection: MessageConnection, process: BaseProcess | None) -> None:
        self.rank, self.connection, self.process = rank, connection, process
        self.address: list[Any] | None = None
        """Host and port at which the worker listens for its peers; None until it has reported them."""
        self.torch_version = ""
        self.last_message_s = time.monotonic()
        self.progress = ReportedWork()
        self._closed = False
        self._stopped_since_s: float | None = None

    def order(self, order: Order, epoch: int | None = None) -> None:
        """Send an order. Raises OSError where the worker is gone."""
        self.connection.send_bytes(to_line(order, epoch))

    def receive(self) -> list[dict[str, Any]]:
        """Return all messages that have arrived, including the last ones of a worker that has ended."""
        messages = []
        try:
            while self.connection.poll():
                messages.append(json.loads(self.connection.recv_bytes()))
                self.last_message_s = time.monotonic()
                self.progress.heard(messages[-1])
        except (EOFError, OSError):
            self._closed = True
        return messages

    @property
    def is_open(self) -> bool:
        """Whether messages may still arrive."""
        return not self._closed

    def why_gone(self) -> str | None:
        """Return how the worker ended; None while it lives."""
        code = None if self.process is None else self.process.exitcode
        if code is None:
            return None
        return f"was killed by {_signal_name(-code)}" if code < 0 else "ended without a word"

    def is_stuck(self) -> bool:
        """Return whether the worker has been stopped for too long."""
        now_s = time.monotonic()
        if not self.is_stopped():
            self._stopped_since_s = None
        elif self._stopped_since_s is None:
            self._stopped_since_s = now_s
        return self._stopped_since_s is not None and now_s - self._stopped_since_s > STOPPED_S

    def is_stopped(self) -> bool:
        """Return whether its process, if on this machine, is stopped at this moment (SIGSTOP)."""
        if self.process is None or self.process.exitcode is not None:
            return False
        try:
            return bool(psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED)
        except psutil.Error:
            return False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process; nothing happens where that has ended or is not on this machine."""
        if self.process is not None and self.process.exitcode is None:
            with contextlib.suppress(psutil.Error):
                psutil.Process(self.process.pid).send_signal(number)

    def end(self) -> None:
        """Kill its process and close the connection."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
        self.connection.close()


StartWorker = Callable[[RunSpec, int], WorkerHandle]
"""Starts a new worker for a rank of a run, whose plan may be another one by then."""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


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
            self._stream.send_bytes(to_line(Exit(status=status, why=why)))
        self._stream.finish_sending()
