"""The rendezvous of a process group of two: a torch Store whose keys cross the authenticated socket of its pair.

torch's own stores listen on a port of their own and let in whoever connects (``TCPStore``), or want a file system that
both hosts see (``FileStore``). A group of two exchanges a few short keys once, for which a line of JSON each suffices.
"""

from __future__ import annotations

import socket
from datetime import timedelta

from torch._C._distributed_c10d import Store

from dtfm_lab.runtime.protocol.connections import Channel, ConnectionLost

LONGEST_VALUE = 2**14
"""Most bytes of a value: gloo's are below 1 KiB, NCCL's unique id has 128."""
MOST_KEYS = 64
"""Most keys that the other end may set."""


class PairStore(Store):
    """What one end sets, the other end gets. Read by one thread until ``close``, which leaves the socket to others.

    Methods raise ConnectionLost where the other end is gone, silent for too long, or breaks the protocol.
    """

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        super().__init__()
        self._channel: Channel | None = Channel(connection)
        self._timeout_s = timeout_s
        self._values: dict[str, bytes] = {}
        self._n_received = 0

    def set(self, key: str, value: bytes | str) -> None:
        self._values[key] = value.encode() if isinstance(value, str) else bytes(value)
        if self._channel is not None:
            self._channel.send(key=key, value=self._values[key].hex())

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._values[key]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        within_s = self._timeout_s if timeout is None else timeout.total_seconds()
        for key in keys:
            while key not in self._values:
                self._receive(within_s)

    def check(self, keys: list[str]) -> bool:
        """Whether all are there already. NCCL's own threads may ask at any time, so nothing is read."""
        return all(key in self._values for key in keys)

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout_s = timeout.total_seconds()

    def clone(self) -> PairStore:
        return self

    def close(self) -> None:
        """Read and write no more of the socket: what follows on it are messages of the transport."""
        if self._channel is not None:
            self._channel.raw()
        self._channel = None

    def _receive(self, within_s: float) -> None:
        if self._channel is None:
            raise ConnectionLost("is asked for a key after the rendezvous")
        line = self._channel.receive(within_s)
        try:
            key, value = str(line["key"]), bytes.fromhex(line["value"])
        except (KeyError, TypeError, ValueError):
            raise ConnectionLost("speaks another protocol") from None
        self._n_received += 1
        if self._n_received > MOST_KEYS or len(value) > LONGEST_VALUE or key in self._values:
            raise ConnectionLost("set keys that no rendezvous has")
        self._values[key] = value
