"""One device's part in averaging a vector with the other replicas, step by step as its program says.

Sums have a fixed order: that of the replicas, or in a ring that in which the shard passes them. Every shard is averaged
by one replica and sent on as that replica encoded it, so all replicas hold the same bits afterwards; with compression
the averaging replica uses the rounded average, too. Where replicas split the optimiser's states, each steps the shard
that it averaged, and sends on the parameters of that shard instead, never compressed.
"""

from collections.abc import Sequence

import torch

from dtfm_lab.domain.schedule import Action, Kind, Step
from dtfm_lab.runtime.protocol.gradient_shards import WHOLE, Shard, shards_of
from dtfm_lab.runtime.worker.codec import Codec


class AllReduce:
    """Call ``begin`` with the vector, then one method for each step of the program, in its order."""

    def __init__(
        self,
        steps: tuple[Step, ...],
        synchronisation: str,
        replica: int,
        members: Sequence[int],
        n_replicas: int,
        codec: Codec,
        uncompressed: Codec,
    ) -> None:
        """``members``: the replicas that average, which are all but those whose device is absent; ``codec``: of
        gradients and their averages; ``uncompressed``: of parameters."""
        self._steps, self._replica, self._n_replicas, self._codec = steps, replica, n_replicas, codec
        self._shards = shards_of(steps, synchronisation, replica, members, n_replicas)
        sent_after = {need for step in steps if step.action.kind is Kind.SEND_P for need in step.needs}
        before_steps = {i for at in sent_after if steps[at].action.kind is Kind.STEP for i in steps[at].needs}
        summed = [i for i in before_steps if steps[i].action.kind is Kind.REDUCE]  # none where steps are local
        self._needs_of_averages = {*sent_after, *summed}
        self.splits_states = bool(summed)
        """Whether parameters are sent on in place of averages."""
        self._codec_onward = uncompressed if self.splits_states else codec
        self.stepped = self._summed_by(steps[summed[0]]) if summed else WHOLE
        """The shard that this replica's optimiser steps."""

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
        shard = self._summed_by(self._steps[at])
        received = self._received_by(self._steps[at])
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
            if self.splits_states:
                return
            self._averaged[shard] = self._codec.encode(own)
            if self._codec.is_lossy:
                own.copy_(self._codec.decode(self._averaged[shard]))
        else:
            self.pack(at)

    def send_parameters(self, vector: torch.Tensor) -> None:
        """Send on the stepped shard of ``vector``, the parameters, from now on."""
        self._averaged[self.stepped] = self._codec_onward.encode(vector[self.stepped.bounds(vector.numel())])

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
        """Write what other replicas sent on, averages or parameters, into ``vector``, which may be a copy."""
        for action, raw in self._received.items():
            if action.kind is Kind.RECV_P:
                vector[self._shards[action].bounds(vector.numel())] = self._codec_onward.decode(raw)

    def _received_by(self, step: Step) -> list[Action]:
        """The peers' gradients that a step sums."""
        needed = (self._steps[need].action for need in step.needs)
        return [action for action in needed if action.kind is Kind.RECV_G]

    def _summed_by(self, step: Step) -> Shard:
        return self._shards[self._received_by(step)[0]]

    def _elements_of(self, shard: Shard) -> torch.Tensor:
        return self._vector[shard.bounds(self._vector.numel())]
