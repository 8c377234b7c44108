"""Which shard of the averaged vector each synchronisation message carries.

The programs fix how large a share a message carries and which rank receives it. The kind of synchronisation decides
which shard that is.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dtfm_lab.domain.job import INT8_BLOCK
from dtfm_lab.domain.schedule import SENDS, Action, Kind, Step

GRADIENTS = (Kind.SEND_G, Kind.RECV_G)
AVERAGES = (Kind.SEND_P, Kind.RECV_P)


class Shard(NamedTuple):
    """One of ``of`` nearly equal parts of a vector, counted from 0."""

    number: int
    of: int

    def bounds(self, n_elements: int) -> slice:
        """Return the slice of its elements: whole int8 blocks, so that no two shards share a scale. It may be empty."""
        n_blocks = -(-n_elements // INT8_BLOCK)
        start, stop = (INT8_BLOCK * (n_blocks * i // self.of) for i in (self.number, self.number + 1))
        return slice(min(start, n_elements), min(stop, n_elements))


WHOLE = Shard(0, 1)
AVERAGED = ("sharded", "sharded-at-once", "central", "ring", "hierarchical", "tree")
"""The kinds of synchronisation that workers can carry out."""


def shards_of(
    steps: tuple[Step, ...], synchronisation: str, replica: int, members: Sequence[int], n_replicas: int
) -> dict[Action, Shard]:
    """Return the shard that each synchronisation message of one device's program carries, sent or received.

    It is ``WHOLE``, or the shard of the member that averages it. In a ring, a replica sends in round i the shard that
    it received in round i - 1. The gradients begin with the shard of the replica's index, the averages with the shard
    that it averaged.

    ``members`` are the replicas that average: all except those whose device is absent.
    """
    messages = [step for step in steps if step.action.kind in (*GRADIENTS, *AVERAGES)]
    groups: dict[int | None, set[int]] = {}
    for action, *_ in messages:
        group = groups.setdefault(action.microbatch, {replica})
        group.add(action.other_end(replica, n_replicas)[1])

    def carried(action: Action, share: float) -> Shard:
        other = action.other_end(replica, n_replicas)[1]
        sender, receiver = (replica, other) if action.kind in SENDS else (other, replica)
        if synchronisation == "ring":
            assert action.microbatch is not None, "a round"
            first = members.index(sender) + (action.kind not in GRADIENTS)
            return Shard((first - action.microbatch) % len(members), len(members))
        if share == 1.0:
            return WHOLE
        group = sorted(groups[action.microbatch])
        return Shard(group.index(receiver if action.kind in GRADIENTS else sender), len(group))

    return {step.action: carried(step.action, step.share) for step in messages}
