"""The marker's side of the processes that do its work: a server, restarted if it dies, and its jobs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import psutil

from dtfm_lab.domain.errors import LabError
from dtfm_lab.extensions.course.marking import walls
from dtfm_lab.extensions.course.marking.channel import Ended, Late, MarkingChannel, Nonsense
from dtfm_lab.extensions.course.marking.descendants import end_descendants, open_folders

MODULE = "dtfm_lab.extensions.course.marking.server"
SECONDS_TO_LOAD = 600.0
"""Maximum seconds for the server to load and compile its kernels. It takes a minute on an idle machine."""
SECONDS_TO_END = 60.0
"""Maximum seconds until a keeper (the process that watches a job) has killed its job, or a server has ended."""


class JobLost(Exception):
    """The process that watches a job was killed, by this job or by another one that ran at the same time."""


class MarkingJob:
    """A running job: a channel to it, and one to its keeper."""

    def __init__(self, channel: MarkingChannel, keeper: MarkingChannel) -> None:
        self.channel = channel
        self._keeper = keeper
        self._why: str | None = None
        self._over = False

    def end(self) -> str | None:
        """Kill what is left of the job. Return why its keeper had killed it before: ``memory`` or ``processes``. "" if
        it had not, None if the keeper is gone."""
        if not self._over:
            self._over = True
            # The keeper may have been killed, too; then there is nothing to learn.
            with suppress(Ended, Late, Nonsense):
                self._keeper.send({"end": True})
                self._why = str(self._keeper.receive(time.monotonic() + SECONDS_TO_END).get("why"))
            self._keeper.end.close()
            self.channel.end.close()
        return self._why


class Server:
    """A process that forks one process per job. If it was killed, a new one is started before the next job."""

    walls: bool = False
    """True if students' code runs in separate namespaces."""

    def __init__(self, folder: Path, temporary: str, *, isolate: bool) -> None:
        self._folder, self._temporary, self._isolate = folder.resolve(), temporary, isolate
        self._before = {child.pid for child in psutil.Process().children()}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    @contextmanager
    def job(self, kind: str, memory_bytes: int, hidden: Sequence[str] = ()) -> Iterator[MarkingJob]:
        """Yield a job, which ends with the block. Raises LabError if no server can be started."""
        ours, theirs = socket.socketpair()
        keeper, keepers = socket.socketpair()
        with theirs, keepers, self._lock:
            self._request([keepers.fileno(), theirs.fileno()])
        job = MarkingJob(MarkingChannel(ours, partner=keeper), MarkingChannel(keeper))
        try:
            with suppress(Ended):
                job._keeper.send({"kind": kind, "memory_bytes": memory_bytes, "hidden": list(hidden)})
            yield job
        finally:
            job.end()

    def _request(self, sockets: list[int]) -> None:
        # Try a second time: a notebook may have killed the server, which then starts again.
        for _ in range(2):
            self.start()
            assert self._requests is not None
            with suppress(OSError):
                socket.send_fds(self._requests, [b"j"], sockets)
                return
            self.stop()
        raise LabError("the process that marks dies as soon as it is started; wanted a machine with memory for it")

    def start(self) -> None:
        """Start the process if it is not running, and wait until it has loaded the lab. Raises LabError if it ends
        before, or after ``SECONDS_TO_LOAD``."""
        if self._process is not None and self._process.poll() is None:
            return
        self.stop()
        ours, theirs = socket.socketpair()
        with theirs, tempfile.TemporaryFile() as said:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                # -P keeps the current folder out of the import path, which could hold a student's modules.
                [sys.executable, "-P", "-m", MODULE, str(number), "walls" if self._isolate else "open"],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                cwd="/",
                env=os.environ | {"PYTHONPATH": os.pathsep.join(self._python_path()), "TMPDIR": self._temporary},
            )
            theirs.close()
            self._requests = ours
            try:
                # The lab takes a while to load, and jobs are forked from it afterwards.
                ready = MarkingChannel(ours).receive(time.monotonic() + SECONDS_TO_LOAD)
            except (Ended, Late, Nonsense):
                self.stop()
                raise LabError(f"the process that marks did not start: {_last_line(said)}") from None
            self.walls = ready.get("walls") is True

    def _python_path(self) -> list[str]:
        """Return the folders of PYTHONPATH that no student writes to, so that a ``json.py`` among the hand-ins is never
        imported."""
        entries = [Path(each).resolve() for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
        return [str(each) for each in entries if not each.is_relative_to(self._folder)]

    def stop(self) -> None:
        """End the process and all its jobs."""
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        if (process := self._process) is not None:
            self._process = None
            try:
                process.wait(SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if sys.platform == "linux":
            # What a student's code left by killing the server has become a child of this process.
            end_descendants(but=self._before)


def _last_line(file: IO[bytes]) -> str:
    file.seek(0)
    lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


@contextmanager
def server(folder: Path, *, isolate: bool) -> Iterator[Server]:
    """Yield a server that has loaded. Nothing that it started is left after the block.

    This process knows the key, so within the block no other process of this user can read its memory. Nothing is
    imported from the folder of the hand-ins.
    """
    real = folder.resolve()
    kept = list(sys.path)
    # A student's file named like a module must not be imported in its place.
    sys.path[:] = [each for each in kept if not Path(each).resolve().is_relative_to(real)]
    walls.keep_private()
    # What a dead server leaves becomes a child of this process, which can then end it.
    walls.adopt_orphans()
    temporary = tempfile.TemporaryDirectory(prefix="dtfm-lab-marks-", ignore_cleanup_errors=True)
    made = Server(folder, temporary.name, isolate=isolate)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        open_folders(Path(temporary.name))
        temporary.cleanup()
        walls.adopt_orphans(False)
        walls.keep_private(False)
        sys.path[:] = kept
