"""Child processes: how they end, and how they and the client communicate.

A child ends with its parent, and forks of a server exit without the server's handlers. A server that forks itself for
each message of its client must not have a second thread, because a fork copies only one. Commands and events between
the client and the coordinator are lines of JSON on standard input and output.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

CHECK_EVERY_S = 0.2
"""Seconds between checks whether the parent process still exists."""
PR_SET_PDEATHSIG = 1
"""Linux's number for requesting a signal when the thread that forked this process ends."""


def exit_with_parent(parent: int | None = None) -> None:
    """End with the parent from now on. A parent that was killed cannot order anyone to exit.

    ``parent`` is its id if known, so that a parent that ended before this call is noticed too. Linux even ends a
    process that is stopped or stuck in a C call. Linux watches the thread that forked rather than the parent process,
    so parents fork on their main threads.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_watch, args=(os.getppid() if parent is None else parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(CHECK_EVERY_S)
    os._exit(1)


def send(client: socket.socket, **values: Any) -> None:
    """Send a message. If the client is gone, the next read of the socket notices."""
    with contextlib.suppress(OSError):
        client.send(json.dumps(values).encode())


def ended_children() -> list[tuple[int, int]]:
    """Return (process id, status as ``os.waitpid`` gives it) of the children that ended since the last call."""
    found = []
    with contextlib.suppress(ChildProcessError):
        while (one := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(one)
    return found


def exit_after(work: Callable[..., object], *arguments: Any) -> NoReturn:
    """Do the work of a forked process and exit with its status, without the exit handlers of its parent."""
    status = 1
    try:
        work(*arguments)
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        # Not sys.exit, whose exit handlers belong to the parent.
        os._exit(status)


class InputClosed(Exception):
    """Standard input ended: the client is gone, or has stopped the run."""


class CommandReader:
    """Reads a run's commands, which are lines of standard input, without a thread: ``fd`` can be waited for."""

    fd = 0

    def __init__(self) -> None:
        self._text = b""

    def first_line(self) -> str:
        """Wait for a whole line and return it. Raises InputClosed."""
        while b"\n" not in self._text:
            self.read_more()
        line, self._text = self._text.split(b"\n", 1)
        return line.decode()

    def read(self) -> list[dict[str, Any]]:
        """Wait for input, then return as ``complete`` does. Raises InputClosed."""
        self.read_more()
        return self.complete()

    def complete(self) -> list[dict[str, Any]]:
        """Return the whole commands among what was read so far."""
        *lines, self._text = self._text.split(b"\n")
        return [json.loads(line) for line in lines if line.strip()]

    def read_more(self) -> None:
        """Wait for input and keep it for the next ``complete``. Raises InputClosed."""
        if not (chunk := os.read(self.fd, 1 << 16)):
            raise InputClosed
        self._text += chunk


def emit(event: str, **values: Any) -> None:
    """Write one event to the client."""
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def warn(*messages: str) -> None:
    """Emit a warning for each non-empty message."""
    for message in filter(None, messages):
        emit("warning", message=message)
