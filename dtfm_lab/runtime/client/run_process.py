"""The process that leads the workers of a run, as the kernel holds it: its streams, its pid, its end."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Protocol, TextIO

STOP_PATIENCE_S = 1.5
"""between the end of its input and SIGKILL for it and all its workers"""
STRAGGLERS_S = 2.0
"""that workers may stay when their leader is gone"""


class Source(Protocol):
    """Who makes it a process sooner or later."""

    def withdraw(self, leader: Leader) -> None:
        """Don't, if it is not too late."""

    def kill(self) -> None:
        """It was too late, and nothing is heard of it."""


class Leader:
    """Made without a process, which ``runtime.warm`` gives it; all methods may be called from any thread."""

    def __init__(self) -> None:
        self.number = next(_numbers)
        (stdin, own), (events, stdout), (errors, stderr) = (os.pipe() for _ in range(3))
        with _lock:
            _inputs[self.number] = own
        self.theirs = [stdin, stdout, stderr]
        """its ends of the pipes, until it has them itself"""
        self.errors: TextIO = os.fdopen(errors, encoding="utf-8", errors="replace")
        """what it and its workers write to standard error"""
        self._events: TextIO = os.fdopen(events, encoding="utf-8", errors="replace")
        self.source: Source | None = None
        self.pid: int | None = None
        """also its process group's and its session's"""
        self.returncode: int | None = None
        """its exit status, negative a signal's number; None where nobody knows"""
        self._has_pid, self._reported, self._silent = threading.Event(), threading.Event(), threading.Event()
        self._stopping = False
        self._orders: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._feed, args=(own,), daemon=True).start()

    def send(self, line: str) -> None:
        """Write to its standard input, without waiting until it reads."""
        self._orders.put(line)

    def lines(self) -> Iterator[str]:
        """Whole lines of its standard output, until it and all its workers are gone."""
        with self._events:
            for line in self._events:
                if line.endswith("\n"):  # else it was killed in the middle of a word
                    yield line
        self._silent.set()
        self._orders.put(None)
        self._reported.wait(STOP_PATIENCE_S)

    def wait_for_pid(self) -> int | None:
        """None where it never had one."""
        while not (self._has_pid.wait(0.1) or self._silent.is_set()):
            pass
        return self.pid

    def stop(self) -> None:
        """End it and its workers within two seconds, whatever they do."""
        self._stopping = True
        self._orders.put(None)
        if self.pid is None and self.source is not None:
            self.source.withdraw(self)
        if not self._silent.wait(STOP_PATIENCE_S):
            if self.pid is None and self.source is not None:
                self.source.kill()
            self.kill()
            self._silent.wait(STOP_PATIENCE_S)

    def kill(self) -> None:
        """The leader and its workers, at once; nothing where all are gone already."""
        if self.pid is not None and not self._silent.is_set():  # as long as one lives, the number is theirs
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def start_anew(self) -> None:
        """Become a new Python."""
        if self._stopping:
            return self.never_starts()
        stdin, stdout, stderr = self.theirs
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "dtfm_lab.runtime.worker.local_run"],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,  # Jupyter interrupts its whole process group
                env=environment(),
            )
        except OSError as error:
            os.write(stderr, f"it could not be started: {error}\n".encode())
            return self.never_starts()
        self.started(process.pid)
        threading.Thread(target=lambda: self.ended(process.wait()), daemon=True).start()

    def started(self, pid: int) -> None:
        self.pid = pid
        self._has_pid.set()
        self._let_go()

    def never_starts(self) -> None:
        self._reported.set()
        self._let_go()

    def ended(self, returncode: int | None) -> None:
        """It is gone, and its workers should be soon; None: how it ends, nobody will say."""
        self.returncode = returncode
        self._reported.set()
        if returncode is not None and not self._silent.is_set():
            stragglers = threading.Timer(STRAGGLERS_S, self.kill)
            stragglers.daemon = True
            stragglers.start()

    def _let_go(self) -> None:
        theirs, self.theirs = self.theirs, []
        for end in theirs:
            os.close(end)

    def _feed(self, own: int) -> None:
        with contextlib.suppress(OSError):  # it may have died in the meantime; its output ends then, too
            while (line := self._orders.get()) is not None:
                text = line.encode()
                while text:
                    text = text[os.write(own, text) :]
        with _lock:
            if _inputs.pop(self.number, None) is not None:
                os.close(own)


def environment() -> dict[str, str]:
    """Of a leader and its workers: each computes on one thread."""
    return dict(os.environ) | {"OMP_NUM_THREADS": "1"}


_numbers = itertools.count()
_lock = threading.Lock()
_inputs: dict[int, int] = {}
"""the end of each leader's input that is open in this process, by the leader's number"""


def _close_inputs_in_a_copy() -> None:
    """A fork of the kernel would keep runs alive when the kernel itself is gone."""
    for own in _inputs.values():
        os.close(own)
    _inputs.clear()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_close_inputs_in_a_copy)
