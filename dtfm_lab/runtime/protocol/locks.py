"""Locks of the system (``flock``), which nobody holds who has ended in any way: of a checkpoint folder, and of a turn.

One run at a time writes checkpoints into a folder: the lock is on ``.dtfm_lab.lock`` in it. The coordinator takes it
before it forks workers, which have it from then on, too: a worker that outlives the coordinator by a moment may still
be writing. Between hosts that share the folder it is worth what the file system makes of ``flock``; where that refuses
to lock at all, the run goes on without, and says so.

So many runs compute at once on one machine, whichever processes started them; further ones wait. A run that computes
holds the lock of one of so many files, and so do its workers. Any number of runs go at once unless the environment
variable DTFM_LAB_RUNS_AT_ONCE holds a number, as ``dtfm-lab lab --app`` and a server for a class set it. Processes that
share a machine share the folder: DTFM_LAB_RUN_QUEUE, or one in the folder for temporary files.
"""

from __future__ import annotations

import contextlib
import os
import select
import tempfile
import time
from pathlib import Path

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.runtime.protocol.processes import CommandReader, emit

try:
    import fcntl
except ImportError:  # Windows, where no folder is locked and runs do not wait for each other
    fcntl = None  # type: ignore[assignment]

NAME = ".dtfm_lab.lock"
PATIENCE_S = 1.0
"""A lock that is not free for so long is another run's; a shorter one is somebody's look at it, or a run that ends."""


class FolderLock:
    """A lock on one folder, held by this process and by those that it forks."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._path = Path(folder) / NAME
        self._file: int | None = None
        self.unsupported = ""
        """Why nothing is locked; empty where it is."""

    def hold(self) -> None:
        """Take the lock. Raises FileError where another run has it, or where the folder cannot be written."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
            self._lock(self._file)
        except BlockingIOError:
            self.release()
            where = f"checkpoint_folder {self._path.parent}"
            raise FileError(f"{where}: another run writes to it; wanted another folder, or its end") from None
        except OSError as error:
            self.release()
            raise FileError(f"checkpoint_folder {self._path.parent}: cannot be written: {error.strerror}") from None

    def release(self) -> None:
        """Give the lock up, where it is held."""
        if self._file is not None:
            os.close(self._file)  # without LOCK_UN, which would free it in forked processes, too
            self._file = None

    def _lock(self, file: int) -> None:
        """Lock the file, or note that its file system does not. Raises BlockingIOError where another one has it."""
        if fcntl is None:
            self.unsupported = "this system has no flock"
            return
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(PATIENCE_S / 20)
            except OSError as error:
                self.unsupported = f"its file system does not lock ({error.strerror})"
                return


def check_unlocked(folder: str | os.PathLike[str]) -> None:
    """Raise FileError where a run holds the lock of this folder at this moment."""
    lock = FolderLock(folder)
    lock.hold()
    lock.release()


AT_ONCE_VARIABLE, FOLDER_VARIABLE = "DTFM_LAB_RUNS_AT_ONCE", "DTFM_LAB_RUN_QUEUE"
LOOK_EVERY_S = 0.2


def await_turn(commands: CommandReader) -> None:
    """Return when this run may begin; it has its place as long as one of its processes lives.

    Raises LabError where the environment is wrong, and InputClosed where the client stops the run.
    """
    said = os.environ.get(AT_ONCE_VARIABLE, "")
    if not said or fcntl is None:
        return
    if not said.isdecimal() or int(said) < 1:
        raise LabError(f"environment variable {AT_ONCE_VARIABLE} is {shortened(said)}; wanted a number of runs, from 1")
    folder = Path(os.environ.get(FOLDER_VARIABLE) or Path(tempfile.gettempdir()) / "dtfm-lab-runs")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(PermissionError):  # it is another user's, who has done so
            folder.chmod(0o1777)
        flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC
        places = [os.open(folder / f"place-{number}", flags, 0o644) for number in range(int(said))]
    except OSError as error:
        raise LabError(
            f"the queue of runs in {folder} cannot be used: {error.strerror}; wanted a folder to write to"
        ) from None
    waits = False
    while True:
        for place in places:
            with contextlib.suppress(BlockingIOError):
                return fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not waits:
            waits = True
            emit("waiting", at_once=len(places))
        if select.select([commands.fd], [], [], LOOK_EVERY_S)[0]:
            commands.read_more()
