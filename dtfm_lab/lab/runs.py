"""Functions that predict what a plan takes (simulate, memory, sweep), and that run it for real (start, run)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from dtfm_lab import files, simulation
from dtfm_lab.domain.extension import answered_instead
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.options import lists_options, takes_options
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import Trace
from dtfm_lab.lab.arguments import (
    AnySchedule,
    Progress,
    SimulationOptions,
    as_plan,
    as_plan_or_network,
    as_schedule,
)
from dtfm_lab.lab.keywords import RunKeywords, SimulateKeywords, SweepKeywords
from dtfm_lab.lab.plans import nouns
from dtfm_lab.planning.sweeps import SETTINGS, sweep_points, sweep_summary, sweep_table
from dtfm_lab.runtime.protocol.run_options import RunOptions
from dtfm_lab.simulation.executors import AnyExecutor, opened
from dtfm_lab.simulation.memory import MemoryReport
from dtfm_lab.simulation.memory import memory as memory_of
from dtfm_lab.simulation.task_runner import table_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from dtfm_lab.runtime.client.run import Run


@takes_options(SimulationOptions)
def simulate(plan: Plan | str, schedule: AnySchedule | None = None, **options: Unpack[SimulateKeywords]) -> Trace:
    """Predict one iteration in virtual time; two if replicas average only every few iterations.

    ``schedule`` is a name, a Schedule, or a schedule file (.txt, or torch's .csv). If None, the job's schedule is used.
    ``like`` is a measured Trace. It makes this a prediction of that run: of the part of the plan that ran, with the
    durations that were profiled before it. A ``profile`` has rows (stage, replica, kind, seconds).
    """
    return simulation.simulate(as_plan(plan), as_schedule(schedule), **options)


def memory(plan: Plan | str, schedule: AnySchedule | None = None, *, trace: Trace | None = None) -> MemoryReport:
    """Return the peak memory of every device, whether the plan fits, and what would make it fit: ``.sentence``,
    ``.fits``, ``.to_frame()``, ``.advice``.

    The peak follows from the order of passes alone, so nothing has to run. With a ``trace`` of this plan,
    ``.timeline(device)`` returns the memory in the course of an iteration.
    """
    return memory_of(as_plan(plan), as_schedule(schedule), trace=trace)


@lists_options(SETTINGS.values(), noun="setting of a sweep", left_as_is=True)
def sweep(
    what: Plan | Topology | str,
    job: Job | str | None = None,
    *,
    repeats: int | None = None,
    seconds: float | None = None,
    executor: AnyExecutor | None = None,
    resume: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    summary: bool | str = False,
    **varied: Unpack[SweepKeywords],
) -> DataFrame:
    """Simulate a plan under every combination of some settings, one row each. ``lab.figures.sweep`` draws them.

    ``lab.sweep(plan, schedule=["gpipe", "1f1b"], bandwidth=[0.5, 1, 2])``. A setting is one value or a list of values.
    These settings keep the plan's placement:

    - schedule, queueing and efficiency
    - many fields of the job, such as microbatch, compression or recompute
    - bandwidth and latency, as factors on all links

    The row of an impossible combination has an ``error``. ``progress`` is called with every row. Ctrl-C keeps the rows
    so far. Long sweeps use one process per core.

    ``lab.sweep("worldwide", "gpt3-xl", planner=["evolutionary", "random"], shape=["8x8", "4x16"], repeats=5)`` makes a
    new plan for every combination. Any of these arguments leads to that:

    - a network instead of a plan
    - a job, ``repeats``, or ``seconds`` of each search
    - a setting of planning: network, shape (or n_stages and n_replicas), planner, objective, max_price_per_hour,
      max_iteration_s, steps or seed

    Repeats differ in their seed. With ``summary=True``, the mean of ``iteration_s`` and its 95 % confidence interval
    are returned instead of the rows: n, failed, mean, low, high, least, most. ``summary`` may also name another result.

    ``executor`` computes the rows elsewhere. It is any object with the ``submit`` of ``concurrent.futures``, such as
    ``loky.get_reusable_executor()`` or ``dask.distributed.Client(address)``, or ``"loky:4"``, ``"threads:4"``,
    ``"dask://host:8786"``, or ``"here"`` for this process only. With ``resume="rows.jsonl"`` finished rows are kept in
    that file, and reused when the same sweep starts again.
    """
    given = as_plan_or_network(what)
    read = {name: _read(name, values) for name, values in varied.items()}
    # A plan brings its own job; a network needs one at every point.
    job_for = None if job is None and isinstance(given, Plan) else partial(_job_for, job)
    # Closed in reverse order, and also after an error: the file of kept rows first, then the workers.
    with ExitStack() as closing:
        pool = closing.enter_context(opened(executor))
        kept = None if resume is None else closing.enter_context(files.SweepRows(resume))
        points = sweep_points(given, job_for, repeats=repeats, seconds=seconds, executor=pool, kept=kept, **read)
        table = table_of(points, sweep_table, progress)
    of = given.job if job is None and isinstance(given, Plan) else job
    # Most jobs count tokens, but jobs of images or of the user's own module count samples. The figure's axis says
    # which.
    table.attrs["counted"] = of.counted if isinstance(of, Job) else "tokens"
    return sweep_summary(table, "iteration_s" if summary is True else summary) if summary else table


def _job_for(job: Job | str | None, network: Topology) -> Job:
    return nouns(network, job)[1]


def _read(name: str, given: Any) -> Any:
    """Return the values of a setting. Networks given by name or file, and schedules given by file, are loaded."""
    if name not in ("network", "schedule"):
        return given
    one = isinstance(given, str | os.PathLike | Topology | Schedule) or not isinstance(given, Iterable)
    values = [given] if one else list(given)
    if name == "schedule":
        return [as_schedule(value) for value in values]
    return [files.load_topology(value) if isinstance(value, str | os.PathLike) else value for value in values]


@takes_options(RunOptions)
def start(plan: Plan | str, schedule: AnySchedule | None = None, **options: Unpack[RunKeywords]) -> Run:
    """Start real workers on this machine and return a handle at once; its ``wait`` returns the measured Trace.

    ``dtfm_lab.runtime.protocol.run_options.RunOptions`` describes each option. ``launch.start`` lists the errors.
    """
    from dtfm_lab.runtime.client import launch  # takes a while to load

    return launch.start(as_plan(plan), as_schedule(schedule), **options)


@answered_instead
@takes_options(RunOptions)
def run(
    plan: Plan | str,
    schedule: AnySchedule | None = None,
    *,
    progress: Progress | None = None,
    **options: Unpack[RunKeywords],
) -> Trace:
    """Run a plan for real on this machine and return the measured Trace. ``progress`` is called with every event.

    Other options are passed to ``start``.
    """
    return start(plan, schedule, **options).wait(progress)
