"""Pipeline schedules by name."""

import inspect
from collections.abc import Callable, Mapping
from numbers import Integral

from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.registry import Registry
from dtfm_lab.domain.schedule import Schedule

Builder = Callable[..., Schedule]
"""Orders the passes of one pipeline: called with the numbers of its devices and of its micro-batches.

Further keywords are the builder's own; ``build`` gives each of these that its signature names:

``stages_per_device``
    Stages of a device, where the schedule interleaves.
``flush_every``
    Micro-batches after which the pipeline empties; refused by a schedule that does not name it.
``plan``
    The Plan that is simulated or run, its network and job included.
``profile``
    Seconds of every computation of the plan, as ComputeTimes, one stage a device.
``links``
    Links between the devices of the plan's network, by their indices there.
``most_activations``
    Per device, the micro-batches whose activations it can hold at once.

A builder raises ScheduleError where it cannot serve the counts, or the choices that it takes.
"""

schedules: Registry[Builder] = Registry("pipeline schedule", group="dtfm_lab.schedules")

FLUSHES = "flush_every"
"""The choice that is not ignored by a schedule that cannot serve it."""
MOST_PASSES = 2 * 10**6
"""Most passes of a pipeline, each counted forward and backward: so many take some ten seconds and half a gigabyte to
order."""


def choices_of(name: str) -> dict[str, bool]:
    """The keywords that a schedule's signature names, and whether it needs each. Raises UnknownName."""
    parameters = list(inspect.signature(schedules[name]).parameters.values())[2:]
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {p.name: p.default is inspect.Parameter.empty for p in parameters if p.kind not in variadic}


def build_named(name: str, n_stages: int, n_microbatches: int, choices: Mapping[str, Callable[[], object]]) -> Schedule:
    """A schedule by name, with those of the choices that its signature names; only these are computed.

    Raises UnknownName, or ScheduleError where it needs a choice that is not there, such as the plan.
    """
    taken = choices_of(name)
    if missing := [choice for choice, needed in taken.items() if needed and choice not in choices]:
        raise ScheduleError(f"schedule {name} needs {missing[0]}; wanted it for a plan that is simulated or run")
    if FLUSHES in choices and FLUSHES not in taken:
        raise ScheduleError(
            f"schedule {name} knows no flush_every, which is {choices[FLUSHES]()}; wanted gpipe, or none"
        )
    given = {choice: choices[choice]() for choice in taken if choice in choices}
    return schedules[name](n_stages, n_microbatches, **given)


def counts(name: str, n_stages: int, n_microbatches: int, stages_per_device: int = 1) -> tuple[int, int]:
    """``n_stages`` and ``n_microbatches`` as ints; raises ScheduleError where they are no counts or too many."""
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
