"""Pairs of GPUs by an NCCL that was made up: what one end sends the other gets, on the pair's own stream."""

from __future__ import annotations

import ctypes
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from fake_cuda import without_gpu
from hypothesis import given
from hypothesis import strategies as st

from dtfm_lab.domain.errors import MissingExtra, RunError
from dtfm_lab.runtime.coordinator.coordinator import refuse_shared_gpus
from dtfm_lab.runtime.gpu import nccl
from dtfm_lab.runtime.gpu.cuda_processor import CudaSendBuffer
from dtfm_lab.runtime.gpu.nccl import RECEIVER, SENDER, UINT8, NcclPairs


class FakeNccl:
    """Connects the two ends of each id in memory, as NCCL does through the network."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._barriers: dict[bytes, threading.Barrier] = {}
        self._wires: dict[bytes, queue.Queue[bytes | None]] = {}
        self.communicators: list[FakeCommunicator] = []

    def connect(self, n_ranks: int, unique_id: bytes, rank: int) -> FakeCommunicator:
        assert n_ranks == 2
        with self._lock:
            barrier = self._barriers.setdefault(unique_id, threading.Barrier(2))
            wire = self._wires.setdefault(unique_id, queue.Queue())
        barrier.wait(timeout=10)
        self.communicators.append(communicator := FakeCommunicator(unique_id, rank, wire))
        return communicator


class FakeCommunicator:
    """NCCL's calls by address, as CuPy has them."""

    def __init__(self, unique_id: bytes, rank: int, wire: queue.Queue[bytes | None]) -> None:
        self.unique_id, self._rank, self._wire = unique_id, rank, wire
        self.streams: list[int] = []

    def send(self, address: int, count: int, datatype: int, peer: int, stream: int) -> None:
        assert (self._rank, peer, datatype) == (SENDER, RECEIVER, UINT8)
        self.streams.append(stream)
        self._wire.put(ctypes.string_at(address, count))

    def recv(self, address: int, count: int, datatype: int, peer: int, stream: int) -> None:
        assert (self._rank, peer, datatype) == (RECEIVER, SENDER, UINT8)
        self.streams.append(stream)
        if (came := self._wire.get(timeout=10)) is None:
            raise RuntimeError("NCCL_ERROR_REMOTE_ERROR")
        assert len(came) == count
        ctypes.memmove(address, came, count)

    def abort(self) -> None:
        self._wire.put(None)


CPU = torch.device("cpu")


def ids_of(pairs: list[tuple[int, int]]) -> dict[tuple[int, int], bytes]:
    return {pair: repr(pair).encode().ljust(128) for pair in pairs}


def meet(n_ranks: int, ids: dict[tuple[int, int], bytes], fake: FakeNccl | None = None) -> list[NcclPairs]:
    fake = fake or FakeNccl()
    with ThreadPoolExecutor(n_ranks) as pool:
        made = [pool.submit(NcclPairs, rank, ids, CPU, fake.connect) for rank in range(n_ranks)]
        return [pairs.result(timeout=20) for pairs in made]


@pytest.fixture
def notes(monkeypatch):
    with without_gpu(monkeypatch) as notes:
        yield notes


def send_buffer(content: list[int]) -> CudaSendBuffer:
    stream = torch.cuda.Stream()
    on_gpu = torch.tensor(content, dtype=torch.uint8)
    return CudaSendBuffer(on_gpu, stream.record_event(), stream, lambda n: torch.empty(n))


def test_contents_come_in_order_on_a_stream_of_each_pair(notes):
    ids = ids_of([(0, 1), (1, 0), (0, 2)])
    zero, one, two = meet(3, ids, fake := FakeNccl())
    for i in range(3):
        zero.send(1, send_buffer([i, i + 1]))
        zero.send(2, send_buffer([9]))
    one.send(0, send_buffer([7, 7, 7]))
    assert [one.receive(0, 2).wait().tolist() for _ in range(3)] == [[0, 1], [1, 2], [2, 3]]
    assert zero.receive(1, 3).wait().tolist() == [7, 7, 7]
    assert two.receive(0, 1).wait().tolist() == [9]
    used = [set(communicator.streams) for communicator in fake.communicators]
    assert len(set().union(*used)) == sum(map(len, used)) == 6


def test_a_content_is_sent_when_it_is_whole_and_handed_over_when_it_is_there(notes):
    sender, receiver = meet(2, ids_of([(0, 1)]))
    going = send_buffer([1, 2, 3])
    del notes[:]
    sender.send(1, going)
    waited, (_, on, out), synchronised = notes
    assert waited == ("wait", on, going.written.name)
    assert synchronised == ("synchronise", out)
    del notes[:]
    arriving = receiver.receive(0, 3)
    allocated, (_, on, there), synchronised = notes
    assert allocated == ("allocate", on)
    assert synchronised == ("synchronise", there)
    del notes[:]
    compute = torch.cuda.current_stream().name
    assert arriving.wait().tolist() == [1, 2, 3]
    assert notes == [("wait", compute, there), ("used on", compute)]


def test_a_message_without_content_asks_nothing_of_nccl(notes):
    sender, receiver = meet(2, ids_of([(0, 1)]))
    sender.send(1, send_buffer([]))
    assert receiver.receive(0, 0).wait().tolist() == []


def test_aborted_pairs_end_all_waiting(notes):
    sender, receiver = meet(2, ids_of([(0, 1)]))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(receiver.receive, 0, 3)
        receiver.abort()
        with pytest.raises(ConnectionError):
            waiting.result(timeout=10)
    sender.abort()
    with pytest.raises(ConnectionError, match="given up"):
        sender.send(1, send_buffer([1]))
    with pytest.raises(ConnectionError, match="given up"):
        receiver.receive(0, 1)


@given(st.data(), st.integers(2, 6))
def test_any_pairs_of_any_ranks_meet(data, n_ranks):
    every = [(a, b) for a in range(n_ranks) for b in range(n_ranks) if a != b]
    pairs = data.draw(st.lists(st.sampled_from(every), unique=True))
    with pytest.MonkeyPatch.context() as patch, without_gpu(patch):
        meet(n_ranks, ids_of(pairs), fake := FakeNccl())
    assert sorted(one.unique_id for one in fake.communicators) == sorted([*ids_of(pairs).values()] * 2)


def test_two_ranks_on_one_gpu_are_refused():
    refuse_shared_gpus(["GPU-a", "GPU-b", "GPU-c"])
    with pytest.raises(RunError, match="workers 0, 2 are on one GPU, GPU-a; NCCL wants a GPU for each") as error:
        refuse_shared_gpus(["GPU-a", "GPU-b", "GPU-a"])
    assert "\n" not in str(error.value)


def test_more_pairs_than_streams_are_refused(notes):
    with pytest.raises(RunError, match="worker 0 has 33 pairs to send or receive on; wanted at most 32"):
        NcclPairs(0, ids_of([(0, i + 1) for i in range(33)]), CPU, FakeNccl().connect)


def test_without_cupy_nccl_is_not_there_and_says_so(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    assert not nccl.available()
    with pytest.raises(MissingExtra, match="not installed"):
        nccl.new_ids(0, [1])
