"""Connections between the workers of a run; each carries messages one way.

A worker listens on one port for its whole life. After a worker is lost all connections are made anew: the number of
that attempt, the epoch, and the rank of the worker that connects are the first line of every connection.
"""

import socket
import threading

from dtfm_lab.runtime.protocol.connections import HANDSHAKE_S, Channel, Listener, connect, respond

CONNECT_S = 20.0
"""Seconds to connect to another worker, which listens before its address is published."""

Address = tuple[str, int]


class PeerListener:
    """Accepts the connections of other workers from the moment it is made; ``wait_for`` hands them out."""

    def __init__(self, host: str, secret: str) -> None:
        self._accepted: dict[tuple[int, int], socket.socket] = {}
        self._changed = threading.Condition()
        self._oldest_epoch = 0
        self.address: Address = Listener(host, 0, secret, self._store_connection).address

    def wait_for(self, epoch: int, rank: int) -> socket.socket | None:
        """The connection from this rank, once it is there; None if the epoch has been abandoned."""
        with self._changed:
            self._changed.wait_for(lambda: (epoch, rank) in self._accepted or epoch < self._oldest_epoch)
            return self._accepted.pop((epoch, rank), None)

    def abandon_before(self, epoch: int) -> None:
        """Close the connections of older epochs, and refuse further ones."""
        with self._changed:
            self._oldest_epoch = max(self._oldest_epoch, epoch)
            for key in [key for key in self._accepted if key[0] < epoch]:
                self._accepted.pop(key).close()
            self._changed.notify_all()

    def _store_connection(self, channel: Channel) -> None:
        hello = channel.receive(HANDSHAKE_S)
        epoch, rank = int(hello["epoch"]), int(hello["rank"])
        with self._changed:
            if epoch < self._oldest_epoch:
                raise ValueError(epoch)
            self._accepted[epoch, rank] = channel.raw()
            self._changed.notify_all()


def connect_to_peer(address: Address, secret: str, epoch: int, rank: int) -> socket.socket:
    """A connection to another worker's listener, for messages of ``rank``. Raises ConnectionLost."""
    channel = connect(*address, within_s=CONNECT_S)
    try:
        respond(channel, secret)
        channel.send(epoch=epoch, rank=rank)
    except OSError:
        channel.close()
        raise
    return channel.raw()
