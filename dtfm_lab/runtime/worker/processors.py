"""What a worker computes on: how its work is timed, and how bytes get to it and away from it.

Whoever computes, sends or receives asks a ``Processor``; a CPU's costs nothing, a GPU's hides streams, events and
pinned memory. Nothing here touches a GPU before ``make_processor`` does, in the worker itself: a process that was
forked after CUDA began could not use it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import torch

from dtfm_lab.domain.errors import RunError


class Leaving(Protocol):
    """Content as it was when it was handed over, on its way out; for the thread that sends."""

    def host(self) -> torch.Tensor:
        """(bytes,) uint8 in host memory, whole on return."""


class Arriving(Protocol):
    """Content on its way in."""

    def ready(self) -> torch.Tensor:
        """(bytes,) uint8 on the processor, for the thread that computes: what it computes next finds it whole."""


class Processor(Protocol):
    """Called by three kinds of thread: one computes, others send and receive."""

    device: torch.device

    def timed(self, work: Callable[[], None]) -> tuple[float, float]:
        """Do the work, to its end; (wall_s, busy_s): how long it took, and how long this processor was busy with it."""

    def buffer(self, n_bytes: int) -> torch.Tensor:
        """(n_bytes,) uint8 in host memory, for a message; one message's only."""

    def leaving(self, content: torch.Tensor) -> Leaving:
        """By the thread that computes: (bytes,) uint8 is to go out as it is now, whatever is computed later."""

    def arriving(self, host: torch.Tensor) -> Arriving:
        """By the thread that receives: bring (bytes,) uint8 from a ``buffer`` in."""


class CpuProcessor:
    """One thread of this machine's CPU: busy is that thread's own CPU time, which crowded cores do not stretch."""

    device = torch.device("cpu")

    def timed(self, work: Callable[[], None]) -> tuple[float, float]:
        wall_s, busy_s = time.monotonic(), time.thread_time()
        work()
        return time.monotonic() - wall_s, time.thread_time() - busy_s

    def buffer(self, n_bytes: int) -> torch.Tensor:
        return torch.empty(n_bytes, dtype=torch.uint8)

    def leaving(self, content: torch.Tensor) -> OnHost:
        return OnHost(content.clone())

    def arriving(self, host: torch.Tensor) -> OnHost:
        return OnHost(host)


class OnHost:
    """Content that is where it has to be already: ``Leaving`` and ``Arriving`` of a CPU."""

    __slots__ = ("_content",)

    def __init__(self, content: torch.Tensor) -> None:
        self._content = content

    def host(self) -> torch.Tensor:
        return self._content

    def ready(self) -> torch.Tensor:
        return self._content


def make_processor(runs_on: str, local_rank: int = 0, shares: bool = False) -> Processor:
    """What worker ``local_rank`` of this machine computes on; to be called by the thread that will compute.

    Parameters
    ----------
    runs_on
        One of ``run_options.RUNS_ON``.
    local_rank
        Workers take the machine's GPUs in turn.
    shares
        Other workers compute on the same GPU, and seconds are not wall time: one computes at a time.

    Raises
    ------
    RunError
        torch sees no GPU.
    """
    if runs_on == "cpu":
        return CpuProcessor()
    assert runs_on == "cuda"
    if not torch.cuda.is_available():
        raise RunError(
            f"runs_on is cuda, but torch {torch.__version__} sees no GPU in a worker; "
            "`dtfm-lab doctor` says why, runs_on='cpu' runs without"
        )
    from dtfm_lab.runtime.gpu.cuda_processor import CudaProcessor

    return CudaProcessor(local_rank % torch.cuda.device_count(), shares=shares)
