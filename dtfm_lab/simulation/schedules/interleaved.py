"""Several stages a device: a pipeline that every micro-batch passes several times."""

from __future__ import annotations

from itertools import count

from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.domain.schedule import Action, Kind, Schedule
from dtfm_lab.simulation.schedules.orders import Program, taking_turns
from dtfm_lab.simulation.schedules.registry import counts, schedules


@schedules.register("interleaved-1f1b")
def interleaved(n_stages: int, n_microbatches: int, *, stages_per_device: int = 2, **_: object) -> Schedule:
    """1F1B over the stages of all devices, which makes the bubble smaller and messages more (Narayanan et al. 2021).

    Micro-batches go in rounds of as many as there are devices, or a few more where that leaves none over: a device
    passes a round through its first stage, then through its second. Raises ScheduleError where rounds would differ.
    The orders are those of torch's ScheduleInterleaved1F1B.
    """
    name = "interleaved-1f1b"
    n_devices, n_microbatches = counts(name, n_stages, n_microbatches, stages_per_device)
    if n_microbatches % _n_rounds(n_devices, n_microbatches):
        below = next(n for n in count(n_microbatches - 1, -1) if not n % _n_rounds(n_devices, n))
        above = next(n for n in count(n_microbatches + 1) if not n % _n_rounds(n_devices, n))
        raise ScheduleError(
            f"schedule {name}: {n_microbatches} micro-batches on {n_devices} devices do not divide into "
            f"{_n_rounds(n_devices, n_microbatches)} rounds; wanted such as {below} or {above}"
        )
    in_round = n_microbatches // _n_rounds(n_devices, n_microbatches)
    programs = []
    for position in range(n_devices):
        stages = range(position, n_devices * stages_per_device, n_devices)
        # a whole round through every stage but the last, and twice the way to the last device
        warmup = (stages_per_device - 1) * in_round + 2 * (n_devices - 1 - position)
        forwards = _in_rounds(Kind.FORWARD, stages, n_microbatches, in_round)
        backwards = _in_rounds(Kind.BACKWARD, stages[::-1], n_microbatches, in_round)
        programs.append(taking_turns(forwards, backwards, min(warmup, len(forwards))))
    return Schedule(name, n_microbatches, tuple(programs))


def _n_rounds(n_devices: int, n_microbatches: int) -> int:
    return max(n_microbatches // n_devices, 1)


def _in_rounds(kind: Kind, stages: range, n_microbatches: int, in_round: int) -> Program:
    return tuple(
        Action(stage, kind, m)
        for first in range(0, n_microbatches, in_round)
        for stage in stages
        for m in range(first, first + in_round)
    )
