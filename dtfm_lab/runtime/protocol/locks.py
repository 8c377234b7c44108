"""System locks (``flock``), which end with the process that holds them: for a checkpoint folder, and for a turn to run.

One run at a time writes checkpoints into a folder. The lock is on ``.dtfm_lab.lock`` in it. The coordinator takes it
before it forks workers, which then hold it too: a worker that briefly outlives the coordinator may still be writing.
Between hosts that share the folder, the lock is as reliable as the file system's ``flock``. If the file system refuses
to lock, the run continues without and says so.

A machine may limit how many runs compute at once, whichever processes started them. Further runs wait. Each running run
and its workers hold the lock of one file in a folder. There is no limit unless the environment variable
DTFM_LAB_RUNS_AT_ONCE sets one, as ``dtfm-lab lab --app`` and a server for a class do. Processes that share a machine
share the folder: DTFM_LAB_RUN_QUEUE, or one in the temporary folder. Anyone can write there, so no link is followed and
no existing file is changed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
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
"""A lock that stays taken for this long belongs to another run. A shorter hold is a check, or a run that is ending."""


class FolderLock:
    """A lock on one folder. It belongs to this process and to the processes that it forks."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._path = Path(folder) / NAME
        self._file: int | None = None
        self.unsupported = ""
        """Why nothing is locked; empty if the lock works."""

    def hold(self) -> None:
        """Take the lock. Raises FileError if another run has it, or if the folder cannot be written."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open_lock(self._path, os.O_RDWR, 0o666)
            self._lock(self._file)
        except BlockingIOError:
            self.release()
            where = f"checkpoint_folder {self._path.parent}"
            raise FileError(f"{where}: another run writes to it; wanted another folder, or its end") from None
        except OSError as error:
            self.release()
            raise FileError(f"checkpoint_folder {self._path.parent}: cannot be written: {error.strerror}") from None

    def release(self) -> None:
        """Release the lock if it is held."""
        if self._file is not None:
            os.close(self._file)  # without LOCK_UN, which would free it in forked processes, too
            self._file = None

    def _lock(self, file: int) -> None:
        """Lock the file, or record that its file system cannot. Raises BlockingIOError if another process has it."""
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


NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)  # Windows does not have it


def open_lock(path: str | os.PathLike[str], access: int, mode: int, folder: int | None = None) -> int:
    """Open a file for locking and return its descriptor. Create it if missing, with this mode minus the process's
    umask.

    The path is relative to the open folder if one is given. Raises OSError if it exists and is not an ordinary
    file, such as a link, which may lead anywhere.
    """
    flags = access | NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)  # a pipe would wait
    try:
        file = os.open(path, flags, dir_fd=folder)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):  # another process was faster
            return os.open(path, flags | os.O_CREAT | os.O_EXCL, mode, dir_fd=folder)
        file = os.open(path, flags, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, f"{os.fspath(path)} is not an ordinary file")
    return file


def check_unlocked(folder: str | os.PathLike[str]) -> None:
    """Raise FileError if a run holds the lock of this folder at the moment, or if the folder cannot be written."""
    lock = FolderLock(folder)
    lock.hold()
    lock.release()


AT_ONCE_VARIABLE = "DTFM_LAB_RUNS_AT_ONCE"
"""Environment variable with the maximum number of runs at once. Without it, runs do not wait."""
FOLDER_VARIABLE = "DTFM_LAB_RUN_QUEUE"
"""Environment variable with the folder of the queue of runs."""
LOOK_EVERY_S = 0.2


def await_turn(commands: CommandReader) -> None:
    """Wait until this run may start. It keeps its place as long as one of its processes lives.

    Returns at once if DTFM_LAB_RUNS_AT_ONCE is not set, or without flock. Raises LabError if the variable does not hold
    a number from 1 or the queue's folder cannot be used, and InputClosed if the client stops the run.
    """
    said = os.environ.get(AT_ONCE_VARIABLE, "")
    if not said or fcntl is None:
        return
    if not said.isdecimal() or int(said) < 1:
        raise LabError(f"environment variable {AT_ONCE_VARIABLE} is {shortened(said)}; wanted a number of runs, from 1")
    folder = Path(os.environ.get(FOLDER_VARIABLE) or Path(tempfile.gettempdir()) / "dtfm-lab-runs")
    try:
        queue = _open_queue(folder)
        places = [open_lock(f"place-{number}", os.O_RDONLY, 0o644, queue) for number in range(int(said))]
    except OSError as error:
        why = "it is a link" if folder.is_symlink() else error.strerror
        raise LabError(f"the queue of runs in {folder} cannot be used: {why}; wanted a folder to write to") from None
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


def _open_queue(folder: Path) -> int:
    """Open the folder of places, created for all users if missing. Raises OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = False
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
        made = True
    queue = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(queue)
    is_own, is_shared = found.st_uid == os.geteuid(), found.st_mode & 0o1002 == 0o1002
    if made and is_own:
        os.fchmod(queue, 0o1777)
    elif not (is_own or is_shared or found.st_uid == 0):
        os.close(queue)
        raise OSError(errno.EPERM, f"it is of user {found.st_uid}, and not for all (mode {found.st_mode & 0o7777:o})")
    return queue
