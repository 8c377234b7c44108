"""Share the passes of devices that have left among devices that hold the same stage in other pipelines.

If a pipeline has lost a device, its micro-batches take a detour at that stage. They are dealt out round-robin to the
devices that hold the stage in other pipelines. These receive from the broken pipeline and send back to it. A
micro-batch is named by its number in the whole batch, so that names on a device are unique. The remaining replicas
average their gradients.

A device runs the passes of all its pipelines in the order of the schedule, with passes at the same place next to each
other. All devices follow this one order, so they cannot deadlock if the schedule does not deadlock with all devices.
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
    """Which device runs which pass of every micro-batch."""

    n_positions: int
    counts: tuple[int, ...]
    """(replicas,) micro-batches of each pipeline."""
    absent: Absent

    @cached_property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """By position, the replicas that remain."""
        gone, replicas = set(self.absent), range(len(self.counts))
        return tuple(tuple(r for r in replicas if (position, r) not in gone) for position in range(self.n_positions))

    @cached_property
    def hosts(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """By position, pipeline and micro-batch, the replica whose device runs the passes of that micro-batch."""
        found = []
        for members in self.members:
            turn = cycle(members)
            found.append(tuple((r,) * n if r in members else tuple(islice(turn, n)) for r, n in enumerate(self.counts)))
        return tuple(found)

    def passes(self, position: int, replica: int, whole: Sequence[Step]) -> tuple[Step, ...]:
        """Return the passes of one device and their messages.

        ``whole`` has the passes and messages, at this position, of a pipeline with the most micro-batches and no absent
        device.
        """
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
        """Return ``Action.peer`` of a pipeline's message: None if both ends have the same replica number. Also None for
        a pass."""
        if action.kind not in ACROSS_STAGES or action.microbatch is None:
            return None
        position = (action.stage + ACROSS_STAGES[action.kind]) % self.n_positions
        other = self.hosts[position][pipeline][action.microbatch]
        return self._offset(action.kind in SENDS, replica, other) or None

    def synchronising(
        self, position: int, replica: int, parts: Iterable[SynchronisationPart]
    ) -> tuple[SynchronisationPart, ...]:
        """Return the synchronisation parts of one remaining replica.

        In ``parts``, peers are offsets among the remaining replicas. In the result, they are offsets among all
        replicas.
        """
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
    """Return, for each pass, the indices of its steps: the receive before it, the pass, and the send after it."""
    blocks: list[list[int]] = []
    received = False
    for i, step in enumerate(steps):
        kind = step.action.kind
        if kind in RECEIVES or (kind in PASSES and not received):
            blocks.append([])
        blocks[-1].append(i)
        received = kind in RECEIVES
    return blocks
