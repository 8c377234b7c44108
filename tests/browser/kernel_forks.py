"""Lets Jupyter start the kernels of the browser tests as forks of ``kernel_server``, which has loaded the lab once.

Where it cannot fork, they are new Python processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from itertools import count
from pathlib import Path
from typing import Any

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

NAME = "dtfm-lab-forks"
MESSAGE_BYTES = 1 << 12
"""Longer than any message of the server."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1") | {
    "MALLOC_ARENA_MAX": "2"
}
"""Environment of a process that is to be forked: it must not have threads; and thirty kernels share few cores."""


@contextmanager
def fork_kernels(network: str | None) -> Iterator[None]:
    """While this lasts, Jupyter's kernels of this process are forks of a process that has loaded the lab.

    Nothing changes on other systems than Linux, where a process that has loaded so much cannot be forked safely.
    """
    global _server
    if sys.platform != "linux":
        yield
        return
    _server = KernelServer(network)
    factory = KernelProvisionerFactory.instance()
    before = factory.default_provisioner_name
    factory.provisioners[NAME] = EntryPoint(NAME, f"{__name__}:ForkedKernel", KernelProvisionerFactory.GROUP_NAME)
    factory.default_provisioner_name = NAME
    try:
        yield
    finally:
        factory.default_provisioner_name = before
        _server.close()
        _server = None


class KernelServer:
    """The client's end of ``kernel_server``."""

    def __init__(self, network: str | None) -> None:
        self._socket, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_end:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("kernel_server.py")), str(child_end.fileno())]
                + ([] if network is None else [network]),
                stdin=subprocess.DEVNULL,
                pass_fds=[child_end.fileno()],
                start_new_session=True,  # Ctrl-C is for the server of the page, which ends the kernels
                env=os.environ | ONE_THREAD,
            )
        self._numbers = count()
        self._lock = threading.Lock()
        self._lives = True
        self._ordered: dict[int, Future[int | None]] = {}
        """Process ids to come, by the kernel's number; None where there will be no process."""
        self._forks: dict[int, Fork] = {}
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    async def fork(self, arguments: list[str], environment: dict[str, str], folder: str) -> Fork | None:
        """Return a new kernel's process; None where the server cannot make one."""
        number, pid = next(self._numbers), Future[int | None]()
        order = {"number": number, "arguments": arguments, "environment": environment, "folder": folder}
        with self._lock:
            if not self._lives:
                return None
            self._ordered[number] = pid
            try:
                self._socket.send(json.dumps(order).encode())
            except OSError:  # the server has just died, or the environment is too long for a message
                del self._ordered[number]
                return None
        await asyncio.wrap_future(pid)
        return self._forks.get(number)

    def close(self) -> None:
        """End the server; kernels that are left end themselves."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while message := self._socket.recv(MESSAGE_BYTES):
                self._take_message(json.loads(message))
        with self._lock:
            self._lives = False
            self._socket.close()
        for pid in self._ordered.values():
            pid.set_result(None)
        for fork in self._forks.values():
            fork.orphaned = True

    def _take_message(self, message: dict[str, Any]) -> None:
        match message:
            case {"event": "started", "number": number, "pid": pid}:
                self._forks[number] = Fork(pid)
                self._ordered.pop(number).set_result(pid)
            case {"event": "refused", "number": number}:
                self._ordered.pop(number).set_result(None)
            case {"event": "ended", "number": number, "status": status}:
                self._forks.pop(number).end(status)


class Fork:
    """The process of a forked kernel, as far as Jupyter asks ``subprocess.Popen`` of one."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.orphaned = False
        """Whether nobody reports its end any more; it then ends within seconds."""
        self.returncode: int | None = None
        self._ended = threading.Event()

    def poll(self) -> int | None:
        if self.orphaned and self.returncode is None and not _exists(self.pid):
            self.end(1)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._ended.wait(timeout)
        return self.returncode or 0

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def end(self, status: int) -> None:
        """Keep the exit status of a kernel that has ended, and wake who waits for it."""
        self.returncode = status
        self._ended.set()


class ForkedKernel(LocalProvisioner):
    """Starts a kernel as a fork of the server."""

    async def launch_kernel(self, cmd: list[str], **options: Any) -> Any:
        arguments = cmd[cmd.index("-f") :] if "-f" in cmd else None
        fork = None
        if _server is not None and arguments is not None:
            fork = await _server.fork(
                arguments, dict(options.get("env") or os.environ), options.get("cwd") or os.getcwd()
            )
        if fork is None:
            return await super().launch_kernel(cmd, **options)
        self.process = fork  # type: ignore[assignment]  # it has what Jupyter uses of a Popen
        self.pid = self.pgid = fork.pid
        return self.connection_info


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


_server: KernelServer | None = None
