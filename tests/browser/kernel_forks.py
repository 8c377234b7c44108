"""JupyterLab whose kernels are forks of one process that has loaded the lab, so that no test waits for an import.

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
import time
from importlib.metadata import EntryPoint
from typing import Any

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

NAME = "forks"
SOCKET = "DTFM_FORK_SOCKET"
"""Environment variable with the path of the socket."""
LONGEST_ORDER = 1 << 20
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment of a process that is to be forked: a fork copies one thread only."""


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
            "folder": options.get("cwd") or os.getcwd(),
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
    lab = importlib.import_module("dtfm_lab.lab")
    lab.simulate(lab.plan("lecture-hall", seed=0, seconds=0.2))
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


def main() -> None:
    """Be JupyterLab, beside a process that is forked for its kernels."""
    from jupyterlab.labapp import main

    os.environ[SOCKET] = os.path.join(os.getcwd(), "forks.socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(os.environ[SOCKET])
        listener.listen(64)
        command = [sys.executable, __file__, "--fork", str(listener.fileno())]
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            start_new_session=True,
            env=os.environ | ONE_THREAD,
        )
    factory = KernelProvisionerFactory.instance()
    factory.provisioners[NAME] = EntryPoint(NAME, "kernel_forks:ForkedKernel", KernelProvisionerFactory.GROUP_NAME)
    factory.default_provisioner_name = NAME
    main()


if __name__ == "__main__":
    if sys.argv[1] == "--fork":
        serve(socket.socket(fileno=int(sys.argv[2])))
    else:
        main()
