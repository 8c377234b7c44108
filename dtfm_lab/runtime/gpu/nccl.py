"""Contents between GPUs by NCCL, one communicator of two ranks for each directed pair, each on a stream of its own.

As DT-FM's runtime does it, through CuPy, and not through ``torch.distributed``: there both directions of a pair share
a communicator and a stream, groups are made by all ranks in one order, and one lost rank means all of them anew. Here
a pair is made, used and given up by its own two ends.

Only contents come this way. Whose they are and how large, the transport's sockets say first; so no kernel of NCCL's
waits on a GPU for a message that is yet to be computed, which would block whatever waits for the whole GPU (freeing
memory, loading a kernel) and could close a circle of waiting. Real clock only. Not yet run on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import torch

from dtfm_lab.domain.errors import MissingExtra, RunError
from dtfm_lab.runtime.gpu.cuda_processor import CudaArriving, CudaLeaving

UINT8 = 1
"""ncclUint8 of nccl.h"""
SENDER, RECEIVER = 0, 1
"""ranks in the communicator of a directed pair"""
STREAMS = 32
"""that torch keeps of one priority; more would share, and one pair's waiting would hold up another"""
Pair = tuple[int, int]
"""(rank that sends, rank that receives)"""


class Communicator(Protocol):
    """What is used of ``cupy.cuda.nccl.NcclCommunicator``; addresses and streams are integers."""

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int, /) -> None: ...

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int, /) -> None: ...

    def abort(self) -> None: ...

    def destroy(self) -> None: ...


class NcclPairs:
    """All pairs of one rank. ``send`` and ``receive`` are called by the threads that own a pair, one each."""

    def __init__(
        self,
        rank: int,
        ids: Mapping[Pair, bytes],
        device: torch.device,
        connect: Callable[[int, bytes, int], Communicator] | None = None,
    ) -> None:
        """Meets the other end of every pair in ``ids`` that ``rank`` is part of; returns when all are there.

        ``ids`` are what the senders' ``fresh_ids`` gave. All ranks meet in the same order, so that of the pairs
        still to come the first has nothing to wait for.
        """
        connect = connect or _nccl().NcclCommunicator
        self._rank, self._device, self._given_up = rank, device, False
        self._pairs: dict[Pair, tuple[Communicator, torch.cuda.Stream]] = {}
        mine = sorted(pair for pair in ids if rank in pair)
        if len(mine) > STREAMS:
            raise RunError(f"worker {rank} has {len(mine)} pairs to send or receive on; wanted at most {STREAMS}")
        torch.cuda.set_device(device)
        for pair in mine:
            communicator = connect(2, ids[pair], SENDER if rank == pair[SENDER] else RECEIVER)
            self._pairs[pair] = communicator, torch.cuda.Stream(device, priority=-1)

    def send(self, to: int, leaving: CudaLeaving) -> None:
        """Returns when the other end has it; raises ConnectionError once given up."""
        communicator, stream = self._pairs[self._rank, to]
        if n_bytes := leaving.content.numel():
            with torch.cuda.stream(stream):
                stream.wait_event(leaving.whole)
                address = leaving.content.data_ptr()
                self._guarded(communicator.send, address, n_bytes, RECEIVER, stream.cuda_stream)
                self._until(stream)

    def receive(self, source: int, n_bytes: int) -> CudaArriving:
        """The next content from there, whole; raises ConnectionError once given up."""
        communicator, stream = self._pairs[source, self._rank]
        with torch.cuda.stream(stream):
            content = torch.empty(n_bytes, dtype=torch.uint8, device=self._device)
            if n_bytes:
                self._guarded(communicator.recv, content.data_ptr(), n_bytes, SENDER, stream.cuda_stream)
            return CudaArriving(content, self._until(stream))

    def abort(self) -> None:
        """Give up whatever is under way; from any thread. Both ends of a pair must, or the other waits for ever."""
        self._given_up = True
        for communicator, _ in self._pairs.values():
            communicator.abort()

    def close(self) -> None:
        """After the last message of every pair."""
        for communicator, _ in self._pairs.values():
            communicator.destroy()

    def _guarded(self, call: Callable[..., None], address: int, n_bytes: int, peer: int, stream: int) -> None:
        try:
            if not self._given_up:
                return call(address, n_bytes, UINT8, peer, stream)
        except RuntimeError as error:  # NcclError is one
            raise ConnectionError(f"NCCL: {error}") from None
        raise ConnectionError("NCCL: the pairs were given up")

    def _until(self, stream: torch.cuda.Stream) -> torch.cuda.Event:
        done = torch.cuda.Event(blocking=True)
        done.record(stream)
        done.synchronize()  # NCCL's kernel ends early when its communicator is given up
        if self._given_up:
            raise ConnectionError("NCCL: the pairs were given up")
        return done


def fresh_ids(rank: int, targets: Iterable[int]) -> dict[Pair, bytes]:
    """128 bytes for each pair that ``rank`` sends on: to be handed to the other end by the crew, and made here, because
    the process that makes an id listens for who brings it."""
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
