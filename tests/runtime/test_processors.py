"""What a worker computes on: a CPU's processor by what it does, a GPU's by the order in which it asks for things."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from cuda_order import ordered

from dtfm_lab.domain.errors import RunError
from dtfm_lab.runtime.gpu.cuda_processor import CudaProcessor, GpuLock
from dtfm_lab.runtime.worker.processors import CpuProcessor, make_processor


def content(n: int = 1000) -> torch.Tensor:
    return torch.arange(n).to(torch.uint8)


def test_a_cpu_is_busy_while_it_computes_and_not_while_it_waits():
    wall_s, busy_s = CpuProcessor().timed(lambda: time.sleep(0.05))
    assert wall_s >= 0.05
    assert 0 <= busy_s < wall_s
    done = []
    wall_s, busy_s = CpuProcessor().timed(lambda: done.append(sum(range(10**6))))
    assert done
    assert busy_s > 0


def test_what_leaves_is_what_was_there_when_it_was_handed_over():
    cpu, sent = CpuProcessor(), content()
    buffer = cpu.send_buffer(sent)
    sent.zero_()
    assert torch.equal(buffer.to_host(), content())


def test_a_cpu_brings_nothing_in_that_is_there():
    host = CpuProcessor().host_buffer(100)
    assert (host.dtype, host.shape) == (torch.uint8, (100,))
    assert CpuProcessor().receive_buffer(host).wait() is host


def test_without_a_gpu_there_is_a_cpu_and_a_refusal():
    assert isinstance(make_processor("cpu", 3, True), CpuProcessor)
    if not torch.cuda.is_available():
        with pytest.raises(RunError, match="sees no GPU in a worker"):
            make_processor("cuda", 0, False)


def test_workers_take_gpus_in_turn(monkeypatch):
    with ordered(monkeypatch), monkeypatch.context() as patch:
        asked = []
        patch.setattr(torch.cuda, "device_count", lambda: 2)
        patch.setattr(torch, "device", lambda kind, index: asked.append((kind, index)) or "gpu")
        for rank in range(5):
            make_processor("cuda", rank)
        assert asked == [("cuda", 0), ("cuda", 1), ("cuda", 0), ("cuda", 1), ("cuda", 0)]


def test_loading_the_processors_does_not_begin_cuda():
    code = (
        "import torch, sys, dtfm_lab.runtime.worker.codec\n"
        "import dtfm_lab.runtime.gpu.cuda_processor, dtfm_lab.runtime.worker.group_pairs\n"
        "print(torch.cuda.is_initialized(), 'cupy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split() == [
        "False",
        "False",
    ]


def test_workers_that_share_a_gpu_compute_one_at_a_time():
    busy, most = [], []
    name = f"test-{os.getpid()}"

    def compute() -> None:
        lock = GpuLock(name)
        for _ in range(20):
            with lock.held():
                busy.append(1)
                most.append(len(busy))
                time.sleep(0.0005)
                busy.pop()

    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(compute)
    assert most == [1] * 80
    GpuLock(name).path.unlink()


def test_a_turn_ends_with_whoever_dies_in_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    lock = GpuLock("dying")
    context = multiprocessing.get_context("fork")
    began = context.Event()

    def hold() -> None:
        with GpuLock("dying").held():
            began.set()
            time.sleep(60)

    other = context.Process(target=hold)
    other.start()
    assert began.wait(timeout=120)
    with lock.path.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    other.kill()
    with lock.held():
        other.join()
    assert other.exitcode == -signal.SIGKILL


def test_a_shared_gpu_is_timed_within_a_turn_and_left_idle(monkeypatch):
    with ordered(monkeypatch) as cuda, cuda.host("computing"):
        gpu = CudaProcessor(0, shares=True)
        assert gpu.lock is not None
        other = os.open(gpu.lock.path, os.O_RDWR)

        def work() -> None:
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)

        gpu.timed(work)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert cuda.host_timeline().knows(gpu._compute.name, gpu._compute.clock[gpu._compute.name])
        gpu.lock.path.unlink()


def test_a_planted_link_in_place_of_the_lock_is_refused_and_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"dtfm_lab-{os.getuid()}-planted.lock").symlink_to(tmp_path / "target")
    with pytest.raises(RunError, match=r"the GPU's lock .*planted.lock cannot be used"):
        GpuLock("planted")
    assert not (tmp_path / "target").exists()
