"""Process groups of two behind the transport: what one end sends the other gets, and every wait can be ended."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from run_helpers import until

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.runtime.worker import group_pairs
from dtfm_lab.runtime.worker.group_pairs import GlooBackend, GroupCarrier, GroupWire, PairStore
from dtfm_lab.runtime.worker.processors import CpuProcessor, HostBuffer
from dtfm_lab.runtime.worker.transport import Aborted, PeerListener, Transport, connect_to_peer

SECRET = "0" * 64
PATIENCE_S = 60.0
STATE = Action(0, Kind.RECV_P)


def sockets(host: str = "127.0.0.1") -> tuple[socket.socket, socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listening:
        one = socket.create_connection(listening.getsockname()[:2])
        return one, listening.accept()[0]


def carrier(host: str = "127.0.0.1", **options: object) -> GroupCarrier:
    return GroupCarrier(GlooBackend(host, CpuProcessor()), **options)


def open_both(
    ends: tuple[socket.socket, socket.socket], one: GroupCarrier, other: GroupCarrier, secrets: tuple[str, str]
) -> tuple[GroupWire, GroupWire]:
    with ThreadPoolExecutor(2) as pool:
        sends = pool.submit(one.open, ends[0], secrets[0], (0, 1), sends=True)
        receives = pool.submit(other.open, ends[1], secrets[1], (0, 1), sends=False)
        return sends.result(PATIENCE_S), receives.result(PATIENCE_S)


@contextlib.contextmanager
def pair(host: str = "127.0.0.1") -> Iterator[tuple[GroupWire, GroupWire, tuple[socket.socket, socket.socket]]]:
    ends = sockets(host)
    with ends[0], ends[1]:
        wires = open_both(ends, carrier(host), carrier(host), (SECRET, SECRET))
        yield *wires, ends


def content(*values: int) -> HostBuffer:
    return HostBuffer(torch.tensor(values, dtype=torch.uint8))


def listening() -> set[tuple[str, int]]:
    """Addresses and ports at which this process listens, by its own descriptors."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as one:
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                found.add(one.getsockname()[:2])
    return found


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_contents_of_all_sizes_come_as_they_were_sent_after_their_headers(host: str) -> None:
    with pair(host) as (sends, receives, (_, received)):
        sizes = [0, 1, 3_000_000, 7]
        made = [torch.randint(0, 256, (n,), dtype=torch.uint8) for n in sizes]
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(lambda: [sends.send(b"header", HostBuffer(each)) for each in made])
            for wanted in made:
                assert received.recv(6, socket.MSG_WAITALL) == b"header"
                assert torch.equal(receives.receive(wanted.numel()).wait(), wanted)
            sending.result(PATIENCE_S)


def test_a_group_listens_at_the_address_of_its_run_only() -> None:
    before = listening()
    with pair("127.0.0.1"):
        assert {address for address, _ in listening() - before} == {"127.0.0.1"}


def test_an_end_that_does_not_hold_the_secret_gets_no_content() -> None:
    ends = sockets()
    one, other = carrier(connect_s=PATIENCE_S), carrier(connect_s=3.0)
    with ends[0], ends[1], pytest.raises(ConnectionError, match=r"another than worker [01] is at the other end"):
        open_both(ends, one, other, (SECRET, "1" * 64))


def test_a_rendezvous_with_somebody_who_says_nothing_or_something_else_ends_in_one_line() -> None:
    for said, why in [
        (None, "which said nothing for 1 s"),
        (b'{"key": 3}\n', "which speaks another protocol"),
        (b'{"key": "nonce 1", "value": "' + b"00" * 20_000 + b'"}\n', "which set keys that no rendezvous has"),
        (b"", "which closed the connection"),
    ]:
        one, other = sockets()
        with one:
            if said:
                other.sendall(said)
            elif said is not None:
                other.close()
            with pytest.raises(ConnectionError, match=f"^worker 0 made no process group with worker 1, {why}$"):
                carrier(connect_s=1.0).open(one, SECRET, (0, 1), sends=True)
            other.close()


def test_the_store_leaves_what_follows_its_keys_to_others() -> None:
    one, other = sockets()
    with one, other:
        ours, theirs = PairStore(one, 5.0), PairStore(other, 5.0)
        ours.set("a", b"\0\1")
        ours.close()
        one.sendall(b"binary")
        assert not theirs.check(["a"])
        assert theirs.get("a") == b"\0\1"
        assert theirs.check(["a"])
        theirs.close()
        assert other.recv(6, socket.MSG_WAITALL) == b"binary"
        theirs.set("b", b"late")  # NCCL's threads may; nobody hears it
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(1)
        one.setblocking(False)
        with pytest.raises(BlockingIOError):
            one.recv(1)


def test_a_transfer_that_takes_too_long_names_both_ends_bytes_and_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    with pair() as (_sends, receives, _):
        monkeypatch.setattr(group_pairs, "LEAST_TRANSFER_S", 0.2)
        with pytest.raises(ConnectionError) as late:
            receives.receive(12_500)
    assert re.fullmatch(r"worker 1 did not receive 12,500 bytes from worker 0 within 0 s", str(late.value))


@pytest.mark.parametrize("sending", [False, True])
def test_an_aborted_transfer_ends_at_once_and_frees_its_memory(sending: bool) -> None:
    with pair() as (sends, receives, _):
        held: list[weakref.ref[torch.Tensor]] = []

        def work() -> str:
            big = torch.zeros(50_000_000, dtype=torch.uint8)
            held.append(weakref.ref(big))
            try:
                if sending:
                    sends.send(b"", HostBuffer(big))
                else:
                    receives._backend.empty = lambda n: big  # type: ignore[method-assign]
                    receives.receive(50_000_000)
            except ConnectionError as error:
                return str(error)
            return "done"

        wire = sends if sending else receives
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(work)
            until(lambda: bool(held))
            time.sleep(0.2)
            assert not waiting.done()
            wire.abort()
            assert "did not" in waiting.result(PATIENCE_S / 4)
        with pytest.raises(ConnectionError, match="was given up"):
            wire._transfer("receive", torch.zeros(1, dtype=torch.uint8), 0)
        if not sending:
            del receives._backend.empty
        del work
        gc.collect()
        until(lambda: held[0]() is None)


def test_aborts_race_sends_without_harm() -> None:
    """Whenever it comes, the abort ends the sender by ConnectionError and nothing else."""
    for wait_s in (0.0, 0.0005, 0.002, 0.005):
        with pair() as (sends, receives, _):

            def send() -> None:
                while True:
                    sends.send(b"", content(*range(100)))

            def receive() -> None:
                while True:
                    receives.receive(100)

            with ThreadPoolExecutor(2) as pool:
                both = pool.submit(send), pool.submit(receive)
                time.sleep(wait_s)
                with ThreadPoolExecutor(3) as aborting:
                    for _ in range(3):
                        aborting.submit(sends.abort)
                receives.abort()
                for each in both:
                    with pytest.raises(ConnectionError):
                        each.result(PATIENCE_S)


STOPPED_PEER = """
import sys, time, torch
from dtfm_lab.runtime.worker.group_pairs import GlooBackend, GroupCarrier
from dtfm_lab.runtime.worker.transport import PeerListener, connect_to_peer
from dtfm_lab.runtime.worker.processors import CpuProcessor
from dtfm_lab.runtime.worker.transport import Transport
listener = PeerListener("127.0.0.1", sys.argv[1])
carrier = GroupCarrier(GlooBackend("127.0.0.1", CpuProcessor()))
transport = Transport(listener, sys.argv[1], 1, 1, [], {0: ("127.0.0.1", int(sys.argv[2]))}, None, carrier)
transport.wait_connected()
from dtfm_lab.domain.schedule import Action, Kind
print("connected", flush=True)
transport.send(0, 0, Action(0, Kind.RECV_P), torch.zeros(1 << 28, dtype=torch.uint8))
time.sleep(600)
"""


def test_a_peer_that_stops_in_the_middle_of_a_content_holds_up_neither_the_abort_nor_the_next_epoch() -> None:
    listener = PeerListener("127.0.0.1", SECRET)
    other = PeerListener("127.0.0.1", SECRET)
    groups = carrier()
    command = [sys.executable, "-c", STOPPED_PEER, SECRET, str(listener.address[1])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as peer:
        try:
            first = Transport(listener, SECRET, 1, 0, [1], {}, None, groups)
            first.wait_connected()
            assert peer.stdout is not None
            assert peer.stdout.readline() == "connected\n"
            peer.send_signal(signal.SIGSTOP)
            threads = threading.active_count()
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(first.receive, 0, STATE)
                time.sleep(0.2)
                assert not waiting.done()
                first.abort()
                with pytest.raises(Aborted):
                    waiting.result(PATIENCE_S / 4)
            until(lambda: threading.active_count() < threads)
            dropped = weakref.ref(first)
            del first, waiting
            until(lambda: gc.collect() >= 0 and dropped() is None)
            ours = Transport(listener, SECRET, 2, 0, [2], {2: other.address}, None, groups)
            theirs = Transport(other, SECRET, 2, 2, [0], {0: listener.address}, None, carrier())
            for transport in (ours, theirs):
                transport.wait_connected()
            ours.send(2, 0, STATE, torch.arange(5))
            assert theirs.receive(0, STATE).content.view(torch.int64).tolist() == [0, 1, 2, 3, 4]
            ours.flush()
            for transport in (ours, theirs):
                transport.abort()
        finally:
            peer.kill()


def test_a_connection_that_comes_after_a_failure_does_not_hide_it() -> None:
    listener = PeerListener("127.0.0.1", SECRET)
    transport = Transport(listener, SECRET, 1, 0, [2], {1: ("127.0.0.1", 70000)})
    with pytest.raises(LabError, match="port 70000 is out of range"):
        transport.wait_connected()
    late = connect_to_peer(listener.address, SECRET, 1, 2)
    late.settimeout(PATIENCE_S)
    assert late.recv(1) == b""
    assert not transport.aborted
    with pytest.raises(LabError, match="port 70000 is out of range"):
        transport.wait_connected()
    transport.abort()


def test_a_stranger_at_gloos_port_gets_nothing_and_ends_nothing() -> None:
    before = listening()
    backend = GlooBackend("127.0.0.1", CpuProcessor())
    strangers = []
    for _, port in listening() - before:
        for said in (b"", b"GET / HTTP/1.0\r\n\r\n", os.urandom(64)):
            stranger = socket.create_connection(("127.0.0.1", port))
            stranger.sendall(said)
            strangers.append(stranger)
    ends = sockets()
    with ends[0], ends[1]:
        sends, receives = open_both(ends, GroupCarrier(backend), carrier(), (SECRET, SECRET))
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(sends.send, b"", content(1, 2))
            assert receives.receive(2).wait().tolist() == [1, 2]
            sending.result(PATIENCE_S)
    for stranger in strangers:
        stranger.close()
