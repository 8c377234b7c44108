"""Lets so many runs compute at once on one machine, whichever processes started them; further ones wait.

A run that computes holds the lock of one of so many files, and so do the workers that it forks. The system frees the
locks of processes that end in any way, so that nobody waits for the dead. Any number of runs go at once unless the
environment variable DTFM_LAB_RUNS_AT_ONCE holds a number, as ``dtfm-lab lab --app`` and a server for a class set it.
Processes that share a machine share the folder: DTFM_LAB_RUN_QUEUE, or one in the folder for temporary files.
"""

import contextlib
import os
import select
import tempfile
from pathlib import Path

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.runtime.protocol.json_lines import CommandReader, emit

try:
    import fcntl
except ImportError:  # Windows, where runs do not wait for each other
    fcntl = None  # type: ignore[assignment]

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
