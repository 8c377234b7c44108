"""Start the processes of runs without delay: a fork server that has loaded torch forks them, on systems that can fork.

The first run starts the server, unless ``warm_up`` did so earlier. Without a server (no Linux, a server that died,
DTFM_LAB_WARM_S=0) a run is a new Python process. It takes longer, because it imports torch, but is otherwise the same.

Why not ``multiprocessing``'s forkserver with preloaded modules:

- It imports the user's ``__main__`` in every child, so a script without a guard would start its runs again.
- Starting a process blocks until torch is loaded, and cannot be withdrawn.
- The server keeps the environment in which it started and does not end when idle.
- It stays in the process group that Jupyter interrupts, and belongs to all uses of ``multiprocessing`` in the kernel.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import math
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, Literal, TextIO

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened

IDLE_S = 600
"""A server ends after this many seconds without a run."""
IDLE_VARIABLE = "DTFM_LAB_WARM_S"
"""Environment variable that overrides ``IDLE_S``. With 0, no server is started."""
LONGEST_IDLE_S = 10**7
HURRY_S = 2.0
"""Maximum wait for a server that loads torch at the lowest priority. On a busy machine, loading may take minutes."""
MESSAGE_BYTES = 1 << 12
"""Maximum bytes to read of one message from the server. All its messages are shorter."""
STOP_PATIENCE_S = 1.5
"""Time between closing a run's input and killing it with all its workers."""
STRAGGLERS_S = 2.0
"""Maximum time that workers may outlive their coordinator."""


def start_run_process() -> RunProcess:
    """Return a run whose process has started, or will start as soon as the server has loaded torch.

    Raises LabError if the environment variable ``DTFM_LAB_WARM_S`` does not hold a number of seconds.
    """
    run = RunProcess()
    server = running_server()
    if server is None or not server.take(run):
        run.start_python()
    return run


def warm_up() -> None:
    """Start loading torch in a separate process, so that the first run starts without delay. Return at once."""
    if importlib.util.find_spec("torch") is not None:
        running_server("ahead")


class RunProcess:
    """The handle of one run's process, made before the process starts. All methods may be called from any thread."""

    def __init__(self) -> None:
        self.number = next(_numbers)
        (stdin, own), (events, stdout), (errors, stderr) = (os.pipe() for _ in range(3))
        with _lock:
            _inputs[self.number] = own
        self.child_ends = [stdin, stdout, stderr]
        """The process's ends of the pipes. They are closed here once the process has them."""
        self.errors: TextIO = os.fdopen(errors, encoding="utf-8", errors="replace")
        """What the process and its workers write to standard error."""
        self._events: TextIO = os.fdopen(events, encoding="utf-8", errors="replace")
        self.server: ForkServer | None = None
        """The server that was asked to fork the process; None without a server."""
        self.pid: int | None = None
        """Process id, which also identifies its process group and its session."""
        self.returncode: int | None = None
        """Exit status, or the negative number of a signal; None if unknown."""
        self._has_pid, self._end_known, self._all_gone = threading.Event(), threading.Event(), threading.Event()
        self._stopping = False
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        # On a thread, because a full pipe would make the caller wait.
        threading.Thread(target=self._write_input, args=(own,), daemon=True).start()

    def send(self, line: str) -> None:
        """Write to the process's standard input without waiting until it reads."""
        self._lines.put(line)

    def lines(self) -> Iterator[str]:
        """Yield whole lines of the process's standard output until it and all its workers are gone."""
        with self._events:
            for line in self._events:
                if line.endswith("\n"):  # the last line of a killed process may be incomplete
                    yield line
        self._all_gone.set()
        self._lines.put(None)
        self._end_known.wait(STOP_PATIENCE_S)

    def wait_for_pid(self) -> int | None:
        """Wait until the process has started and return its id; None if it never started."""
        while not (self._has_pid.wait(0.1) or self._all_gone.is_set()):
            pass
        return self.pid

    def stop(self) -> None:
        """End the process and its workers, whatever their state. Block for at most twice ``STOP_PATIENCE_S``: three
        seconds."""
        self._stopping = True
        self._lines.put(None)
        if not self._all_gone.wait(STOP_PATIENCE_S):
            if self.pid is None and self.server is not None:
                self.server.kill()
            self.kill()
            self._all_gone.wait(STOP_PATIENCE_S)

    def kill(self) -> None:
        """Kill the process and its workers. Do nothing if it has not started, or if they are all gone."""
        if self.pid is not None and not self._all_gone.is_set():  # while one lives, no other group gets this number
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def start_python(self) -> None:
        """Start the run as a new Python process, which loads torch itself."""
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
        """Record that the process has started and has its ends of the pipes."""
        self.pid = pid
        self._has_pid.set()
        self._close_child_ends()

    def cancel(self) -> None:
        """Record that there will be no process."""
        self._end_known.set()
        self._close_child_ends()

    def set_ended(self, returncode: int | None) -> None:
        """Record the process's exit status, and kill workers that outlive it by ``STRAGGLERS_S``.

        With None, the status stays unknown because the fork server died. Then nothing is killed, as the run may
        continue.
        """
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
        with contextlib.suppress(OSError):  # the process has died, which `lines` notices
            while (line := self._lines.get()) is not None:
                text = line.encode()
                while text:
                    text = text[os.write(own, text) :]
        with _lock:
            if _inputs.pop(self.number, None) is not None:
                os.close(own)


def run_environment() -> dict[str, str]:
    """Return the environment of a run's processes. Each worker computes on one thread."""
    return dict(os.environ) | {"OMP_NUM_THREADS": "1"}


class ForkServer:
    """The client's handle of a fork server, which is a process of ``runtime.worker.local_run``."""

    def __init__(self, idle_s: float, when: Literal["now", "ahead"]) -> None:
        self.socket, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_end:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dtfm_lab.runtime.worker.local_run", str(child_end.fileno()), str(idle_s), when],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # if it cannot start, a run in a new Python fails too and says why
                pass_fds=[child_end.fileno()],
                start_new_session=True,  # Jupyter interrupts its whole process group
                env=run_environment(),
            )
        self.lives = True
        self._hurries = when == "now"
        """True if torch is loaded, or is being loaded at normal priority, so that runs may wait for it."""
        self._ordered: dict[int, RunProcess] = {}
        """Runs that were requested from the server and have not started, by run number. The socket keeps the requests
        until the server has loaded torch."""
        self._begun: dict[int, RunProcess] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def take(self, run: RunProcess) -> bool:
        """Request a process for the run. Return False if the server is gone or cannot receive the request."""
        order = {"number": run.number, "environment": run_environment(), "folder": _current_folder()}
        with _lock:
            if self.lives:
                try:
                    socket.send_fds(self.socket, [json.dumps(order).encode()], run.child_ends)
                except OSError:  # the server has just died, or the environment is too long for a message
                    return False
                run.server = self
                self._ordered[run.number] = run
                # Loading ahead has low priority, and a run must not wait for it long.
                if not self._hurries:
                    unhurried = threading.Timer(HURRY_S, self._give_up_unhurried)
                    unhurried.daemon = True
                    unhurried.start()
            return self.lives

    def _give_up_unhurried(self) -> None:
        """Kill a server that is still loading torch at the lowest priority. The runs that wait for it start as new
        Python processes."""
        with _lock:
            if self.lives and not self._hurries:
                self.kill()

    def kill(self) -> None:
        """Kill the server. Runs that it has forked continue."""
        self.process.kill()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            # The socket closes when the server ends, however it ended.
            while message := self.socket.recv(MESSAGE_BYTES):
                self._take_message(json.loads(message))
        with _lock:
            self.lives = False
            self.socket.close()
        self.process.wait()
        # Runs that were asked for and never started can still start elsewhere.
        for run in self._ordered.values():
            run.start_python()
        for run in self._begun.values():
            run.set_ended(None)

    def _take_message(self, message: dict[str, Any]) -> None:
        # The caller's thread and the thread that listens both change these dictionaries.
        with _lock:
            match message:
                case {"event": "ready"}:
                    self._hurries = True
                case {"event": "started", "number": number, "pid": pid}:
                    self._begun[number] = self._ordered.pop(number)
                    self._begun[number].set_started(pid)
                case {"event": "refused", "number": number}:
                    self._ordered.pop(number).start_python()
                case {"event": "ended", "number": number, "status": status}:
                    if (run := self._begun.pop(number, None)) is not None:
                        run.set_ended(status)
                    else:  # it ended before it could report its start
                        self._ordered.pop(number).start_python()


def running_server(when: Literal["now", "ahead"] = "now") -> ForkServer | None:
    """Return this process's server, starting one if necessary; None if none can run.

    A server that is started ahead of a run loads torch at the lowest priority.

    Raises LabError if the environment variable does not hold a number of seconds.
    """
    global _server
    wanted = os.environ.get(IDLE_VARIABLE, str(IDLE_S))
    try:
        idle_s = float(wanted)
    except ValueError:
        idle_s = math.nan
    if not 0 <= idle_s <= LONGEST_IDLE_S:
        raise LabError(
            f"environment variable {IDLE_VARIABLE} is {shortened(wanted)}; wanted seconds from 0 to {LONGEST_IDLE_S}"
        )
    if sys.platform != "linux" or idle_s == 0:
        return None
    with _lock:
        if _server is None or not _server.lives:
            try:
                _server = ForkServer(idle_s, when)
            except OSError:  # the system allows no more processes or sockets, and a run without a server needs fewer
                _server = None
        return _server


def _current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"


_numbers = itertools.count()
_lock = threading.Lock()
_server: ForkServer | None = None
_inputs: dict[int, int] = {}
"""Input descriptors of the runs that are open in this process, by run number."""


def _close_in_fork() -> None:
    """Close the socket and the inputs in a fork of this process. Otherwise the fork would keep server and runs
    alive."""
    global _server
    if _server is not None:
        _server.socket.close()
        _server = None
    for own in _inputs.values():
        os.close(own)
    _inputs.clear()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_close_in_fork)
