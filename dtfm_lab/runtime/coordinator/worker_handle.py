"""A worker as the crew sees it: where orders go and answers come from, and whether anyone is there."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import psutil

from dtfm_lab.runtime.protocol.corpus import Corpus
from dtfm_lab.runtime.protocol.run_spec import RunSpec
from dtfm_lab.runtime.worker import worker

SILENT_S = 5.0
"""without a heartbeat, which come every half second"""
STILL_S = 1.0
"""a process may be stopped for so long before its place is given to another"""


class Seat:
    """One rank's place; ``process`` is None where the worker runs on another host or was started by another."""

    def __init__(self, rank: int, connection: Connection, process: BaseProcess | None) -> None:
        self.rank, self.connection, self.process = rank, connection, process
        self.address: list[Any] | None = None
        """where its worker listens, once it said so"""
        self.heard_s = time.monotonic()
        self._hung_up = False
        self._stopped_since_s: float | None = None

    def order(self, do: str, **values: Any) -> None:
        """Raises OSError where nobody is there."""
        self.connection.send({"do": do, **values})

    def answers(self) -> list[dict[str, Any]]:
        """All that is there, to the last word of one who hung up."""
        messages = []
        try:
            while self.connection.poll():
                messages.append(json.loads(self.connection.recv_bytes()))
                self.heard_s = time.monotonic()
        except (EOFError, OSError):
            self._hung_up = True
        return messages

    @property
    def reads(self) -> bool:
        """Whether anything may still come."""
        return not self._hung_up

    def gone(self) -> str | None:
        """How it ended, where it did."""
        code = None if self.process is None else self.process.exitcode
        if code is not None:
            return f"was killed by {_signal(-code)}" if code < 0 else "ended without a word"
        return "hung up" if self._hung_up and self.process is None else None

    def still(self) -> bool:
        """Whether it has been stopped, or silent, for too long."""
        now_s = time.monotonic()
        if self.process is None:
            return now_s - self.heard_s > SILENT_S
        if not self.stopped():
            self._stopped_since_s = None
        elif self._stopped_since_s is None:
            self._stopped_since_s = now_s
        return self._stopped_since_s is not None and now_s - self._stopped_since_s > STILL_S

    def stopped(self) -> bool:
        """Whether its process, of this machine, stands still at this moment."""
        if self.process is None or self.process.exitcode is not None:
            return False
        try:
            return psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED
        except psutil.Error:
            return False

    def signal(self, number: signal.Signals) -> None:
        """Nothing where nobody is there, or not on this machine."""
        if self.process is not None and self.process.exitcode is None:
            with contextlib.suppress(psutil.Error):
                psutil.Process(self.process.pid).send_signal(number)

    def end(self) -> None:
        """Whoever sits there goes."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
        self.connection.close()


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


Seats = Callable[[int], Seat]
"""makes the seat of a rank, with a new worker on it"""


def forked(spec: RunSpec) -> Seats:
    """Workers that are copies of this process, which has torch loaded and computed nothing."""
    forks = sys.platform == "linux"
    context = multiprocessing.get_context("fork" if forks else "spawn")
    # opened once, so that every replacement trains on the same bytes, whatever happened to the file's name
    corpus = Corpus.of(spec.text, spec.trained.modelled().seq_len).opened() if forks else None

    def seat(rank: int) -> Seat:
        ours, theirs = context.Pipe()
        process = context.Process(target=worker.main, args=(spec, rank, theirs, corpus), daemon=True)
        process.start()
        theirs.close()
        return Seat(rank, ours, process)

    return seat
