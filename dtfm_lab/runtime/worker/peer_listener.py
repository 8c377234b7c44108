"""Connections between the workers of a run; each carries messages one way.

A worker listens on one port for its whole life. After a worker is lost all connections are made anew: the number of
that attempt, the epoch, and the rank of the worker that connects are the hello of every connection. The listening
worker acknowledges it, or says why not; the other one tries again until its deadline.
"""

import secrets
import socket
import threading

from dtfm_lab.runtime.protocol.certificates import Certificates
from dtfm_lab.runtime.protocol.channels import HANDSHAKE_S, Channel, whole_number
from dtfm_lab.runtime.protocol.connections import Listener, authenticated

CONNECT_S = 20.0
"""Seconds to connect to another worker, which listens before its address is published."""

Address = tuple[str, int]


class PeerListener:
    """Accepts the connections of other workers from the moment it is made; ``wait_for`` hands them out."""

    def __init__(self, host: str, secret: str, certificates: Certificates | None = None) -> None:
        self._accepted: dict[tuple[int, int], socket.socket] = {}
        self._attempts: dict[tuple[int, int], str] = {}
        """Which attempt of a peer each connection is, also of those that were handed out."""
        self._changed = threading.Condition()
        self._oldest_epoch = 0
        self.certificates = certificates
        listener = Listener(host, 0, secret, self._store_connection, certificates=certificates)
        self.address: Address = listener.address

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
            self._attempts = {key: attempt for key, attempt in self._attempts.items() if key[0] >= epoch}
            self._changed.notify_all()

    def _store_connection(self, channel: Channel) -> None:
        hello = channel.receive(HANDSHAKE_S)
        key = epoch, rank = whole_number(hello, "epoch"), whole_number(hello, "rank")
        attempt = str(hello["attempt"])[:64]
        with self._changed:
            if epoch < self._oldest_epoch:
                refusal = f"epoch {epoch} is over"
            elif self._attempts.get(key, attempt) != attempt:
                refusal = f"rank {rank} is connected already in epoch {epoch}"
            elif key in self._attempts and key not in self._accepted:
                refusal = f"rank {rank} has lost its connection of epoch {epoch}"
            else:
                channel.acknowledge()
                if key in self._accepted:  # the peer did not hear of it, and connects again
                    self._accepted.pop(key).close()
                self._attempts[key] = attempt
                self._accepted[key] = channel.raw()
                self._changed.notify_all()
                return
        channel.send(refused=refusal)
        raise ValueError(refusal)


def connect_to_peer(
    address: Address, secret: str, epoch: int, rank: int, certificates: Certificates | None = None
) -> socket.socket:
    """A connection to another worker's listener, which has taken it, for messages of ``rank``.

    Raises ConnectionLost after ``CONNECT_S``, and Refused where the other worker does not want it.
    """
    attempt = secrets.token_hex(8)
    hello = {"epoch": epoch, "rank": rank, "attempt": attempt}
    return authenticated(*address, secret, retry_s=CONNECT_S, certificates=certificates, hello=hello).raw()
