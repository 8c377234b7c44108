"""Groups over NCCL, by groups and a ``torch.cuda`` that were made up: what is posted when, on which stream."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import torch
from cuda_order import OrderedCuda, ordered

from dtfm_lab.domain.errors import RunError
from dtfm_lab.runtime.gpu.cuda_processor import CudaSendBuffer
from dtfm_lab.runtime.worker import group_pairs
from dtfm_lab.runtime.worker.group_pairs import GroupCarrier, GroupWire, NcclBackend

SECRET = "0" * 64
PATIENCE_S = 60.0


class FakeNccl:
    """Connects the groups of each pair in memory."""

    def __init__(self) -> None:
        self.lanes: dict[tuple[str, int], queue.Queue[bytes | None]] = {}

    def of(self, pair: str) -> Any:
        return lambda store, rank, size, timeout: FakeGroup(self, pair, rank)


class FakeGroup:
    def __init__(self, nccl: FakeNccl, pair: str, rank: int) -> None:
        self._nccl, self._pair, self._rank = nccl, pair, rank
        for end in (0, 1):
            nccl.lanes.setdefault((pair, end), queue.Queue())
        self.aborted = 0
        self._posting = threading.Lock()

    def send(self, tensors: list[torch.Tensor], rank: int, tag: int) -> FakeWork:
        with self._posting:
            self._nccl.lanes[self._pair, rank].put(tensors[0].numpy().tobytes())
        return FakeWork(lambda: None)

    def recv(self, tensors: list[torch.Tensor], rank: int, tag: int) -> FakeWork:
        def wait() -> None:
            came = self._nccl.lanes[self._pair, self._rank].get(timeout=PATIENCE_S)
            if came is None:
                raise RuntimeError("NCCL communicator was aborted on rank 0.\nmore")
            tensors[0].numpy()[:] = np.frombuffer(came, np.uint8)

        return FakeWork(wait)

    def abort(self) -> None:
        assert self._posting.acquire(blocking=False), "aborted while an operation was being posted"
        self._posting.release()
        self.aborted += 1
        self._nccl.lanes[self._pair, self._rank].put(None)


class FakeWork:
    def __init__(self, wait: Any) -> None:
        self._wait = wait

    def wait(self, timeout: timedelta) -> bool:
        assert timeout > timedelta(0)
        self._wait()
        return True


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[OrderedCuda]:
    with ordered(monkeypatch) as cuda:
        yield cuda


def backend(nccl: FakeNccl, pair: str, uuid: str) -> NcclBackend:
    made = NcclBackend(torch.device("cpu"), nccl.of(pair))
    made._uuid = uuid
    return made


@contextlib.contextmanager
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        with one, listening.accept()[0] as other:
            yield one, other


def open_pair(
    one: socket.socket, other: socket.socket, backends: tuple[NcclBackend, NcclBackend]
) -> tuple[GroupWire, GroupWire]:
    with ThreadPoolExecutor(2) as pool:
        sends = pool.submit(GroupCarrier(backends[0]).open, one, SECRET, (0, 1), sends=True)
        receives = pool.submit(GroupCarrier(backends[1]).open, other, SECRET, (0, 1), sends=False)
        return sends.result(PATIENCE_S), receives.result(PATIENCE_S)


def send_buffer(content: list[int]) -> CudaSendBuffer:
    stream = torch.cuda.Stream()
    on_gpu = torch.tensor(content, dtype=torch.uint8)
    return CudaSendBuffer(on_gpu, stream.record_event(), stream, torch.empty)


def test_every_pair_has_a_stream_of_its_own_which_stays_when_the_group_is_made_anew(cuda: OrderedCuda) -> None:
    made = backend(FakeNccl(), "a", "GPU-0")
    seen = []
    for pair in [(0, 1), (0, 2), (0, 1)]:
        with made.on_stream(pair):
            seen.append(torch.cuda.current_stream().name)  # type: ignore[attr-defined]
    assert seen[0] == seen[2] != seen[1]
    assert torch.cuda.current_stream().name not in seen  # type: ignore[attr-defined]
    for other in range(3, 33):
        made.on_stream((0, other))
    with pytest.raises(RunError, match="more than 32 pairs"):
        made.on_stream((0, 33))


def test_an_abort_ends_what_waits_once_and_whatever_comes_later(cuda: OrderedCuda) -> None:
    nccl = FakeNccl()
    with ends() as (one, other):
        sends, receives = open_pair(one, other, (backend(nccl, "a", "GPU-0"), backend(nccl, "a", "GPU-1")))
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(receives.receive, 3)
            receives.abort()
            with pytest.raises(ConnectionError) as ended:
                waiting.result(PATIENCE_S)
        assert "\n" not in str(ended.value)
        sends.abort()
        sends.abort()
        assert sends._group.aborted == 1  # type: ignore[attr-defined]
        with pytest.raises(ConnectionError, match="was given up"):
            sends.send(b"", send_buffer([1]))


def test_two_ends_on_one_gpu_are_refused_in_one_line(cuda: OrderedCuda) -> None:
    nccl = FakeNccl()
    with (
        ends() as (one, other),
        pytest.raises(RunError, match="on one GPU, GPU-0; NCCL needs one GPU for each") as error,
    ):
        open_pair(one, other, (backend(nccl, "a", "GPU-0"), backend(nccl, "a", "GPU-0")))
    assert "\n" not in str(error.value)


def test_a_torch_without_nccl_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("torch._C._distributed_c10d.ProcessGroupNCCL", raising=False)
    with pytest.raises(RunError, match="was built without NCCL; wanted carrier='sockets'"):
        group_pairs._nccl_group(None, 0, 2, timedelta(seconds=1))  # type: ignore[arg-type]
