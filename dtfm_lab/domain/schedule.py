"""A pipeline schedule as data: what each stage does, in which order.

The simulator and the runtime both interpret this; neither owns it. Actions are written much as
in torch.distributed.pipelining: ``2F0`` is the forward of micro-batch 0 on stage 2, ``1SEND_F3``
ships stage 1's activation of micro-batch 3, ``0SEND_G+1`` stage 0's gradient shard to the next replica.

When an action starts and ends, for both interpreters (a trace of either keeps to it):

========== ==================================================== ==============================
kind       starts                                               ends
========== ==================================================== ==============================
F, B       device free and everything it needs is there         after its computation
SEND_*     its content is ready and its link is free            when its last byte has left
RECV_*     its first byte can be there: SEND start + latency    SEND end + latency
REDUCE     device free, all gradient shards of the peers there  after averaging its own shard
STEP       device free, all averaged shards there               after the optimiser's step
========== ==================================================== ==============================

Waiting is never part of an action: it is the gap before it. Gradient shards and averaged shards of a
device go out one after the other, each when the one before has arrived: the paper serves one peer
after the other (equation 2). Messages of one directed pair never overlap; pairs are independent.
On the real clock a send lasts while the transport takes its bytes, and a receive from the send's start
until they are there, which may be before the transport lets the sender go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from dtfm_lab.domain.errors import ScheduleError


class Kind(StrEnum):
    FORWARD = "F"
    BACKWARD = "B"
    SEND_F = "SEND_F"
    RECV_F = "RECV_F"
    SEND_B = "SEND_B"
    RECV_B = "RECV_B"
    SEND_G = "SEND_G"
    """a shard of the gradient, to the replica that averages it"""
    RECV_G = "RECV_G"
    REDUCE = "REDUCE"
    SEND_P = "SEND_P"
    """the averaged shard, to every other replica"""
    RECV_P = "RECV_P"
    STEP = "STEP"


class Lane(StrEnum):
    """What a device does side by side."""

    COMPUTE = "compute"
    SEND = "send"
    RECEIVE = "receive"


COMPUTE = (Kind.FORWARD, Kind.BACKWARD, Kind.REDUCE, Kind.STEP)
SENDS = {
    Kind.SEND_F: Kind.RECV_F,
    Kind.SEND_B: Kind.RECV_B,
    Kind.SEND_G: Kind.RECV_G,
    Kind.SEND_P: Kind.RECV_P,
}
"""each send and the receive at its other end"""
RECEIVES = {receive: send for send, receive in SENDS.items()}
SYNCHRONISATION = (Kind.SEND_G, Kind.RECV_G, Kind.REDUCE, Kind.SEND_P, Kind.RECV_P)
LANE = {
    **dict.fromkeys(COMPUTE, Lane.COMPUTE),
    **dict.fromkeys(SENDS, Lane.SEND),
    **dict.fromkeys(RECEIVES, Lane.RECEIVE),
}


class Action(NamedTuple):
    stage: int
    kind: Kind
    microbatch: int | None = None
    peer: int | None = None
    """synchronisation only: the other end is replica + peer (sends) or replica - peer (receives), modulo replicas"""

    def __str__(self) -> str:
        sign = "-" if self.kind in RECEIVES else "+"
        peer = "" if self.peer is None else f"{sign}{self.peer}"
        return f"{self.stage}{self.kind}{'' if self.microbatch is None else self.microbatch}{peer}"

    @property
    def lane(self) -> Lane:
        return LANE[self.kind]

    def other_end(self, replica: int, n_replicas: int) -> tuple[int, int]:
        """(stage, replica) of the device at the other end of this transfer."""
        match self.kind:
            case Kind.SEND_F | Kind.RECV_B:
                return self.stage + 1, replica
            case Kind.SEND_B | Kind.RECV_F:
                return self.stage - 1, replica
            case Kind.SEND_G | Kind.SEND_P if self.peer is not None:
                return self.stage, (replica + self.peer) % n_replicas
            case Kind.RECV_G | Kind.RECV_P if self.peer is not None:
                return self.stage, (replica - self.peer) % n_replicas
        raise ValueError(f"{self} is no transfer")

    def counterpart(self) -> Action:
        """The receive of a send, as the other end writes it."""
        stage = self.stage + {Kind.SEND_F: 1, Kind.SEND_B: -1}.get(self.kind, 0)
        return Action(stage, SENDS[self.kind], self.microbatch, self.peer)


@dataclass(frozen=True)
class Schedule:
    """One training iteration of one pipeline: a program per stage.

    As builders make it, it holds forwards and backwards only. Raises ScheduleError where a program
    misses or repeats one, holds another stage's action, or runs a backward before its forward.
    """

    name: str
    n_microbatches: int
    programs: tuple[tuple[Action, ...], ...]

    def __post_init__(self) -> None:
        for stage, program in enumerate(self.programs):
            computes = [a for a in program if a.kind in (Kind.FORWARD, Kind.BACKWARD)]
            wanted = {Action(stage, k, m) for k in (Kind.FORWARD, Kind.BACKWARD) for m in range(self.n_microbatches)}
            if len(computes) != len(wanted) or set(computes) != wanted:
                strange = [str(a) for a in computes if a not in wanted or computes.count(a) > 1]
                missing = [str(a) for a in sorted(wanted - set(computes))]
                found = f"{strange[0]} is out of place" if strange else f"{missing[0]} is missing"
                raise ScheduleError(f"schedule {self.name}, stage {stage}: {found}; wanted each F and B once")
            done = set()
            for action in computes:
                if action.kind is Kind.BACKWARD and action.microbatch not in done:
                    raise ScheduleError(f"schedule {self.name}: {action} comes before its forward")
                done.add(action.microbatch)

    @property
    def n_stages(self) -> int:
        return len(self.programs)

    def __iter__(self) -> Iterator[Action]:
        return (action for program in self.programs for action in program)


@lru_cache(maxsize=64)
def lower(schedule: Schedule, n_replicas: int) -> Schedule:
    """All that a device does: transfers around the compute order, then synchronisation, then the step."""
    return with_synchronisation(with_transfers(schedule), n_replicas)


def with_transfers(schedule: Schedule) -> Schedule:
    """Put every receive before its consumer and every send after its producer."""
    last = schedule.n_stages - 1
    programs = []
    for stage, program in enumerate(schedule.programs):
        out: list[Action] = []
        for action in program:
            m = action.microbatch
            forward = action.kind is Kind.FORWARD
            has_source = stage > 0 if forward else stage < last
            has_target = stage < last if forward else stage > 0
            if has_source:
                out.append(Action(stage, Kind.RECV_F if forward else Kind.RECV_B, m))
            out.append(action)
            if has_target:
                out.append(Action(stage, Kind.SEND_F if forward else Kind.SEND_B, m))
        programs.append(tuple(out))
    return Schedule(schedule.name, schedule.n_microbatches, tuple(programs))


def with_synchronisation(schedule: Schedule, n_replicas: int) -> Schedule:
    """Average gradients by a sharded parameter server spread over the replicas, then step.

    Each replica owns one shard: it gets that shard of the peers' gradients, averages, and sends the
    average to every peer. Peers are served in ring order, so that no replica is everyone's first.
    """
    peers = range(1, n_replicas)
    programs = []
    for stage, program in enumerate(schedule.programs):
        tail = [Action(stage, Kind.SEND_G, peer=k) for k in peers]
        tail += [Action(stage, Kind.RECV_G, peer=k) for k in peers]
        tail += [Action(stage, Kind.REDUCE)] if n_replicas > 1 else []
        tail += [Action(stage, Kind.SEND_P, peer=k) for k in peers]
        tail += [Action(stage, Kind.RECV_P, peer=k) for k in peers]
        programs.append((*program, *tail, Action(stage, Kind.STEP)))
    return Schedule(schedule.name, schedule.n_microbatches, tuple(programs))


def needs(action: Action, n_stages: int, n_microbatches: int, n_replicas: int) -> tuple[Action, ...]:
    """The actions on the same device whose effect this one consumes (order on a lane aside)."""
    stage, kind, m, _ = action
    peers = range(1, n_replicas)
    match kind:
        case Kind.FORWARD:
            return (Action(stage, Kind.RECV_F, m),) if stage > 0 else ()
        case Kind.BACKWARD:
            received = (Action(stage, Kind.RECV_B, m),) if stage < n_stages - 1 else ()
            return (Action(stage, Kind.FORWARD, m), *received)
        case Kind.SEND_F:
            return (Action(stage, Kind.FORWARD, m),)
        case Kind.SEND_B:
            return (Action(stage, Kind.BACKWARD, m),)
        case Kind.SEND_G:
            return tuple(Action(stage, Kind.BACKWARD, i) for i in range(n_microbatches))
        case Kind.REDUCE:
            backwards = tuple(Action(stage, Kind.BACKWARD, i) for i in range(n_microbatches))
            return (*backwards, *(Action(stage, Kind.RECV_G, peer=k) for k in peers))
        case Kind.SEND_P:
            return (Action(stage, Kind.REDUCE),)
        case Kind.STEP:
            backwards = tuple(Action(stage, Kind.BACKWARD, i) for i in range(n_microbatches))
            return (*backwards, *(Action(stage, Kind.RECV_P, peer=k) for k in peers))
        case _:
            return ()
