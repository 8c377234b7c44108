"""Buckets of a device's gradient that are synchronised while its last backwards still run.

A bucket holds whole layers, the last ones first, and can leave when the last backward has made its gradients (Li et
al. 2020, "PyTorch Distributed", section 3.2). So the last backward of a stage that fills several buckets is computed in
parts: all but the last are actions ``PART``, and the last is the backward itself, which then is the rest.
"""

from typing import NamedTuple

from dtfm_lab.domain.schedule.schedule import Action, Kind

LAST = (Kind.BACKWARD, Kind.BACKWARD_WEIGHT)
"""The passes with which a stage's gradient becomes whole."""


class Bucket(NamedTuple):
    """A part of a device's gradient that is synchronised by itself."""

    share: float
    """Fraction of the device's gradient."""
    parts: tuple[tuple[int, float], ...]
    """The stages whose layers it holds, in the order in which they become ready; each with the fraction of that stage's
    last backward which those layers take."""


class PassPart(NamedTuple):
    """One part of a stage's last backward."""

    action: Action
    fraction: float
    """Fraction of the whole pass that this part takes."""
    whole: Kind
    """Kind of the pass that is cut."""


def parts_of(stage: int, buckets: tuple[Bucket, ...], last: Action) -> list[PassPart]:
    """The parts of a stage's last backward ``last``, in order; the pass itself is the last of them."""
    fractions = [fraction for bucket in buckets for of, fraction in bucket.parts if of == stage]
    actions = [Action(stage, Kind.PART, number) for number in range(len(fractions) - 1)]
    return [
        PassPart(action, fraction, last.kind)
        for action, fraction in zip([*actions, last], fractions or [1.0], strict=True)
    ]


def ready_after(buckets: tuple[Bucket, ...], last: dict[int, Action]) -> list[list[Action]]:
    """Of each bucket, the computations after which its gradients are whole; ``last`` has each stage's last backward."""
    left = {stage: parts_of(stage, buckets, action) for stage, action in last.items()}
    return [[left[stage].pop(0).action for stage, _ in bucket.parts] for bucket in buckets]
