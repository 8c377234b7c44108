"""The order of streams, events, buffers and communicators: proved for the product, and open in every planted fault.

A fault is the product's own source with one place changed. Host threads interleave as hypothesis draws.
"""

from __future__ import annotations

import types
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from cuda_order import Operations, OrderedCuda, OrderedGroup, Wire, ordered
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.runtime.gpu import cuda_processor
from dtfm_lab.runtime.worker import group_pairs

N_BYTES = 64
hosts = st.lists(st.sampled_from(["computing", "sending", "receiving"]), max_size=30)
IN_TURN = ["computing", "sending", "receiving"] * 8


def changed(module: Any, right: str, wrong: str) -> Any:
    """A module made of this one's source with one place changed."""
    source = module.__loader__.get_source(module.__name__)
    assert source.count(right) == 1, f"{right!r} is {source.count(right)} times in {module.__name__}"
    made = types.ModuleType(f"changed_{module.__name__}")
    made.__dict__["__name__"] = module.__name__
    exec(compile(source.replace(right, wrong), f"<changed {module.__name__}>", "exec"), made.__dict__)
    made.__dict__["make_deterministic"] = lambda: None
    return made


class Worker:
    """A worker's three host threads around a processor: one computes, one sends, one receives."""

    def __init__(self, cuda: OrderedCuda, processor: Any) -> None:
        self.cuda = cuda
        with cuda.host("computing"):
            self.gpu = processor.CudaProcessor(0, shares=False)
            self.gradients = torch.zeros(N_BYTES, dtype=torch.uint8)
        self.outbox: deque[Any] = deque()
        self.inbox: deque[Any] = deque()
        self.sent: list[list[int]] = []
        self.received: list[list[int]] = []
        self.computed = self.arrived = 0

    def computing(self) -> None:
        """Compute on what has come and change the gradients in place; send them; change them again."""
        if self.inbox:
            content = self.cuda.take_over(self.inbox.popleft()).wait()
            computed = content.clone()
            del content  # before the GPU has computed
            self.received.append(computed[:1].tolist())

        def step() -> None:
            self.computed += 1
            self.gradients.fill_(self.computed % 200)

        self.gpu.timed(step)
        self.outbox.append(self.cuda.hand_over(self.gpu.send_buffer(self.gradients)))
        self.gradients.add_(1)

    def sending(self) -> None:
        if self.outbox:
            packet = self.cuda.take_over(self.outbox.popleft()).to_host()
            self.sent.append(packet.numpy().tolist()[:1])

    def receiving(self) -> None:
        host = self.gpu.host_buffer(N_BYTES)
        self.arrived += 1
        host.numpy()[:] = self.arrived
        self.inbox.append(self.cuda.hand_over(self.gpu.receive_buffer(host)))

    def play(self, order: list[str]) -> None:
        for name in order:
            with self.cuda.host(name):
                getattr(self, name)()


def faults_of(processor: Any, order: list[str]) -> list[str]:
    with pytest.MonkeyPatch.context() as patch, ordered(patch) as cuda:
        worker = Worker(cuda, processor)
        worker.play(order)
        assert worker.received == [[i + 1] for i in range(len(worker.received))]
        if processor is cuda_processor:
            assert worker.sent == [[(i + 1) % 200] for i in range(len(worker.sent))]
        with cuda.host("computing"):
            del worker
    return cuda.faults


@settings(max_examples=40)
@given(order=hosts)
def test_whatever_the_host_threads_do_the_order_on_the_gpu_is_proved(order):
    assert faults_of(cuda_processor, order) == []


FAULTS = {
    "sent before it is written": ("            self._send.wait_event(self.written)\n", ""),
    "read before it is copied": ("        copied.synchronize()\n", ""),
    "end of the copy noted before it": (
        "            packet.copy_(self.content, non_blocking=True)\n            copied = new_event()\n"
        "            copied.record(self._send)\n",
        "            copied = new_event()\n            copied.record(self._send)\n"
        "            packet.copy_(self.content, non_blocking=True)\n",
    ),
    "end of the copy noted on another stream": ("copied.record(self._send)", "copied.record(torch.cuda.Stream())"),
    "no copy is kept for sending": ("CudaSendBuffer(content.clone(), ", "CudaSendBuffer(content, "),
    "whole on the wrong stream": ("self._compute.record_event(), self._send", "self._send.record_event(), self._send"),
    "computed on a stream that nobody waits for": ("        torch.cuda.set_stream(self._compute)\n", ""),
    "received on the default stream": ("with torch.cuda.stream(self._receive):", "if True:"),
    "arrival noted before the copy": (
        "            content.copy_(host, non_blocking=True)\n"
        "            return CudaReceiveBuffer(content, self._receive.record_event())",
        "            written = self._receive.record_event()\n            content.copy_(host, non_blocking=True)\n"
        "            return CudaReceiveBuffer(content, written)",
    ),
    "used before it has come": ("        compute.wait_event(self._written)\n", ""),
    "another stream waits for it": ("compute.wait_event(self", "torch.cuda.Stream().wait_event(self"),
    "freed while the computation reads it": ("        self._content.record_stream(compute)\n", ""),
    "kept for the wrong stream": ("record_stream(compute)", "record_stream(torch.cuda.Stream())"),
    "timed before it has ended": ("            self._ended.synchronize()", "            pass"),
    "one pinned buffer for all messages": (
        "        return torch.empty(n_bytes, dtype=torch.uint8, pin_memory=True)",
        "        if not hasattr(self, '_one'):\n"
        "            self._one = torch.empty(n_bytes, dtype=torch.uint8, pin_memory=True)\n        return self._one",
    ),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_planted_fault_is_found(what):
    found = faults_of(changed(cuda_processor, *FAULTS[what]), IN_TURN)
    print(what, "->", found[:1])
    assert found


def faults_between_gpus(
    groups: Any = group_pairs, processor: Any = cuda_processor, patience_s: float = 60.0
) -> list[str]:
    """Three contents from one GPU to another by an NCCL group of two, while both ends compute."""
    with pytest.MonkeyPatch.context() as patch, ordered(patch) as cuda:
        patch.setattr(groups, "CudaReceiveBuffer", processor.CudaReceiveBuffer)
        gpus, backends, wires, wire = [], [], [], Wire()
        for rank, name in enumerate(("sender", "receiver")):
            with cuda.host(f"{name}'s computing"):
                gpus.append(processor.CudaProcessor(0, shares=False))
            group, socket = OrderedGroup(cuda, wire, rank, patience_s=patience_s), types.SimpleNamespace(sendall=len)
            backends.append(groups.NcclBackend(gpus[-1].device))
            wires.append(groups.GroupWire(backends[-1], group, None, socket, (0, 1), ("a", "b"), rank))
        with cuda.host("sender's computing"):
            gradients = torch.zeros(N_BYTES, dtype=torch.uint8)

        def sends(buffers: list[Any]) -> None:
            with Operations(cuda), cuda.host("sender's sending"):
                wires[0].send(b"", cuda.take_over(buffers.pop()))

        with ThreadPoolExecutor(1) as pool:
            for i in range(3):
                with cuda.host("sender's computing"):
                    gradients.fill_(i)
                    sending = pool.submit(sends, [cuda.hand_over(gpus[0].send_buffer(gradients))])
                    gradients.add_(1)
                with cuda.host("receiver's receiving"):
                    try:
                        arrived = cuda.hand_over(wires[1].receive(N_BYTES))
                    except ConnectionError:
                        sending.result()
                        raise
                with cuda.host("receiver's computing"):
                    computed = cuda.take_over(arrived).wait().clone()
                    del arrived  # before the GPU has computed
                    assert computed[:1].tolist() == [i] or cuda.faults
                sending.result()
    return cuda.faults


def test_contents_from_gpu_to_gpu_are_in_order():
    assert faults_between_gpus() == []


BETWEEN_GPUS = {
    "announced before it is written": ("groups", "buffer.written.synchronize()", "pass"),
    "freed while NCCL reads it": ("groups", ".wait(timedelta(seconds=within_s))", ".wait()"),
    "both ends send": ("groups", 'self._group.send if what == "send" else self._group.recv', "self._group.send"),
    "both ends receive": ("groups", 'self._group.send if what == "send" else self._group.recv', "self._group.recv"),
    "more is received than was sent": ("groups", "content = self._backend.empty(n_bytes)",
                                       "content = self._backend.empty(n_bytes + 1)"),
    "freed while the computation reads it": ("processor", "        self._content.record_stream(compute)\n", ""),
}  # fmt: skip
IN_VAIN = {"both ends send": 0.5, "both ends receive": 0.5, "more is received than was sent": 0.5}
"""Faults with which one end waits for ever, and the seconds after which it gives up."""
MODULES = {"groups": group_pairs, "processor": cuda_processor}


@pytest.mark.parametrize("what", BETWEEN_GPUS)
def test_a_fault_between_gpus_is_found(what):
    which, right, wrong = BETWEEN_GPUS[what]
    patience = {"patience_s": IN_VAIN[what]} if what in IN_VAIN else {}
    found = faults_between_gpus(**{which: changed(MODULES[which], right, wrong)}, **patience)
    print(what, "->", found[:1])
    assert found
