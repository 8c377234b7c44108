"""Interpreter 2: play a schedule on a real worker with torch. When each row starts and ends: domain.schedule."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn

from dtfm_lab.domain.links import Links, Passage
from dtfm_lab.domain.messages import message_bytes
from dtfm_lab.domain.program import Step
from dtfm_lab.domain.schedule import COMPUTE, RECEIVES, Action, Kind
from dtfm_lab.domain.trace import Span
from dtfm_lab.runtime.clocks import Clock, RealClock
from dtfm_lab.runtime.profile import ComputeLog
from dtfm_lab.runtime.spec import RunSpec
from dtfm_lab.runtime.stages import FlatGradients, next_token_loss
from dtfm_lab.runtime.transport import GlooTransport, Message

Batch = list[tuple[torch.Tensor, torch.Tensor]]


class StageMath:
    """What each compute action does to tensors; no time and no messages in here."""

    def __init__(self, spec: RunSpec, stage: int, module: nn.Module) -> None:
        job = spec.plan.job
        model = job.modelled()
        self.module = module
        self.is_last = stage == job.n_stages - 1
        self.gradients = FlatGradients(module, job.n_replicas)
        self.optimizer = torch.optim.AdamW(module.parameters(), lr=spec.learning_rate)
        self._n_microbatches, self._n_replicas = job.n_microbatches, job.n_replicas
        self._shape = (job.microbatch, model.seq_len, model.d_model)
        self._held: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def forward(self, microbatch: int, received: torch.Tensor | None, batch: Batch) -> torch.Tensor:
        """Activations to send on; on the last stage the micro-batch's share of the loss."""
        inputs = batch[microbatch][0] if received is None else received.view(self._shape).requires_grad_()
        outputs = self.module(inputs)
        if self.is_last:
            outputs = next_token_loss(outputs, batch[microbatch][1]) / self._n_microbatches
        self._held[microbatch] = inputs, outputs
        return outputs

    def backward(self, microbatch: int, received: torch.Tensor | None) -> torch.Tensor | None:
        """Gradient of the inputs to send back; None on the first stage."""
        inputs, outputs = self._held.pop(microbatch)
        torch.autograd.backward(outputs, None if received is None else received.view(self._shape))
        return inputs.grad

    def reduce(self, replica: int, received: list[tuple[int, torch.Tensor]]) -> None:
        """Average this replica's shard, summing in the order of the replicas."""
        mine = self.gradients.shards[replica]
        parts = dict(received) | {replica: mine.clone()}
        mine.zero_()
        for other in range(self._n_replicas):
            mine.add_(parts[other])
        mine.div_(self._n_replicas)

    def step(self, received: list[tuple[int, torch.Tensor]]) -> None:
        for other, shard in received:
            self.gradients.shards[other].copy_(shard)
        self.optimizer.step()
        self.gradients.flat.zero_()


class Executor:
    """Plays one worker's program, iteration by iteration, and reports a span for every action."""

    def __init__(
        self,
        spec: RunSpec,
        stage: int,
        replica: int,
        math: StageMath,
        transport: GlooTransport,
        clock: Clock,
        drawn_s: dict[Kind, float],
        report: Callable[[Span], None],
        log: ComputeLog,
    ) -> None:
        self._spec, self._replica = spec, replica
        self._math, self._transport, self._clock = math, transport, clock
        self._drawn_s, self._report, self._log = drawn_s, report, log
        self._program = spec.programs.of(stage, replica)
        self._links = Links.of(spec.plan.topology).outgoing(spec.device(stage, replica))

    def iteration(self, iteration: int, batch: Batch, began_monotonic_s: float) -> float:
        """Run it; returns this replica's mean loss (0 except on the last stage)."""
        self._iteration, self._batch = iteration, batch
        self._ends_s = [0.0] * len(self._program)
        self._received: dict[Action, Message] = {}
        self._results: dict[Action, torch.Tensor | None] = {}
        self._links.reset()
        self._clock.start_iteration(began_monotonic_s)
        for at, step in enumerate(self._program):
            if step.action.kind in COMPUTE:
                self._compute(at, step)
            elif step.action.kind in RECEIVES:
                self._receive(at, step.action)
            else:
                self._send(at, step)
        self._transport.flush()
        losses = [r for a, r in self._results.items() if a.kind is Kind.FORWARD] if self._math.is_last else []
        return float(sum(float(loss) for loss in losses if loss is not None))

    def _compute(self, at: int, step: Step) -> None:
        action = step.action
        start_s = self._clock.begin(self._ready_s(step))
        wall_s, cpu_s = time.monotonic(), time.thread_time()
        result = self._work(action)
        wall_s, cpu_s = time.monotonic() - wall_s, time.thread_time() - cpu_s
        end_s = self._clock.finish(start_s, cpu_s, self._drawn_s.get(action.kind, cpu_s))
        self._log.add(self._iteration, action.kind, cpu_s, wall_s)
        self._results[action] = None if result is None else result.detach()
        self._note(at, action, start_s, end_s)

    def _work(self, action: Action) -> torch.Tensor | None:
        stage, kind, m, _ = action
        match kind:
            case Kind.FORWARD if m is not None:
                return self._math.forward(m, self._taken(Action(stage, Kind.RECV_F, m)), self._batch)
            case Kind.BACKWARD if m is not None:
                return self._math.backward(m, self._taken(Action(stage, Kind.RECV_B, m)))
            case Kind.REDUCE:
                self._math.reduce(self._replica, self._shards(Kind.RECV_G))
            case Kind.STEP:
                self._math.step(self._shards(Kind.RECV_P))
        return None

    def _receive(self, at: int, action: Action) -> None:
        message = self._transport.receive(self._iteration, action)
        self._received[action] = message
        arrived_s = self._clock.arrive(message.passage.delivered_s, message.arrived_monotonic_s)
        self._note(at, action, min(message.passage.first_byte_s, arrived_s), arrived_s)

    def _send(self, at: int, step: Step) -> None:
        action = step.action
        content = self._content(action)
        to_stage, to_replica = action.other_end(self._replica, self._spec.plan.job.n_replicas)
        to_rank = self._spec.rank(to_stage, to_replica)
        clock = self._clock
        if isinstance(clock, RealClock):

            def stamp() -> Passage:
                now_s = clock.elapsed_s()
                return Passage(now_s, now_s, 0.0)

            def sent(passage: Passage) -> None:
                self._note(at, action, passage.start_s, clock.elapsed_s())

            self._transport.send(to_rank, content, stamp, sent)
            return
        passage = self._links.carry(
            self._spec.device(to_stage, to_replica),
            self._ready_s(step),
            message_bytes(self._spec.plan.job, self._spec.built, step),
            in_turn=step.in_turn,
        )
        self._transport.send(to_rank, content, lambda: passage, lambda _: None)
        self._note(at, action, passage.start_s, passage.end_s)

    def _content(self, action: Action) -> torch.Tensor:
        stage, kind, m, peer = action
        if kind in (Kind.SEND_F, Kind.SEND_B):
            produced = self._results.pop(Action(stage, Kind.FORWARD if kind is Kind.SEND_F else Kind.BACKWARD, m))
            assert produced is not None
            return produced
        assert peer is not None
        owner = (self._replica + peer) % len(self._math.gradients.shards) if kind is Kind.SEND_G else self._replica
        return self._math.gradients.shards[owner]

    def _taken(self, receive: Action) -> torch.Tensor | None:
        message = self._received.pop(receive, None)
        return None if message is None else message.payload

    def _shards(self, kind: Kind) -> list[tuple[int, torch.Tensor]]:
        """(replica it came from, content) of the synchronisation messages received."""
        n = self._spec.plan.job.n_replicas
        actions = [a for a in self._received if a.kind is kind]
        return [(a.other_end(self._replica, n)[1], self._received.pop(a).payload) for a in actions]

    def _ready_s(self, step: Step) -> float:
        return max((self._ends_s[need] for need in step.needs), default=0.0)

    def _note(self, at: int, action: Action, start_s: float, end_s: float) -> None:
        self._ends_s[at] = end_s
        self._report(Span(self._iteration, self._replica, action, start_s, end_s))
