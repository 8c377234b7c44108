"""Whatever strangers send to a port of a run, genuine peers come in and nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from run_helpers import until

from dtfm_lab.runtime.protocol import channels, connections
from dtfm_lab.runtime.protocol.certificates import write_certificates
from dtfm_lab.runtime.protocol.channels import (
    PROTOCOL,
    Channel,
    ConnectionLost,
    Refused,
    respond,
    values_of,
    whole_number,
)
from dtfm_lab.runtime.protocol.connections import Listener, any_address, authenticated, connect
from dtfm_lab.runtime.worker.transport import PeerListener, connect_to_peer

SECRET = "of this test"
GARBAGE = {
    "nothing": b"",
    "another protocol": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "the beginning of TLS": bytes.fromhex("160301ffff0100fffb0303"),
    "noise": bytes(range(256)) * 4096,
    "a line without end": b"a" * (1 << 21),
    "deep nesting": b"[" * 1_000_000 + b"\n",
    "a long number": b'{"protocol": ' + b"9" * 1000 + b"}\n",
    "numbers that are none": b'{"protocol": NaN, "nonce": Infinity, "proof": 1e999}\n',
    "a lone surrogate": b'{"protocol": 3, "nonce": "\\ud800", "proof": "\\ud800"}\n',
    "other types": b'{"protocol": 3, "nonce": [{}], "proof": {"a": [1]}}\n',
    "half an answer": b'{"protocol": 3, "nonce": "',
    "two lines at once": json.dumps({"protocol": PROTOCOL, "nonce": "n", "proof": "p"}).encode() + b"\n{}\n",
    "a frame of 4 GiB": struct.pack("!i", -1) + struct.pack("!Q", 1 << 32),
    "a pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
}


def send_all_of(garbage: bytes, address: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(address, timeout=10)
    with contextlib.suppress(OSError):
        connection.sendall(garbage)
    return connection


def acknowledge(channel: Channel) -> None:
    channel.receive(10)
    channel.acknowledge()


@contextlib.contextmanager
def plain() -> Iterator[tuple[tuple[str, int], Callable[[], None]]]:
    listener = Listener("127.0.0.1", 0, SECRET, acknowledge)
    yield listener.address, lambda: authenticated(*listener.address, SECRET, retry_s=60, hello={}).close()
    listener.close()


@contextlib.contextmanager
def peers() -> Iterator[tuple[tuple[str, int], Callable[[], None]]]:
    listener, epochs = PeerListener("127.0.0.1", SECRET), iter(range(1, 100))

    def genuine() -> None:
        with connect_to_peer(listener.address, SECRET, epoch := next(epochs), 0):
            accepted = listener.wait_for(epoch, 0)
            assert accepted is not None
            accepted.close()

    yield listener.address, genuine


LISTENERS = {"plain": plain, "peers": peers}


@pytest.mark.parametrize("which", LISTENERS)
def test_garbage_ends_its_own_connection_and_nothing_else(which, monkeypatch):
    monkeypatch.setattr(channels, "HANDSHAKE_S", 2.0)
    with LISTENERS[which]() as (address, genuine):
        genuine()
        before = threading.active_count()
        callers = [send_all_of(garbage, address) for garbage in GARBAGE.values()]
        genuine()
        for name, caller in zip(GARBAGE, callers, strict=True):
            caller.settimeout(60)
            with contextlib.suppress(ConnectionResetError):
                while caller.recv(1 << 16):  # the question, a refusal, the end
                    pass
            caller.close()
            assert name
        genuine()
        until(lambda: threading.active_count() <= before + 1)


def test_two_thousand_idle_connections_make_few_threads_and_keep_no_genuine_peer_out():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 8192:
        pytest.skip("needs 8,192 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 8192), hard))
    idle: list[socket.socket] = []
    try:
        with plain() as (address, genuine):
            genuine()
            before = threading.active_count()
            for number in range(2000):
                idle.append(socket.create_connection(address, timeout=30))
                if number % 500 == 250:
                    genuine()
            assert threading.active_count() <= before + connections.MOST_PENDING + 2
            genuine()
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_oldest_of_the_address_with_most_connections_is_dropped_first(monkeypatch):
    monkeypatch.setattr(connections, "MOST_PENDING", 4)
    monkeypatch.setattr(channels, "HANDSHAKE_S", 120)
    rejected: list[tuple[str, str]] = []
    listener = Listener("127.0.0.1", 0, SECRET, acknowledge, lambda *why: rejected.append(why))
    quiet = socket.create_connection(listener.address, source_address=("127.0.0.2", 0))
    flood = [socket.create_connection(listener.address) for _ in range(6)]
    until(lambda: len(rejected) >= 3)
    assert [address for address, why in rejected if "did not authenticate before" in why] == ["127.0.0.1"] * 3
    for connection in flood[:3]:
        connection.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(1 << 12):
                pass
    for connection in (quiet, *flood):
        connection.close()
    listener.close()


def test_one_byte_a_time_is_as_slow_as_silence(monkeypatch):
    monkeypatch.setattr(channels, "HANDSHAKE_S", 0.5)
    rejected = threading.Event()
    listener = Listener("127.0.0.1", 0, SECRET, acknowledge, lambda *why: rejected.set())
    with socket.create_connection(listener.address) as slow, contextlib.suppress(OSError):
        for _ in range(200):
            slow.sendall(b" ")
            time.sleep(0.05)
            if rejected.is_set():
                break
    assert rejected.wait(30)
    listener.close()


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
    connect_to_peer(listener.address, SECRET, 4, 0).close()


@pytest.mark.parametrize("proof", [{}, {"proof": None}, {"proof": "made up"}])
def test_a_listener_that_does_not_know_the_secret_is_told_apart(proof):
    ours, theirs = socket.socketpair()
    stranger = Channel(theirs)
    stranger.send(protocol=PROTOCOL, nonce="of a stranger")
    stranger.send(**proof)
    with pytest.raises(ConnectionLost, match="does not know the token itself"):
        respond(Channel(ours), SECRET)
    stranger.close()
    ours.close()


def test_a_second_connection_for_a_rank_and_epoch_is_refused_and_the_first_stays():
    listener = PeerListener("127.0.0.1", SECRET)
    first = connect_to_peer(listener.address, SECRET, 1, 3)
    with pytest.raises(Refused, match="rank 3 is connected already in epoch 1"):
        connect_to_peer(listener.address, SECRET, 1, 3)
    accepted = listener.wait_for(1, 3)
    assert accepted is not None
    with pytest.raises(Refused, match="rank 3 is connected already"):
        connect_to_peer(listener.address, SECRET, 1, 3)
    first.sendall(b"still here")
    assert accepted.recv(100) == b"still here"
    listener.abandon_before(2)
    first.close()
    accepted.close()


@pytest.mark.parametrize(
    "hello",
    [{"epoch": -1, "rank": 0}, {"epoch": 1.5, "rank": 0}, {"epoch": True, "rank": 0}, {"epoch": 10**12, "rank": 0}],
)
def test_hellos_with_numbers_that_cannot_be_are_not_taken(hello):
    listener = PeerListener("127.0.0.1", SECRET)
    with pytest.raises(ConnectionLost):
        authenticated(*listener.address, SECRET, hello=hello | {"attempt": "a"})
    with pytest.raises((ValueError, KeyError)):
        whole_number(hello, "epoch")


def test_a_peer_whose_hello_was_dropped_connects_again(monkeypatch):
    listener = PeerListener("127.0.0.1", SECRET)
    dropped: list[int] = []
    real = Channel.acknowledge

    def lose_the_first(channel: Channel) -> None:
        if not dropped:
            dropped.append(1)
            channel.close()
            raise ConnectionLost("was dropped")
        real(channel)

    monkeypatch.setattr(Channel, "acknowledge", lose_the_first)
    with connect_to_peer(listener.address, SECRET, 1, 0) as sender:
        sender.sendall(b"after all")
        accepted = listener.wait_for(1, 0)
        assert dropped
        assert accepted is not None
        assert accepted.recv(100) == b"after all"
        accepted.close()


@pytest.mark.parametrize("line", [b"[1]\n", b"[" * 10**6 + b"\n", b'{"a": NaN}\n', b'{"a": 1e999}\n', b"\xff\n", b"\n"])
def test_a_line_that_is_no_object_of_finite_numbers_is_another_protocol(line):
    with pytest.raises(ConnectionLost, match="another protocol"):
        values_of(line)


def test_a_refusal_is_one_short_line():
    with pytest.raises(Refused) as refused:
        values_of(json.dumps({"refused": "a\nb" * 1000}).encode())
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) <= 300


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
@pytest.mark.parametrize("encrypted", [True, False])
@pytest.mark.parametrize(("listens", "connects"), [("::1", "::1"), ("::", "127.0.0.1"), ("localhost", "localhost")])
def test_ipv6_and_names_are_listened_on_and_connected_to(tmp_path, encrypted, listens, connects):
    if encrypted:
        pytest.importorskip("cryptography")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no ::1")
    certificates = write_certificates(tmp_path) if encrypted else None
    listener = Listener(listens, 0, SECRET, acknowledge, certificates=certificates)
    where = connects, listener.address[1]
    channel = authenticated(*where, SECRET, certificates=certificates, hello={})
    assert channel.peer == ("127.0.0.1" if connects == "127.0.0.1" else channel.peer)
    assert channel.peer in ("::1", "127.0.0.1")
    channel.close()
    listener.close()
    assert any_address() in ("::", "0.0.0.0")


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="needs Linux")
def test_a_connection_whose_other_end_acknowledges_nothing_is_ended_by_the_system_idle_or_not():
    listener = PeerListener("127.0.0.1", SECRET)
    with connect_to_peer(listener.address, SECRET, 1, 0) as near:
        far = listener.wait_for(1, 0)
        assert far is not None
        for end in (near, far):
            assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert 0 < end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 30_000
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 10
        far.close()


def test_a_closed_listener_leaves_no_file_open():
    listener = Listener("127.0.0.1", 0, SECRET, acknowledge)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    silent = [socket.create_connection(listener.address) for _ in range(20)]
    channel = connect(*listener.address)
    respond(channel, SECRET)
    listener.close()
    for connection in silent:
        connection.close()
    channel.close()
    if before:
        until(lambda: len(os.listdir("/proc/self/fd")) < before + 3)
