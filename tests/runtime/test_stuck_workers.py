"""A worker that lives and computes nothing: stuck in a call in C, or stopped while it holds a shared GPU's lock.

Each run is led by a process of its own, a fork of one that has loaded torch, in which this file has replaced what
workers compute with; workers are its forks. The faults are real ones: calls of libc's ``sleep`` and SIGSTOP.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from run_helpers import left_behind, small_plan, spec_of
from workers_as_threads import train

from dtfm_lab.runtime.protocol.run_options import RunSpec

PATIENCE_S = 120.0
STUCK = """
import ctypes, os, sys
from pathlib import Path
from dtfm_lab.runtime.coordinator import worker_handle
from dtfm_lab.runtime.worker import device_math, local_run

library, once = sys.argv[1], Path(sys.argv[2])
worker_handle.LEAST_S = 3.0
made, genuine = device_math.DeviceMath.__init__, device_math.DeviceMath.run

def make(self, spec, position, replica, *rest):
    self.where = position, replica
    made(self, spec, position, replica, *rest)

def run(self, action, *rest, **how):
    if self.where == (1, 0) and self.state.version >= 2 and not once.exists():
        once.touch()
        getattr(ctypes, library)(None).sleep(3600)
    return genuine(self, action, *rest, **how)

device_math.DeviceMath.__init__, device_math.DeviceMath.run = make, run
local_run.lead_run()
"""
SHARED = """
import sys
from dtfm_lab.runtime.gpu.cuda_processor import GpuLock
from dtfm_lab.runtime.worker import local_run, processors, worker

class OnSharedGpu(processors.CpuProcessor):
    def __init__(self):
        self.lock = GpuLock(sys.argv[1])

    def timed(self, work):
        with self.lock.held():
            return super().timed(work)

worker.make_processor = lambda *_, **__: OnSharedGpu()
local_run.lead_run()
"""


FORKS = """
import json, os, signal, socket, sys
from dtfm_lab.runtime.worker import local_run

local_run.prepare_to_fork()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
client = socket.socket(fileno=int(sys.argv[1]))
while True:
    message, streams, _, _ = socket.recv_fds(client, 1 << 16, 2)
    if not message:
        break
    script, *arguments = json.loads(message)
    if (pid := os.fork()) == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        sys.argv[1:] = arguments
        exec(script, {})
    for stream in streams:
        os.close(stream)
    client.send(str(pid).encode())
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[socket.socket]:
    """The process that has loaded torch: it forks one that carries out a script, and says its number."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = subprocess.Popen([sys.executable, "-c", FORKS, str(theirs.fileno())], pass_fds=[theirs.fileno()])
    with ours:
        yield ours
    assert server.wait(PATIENCE_S) == 0


class Led:
    """A run that is led by a script; events are read as they come."""

    def __init__(self, forks: socket.socket, spec: RunSpec, script: str, *arguments: str) -> None:
        (stdin, commands), (events, stdout) = os.pipe(), os.pipe()
        socket.send_fds(forks, [json.dumps([script, *arguments]).encode()], [stdin, stdout])
        for end in (stdin, stdout):
            os.close(end)
        self.pid = int(forks.recv(1 << 10))
        self._commands, self._events = os.fdopen(commands, "w"), os.fdopen(events)
        self._timer = threading.Timer(PATIENCE_S, os.kill, (self.pid, signal.SIGKILL))
        self._timer.start()
        self._commands.write(spec.to_line())
        self._commands.flush()

    def events(self) -> Any:
        with self._events:
            for line in self._events:
                yield json.loads(line)
        self._timer.cancel()
        self._commands.close()
        assert left_behind(self.pid) == []


def run_of(n_replicas: int = 2) -> RunSpec:
    return spec_of(small_plan(n_replicas=n_replicas), "gpipe", iterations=12)


def stuck_in(forks: socket.socket, tmp_path: Path, spec: RunSpec, library: str) -> list[dict[str, Any]]:
    """All events of a run, the first worker of stage 1 of which once enters a call in C that does not return.

    It does so in its third iteration.
    """
    flag = tmp_path / "flag"
    events = list(Led(forks, spec, STUCK, library, str(flag)).events())
    assert flag.exists()
    return events


def losses(events: list[dict[str, Any]]) -> list[float]:
    """By iteration; of a repeated one the last."""
    found = {event["iteration"]: event["loss"] for event in events if event["event"] == "iteration"}
    return [found[iteration] for iteration in sorted(found)]


def undisturbed(n_iterations: int) -> list[float]:
    spec = run_of()
    return train(spec.plan, spec.schedule, n_iterations).losses


@pytest.mark.parametrize("library", ["CDLL", "PyDLL"], ids=["heartbeats go on", "no heartbeat"])
def test_a_worker_stuck_in_a_call_in_c_is_replaced_and_no_loss_differs(
    forks: socket.socket, tmp_path: Path, library: str
) -> None:
    """Before, heartbeats counted as progress, and the run stood for ever; without them for TIMEOUT_S, to no avail."""
    spec = run_of()
    events = stuck_in(forks, tmp_path, spec, library)
    assert events[-1]["event"] == "done", events[-1]
    (lost,) = [event for event in events if event["event"] == "lost"]
    assert lost["device"] == "device-2"
    if library == "CDLL":
        assert lost["how"].startswith(("was at forward of stage 1, micro-batch", "was at backward of stage 1"))
    assert lost["how"].endswith("for more than 3 s")
    assert losses(events) == undisturbed(12)


def test_one_that_nobody_can_replace_ends_the_run_in_one_line(forks: socket.socket, tmp_path: Path) -> None:
    (last,) = stuck_in(forks, tmp_path, run_of(n_replicas=1), "CDLL")[-1:]
    assert last["event"] == "failed"
    assert "worker device-1 (stage 1, replica 0) was at" in last["message"]
    assert "for more than 3 s in iteration" in last["message"]
    assert "no other replica holds stage 1; wanted" in last["message"]
    assert "\n" not in last["message"]


def test_a_worker_stopped_on_a_shared_gpu_gives_its_turn_up(forks: socket.socket, tmp_path: Path) -> None:
    """Before, it was only set aside, with the lock: all others waited for it until it was resumed, or 300 s."""
    led = Led(forks, replace(run_of(), runs_on="cuda", iterations=10_000), SHARED, f"stopped-{tmp_path.name}")
    events, stopped = [], None
    for event in led.events():
        events.append(event)
        if stopped is None and event["event"] == "iteration" and event["iteration"] == 1:
            stopped = psutil.Process(led.pid).children()[0]
            while True:  # stop it at a moment at which it holds the lock
                stopped.suspend()
                if holds_lock(stopped.pid):
                    break
                stopped.resume()
                time.sleep(0.02)  # to go on meanwhile, and say that it lives, however busy the machine is
        told = [each["event"] for each in events]
        if "recovered" in told and told[told.index("recovered") :].count("iteration") == 3:
            os.killpg(led.pid, signal.SIGKILL)
    assert [event["how"] for event in events if event["event"] == "lost"] == ["stood still"]
    assert stopped is not None
    assert not stopped.is_running()
    found = losses(events)
    assert found == undisturbed(len(found))


def holds_lock(pid: int) -> bool:
    """Whether the system says that this process holds a lock of ``flock``; waiting ones are marked ``->``."""
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any("FLOCK" in line and "->" not in line and str(pid) in line for line in lines)
