"""A GPU as a worker's processor: streams for receiving, computing and sending, and events between them.

DT-FM uses the same three streams (section 5). This code has run on an H200. Tests prove the order of copies, waits
and the release of memory with vector clocks (``tests/runtime/cuda_order.py``).

Sums have a fixed order, because an iteration repeated after a loss must give the same bits. In
scaled_dot_product_attention, flash attention and memory-efficient attention have deterministic backward passes only if
``warn_only`` is False. The backward pass of cuDNN has no deterministic form and is not chosen then (torch 2.13:
``aten/src/ATen/native/transformers/cuda/attention_backward.cu`` and ``sdp_utils.cpp``, ``check_cudnn_deterministic``).
The library cuBLAS reads the sizes of its workspaces once, when CUDA starts (cuBLAS, "Results reproducibility").
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from dtfm_lab.domain.errors import RunError
from dtfm_lab.runtime.protocol.locks import open_lock

VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES = (":4096:8", ":16:8")
"""Values of CUBLAS_WORKSPACE_CONFIG with which cuBLAS always sums in the same order."""
NO_FORM = re.compile(r"(\S+) does not have a deterministic implementation")


class CudaProcessor:
    """One GPU. The computing thread creates this object. From then on, all that the thread does is on the compute
    stream.

    Busy seconds are the seconds between two events on that stream. Memory of torch's caching allocator belongs to the
    stream on which it was allocated. If another stream uses it too, that is declared (``record_stream``), or the host
    waits until that stream is done.
    """

    def __init__(self, index: int, *, shares: bool) -> None:
        """``shares``: True if other workers compute on the same GPU, one at a time."""
        self.device = torch.device("cuda", index)
        make_deterministic()
        torch.cuda.set_device(self.device)
        self._receive, self._compute, self._send = (new_stream(self.device) for _ in range(3))
        torch.cuda.set_stream(self._compute)
        # on a shared GPU a waiting host must not burn the cores that other workers need
        self._began, self._ended = (new_event(timing=True, blocking=shares) for _ in range(2))
        self.lock = GpuLock(self._name()) if shares else None
        """Held while this worker computes on a shared GPU."""

    def timed(self, work: Callable[[], None]) -> tuple[float, float]:
        """Time work as ``CpuProcessor.timed`` does. Waiting for the lock counts as wall time, not as busy time."""
        wall_s = time.monotonic()
        with self.lock.held() if self.lock else contextlib.nullcontext():
            self._began.record(self._compute)
            with deterministic_or_refused():
                work()
            self._ended.record(self._compute)
            self._ended.synchronize()  # a span needs the moment of its end, and the lock protects an idle GPU
        return time.monotonic() - wall_s, self._began.elapsed_time(self._ended) / 1e3

    def host_buffer(self, n_bytes: int) -> torch.Tensor:
        """Return pinned memory, so that copies are asynchronous. torch pools it and never reuses memory that a copy
        still needs."""
        return torch.empty(n_bytes, dtype=torch.uint8, pin_memory=True)

    def send_buffer(self, content: torch.Tensor) -> CudaSendBuffer:
        return CudaSendBuffer(content.clone(), self._compute.record_event(), self._send, self.host_buffer)

    def receive_buffer(self, host: torch.Tensor) -> CudaReceiveBuffer:
        with torch.cuda.stream(self._receive):
            content = torch.empty(host.numel(), dtype=torch.uint8, device=self.device)
            content.copy_(host, non_blocking=True)
            return CudaReceiveBuffer(content, self._receive.record_event())

    def _name(self) -> str:
        properties = torch.cuda.get_device_properties(self.device)
        return str(getattr(properties, "uuid", self.device.index))


def new_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves its constructor untyped


def new_event(*, timing: bool = False, blocking: bool = True) -> torch.cuda.Event:
    """Return a new event. ``blocking``: True if a host that waits for the event sleeps instead of spinning."""
    return torch.cuda.Event(enable_timing=timing, blocking=blocking)  # type: ignore[no-untyped-call]  # as above


class CudaSendBuffer:
    """A copy on the GPU, and the event after which it is complete. The copy is kept until it has been sent."""

    def __init__(
        self,
        content: torch.Tensor,
        written: torch.cuda.Event,
        send: torch.cuda.Stream,
        host_buffer: Callable[[int], torch.Tensor],
    ) -> None:
        self.content, self.written = content, written
        self._send, self._host_buffer = send, host_buffer

    def to_host(self) -> torch.Tensor:
        packet = self._host_buffer(self.content.numel())
        with torch.cuda.stream(self._send):
            self._send.wait_event(self.written)
            packet.copy_(self.content, non_blocking=True)
            copied = new_event()
            copied.record(self._send)
        copied.synchronize()
        return packet


class CudaReceiveBuffer:
    """A tensor that another stream writes, and the event after which it is complete."""

    def __init__(self, content: torch.Tensor, written: torch.cuda.Event) -> None:
        self._content, self._written = content, written

    def wait(self) -> torch.Tensor:
        compute = torch.cuda.current_stream(self._content.device)
        compute.wait_event(self._written)
        # or the receive stream would reuse this memory before the computation that reads it has run
        self._content.record_stream(compute)
        return self._content


class GpuLock:
    """A lock on one GPU among this user's processes. The system releases it if its holder dies."""

    def __init__(self, name: str) -> None:
        self.path = Path(tempfile.gettempdir()) / f"dtfm_lab-{os.getuid()}-{name}.lock"
        try:
            self._file = open_lock(self.path, os.O_RDWR, 0o600)
            if (owner := os.fstat(self._file).st_uid) != os.getuid():
                raise OSError(errno.EPERM, f"it is of user {owner}")
        except OSError as error:
            raise RunError(f"the GPU's lock {self.path} cannot be used: {error.strerror}; wanted it removed") from None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def make_deterministic() -> None:
    """Let torch use only deterministic operations in this process. Call it before CUDA is initialised.

    Raises RunError if ``CUBLAS_WORKSPACE_CONFIG`` is not set and CUDA has been initialised, or if it has a value with
    which cuBLAS is not deterministic.
    """
    found = os.environ.get(VARIABLE)
    if found is not None and found not in WORKSPACES:
        raise RunError(f"{VARIABLE} is {found!r}; wanted it unset, or {' or '.join(WORKSPACES)}")
    if found is None and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        raise RunError(f"{VARIABLE} is not set, and CUDA has been initialised; wanted it set before that")
    os.environ[VARIABLE] = found or WORKSPACES[0]
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # set through a property
    torch.backends.cudnn.benchmark = False  # or cuDNN may choose another kernel in each process
    torch.backends.cuda.enable_cudnn_sdp(False)


@contextlib.contextmanager
def deterministic_or_refused() -> Iterator[None]:
    """Raise RunError, in one line, instead of torch's error about an operation without a deterministic form."""
    try:
        yield
    except RuntimeError as error:
        if (named := NO_FORM.search(str(error))) is None:
            raise
        raise RunError(
            f"{named[1]} has no deterministic form on this processor, so an iteration repeated after a loss could give "
            "other bits; wanted runs_on='cpu', or a model without it"
        ) from None
