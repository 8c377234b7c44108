"""What would happen: schedules, simulated iterations, memory, and what else one might try."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

from pandas import DataFrame

from dtfm_lab import simulation
from dtfm_lab.domain.options import lists_options
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import Trace
from dtfm_lab.lab.arguments import (
    AnySchedule,
    Progress,
    SensitivityOptions,
    SimulationOptions,
    as_plan,
    as_schedule,
    of_schedule,
    table_of,
)
from dtfm_lab.simulation import memory_advice
from dtfm_lab.simulation import sensitivity as what_would_help
from dtfm_lab.simulation import sweeps as what_if
from dtfm_lab.simulation.memory import MemoryReport
from dtfm_lab.simulation.memory import memory as memory_of
from dtfm_lab.simulation.schedules import build_named


def build_schedule(
    schedule: str,
    n_stages: int,
    n_microbatches: int,
    *,
    stages_per_device: int = 2,
    warmups: Sequence[int] | None = None,
) -> Schedule:
    """A schedule by name and sizes, its order of passes under ``.orders``.

    ``n_stages`` counts the devices of a pipeline; ``stages_per_device`` serves interleaved-1f1b, ``warmups`` (forwards
    before a device takes turns, one each) adaptive-1f1b.
    """
    choices = {"stages_per_device": lambda: stages_per_device, "warmups": lambda: warmups}
    return build_named(schedule, n_stages, n_microbatches, choices)


@of_schedule(SimulationOptions)
def simulate(plan: Plan | str, schedule: AnySchedule | None = None, **options: Any) -> Trace:
    """Predict one iteration in virtual time; ``like`` a measured Trace: what ran, with the profile taken before, and
    where only a part of the plan ran, that part.

    Parameters
    ----------
    schedule
        A name, a Schedule, or a schedule's file (.txt, or torch's .csv); the job's own where None.
    queueing
        ``pairs`` (every directed pair of devices a link of its own) or ``cards`` (one network card a device).
    profile
        Seconds of computations (stage, replica, kind, seconds), instead of FLOP over peak x efficiency.
    efficiency
        Share of its peak that a device reaches.
    """
    return simulation.simulate(as_plan(plan), as_schedule(schedule), **options)


def memory(plan: Plan | str, schedule: AnySchedule | None = None, *, trace: Trace | None = None) -> MemoryReport:
    """What every device holds at most, and whether it has that much: ``.sentence``, ``.fits``, ``.to_frame()``.

    From the order of passes alone, before anything runs; over a ``trace`` of this plan with ``.timeline(device)``.
    """
    return memory_of(as_plan(plan), as_schedule(schedule), trace=trace)


def advice(plan: Plan | str, schedule: AnySchedule | None = None) -> str:
    """Who lacks memory, how much, and what would fit, in one line; empty where all devices have enough."""
    return memory_advice.advice(as_plan(plan), as_schedule(schedule))


@of_schedule(SensitivityOptions)
def sensitivity(
    plan: Plan | str, schedule: AnySchedule | None = None, *, progress: Progress | None = None, **options: Any
) -> DataFrame:
    """What each better link or device would bring, the greatest gain first, with a sentence each.

    Bandwidth and speed of computing grow by ``factor``, latency is divided by it. ``progress`` is called with every
    row; Ctrl-C keeps the rows so far.
    """
    rows = what_would_help.gains(as_plan(plan), as_schedule(schedule), **options)
    return table_of(rows, what_would_help.sensitivity_table, progress)


@lists_options(what_if.SETTING_OPTIONS, noun="setting of a sweep")
def sweep(
    plan: Plan | str, *, progress: Progress | None = None, workers: int | None = None, **settings: object
) -> DataFrame:
    """The plan simulated under every combination of some settings: one row each, ``lab.figures.sweep`` draws them.

    ``lab.sweep(plan, schedule=["gpipe", "1f1b"], bandwidth=[0.5, 1, 2])``. A setting is a list of values, or one
    value: schedule, queueing, efficiency; fields of the job that keep its placement, such as microbatch, compression
    or recompute; bandwidth and latency, as factors on all links. What cannot be is a row with an ``error``.
    ``progress`` is called with every point; Ctrl-C keeps the rows so far. Long sweeps use one process a core, or
    ``workers``.
    """
    points = what_if.sweeps(as_plan(plan), workers=workers, **_loaded(settings))
    return table_of(points, what_if.sweep_table, progress)


def _loaded(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a sweep, schedules read where they are files."""
    if "schedule" not in settings:
        return settings
    given = settings["schedule"]
    one = isinstance(given, str | os.PathLike | Schedule) or not isinstance(given, Iterable)
    return settings | {"schedule": [as_schedule(each) for each in ([given] if one else given)]}
