"""One device's part in averaging a vector with the other replicas, step by step as its program says.

Sums have a fixed order: that of the replicas, or in a ring that in which the shard passes them. Every shard is averaged
by one replica and sent on as that replica encoded it, so all replicas hold the same bits afterwards; with compression
the averaging replica uses the rounded average, too. Where replicas split the optimiser's states, each steps the shard
that it averaged, and sends on the parameters of that shard instead, never compressed.

Gradients that are averaged bucket by bucket have an AllReduce for each bucket. A bucket's parameters need not be
neighbours in the device's vector. A bucket that is no slice of it is copied out when its gradients are whole, and back
when its average is there.
"""

from collections.abc import Callable, Sequence

import torch

from dtfm_lab.domain.schedule import Action, Bucket, Kind, Step
from dtfm_lab.runtime.protocol.gradient_shards import WHOLE, Shard, shards_of
from dtfm_lab.runtime.worker.codec import Codec


class AllReduce:
    """Call ``begin`` with the vector, then one method for each step of the program, in its order."""

    def __init__(
        self,
        steps: tuple[Step, ...],
        synchronisation: str,
        replica: int,
        n_replicas: int,
        codec: Codec,
        uncompressed: Codec,
    ) -> None:
        """``codec``: of gradients and their averages; ``uncompressed``: of parameters."""
        self._steps, self._replica, self._n_replicas, self._codec = steps, replica, n_replicas, codec
        self._shards = shards_of(steps, synchronisation, replica, n_replicas)
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


class BucketedAllReduce:
    """The methods of AllReduce, each for the bucket of the step or message that it is called for."""

    splits_states = False
    stepped = WHOLE

    def __init__(
        self,
        steps: tuple[Step, ...],
        averaging: Callable[[tuple[Step, ...]], AllReduce],
        buckets: tuple[Bucket, ...],
        slices: Sequence[Sequence[slice]],
    ) -> None:
        """``averaging``: that of one bucket, from its steps; ``slices``: of each bucket, its elements in the vector."""
        self._bucket_at = [step.bucket for step in steps]
        self._bucket_of = {step.action: step.bucket for step in steps if step.bucket is not None}
        self._slices = [_joined(of_bucket) for of_bucket in slices]
        self._parts = [averaging(_of_bucket(steps, number, bucket.share)) for number, bucket in enumerate(buckets)]

    def begin(self, vector: torch.Tensor) -> None:
        """``vector`` is this replica's own; the averages overwrite it."""
        self._vector = vector
        self._own = [
            vector[slices[0]] if len(slices) == 1 else vector.new_empty(sum(one.stop - one.start for one in slices))
            for slices in self._slices
        ]
        self._copied = [len(slices) == 1 for slices in self._slices]
        for part, own in zip(self._parts, self._own, strict=True):
            part.begin(own)

    def receive(self, action: Action, raw: torch.Tensor) -> None:
        """Keep a received message for the step that needs it."""
        self._parts[self._number(action)].receive(action, raw)

    def pack(self, at: int) -> None:
        """Encode the shards of the bucket that this step is for."""
        self._whole(self._bucket_at[at]).pack(at)

    def reduce(self, at: int) -> None:
        """Sum what this step needs."""
        self._whole(self._bucket_at[at]).reduce(at)

    def content(self, action: Action) -> torch.Tensor:
        """The bytes of a message to send."""
        return self._whole(self._number(action)).content(action)

    def copy_averages_to(self, vector: torch.Tensor) -> None:
        """Write the shards that other replicas averaged into ``vector``, which may be a copy."""
        for part, own, slices in zip(self._parts, self._own, self._slices, strict=True):
            if len(slices) == 1:
                part.copy_averages_to(vector[slices[0]])
                continue
            averaged = own.clone()
            part.copy_averages_to(averaged)
            begin = 0
            for one in slices:
                end = begin + one.stop - one.start
                vector[one] = averaged[begin:end]
                begin = end

    def _number(self, action: Action) -> int:
        bucket = self._bucket_of[action]
        assert bucket is not None
        return bucket

    def _whole(self, bucket: int | None) -> AllReduce:
        """The bucket's all-reduce, once its gradients, which are whole now, have been copied out."""
        assert bucket is not None
        if not self._copied[bucket]:
            torch.cat([self._vector[one] for one in self._slices[bucket]], out=self._own[bucket])
            self._copied[bucket] = True
        return self._parts[bucket]


def _of_bucket(steps: tuple[Step, ...], number: int, share: float) -> tuple[Step, ...]:
    """The steps at their places, those of other buckets without messages; shares are fractions of the bucket."""
    nothing = Step(Action(0, Kind.FORWARD))
    return tuple(
        step._replace(share=round(step.share / share, 9) if share else 0.0) if step.bucket == number else nothing
        for step in steps
    )


def _joined(slices: Sequence[slice]) -> list[slice]:
    """The slices in order, neighbours as one."""
    found: list[slice] = []
    for one in sorted(slices, key=lambda one: one.start):
        if found and found[-1].stop == one.start:
            found[-1] = slice(found[-1].start, one.stop)
        else:
            found.append(one)
    return found
