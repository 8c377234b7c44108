"""A process that has loaded torch, and forks a process for each run (``local_run``) from itself.

``python -m dtfm_lab.runtime.worker.fork_server FD IDLE_S`` serves the Unix socket FD, one JSON message a datagram. The
client sends a number, an environment and a folder, with three descriptors. The server sends ``started`` with a process
id, ``refused`` where the system had no process left, and ``ended`` with the exit status. It stays single-threaded,
because a fork copies one thread only. It exits when the client has closed its end, or when nothing has run for IDLE_S
seconds. Runs do not depend on it once they are started: they watch their own standard input.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

from dtfm_lab.runtime.protocol.processes import ended_children, exit_after, send
from dtfm_lab.runtime.worker import local_run

LONGEST_MESSAGE = 1 << 20
STREAMS = 3
"""Descriptors of a run: standard input, output and error."""


def serve(client: socket.socket, idle_s: float) -> None:
    """Fork a run for every message and report when it ended; return when the client closed, or after idle time."""
    numbers: dict[int, int] = {}  # of the runs that are going on, by process id
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler nothing would be written to wake
    idle_since_s = time.monotonic()
    while numbers or time.monotonic() - idle_since_s < idle_s:
        readable, _, _ = select.select([client, woken], [], [], None if numbers else idle_s)
        if woken in readable:
            with contextlib.suppress(BlockingIOError):
                woken.recv(4096)
        for pid, status in ended_children():
            send(client, event="ended", number=numbers.pop(pid), status=os.waitstatus_to_exitcode(status))
            idle_since_s = time.monotonic()
        if client in readable:
            message, descriptors, _, _ = socket.recv_fds(client, LONGEST_MESSAGE, STREAMS)
            if not message:
                return
            order = json.loads(message)
            try:
                pid = os.fork()
            except OSError:  # no memory, or too many processes
                send(client, event="refused", number=order["number"])
            else:
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    woken.close()
                    wake.close()
                    exit_after(become_run, client, order, descriptors)
                numbers[pid] = order["number"]
            for descriptor in descriptors:
                os.close(descriptor)


def become_run(client: socket.socket, order: dict[str, Any], descriptors: list[int]) -> None:
    """Carry out a run in the forked process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for stream, descriptor in enumerate(descriptors):
        os.dup2(descriptor, stream)
        os.close(descriptor)
    # The run reports its start itself: then every run is known to the client, whenever the server dies.
    send(client, event="started", number=order["number"], pid=os.getpid())
    client.close()
    os.environ.clear()
    os.environ.update(order["environment"])
    with contextlib.suppress(OSError):  # the folder may be gone; no path of a run is relative to it
        os.chdir(order["folder"])
    local_run.main()


def main() -> None:
    """Serve the socket that the command line names."""
    descriptor, idle_s = sys.argv[1:]
    local_run.prepare_to_fork()
    serve(socket.socket(fileno=int(descriptor)), float(idle_s))
    os._exit(0)  # unloading torch takes time


if __name__ == "__main__":
    main()
