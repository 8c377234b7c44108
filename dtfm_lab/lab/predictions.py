"""Predictions: schedules, simulated iterations, memory, sensitivity and sweeps."""

import os
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from pandas import DataFrame

from dtfm_lab import files, simulation
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.options import lists_options
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.streams import table_of
from dtfm_lab.domain.trace import Trace
from dtfm_lab.lab.arguments import (
    AnySchedule,
    Progress,
    SimulationOptions,
    as_plan,
    as_plan_or_network,
    as_schedule,
    of_schedule,
)
from dtfm_lab.lab.executors import AnyExecutor, closed, opened
from dtfm_lab.lab.plans import default_job
from dtfm_lab.planning.plan_sweeps import PLANNING_SETTINGS, SWEEP_OPTIONS, plan_sweeps
from dtfm_lab.simulation import sweeps as what_if
from dtfm_lab.simulation.memory import MemoryReport
from dtfm_lab.simulation.memory import memory as memory_of
from dtfm_lab.simulation.sweep_summary import sweep_summary as summary_of


@of_schedule(SimulationOptions)
def simulate(plan: Plan | str, schedule: AnySchedule | None = None, **options: Any) -> Trace:
    """Predict one iteration in virtual time.

    ``schedule`` is a name, a Schedule, or a schedule's file (.txt, or torch's .csv); None for the job's own. ``like`` a
    measured Trace, what ran is predicted from the profile taken before the run; if only a part of the plan ran, that
    part. A ``profile`` has rows (stage, replica, kind, seconds).
    """
    return simulation.simulate(as_plan(plan), as_schedule(schedule), **options)


def memory(plan: Plan | str, schedule: AnySchedule | None = None, *, trace: Trace | None = None) -> MemoryReport:
    """The peak memory of every device, and whether it fits: ``.sentence``, ``.fits``, ``.to_frame()``,
    and ``.advice``: what would fit, in one line.

    It follows from the order of passes alone, before anything runs; with a ``trace`` of this plan there is also
    ``.timeline(device)``.
    """
    return memory_of(as_plan(plan), as_schedule(schedule), trace=trace)


@lists_options(SWEEP_OPTIONS, noun="setting of a sweep")
def sweep(
    plan: Plan | Topology | str,
    job: Job | str | None = None,
    *,
    repeats: int | None = None,
    steps: int | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
    executor: AnyExecutor | None = None,
    resume: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> DataFrame:
    """A plan simulated under every combination of some settings, one row each; ``lab.figures.sweep`` draws them.

    ``lab.sweep(plan, schedule=["gpipe", "1f1b"], bandwidth=[0.5, 1, 2])``. A setting is a list of values, or one
    value: schedule, queueing, efficiency; fields of the job that keep its placement, such as microbatch, compression
    or recompute; bandwidth and latency, as factors on all links. An impossible combination is a row with an ``error``.
    ``progress`` is called with every point; Ctrl-C keeps the rows so far. Long sweeps use one process a core, or
    ``workers``.

    ``lab.sweep("worldwide", "gpt3-xl", planner=["evolutionary", "random"], shape=["8x8", "4x16"], repeats=5)`` plans
    every combination anew. So it does for a network in place of a plan, for a job, ``repeats``, ``steps`` or
    ``seconds`` (of each search), and for the settings network, shape (or n_stages and n_replicas), planner, objective
    and seed. Repeats differ in their seed; ``lab.sweep_summary`` gives their mean and its interval.

    ``executor`` computes the rows elsewhere: any object with the ``submit`` of ``concurrent.futures``, such as
    ``loky.get_reusable_executor()`` or ``dask.distributed.Client(address)``, or ``"loky:4"``, ``"threads:4"``,
    ``"dask://host:8786"``. With ``resume="rows.jsonl"`` rows that are done are kept in that file, and taken from it
    when the same sweep is begun again.
    """
    given = as_plan_or_network(plan)
    read = _read_schedules(settings)
    plans = {"job": job, "repeats": repeats, "steps": steps, "seconds": seconds}
    with ExitStack() as closing:
        how: dict[str, Any] = {"workers": workers, "executor": closing.enter_context(opened(executor))}
        if resume is not None:
            how["kept"] = closing.enter_context(files.SweepRows(resume))
        if isinstance(given, Plan) and settings.keys().isdisjoint(PLANNING_SETTINGS) and set(plans.values()) == {None}:
            points = what_if.sweeps(given, **how, **read)
        else:
            network = given.topology if isinstance(given, Plan) else given
            own = given.job if isinstance(given, Plan) and job is None else job
            how |= {"repeats": repeats, "steps": steps, "seconds": seconds}
            points = plan_sweeps(network, lambda one: _job_for(own, one), **how, **_read_networks(read))
        closing.enter_context(closed(points))
        return table_of(points, what_if.sweep_table, progress)


def sweep_summary(table: DataFrame, y: str = "iteration_s", *, confidence: float = 0.95) -> DataFrame:
    """The mean of one result over the seeds of each combination of a sweep, and Student's interval of it.

    Columns: the settings, n, failed, mean, low, high, least and most, in the unit of ``y``.
    """
    return summary_of(table, y, confidence=confidence)


def _job_for(job: Job | str | None, network: Topology) -> Job:
    if job is None:
        return default_job(network)
    return job if isinstance(job, Job) else files.load_job(job)


def _read_networks(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a sweep, with names and files of networks replaced by the networks."""
    if "network" not in settings:
        return settings
    given = settings["network"]
    one = isinstance(given, str | os.PathLike | Topology) or not isinstance(given, Iterable)
    networks = [files.load_topology(n) if isinstance(n, str | os.PathLike) else n for n in ([given] if one else given)]
    return settings | {"network": networks}


def _read_schedules(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a sweep, with schedule files replaced by the schedules that they hold."""
    if "schedule" not in settings:
        return settings
    given = settings["schedule"]
    one = isinstance(given, str | os.PathLike | Schedule) or not isinstance(given, Iterable)
    return settings | {"schedule": [as_schedule(each) for each in ([given] if one else given)]}
