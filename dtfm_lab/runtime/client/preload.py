"""Starts the processes of runs at once: a fork server that has loaded torch forks them, on systems that can fork.

The first run starts the server, or ``warm_up`` before it. Without a server (another system than Linux, a server that
died, DTFM_LAB_WARM_S=0) a run is a new Python process, which takes a torch import longer and is the same otherwise.

Why not ``multiprocessing``'s forkserver with preloaded modules: it imports the user's ``__main__`` in every child, so a
script without a guard would start its runs again; starting a process blocks until torch is loaded, and cannot be
withdrawn; the server keeps the environment of its own start, stays in the process group that Jupyter interrupts, does
not end when idle, and belongs to all other uses of ``multiprocessing`` in the same kernel.
"""

import contextlib
import importlib.util
import json
import math
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.runtime.client.run_process import RunProcess, run_environment
from dtfm_lab.runtime.client.run_queue import Waiting, runs_at_once

IDLE_S = 600
"""A server ends itself when no run has needed it for so long."""
IDLE_VARIABLE = "DTFM_LAB_WARM_S"
"""Environment variable that gives other seconds; 0: no server at all."""
LONGEST_IDLE_S = 10**7
MESSAGE_BYTES = 1 << 12
"""Longer than any message of the server."""


def start_run_process(tell_waiting: Callable[[int, int], None]) -> RunProcess:
    """Return a run whose process has begun, or will begin as soon as the server has loaded torch.

    Where only so many runs go at once on this machine, it begins when its turn comes; ``tell_waiting`` is then called
    with the number of runs before it and of those that go at once. Raises LabError where the environment is wrong.
    """
    at_once = runs_at_once()
    run = RunProcess()
    if at_once is None:
        _begin(run)
    else:
        Waiting(run, at_once, _begin, tell_waiting)
    return run


def _begin(run: RunProcess) -> None:
    server = running_server()
    if server is None or not server.take(run):
        run.start_python()


def warm_up() -> None:
    """Begin to load torch in a process of its own, so that the first run starts at once; return at once."""
    if importlib.util.find_spec("torch") is not None:
        running_server()


class ForkServer:
    """The client's end of ``runtime.worker.fork_server``."""

    def __init__(self, idle_s: float) -> None:
        self.socket, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_end:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dtfm_lab.runtime.worker.fork_server", str(child_end.fileno()), str(idle_s)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # where it cannot start, a new Python cannot, either, and says why
                pass_fds=[child_end.fileno()],
                start_new_session=True,  # Jupyter interrupts its whole process group
                env=run_environment(),
            )
        self.lives = True
        self._ready = False
        self._waiting: dict[int, RunProcess] = {}
        """Runs that wait until the server is ready; this and the two below are by the run's number."""
        self._ordered: dict[int, RunProcess] = {}
        """Runs that were ordered from the server and have not begun."""
        self._begun: dict[int, RunProcess] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def take(self, run: RunProcess) -> bool:
        """Order a process for the run, now or when the server is ready; return False where the server is gone."""
        with _lock:
            if self.lives:
                run.source = self
                self._waiting[run.number] = run
                if self._ready:
                    self._order_waiting()
            return self.lives

    def withdraw(self, run: RunProcess) -> None:
        """Cancel the run if it was not ordered yet."""
        with _lock:
            waited = self._waiting.pop(run.number, None) is not None
        if waited:
            run.cancel()

    def kill(self) -> None:
        """Kill the server; the runs that it has forked go on."""
        self.process.kill()

    def _order_waiting(self) -> None:
        for number, run in self._waiting.items():
            order = {"number": number, "environment": run_environment(), "folder": _current_folder()}
            try:
                socket.send_fds(self.socket, [json.dumps(order).encode()], run.child_ends)
            except OSError:  # the server has just died, or the environment is too long for a message
                run.start_python()
            else:
                self._ordered[number] = run
        self._waiting.clear()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while message := self.socket.recv(MESSAGE_BYTES):
                self._take_message(json.loads(message))
        with _lock:
            self.lives = False
            self.socket.close()
        self.process.wait()
        for run in (*self._waiting.values(), *self._ordered.values()):
            run.start_python()
        for run in self._begun.values():
            run.set_ended(None)

    def _take_message(self, message: dict[str, Any]) -> None:
        with _lock:
            match message:
                case {"event": "ready"}:
                    self._ready = True
                    self._order_waiting()
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


def running_server() -> ForkServer | None:
    """Return the server of this process, started where there is none; None where there can be none.

    Raises LabError where the environment variable holds no number of seconds.
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
                _server = ForkServer(idle_s)
            except OSError:  # no process or no socket is left; a run needs less of both without a server
                _server = None
        return _server


def _current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"


_lock = threading.Lock()
_server: ForkServer | None = None


def _close_server_in_fork() -> None:
    """Close the socket in a fork of this process, which would keep the server alive when this process is gone."""
    global _server
    if _server is not None:
        _server.socket.close()
        _server = None
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_close_server_in_fork)
