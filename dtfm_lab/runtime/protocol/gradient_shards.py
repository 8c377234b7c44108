"""Which part of the averaged vector a message of synchronisation carries; no torch in here.

The programs say how large a share a message carries and whom it goes to; the way of averaging says which one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dtfm_lab.domain.job import INT8_BLOCK
from dtfm_lab.domain.schedule import SENDS, Action, Kind, Step

GRADIENTS = (Kind.SEND_G, Kind.RECV_G)
AVERAGES = (Kind.SEND_P, Kind.RECV_P)


class Piece(NamedTuple):
    number: int
    of: int
    """pieces that the vector is cut into"""

    def bounds(self, n_elements: int) -> slice:
        """Whole blocks, so that no two pieces share a scale; some pieces of a short vector are empty."""
        n_blocks = -(-n_elements // INT8_BLOCK)
        start, stop = (INT8_BLOCK * (n_blocks * i // self.of) for i in (self.number, self.number + 1))
        return slice(min(start, n_elements), min(stop, n_elements))


WHOLE = Piece(0, 1)
Carries = Callable[[Action, float, int, list[int], int], Piece]
"""(action, share, replica, the replicas it shares with in this round, replicas) -> what the message carries"""


def owned(action: Action, share: float, replica: int, group: list[int], n_replicas: int) -> Piece:
    """A piece belongs to the member that averages it; who carries a whole vector cuts nothing."""
    if share == 1.0:
        return WHOLE
    other = action.other_end(replica, n_replicas)[1]
    sender, receiver = (replica, other) if action.kind in SENDS else (other, replica)
    return Piece(group.index(receiver if action.kind in GRADIENTS else sender), len(group))


def passed_on(action: Action, share: float, replica: int, group: list[int], n_replicas: int) -> Piece:
    """A ring: in round i a replica passes on the piece that it got in round i - 1, beginning with its own."""
    assert action.microbatch is not None
    sender = replica if action.kind in SENDS else action.other_end(replica, n_replicas)[1]
    first = sender if action.kind in GRADIENTS else sender + 1
    return Piece((first - action.microbatch) % n_replicas, n_replicas)


CARRIES: dict[str, Carries] = {
    "sharded": owned,
    "sharded-at-once": owned,
    "central": owned,
    "ring": passed_on,
    "hierarchical": owned,
}
"""the ways of averaging that workers know"""


def pieces_of(steps: tuple[Step, ...], synchronisation: str, replica: int, n_replicas: int) -> dict[Action, Piece]:
    """What each message of synchronisation, out and in, of one device's program carries."""
    messages = [step for step in steps if step.action.kind in (*GRADIENTS, *AVERAGES)]
    groups: dict[int | None, set[int]] = {}
    for action, *_ in messages:
        group = groups.setdefault(action.microbatch, {replica})
        group.add(action.other_end(replica, n_replicas)[1])
    carries = CARRIES[synchronisation]
    return {
        step.action: carries(step.action, step.share, replica, sorted(groups[step.action.microbatch]), n_replicas)
        for step in messages
    }
