"""A pipeline schedule as data: what each device of a pipeline computes, in which order.

The simulator and the runtime both follow this data. Actions are written much as in torch.distributed.pipelining. For
example, ``2F0`` is the forward of micro-batch 0 on stage 2. ``1I3`` and ``1W3`` are the two halves of a split backward
(gradient of the inputs, then of the weights). ``1SEND_F3`` sends stage 1's activation of micro-batch 3, and
``0SEND_G+1`` sends stage 0's gradient shard to the next replica.

A device holds one stage, or several if the schedule interleaves. In a pipeline of P devices, the device at position p
holds stages p, p + P, p + 2 P... ``lower`` of ``domain.schedule.program`` adds messages, synchronisation and the
optimizer's step.

When an action starts and ends, in simulated and measured traces alike:

============ ==================================================== ==============================
kind         starts                                               ends
============ ==================================================== ==============================
F, B, I, W   device free and everything it needs is there         after its computation
PART         the same: a part of a stage's last B or W            after its computation
SEND_*       its content is ready and its link is free            when its last byte has left
RECV_*       its first byte can be there: SEND start + latency    as long after that as the SEND lasts
PACK         device free, its own gradients whole                 after compressing them
REDUCE       device free, the gradient shards it sums are there   after averaging them
STEP         device free, all averaged gradients there            after the optimizer's step
============ ==================================================== ==============================

Waiting is never part of an action: it is the gap before it. A computation that sends or receives compressed messages
includes compressing and decompressing them. With ``sharded`` synchronisation, a device sends its messages one after the
other, each when the one before has arrived. DT-FM's cost model does the same: it serves one peer after the other (Yuan
et al. 2022, equation 2). ``domain.network.topology`` says which other messages wait for each other.

With the ``blocking`` transport, a device that has sent SEND_F or SEND_B waits until that message has arrived (its RECV
has ended at the other end). Only then does it begin its next computation and its next send. The two directions between
two devices take turns: a message starts when the one before it, of either direction, has arrived. PyTorch's process
group does so for NCCL (``ProcessGroupNCCL::pointToPoint``; pytorch/pytorch#132852). All point-to-point operations of a
pair of ranks use one communicator and one stream, one after the other.

With the ``batched`` transport, the device waits as well, but the directions do not take turns. Megatron-LM's
``p2p_communication`` gives a send and its matching receive to ``batch_isend_irecv``, which makes them one NCCL group.
Then it waits for both. Receives are posted beforehand and wait for no computation of the receiver. At a NIC (with
``nics``, or if the devices of a host share one), a message first waits for its turn and then for the NIC.

SEND_E carries a tied embedding's gradient between the first and the last stage. It belongs to synchronisation, and each
kind of synchronisation puts it in its own order.

If replicas update themselves independently for some iterations (``Job.synchronise_every``), STEP needs no averages and
comes before PACK. A last REDUCE, in a separate round, writes the averages into the parameters when all are there.

If replicas split the optimizer's states (``Job.sharding``), STEP comes right after the REDUCE that averages the
device's own shard, and updates only that shard. SEND_P and RECV_P carry its parameters, never compressed. A last
REDUCE, in a separate round, writes the other replicas' parameters. SEND_E and RECV_E then come before SEND_G.

If synchronisation overlaps (``Job.overlap``), the last backward of a stage is computed in parts. Some buckets of its
gradient are complete at the end of each part. What a device computes for a bucket (PACK, REDUCE) then runs at the same
time as its passes, one at a time, like collectives that have their own stream.

On the real clock, a send lasts as long as the transport takes its bytes. A receive lasts from the send's start until
the bytes are there, which can be before the sender's call returns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import chain
from typing import NamedTuple, Self, TypeVar

from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.domain.network import is_plain, shortened
from dtfm_lab.domain.units import counted


class Kind(StrEnum):
    """What an action does. F and B are a forward and a whole backward; I and W are the two halves of a split
    backward."""

    FORWARD = "F"
    BACKWARD = "B"
    BACKWARD_INPUT = "I"
    """The half of a split backward that the previous stage waits for."""
    BACKWARD_WEIGHT = "W"
    """The half that only the optimizer waits for."""
    PART = "PART"
    """A part of a stage's last B or W, numbered from 0. The last part is the pass itself."""
    SEND_F = "SEND_F"
    RECV_F = "RECV_F"
    SEND_B = "SEND_B"
    RECV_B = "RECV_B"
    PACK = "PACK"
    """Compression of the gradient before synchronisation."""
    SEND_G = "SEND_G"
    """A gradient, or a shard or a sum of them, sent to a replica that adds it up."""
    RECV_G = "RECV_G"
    REDUCE = "REDUCE"
    SEND_P = "SEND_P"
    """An average or a shard of it, or the parameters updated with it, sent to a replica that lacks it."""
    RECV_P = "RECV_P"
    SEND_E = "SEND_E"
    """Gradient of a tied embedding, between the first and the last stage."""
    RECV_E = "RECV_E"
    STEP = "STEP"


class Lane(StrEnum):
    """The part of a device that an action occupies. A device can compute, send and receive at the same time."""

    COMPUTE = "compute"
    SEND = "send"
    RECEIVE = "receive"


BACKWARDS = (Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT)
PASSES = (Kind.FORWARD, *BACKWARDS)
"""The computations that a schedule orders."""
FOLLOWING = {
    (): (Kind.FORWARD,),
    (Kind.FORWARD,): (Kind.BACKWARD, Kind.BACKWARD_INPUT),
    (Kind.FORWARD, Kind.BACKWARD_INPUT): (Kind.BACKWARD_WEIGHT,),
}
"""Passes that a micro-batch has done on a stage -> passes that may come next. Nothing follows a B or a W."""
COMPUTE = (*PASSES, Kind.PART, Kind.PACK, Kind.REDUCE, Kind.STEP)
SENDS = {kind: Kind(kind.replace("SEND", "RECV")) for kind in Kind if kind.startswith("SEND")}
"""Each kind of send and the receive at its other end."""
RECEIVES = {receive: send for send, receive in SENDS.items()}
SYNCHRONISATION = (Kind.PACK, Kind.SEND_G, Kind.RECV_G, Kind.REDUCE, Kind.SEND_P, Kind.RECV_P, Kind.SEND_E, Kind.RECV_E)
LANE = {
    **dict.fromkeys(COMPUTE, Lane.COMPUTE),
    **dict.fromkeys(SENDS, Lane.SEND),
    **dict.fromkeys(RECEIVES, Lane.RECEIVE),
}
ACROSS_STAGES = {Kind.SEND_F: 1, Kind.RECV_B: 1, Kind.SEND_B: -1, Kind.RECV_F: -1}
"""Stage offset from this end of a pipeline's message to the other end."""


class Action(NamedTuple):
    """One thing that a device does for one stage, micro-batch or peer."""

    stage: int
    """Stage number within the pipeline. For synchronisation and the optimizer step, the first stage that the device
    holds; for a tied embedding's gradient, the stage with the embedding or the head."""
    kind: Kind
    microbatch: int | None = None
    """Micro-batch of a pass or of its messages. For a PART, its number. For a PACK or STEP of one of several buckets,
    the bucket. For synchronisation with several rounds, the round, numbered consecutively over a device's buckets."""
    peer: int | None = None
    """Offset of the other end: replica + peer for sends, replica - peer for receives, modulo replicas. For a tied
    embedding, stage + peer or stage - peer. None for a message along a pipeline."""

    def __str__(self) -> str:
        away = 0 if self.peer is None else self.peer if self.kind in SENDS else -self.peer
        peer = "" if self.peer is None else f"{away:+d}"
        return f"{self.stage}{self.kind}{'' if self.microbatch is None else self.microbatch}{peer}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the action of a text that ``str`` wrote. Raises ScheduleError for any other text."""
        found = WRITTEN.fullmatch(text.strip())
        if found is None or found["kind"] not in WRITTEN_KINDS:
            raise ScheduleError(f"{shortened(text)} is not an action; wanted one such as 0F3, 2B0, 1I3 or 1W3")
        m, peer = found["microbatch"], found["peer"]
        kind = Kind(found["kind"])
        sign = -1 if kind in RECEIVES else 1
        return cls(int(found["stage"]), kind, None if m is None else int(m), None if peer is None else sign * int(peer))

    @property
    def lane(self) -> Lane:
        return LANE[self.kind]

    def other_end(self, replica: int, n_replicas: int) -> tuple[int, int]:
        """Return (stage, replica) of the device at the other end of this transfer. Raises ValueError for a
        computation."""
        across = ACROSS_STAGES.get(self.kind)
        if self.lane is Lane.COMPUTE or (across is None and self.peer is None):
            raise ValueError(f"{self} is not a transfer")
        peer = (self.peer or 0) if self.kind in SENDS else -(self.peer or 0)
        if self.kind in (Kind.SEND_E, Kind.RECV_E):
            return self.stage + peer, replica
        return self.stage + (across or 0), (replica + peer) % n_replicas

    def counterpart(self) -> Action:
        """Return the receive at the other end of this send."""
        away = (self.peer or 0) if self.kind is Kind.SEND_E else ACROSS_STAGES.get(self.kind, 0)
        return Action(self.stage + away, SENDS[self.kind], self.microbatch, self.peer)


class Step(NamedTuple):
    """An action and what it waits for on its own device, beyond the order of computations."""

    action: Action
    needs: tuple[int, ...] = ()
    """Positions, in the same program, of steps that must have ended."""
    share: float = 0.0
    """Fraction of the device's gradient that a synchronisation message carries, or that is compressed."""
    coded: float = 0.0
    """Amount that a synchronisation computation compresses or restores if gradients are compressed: 1 for each whole
    gradient."""
    in_turn: bool = False
    """True if it waits until this device's previous ``in_turn`` message has arrived."""
    bucket: int | None = None
    """Number of the bucket that it synchronises, if the device has several; 0 for a delayed average. Computations with
    a bucket run during the passes, as soon as they can."""
    fraction: float = 1.0
    """Duration relative to a whole computation of its kind, for a part of a pass or the work for one bucket."""
    whole: Kind | None = None
    """For a PART, the kind of the pass that it belongs to."""
    rounds: int = 1
    """Number of equal messages or sums that the action stands for, each of ``share`` or ``fraction``. It is above 1 in
    a ring whose rounds are combined into one action."""
    arrivals: tuple[int, ...] = ()
    """Positions, in the same program, of sends whose messages must have arrived at the other end."""


WRITTEN = re.compile(
    r"(?P<stage>\d{1,6})(?P<kind>[A-Z]+(?:_[A-Z])?)(?P<microbatch>\d{1,9})?(?P<peer>[+-]\d{1,6})?", re.ASCII
)
WRITTEN_KINDS = frozenset(Kind)


@dataclass(frozen=True)
class Schedule:
    """One training iteration of one pipeline: the forwards and backwards of each of its devices, in order.

    Each stage runs each micro-batch forward once and backward once, whole (B) or split (I, then W). Raises
    ScheduleError if a program misses or repeats a pass, contains another device's stage, or runs a backward before its
    forward or a W before its I.
    """

    name: str
    n_microbatches: int
    programs: tuple[tuple[Action, ...], ...]
    """Passes in order, by position in the pipeline."""

    def __hash__(self) -> int:
        """Hash only a few of the parts. Schedules with thousands of passes are looked up often."""
        return hash((self.name, self.n_microbatches, self.n_devices))

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not is_plain(self.name):
            raise ScheduleError(f"schedule is named {shortened(self.name)}; wanted text without control characters")
        if not self.programs:
            raise ScheduleError(f"schedule {self.name} has no program; wanted one a device")
        if self.n_microbatches < 1:
            raise ScheduleError(
                f"schedule {self.name} has {counted(self.n_microbatches, 'micro-batch')}; wanted 1 or more"
            )
        for position, program in enumerate(self.programs):
            self._check(position, program)

    def _check(self, position: int, program: tuple[Action, ...]) -> None:
        where = f"schedule {self.name}, device {position}"
        passed: dict[tuple[int, int], tuple[Kind, ...]] = {}
        for action in program:
            stage, kind, m, peer = action
            if kind not in PASSES or m is None or peer is not None or not 0 <= m < self.n_microbatches:
                raise ScheduleError(f"{where}: {action} is not a pass of micro-batches 0 to {self.n_microbatches - 1}")
            if stage % self.n_devices != position or not 0 <= stage < self.n_stages:
                held = ", ".join(map(str, self.stages_of(position)))
                raise ScheduleError(f"{where}: {action} is out of place; it holds stage {held}")
            before = passed.get((stage, m), ())
            # The passes so far decide what may follow, because a backward is whole or in two halves.
            if kind not in FOLLOWING.get(before, ()):
                needed = next((needs[-1] for needs, kinds in FOLLOWING.items() if needs and kind in kinds), kind)
                if needed is not kind and needed not in before:
                    raise ScheduleError(f"{where}: {action} comes before its {Action(stage, needed, m)}")
                raise ScheduleError(f"{where}: {action} is there twice; wanted each F and B (or I and W) once")
            passed[stage, m] = (*before, kind)
        for stage in self.stages_of(position):
            for m in range(self.n_microbatches):
                if missing := FOLLOWING.get(passed.get((stage, m), ())):
                    lost = Action(stage, missing[0], m)
                    raise ScheduleError(f"{where}: {lost} is missing; wanted each F and B once")

    @classmethod
    def from_orders(cls, name: str, orders: Sequence[str]) -> Self:
        """Return the schedule with these passes: one text per device, in the form of ``Schedule.orders``.

        Raises ScheduleError if a word is not a pass, or if the passes do not form a schedule.
        """
        programs = tuple(tuple(Action.parse(word) for word in order.split()) for order in orders)
        microbatches = {
            action.microbatch for program in programs for action in program if action.microbatch is not None
        }
        return cls(name, max(microbatches, default=-1) + 1, programs)

    @cached_property
    def orders(self) -> tuple[str, ...]:
        """Passes of each device of a pipeline as text: ``0F0 0F1 0B0 0B1``."""
        return tuple(" ".join(map(str, program)) for program in self.programs)

    @property
    def splits_backwards(self) -> bool:
        """True if a backward is two passes (gradients of inputs, then of weights), as in zero-bubble schedules."""
        return any(action.kind is Kind.BACKWARD_INPUT for program in self.programs for action in program)

    @property
    def n_devices(self) -> int:
        """Number of devices in one pipeline."""
        return len(self.programs)

    @cached_property
    def n_stages(self) -> int:
        """Number of stages over all devices of the pipeline."""
        return self.n_devices * self.stages_per_device

    @cached_property
    def stages_per_device(self) -> int:
        return max(len({action.stage for action in self.programs[0]}), 1)

    def stages_of(self, position: int) -> range:
        """Return the stages that the device at this position of the pipeline holds."""
        return range(position, self.n_stages, self.n_devices)

    def __iter__(self) -> Iterator[Action]:
        return (action for program in self.programs for action in program)


# ---------------------------------------------------------------------------------------------------------------------
# Orders of passes that most schedules are made of.


Program = tuple[Action, ...]
T = TypeVar("T")


def passes(stage: int, kind: Kind, n_microbatches: int) -> Program:
    """Return the pass ``kind`` on ``stage`` for every micro-batch, in order."""
    return tuple(Action(stage, kind, m) for m in range(n_microbatches))


def taking_turns(forwards: Sequence[T], backwards: Sequence[T], warmup: int) -> tuple[T, ...]:
    """Return ``warmup`` forwards, then alternately a forward and a backward, then the remaining backwards."""
    n_turns = len(forwards) - warmup
    turns = chain.from_iterable(zip(forwards[warmup:], backwards[:n_turns], strict=True))
    return (*forwards[:warmup], *turns, *backwards[n_turns:])


@lru_cache(maxsize=4)  # what-ifs about links build the same schedule many times
def with_warmups(name: str, n_microbatches: int, warmups: tuple[int, ...]) -> Schedule:
    """Return the schedule in which device s runs ``warmups[s]`` forwards and then alternates forward and backward."""
    programs = tuple(
        taking_turns(passes(s, Kind.FORWARD, n_microbatches), passes(s, Kind.BACKWARD, n_microbatches), warmup)
        for s, warmup in enumerate(warmups)
    )
    return Schedule(name, n_microbatches, programs)
