"""Commands and events between the client and the coordinator: lines of JSON on standard input and output."""

import json
import os
import sys
from typing import Any, Protocol


class InputClosed(Exception):
    """Standard input ended: the client is gone, or has stopped the run."""


class CommandSource(Protocol):
    """Where a run's commands come from."""

    @property
    def fd(self) -> int:
        """Becomes readable when there is something to ``read``."""

    def read(self) -> list[dict[str, Any]]:
        """Wait for commands and return them. Raises InputClosed where there will be none, and the run is to end."""

    def complete(self) -> list[dict[str, Any]]:
        """Return commands that are there already."""


class CommandReader:
    """Reads lines of standard input as they come, without a thread: ``fd`` can be waited for."""

    fd = 0

    def __init__(self) -> None:
        self._text = b""

    def first_line(self) -> str:
        """Wait for a whole line and return it. Raises InputClosed."""
        while b"\n" not in self._text:
            self.read_more()
        line, self._text = self._text.split(b"\n", 1)
        return line.decode()

    def read(self) -> list[dict[str, Any]]:
        """Wait for input, then return as ``complete`` does. Raises InputClosed."""
        self.read_more()
        return self.complete()

    def complete(self) -> list[dict[str, Any]]:
        """Return the whole commands among what was read so far."""
        *lines, self._text = self._text.split(b"\n")
        return [json.loads(line) for line in lines if line.strip()]

    def read_more(self) -> None:
        """Wait for input and keep it for the next ``complete``. Raises InputClosed."""
        if not (chunk := os.read(self.fd, 1 << 16)):
            raise InputClosed
        self._text += chunk


def emit(event: str, **values: Any) -> None:
    """Write one event to the client."""
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()
