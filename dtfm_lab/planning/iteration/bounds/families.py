"""Which plans a bound is for: schedules differ in what their terms may count on."""

from collections.abc import Iterable
from dataclasses import dataclass

from dtfm_lab.domain.job import Job

INTERLEAVED = "interleaved-1f1b"
SPLIT = "zb-h1"
WHOLE = ("gpipe", "1f1b", "adaptive-1f1b")


@dataclass(frozen=True)
class Family:
    """Schedules of so many stages a device, with whole backwards only or with any."""

    stages_per_device: int = 1
    splits: bool = False
    """Whether a backward may be split, so that the stage before need not wait for the gradients of the weights."""


def families_of(job: Job, schedules: Iterable[str] | None = None) -> tuple[Family, ...]:
    """The families that hold all of these schedules: those of the job where it names one, else all that are built in.

    A schedule of another name may split its backwards and has one stage a device.
    """
    names = (*WHOLE, SPLIT, INTERLEAVED) if schedules is None else tuple(schedules)
    if job.schedule is not None:
        names = (job.schedule,)
    found = []
    for name in names:
        if name == INTERLEAVED:
            found.append(Family(job.stages_per_device))
        else:
            found.append(Family(splits=name not in WHOLE))
    if Family(splits=True) in found:
        found = [family for family in found if family != Family()]
    return tuple(dict.fromkeys(found))
