"""Point-to-point messages between GPUs by NCCL: a communicator of two ranks, and a stream, for each directed pair.

DT-FM's runtime does the same through CuPy. ``torch.distributed`` is not used because there both directions of a pair
share a communicator and a stream, all ranks must create groups in one order, and the loss of one rank ends all groups;
here the two ends of a pair create, use and abort it on their own.

NCCL carries contents only. The transport's sockets announce each content first, so no NCCL kernel waits on a GPU for a
message that has yet to be computed: that would block whatever waits for the whole GPU (freeing memory, loading a
kernel) and could deadlock. Real clock only. Not yet run on a GPU.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import torch

from dtfm_lab.domain.errors import MissingExtra, RunError
from dtfm_lab.runtime.gpu.cuda_processor import CudaReceiveBuffer, CudaSendBuffer, new_event, new_stream

UINT8 = 1
"""The value of ncclUint8 in nccl.h."""
SENDER, RECEIVER = 0, 1
"""Ranks in the communicator of a directed pair."""
STREAMS = 32
"""Streams of one priority that torch makes; further pairs would share one, and one pair could delay another."""
Pair = tuple[int, int]
"""The rank that sends and the rank that receives."""


class Communicator(Protocol):
    """The used part of ``cupy.cuda.nccl.NcclCommunicator``; addresses and streams are integers."""

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int, /) -> None: ...

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int, /) -> None: ...

    def abort(self) -> None: ...


class NcclPairs:
    """All pairs of one rank. One sender or receiver thread owns each pair and calls ``send`` or ``receive`` for it."""

    def __init__(
        self,
        rank: int,
        ids: Mapping[Pair, bytes],
        device: torch.device,
        connect: Callable[[int, bytes, int], Communicator] | None = None,
    ) -> None:
        """Connect every pair of ``ids``, made by ``new_ids``, that ``rank`` is part of; return when all are connected.

        All ranks connect their pairs in the same order, so the first unconnected pair never waits for another one.
        """
        connect = connect or _nccl().NcclCommunicator
        self._rank, self._device, self._aborted = rank, device, False
        self._pairs: dict[Pair, tuple[Communicator, torch.cuda.Stream]] = {}
        own = sorted(pair for pair in ids if rank in pair)
        if len(own) > STREAMS:
            raise RunError(f"worker {rank} has {len(own)} pairs to send or receive on; wanted at most {STREAMS}")
        torch.cuda.set_device(device)
        for pair in own:
            communicator = connect(2, ids[pair], SENDER if rank == pair[SENDER] else RECEIVER)
            self._pairs[pair] = communicator, new_stream(device, priority=-1)

    def send(self, to: int, buffer: CudaSendBuffer) -> None:
        """Return when the other end has received it. Raises ConnectionError after ``abort``."""
        communicator, stream = self._pairs[self._rank, to]
        if n_bytes := buffer.content.numel():
            with torch.cuda.stream(stream):
                stream.wait_event(buffer.written)
                address = buffer.content.data_ptr()
                self._enqueue(communicator.send, address, n_bytes, RECEIVER, stream.cuda_stream)
                self._synchronise(stream)

    def receive(self, source: int, n_bytes: int) -> CudaReceiveBuffer:
        """The next content from this rank, complete. Raises ConnectionError after ``abort``."""
        communicator, stream = self._pairs[source, self._rank]
        with torch.cuda.stream(stream):
            content = torch.empty(n_bytes, dtype=torch.uint8, device=self._device)
            if n_bytes:
                self._enqueue(communicator.recv, content.data_ptr(), n_bytes, SENDER, stream.cuda_stream)
            return CudaReceiveBuffer(content, self._synchronise(stream))

    def abort(self) -> None:
        """End all transfers; may be called from any thread. Both ends of a pair must do so, or one waits for ever."""
        self._aborted = True
        for communicator, _ in self._pairs.values():
            communicator.abort()

    def _enqueue(self, call: Callable[..., None], address: int, n_bytes: int, peer: int, stream: int) -> None:
        try:
            if not self._aborted:
                return call(address, n_bytes, UINT8, peer, stream)
        except RuntimeError as error:  # NcclError is one
            raise ConnectionError(f"NCCL: {error}") from None
        raise ConnectionError("NCCL: the pairs were given up")

    def _synchronise(self, stream: torch.cuda.Stream) -> torch.cuda.Event:
        done = new_event()
        done.record(stream)
        done.synchronize()  # NCCL's kernel ends early when its communicator is aborted
        if self._aborted:
            raise ConnectionError("NCCL: the pairs were given up")
        return done


def new_ids(rank: int, targets: Iterable[int]) -> dict[Pair, bytes]:
    """An id of 128 bytes for each pair on which ``rank`` sends; the coordinator hands it to the other end.

    The sender makes it because the process that makes an id listens for the connection of the other end.
    """
    return {(rank, target): _nccl().get_unique_id() for target in targets}


def available() -> bool:
    """Whether CuPy is installed and has found NCCL."""
    try:
        return bool(_nccl())
    except MissingExtra:
        return False


def _nccl() -> Any:
    try:
        from cupy.cuda import nccl
    except ImportError:
        raise MissingExtra(
            "NCCL is used through CuPy, which is not installed: pip install 'dtfm_lab[cuda13]'"
        ) from None
    if not nccl.available:
        raise MissingExtra("CuPy is installed, but no NCCL for it; `dtfm-lab doctor` says what to install")
    return nccl
