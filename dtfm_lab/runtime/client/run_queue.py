"""Lets so many runs compute at once on one machine, whichever processes started them; further ones wait their turn.

A run holds a ticket: a numbered file that it locks. Whoever has fewer locked tickets before its own than runs may go at
once, goes. The system frees the locks of a process that ends in any way, so that nobody waits for the dead. There is no
queue unless the environment variable DTFM_LAB_RUNS_AT_ONCE holds a number, as ``dtfm-lab lab --app`` and a server for a
class set it. Processes that share a machine share the folder: DTFM_LAB_RUN_QUEUE, or one in the folder for temporary
files.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.runtime.client.run_process import RunProcess

try:
    import fcntl
except ImportError:  # Windows, where there is no queue
    fcntl = None  # type: ignore[assignment]

AT_ONCE_VARIABLE, FOLDER_VARIABLE = "DTFM_LAB_RUNS_AT_ONCE", "DTFM_LAB_RUN_QUEUE"
LOOK_EVERY_S = 0.2
TICKET = "run-"


def runs_at_once() -> int | None:
    """Number of runs that compute at once on this machine, None for any number. Raises LabError."""
    said = os.environ.get(AT_ONCE_VARIABLE, "")
    if not said or fcntl is None:
        return None
    if not said.isdecimal() or int(said) < 1:
        raise LabError(f"environment variable {AT_ONCE_VARIABLE} is {shortened(said)}; wanted a number of runs, from 1")
    return int(said)


def queue_folder() -> Path:
    """Folder of the tickets."""
    return Path(os.environ.get(FOLDER_VARIABLE) or Path(tempfile.gettempdir()) / "dtfm-lab-runs")


class Ticket:
    """A place in the queue of this machine, given up by ``leave`` or with the process. Raises LabError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(0o1777)  # other users of this machine queue here, too
            with self._alone():
                self.number = max(self._numbers(), default=0) + 1
                self._path = folder / f"{TICKET}{self.number:09d}"
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LabError(
                f"the queue of runs in {folder} cannot be used: {error.strerror}; wanted a folder to write to"
            ) from None

    def n_before(self) -> int:
        """Number of runs, waiting or going on, that came before this one."""
        with self._alone():
            return sum(self._is_held(number) for number in self._numbers() if number < self.number)

    def leave(self) -> None:
        """Remove this run's ticket, so that the run behind it moves up."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def _numbers(self) -> list[int]:
        names = (entry.name.removeprefix(TICKET) for entry in self._folder.glob(f"{TICKET}*"))
        return sorted(int(name) for name in names if name.isdecimal())

    def _is_held(self, number: int) -> bool:
        """Whether a process that lives holds this ticket; the ticket of one that does not is removed."""
        path = self._folder / f"{TICKET}{number:09d}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        with contextlib.suppress(OSError):  # that of another user stays, and is counted by nobody
            path.unlink()
        return False

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let no other process look at the tickets or take one meanwhile."""
        path = self._folder / "queue"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


class Waiting:
    """A run in the queue: begins when it may, and gives its place up when all its processes are gone."""

    def __init__(
        self, run: RunProcess, at_once: int, begin: Callable[[RunProcess], None], tell: Callable[[int, int], None]
    ) -> None:
        """``tell`` is called with how many runs are before it and how many go at once, whenever the first changes."""
        self._run, self._at_once, self._begin, self._tell = run, at_once, begin, tell
        self._ticket = Ticket(queue_folder())
        self._lock, self._withdrawn = threading.Lock(), threading.Event()
        run.source = self
        threading.Thread(target=self._wait, daemon=True).start()

    def withdraw(self, run: RunProcess) -> None:
        """Cancel the run if it still waits; where it has just begun, its new source is told."""
        with self._lock:
            if run.source is not self:
                source = run.source
            else:
                source = None
                self._withdrawn.set()
                run.cancel()
        if source is not None:
            source.withdraw(run)

    def kill(self) -> None:
        """Nothing is to be ended: a waiting run has no process."""

    def _wait(self) -> None:
        said = -1
        try:
            while not self._withdrawn.is_set():
                before = self._ticket.n_before()
                with self._lock:
                    if self._withdrawn.is_set():
                        return
                    if before < self._at_once:
                        self._run.source = None
                        self._begin(self._run)
                        break
                    if before != said:
                        self._tell(before, self._at_once)
                said = before
                self._withdrawn.wait(LOOK_EVERY_S)
            self._run.wait_until_gone()
        finally:
            self._ticket.leave()
