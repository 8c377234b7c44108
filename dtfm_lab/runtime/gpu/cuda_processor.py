"""A GPU as a worker's processor: three streams, receive, compute and send, with events between them (DT-FM, section 5).

Not yet run on a GPU; the order of copies, waits and memory's release is tested with streams that only take notes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch


class CudaProcessor:
    """Made by the thread that computes: all that this thread does from then on is on the compute stream.

    Busy seconds are between two events on that stream. Memory of torch's caching allocator belongs to the stream it
    was asked for on: who uses it on another says so (``record_stream``), or waits on the host until that use is over.
    """

    def __init__(self, index: int, *, shares: bool) -> None:
        self.device = torch.device("cuda", index)
        _repeatably()
        torch.cuda.set_device(self.device)
        self._receive, self._compute, self._send = (torch.cuda.Stream(self.device) for _ in range(3))
        torch.cuda.set_stream(self._compute)
        # where others wait for this GPU, waiting must not burn the cores that they need
        self._began, self._ended = (torch.cuda.Event(enable_timing=True, blocking=shares) for _ in range(2))
        self._turns = TakingTurns(self._name()) if shares else None

    def timed(self, work: Callable[[], None]) -> tuple[float, float]:
        """As ``Processor.timed``; waiting for other workers' turns is wall time, not busy time."""
        wall_s = time.monotonic()
        with self._turns.turn() if self._turns else contextlib.nullcontext():
            self._began.record(self._compute)
            work()
            self._ended.record(self._compute)
            self._ended.synchronize()  # a span needs the moment of its end, and a turn is over when the GPU is idle
        return time.monotonic() - wall_s, self._began.elapsed_time(self._ended) / 1e3

    def buffer(self, n_bytes: int) -> torch.Tensor:
        """Pinned, or copies would wait for each other; torch keeps a pool, and none is reused while a copy needs it."""
        return torch.empty(n_bytes, dtype=torch.uint8, pin_memory=True)

    def leaving(self, content: torch.Tensor) -> CudaLeaving:
        return CudaLeaving(content.clone(), self._compute.record_event(), self._send, self.buffer)

    def arriving(self, host: torch.Tensor) -> CudaArriving:
        with torch.cuda.stream(self._receive):
            content = torch.empty(host.numel(), dtype=torch.uint8, device=self.device)
            content.copy_(host, non_blocking=True)
            return CudaArriving(content, self._receive.record_event())

    def _name(self) -> str:
        properties = torch.cuda.get_device_properties(self.device)
        return str(getattr(properties, "uuid", self.device.index))


def _repeatably() -> None:
    """Before CUDA begins: sums in a fixed order, for an iteration done anew after a loss must give the same bits."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or cuBLAS may choose another way to sum each time
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False


class CudaLeaving:
    """A copy on the GPU, and the event after which it is whole. It stays until the way out is over."""

    def __init__(
        self,
        content: torch.Tensor,
        whole: torch.cuda.Event,
        send: torch.cuda.Stream,
        buffer: Callable[[int], torch.Tensor],
    ) -> None:
        self.content, self.whole = content, whole
        self._send, self._buffer = send, buffer

    def host(self) -> torch.Tensor:
        packet = self._buffer(self.content.numel())
        with torch.cuda.stream(self._send):
            self._send.wait_event(self.whole)
            packet.copy_(self.content, non_blocking=True)
            out = torch.cuda.Event(blocking=True)
            out.record(self._send)
        out.synchronize()
        return packet


class CudaArriving:
    """Content that another stream writes, and the event after which it is whole."""

    def __init__(self, content: torch.Tensor, whole: torch.cuda.Event) -> None:
        self._content, self._whole = content, whole

    def ready(self) -> torch.Tensor:
        compute = torch.cuda.current_stream(self._content.device)
        compute.wait_event(self._whole)
        # or the receive stream would get this memory back before what computes with it has run
        self._content.record_stream(compute)
        return self._content


class TakingTurns:
    """One process of this user at a time, by a lock that the system takes back from whoever dies."""

    def __init__(self, name: str) -> None:
        self.path = Path(tempfile.gettempdir()) / f"dtfm_lab-{os.getuid()}-{name}.lock"
        self._file = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
