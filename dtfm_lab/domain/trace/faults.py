"""What went wrong in a run and was survived, and which part of a plan ran."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """A worker that was lost and replaced."""

    iteration: int
    """the one that was done anew"""
    device: str
    how: str
    """``was killed by SIGKILL``, ``stood still``, ``came back``..."""
    state_from: str
    """where parameters and optimiser came from: a device, or a checkpoint"""
    lost_s: float
    """wall seconds from noticing it to going on"""


class Rehearsed(NamedTuple):
    """The part of a larger plan that ran."""

    stages: tuple[int, ...]
    pipelines: tuple[int, ...]
    of_stages: int
    of_pipelines: int

    @property
    def sentence(self) -> str:
        """Which part ran, such as "all 4 stages, pipelines 0 to 2 of 8"."""
        stages = _numbered("stage", self.stages, self.of_stages)
        return f"{stages}, {_numbered('pipeline', self.pipelines, self.of_pipelines)}"


def _numbered(noun: str, numbers: tuple[int, ...], of: int) -> str:
    if len(numbers) == of:
        return f"all {of} {noun}s" if of > 1 else f"its one {noun}"
    if len(numbers) == 1:
        return f"{noun} {numbers[0]} of {of}"
    return f"{noun}s {numbers[0]} {'and' if len(numbers) == 2 else 'to'} {numbers[-1]} of {of}"
