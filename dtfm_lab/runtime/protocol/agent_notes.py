"""What the processes of a host tell their torchrun agent, which knows only exit statuses: that they have joined the
run, and that it is over, so that none is to be started again.

The notes are in a file without a name, which goes with the agent. The processes have its path from the environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from typing import IO, Any

VARIABLE, PROCESS_ID = "DTFM_LAB_AGENT_NOTES", "DTFM_LAB_AGENT"


class AgentNotes:
    """The agent's end: ``make`` it, and ``take`` what was noted."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._file, self._path = file, path
        self._n_taken = 0
        """Bytes that were read by ``take``; nothing is cut off, or a note written meanwhile would be, too."""

    @classmethod
    def make(cls) -> AgentNotes:
        """Open the file, and let processes that are started from now on know it."""
        linux = sys.platform == "linux"
        file: IO[bytes] = tempfile.TemporaryFile() if linux else tempfile.NamedTemporaryFile()  # noqa: SIM115
        path = f"/proc/{os.getpid()}/fd/{file.fileno()}" if linux else str(file.name)
        os.environ[VARIABLE], os.environ[PROCESS_ID] = path, str(os.getpid())
        return cls(file, path)

    def take(self) -> tuple[bool, tuple[int, str] | None]:
        """Return whether a worker has joined since the last call, and (exit status, why) where the run is over."""
        content = self._whole_lines()
        self._n_taken += len(content)
        notes = _parsed(content)
        ends = [note["end"] for note in notes if "end" in note]
        return any("joined" in note for note in notes), (int(ends[0][0]), str(ends[0][1])) if ends else None

    def has_end(self) -> bool:
        return any("end" in note for note in _parsed(self._whole_lines()))

    def _whole_lines(self) -> bytes:
        """What was noted since the last ``take``."""
        self._file.seek(self._n_taken)
        content = self._file.read()
        return content[: content.rfind(b"\n") + 1]


def _parsed(lines: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.splitlines()]


def agent() -> int | None:
    """Return the process id of this process's agent; None where there is none, or where it is the agent itself."""
    known = int(os.environ.get(PROCESS_ID, "0"))
    return known if known not in (0, os.getpid()) else None


def note(**values: Any) -> None:
    """Write a note to this process's agent; nothing happens where there is none."""
    if (path := os.environ.get(VARIABLE)) is None:
        return
    # an error means that the agent is gone, or its disk full
    with contextlib.suppress(OSError), open(path, "ab", buffering=0) as file:
        file.write(json.dumps(values).encode() + b"\n")
