"""The passes of devices that have left, done by those who hold the same stage in other pipelines.

Micro-batches of a pipeline that lost a device take another way at its stage: they are dealt out in turn to who holds it
elsewhere, whose messages come from, and go to, other pipelines there. A micro-batch is named by its number in the whole
batch, so that no two on one device have one name. Gradients are averaged among who is left.

A device has the passes of all its pipelines in the order of the schedule, those of one place in it side by side. As
that is one order for all devices, none waits for itself: what can finish with nobody absent still can.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, cycle, islice

from dtfm_lab.domain.schedule.schedule import ACROSS_STAGES, PASSES, RECEIVES, SENDS, Action, Step
from dtfm_lab.domain.schedule.synchronisation import Key, SynchronisationPart

Absent = tuple[tuple[int, int], ...]
"""(position, replica) of devices that have left."""


@dataclass(frozen=True)
class Sharing:
    """Who does which pass of every micro-batch."""

    n_positions: int
    counts: tuple[int, ...]
    """(replicas,) micro-batches of each pipeline."""
    absent: Absent

    @cached_property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """By position, the replicas that are left."""
        gone, replicas = set(self.absent), range(len(self.counts))
        return tuple(tuple(r for r in replicas if (position, r) not in gone) for position in range(self.n_positions))

    @cached_property
    def hosts(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """By position, pipeline and micro-batch of it, the replica whose device does its passes."""
        found = []
        for members in self.members:
            turn = cycle(members)
            found.append(tuple((r,) * n if r in members else tuple(islice(turn, n)) for r, n in enumerate(self.counts)))
        return tuple(found)

    def passes(self, position: int, replica: int, whole: Sequence[Step]) -> tuple[Step, ...]:
        """Passes and messages of one device, given those of a pipeline of the most micro-batches at its position."""
        first = list(accumulate(self.counts, initial=0))
        place: dict[tuple[int, int], int] = {}
        kept: list[Step] = []
        for block in _blocks(whole):
            m = whole[block[0]].action.microbatch
            assert m is not None, "passes and their messages have micro-batches"
            for pipeline, n in enumerate(self.counts):
                if m >= n or self.hosts[position][pipeline][m] != replica:
                    continue
                for i in block:
                    action, needs = whole[i].action, whole[i].needs
                    place[i, pipeline] = len(kept)
                    peer = self._peer(action, replica, pipeline)
                    named = Action(action.stage, action.kind, first[pipeline] + m, peer)
                    kept.append(whole[i]._replace(action=named, needs=tuple([place[need, pipeline] for need in needs])))
        return tuple(kept)

    def _peer(self, action: Action, replica: int, pipeline: int) -> int | None:
        """``Action.peer`` of a pipeline's message: None where it stays among devices of one number."""
        if action.kind not in ACROSS_STAGES or action.microbatch is None:
            return None
        position = (action.stage + ACROSS_STAGES[action.kind]) % self.n_positions
        other = self.hosts[position][pipeline][action.microbatch]
        return self._offset(action.kind in SENDS, replica, other) or None

    def synchronising(
        self, position: int, replica: int, parts: Iterable[SynchronisationPart]
    ) -> tuple[SynchronisationPart, ...]:
        """The parts of a member of a group of those who are left, its peers counted among all replicas."""
        members = self.members[position]
        here, n = members.index(replica), len(members)

        def named(key: Key) -> Key:
            kind, round, peer = key
            if peer is None:
                return key
            sends = kind in SENDS
            return kind, round, self._offset(sends, replica, members[(here + (peer if sends else -peer)) % n])

        return tuple(part._replace(peer=named(part.key)[2], after=tuple(map(named, part.after))) for part in parts)

    def _offset(self, sends: bool, replica: int, other: int) -> int:
        return (other - replica if sends else replica - other) % len(self.counts)


def _blocks(steps: Sequence[Step]) -> list[list[int]]:
    """Positions of each pass with its receive before and its send after it."""
    blocks: list[list[int]] = []
    received = False
    for i, step in enumerate(steps):
        kind = step.action.kind
        if kind in RECEIVES or (kind in PASSES and not received):
            blocks.append([])
        blocks[-1].append(i)
        received = kind in RECEIVES
    return blocks
