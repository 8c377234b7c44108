"""The client's handle of a run's process: its streams, its process id and its end."""

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
"""Time between closing the input of a run and killing it with all its workers."""
STRAGGLERS_S = 2.0
"""Longest time that workers may outlive the process that coordinates them."""


class ProcessSource(Protocol):
    """What makes the process, now or later: the fork server, or the queue of this machine before it."""

    def withdraw(self, run: RunProcess) -> None:
        """Make no process for this run, if it has not been ordered yet."""

    def kill(self) -> None:
        """End the source itself, because it does not answer."""


class RunProcess:
    """A handle whose process ``preload`` starts later. All methods may be called from any thread."""

    def __init__(self) -> None:
        self.number = next(_numbers)
        (stdin, own), (events, stdout), (errors, stderr) = (os.pipe() for _ in range(3))
        with _lock:
            _inputs[self.number] = own
        self.child_ends = [stdin, stdout, stderr]
        """The process's ends of the pipes; they are closed here once the process has them."""
        self.errors: TextIO = os.fdopen(errors, encoding="utf-8", errors="replace")
        """What the process and its workers write to standard error."""
        self._events: TextIO = os.fdopen(events, encoding="utf-8", errors="replace")
        self.source: ProcessSource | None = None
        self.pid: int | None = None
        """Its process id, which is also that of its process group and of its session."""
        self.returncode: int | None = None
        """Its exit status, or the negative number of a signal; None where it is unknown."""
        self._has_pid, self._end_known, self._all_gone = threading.Event(), threading.Event(), threading.Event()
        self._stopping = False
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._write_input, args=(own,), daemon=True).start()

    def send(self, line: str) -> None:
        """Write to its standard input, without waiting until it reads."""
        self._lines.put(line)

    def lines(self) -> Iterator[str]:
        """Yield whole lines of its standard output, until it and all its workers are gone."""
        with self._events:
            for line in self._events:
                if line.endswith("\n"):  # the last line of a killed process may be incomplete
                    yield line
        self._all_gone.set()
        self._lines.put(None)
        self._end_known.wait(STOP_PATIENCE_S)

    def wait_for_pid(self) -> int | None:
        """Wait until the process has begun and return its id; None where it never began."""
        while not (self._has_pid.wait(0.1) or self._all_gone.is_set()):
            pass
        return self.pid

    def wait_until_gone(self) -> None:
        """Wait until it and all its workers are gone."""
        self._all_gone.wait()

    def stop(self) -> None:
        """End it and its workers within two seconds, whatever state they are in."""
        self._stopping = True
        self._lines.put(None)
        if self.pid is None and self.source is not None:
            self.source.withdraw(self)
        if not self._all_gone.wait(STOP_PATIENCE_S):
            if self.pid is None and self.source is not None:
                self.source.kill()
            self.kill()
            self._all_gone.wait(STOP_PATIENCE_S)

    def kill(self) -> None:
        """Kill the process and its workers; nothing happens where all are gone."""
        if self.pid is not None and not self._all_gone.is_set():  # while one lives, no other group gets this number
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def start_python(self) -> None:
        """Begin as a new Python process, which loads torch itself."""
        if self._stopping:
            return self.cancel()
        stdin, stdout, stderr = self.child_ends
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "dtfm_lab.runtime.worker.local_run"],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,  # Jupyter interrupts its whole process group
                env=run_environment(),
            )
        except OSError as error:
            os.write(stderr, f"it could not be started: {error}\n".encode())
            return self.cancel()
        self.set_started(process.pid)
        threading.Thread(target=lambda: self.set_ended(process.wait()), daemon=True).start()

    def set_started(self, pid: int) -> None:
        """Note that the process has begun and has its ends of the pipes."""
        self.pid = pid
        self._has_pid.set()
        self._close_child_ends()

    def cancel(self) -> None:
        """Note that there will be no process."""
        self._end_known.set()
        self._close_child_ends()

    def set_ended(self, returncode: int | None) -> None:
        """Note that the process has ended, None where its status stays unknown, and kill workers that outlive it."""
        self.returncode = returncode
        self._end_known.set()
        if returncode is not None and not self._all_gone.is_set():
            stragglers = threading.Timer(STRAGGLERS_S, self.kill)
            stragglers.daemon = True
            stragglers.start()

    def _close_child_ends(self) -> None:
        ends, self.child_ends = self.child_ends, []
        for end in ends:
            os.close(end)

    def _write_input(self, own: int) -> None:
        with contextlib.suppress(OSError):  # where the process has died, its output ends, too
            while (line := self._lines.get()) is not None:
                text = line.encode()
                while text:
                    text = text[os.write(own, text) :]
        with _lock:
            if _inputs.pop(self.number, None) is not None:
                os.close(own)


def run_environment() -> dict[str, str]:
    """Return the environment of a run's processes: each worker computes on one thread."""
    return dict(os.environ) | {"OMP_NUM_THREADS": "1"}


_numbers = itertools.count()
_lock = threading.Lock()
_inputs: dict[int, int] = {}
"""The input descriptor of each run that is open in this process, by the run's number."""


def _close_inputs_in_fork() -> None:
    """Close the inputs in a fork of this process, which would keep runs alive when this process is gone."""
    for own in _inputs.values():
        os.close(own)
    _inputs.clear()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_close_inputs_in_fork)
