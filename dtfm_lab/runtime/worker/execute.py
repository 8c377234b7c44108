"""Executes a schedule on a real worker with torch. The simulator interprets the same programs.

``domain.schedule`` defines when each kind of action starts and ends.
"""

from collections.abc import Callable, Sequence

import torch

from dtfm_lab.domain.job import message_bytes
from dtfm_lab.domain.network import OutgoingLinks, Passage
from dtfm_lab.domain.schedule import ACROSS_STAGES, COMPUTE, PASSES, RECEIVES, SENDS, Action, Kind, Step
from dtfm_lab.domain.trace import Span
from dtfm_lab.domain.trace.columns import BETWEEN_REPLICAS
from dtfm_lab.runtime.protocol.run_options import RunSpec
from dtfm_lab.runtime.worker.autograd_stage import Batch
from dtfm_lab.runtime.worker.clocks import Clock, RealClock
from dtfm_lab.runtime.worker.codec import Codec
from dtfm_lab.runtime.worker.device_math import DeviceMath
from dtfm_lab.runtime.worker.processors import CpuProcessor, Processor
from dtfm_lab.runtime.worker.reporter import Activity, ComputeLog
from dtfm_lab.runtime.worker.stages import DTYPES
from dtfm_lab.runtime.worker.transport import Transport


class ProgramExecutor:
    """Executes one worker's program, iteration by iteration, and reports one span per action."""

    slowdown = 1.0
    """Factor by which computations are slowed down. Set from another thread."""

    def __init__(
        self,
        spec: RunSpec,
        where: tuple[int, int],
        math: DeviceMath,
        transport: Transport,
        clock: Clock,
        specified_s: dict[tuple[int, Kind], float],
        report: Callable[[Span], None],
        log: ComputeLog,
        processor: Processor | None = None,
        turns: Sequence[Sequence[Sequence[int]]] = ((), ()),
    ) -> None:
        """Prepare to execute.

        Parameters
        ----------
        where
            Position in the pipeline, and replica.
        specified_s
            Seconds of each computation in the profile, by stage and kind.
        report
            Called with each span.
        turns
            Two lists, for an iteration that does not synchronise and for one that does. Each holds pairs of positions
            in the program: a send, and the receive whose message must have arrived before it.
        """
        job, (position, replica) = spec.plan.job, where
        self._processor = CpuProcessor() if processor is None else processor
        self._spec, self._replica = spec, replica
        self._programs = [spec.programs(synchronise=which).of(position, replica) for which in (False, True)]
        self._turns = [{pair[0]: pair[1] for pair in of_kind} for of_kind in turns]
        self._blocking = job.transport != "overlapped"
        self._order = [_in_order(steps) for steps in self._programs]
        self._one_device = spec.built.n_devices == 1
        self.math, self.clock, self.transport = math, clock, transport
        self.activity = Activity()
        """The activity of this worker. Heartbeats report it."""
        self._specified_s, self._report, self._log = specified_s, report, log
        self._links = OutgoingLinks(spec.links, spec.device(position, replica))
        self._slower = float(spec.links.slower(spec.plan.placement.devices)[position])
        self._codec = Codec(job.compression if job.codes_activations else "none", DTYPES[spec.trained.dtype])

    def iteration(self, iteration: int, batch: Batch, began_monotonic_s: float) -> float:
        """Execute one iteration and return ``DeviceMath.loss``."""
        synchronises = self._spec.synchronises(iteration)
        self._iteration, self._batch = iteration, batch
        self._program = self._programs[synchronises]
        self._ends_s = [0.0] * len(self._program)
        self._delivered_s: dict[int, float] = {}
        self._passages: dict[Action, Passage] = {}
        self._goes_after = self._turns[synchronises]
        self._arrived: dict[Action, torch.Tensor] = {}
        self._results: dict[Action, torch.Tensor] = {}
        self._links.reset()
        self.math.begin(synchronises=synchronises, iteration=iteration)
        self.clock.start_iteration(began_monotonic_s)
        for at in self._order[synchronises]:
            step = self._program[at]
            if step.action.kind in COMPUTE:
                self._compute(at, step)
            elif step.action.kind in RECEIVES:
                self._receive(at, step.action)
            else:
                self._send(at, step)
        self.transport.flush()
        return self.math.loss

    def evaluate(self, number: int, batch: Batch) -> float:
        """Execute only the forward passes, without spans, and return the loss as ``iteration`` does.

        ``number`` replaces the iteration's number in messages.
        """
        self._iteration, self._batch = number, batch
        self._program = self._programs[False]
        self._arrived, self._results = {}, {}
        for step in self._program:
            action = step.action
            if action.kind is Kind.FORWARD:
                self.activity.begin(action)
                self._keep_result(action, self.math.run(action, self._received(step), batch, saves=False))
                self.activity.end()
            elif action.kind is Kind.RECV_F:
                self._arrived[action] = self.transport.receive(number, action).content
            elif action.kind is Kind.SEND_F:
                to = self._spec.rank(*action.other_end(self._replica, self._spec.plan.job.n_replicas))
                self.transport.send(to, number, action.counterpart(), self._content(step))
        self.transport.flush()
        return self.math.loss

    def _compute(self, at: int, step: Step) -> None:
        action = step.action
        start_s = self.clock.begin(self._ready_s(step))
        wall_s, busy_s = self._processor.timed(lambda: self._work(at, step))
        self.activity.end()
        self._log.add(action.stage, action.kind, busy_s, wall_s)
        specified_s = self._specified_s.get((action.stage, action.kind), busy_s)
        # read once, because another thread may change it at any time
        if (slower := self.slowdown) != 1.0:
            busy_s, specified_s = busy_s * slower, specified_s * slower
            if isinstance(self.clock, RealClock):
                self.clock.delay(wall_s * (slower - 1.0))
        end_s = self.clock.finish(start_s, busy_s, specified_s)
        self._record_span(at, action, start_s, end_s)

    def _work(self, at: int, step: Step) -> None:
        self.activity.begin(step.action)  # only here does this worker have a shared GPU
        match step.action.kind:
            case Kind.PACK:
                self.math.all_reduce.pack(at)
            case Kind.REDUCE:
                self.math.reduce(at, sums=any(a.kind is Kind.RECV_G for a in self._needed(step)))
            case Kind.STEP:
                self.math.step()
            case _:
                result = self.math.run(step.action, self._received(step), self._batch)
                self._keep_result(step.action, result)

    def _received(self, step: Step) -> torch.Tensor | None:
        """Return the activations or gradient that a forward or backward pass takes from another stage."""
        received = None
        for action in self._needed(step):
            if action.kind in RECEIVES:
                received = self._codec.decode(self._arrived.pop(action))
            elif action.stage != step.action.stage:
                received = self._results.pop(action)
        return received

    def _keep_result(self, action: Action, result: torch.Tensor | None) -> None:
        if result is not None:
            # on one device the next stage takes the result as it is
            self._results[action] = result if self._one_device else self._codec.encode(result)

    def _receive(self, at: int, action: Action) -> None:
        message = self.transport.receive(self._iteration, action)
        self._passages[action] = message.passage
        if action.kind in ACROSS_STAGES:
            self._arrived[action] = message.content
        else:
            self.math.receive(action, message.content)
        arrived_s = self.clock.arrive(message.passage.delivered_s, message.arrived_monotonic_s)
        self._record_span(at, action, min(message.passage.first_byte_s, arrived_s), arrived_s)

    def _send(self, at: int, step: Step) -> None:
        action = step.action
        content = self._content(step)
        to = action.other_end(self._replica, self._spec.plan.job.n_replicas)
        to_rank, there = self._spec.rank(*to), action.counterpart()
        ready_s, clock = self._turn_s(at, self._ready_s(step)), self.clock
        if isinstance(clock, RealClock):

            def stamp() -> Passage:
                now_s = clock.elapsed_s()
                return Passage(now_s, now_s, 0.0)

            def sent(passage: Passage) -> None:
                self._record_span(at, action, passage.start_s, clock.elapsed_s())

            blocks = self._blocking and action.kind in ACROSS_STAGES
            self.transport.send(to_rank, self._iteration, there, content, stamp, sent, acknowledged=blocks)
            # a blocking device computes on only when its message has arrived
            if blocks:
                self.transport.flush()
            return
        passage = self._links.carry(
            self._spec.device(*to),
            ready_s,
            message_bytes(self._spec.plan.job, self._spec.built, step),
            in_turn=step.in_turn,
            slower=self._slower if action.kind in BETWEEN_REPLICAS else 1.0,
        )
        self._delivered_s[at] = passage.delivered_s
        self.transport.send(to_rank, self._iteration, there, content, lambda: passage)
        self._record_span(at, action, passage.start_s, passage.end_s)

    def _content(self, step: Step) -> torch.Tensor:
        if step.action.kind is Kind.SEND_E:
            return self.math.embedding_gradient()
        if step.action.kind not in ACROSS_STAGES:
            return self.math.all_reduce.content(step.action)
        (produced,) = (action for action in self._needed(step) if action.kind in PASSES)
        return self._results.pop(produced)

    def _needed(self, step: Step) -> list[Action]:
        return [self._program[need].action for need in step.needs]

    def _ready_s(self, step: Step) -> float:
        # on the real clock no delivery is noted, because the transport has already waited for it
        arrived_s = (self._delivered_s.get(sent, 0.0) for sent in step.arrivals)
        return max((*(self._ends_s[need] for need in step.needs), *arrived_s), default=0.0)

    def _turn_s(self, at: int, ready_s: float) -> float:
        """Return when this send may start. If the two directions of its link take turns, that is not before the
        previous message from the other end has arrived. Waits until that time is known.
        """
        before = self._goes_after.get(at)
        if before is None:
            return ready_s
        action = self._program[before].action
        passage = self._passages.get(action) or self.transport.peek(self._iteration, action)
        return max(ready_s, passage.delivered_s)

    def _record_span(self, at: int, action: Action, start_s: float, end_s: float) -> None:
        self._ends_s[at] = end_s
        self._report(Span(self._iteration, self._replica, action, start_s, end_s))


def _in_order(steps: tuple[Step, ...]) -> list[int]:
    """Return the positions of the steps in the order of their execution.

    It is the program's order, except that averaging with a delay starts at once. Its compression, and the messages that
    wait for no other replica, come before the passes that overlap with it.
    """
    first = next((i for i, step in enumerate(steps) if step.bucket is not None), len(steps))
    moved: dict[int, int] = {}
    for i, step in enumerate(steps[first:], start=first):
        leaves = step.action.kind is Kind.PACK or step.action.kind in SENDS
        if step.bucket is not None and leaves and all(need < first or need in moved for need in step.needs):
            moved[i] = max((moved.get(need, need) for need in step.needs), default=-1)
    return sorted(range(len(steps)), key=lambda i: (moved.get(i, i), i))
