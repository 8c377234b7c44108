"""NCCL's process groups for ``group_pairs``: contents go from GPU to GPU. Not yet run on a GPU.

A group has its own communicator and stream. Its sender posts only what is computed, and its receiver only what was
announced, so no NCCL kernel waits on a GPU for a message that has yet to be computed: that would block whatever waits
for the whole GPU (freeing memory, loading a kernel). Real clock only, a GPU for each worker.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Protocol, cast

import torch
from torch._C._distributed_c10d import Store

from dtfm_lab.domain.errors import RunError
from dtfm_lab.runtime.gpu.cuda_processor import CudaReceiveBuffer, CudaSendBuffer, new_event, new_stream

STREAMS = 32
"""Streams of one priority that torch makes. NCCL's are of high priority, those of computations and of this module of
normal one; further groups would share one, and one pair could delay another."""
WATCHED_BY_US = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_ENABLE_MONITORING": "0"}
"""The watchdog of torch would end the process of a worker whose peer was lost; here the transport aborts groups."""


class Work(Protocol):
    """The used part of ``torch.distributed.Work``."""

    def wait(self, timeout: timedelta = ..., /) -> bool: ...


class ProcessGroup(Protocol):
    """The used part of a process group: of ProcessGroupGloo, of ProcessGroupNCCL, or of a stand-in in tests."""

    def send(self, tensors: list[torch.Tensor], rank: int, tag: int, /) -> Work: ...

    def recv(self, tensors: list[torch.Tensor], rank: int, tag: int, /) -> Work: ...

    def abort(self) -> None: ...


class NcclBackend:
    """Groups over one GPU. ``make_group`` is ProcessGroupNCCL where it is not given."""

    def __init__(
        self, device: torch.device, make_group: Callable[[Store, int, int, timedelta], ProcessGroup] | None = None
    ) -> None:
        self._device = device
        self._make_group = make_group or _nccl_group
        self._streams: dict[tuple[int, int], torch.cuda.Stream] = {}
        self._uuid = str(torch.cuda.get_device_properties(device).uuid)

    def make(self, store: Store, rank: int, connect_s: float) -> ProcessGroup:
        """Raises RunError where both ends are on one GPU, which NCCL refuses, or where torch has no NCCL."""
        torch.cuda.set_device(self._device)  # of the pair's thread
        store.set(f"gpu {rank}", self._uuid)
        if store.get(f"gpu {1 - rank}").decode() == self._uuid:
            raise RunError(
                f"two workers that send to each other are on one GPU, {self._uuid}; NCCL wants a GPU for each: "
                "fewer workers, clock='virtual', where they take turns, or carrier='sockets'"
            )
        return self._make_group(store, rank, 2, timedelta(seconds=connect_s))

    def interrupt(self, group: ProcessGroup) -> None:
        """Abort the group's communicator, which ends NCCL's kernels early."""
        group.abort()

    def on_stream(self, pair: tuple[int, int]) -> AbstractContextManager[None]:
        """The group's stream waits for the current one and the other way round: one for each pair, or pairs that
        have nothing to do with each other would wait for each other."""
        if pair not in self._streams:
            if len(self._streams) == STREAMS:
                raise RunError(
                    f"a worker has more than {STREAMS} pairs to send or receive on; wanted at most {STREAMS}"
                )
            self._streams[pair] = new_stream(self._device)
        return cast(AbstractContextManager[None], torch.cuda.stream(self._streams[pair]))

    def whole(self, buffer: CudaSendBuffer) -> torch.Tensor:
        buffer.written.synchronize()  # before it is announced
        return buffer.content

    def empty(self, n_bytes: int) -> torch.Tensor:
        return torch.empty(n_bytes, dtype=torch.uint8, device=self._device)

    def received(self, content: torch.Tensor) -> CudaReceiveBuffer:
        done = new_event()
        done.record(torch.cuda.current_stream(self._device))
        return CudaReceiveBuffer(content, done)


def _nccl_group(store: Store, rank: int, size: int, timeout: timedelta) -> ProcessGroup:
    try:
        from torch._C._distributed_c10d import ProcessGroupNCCL
    except ImportError:
        raise RunError(f"torch {torch.__version__} was built without NCCL; wanted carrier='sockets'") from None
    os.environ.update(WATCHED_BY_US)
    options: Any = ProcessGroupNCCL.Options()
    options._timeout, options.is_high_priority_stream = timeout, True
    return cast(ProcessGroup, ProcessGroupNCCL(store, rank, size, options))
