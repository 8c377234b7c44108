"""Where the other workers of a run come in: one listening socket for a worker's whole life.

A connection carries messages one way. Who comes says which run it belongs to, which mesh of connections it is for
(after a loss all are made anew) and which rank it is; whoever cannot is turned away.
"""

from __future__ import annotations

import hmac
import socket
import struct
import threading
import time

HELLO = struct.Struct("<32sqq")
"""the run's secret, the mesh's number, the rank that calls"""
CALL_S = 20.0
"""to reach another worker of the same run, which listens before anyone is told its address"""
HELLO_S = 5.0
"""for who came in to say who it is"""
MOST_AT_THE_DOOR = 64
"""who may be about to say so; more are turned away"""
BREATHER_S = 0.05
"""after a connection that could not be accepted"""

Address = tuple[str, int]


class Doorstep:
    """Accepts connections from the moment it is made; ``awaited`` hands them out."""

    def __init__(self, host: str, secret: bytes) -> None:
        self._secret = secret
        self._listener = socket.create_server((host, 0), backlog=128)
        self.address: Address = self._listener.getsockname()[:2]
        self._came: dict[tuple[int, int], socket.socket] = {}
        self._changed = threading.Condition()
        self._oldest = 0
        self._at_the_door = threading.BoundedSemaphore(MOST_AT_THE_DOOR)
        threading.Thread(target=self._accept_all, daemon=True).start()

    def awaited(self, mesh: int, rank: int) -> socket.socket | None:
        """The connection from this rank, once it is there; None where that mesh has been given up."""
        with self._changed:
            self._changed.wait_for(lambda: (mesh, rank) in self._came or mesh < self._oldest)
            return self._came.pop((mesh, rank), None)

    def give_up_before(self, mesh: int) -> None:
        """Nobody waits for connections of older meshes any more."""
        with self._changed:
            self._oldest = max(self._oldest, mesh)
            for key in [key for key in self._came if key[0] < mesh]:
                self._came.pop(key).close()
            self._changed.notify_all()

    def _accept_all(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # too many files open, for now
                time.sleep(BREATHER_S)
                continue
            if self._at_the_door.acquire(blocking=False):
                threading.Thread(target=self._let_in, args=(connection,), daemon=True).start()
            else:
                connection.close()

    def _let_in(self, connection: socket.socket) -> None:
        hello = bytearray(HELLO.size)
        late = threading.Timer(HELLO_S, lambda: connection.shutdown(socket.SHUT_RDWR))
        late.daemon = True
        late.start()
        try:
            receive_exactly(connection, memoryview(hello))
        except OSError:
            connection.close()
            return
        finally:
            late.cancel()
            self._at_the_door.release()
        secret, mesh, rank = HELLO.unpack(hello)
        with self._changed:
            if not hmac.compare_digest(secret, self._secret) or mesh < self._oldest:
                connection.close()
                return
            self._came[mesh, rank] = connection
            self._changed.notify_all()


def call(address: Address, secret: bytes, mesh: int, rank: int) -> socket.socket:
    """A connection to another worker's doorstep. Raises OSError."""
    connection = socket.create_connection(address, timeout=CALL_S)
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(HELLO.pack(secret, mesh, rank))
    return connection


def receive_exactly(connection: socket.socket, into: memoryview) -> None:
    """Fill ``into``. Raises ConnectionError where the other end is gone before."""
    while into:
        if not (n := connection.recv_into(into)):
            raise ConnectionResetError("the other end closed the connection")
        into = into[n:]
