"""Kernels that are forks of one process that has loaded the lab, so that no test waits for an import.

``python kernel_forks.py JUPYTERLAB'S ARGUMENTS`` is that JupyterLab; with ``--fork FD`` it is the process that is
forked for every order which comes over a Unix socket.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

NAME = "forks"
LESSONS = Path(__file__).parents[2] / "notebooks"
SOCKET = "DTFM_FORK_SOCKET"
"""Environment variable with the path of the socket."""
LONGEST_ORDER = 1 << 20
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment of a process that is to be forked: a fork copies one thread only."""

SHORT_BUDGETS_S, SHORT_RESTS_S = (0.015, 0.1, 0.3), (0.05, 0.1)
"""Of the searches that follow an edit: a test waits for their end, which comes later in a user's lab."""
LONG_REST_S = 60.0
"""Before a plan's bound is raised, which takes a whole processor while the page is looked at."""


class Fork:
    """The process of a forked kernel, as far as Jupyter asks ``subprocess.Popen`` of one."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 1  # the system reaps it, and keeps no status
        return None

    def wait(self, timeout: float | None = None) -> int:
        while self.poll() is None:
            time.sleep(0.02)
        return 1

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkedKernel(LocalProvisioner):
    """Starts a kernel as a fork."""

    async def launch_kernel(self, cmd: list[str], **options: Any) -> Any:
        order = {
            "arguments": cmd[cmd.index("-f") :],
            "environment": dict(options.get("env") or os.environ),
            "folder": str(options.get("cwd") or os.getcwd()),
        }
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
            asking.connect(os.environ[SOCKET])  # until the lab is loaded, orders wait in the socket's queue
            asking.send(json.dumps(order).encode())
            self.process = Fork(int(asking.recv(64)))
        self.pid = self.pgid = self.process.pid
        return self.connection_info


def serve(listener: socket.socket) -> None:
    """Load the lab, then fork a kernel for every order until standard input is closed."""
    for name in ("ipykernel.kernelapp", "IPython.core.interactiveshell", "dtfm_lab.widgets.workbench"):
        importlib.import_module(name)
    replanning = importlib.import_module("dtfm_lab.widgets.planner.replanning")
    replanning.BUDGETS_S, replanning.RESTS_S = SHORT_BUDGETS_S, SHORT_RESTS_S
    replanning.BOUND_REST_S = LONG_REST_S
    lab = importlib.import_module("dtfm_lab.lab")
    lab.simulate(lab.plan("lecture-hall", seed=0, seconds=0.2))
    waiting = importlib.import_module("dtfm_lab.planning.iteration.search")
    while not waiting.kernels_are_ready():  # a fork would wait for ever for the thread that loads them: it has none
        time.sleep(0.05)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps the kernels
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            os._exit(0)
        with listener.accept()[0] as asking:
            order, server = json.loads(asking.recv(LONGEST_ORDER)), os.getpid()
            if (pid := os.fork()) == 0:
                listener.close()
                become_kernel(order, server)
            asking.send(str(pid).encode())


def become_kernel(order: dict[str, Any], server: int) -> None:
    """Be the kernel in the forked process, and never return."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()  # Jupyter signals the process group of a kernel
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    sys.argv = ["ipykernel", *order["arguments"]]
    from ipykernel.kernelapp import IPKernelApp

    # A kernel ends when its parent has. ipykernel read who that is when it was imported, so it is told again; and
    # ipywidgets was imported before there was a kernel, so it has yet to register with this one.
    try:
        IPKernelApp.launch_instance([*order["arguments"], f"--IPKernelApp.parent_handle={server}", "--ext=ipywidgets"])
    finally:
        os._exit(0)


def begin_server(path: str) -> None:
    """Start the process that is forked for every order to this socket; it ends with the one that calls this."""
    os.environ[SOCKET] = path
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(64)
        command = [sys.executable, __file__, "--fork", str(listener.fileno())]
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            start_new_session=True,
            env=os.environ | ONE_THREAD,
        )


def provide(kind: str) -> None:
    """Have all kernels that this process starts be started by this class."""
    factory = KernelProvisionerFactory.instance()
    factory.provisioners[NAME] = EntryPoint(NAME, f"kernel_forks:{kind}", KernelProvisionerFactory.GROUP_NAME)
    factory.default_provisioner_name = NAME


class LessonsKernel(ForkedKernel):
    """Starts a kernel in the folder of the lessons as a fork, and any other one as it is."""

    async def launch_kernel(self, cmd: list[str], **options: Any) -> Any:
        if Path(options.get("cwd") or ".").resolve() != LESSONS:
            return await LocalProvisioner.launch_kernel(self, cmd, **options)
        if SOCKET not in os.environ:
            begin_server(os.path.join(tempfile.mkdtemp(prefix="forks-"), "socket"))
        return await super().launch_kernel(cmd, **options)


def main() -> None:
    """Be JupyterLab, beside a process that is forked for its kernels."""
    from jupyterlab.labapp import main

    begin_server(os.path.join(os.getcwd(), "forks.socket"))
    provide("ForkedKernel")
    main()


if __name__ == "__main__":
    if sys.argv[1] == "--fork":
        serve(socket.socket(fileno=int(sys.argv[2])))
    else:
        main()
