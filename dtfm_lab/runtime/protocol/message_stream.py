"""Whole messages over one socket in both directions, as ``multiprocessing.connection.Connection`` sends them.

That class reads and writes the socket's file descriptor, so it cannot carry what an encrypted socket wraps. This one
asks the socket itself, and has what ``multiprocessing.connection.wait`` needs. It never holds the socket while it
waits: a thread may receive while another one sends.
"""

import contextlib
import select
import socket
import ssl
import struct
import threading
from typing import Protocol

LENGTH = struct.Struct("<I")
LONGEST = 2**28
"""Most bytes of one message."""
CHUNK = 1 << 18


class MessageConnection(Protocol):
    """Messages to and from another process: a MessageStream, or the pipe of a process of this machine."""

    def fileno(self) -> int: ...
    def send_bytes(self, buf: bytes, /) -> None: ...
    def recv_bytes(self) -> bytes: ...
    def poll(self) -> bool: ...
    def close(self) -> None: ...


class MessageStream:
    """Sends and receives messages of bytes; EOFError where the other end has closed, OSError where it is lost."""

    def __init__(self, connection: socket.socket) -> None:
        """Take the socket over."""
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
                        sent = 0
                if not sent:
                    self._wait(select.POLLOUT)
                left = left[sent:]

    def poll(self) -> bool:
        """Return whether ``recv_bytes`` would return, or raise, without waiting."""
        with contextlib.suppress(EOFError, OSError):
            while not self._is_whole():
                if not self._read():
                    return False
        return True

    def recv_bytes(self, within_s: float | None = None) -> bytes:
        """Wait for a message and return it. Raises EOFError or OSError; TimeoutError after ``within_s``."""
        while not self._is_whole():
            if not self._read():
                self._wait(select.POLLIN, within_s)
        (size,) = LENGTH.unpack_from(self._received)
        message = bytes(self._received[LENGTH.size : LENGTH.size + size])
        del self._received[: LENGTH.size + size]
        return message

    def finish_sending(self) -> None:
        """Tell the other end that nothing more will come."""
        with contextlib.suppress(OSError), self._using:
            socket.socket.shutdown(self._socket, socket.SHUT_WR)  # that of an encrypted socket forgets its keys

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
        """Read what is there; return whether that was anything. Raises EOFError or OSError."""
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
