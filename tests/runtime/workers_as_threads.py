"""All workers of a run as threads of one process: what they compute, without processes.

Their messages stay in memory, or cross process groups of torch.distributed as those of hosts do.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from incoming import incoming

from dtfm_lab.costs.seconds import analytic
from dtfm_lab.domain.network import Passage
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Action, Schedule
from dtfm_lab.domain.trace import ComputeTime, Span
from dtfm_lab.runtime.coordinator.calibration import turns_of
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.runtime.worker.batches import TextBatches
from dtfm_lab.runtime.worker.clocks import VirtualClock
from dtfm_lab.runtime.worker.device_math import DeviceMath
from dtfm_lab.runtime.worker.execute import ProgramExecutor
from dtfm_lab.runtime.worker.group_pairs import GlooBackend, GroupCarrier
from dtfm_lab.runtime.worker.processors import CpuProcessor
from dtfm_lab.runtime.worker.reporter import ComputeLog
from dtfm_lab.runtime.worker.transport import NO_DELAY, Message, PeerListener, Transport
from dtfm_lab.simulation import build

PATIENCE_S = 120.0


class Post:
    """Delivers in memory what workers send, each in the order that its receiver expects from that sender."""

    def __init__(self, spec: RunSpec, maths: dict[tuple[int, int], DeviceMath]) -> None:
        self.changed = threading.Condition()
        job = spec.plan.job  # buckets and fragments leave before what their programs name first
        self.in_order = not (job.overlap or job.fragments > 1 or job.fragment_delay)
        self.boxes: dict[tuple[int, int, Action], Message] = {}
        self.expected = {
            spec.rank(*worker): incoming(spec, *worker, math.state.parameters.numel()) for worker, math in maths.items()
        }


@dataclass
class InMemory:
    """The transport of one worker."""

    post: Post
    rank: int
    iteration: int = 0
    sent: dict[int, int] = field(default_factory=dict)

    def send(
        self,
        to: int,
        iteration: int,
        there: Action,
        content: torch.Tensor,
        stamp: Callable[[], Passage] = lambda: NO_DELAY,
        on_sent: Callable[[Passage], None] = lambda passage: None,
        *,
        acknowledged: bool = False,
    ) -> None:
        raw = content.detach().contiguous().view(-1).view(torch.uint8).clone()
        number = self.sent[to] = self.sent.get(to, -1) + 1
        action, n_bytes = self.post.expected[to][self.rank](self.iteration)[number]
        assert iteration == self.iteration
        if self.post.in_order:
            assert there == action
            assert raw.numel() == n_bytes, f"{action} of {raw.numel()} bytes, wanted {n_bytes}"
        with self.post.changed:
            self.post.boxes[to, self.iteration, there] = Message(raw, stamp(), time.monotonic())
            self.post.changed.notify_all()

    def receive(self, iteration: int, action: Action) -> Message:
        key = (self.rank, iteration, action)
        with self.post.changed:
            assert self.post.changed.wait_for(lambda: key in self.post.boxes, PATIENCE_S), f"no {action} came"
            return self.post.boxes.pop(key)

    def peek(self, iteration: int, action: Action) -> Passage:
        key = (self.rank, iteration, action)
        with self.post.changed:
            assert self.post.changed.wait_for(lambda: key in self.post.boxes, PATIENCE_S), f"no {action} came"
            return self.post.boxes[key].passage

    def flush(self) -> None:
        assert not self.sent or all(
            number + 1 == len(self.post.expected[to][self.rank](self.iteration)) for to, number in self.sent.items()
        )
        self.iteration += 1
        self.sent.clear()


@dataclass(frozen=True)
class Trained:
    losses: list[float]
    maths: dict[tuple[int, int], DeviceMath]
    spans: list[Span]

    def parameters(self, replica: int = 0) -> dict[str, np.ndarray]:
        """By their names in the whole model."""
        return {
            name: p.detach().numpy()
            for (_, r), math in self.maths.items()
            if r == replica
            for module in math.modules.values()
            for name, p in module.named_parameters()
        }

    def digests(self) -> dict[tuple[int, int], str]:
        """By position and replica, what ``Run.parameter_digests`` has of a run as processes."""
        return {worker: _digest(math) for worker, math in self.maths.items()}

    def replicas_are_equal(self) -> bool:
        """Bit for bit."""
        firsts = {position: math.state.parameters for (position, r), math in self.maths.items() if r == 0}
        return all(torch.equal(math.state.parameters, firsts[position]) for (position, _), math in self.maths.items())


def _digest(math: DeviceMath) -> str:
    digest = hashlib.sha256()
    for module in math.modules.values():
        for p in module.parameters():
            digest.update(p.detach().numpy().tobytes())
    return digest.hexdigest()


class DrawnClock(VirtualClock):
    """Every computation takes what the profile says, so that times can be compared to the last digit."""

    def finish(self, start_s: float, cpu_s: float, specified_s: float) -> float:
        return super().finish(start_s, specified_s, specified_s)


def over_groups(spec: RunSpec) -> list[Transport]:
    """By rank, transports of process groups (gloo) that are connected to each other."""
    ranks = range(len(spec.workers))
    listeners = [PeerListener("127.0.0.1", spec.secret) for _ in ranks]
    transports = []
    for rank, worker in enumerate(spec.workers):
        targets = {target: listeners[target].address for target in spec.targets(*worker)}
        carrier = GroupCarrier(GlooBackend("127.0.0.1", CpuProcessor()))
        sources = spec.sources(*worker)
        transports.append(Transport(listeners[rank], spec.secret, 1, rank, sources, targets, None, carrier))
    for transport in transports:
        transport.wait_connected()
    return transports


def train(
    plan: Plan,
    schedule: str | Schedule,
    steps: int,
    profile: Sequence[ComputeTime] = (),
    connect: Callable[[RunSpec], list[Transport]] | None = None,
) -> Trained:
    """Losses are means over the replicas. With a profile, computations take the seconds that it says.

    ``connect`` returns the transports by rank, such as ``over_groups``; messages stay in memory where it is None.
    """
    torch.set_num_threads(1)
    built, job = build(plan, schedule), plan.job
    spec = RunSpec(plan=plan, schedule=built.name, orders=built.orders, iterations=steps, clock="virtual")
    batches = TextBatches(None, job.modelled().seq_len, job.global_batch, spec.seed)
    maths = {worker: DeviceMath(spec, *worker) for worker in spec.workers}
    post = Post(spec, maths)
    transports: list[Transport] | None = None if connect is None else connect(spec)
    spans: list[Span] = []
    turns = turns_of(spec, profile or analytic(plan, spec.programs(synchronise=True)))

    def work(position: int, replica: int) -> list[float]:
        math, rank = maths[position, replica], spec.rank(position, replica)
        mail: Any = InMemory(post, rank) if transports is None else transports[rank]
        specified_s = {(row.stage, row.kind): row.seconds for row in profile if row.replica == replica}
        clock = DrawnClock() if profile else VirtualClock()
        order = turns[rank]
        executor = ProgramExecutor(
            spec, (position, replica), math, mail, clock, specified_s, spans.append, ComputeLog(), turns=order
        )
        shares = (batches.share(i, replica, job.microbatch_counts) for i in range(steps))
        return [executor.iteration(i, batch, 0.0) for i, batch in enumerate(shares)]

    def guarded(worker: tuple[int, int]) -> list[float]:
        try:
            return work(*worker)
        except BaseException:
            for transport in transports or ():
                transport.abort()  # or the others would wait for ever
            raise

    with ThreadPoolExecutor(len(spec.workers)) as pool:
        losses = list(pool.map(guarded, spec.workers))
    for transport in transports or ():
        transport.abort()
    of_replicas = [own for own, worker in zip(losses, spec.workers, strict=True) if maths[worker].holds_last]
    return Trained(np.mean(of_replicas, axis=0).tolist(), maths, spans)
