"""What the kernel and the crew say to each other: lines of JSON, commands in and events out."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


class KernelGone(Exception):
    """Standard input ended: the kernel is gone, or said stop."""


class StandardInput:
    """Lines as they come, without a thread: ``fd`` can be waited for."""

    fd = 0

    def __init__(self) -> None:
        self._text = b""

    def first_line(self) -> str:
        while b"\n" not in self._text:
            self._more()
        line, self._text = self._text.split(b"\n", 1)
        return line.decode()

    def read(self) -> list[dict[str, Any]]:
        """Wait for input, then as ``complete``; raises KernelGone at the end of input."""
        self._more()
        return self.complete()

    def complete(self) -> list[dict[str, Any]]:
        """The whole commands among what was read so far."""
        *lines, self._text = self._text.split(b"\n")
        return [json.loads(line) for line in lines if line.strip()]

    def _more(self) -> None:
        if not (chunk := os.read(self.fd, 1 << 16)):
            raise KernelGone
        self._text += chunk


def tell(event: str, **values: Any) -> None:
    """One event to the kernel."""
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()
