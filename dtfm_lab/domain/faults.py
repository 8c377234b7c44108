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
