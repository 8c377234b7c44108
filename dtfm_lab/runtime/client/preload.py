"""Leaders of runs at once: a server that has torch loaded forks them, where this system can do that.

The first run of a kernel starts the server, or ``warm_up`` before it. Without one (another system than Linux, a server
that died, a user who wants none) a leader is a new Python, which takes a torch import longer and is the same otherwise.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import socket
import subprocess
import sys
import threading
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.runtime.client.run_process import Leader, environment

IDLE_S = 600
"""after which a server without a run ends itself"""
IDLE_VARIABLE = "DTFM_LAB_WARM_S"
"""environment variable: other seconds; 0: no server at all"""
LONGEST_IDLE_S = 10**7
MESSAGE_BYTES = 1 << 12
"""longer than any message of the server"""


def lead() -> Leader:
    """A leader whose process has begun, or will as soon as the server has loaded torch."""
    leader = Leader()
    server = _living_server()
    if server is None or not server.take(leader):
        leader.start_anew()
    return leader


def warm_up() -> None:
    """Begin to load torch, in a process of its own, so that the first run starts at once; returns at once."""
    if importlib.util.find_spec("torch") is not None:
        _living_server()


class Server:
    """The kernel's end of ``runtime.server``."""

    def __init__(self, idle_s: float) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dtfm_lab.runtime.worker.fork_server", str(theirs.fileno()), str(idle_s)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # where it cannot start, neither can a new Python, which says why
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Jupyter interrupts its whole process group
                env=environment(),
            )
        self.lives = True
        self._ready = False
        self._waiting: dict[int, Leader] = {}
        """for the server to be ready"""
        self._handed: dict[int, Leader] = {}
        """to the server, and not yet begun"""
        self._begun: dict[int, Leader] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def take(self, leader: Leader) -> bool:
        """Whether this leader gets its process from here."""
        with _lock:
            if self.lives:
                leader.source = self
                self._waiting[leader.number] = leader
                if self._ready:
                    self._hand_over()
            return self.lives

    def withdraw(self, leader: Leader) -> None:
        with _lock:
            waited = self._waiting.pop(leader.number, None) is not None
        if waited:
            leader.never_starts()

    def kill(self) -> None:
        """Runs that it has forked do not need it."""
        self.process.kill()

    def _hand_over(self) -> None:
        for number, leader in self._waiting.items():
            order = {"number": number, "environment": environment(), "folder": _folder()}
            try:
                socket.send_fds(self.socket, [json.dumps(order).encode()], leader.theirs)
            except OSError:  # it has just died, or the environment is too long for a message
                leader.start_anew()
            else:
                self._handed[number] = leader
        self._waiting.clear()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while message := self.socket.recv(MESSAGE_BYTES):
                self._hear(json.loads(message))
        with _lock:
            self.lives = False
            self.socket.close()
        self.process.wait()
        for leader in (*self._waiting.values(), *self._handed.values()):
            leader.start_anew()
        for leader in self._begun.values():
            leader.ended(None)

    def _hear(self, message: dict[str, Any]) -> None:
        with _lock:
            match message:
                case {"event": "ready"}:
                    self._ready = True
                    self._hand_over()
                case {"event": "started", "number": number, "pid": pid}:
                    self._begun[number] = self._handed.pop(number)
                    self._begun[number].started(pid)
                case {"event": "refused", "number": number}:
                    self._handed.pop(number).start_anew()
                case {"event": "ended", "number": number, "status": status}:
                    if (leader := self._begun.pop(number, None)) is not None:
                        leader.ended(status)
                    else:  # before it could say that it had begun
                        self._handed.pop(number).start_anew()


def _living_server() -> Server | None:
    """The one of this kernel, started where there is none; None where there can be none."""
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
                _server = Server(idle_s)
            except OSError:  # no process, no socket: then one less will do
                _server = None
        return _server


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"


_lock = threading.Lock()
_server: Server | None = None


def _let_go_in_a_copy() -> None:
    """A fork of the kernel would keep the server alive when the kernel itself is gone."""
    global _server
    if _server is not None:
        _server.socket.close()
        _server = None
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_let_go_in_a_copy)
