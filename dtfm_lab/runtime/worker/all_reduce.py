"""One device's part in averaging a vector with the other replicas, as the steps of its program say.

Sums have a fixed order: that of the replicas, along a ring that of the ring. Every piece is averaged by one replica
and travels as it left that one; so all hold the same bits afterwards. Where messages are coded, who averages a piece
takes the rounded average like everyone else.
"""

from __future__ import annotations

import torch

from dtfm_lab.domain.schedule import Action, Kind, Step
from dtfm_lab.runtime.protocol.gradient_shards import WHOLE, Shard, shards_of
from dtfm_lab.runtime.worker.codec import Codec


class Averaging:
    """Call ``begin`` with the vector, then in the order of the program one method for each of its steps."""

    def __init__(
        self, steps: tuple[Step, ...], synchronisation: str, replica: int, n_replicas: int, codec: Codec
    ) -> None:
        self._steps, self._replica, self._n_replicas, self._codec = steps, replica, n_replicas, codec
        self._pieces = shards_of(steps, synchronisation, replica, n_replicas)
        self._needs_of_averages = {need for step in steps if step.action.kind is Kind.SEND_P for need in step.needs}

    def begin(self, vector: torch.Tensor) -> None:
        """``vector`` is this replica's own; the average is written over it."""
        self._vector = vector
        self._coded: dict[Action, torch.Tensor] = {}
        self._averaged: dict[Shard, torch.Tensor] = {}
        self._received: dict[Action, torch.Tensor] = {}

    def receive(self, action: Action, raw: torch.Tensor) -> None:
        """A message that has come; what it brings is looked at by the step that needs it."""
        if action.kind is Kind.RECV_P:
            self._averaged[self._pieces[action]] = raw
        self._received[action] = raw

    def pack(self, at: int) -> None:
        """Code the replica's own pieces, as far as they go out as they are."""
        self._code_what_waits_for(at)

    def reduce(self, at: int) -> None:
        """Sum what this step needs; where no further sum is to come, average it and make it ready to hand out."""
        needed = [self._steps[need].action for need in self._steps[at].needs]
        came = [action for action in needed if action.kind is Kind.RECV_G]
        piece = self._pieces[came[0]]
        mine = self._of(piece)
        parts = {self._replica: mine.clone()}
        for action in came:
            sender = action.other_end(self._replica, self._n_replicas)[1]
            parts[sender] = self._codec.decode(self._received.pop(action))
        mine.zero_()
        for replica in sorted(parts):
            mine.add_(parts[replica])
        if at in self._needs_of_averages:
            mine.div_(self._n_replicas)
            self._averaged[piece] = self._codec.encode(mine)
            if self._codec.loses:
                mine.copy_(self._codec.decode(self._averaged[piece]))
        else:
            self._code_what_waits_for(at)

    def content(self, action: Action) -> torch.Tensor:
        """The bytes of a message that is about to leave."""
        piece = self._pieces[action]
        if action.kind is Kind.SEND_G:
            coded = self._coded.pop(action, None)
            return self._codec.encode(self._of(piece)) if coded is None else coded
        if piece == WHOLE and WHOLE not in self._averaged:
            return torch.cat([raw for _, raw in sorted(self._averaged.items())])
        return self._averaged[piece]

    def take_over(self, vector: torch.Tensor) -> None:
        """Write what others have averaged into the vector, or into a copy of it."""
        for action, raw in self._received.items():
            if action.kind is Kind.RECV_P:
                vector[self._pieces[action].bounds(vector.numel())] = self._codec.decode(raw)

    def _of(self, piece: Shard) -> torch.Tensor:
        return self._vector[piece.bounds(self._vector.numel())]

    def _code_what_waits_for(self, at: int) -> None:
        if not self._codec.loses:
            return
        for step in self._steps:
            summed = [need for need in step.needs if self._steps[need].action.kind is Kind.REDUCE]
            if step.action.kind is Kind.SEND_G and at in step.needs and summed in ([], [at]):
                self._coded[step.action] = self._codec.encode(self._of(self._pieces[step.action]))
