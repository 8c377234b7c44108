"""The coordinator's handle of a worker on another host, and the stream of messages between them.

A worker on another host may fall silent, come back, or be taken over. The coordinator waits for a silent worker: its
link may come back, and then nothing is lost. If another process knocks, that is, asks for the same rank, a silent
worker counts as lost at once. If the worker sends a message after the knock, it is alive, and the other process is
refused. So no rank ever has two workers.

A ``MessageStream`` sends whole messages, as ``multiprocessing.connection.Connection`` does. That class reads and writes
the socket's file descriptor, so it cannot handle an encrypted socket. ``MessageStream`` uses the socket itself, and
``multiprocessing.connection.wait`` accepts it. It does not lock the socket while it waits, so one thread may receive
while another sends.
"""

import contextlib
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from dtfm_lab.runtime.coordinator.worker_handle import WorkerHandle
from dtfm_lab.runtime.protocol.orders import Exit, to_line

SILENT_S = 5.0
"""A worker that has sent nothing for this many seconds is silent. Heartbeats come every half second."""
PROOF_S = 1.0
"""A message that arrives more than this many seconds after a knock counts as sent after it."""
LENGTH = struct.Struct("<I")
LONGEST = 2**28
"""Maximum bytes in one message."""
CHUNK = 1 << 18


class MessageStream:
    """Sends and receives messages of bytes over a socket. Raises EOFError if the other end has closed, OSError if the
    connection is lost."""

    def __init__(self, connection: socket.socket) -> None:
        """Take over the socket, which becomes non-blocking."""
        connection.setblocking(False)
        self._socket = connection
        self._using, self._sending = threading.Lock(), threading.Lock()
        self._received = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send_bytes(self, message: bytes) -> None:
        """Send one message. Raises OSError."""
        left = memoryview(LENGTH.pack(len(message)) + message)
        with self._sending:
            while left:
                with self._using:
                    try:
                        sent = self._socket.send(left)
                    except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                        # TLS may have to read before it can write
                        sent = 0
                if not sent:
                    self._wait(select.POLLOUT)
                left = left[sent:]

    def poll(self) -> bool:
        """Return True if ``recv_bytes`` would return, or raise an error, without waiting."""
        # the error is left for `recv_bytes` to raise
        with contextlib.suppress(EOFError, OSError):
            while not self._is_whole():
                if not self._read():
                    return False
        return True

    def recv_bytes(self, within_s: float | None = None) -> bytes:
        """Wait for a message and return it. Raises EOFError or OSError, and TimeoutError if nothing arrives for
        ``within_s``."""
        while not self._is_whole():
            if not self._read():
                self._wait(select.POLLIN, within_s)
        (size,) = LENGTH.unpack_from(self._received)
        message = bytes(self._received[LENGTH.size : LENGTH.size + size])
        del self._received[: LENGTH.size + size]
        return message

    def finish_sending(self) -> None:
        """Tell the other end that nothing more will follow."""
        with contextlib.suppress(OSError), self._using:
            socket.socket.shutdown(self._socket, socket.SHUT_WR)  # an encrypted socket's own shutdown forgets its keys

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def _is_whole(self) -> bool:
        if len(self._received) < LENGTH.size:
            return False
        (size,) = LENGTH.unpack_from(self._received)
        if size > LONGEST:
            raise ConnectionError(f"announced a message of {size} bytes; wanted at most {LONGEST}")
        return len(self._received) - LENGTH.size >= int(size)

    def _read(self) -> bool:
        """Read what has arrived. Return False if nothing has. Raises EOFError or OSError."""
        with self._using:
            try:
                chunk = self._socket.recv(CHUNK)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return False
        if not chunk:
            raise EOFError
        self._received += chunk
        return True

    def _wait(self, event: int, within_s: float | None = None) -> None:
        poller = select.poll()
        if (number := self._socket.fileno()) < 0:
            raise OSError("the connection is closed")
        poller.register(number, event)
        if not poller.poll(None if within_s is None else within_s * 1000):
            raise TimeoutError(f"said nothing for {within_s:g} s")


class RemoteWorker(WorkerHandle):
    """The coordinator's handle of one worker on another host."""

    def __init__(self, rank: int, stream: MessageStream, round_trip_s: float, own_address: str, await_s: float) -> None:
        """``await_s``: seconds to wait for a silent worker. ``own_address``: address at which other hosts reach the
        worker's host."""
        super().__init__(rank, stream, None)
        self.round_trip_s, self.own_address = round_trip_s, own_address
        self.knocked_s: Callable[[], float | None] = lambda: None
        """Returns the monotonic time at which another process asked for this rank; None if none waits for it."""
        self.refuse: Callable[[], None] = lambda: None
        """Refuses the process that asks for this rank."""
        self.heard_exit = False
        """True if its process has reported that it exits as ordered."""
        self._stream, self._await_s = stream, await_s
        self._unread: list[dict[str, Any]] = []

    def pump(self) -> None:
        """Read what has arrived and keep it for a later ``receive``. Called while the coordinator waits for other
        workers, so that it knows which ones are silent."""
        messages = super().receive()
        self.heard_exit = self.heard_exit or any(message["event"] == "exits" for message in messages)
        self._unread += messages

    def receive(self) -> list[dict[str, Any]]:
        self.pump()
        unread, self._unread = self._unread, []
        return unread

    @property
    def is_silent(self) -> bool:  # type: ignore[override]
        return self.silent_for_s > SILENT_S

    @property
    def silent_for_s(self) -> float:
        return time.monotonic() - self.last_message_s

    def is_stuck(self) -> bool:
        """Return True if the worker is silent and another process asks for its rank. If the worker has sent a message
        since, refuse that process."""
        if (knocked_s := self.knocked_s()) is None:
            return False
        if self.last_message_s > knocked_s + PROOF_S:
            self.refuse()
            return False
        return self.is_silent

    def why_gone(self) -> str | None:
        if not self.is_open:
            return "hung up"
        return f"was silent for {self._await_s:g} s" if self.silent_for_s > self._await_s else None

    def dismiss(self, status: int, why: str) -> None:
        """Order the process to exit, and its host not to start it again."""
        with contextlib.suppress(OSError):
            self._stream.send_bytes(to_line(Exit(status=status, why=why)))
        self._stream.finish_sending()
