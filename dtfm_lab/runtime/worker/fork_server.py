"""A process that has torch loaded already, and forks the process that leads a run's workers from itself.

``python -m dtfm_lab.runtime.worker.fork_server FD IDLE_S`` talks over the Unix socket FD, one message a datagram:
from the kernel a number, an environment and a folder as JSON, with three descriptors; to the kernel ``ready``,
``started`` with a pid, ``refused`` where there could be no process, ``ended`` with its exit status. It stays
single-threaded, for a fork copies one thread only, and leaves when the kernel has closed its end or when nothing ran
for IDLE_S seconds. Runs do not need it once they are started: they watch their own standard input.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from typing import Any

import torch

from dtfm_lab.runtime.coordinator import coordinator

LONGEST_MESSAGE = 1 << 20
STREAMS = 3
"""standard input, output and error"""


def serve(kernel: socket.socket, idle_s: float) -> None:
    """Fork a crew for every message, tell when one ended; return at the end of messages, or of patience."""
    numbers: dict[int, int] = {}
    """of the runs that are going on, by pid"""
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler nothing would be written to wake
    tell(kernel, event="ready")
    idle_since_s = time.monotonic()
    while numbers or time.monotonic() - idle_since_s < idle_s:
        heard, _, _ = select.select([kernel, woken], [], [], None if numbers else idle_s)
        if woken in heard:
            with contextlib.suppress(BlockingIOError):
                woken.recv(4096)
        for pid, status in ended():
            tell(kernel, event="ended", number=numbers.pop(pid), status=os.waitstatus_to_exitcode(status))
            idle_since_s = time.monotonic()
        if kernel in heard:
            message, descriptors, _, _ = socket.recv_fds(kernel, LONGEST_MESSAGE, STREAMS)
            if not message:
                return
            order = json.loads(message)
            try:
                pid = os.fork()
            except OSError:  # no memory, or too many processes
                tell(kernel, event="refused", number=order["number"])
            else:
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    woken.close()
                    wake.close()
                    become_crew(kernel, order, descriptors)
                numbers[pid] = order["number"]
            for descriptor in descriptors:
                os.close(descriptor)


def become_crew(kernel: socket.socket, order: dict[str, Any], descriptors: list[int]) -> None:
    """What the forked process does instead of serving; does not return."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for stream, descriptor in enumerate(descriptors):
            os.dup2(descriptor, stream)
            os.close(descriptor)
        # told by the run itself: so there is none that the kernel has not heard of, whenever the server dies
        tell(kernel, event="started", number=order["number"], pid=os.getpid())
        kernel.close()
        os.environ.clear()
        os.environ.update(order["environment"])
        with contextlib.suppress(OSError):  # it may be gone; nothing is opened relative to it
            os.chdir(order["folder"])
        coordinator.main()
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def ended() -> list[tuple[int, int]]:
    """(pid, status) of the children that ended since the last look."""
    found = []
    with contextlib.suppress(ChildProcessError):
        while (one := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(one)
    return found


def tell(kernel: socket.socket, **values: Any) -> None:
    with contextlib.suppress(OSError):  # nobody may be there to read it; the next look at the socket says so
        kernel.send(json.dumps(values).encode())


def main() -> None:
    descriptor, idle_s = sys.argv[1:]
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # what was imported stays: crews and workers, which are forks, need not look through it
    serve(socket.socket(fileno=int(descriptor)), float(idle_s))
    os._exit(0)  # torch takes its time to unload


if __name__ == "__main__":
    main()
