"""Hosts of a run as process trees of this machine, each in a network of its own where that is wanted: killed, stopped,
cut off and started again."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from run_helpers import until

PATIENCE_S = 240.0
"""Longest wait for anything that a run does."""


def free_port() -> int:
    """A port that is free now, below those that the system gives to connections of its own."""
    for port in random.SystemRandom().sample(range(12_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no free port in 100 tries")


class HostProcesses:
    """One host: ``run.sh`` and all that it starts. What it prints goes to a file."""

    def __init__(self, folder: Path, name: str, log: Path, prefix: tuple[str, ...] = ()) -> None:
        self.name, self.log, self._folder, self._prefix = name, log, folder, prefix
        self._started: list[psutil.Process] = []
        self.agent: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = os.environ | {"PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
        with self.log.open("ab") as log:
            self.agent = subprocess.Popen(
                [*self._prefix, "sh", str(self._folder / "hosts" / self.name / "run.sh")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def processes(self) -> list[psutil.Process]:
        """The agent and all below it that live."""
        assert self.agent is not None
        with contextlib.suppress(psutil.Error):
            top = psutil.Process(self.agent.pid)
            found = [top, *top.children(recursive=True)]
            self._started += [process for process in found if process not in self._started]
        return [process for process in self._started if _lives(process)]

    def kill(self) -> None:
        """What a power cut does, but that the system still says goodbye to those at the other ends."""
        self._signal(signal.SIGKILL)
        self.agent.wait()

    def interrupt(self) -> None:
        """Ctrl-C, as a terminal sends it: to the agent and, on the first host, the coordinator."""
        assert self.agent is not None
        os.killpg(self.agent.pid, signal.SIGINT)

    def workers(self) -> list[psutil.Process]:
        """The processes of its workers that live."""
        return [process for process in self.processes()[1:] if process != self.coordinator]

    @property
    def coordinator(self) -> psutil.Process | None:
        """The first process that the agent of the first host starts; None before, and on other hosts."""
        before = [e for e in self.events() if e["event"] == "starting"]
        found = self.processes()[1:]
        return min(found, key=lambda process: process.create_time()) if before and found else None

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def wait(self, patience_s: float = PATIENCE_S) -> int:
        assert self.agent is not None
        return self.agent.wait(patience_s)

    def left_behind(self, patience_s: float = 120.0) -> list[str]:
        """Command lines of processes that outlive the agent by so long."""
        deadline_s = time.monotonic() + patience_s
        while (left := self.processes()) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        return [" ".join(process.cmdline()) for process in left if _lives(process)]

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def events(self) -> list[dict[str, Any]]:
        """The events that the coordinator of this host printed, whole lines only."""
        lines = self.said().split("\n")[:-1]
        told = [line for line in lines if line.startswith('{"event"') and not line.startswith('{"event": "spans"')]
        return [json.loads(line) for line in told]

    def _signal(self, number: signal.Signals) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)


class Hosts:
    """All hosts of a run folder; the coordinator's is the first."""

    def __init__(self, folder: Path, logs: Path, prefixes: dict[str, tuple[str, ...]] | None = None) -> None:
        names = [host["name"] for host in json.loads((folder / "run.json").read_text())["hosts"]]
        logs.mkdir(parents=True, exist_ok=True)
        self.by_name = {
            name: HostProcesses(folder, name, logs / f"{name}.log", (prefixes or {}).get(name, ())) for name in names
        }
        self.first = self.by_name[names[0]]

    def __getitem__(self, name: str) -> HostProcesses:
        return self.by_name[name]

    def __iter__(self) -> Iterator[HostProcesses]:
        return iter(self.by_name.values())

    def start(self) -> None:
        for host in self:
            host.start()

    def until(self, holds: Callable[[list[dict[str, Any]]], bool], patience_s: float = PATIENCE_S) -> None:
        """Wait until that holds of the coordinator's events."""
        try:
            until(lambda: holds(self.first.events()) or self.first.agent.poll() is not None, patience_s)
            assert holds(self.first.events())
        except AssertionError:
            raise AssertionError(self.said()) from None

    def until_iteration(self, number: int) -> None:
        self.until(lambda events: any(e["event"] == "iteration" and e["iteration"] >= number for e in events))

    def until_next_iteration(self) -> int:
        """The first iteration that is done after the coordinator began for the last time."""

        def done(events: list[dict[str, Any]]) -> list[int]:
            last = max(i for i, event in enumerate(events) if event["event"] == "starting")
            return [event["iteration"] for event in events[last:] if event["event"] == "iteration"]

        self.until(lambda events: bool(done(events)))
        return done(self.first.events())[0]

    def count(self, event: str) -> int:
        """How often the coordinator printed this event."""
        return sum(e["event"] == event for e in self.first.events())

    def last_iteration(self) -> int:
        """The iteration that was done last; -1 before the first."""
        return max((e["iteration"] for e in self.first.events() if e["event"] == "iteration"), default=-1)

    def wait(self) -> list[int]:
        """Exit statuses; what every host said where one does not end in time."""
        try:
            return [host.wait() for host in self]
        except subprocess.TimeoutExpired:
            raise AssertionError(self.said()) from None

    def losses(self) -> list[float]:
        """The loss of each iteration, those that were repeated once."""
        last = {e["iteration"]: e["loss"] for e in self.first.events() if e["event"] == "iteration"}
        return [loss for _, loss in sorted(last.items())]

    def said(self) -> str:
        """The ends of all logs, without the spans."""
        told = [(host.name, [line for line in host.said().splitlines() if '"spans"' not in line]) for host in self]
        return "\n".join(f"{name}: {line}" for name, lines in told for line in lines[-25:])

    def end(self) -> None:
        """Kill what is still there."""
        for host in self:
            if host.agent is not None and (host.agent.poll() is None or host.processes()):
                host.kill()


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
