"""One run at a time writes checkpoints into a folder: a lock that processes of the run hold while any of them lives.

The lock is the system's (``flock``) on ``.dtfm_lab.lock`` in the folder, so that a run that was killed holds none. The
coordinator takes it before it forks workers, which have it from then on, too: a worker that outlives the coordinator by
a moment may still be writing. Between hosts that share the folder it is worth what the file system makes of ``flock``;
where that refuses to lock at all, the run goes on without, and says so.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from dtfm_lab.domain.errors import FileError

if sys.platform != "win32":
    import fcntl

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
        if sys.platform == "win32":
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
