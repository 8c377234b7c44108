"""The process behind a marker. It has the lab loaded, and forks a process for each hand-in and for each answer.

``python -P -m dtfm_lab.extensions.course.marking.server FD WALLS`` receives two sockets for each job through the socket
with number FD, and forks a keeper for it. The keeper starts the job, watches what its processes use, and kills them all
when the marker says so. It tells the marker why on the first socket. On the second, marker and job talk to each other.
So neither this process nor a keeper holds anything in memory that a student's process must not see.

Loading the lab takes seconds and a fork milliseconds, so a class waits only for its own code.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import psutil
from IPython.core.interactiveshell import InteractiveShell  # noqa: F401  loaded before the forks

from dtfm_lab import lab
from dtfm_lab.extensions.course.marking import walls
from dtfm_lab.extensions.course.marking.channel import Ended, MarkingChannel, Message
from dtfm_lab.extensions.course.marking.descendants import end_descendants, open_folders, too_much
from dtfm_lab.extensions.course.marking.jobs import JOBS

LOOK_EVERY_S = 0.2
"""Seconds between two checks of what a job's processes use."""


def main() -> None:
    """Fork a keeper for each job, after compiling what most answers need or loading it from the cache."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    walls.keep_private()
    walls.adopt_orphans()
    with_walls = sys.argv[2] == "walls" and walls.hold()
    # One small plan compiles what most answers need, and every fork has it.
    lab.simulate(lab.plan("lecture-hall", "tiny", seed=0, steps=1))
    MarkingChannel(requests).send({"walls": with_walls})
    # What compiling has started is not a job.
    keepers = {child.pid for child in psutil.Process().children()}
    while True:
        ready, _, _ = select.select([requests], [], [], 1.0 if keepers else None)
        _reap(keepers)
        if not ready:
            continue
        asked, sockets, _, _ = socket.recv_fds(requests, 1, 2)
        if not asked:
            break
        pid = os.fork()
        if pid == 0:
            # Only the server may take new jobs.
            requests.close()
            _keep(*(socket.socket(fileno=number) for number in sockets), with_walls=with_walls)
        keepers.add(pid)
        for number in sockets:
            os.close(number)
    end_descendants()


def _reap(keepers: set[int]) -> None:
    """Reap keepers that have ended. If a keeper was killed, kill what is left of its job."""
    with suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) > 0:
            keepers.discard(pid)
    end_descendants(keepers)


def _keep(control: socket.socket, ours: socket.socket, *, with_walls: bool) -> NoReturn:
    """Run one job and watch it until the marker says that it is done, or until the marker is gone."""
    try:
        walls.end_with_parent()
        walls.keep_private()
        walls.adopt_orphans()
        marker = MarkingChannel(control)
        order = marker.receive()
        with tempfile.TemporaryDirectory(prefix="dtfm-lab-mark-", ignore_cleanup_errors=True) as folder:
            pid = os.fork()
            # The job must not hold the marker's end, or it could answer for its keeper.
            if pid == 0:
                control.close()
                _be_job(order, ours, Path(folder), with_walls=with_walls)
            ours.close()
            why = _watched(pid, control, order["memory_bytes"])
            # Before the folder goes: a process left over could write into it again.
            end_descendants()
            open_folders(Path(folder))
        with suppress(Ended):
            marker.send({"why": why})
    finally:
        os._exit(0)


def _watched(pid: int, control: socket.socket, memory_bytes: int) -> str:
    """Wait for the marker. Kill the job if it uses too much, and what is left of it when it has ended. Return why it
    was killed; empty if it ended by itself or was still running."""
    why, running = "", True
    while not select.select([control], [], [], LOOK_EVERY_S if running else None)[0]:
        why = too_much(memory_bytes)
        if why or os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            running = False
            end_descendants()  # what it left may hold its socket open
    return why


def _be_job(order: Message, ours: socket.socket, folder: Path, *, with_walls: bool) -> NoReturn:
    """Do a job with no open file but its socket. This process then ends."""
    status = 1
    try:
        walls.end_with_parent()
        # A separate session, without the terminal.
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        number = ours.fileno()
        # Everything but the own socket, such as files of other students.
        os.closerange(3, number)
        os.closerange(number + 1, os.sysconf("SC_OPEN_MAX"))
        job = JOBS[order["kind"]]
        walls.limit(order["memory_bytes"])

        def work() -> None:
            job(MarkingChannel(ours, takes_files=True), folder)

        # Only students' code needs walls; checks run the lab's own.
        if order["kind"] == "execute":
            walls.limit_threads(_threads())
            if with_walls:
                walls.behind_walls(folder, order["hidden"], work)
        work()
        status = 0
    finally:
        os._exit(status)


def _threads() -> int:
    """Return the number of threads of this user."""
    uid, count = os.getuid(), 0
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            count += process.num_threads() if process.uids().real == uid else 0
    return count


if __name__ == "__main__":
    main()
