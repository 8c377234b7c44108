"""``torch.cuda`` without a GPU: streams and events that take notes of who ran, waited for and recorded what, in order.

Tensors stay on the CPU, where every operation is done at once; what a GPU could get wrong shows in the notes.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import torch

from dtfm_lab.runtime.gpu import cuda_processor


class Notes(list[tuple[Any, ...]]):
    """(what, on which stream, about what), in the order in which the host asked for it."""

    def about(self, *what: str) -> list[tuple[Any, ...]]:
        return [note for note in self if note[0] in what]


class FakeCuda:
    """Stands in for the module; streams are named by the order in which they were made, after the default one."""

    def __init__(self, notes: Notes, gpus: int = 1) -> None:
        self.notes, self._gpus = notes, gpus
        self._streams, self._events = itertools.count(), itertools.count()
        self.current = FakeStream(self)

    def Stream(self, device: object = None, priority: int = 0) -> FakeStream:
        return FakeStream(self)

    def Event(self, enable_timing: bool = False, blocking: bool = False) -> FakeEvent:
        return FakeEvent(self)

    def is_available(self) -> bool:
        return self._gpus > 0

    def device_count(self) -> int:
        return self._gpus

    def set_device(self, device: object) -> None:
        self.notes.append(("device", str(device)))

    def set_stream(self, stream: FakeStream) -> None:
        self.current = stream

    def current_stream(self, device: object = None) -> FakeStream:
        return self.current

    @contextlib.contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def get_device_properties(self, device: object) -> object:
        return type("Properties", (), {"uuid": f"fake-{id(self)}"})()


class FakeStream:
    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda, self.name = cuda, next(cuda._streams)

    @property
    def cuda_stream(self) -> int:
        return self.name

    def wait_event(self, event: FakeEvent) -> None:
        self._cuda.notes.append(("wait", self.name, event.name))

    def record_event(self) -> FakeEvent:
        event = self._cuda.Event()
        event.record(self)
        return event


class FakeEvent:
    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda, self.name = cuda, next(cuda._events)

    def record(self, stream: FakeStream) -> None:
        self._cuda.notes.append(("record", stream.name, self.name))

    def synchronize(self) -> None:
        self._cuda.notes.append(("synchronise", self.name))

    def elapsed_time(self, end: FakeEvent) -> float:
        """Milliseconds."""
        self._cuda.notes.append(("elapsed", self.name, end.name))
        return 250.0


@contextlib.contextmanager
def without_gpu(monkeypatch: Any, gpus: int = 1) -> Iterator[Notes]:
    """``torch.cuda`` is a FakeCuda; devices are the CPU; copies and marks of memory are noted with their stream."""
    notes = Notes()
    cuda = FakeCuda(notes, gpus)
    copy, clone, empty, device = torch.Tensor.copy_, torch.Tensor.clone, torch.empty, torch.device

    def noted_copy(tensor: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        notes.append(("copy", cuda.current.name, non_blocking))
        return copy(tensor, source)

    def noted_clone(tensor: torch.Tensor) -> torch.Tensor:
        notes.append(("clone", cuda.current.name))
        return clone(tensor)

    def noted_empty(n: int, *, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        notes.append(("pinned" if pin_memory else "allocate", cuda.current.name))
        return empty(n, **options)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "cuda", cuda)
        patch.setattr(torch, "empty", noted_empty)
        patch.setattr(torch, "device", lambda *_: device("cpu"))
        patch.setattr(torch.Tensor, "copy_", noted_copy)
        patch.setattr(torch.Tensor, "clone", noted_clone)
        patch.setattr(
            torch.Tensor, "record_stream", lambda tensor, stream: notes.append(("used on", stream.name)), raising=False
        )
        patch.setattr(cuda_processor, "make_deterministic", lambda: None)  # its effect is on the whole process
        yield notes
