"""The hardware that a worker computes on: how its work is timed, and how messages are copied to and from it.

A CPU needs no copies. A GPU uses streams, events and pinned memory. Nothing here initialises CUDA before
``make_processor`` does so in the worker itself, because a process forked after CUDA was initialised could not use it.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable

import torch

from dtfm_lab.domain.errors import RunError
from dtfm_lab.runtime.gpu.cuda_processor import CudaProcessor, CudaReceiveBuffer, CudaSendBuffer

MALLOC = {-1: 2**31 - 1, -2: 2**26, -3: 2**25}
"""Bytes for glibc's M_TRIM_THRESHOLD, M_TOP_PAD and M_MMAP_THRESHOLD. glibc does not accept more for the last."""


def keep_freed_memory() -> None:
    """Make this process keep the memory that it frees for its next tensors, if its allocator is glibc's.

    Otherwise glibc may return the end of its heap to the system and take fresh pages for the next tensor. Whether it
    does depends on where other blocks happen to lie. The same computation then took a fifth longer in some iterations
    than in others, and in training than in calibration. Four workers of a small U-Net had 4,200 page faults per
    iteration, and 80 with these settings (see mallopt(3)).
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        for parameter, n_bytes in MALLOC.items():
            mallopt(parameter, n_bytes)


class CpuProcessor:
    """One thread of this machine's CPU. Busy seconds are that thread's CPU time, so waiting for a core does not count.

    The thread that computes uses it, and so do the threads that send and receive.
    """

    device = torch.device("cpu")

    def timed(self, work: Callable[[], None]) -> tuple[float, float]:
        """Do the work to its end. Return its wall seconds, and the seconds for which this processor was busy with
        it."""
        wall_s, busy_s = time.monotonic(), time.thread_time()
        work()
        return time.monotonic() - wall_s, time.thread_time() - busy_s

    def host_buffer(self, n_bytes: int) -> torch.Tensor:
        """Return (n_bytes,) uint8 in host memory, for one message."""
        return torch.empty(n_bytes, dtype=torch.uint8)

    def send_buffer(self, content: torch.Tensor) -> HostBuffer:
        """Copy (bytes,) uint8 for sending, so that later computations do not change it. Called by the computing
        thread."""
        return HostBuffer(content.clone())

    def receive_buffer(self, host: torch.Tensor) -> HostBuffer:
        """Bring (bytes,) uint8 from a ``host_buffer`` to the processor. Called by a receiver thread."""
        return HostBuffer(host)


class HostBuffer:
    """A message that a CPU sends or has received. It is complete and in host memory from the start."""

    __slots__ = ("_content",)

    def __init__(self, content: torch.Tensor) -> None:
        self._content = content

    def to_host(self) -> torch.Tensor:
        """Return (bytes,) uint8 in host memory, complete on return. Called by a sender thread."""
        return self._content

    def wait(self) -> torch.Tensor:
        """Return (bytes,) uint8 on the processor, complete for everything that the calling thread computes next.

        The calling thread is the computing one.
        """
        return self._content


Processor = CpuProcessor | CudaProcessor
SendBuffer = HostBuffer | CudaSendBuffer
ReceiveBuffer = HostBuffer | CudaReceiveBuffer


def make_processor(runs_on: str, local_rank: int = 0, shares: bool = False) -> Processor:
    """Return the processor of a worker. Called by the thread that will compute.

    Parameters
    ----------
    runs_on
        One of ``run_options.RUNS_ON``.
    local_rank
        Number of the worker on this machine. Workers take the machine's GPUs in round-robin order.
    shares
        True if other workers may compute on the same GPU. Then one worker computes at a time. False on the real clock,
        whose wall times would include the waiting.

    Raises
    ------
    RunError
        torch finds no GPU.
    """
    if runs_on == "cpu":
        return CpuProcessor()
    assert runs_on == "cuda"
    if not torch.cuda.is_available():
        raise RunError(
            f"runs_on is cuda, but torch {torch.__version__} sees no GPU in a worker; "
            "`dtfm-lab doctor` says why, runs_on='cpu' runs without"
        )
    return CudaProcessor(local_rank % torch.cuda.device_count(), shares=shares)
