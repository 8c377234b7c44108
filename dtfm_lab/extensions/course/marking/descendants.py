"""All descendants of this process, wherever they moved: measure what they use, kill them, and clean up after them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import psutil

MOST_PROCESSES = 256
"""Maximum number of processes of a job. A run of 16 workers has 18."""
MEMORY = "memory"
"""Reason for killing a job: it uses too much memory."""
PROCESSES = "processes"
"""Reason for killing a job: it has too many processes."""


def too_much(memory_bytes: int) -> str:
    """Return why the descendants of this process must be killed. Empty if they stay within their limits."""
    processes = psutil.Process().children(recursive=True)
    if len(processes) > MOST_PROCESSES:
        return PROCESSES
    # Quick to measure, and rather too high: memory that processes share counts in each.
    if _used(processes, "memory_info", "rss") <= memory_bytes:
        return ""
    # Forks share most of that with each other, which takes longer to find out.
    return MEMORY if _used(processes, "memory_full_info", "pss") > memory_bytes else ""


def _used(processes: list[psutil.Process], method: str, what: str) -> int:
    used = 0
    for process in processes:
        with suppress(psutil.Error):
            memory = getattr(process, method)()
            used += getattr(memory, what, memory.rss)
    return used


def end_descendants(but: Collection[int] = ()) -> None:
    """Kill all descendants of this process except these children and their descendants. Return when they are gone.

    They are stopped before they are killed, so that none forks in the meantime.
    """
    while left := _descendants(but):
        stopped: set[int] = set()
        # Stopped first, so that none can fork while the others are killed.
        while fresh := left - stopped:
            _signal(fresh, signal.SIGSTOP)
            stopped |= fresh
            left = _descendants(but)
        _signal(stopped, signal.SIGKILL)
        _reap(but)
        # Killed processes take a moment to disappear.
        time.sleep(0.005)
    _reap(but)


def _reap(but: Collection[int]) -> None:
    """Reap children that have ended. Orphans have become children of this process, too."""
    for child in psutil.Process().children():
        if child.pid not in but:
            with suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)


def _descendants(but: Collection[int]) -> set[int]:
    """Return the ids of running descendants, except those of some children."""
    found = set()
    for child in psutil.Process().children():
        if child.pid not in but:
            with suppress(psutil.Error):
                found |= {each.pid for each in [child, *child.children(recursive=True)] if _runs(each)}
    return found


def _signal(processes: Collection[int], number: int) -> None:
    for pid in processes:
        with suppress(OSError):
            os.kill(pid, number)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def open_folders(folder: Path) -> None:
    """Make what processes left in a folder removable, whatever modes they gave it."""
    for parent, folders, _ in os.walk(folder):
        for name in folders:
            path = Path(parent, name)
            if not path.is_symlink():
                with suppress(OSError):
                    path.chmod(0o700)
