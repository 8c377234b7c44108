"""Which shard of the averaged vector each message of synchronisation carries.

The programs fix how large a share a message carries and which rank gets it; the kind of synchronisation fixes which
shard that is.
"""

from collections.abc import Callable, Sequence
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
        """Return its elements: whole blocks, so that no two shards share a scale; it may be empty."""
        n_blocks = -(-n_elements // INT8_BLOCK)
        start, stop = (INT8_BLOCK * (n_blocks * i // self.of) for i in (self.number, self.number + 1))
        return slice(min(start, n_elements), min(stop, n_elements))


WHOLE = Shard(0, 1)
ShardRule = Callable[[Action, float, int, list[int], Sequence[int], int], Shard]
"""(action, share, replica, the replicas that share in this round, those that average, number of replicas) -> what the
message carries."""


def averaged_shard(
    action: Action, share: float, replica: int, group: list[int], members: Sequence[int], n_replicas: int
) -> Shard:
    """Return the shard of the member that averages it; a message of a whole vector carries ``WHOLE``."""
    if share == 1.0:
        return WHOLE
    other = action.other_end(replica, n_replicas)[1]
    sender, receiver = (replica, other) if action.kind in SENDS else (other, replica)
    return Shard(group.index(receiver if action.kind in GRADIENTS else sender), len(group))


def ring_shard(
    action: Action, share: float, replica: int, group: list[int], members: Sequence[int], n_replicas: int
) -> Shard:
    """In round i a replica sends the shard that it received in round i - 1, beginning with its own."""
    assert action.microbatch is not None
    sender = replica if action.kind in SENDS else action.other_end(replica, n_replicas)[1]
    first = members.index(sender) + (action.kind not in GRADIENTS)
    return Shard((first - action.microbatch) % len(members), len(members))


SHARD_RULES: dict[str, ShardRule] = {
    "sharded": averaged_shard,
    "sharded-at-once": averaged_shard,
    "central": averaged_shard,
    "ring": ring_shard,
    "hierarchical": averaged_shard,
    "tree": averaged_shard,
}
"""The kinds of synchronisation that workers can carry out."""


def shards_of(
    steps: tuple[Step, ...], synchronisation: str, replica: int, members: Sequence[int], n_replicas: int
) -> dict[Action, Shard]:
    """Return what each message of synchronisation, sent or received, of one device's program carries.

    ``members``: the replicas that average, all but those whose device is absent.
    """
    messages = [step for step in steps if step.action.kind in (*GRADIENTS, *AVERAGES)]
    groups: dict[int | None, set[int]] = {}
    for action, *_ in messages:
        group = groups.setdefault(action.microbatch, {replica})
        group.add(action.other_end(replica, n_replicas)[1])
    rule = SHARD_RULES[synchronisation]
    return {
        step.action: rule(step.action, step.share, replica, sorted(groups[step.action.microbatch]), members, n_replicas)
        for step in messages
    }
