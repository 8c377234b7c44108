"""Lines of JSON between a marker and its processes. The receiver trusts neither the length nor the content of a
line."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]
MOST_BYTES = 64 << 20
"""Maximum bytes of a line. A trace of some 200,000 actions is about as long."""
CHUNK = 1 << 16


class Ended(Exception):
    """The other end has closed."""


class Late(Exception):
    """A message was not received, or not accepted by the other end, in time."""


class Nonsense(Exception):
    """What arrived is not a message."""


class MarkingChannel:
    """One end of a stream socket.

    ``partner`` is a socket that closes when the process behind the other end has gone. Open files that arrive with a
    message are closed unless ``takes_files``, so a student's process cannot pass any.
    """

    def __init__(self, end: socket.socket, partner: socket.socket | None = None, *, takes_files: bool = False) -> None:
        self.end = end
        self._partner = partner
        self._takes_files = takes_files
        self._read = bytearray()
        self._looked = 0
        self._descriptors: list[int] = []

    def send(self, message: Message, descriptors: Sequence[int] = (), seconds: float | None = None) -> None:
        """Write a message, and pass open files with it. Raises Ended if the other end is closed, and Late if it does
        not read the message within ``seconds``. Raises Nonsense if the message is nested too deeply."""
        try:
            line = json.dumps(message).encode() + b"\n"
        except RecursionError:
            raise Nonsense("what is nested too deeply") from None
        self.end.settimeout(seconds)
        try:
            # With files attached a call may send only a part, so the rest follows.
            sent = socket.send_fds(self.end, [line], list(descriptors)) if descriptors else 0
            self.end.sendall(line[sent:])
        except TimeoutError:
            raise Late from None
        except OSError:
            raise Ended from None
        finally:
            # The limit was for this message only.
            self.end.settimeout(None)

    def receive(self, deadline: float | None = None) -> Message:
        """Return the next message. ``deadline`` is a time of the monotonic clock. Raises Ended if the other end is
        closed, Late after the deadline, and Nonsense for a line that is too long or not a JSON object."""
        # From where the last look ended, or a long message would be searched again and again.
        while (at := self._read.find(b"\n", self._looked)) < 0:
            self._looked = len(self._read)
            # A student's process may write without end.
            if self._looked > MOST_BYTES:
                raise Nonsense(f"more than {MOST_BYTES >> 20} MiB")
            self._more(deadline)
        line = bytes(self._read[:at])
        del self._read[: at + 1]
        self._looked = 0
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            raise Nonsense("no JSON") from None
        if not isinstance(message, dict):
            raise Nonsense("no mapping")
        return message

    def descriptor(self) -> int:
        """Return the next open file that was passed. Raises Ended if no file is left."""
        if not self._descriptors:
            raise Ended
        return self._descriptors.pop(0)

    def _more(self, deadline: float | None) -> None:
        watched = [self.end] if self._partner is None else [self.end, self._partner]
        while True:
            left_s = None if deadline is None else deadline - time.monotonic()
            ready = [] if left_s is not None and left_s <= 0 else select.select(watched, [], [], left_s)[0]
            if self.end in ready:
                break
            # The partner has closed, so nothing will come any more.
            raise Ended if ready else Late
        try:
            if self._takes_files:
                chunk, passed, _, _ = socket.recv_fds(self.end, CHUNK, 1)
                self._descriptors += passed
            else:
                chunk = self.end.recv(CHUNK)
        except OSError:
            raise Ended from None
        if not chunk:
            raise Ended
        self._read += chunk
