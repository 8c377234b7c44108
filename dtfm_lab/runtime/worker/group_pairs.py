"""Contents of messages by torch.distributed: a process group of two ranks for each directed pair of workers.

The authenticated socket of the pair stays. It is the group's rendezvous, announces each content with its header,
acknowledges it on request, and shows at once when the other end is gone. That settles four things which process groups
leave open:

- **Deadlock.** No schedule can deadlock a group. A sender announces a content only once it is fully computed. The
  receiver waits only for an announced content, on a thread that does nothing else. So a posted send and its
  posted receive always belong together and both can proceed. Neither depends on another message, on the order of the
  program, or on the computing thread, which only hands over copies and waits in the mailbox. So every program that runs
  in the simulator, where a receive waits only for its own message, also runs here.
- **Loss.** After a loss, groups are made again pair by pair, in milliseconds, while a stopped worker keeps its old
  ones. All-rank groups would need every rank and one order of creation.
- **Abort.** gloo's ``abort`` does not wake a waiting thread. A receive on another tag that times out at once does: gloo
  then closes the whole group of two, and every operation on it ends (``UnboundBuffer::waitRecv``).
- **Trust.** gloo's port does not ask who connects. Both ends prove over the new group that they hold the run's secret
  before any content crosses it.

There are two backends: gloo through host memory, and NCCL from GPU to GPU, which has not yet run on a GPU. A group of
NCCL has its own communicator and stream. Its sender posts only what is computed, and its receiver only what was
announced. So no kernel of NCCL waits on a GPU for a message that is not computed yet. Such a wait would block whatever
needs the whole GPU (freeing memory, loading a kernel). NCCL needs the real clock and one GPU per worker.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, cast

import torch
from torch._C._distributed_c10d import ProcessGroupGloo, Store

from dtfm_lab.domain.errors import RunError
from dtfm_lab.runtime.gpu.cuda_processor import CudaReceiveBuffer, new_event, new_stream
from dtfm_lab.runtime.protocol.channels import Channel, ConnectionLost
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.runtime.worker.processors import Processor, ReceiveBuffer, SendBuffer

SENDER = 0
"""Rank of the sender in the group of a directed pair."""
RECEIVER = 1
"""Rank of the receiver in the group of a directed pair."""
CONTENT = 0
"""Tag of the contents of messages."""
PROOF = 1
"""Tag of the proof of the secret."""
INTERRUPTION = 2
"""Tag of an operation that interrupts the group."""
CONNECT_S = 20.0
"""Maximum seconds for a new group to connect and to prove itself."""
LEAST_TRANSFER_S = 60.0
"""Seconds that the content of a message may take, in addition to its time at ``SLOWEST_BYTES_PER_S``. After that the
pair counts as broken."""
SLOWEST_BYTES_PER_S = 125e3
"""Bytes/s of the slowest link that is waited for: 1 Mbit/s."""
PROOF_BYTES = 32
LONGEST_VALUE = 2**14
"""Maximum bytes of a value in a ``PairStore``. gloo's are below 1 KiB; NCCL's unique id has 128 bytes."""
MOST_KEYS = 64
"""Maximum number of keys that the other end may set."""


class PairStore(Store):
    """The rendezvous of a group: what one end sets, the other end gets, over the authenticated socket of the pair.

    torch's own stores either listen on their own port and let in anyone (``TCPStore``), or need a file system
    that both hosts see (``FileStore``). One thread reads it until ``close``, which leaves the socket to others. Methods
    raise ConnectionLost if the other end is gone, silent for too long, or breaks the protocol.
    """

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        super().__init__()
        self._channel: Channel | None = Channel(connection)
        self._timeout_s = timeout_s
        self._values: dict[str, bytes] = {}
        self._n_received = 0

    def set(self, key: str, value: bytes | str) -> None:
        self._values[key] = value.encode() if isinstance(value, str) else bytes(value)
        if self._channel is not None:
            self._channel.send(key=key, value=self._values[key].hex())

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._values[key]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        within_s = self._timeout_s if timeout is None else timeout.total_seconds()
        for key in keys:
            while key not in self._values:
                self._receive(within_s)

    def check(self, keys: list[str]) -> bool:
        """Return True if all keys are there already. Reads nothing, because NCCL's own threads may call it at any
        time."""
        return all(key in self._values for key in keys)

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout_s = timeout.total_seconds()

    def clone(self) -> PairStore:
        return self

    def close(self) -> None:
        """Stop using the socket. What follows on it are messages of the transport."""
        if self._channel is not None:
            self._channel.raw()
        self._channel = None

    def _receive(self, within_s: float) -> None:
        if self._channel is None:
            raise ConnectionLost("is asked for a key after the rendezvous")
        line = self._channel.receive(within_s)
        try:
            key, value = str(line["key"]), bytes.fromhex(line["value"])
        except (KeyError, TypeError, ValueError):
            raise ConnectionLost("speaks another protocol") from None
        self._n_received += 1
        # limited, so that a faulty peer cannot fill this worker's memory
        if self._n_received > MOST_KEYS or len(value) > LONGEST_VALUE or key in self._values:
            raise ConnectionLost("set keys that no rendezvous has")
        self._values[key] = value


ProcessGroup = Any
"""ProcessGroupGloo, ProcessGroupNCCL, or their replacement in tests."""


class GlooBackend:
    """TCP by gloo, from host memory to host memory. It listens on one port of the given address only.

    A backend makes groups, interrupts them and gives them memory. A worker has one for all its groups.
    """

    def __init__(self, address: str, processor: Processor) -> None:
        self._processor = processor
        self._device = ProcessGroupGloo.create_device(hostname=address)

    def make(self, store: PairStore, rank: int, connect_s: float) -> ProcessGroup:
        """Return a group of two, which is connected or connects at its first operation."""
        options: Any = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices, options._timeout, options._threads = [self._device], timedelta(seconds=connect_s), 1
        return ProcessGroupGloo(store, rank, 2, options)

    def interrupt(self, group: ProcessGroup) -> None:
        """End all operations of a group. Called from any thread, at most once, while no operation is being posted."""
        other = 1 - group.rank()
        with contextlib.suppress(RuntimeError):  # a timeout is intended, or the group has ended already
            group.recv([torch.empty(1, dtype=torch.uint8)], other, INTERRUPTION).wait(timedelta(milliseconds=1))

    def on_stream(self, pair: tuple[int, int]) -> AbstractContextManager[None]:
        """Return a context in which this pair's operations are ordered only among themselves."""
        return contextlib.nullcontext()

    def whole(self, buffer: SendBuffer) -> torch.Tensor:
        """Return (bytes,) uint8 to send, complete on return."""
        return buffer.to_host()

    def empty(self, n_bytes: int) -> torch.Tensor:
        """Return (n_bytes,) uint8 to receive into."""
        return self._processor.host_buffer(n_bytes)

    def received(self, content: torch.Tensor) -> ReceiveBuffer:
        """Return the buffer of a received content. The computing thread waits for it."""
        return self._processor.receive_buffer(content)


class GroupCarrier:
    """Makes the wires of one worker, each in its pair's thread. Any number may be made at once, in any order."""

    def __init__(
        self,
        backend: Backend,
        name: Callable[[int], str] = "worker {}".format,
        connect_s: float = CONNECT_S,
    ) -> None:
        """``name`` returns the name of a rank for error messages."""
        self._backend, self._name, self._connect_s = backend, name, connect_s

    def open(self, connection: socket.socket, secret: str, pair: tuple[int, int], *, sends: bool) -> GroupWire:
        """Return this worker's end of the wire of ``pair``, (sending rank, receiving rank). ``sends`` is True at the
        sending end.

        Raises ConnectionError if the other end fails, or does not hold the secret. Raises RunError if NCCL cannot be
        used.
        """
        own, other = pair if sends else pair[::-1]
        names = self._name(own), self._name(other)
        store = PairStore(connection, self._connect_s)
        rank = SENDER if sends else RECEIVER
        try:
            nonce = secrets.token_hex(16)
            store.set(f"nonce {rank}", nonce)
            # both nonces are part of the proof, so that no earlier proof can be replayed
            nonces = [nonce, store.get(f"nonce {1 - rank}").decode()]
            group = self._backend.make(store, rank, self._connect_s)
            wire = GroupWire(self._backend, group, store, connection, pair, names, rank)
            wire.prove(secret, " ".join(nonces if sends else nonces[::-1]), self._connect_s)
        except ConnectionLost as error:
            raise ConnectionError(f"{names[0]} made no process group with {names[1]}, which {error}") from None
        except RuntimeError as error:
            raise ConnectionError(f"{names[0]} made no process group with {names[1]}: {_reason(error)}") from None
        store.close()
        return wire


class GroupWire:
    """One end of a directed pair. One thread sends or receives. Any thread may abort."""

    def __init__(
        self,
        backend: Backend,
        group: ProcessGroup,
        store: PairStore,
        connection: socket.socket,
        pair: tuple[int, int],
        names: tuple[str, str],
        rank: int,
    ) -> None:
        self._backend, self._group, self._connection, self._pair = backend, group, connection, pair
        self._store = store  # the group calls its Python methods as long as it lives
        self._own, self._other, self._to = *names, 1 - rank
        self._posting = threading.Lock()
        """Held while an operation is posted and while the group is interrupted, so that the two never overlap."""
        self._aborted = False

    def send(self, header: bytes, buffer: SendBuffer) -> None:
        """Announce a content and send it. Raises ConnectionError."""
        content = self._backend.whole(buffer)
        self._connection.sendall(header)
        with self._backend.on_stream(self._pair):
            self._transfer("send", content, CONTENT)

    def receive(self, n_bytes: int) -> ReceiveBuffer:
        """Receive a content that was announced. Raises ConnectionError."""
        with self._backend.on_stream(self._pair):
            content = self._backend.empty(n_bytes)
            self._transfer("receive", content, CONTENT)
            return self._backend.received(content)

    def prove(self, secret: str, nonces: str, within_s: float) -> None:
        """Prove over the group that both ends hold the secret. Raises ConnectionError."""

        def proof(rank: int) -> bytes:
            return hmac.new(secret.encode(), f"group {rank} {nonces}".encode(), "sha256").digest()

        with self._backend.on_stream(self._pair):
            own, others = self._backend.empty(PROOF_BYTES), self._backend.empty(PROOF_BYTES)
            own.copy_(torch.frombuffer(bytearray(proof(1 - self._to)), dtype=torch.uint8))
            turns = [("send", own), ("receive", others)]
            # one end sends first and the other receives, so that they do not wait for each other
            for what, content in turns if self._to == RECEIVER else turns[::-1]:
                self._transfer(what, content, PROOF, within_s)
            if not hmac.compare_digest(others.cpu().numpy().tobytes(), proof(self._to)):
                raise ConnectionError(f"{self._own}: another than {self._other} is at the other end of their group")

    def abort(self) -> None:
        """End all operations, present and later ones, with ConnectionError."""
        with self._posting:
            if not self._aborted:
                self._aborted = True
                self._backend.interrupt(self._group)

    def _post(self, what: str, content: torch.Tensor, tag: int) -> Any:
        with self._posting:
            if self._aborted:
                raise ConnectionError(f"the group of {self._own} and {self._other} was given up")
            return (self._group.send if what == "send" else self._group.recv)([content], self._to, tag)

    def _transfer(self, what: str, content: torch.Tensor, tag: int, within_s: float | None = None) -> None:
        """Post an operation and wait for its end. Raises ConnectionError if it fails, or takes longer than
        ``within_s``."""
        if not (n_bytes := content.numel()):
            return
        within_s = LEAST_TRANSFER_S + n_bytes / SLOWEST_BYTES_PER_S if within_s is None else within_s
        began_s = time.monotonic()
        try:
            self._post(what, content, tag).wait(timedelta(seconds=within_s))
        except RuntimeError as error:
            took_s = time.monotonic() - began_s
            why = f"within {within_s:.0f} s" if took_s >= within_s else f"after {took_s:.1f} s: {_reason(error)}"
            end = f"{'to' if what == 'send' else 'from'} {self._other}"
            raise ConnectionError(f"{self._own} did not {what} {n_bytes:,} bytes {end} {why}") from None


def make_carrier(spec: RunSpec, address: str, processor: Processor) -> GroupCarrier:
    """Return the carrier of a worker that listens at ``address``."""
    backend = NcclBackend(processor.device) if spec.uses_nccl else GlooBackend(address, processor)
    return GroupCarrier(backend, lambda rank: f"worker {spec.device_name(*spec.workers[rank])}")


def _reason(error: BaseException) -> str:
    """Return torch's message, without the source line before it and the advice after it."""
    said = re.sub(r"^\[[^\]]*:\d+\] ", "", str(error).strip()) or type(error).__name__
    return re.split(r"\. This is typically|\n", said)[0].rstrip(".")


STREAMS = 32
"""Number of streams per priority that torch makes. NCCL's streams have high priority; computations and this module use
normal priority. Further pairs are refused, because two that share a stream could delay each other."""
WATCHED_BY_US = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_ENABLE_MONITORING": "0"}
"""Turns off torch's watchdog. It would end a worker's process when a peer is lost; here the transport aborts groups."""


class NcclBackend:
    """Groups over one GPU. ``make_group`` is ProcessGroupNCCL by default."""

    def __init__(
        self, device: torch.device, make_group: Callable[[Store, int, int, timedelta], ProcessGroup] | None = None
    ) -> None:
        self._device = device
        self._make_group = make_group or _nccl_group
        self._streams: dict[tuple[int, int], torch.cuda.Stream] = {}
        self._uuid = str(torch.cuda.get_device_properties(device).uuid)

    def make(self, store: Store, rank: int, connect_s: float) -> ProcessGroup:
        """Return a group. Raises RunError if both ends are on one GPU, which NCCL refuses, or if torch has no NCCL."""
        torch.cuda.set_device(self._device)  # the pair's thread has its own current device
        store.set(f"gpu {rank}", self._uuid)
        if store.get(f"gpu {1 - rank}").decode() == self._uuid:
            raise RunError(
                f"two workers that send to each other are on one GPU, {self._uuid}; NCCL needs one GPU for each; "
                "wanted fewer workers, clock='virtual', with which they take turns, or carrier='sockets'"
            )
        return self._make_group(store, rank, 2, timedelta(seconds=connect_s))

    def interrupt(self, group: ProcessGroup) -> None:
        """Abort the group's communicator, which ends NCCL's kernels early."""
        group.abort()

    def on_stream(self, pair: tuple[int, int]) -> AbstractContextManager[None]:
        """Return a context with this pair's stream.

        The group's stream and the current one wait for each other. With a shared stream, unrelated pairs would do so
        too.
        """
        if pair not in self._streams:
            if len(self._streams) == STREAMS:
                raise RunError(
                    f"a worker has more than {STREAMS} pairs to send or receive on; wanted at most {STREAMS}"
                )
            self._streams[pair] = new_stream(self._device)
        return cast(AbstractContextManager[None], torch.cuda.stream(self._streams[pair]))

    def whole(self, buffer: Any) -> torch.Tensor:
        """Return (bytes,) uint8 to send: the content of ``buffer``, a CudaSendBuffer, once it is complete."""
        buffer.written.synchronize()  # only a complete content may be announced
        return cast(torch.Tensor, buffer.content)

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
    return ProcessGroupNCCL(store, rank, size, options)


Backend = GlooBackend | NcclBackend
