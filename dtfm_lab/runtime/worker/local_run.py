"""The process of a run on this machine. It coordinates the workers, which are its forks.

``python -m dtfm_lab.runtime.worker.local_run`` reads a RunSpec as its first line of standard input, then commands, and
writes events as JSON lines. It loads torch once, so workers need not import it. It computes nothing, because a fork
copies only one thread. If its input ends, the client is gone, and every worker is killed.

``... local_run FD IDLE_S ahead`` is a fork server: it has loaded torch, and forks such a process from itself for each
run. ``ahead`` says that nothing waits for it yet: it loads at the lowest priority, so that the user's interface stays
fast. ``now`` loads at normal priority.

The server uses the Unix socket FD, with one JSON message per datagram. The client sends a number, an environment and a
folder, with three descriptors. The server sends ``started`` with a process id, ``refused`` if the system had no process
left, and ``ended`` with the exit status. It stays single-threaded, too. It exits when the client has closed its end, or
when nothing has run for IDLE_S seconds. Once started, runs do not depend on it: they watch their own standard input. A
stopped run cannot do so, and is killed by the server when the client is gone.
"""

import contextlib
import gc
import json
import multiprocessing
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Collection
from typing import Any

from dtfm_lab.runtime.coordinator.lead import lead
from dtfm_lab.runtime.coordinator.worker_handle import StartWorker, WorkerHandle
from dtfm_lab.runtime.protocol.locks import await_turn
from dtfm_lab.runtime.protocol.processes import CommandReader, ended_children, exit_after, send
from dtfm_lab.runtime.protocol.run_options import RunSpec

LONGEST_MESSAGE = 1 << 20
STREAMS = 3
"""Number of descriptors of a run: standard input, output and error."""
LOWEST_PRIORITY = 19
PATIENCE_S = 5.0
"""Maximum seconds for runs to end when their client is gone. A stopped run would never end."""


def forked_workers(spec: RunSpec) -> StartWorker:
    """Return a function that forks a worker from this process, or spawns one if the system cannot fork."""
    from dtfm_lab.runtime.worker import worker  # torch

    forks = sys.platform == "linux"
    context: Any = multiprocessing.get_context("fork" if forks else "spawn")  # its class depends on the system
    # The text is opened once, so that every replacement trains on the same bytes, even if the file is replaced.
    corpus = spec.corpus.opened() if forks else None

    def start(spec: RunSpec, rank: int) -> WorkerHandle:
        ours, theirs = context.Pipe()
        process = context.Process(target=worker.main, args=(spec, rank, theirs, corpus), daemon=True)
        process.start()
        theirs.close()
        return WorkerHandle(rank, ours, process)

    return start


def prepare_to_fork(spec: RunSpec | None = None) -> None:
    """Load torch and everything that a worker needs, so that forks of this process start with little work.

    Your own modules, and recomputed blocks, need torch's compiler. If ``spec`` has either, the compiler is loaded here.
    Otherwise every worker would load it at its first call, which takes seconds, all at the same time.
    """
    import torch
    import torch.fx.experimental.symbolic_shapes  # autograd would load it in every worker, at the first backward

    import dtfm_lab.runtime.worker.worker  # noqa: F401

    if spec is not None and (spec.trained.modelled().source or spec.trained.checkpoints == "block"):
        import torch.export._trace
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # so that the forks' garbage collectors skip what was imported


def prepare_unhurried() -> None:
    """Prepare to fork, at the lowest priority. Call it on a separate thread.

    Linux has one priority per thread, and only root could raise the whole process's priority again.
    """
    os.nice(LOWEST_PRIORITY)
    prepare_to_fork()


def lead_run() -> None:
    """Carry out one run. Does not return."""
    commands = CommandReader()

    def starter(spec: RunSpec) -> StartWorker:
        await_turn(commands)  # first, because loading torch takes memory
        prepare_to_fork(spec)
        return forked_workers(spec)

    lead(commands, lambda: RunSpec.from_line(commands.first_line()), starter)
    os._exit(0)  # skip unloading torch, which takes time


def serve(client: socket.socket, idle_s: float) -> None:
    """Fork a run for every message and report when it ended. Returns when the client has closed, or after idle time."""
    numbers: dict[int, int] = {}  # numbers of current runs, by process id
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler, Python writes nothing to the wake-up socket
    waiting = selectors.DefaultSelector()  # the client's descriptor may be above the 1,023 that select takes
    for end in (client, woken):
        waiting.register(end, selectors.EVENT_READ)
    send(client, event="ready")
    idle_since_s = time.monotonic()
    while numbers or time.monotonic() - idle_since_s < idle_s:
        readable = [key.fileobj for key, _ in waiting.select(None if numbers else idle_s)]
        if woken in readable:
            with contextlib.suppress(BlockingIOError):
                woken.recv(4096)
        for pid, status in ended_children():
            send(client, event="ended", number=numbers.pop(pid), status=os.waitstatus_to_exitcode(status))
            idle_since_s = time.monotonic()
        if client in readable:
            message, descriptors, _, _ = socket.recv_fds(client, LONGEST_MESSAGE, STREAMS)
            if not message:
                return end_runs(numbers)
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


def end_runs(pids: Collection[int]) -> None:
    """Wait until these runs, whose client is gone, have ended. Kill the ones that do not, with their workers."""
    left, deadline_s = set(pids), time.monotonic() + PATIENCE_S
    while left and time.monotonic() < deadline_s:
        time.sleep(0.05)
        left -= {pid for pid, _ in ended_children()}
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def become_run(client: socket.socket, order: dict[str, Any], descriptors: list[int]) -> None:
    """Carry out a run in the forked process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for stream, descriptor in enumerate(descriptors):
        os.dup2(descriptor, stream)
        os.close(descriptor)
    # The run reports its own start, so that the client knows every run even if the server dies.
    send(client, event="started", number=order["number"], pid=os.getpid())
    client.close()
    os.environ.clear()
    os.environ.update(order["environment"])
    with contextlib.suppress(OSError):  # the folder may be gone; a run has no relative paths
        os.chdir(order["folder"])
    lead_run()


def main() -> None:
    """Carry out a run, or serve the socket that the command line names."""
    if not sys.argv[1:]:
        lead_run()
    descriptor, idle_s, when = sys.argv[1:]
    if when == "ahead":
        loader = threading.Thread(target=prepare_unhurried)
        loader.start()
        loader.join()  # a fork copies only the thread that forks
    prepare_to_fork()  # again, because torch keeps a number of threads per thread
    serve(socket.socket(fileno=int(descriptor)), float(idle_s))
    os._exit(0)  # unloading torch takes time


if __name__ == "__main__":
    main()
