"""What would happen: schedules, simulated iterations, memory, and what else one might try."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pandas import DataFrame

from dtfm_lab import simulation
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import Trace
from dtfm_lab.lab.nouns import AnySchedule, as_plan, as_schedule
from dtfm_lab.simulation import memory_advice
from dtfm_lab.simulation import sensitivity as what_would_help
from dtfm_lab.simulation import sweeps as what_if
from dtfm_lab.simulation.durations import EFFICIENCY
from dtfm_lab.simulation.memory import MemoryReport
from dtfm_lab.simulation.memory import memory as memory_of
from dtfm_lab.simulation.schedules import schedules
from dtfm_lab.simulation.sensitivity import Gain
from dtfm_lab.simulation.simulate import Profile
from dtfm_lab.simulation.sweeps import SweepPoint


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
    build = schedules[schedule]
    return build(n_stages, n_microbatches, stages_per_device=stages_per_device, warmups=warmups)


def simulate(
    plan: Plan | str,
    schedule: AnySchedule | None = None,
    *,
    like: Trace | None = None,
    queueing: str | None = None,
    profile: Profile | None = None,
    efficiency: float = EFFICIENCY,
) -> Trace:
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
    """
    return simulation.simulate(
        as_plan(plan), as_schedule(schedule), like=like, queueing=queueing, profile=profile, efficiency=efficiency
    )


def memory(plan: Plan | str, schedule: AnySchedule | None = None, *, trace: Trace | None = None) -> MemoryReport:
    """What every device holds at most, and whether it has that much: ``.sentence``, ``.fits``, ``.to_frame()``.

    From the order of passes alone, before anything runs; over a ``trace`` of this plan with ``.timeline(device)``.
    """
    return memory_of(as_plan(plan), as_schedule(schedule), trace=trace)


def advice(plan: Plan | str, schedule: AnySchedule | None = None) -> str:
    """Who lacks memory, how much, and what would fit, in one line; empty where all devices have enough."""
    return memory_advice.advice(as_plan(plan), as_schedule(schedule))


def sensitivity(plan: Plan | str, schedule: AnySchedule | None = None, **options: Any) -> DataFrame:
    """What each better link or device would bring, the greatest gain first, with a sentence each.

    Options: factor=1.1, what=("bandwidth", "latency", "compute"), and those of ``simulate``. Ctrl-C keeps the rows so
    far.
    """
    return what_would_help.sensitivity(as_plan(plan), as_schedule(schedule), **options)


def gains(plan: Plan | str, schedule: AnySchedule | None = None, **options: Any) -> Iterator[Gain]:
    """The rows of ``sensitivity`` as they come."""
    return what_would_help.gains(as_plan(plan), as_schedule(schedule), **options)


def sweep(
    plan: Plan | str,
    *,
    progress: Callable[[SweepPoint], None] | None = None,
    workers: int | None = None,
    **settings: Any,
) -> DataFrame:
    """The plan simulated under every combination of some settings: one row each, ``lab.figures.sweep`` draws them.

    ``lab.sweep(plan, schedule=["gpipe", "1f1b"], bandwidth=[0.5, 1, 2])``. A setting is a list of values, or one
    value: schedule, queueing, efficiency; microbatch, global_batch, dtype, compression, gradient_compression,
    codec_bytes_per_s, synchronisation, synchronise_every, recompute, stages_per_device; bandwidth and latency, as
    factors on all links. What cannot be is a row with an ``error``. ``progress`` is called with every point; Ctrl-C
    keeps the rows so far. Long sweeps use one process a core, or ``workers``.
    """
    return what_if.sweep(as_plan(plan), progress=progress, workers=workers, **_loaded(settings))


def sweeps(plan: Plan | str, *, workers: int | None = None, **settings: Any) -> Iterator[SweepPoint]:
    """The rows of ``sweep`` as they come: each has settings, outcome or error, number and total."""
    return what_if.sweeps(as_plan(plan), workers=workers, **_loaded(settings))


def _loaded(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a sweep, schedules read where they are files."""
    if "schedule" not in settings:
        return settings
    given = settings["schedule"]
    one = isinstance(given, str | os.PathLike | Schedule) or not isinstance(given, Iterable)
    return settings | {"schedule": [as_schedule(each) for each in ([given] if one else given)]}
