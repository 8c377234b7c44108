"""Pipeline schedules by name, and the one that a plan is simulated or run under."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from numbers import Integral

import numpy as np

from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Links, shortened
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import Registry
from dtfm_lab.domain.schedule import Schedule, check_passes
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.domain.units import counted
from dtfm_lab.simulation.durations import analytic
from dtfm_lab.simulation.efficiency import GivenEfficiency
from dtfm_lab.simulation.engine import programs_of
from dtfm_lab.simulation.memory_intervals import activation_budget

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
    return _choices(schedules[name])


@lru_cache
def _choices(builder: Builder) -> dict[str, bool]:
    parameters = list(inspect.signature(builder).parameters.values())[2:]
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
            f"schedule {name}: {counted(n_microbatches, 'micro-batch')} through "
            f"{counted(n_stages * stages_per_device, 'stage')}; wanted at most {MOST_PASSES:,} passes, such as fewer "
            "micro-batches of more sequences"
        )
    return int(n_stages), int(n_microbatches)


def build(
    plan: Plan,
    schedule: str | Schedule,
    profile: Iterable[ComputeTime] | None = None,
    links: Links | None = None,
    most_activations: int | Sequence[int] | None = None,
    *,
    efficiency: GivenEfficiency = None,
) -> Schedule:
    """The schedule of this name for a plan, or the schedule itself where it is one that fits.

    A builder whose signature names them is given the job's stages per device and its warm-ups; where the job has no
    warm-ups, also the plan, the seconds of passes, the links and the most activations that each device may hold.
    Without a profile, passes take FLOP over peak x ``efficiency``; without links, those of the plan's network are used;
    without a limit, devices hold what fits into the memory of the smallest device of each position.

    Raises
    ------
    UnknownName
        No schedule of that name.
    ScheduleError
        It cannot serve the job's counts or its flushes, or was made for others.
    JobError
        The job has no model, or its model too few blocks for several stages a device.
    """
    job = plan.job
    job.modelled()
    if isinstance(schedule, str):
        choices, wanted = choices_in(job), choices_of(schedule)
        _check_passes(job, schedule)
        if wanted.get("plan") or not ("warmups" in wanted and "warmups" in choices):  # else nothing is left to choose
            choices |= {
                "plan": lambda: plan,
                "profile": lambda: _analytic(plan, efficiency, links) if profile is None else profile,
                "links": lambda: links or Links.of(plan.topology),
                "most_activations": lambda: _most_held(plan) if most_activations is None else most_activations,
            }
        built = build_named(schedule, job.n_stages, job.n_microbatches, choices)
    else:
        built = made_for(job, schedule)
    job.cut(built.n_stages)
    return built


def built_for(job: Job, name: str) -> Schedule:
    """The schedule of this name with the choices that a job has made, and no others.

    Raises UnknownName, or ScheduleError where it needs a choice that is not there, or cannot serve the job's counts.
    """
    _check_passes(job, name)
    return build_named(name, job.n_stages, job.n_microbatches, choices_in(job))


def _check_passes(job: Job, name: str) -> None:
    """Refuse a schedule with too many steps to be played, before its passes are made."""
    interleaves = "stages_per_device" in choices_of(name)
    check_passes(name, job.n_stages, job.microbatch_counts, job.stages_per_device if interleaves else 1)


def _analytic(plan: Plan, efficiency: GivenEfficiency, links: Links | None) -> Iterable[ComputeTime]:
    plain = schedules["1f1b"](plan.job.n_stages, plan.job.n_microbatches)
    return analytic(plan, programs_of(plan, plain, whole_rings=True), efficiency, links)


def choices_in(job: Job) -> dict[str, Callable[[], object]]:
    """The choices of schedules that a job has made."""
    choices: dict[str, Callable[[], object]] = {"stages_per_device": lambda: job.stages_per_device}
    if job.flush_every is not None:
        choices["flush_every"] = lambda: job.flush_every
    return choices if job.warmups is None else choices | {"warmups": lambda: job.warmups}


def _most_held(plan: Plan) -> list[int]:
    """Per device of a pipeline, the micro-batches that fit into the memory of the smallest of its position.

    A device that can hold all micro-batches of its pipeline limits no other.
    """
    budget = activation_budget(plan)
    at_all = np.where(budget >= plan.job.microbatch_counts, np.maximum(budget, plan.job.n_microbatches), budget)
    held: list[int] = np.maximum(at_all.min(axis=1), 1).tolist()
    return held


def made_for(job: Job, schedule: object) -> Schedule:
    """``schedule``, or a ScheduleError where it is none or of other sizes than the job's."""
    if not isinstance(schedule, Schedule):
        raise ScheduleError(f"schedule is {shortened(schedule)}; wanted a name or a Schedule")
    found, wanted = (schedule.n_devices, schedule.n_microbatches), (job.n_stages, job.n_microbatches)
    if found != wanted:
        raise ScheduleError(
            f"schedule {schedule.name} is of {counted(found[0], 'device')} and {counted(found[1], 'micro-batch')}; "
            f"job {job.name} wants {wanted[0]} and {wanted[1]}"
        )
    return schedule
