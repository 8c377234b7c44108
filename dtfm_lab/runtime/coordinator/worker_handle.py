"""The coordinator's handle of one worker: it sends orders, receives answers and observes the worker's process.

A worker may send heartbeats and still be stuck. A computation may take ``LEAST_S``, or ``TIMES`` times the longest one
that the calibration timed on that worker, whichever is longer. Calibration counts wall seconds with all workers busy
(the 90th percentile). What comes before or after the computation itself does not count: padding of the paced clock,
ordered slowdowns, links and waiting for a shared GPU. Before the calibration is over, and in orders that are not
computations (making connections, reading and writing a checkpoint), the limit is ``UNKNOWN_S``. The same limits apply
if heartbeats stop, because a C call that holds Python's lock stops them too.
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
from dtfm_lab.runtime.protocol.channels import MessageConnection
from dtfm_lab.runtime.protocol.orders import Evaluate, Iterate, Order, Write, to_line
from dtfm_lab.runtime.protocol.run_options import RunSpec

LEAST_S = 30.0
"""Seconds that a computation may always take, because machines swap and have other users."""
TIMES = 20.0
"""Maximum duration of a computation, as a multiple of the longest one in calibration, if that is more than ``LEAST_S``.
"""
UNKNOWN_S = 300.0
"""Limit in seconds for anything that has not been timed."""
GAP_S = 2.0
"""If two checks are at least this many seconds apart, the coordinator itself was stopped. The gap then counts
against no worker."""
OF_COMPUTATIONS = (Iterate.do, Evaluate.do)
"""Orders during which a worker without heartbeats must be computing."""


class ReportedWork:
    """What one worker last reported to be working on."""

    def __init__(self) -> None:
        self.at = ""
        """The work, in words. Empty if the worker waits, sleeps, or has not reported yet."""
        self.computes = False
        self.since_s = time.monotonic()
        """When the work began, by the coordinator's monotonic clock. For a waiting worker, when it reported that."""

    def heard(self, message: Mapping[str, Any]) -> None:
        """Update the report from a message of the worker."""
        self.at, self.computes, self.since_s = "", False, time.monotonic()
        if message.get("event") == "alive" and message.get("at"):
            self.at, self.computes = message["at"], message["computes"]
            self.since_s -= message["for_s"]


class WorkLimits:
    """How long each rank may work on one thing before it counts as stuck."""

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
        """Call this before each round of checks. If the coordinator itself was paused since the last one, the gap
        counts against no worker."""
        now_s = time.monotonic()
        if (gap_s := now_s - self._looked_s) > GAP_S:
            for progress in all_progress:
                progress.since_s = min(progress.since_s + gap_s, now_s)
        self._looked_s = now_s

    def overdue(self, rank: int, progress: ReportedWork, do: str) -> str | None:
        """Return what the worker did for too long, such as ``was at ... for more than 30 s``; None if it is within its
        limit. ``do`` names the current order."""
        limit_s = self._limit_s(rank, progress, do)
        if time.monotonic() - progress.since_s <= limit_s:
            return None
        what = f"was at {progress.at}" if progress.at else "gave no sign of life"
        return f"{what} for more than {limit_s:.0f} s"

    def _limit_s(self, rank: int, progress: ReportedWork, do: str) -> float:
        computes = progress.computes or (not progress.at and do in OF_COMPUTATIONS)
        if computes and self._computing_s is not None:
            return self._computing_s[rank]
        if do == Write.do:  # text takes one forward pass per byte
            return UNKNOWN_S + self._spec.sample_bytes
        return UNKNOWN_S


STOPPED_S = 1.0
"""A worker on this machine whose process has been stopped for longer than this is stuck."""


class WorkerHandle:
    """One worker. ``process`` stays None if it runs on another host."""

    round_trip_s = 0.0
    """Seconds that an order and its answer travel. 0 for a worker on this machine."""
    is_silent = False
    """True if nothing is known of the worker because its link may be down. Its work is then not checked against the
    limits."""

    def __init__(self, rank: int, connection: MessageConnection, process: BaseProcess | None) -> None:
        self.rank, self.connection, self.process = rank, connection, process
        self.address: list[Any] | None = None
        """Host and port at which the worker listens for its peers. None until it has reported them."""
        self.torch_version = ""
        self.last_message_s = time.monotonic()
        self.progress = ReportedWork()
        self._closed = False
        self._stopped_since_s: float | None = None

    def order(self, order: Order, epoch: int | None = None) -> None:
        """Send an order. Raises OSError if the worker is gone."""
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
        """True if messages may still arrive."""
        return not self._closed

    def why_gone(self) -> str | None:
        """Return how the worker's process ended. None while it lives, or if it runs on another host."""
        code = None if self.process is None else self.process.exitcode
        if code is None:
            return None
        return f"was killed by {_signal_name(-code)}" if code < 0 else "ended without a word"

    def is_stuck(self) -> bool:
        """Return True if repeated calls have found the worker's process stopped for more than ``STOPPED_S`` seconds."""
        now_s = time.monotonic()
        if not self.is_stopped():
            self._stopped_since_s = None
        elif self._stopped_since_s is None:
            self._stopped_since_s = now_s
        return self._stopped_since_s is not None and now_s - self._stopped_since_s > STOPPED_S

    def is_stopped(self) -> bool:
        """Return True if its process runs on this machine and is stopped at this moment (SIGSTOP)."""
        if self.process is None or self.process.exitcode is not None:
            return False
        try:
            return bool(psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED)
        except psutil.Error:
            return False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process. Does nothing if the process has ended or is on another machine."""
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
"""Starts a new worker for a rank of a run. The run's plan may have changed by then."""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
