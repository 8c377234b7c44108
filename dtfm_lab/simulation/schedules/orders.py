"""Orders of passes that the schedule builders share, and the activations held under them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import TypeVar

from dtfm_lab.domain.schedule import Action, Kind, Schedule

Program = tuple[Action, ...]
T = TypeVar("T")


def passes(stage: int, kind: Kind, n_microbatches: int) -> Program:
    """This pass of every micro-batch, in order."""
    return tuple(Action(stage, kind, m) for m in range(n_microbatches))


def taking_turns(forwards: Sequence[T], backwards: Sequence[T], warmup: int) -> tuple[T, ...]:
    """``warmup`` forwards, then a forward and a backward in turn, then the backwards that are left."""
    n_turns = len(forwards) - warmup
    turns = chain.from_iterable(zip(forwards[warmup:], backwards[:n_turns], strict=True))
    return (*forwards[:warmup], *turns, *backwards[n_turns:])


HELD = {Kind.FORWARD: 1, Kind.BACKWARD: -1, Kind.BACKWARD_WEIGHT: -1}
"""Change of the number of held activations by a pass."""


def peak_activations(schedule: Schedule) -> tuple[int, ...]:
    """Per device, the most activations that it holds at once.

    Each stage and micro-batch counts as one from its forward to its backward, or to the second half of a split one,
    W, which needs the stage's input as the first half does.
    """
    return tuple(max(accumulate(HELD.get(a.kind, 0) for a in program), default=0) for program in schedule.programs)
