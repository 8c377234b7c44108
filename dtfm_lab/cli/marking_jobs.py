"""The marker's side of ``marking_server``: gives it jobs, one at a time, and replaces one that a job has killed."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

LATE, DIED = "late", "died"
"""Why a job ended that was not done."""


class Server:
    """A process that does one job at a time; one that was killed by a job is replaced before the next."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def do(self, job: Mapping[str, Any], seconds: float) -> tuple[list[dict[str, Any]], str]:
        """What a job said, and why it ended: empty where it was done."""
        process = self.started()
        pid = 0
        try:
            assert process.stdin
            assert process.stdout
            process.stdin.write(json.dumps({**job, "seconds": seconds}) + "\n")
            process.stdin.flush()
            pid = json.loads(process.stdout.readline())["pid"]
            answer = json.loads(process.stdout.readline())
            return answer["said"], answer["why"]
        except (OSError, ValueError, KeyError):
            self.stop()
            if pid:
                with suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)
            return [], DIED

    def started(self) -> subprocess.Popen[str]:
        """Its process, which begins to load where there is none."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dtfm_lab.cli.marking_server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        return self._process

    def stop(self) -> None:
        """End the process, and with it the job that it does."""
        if (process := self._process) is not None:
            self._process = None
            process.terminate()
            process.communicate()


@contextmanager
def servers(count: int) -> Iterator[queue.SimpleQueue[Server]]:
    """Servers that load at once, and are ended with the block."""
    made = [Server() for _ in range(count)]
    free: queue.SimpleQueue[Server] = queue.SimpleQueue()
    try:
        for server in made:
            server.started()
            free.put(server)
        yield free
    finally:
        for server in made:
            server.stop()
