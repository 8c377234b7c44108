"""One device's part in averaging its gradient bucket by bucket: an AllReduce for each.

A bucket's parameters need not be neighbours in the device's vector. A bucket that is no slice of it is copied out when
its gradients are whole, and back when its average is there.
"""

from collections.abc import Sequence

import torch

from dtfm_lab.domain.schedule import Action, Bucket, Kind, Step
from dtfm_lab.runtime.protocol.gradient_shards import WHOLE
from dtfm_lab.runtime.worker.all_reduce import AllReduce
from dtfm_lab.runtime.worker.codec import Codec


class BucketedAllReduce:
    """The methods of AllReduce, each for the bucket of the step or message that it is called for."""

    splits_states = False
    stepped = WHOLE

    def __init__(
        self,
        steps: tuple[Step, ...],
        synchronisation: str,
        replica: int,
        n_replicas: int,
        codec: Codec,
        uncompressed: Codec,
        buckets: tuple[Bucket, ...],
        slices: Sequence[Sequence[slice]],
    ) -> None:
        """``slices``: of each bucket, its elements in the vector."""
        self._bucket_at = [step.bucket for step in steps]
        self._bucket_of = {step.action: step.bucket for step in steps if step.bucket is not None}
        self._slices = [_joined(of_bucket) for of_bucket in slices]
        self._parts = [
            AllReduce(
                _of_bucket(steps, number, bucket.share), synchronisation, replica, n_replicas, codec, uncompressed
            )
            for number, bucket in enumerate(buckets)
        ]

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
