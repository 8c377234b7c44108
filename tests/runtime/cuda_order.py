"""``torch.cuda`` without a GPU, which proves the order of what a program asks of a GPU, or says where it is open.

Every host thread and every stream has a vector clock. An operation on a stream happens after what the stream did before
it, after what its host thread knew when it asked, and after events that the stream waited for; a host thread learns of
a stream only when it synchronises. Each access to memory has to happen after the accesses that it contradicts: what is
open in one run of the host's threads is found, however fast the GPU would have been. (Lamport 1978; Flanagan and
Freund, FastTrack, 2009, have the same for threads.)

Tensors stay on the CPU. A dispatch mode sees each operation of torch, on the current stream of its thread. Memory is a
storage: it is new on the stream that allocated it, and free again when Python lets go of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dtfm_lab.runtime.gpu import cuda_processor

Clock = dict[str, int]
"""By timeline, the number of its last operation that is known to be over."""
REAL = torch.cuda
EMPTY = {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty"}
"""Operations that allocate and write nothing."""


class Timeline:
    """What a stream or a host thread has done and knows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock: Clock = {name: 0}

    def learn(self, other: Clock) -> None:
        for name, count in other.items():
            self.clock[name] = max(self.clock.get(name, 0), count)

    def step(self) -> int:
        self.clock[self.name] += 1
        return self.clock[self.name]

    def knows(self, name: str, count: int) -> bool:
        return self.clock.get(name, 0) >= count


@dataclass
class Memory:
    """One allocation."""

    kind: str
    """device, or pinned: host memory that a GPU copies from and to."""
    of: str
    """The stream or thread on which it was allocated."""
    number: int
    written: tuple[str, int] | None = None
    reads: dict[str, int] = field(default_factory=dict)
    users: dict[str, int] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)
    """Streams for which the allocator waits before it gives this memory away (``record_stream``)."""

    def __str__(self) -> str:
        return f"{self.kind} memory {self.number} of {self.of}"


class Event:
    def __init__(self, cuda: OrderedCuda) -> None:
        self._cuda, self.name = cuda, next(cuda.numbers)
        self.clock: Clock | None = None

    def record(self, stream: Stream | None = None) -> None:
        stream = stream or self._cuda.current_stream()
        self._cuda.ask(stream)
        self.clock = dict(stream.clock)

    def synchronize(self) -> None:
        if clock := self._recorded("a host thread waits for"):
            self._cuda.host_timeline().learn(clock)

    def query(self) -> bool:
        return self.clock is None or self._known()

    def elapsed_time(self, end: Event) -> float:
        for event in (self, end):
            if event._recorded("a time is asked of") and not event._known():
                self._cuda.fault(f"a time is asked of event {event.name}, which may not have happened yet")
        return 1.0

    def _known(self) -> bool:
        host = self._cuda.host_timeline()
        return all(host.knows(*item) for item in (self.clock or {}).items() if item[0] in self._cuda.made)

    def _recorded(self, who: str) -> Clock | None:
        if self.clock is None:
            self._cuda.fault(f"{who} event {self.name}, which was never recorded")
        return self.clock


class Stream(Timeline):
    def __init__(self, cuda: OrderedCuda) -> None:
        super().__init__(f"stream {next(cuda.streams)}")
        self._cuda = cuda
        cuda.made[self.name] = self

    @property
    def cuda_stream(self) -> int:
        return int(self.name.split()[1])

    def record_event(self, event: Event | None = None) -> Event:
        event = event or self._cuda.Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        self._cuda.ask(self)
        if clock := event._recorded(f"{self.name} waits for"):
            self.learn(clock)

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())

    def synchronize(self) -> None:
        self._cuda.host_timeline().learn(self.clock)


class OrderedCuda:
    """Stands in for the module ``torch.cuda``. ``faults`` has a line for each order that is open."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.over = False
        """Whether the program has ended, and what is freed from now on is given to nobody."""
        self.lock = threading.RLock()
        self.streams, self.numbers = itertools.count(), itertools.count()
        self.made: dict[str, Stream] = {}
        self.default = Stream(self)
        self._local = threading.local()
        self._hosts: dict[str, Timeline] = {}
        self._current: dict[str, Stream] = {}
        self._memory: dict[int, Memory] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(REAL, name)  # types that torch's own modules name

    # what programs call

    def Stream(self, device: object = None, priority: int = 0) -> Stream:
        return Stream(self)

    def Event(self, *_: object, **__: object) -> Event:
        return Event(self)

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return False

    def device_count(self) -> int:
        return 1

    def set_device(self, device: object) -> None:
        pass

    def get_device_properties(self, device: object) -> object:
        return type("Properties", (), {"uuid": f"fake-{id(self)}-{self.host_timeline().name}"})()

    def default_stream(self, device: object = None) -> Stream:
        return self.default

    def current_stream(self, device: object = None) -> Stream:
        return self._current.get(self._host_name(), self.default)

    def set_stream(self, stream: Stream) -> None:
        self._current[self._host_name()] = stream

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before = self.current_stream()
        self.set_stream(stream)
        try:
            yield
        finally:
            self.set_stream(before)

    def synchronize(self, device: object = None) -> None:
        for stream in self.made.values():
            stream.synchronize()

    # what tests call

    @contextlib.contextmanager
    def host(self, name: str) -> Iterator[None]:
        """Whatever is done within is done by the host thread of this name."""
        before, self._local.name = getattr(self._local, "name", None), name
        try:
            yield
        finally:
            self._local.name = before

    def hand_over(self, given: Any) -> tuple[Any, Clock]:
        """What a host thread puts into a queue: with it goes what the thread knows."""
        host = self.host_timeline()
        host.step()
        return given, dict(host.clock)

    def take_over(self, handed: tuple[Any, Clock]) -> Any:
        """What another host thread takes out of that queue."""
        self.host_timeline().learn(handed[1])
        return handed[0]

    def host_timeline(self) -> Timeline:
        name = self._host_name()
        return self._hosts.setdefault(name, Timeline(name))

    def named(self) -> bool:
        """Whether this is done by a host thread of the program, and not by the test around it."""
        return getattr(self._local, "name", None) is not None

    def _host_name(self) -> str:
        return getattr(self._local, "name", None) or f"thread {threading.get_ident()}"

    def fault(self, line: str) -> None:
        with self.lock:
            self.faults.append(f"{line} (asked by {self._host_name()})")

    def ask(self, stream: Stream) -> None:
        """The current host thread asks a stream for something."""
        with self.lock:
            host = self.host_timeline()
            host.step()
            stream.learn(host.clock)

    # memory

    def memory_of(self, tensor: torch.Tensor, kind: str = "device", of: str | None = None) -> Memory:
        storage = tensor.untyped_storage()
        key = storage._cdata
        with self.lock:
            if key not in self._memory:
                made = Memory(kind, of or self.current_stream().name, next(self.numbers))
                self._memory[key] = made
                weakref.finalize(storage, self._freed, key)
            return self._memory[key]

    def touch(self, timeline: Timeline, tensor: torch.Tensor, *, writes: bool, what: str) -> None:
        """An access by a stream, or by a host thread; a stream has been asked for it already."""
        with self.lock:
            memory = self.memory_of(tensor)
            before = [] if memory.written is None else [memory.written]
            if writes:
                before += memory.reads.items()
            for name, count in before:
                if name != timeline.name and not timeline.knows(name, count):
                    did = "write" if (name, count) == memory.written else "read"
                    self.fault(f"{timeline.name}: {what} of {memory} does not wait for the {did} by {name}")
            count = timeline.step()
            memory.users[timeline.name] = count
            if writes:
                memory.written, memory.reads = (timeline.name, count), {}
            else:
                memory.reads[timeline.name] = count

    def host_touches(self, tensor: torch.Tensor) -> None:
        """A host thread reads or overwrites memory without CUDA."""
        memory = self.memory_of(tensor)
        if memory.kind == "device":
            self.fault(f"the host uses {memory} without a copy")
        self.touch(self.host_timeline(), tensor, writes=True, what="the host's use")

    def _freed(self, key: int) -> None:
        with self.lock:
            memory = self._memory.pop(key)
            if memory.kind != "device" or self.over:
                return  # torch's allocator of pinned memory waits for the copies that it was asked for
            reuse = Timeline("the next owner")
            reuse.learn(self.host_timeline().clock)
            if memory.of in self.made:
                reuse.learn(self.made[memory.of].clock)
            for user, count in memory.users.items():
                waited_for = user in (memory.of, *memory.declared) or reuse.knows(user, count)
                if user in self.made and not waited_for:
                    self.fault(f"{memory} is free while {user} may still use it")


class Operations(TorchDispatchMode):
    """Tells an OrderedCuda of each operation of torch in this thread."""

    def __init__(self, cuda: OrderedCuda) -> None:
        super().__init__()
        self._cuda = cuda

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema, stream = function._schema, self._cuda.current_stream()
        if all(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns) and schema.returns:
            return function(*args, **kwargs)  # a view
        given = list(zip(schema.arguments, args, strict=False))
        given += [(argument, kwargs[argument.name]) for argument in schema.arguments if argument.name in kwargs]
        reads, writes = [], []
        for argument, value in given:
            written = argument.alias_info is not None and argument.alias_info.is_write
            (writes if written else reads).extend(t for t in tree_leaves(value) if isinstance(t, torch.Tensor))
        self._cuda.ask(stream)
        for tensor in reads:
            self._cuda.touch(stream, tensor, writes=False, what=f"{schema.name}'s read")
        out = function(*args, **kwargs)
        known = {tensor.untyped_storage()._cdata for tensor in (*reads, *writes)}
        new = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor) and t.untyped_storage()._cdata not in known]
        for tensor in writes if schema.name in EMPTY else [*writes, *new]:
            self._cuda.touch(stream, tensor, writes=True, what=f"{schema.name}'s write")
        for tensor in new:
            self._cuda.memory_of(tensor)
        asynchronous = kwargs.get("non_blocking") or (schema.name == "aten::copy_" and len(args) > 2 and args[2])
        copied = schema.name == "aten::copy_" and "pinned" in {self._cuda.memory_of(t).kind for t in (*reads, *writes)}
        if schema.name == "aten::_local_scalar_dense" or (copied and not asynchronous):
            stream.synchronize()
        return out


@contextlib.contextmanager
def ordered(monkeypatch: Any) -> Iterator[OrderedCuda]:
    """``torch.cuda`` is an OrderedCuda, and this thread's operations are seen by it; devices are the CPU."""
    cuda = OrderedCuda()
    empty, numpy, tolist = torch.empty, torch.Tensor.numpy, torch.Tensor.tolist

    def placed_empty(*size: Any, pin_memory: bool = False, device: object = None, **options: Any) -> torch.Tensor:
        made = empty(*size, **options)
        if pin_memory:
            memory = cuda.memory_of(made)
            memory.kind, memory.of = "pinned", cuda.host_timeline().name
        return made

    def on_host(tensor: torch.Tensor, *args: Any, **options: Any) -> Any:
        if cuda.named():  # or it is the test's own
            cuda.host_touches(tensor)
        return numpy(tensor, *args, **options)

    def to_host(tensor: torch.Tensor) -> torch.Tensor:
        copied = tensor.clone()
        cuda.current_stream().synchronize()
        cuda.memory_of(copied).kind = "pinned"
        return copied

    def listed(tensor: torch.Tensor) -> Any:
        return tolist(to_host(tensor) if cuda.memory_of(tensor).kind == "device" else tensor)

    def declare(tensor: torch.Tensor, stream: Stream) -> None:
        cuda.memory_of(tensor).declared.add(stream.name)

    with monkeypatch.context() as patch, Operations(cuda):
        patch.setattr(torch, "cuda", cuda)
        patch.setattr(torch, "empty", placed_empty)
        patch.setattr(torch.Tensor, "numpy", on_host)
        patch.setattr(torch.Tensor, "cpu", to_host)
        patch.setattr(torch.Tensor, "tolist", listed)
        patch.setattr(torch.Tensor, "record_stream", declare)
        patch.setattr(cuda_processor, "make_deterministic", lambda: None)  # its effect is on the whole process
        yield cuda


@dataclass(frozen=True)
class Posted:
    """An operation of one end of a communicator."""

    what: str
    n_bytes: int
    address: int
    clock: Clock


class Wire:
    """What the two ends of a communicator have asked for, in order."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.posted: tuple[list[Posted], list[Posted]] = ([], [])
        self.n_over = 0
        """Operations whose contents have gone across."""
        self.aborted = False


class OrderedGroup:
    """One end of an NCCL process group of two. Its operations run on a stream of its own.

    As in torch 2.13 (ProcessGroupNCCL.cpp), an operation waits for the current stream, ``Work.wait`` makes the current
    stream wait for it, and with a timeout the host thread, too; the tensor is kept until then and not beyond.
    """

    def __init__(self, cuda: OrderedCuda, wire: Wire, rank: int, patience_s: float = 20.0) -> None:
        self._cuda, self._wire, self._rank, self._patience_s = cuda, wire, rank, patience_s
        self._stream = cuda.Stream()

    def send(self, tensors: list[torch.Tensor], rank: int, tag: int) -> OrderedWork:
        return self._post("send", tensors, rank)

    def recv(self, tensors: list[torch.Tensor], rank: int, tag: int) -> OrderedWork:
        return self._post("receive", tensors, rank)

    def abort(self) -> None:
        with self._wire.changed:
            self._wire.aborted = True
            self._wire.changed.notify_all()

    def _post(self, what: str, tensors: list[torch.Tensor], rank: int) -> OrderedWork:
        (tensor,) = tensors
        assert rank == 1 - self._rank
        if self._wire.aborted:
            raise RuntimeError("NCCL communicator was aborted")
        before = self._cuda.Event()
        before.record()
        self._stream.wait_event(before)
        with self._cuda.lock:
            self._cuda.touch(self._stream, tensor, writes=what == "receive", what=f"NCCL's {what}")
        with self._wire.changed:
            own = self._wire.posted[self._rank]
            own.append(Posted(what, tensor.numel(), tensor.data_ptr(), dict(self._stream.clock)))
            self._wire.changed.notify_all()
            return OrderedWork(self, len(own) - 1, tensor)

    def finish(self, number: int) -> Event:
        """Wait for the other end's operation of this number, and let the contents go across."""
        wire = self._wire
        with wire.changed:
            others = wire.posted[1 - self._rank]
            wire.changed.wait_for(lambda: wire.aborted or len(others) > number, self._patience_s)
            if len(others) <= number:
                raise RuntimeError("NCCL communicator was aborted" if wire.aborted else "NCCL timed out")
            own, other = wire.posted[self._rank][number], others[number]
            if {own.what, other.what} != {"send", "receive"} or own.n_bytes != other.n_bytes:
                self._cuda.fault(
                    f"operation {number} of a communicator: one end {own.what}s {own.n_bytes} bytes, the other "
                    f"{other.what}s {other.n_bytes}"
                )
            elif number == wire.n_over:  # the first of the ends: the tensors live until both have waited
                sent, received = (own, other) if own.what == "send" else (other, own)
                ctypes.memmove(received.address, sent.address, own.n_bytes)  # seen as NCCL's already
                wire.n_over += 1
            clock = other.clock
            self._stream.learn(clock)
        return self._stream.record_event()


class OrderedWork:
    def __init__(self, group: OrderedGroup, number: int, tensor: torch.Tensor) -> None:
        self._group, self._number, self._tensor = group, number, tensor

    def wait(self, timeout: object = None) -> bool:
        over = self._group.finish(self._number)
        self._group._cuda.current_stream().wait_event(over)
        if timeout is not None:
            over.synchronize()
        self._tensor = None
        return True
