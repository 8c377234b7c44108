"""Pipeline schedules by name."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Protocol

from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.registry import Registry
from dtfm_lab.domain.schedule import Schedule


class Builder(Protocol):
    """Orders the passes of one pipeline. All are called alike; each reads the choices that are its own.

    Raises ScheduleError where it cannot serve the counts, or the choices that it reads.
    """

    def __call__(
        self,
        n_stages: int,
        n_microbatches: int,
        *,
        stages_per_device: int = 2,
        warmups: Sequence[int] | None = None,
    ) -> Schedule:
        """
        Parameters
        ----------
        n_stages
            Devices of the pipeline, as a Job counts them.
        stages_per_device
            Where the schedule interleaves.
        warmups
            Where it is chosen: per device, the forwards before it takes turns with backwards.
        """
        ...


schedules: Registry[Builder] = Registry("pipeline schedule")


MOST_PASSES = 2 * 10**6
"""of a pipeline, each counted forward and backward; so many take some ten seconds and half a gigabyte to order"""


def counts(name: str, n_stages: int, n_microbatches: int, stages_per_device: int = 1) -> tuple[int, int]:
    """``n_stages`` and ``n_microbatches`` of a schedule that can be built, or a ScheduleError."""
    named = {"n_stages": n_stages, "n_microbatches": n_microbatches, "stages_per_device": stages_per_device}
    for what, value in named.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise ScheduleError(f"schedule {name}: {what} is {shortened(value)}; wanted a whole number from 1")
    n_passes = int(n_stages) * int(stages_per_device) * int(n_microbatches)
    if n_passes > MOST_PASSES:
        raise ScheduleError(
            f"schedule {name}: {n_microbatches} micro-batches pass {n_stages * stages_per_device} stages; wanted at "
            f"most {MOST_PASSES} passes, such as fewer micro-batches of more sequences"
        )
    return int(n_stages), int(n_microbatches)
