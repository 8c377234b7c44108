"""Workers of one run connect to each other, and nothing else connects to them."""

from __future__ import annotations

import socket

import pytest

from dtfm_lab.runtime.protocol.connections import Refused
from dtfm_lab.runtime.worker.peer_listener import PeerListener, connect_to_peer

SECRET = "of this test"


def test_a_connection_is_accepted_only_with_the_secret_and_only_for_the_epoch() -> None:
    listener = PeerListener("127.0.0.1", SECRET)
    assert listener.address[0] == "127.0.0.1"
    with pytest.raises(Refused):
        connect_to_peer(listener.address, "guessed", 1, 0)
    with socket.create_connection(listener.address) as silent, connect_to_peer(listener.address, SECRET, 1, 0):
        assert listener.wait_for(1, 0) is not None
        silent.sendall(b"half a line")
        with connect_to_peer(listener.address, SECRET, 2, 7) as sender:
            sender.sendall(b"the first message")
            received = listener.wait_for(2, 7)
            assert received is not None
            assert received.recv(100) == b"the first message"
    listener.abandon_before(4)
    assert listener.wait_for(3, 0) is None
    with pytest.raises(Refused, match="epoch 3 is over"):
        connect_to_peer(listener.address, SECRET, 3, 0)
