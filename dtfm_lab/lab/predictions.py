"""Predictions: schedules, simulated iterations, memory, sensitivity and sweeps."""

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
    """Predict one iteration in virtual time.

    ``schedule`` is a name, a Schedule, or a schedule's file (.txt, or torch's .csv); None for the job's own. ``like`` a
    measured Trace, what ran is predicted from the profile taken before the run; if only a part of the plan ran, that
    part. A ``profile`` has rows (stage, replica, kind, seconds).
    """
    return simulation.simulate(as_plan(plan), as_schedule(schedule), **options)


def memory(plan: Plan | str, schedule: AnySchedule | None = None, *, trace: Trace | None = None) -> MemoryReport:
    """The peak memory of every device, and whether it fits: ``.sentence``, ``.fits``, ``.to_frame()``.

    It follows from the order of passes alone, before anything runs; with a ``trace`` of this plan there is also
    ``.timeline(device)``.
    """
    return memory_of(as_plan(plan), as_schedule(schedule), trace=trace)


def advice(plan: Plan | str, schedule: AnySchedule | None = None) -> str:
    """Which devices lack memory, how much, and what would fit, in one line; empty if all devices have enough."""
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
    """The plan simulated under every combination of some settings, one row each; ``lab.figures.sweep`` draws them.

    ``lab.sweep(plan, schedule=["gpipe", "1f1b"], bandwidth=[0.5, 1, 2])``. A setting is a list of values, or one
    value: schedule, queueing, efficiency; fields of the job that keep its placement, such as microbatch, compression
    or recompute; bandwidth and latency, as factors on all links. An impossible combination is a row with an ``error``.
    ``progress`` is called with every point; Ctrl-C keeps the rows so far. Long sweeps use one process a core, or
    ``workers``.
    """
    points = what_if.sweeps(as_plan(plan), workers=workers, **_read_schedules(settings))
    return table_of(points, what_if.sweep_table, progress)


def _read_schedules(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a sweep, with schedule files replaced by the schedules that they hold."""
    if "schedule" not in settings:
        return settings
    given = settings["schedule"]
    one = isinstance(given, str | os.PathLike | Schedule) or not isinstance(given, Iterable)
    return settings | {"schedule": [as_schedule(each) for each in ([given] if one else given)]}
