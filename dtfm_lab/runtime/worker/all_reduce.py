"""One device's part in averaging a vector with the other replicas, step by step as its program says.

Sums have a fixed order: that of the replicas, or in a ring that in which the shard passes them. Every shard is averaged
by one replica and sent on as that replica encoded it, so all replicas hold the same bits afterwards; with compression
the averaging replica uses the rounded average, too.
"""

import torch

from dtfm_lab.domain.schedule import Action, Kind, Step
from dtfm_lab.runtime.protocol.gradient_shards import WHOLE, Shard, shards_of
from dtfm_lab.runtime.worker.codec import Codec


class AllReduce:
    """Call ``begin`` with the vector, then one method for each step of the program, in its order."""

    def __init__(
        self, steps: tuple[Step, ...], synchronisation: str, replica: int, n_replicas: int, codec: Codec
    ) -> None:
        self._steps, self._replica, self._n_replicas, self._codec = steps, replica, n_replicas, codec
        self._shards = shards_of(steps, synchronisation, replica, n_replicas)
        self._needs_of_averages = {need for step in steps if step.action.kind is Kind.SEND_P for need in step.needs}

    def begin(self, vector: torch.Tensor) -> None:
        """``vector`` is this replica's own; the average overwrites it."""
        self._vector = vector
        self._encoded: dict[Action, torch.Tensor] = {}
        self._averaged: dict[Shard, torch.Tensor] = {}
        self._received: dict[Action, torch.Tensor] = {}

    def receive(self, action: Action, raw: torch.Tensor) -> None:
        """Keep a received message for the step that needs it."""
        if action.kind is Kind.RECV_P:
            self._averaged[self._shards[action]] = raw
        self._received[action] = raw

    def pack(self, at: int) -> None:
        """Encode, if that rounds, the shards that wait for this step and for no further sum before they are sent."""
        if not self._codec.is_lossy:
            return
        for step in self._steps:
            summed = [need for need in step.needs if self._steps[need].action.kind is Kind.REDUCE]
            if step.action.kind is Kind.SEND_G and at in step.needs and summed in ([], [at]):
                self._encoded[step.action] = self._codec.encode(self._elements_of(self._shards[step.action]))

    def reduce(self, at: int) -> None:
        """Sum what this step needs; the last sum of a shard is averaged and encoded for sending."""
        needed = [self._steps[need].action for need in self._steps[at].needs]
        received = [action for action in needed if action.kind is Kind.RECV_G]
        shard = self._shards[received[0]]
        own = self._elements_of(shard)
        parts = {self._replica: own.clone()}
        for action in received:
            sender = action.other_end(self._replica, self._n_replicas)[1]
            parts[sender] = self._codec.decode(self._received.pop(action))
        own.zero_()
        for replica in sorted(parts):
            own.add_(parts[replica])
        if at in self._needs_of_averages:
            own.div_(self._n_replicas)
            self._averaged[shard] = self._codec.encode(own)
            if self._codec.is_lossy:
                own.copy_(self._codec.decode(self._averaged[shard]))
        else:
            self.pack(at)

    def content(self, action: Action) -> torch.Tensor:
        """The bytes of a message to send."""
        shard = self._shards[action]
        if action.kind is Kind.SEND_G:
            encoded = self._encoded.pop(action, None)
            return self._codec.encode(self._elements_of(shard)) if encoded is None else encoded
        if shard == WHOLE and WHOLE not in self._averaged:
            return torch.cat([raw for _, raw in sorted(self._averaged.items())])
        return self._averaged[shard]

    def copy_averages_to(self, vector: torch.Tensor) -> None:
        """Write the shards that other replicas averaged into ``vector``, which may be a copy."""
        for action, raw in self._received.items():
            if action.kind is Kind.RECV_P:
                vector[self._shards[action].bounds(vector.numel())] = self._codec.decode(raw)

    def _elements_of(self, shard: Shard) -> torch.Tensor:
        return self._vector[shard.bounds(self._vector.numel())]
