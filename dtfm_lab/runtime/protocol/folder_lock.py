"""One run at a time writes checkpoints into a folder: a lock that processes of the run hold while any of them lives.

The lock is the system's (``flock``) on ``.dtfm_lab.lock`` in the folder, so that a run that was killed leaves none; the
file says who holds it. The coordinator takes it before it forks workers, which have it from then on, too: a worker that
outlives the coordinator by a moment may still be writing.

Between hosts that share the folder it is worth what the file system makes of ``flock``: flock(2) says that NFS clients
(Linux 2.6.12) and SMB ones (5.5) pass it to the server, unless mounted otherwise (``nolock``, ``nobrl``); a file system
may also keep it for each host alone. Where it refuses to lock at all, the run goes on without, and says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from dtfm_lab.domain.errors import FileError

if sys.platform != "win32":
    import fcntl

NAME = ".dtfm_lab.lock"
PATIENCE_S = 1.0
"""A lock that is not free for so long is another run's; a shorter one is somebody's look at it, or a run that ends."""
MOST_BYTES = 1 << 12
"""Longer than what a holder writes about itself."""


class FolderLock:
    """A lock on one folder, held by this process and by those that it forks."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / NAME
        self._file: int | None = None
        self.unsupported = ""
        """Why nothing is locked; empty where it is."""

    def hold(self) -> None:
        """Take the lock, or keep it where it is held and the folder is still the same.

        Raises FileError where another run has it, or where the folder cannot be written.
        """
        if self._is_in_place():
            return
        self._close()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            while not self._is_in_place():  # the one who held it removes the file
                self._close()
                self._file = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
                self._lock(self._file)
        except BlockingIOError:
            self._close()
            raise FileError(_refusal(self.path)) from None
        except OSError as error:
            self._close()
            raise FileError(f"checkpoint_folder {self.path.parent}: cannot be written: {error.strerror}") from None
        assert self._file is not None
        who = {"host": socket.gethostname(), "pid": os.getpid(), "since": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"}
        with contextlib.suppress(OSError):  # a full disk: the lock holds without a name
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, json.dumps(who).encode(), 0)

    def release(self) -> None:
        """Give the lock up and remove its file, where it is held."""
        if self._is_in_place():
            with contextlib.suppress(OSError):
                self.path.unlink()
        self._close()

    def _lock(self, file: int) -> None:
        """Lock the file, or note that its file system does not. Raises BlockingIOError where another one has it."""
        self.unsupported = ""
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

    def _is_in_place(self) -> bool:
        """Whether the file that is open here is the one in the folder."""
        if self._file is None:
            return False
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(self._file), self.path.stat())
        return False

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)  # without LOCK_UN, which would free it in forked processes, too
            self._file = None


def check_unlocked(folder: str | os.PathLike[str]) -> None:
    """Raise FileError where a run holds the lock of this folder at this moment; nothing is written."""
    path = Path(folder) / NAME
    if sys.platform == "win32":
        return
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FileError(_refusal(path)) from None
    except OSError:  # no such file or folder, or no locks here: the run itself finds out
        return


def _refusal(path: Path) -> str:
    """``checkpoint_folder x: another run writes to it (process 12 on host a, since ...); wanted another folder``."""
    who = "who, it does not say"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        with path.open("rb") as file:
            found = json.loads(file.read(MOST_BYTES))
        who = f"process {int(found['pid'])} on {str(found['host'])[:64]!r} since {str(found['since'])[:32]}"
    return f"checkpoint_folder {path.parent}: another run writes to it ({who}); wanted another folder, or its end"
