"""A process that has loaded the lab, and forks a kernel for each notebook from itself.

``python kernel_server.py FD [NETWORK]`` serves the Unix socket FD, one JSON message a datagram.
The client sends a number, the arguments of the kernel, an environment and a folder. The server sends ``ready``,
``started`` with a process id, ``refused`` where the system had no process left, and ``ended`` with the exit status. It
stays single-threaded, because a fork copies one thread only, and exits when the client has closed its end; its kernels
then end themselves.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from typing import Any

from dtfm_lab.runtime.protocol.processes import ended_children, exit_after, send

LONGEST_MESSAGE = 1 << 20


def load(network: str | None) -> None:
    """Load what a notebook's kernel needs, the compiled functions of a first plan included."""
    for name in ("ipykernel.kernelapp", "IPython.core.interactiveshell", "dtfm_lab.widgets.workbench"):
        importlib.import_module(name)
    lab = importlib.import_module("dtfm_lab.lab")
    plan = lab.plan(network or "lecture-hall", seed=0, seconds=0.2)
    lab.simulate(plan)


def serve(client: socket.socket) -> None:
    """Fork a kernel for every message and report when it ended; return when the client has closed."""
    numbers: dict[int, int] = {}  # of the kernels, by process id
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler nothing would be written to wake
    send(client, event="ready")
    while True:
        readable, _, _ = select.select([client, woken], [], [])
        if woken in readable:
            with contextlib.suppress(BlockingIOError):
                woken.recv(4096)
        for pid, status in ended_children():
            send(client, event="ended", number=numbers.pop(pid), status=os.waitstatus_to_exitcode(status))
        if client in readable:
            message = client.recv(LONGEST_MESSAGE)
            if not message:
                return
            order = json.loads(message)
            server = os.getpid()
            try:
                pid = os.fork()
            except OSError:  # no memory, or too many processes
                send(client, event="refused", number=order["number"])
                continue
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for end in (woken, wake, client):
                    end.close()
                exit_after(become_kernel, order, server)
            numbers[pid] = order["number"]
            send(client, event="started", number=order["number"], pid=pid)


def become_kernel(order: dict[str, Any], server: int) -> None:
    """Be a kernel in the forked process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()  # Jupyter signals the process group of a kernel
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    sys.argv = ["ipykernel", *order["arguments"]]
    from ipykernel.kernelapp import IPKernelApp

    # A kernel ends when its parent has. ipykernel read who that is when it was imported, so it is told again; and
    # ipywidgets was imported before there was a kernel, so it has yet to register with this one.
    told = [f"--IPKernelApp.parent_handle={server}", "--ext=ipywidgets"]
    IPKernelApp.launch_instance([*order["arguments"], *told])


def main() -> None:
    """Serve the socket that the command line names."""
    descriptor, *network = sys.argv[1:]
    load(network[0] if network else None)
    gc.collect()
    gc.freeze()  # the garbage collectors of the forks need not look through what was imported, which stays shared
    serve(socket.socket(fileno=int(descriptor)))
    os._exit(0)


if __name__ == "__main__":
    main()
