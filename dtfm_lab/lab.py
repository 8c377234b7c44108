"""The whole story in a handful of functions: what notebooks, widgets and the command line call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pandas import DataFrame

from dtfm_lab import files, planning, simulation
from dtfm_lab.compare import Comparison, Refit
from dtfm_lab.compare import compare as compare_traces
from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.topology import Topology
from dtfm_lab.domain.trace import Trace
from dtfm_lab.files.schedules import ENDINGS, load_schedule
from dtfm_lab.planning import DeviceWorth, Difference, Explanation, PlanStep
from dtfm_lab.runtime import baselines as measured_baselines
from dtfm_lab.runtime import launch
from dtfm_lab.runtime.baselines import BaselineRun
from dtfm_lab.runtime.run import Run
from dtfm_lab.simulation import fitting
from dtfm_lab.simulation import sensitivity as what_would_help
from dtfm_lab.simulation import sweeps as what_if
from dtfm_lab.simulation.durations import EFFICIENCY
from dtfm_lab.simulation.memory import MemoryReport
from dtfm_lab.simulation.memory import memory as memory_of
from dtfm_lab.simulation.schedules import schedules
from dtfm_lab.simulation.sensitivity import Gain
from dtfm_lab.simulation.simulate import Profile
from dtfm_lab.simulation.sweeps import SweepPoint

AnySchedule = str | os.PathLike[str] | Schedule
"""a name, a file's path (.txt, or torch's .csv), or the noun itself"""
SMALL_NETWORK = 16
"""up to as many devices, a network without a job gets one that can be run for real"""


def load_topology(name_or_path: str | os.PathLike[str]) -> Topology:
    """A network that comes with the lab (``dtfm-lab topologies``) or from a file of any format that the lab knows."""
    return files.load_topology(name_or_path)


def load_job(name_or_path: str | os.PathLike[str], **overrides: Any) -> Job:
    """By name (``dtfm-gpt3-xl``, ``llama-3-8b``...) or from a file; any field, ``model=`` and ``seq_len=`` too."""
    return files.load_job(name_or_path, **overrides)


def default_job(topology: Topology) -> Job:
    """A job for who names none: small on a small network, else the paper's, cut to use every device."""
    job = load_job("small" if len(topology) <= SMALL_NETWORK else "dtfm-gpt3-xl")
    return fitted(job, len(topology))


def fitted(job: Job, n_devices: int) -> Job:
    """The job cut to use all devices: its own shape if that does, else the most square that its batch allows.

    Where no shape uses all of them, as many as one can use.
    """
    if job.n_tasklets == n_devices:
        return job
    shapes = next(shapes for n in range(n_devices, 0, -1) if (shapes := job.shapes(n)))
    n_stages, n_replicas = min(shapes, key=lambda shape: (abs(shape[0] - shape[1]), -shape[0]))
    return files.override(job, n_stages=n_stages, n_replicas=n_replicas)


def plan(
    topology: Topology | str,
    job: Job | str | None = None,
    *,
    planner: str = "evolutionary",
    seed: int = 0,
    seconds: float | None = None,
    steps: int | None = None,
    start: Plan | None = None,
) -> Plan:
    """The best placement that a planner finds in so many ``seconds`` (or ``steps``; 2 s without either).

    Ctrl-C keeps the best so far. With ``steps`` the same seed gives the same plan.
    """
    network, task = _nouns(topology, job)
    return planning.plan(network, task, planner, seed=seed, seconds=seconds, steps=steps, start=start)


def search(
    topology: Topology | str,
    job: Job | str | None = None,
    *,
    planner: str = "evolutionary",
    seed: int = 0,
    seconds: float | None = None,
    steps: int | None = None,
    start: Plan | None = None,
) -> Iterator[PlanStep]:
    """The steps of ``plan`` as they come: each has best_s, bound_s, evaluations and ``plan``."""
    network, task = _nouns(topology, job)
    return planning.search(network, task, planner, seed=seed, seconds=seconds, steps=steps, start=start)


def evaluate(
    topology: Topology | str,
    job: Job | str | None = None,
    *,
    stages: Sequence[Sequence[int | str]] | None = None,
    rank_map: Sequence[int | None] | None = None,
    groups: Sequence[Sequence[int | str]] | None = None,
) -> Plan:
    """A placement of one's own, priced: groups in stage order, a rank map, or groups in any order."""
    network, task = _nouns(topology, job)
    return planning.evaluate(network, task, stages=stages, rank_map=rank_map, groups=groups)


def explain(plan: Plan | str) -> Explanation:
    """Why a plan costs what it costs: what binds, and the price of any other place of a device.

    ``.text``, ``.why("Tokyo-3")``, ``.to_frame()``.
    """
    return planning.explain(_plan(plan))


def diff(before: Plan | str, after: Plan | str) -> Difference:
    """What moved from one plan to another, what it cost, and what of that the network changed by itself."""
    return planning.diff(_plan(before), _plan(after))


def worth(plan: Plan | str, planner: str = "evolutionary", **limits: Any) -> DataFrame:
    """What each device is worth: the cost of doing without it less the cost with it serving, as a table.

    Limits: seed=0, steps= (4 without), seconds=, of each search. Ctrl-C keeps the rows so far.
    """
    return planning.worth(_plan(plan), planner, **limits)


def worths(plan: Plan | str, planner: str = "evolutionary", **limits: Any) -> Iterator[DeviceWorth]:
    """The rows of ``worth`` as they come, each with the plan with and the plan without the device."""
    return planning.worths(_plan(plan), planner, **limits)


def with_job(plan: Plan | str, **overrides: Any) -> Plan:
    """The same placement for the plan's job with other fields (``recompute=True``, ``compression="int8"``...),
    priced anew. Raises PlanError where that changes the numbers of stages or replicas, which ask for another plan."""
    plan = _plan(plan)
    job = files.override(plan.job, **overrides)
    if (job.n_stages, job.n_replicas) != (plan.job.n_stages, plan.job.n_replicas):
        raise PlanError(
            f"job {job.name} has {job.n_stages} stages x {job.n_replicas} replicas, the plan places "
            f"{plan.job.n_stages} x {plan.job.n_replicas}; wanted the same, or a new plan"
        )
    return planning.evaluate(plan.topology, job, rank_map=plan.rank_map)


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
        _plan(plan), _schedule(schedule), like=like, queueing=queueing, profile=profile, efficiency=efficiency
    )


def memory(plan: Plan | str, schedule: AnySchedule | None = None, *, trace: Trace | None = None) -> MemoryReport:
    """What every device holds at most, and whether it has that much: ``.sentence``, ``.fits``, ``.to_frame()``.

    From the order of passes alone, before anything runs; over a ``trace`` of this plan with ``.timeline(device)``.
    """
    return memory_of(_plan(plan), _schedule(schedule), trace=trace)


def advice(plan: Plan | str, schedule: AnySchedule | None = None) -> str:
    """Who lacks memory, how much, and what would fit, in one line; empty where all devices have enough."""
    return fitting.advice(_plan(plan), _schedule(schedule))


def sensitivity(plan: Plan | str, schedule: AnySchedule | None = None, **options: Any) -> DataFrame:
    """What each better link or device would bring, the greatest gain first, with a sentence each.

    Options: factor=1.1, what=("bandwidth", "latency", "compute"), and those of ``simulate``. Ctrl-C keeps the rows so
    far.
    """
    return what_would_help.sensitivity(_plan(plan), _schedule(schedule), **options)


def gains(plan: Plan | str, schedule: AnySchedule | None = None, **options: Any) -> Iterator[Gain]:
    """The rows of ``sensitivity`` as they come."""
    return what_would_help.gains(_plan(plan), _schedule(schedule), **options)


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
    return what_if.sweep(_plan(plan), progress=progress, workers=workers, **_loaded(settings))


def sweeps(plan: Plan | str, *, workers: int | None = None, **settings: Any) -> Iterator[SweepPoint]:
    """The rows of ``sweep`` as they come: each has settings, outcome or error, number and total."""
    return what_if.sweeps(_plan(plan), workers=workers, **_loaded(settings))


def start(plan: Plan | str, schedule: AnySchedule | None = None, **options: Any) -> Run:
    """Start real workers on this machine and return at once: a live handle, whose ``wait`` gives what was measured.

    Options
    -------
    iterations=5, seed=0, learning_rate=3e-3, text=
        What is trained, and on which file; without one on the text that comes with the lab.
    clock="virtual", time_scale=, queueing="pairs", emulated=
        How seconds are counted: ``virtual``, ``paced`` (``time_scale`` wall seconds a second) or ``real``; links as
        independent ``pairs`` or, on the virtual clock, network ``cards``; of the plan's network, or of another one.
    workers=, stand_in=, runs_on="cpu"
        How much of the plan runs, a count or (stages, pipelines): without it all of a plan of up to 32 devices, and of
        a larger one as much as 8 workers can. What is trained in place of the job's model; without it a small model
        where the job's own cannot be trained here. What workers compute on.
    parameters_folder=, checkpoint_folder=, checkpoint_every=0, resume_from=
        Where trained parameters and checkpoints go, every so many iterations (0: after the last); where to go on from.
    evaluate_every=0, sample_bytes=0
        How often held-out text is looked at (0: after the last), and how much the trained model writes at the end.

    ``runtime.launch.start`` says more of each, and what is refused.
    """
    return launch.start(_plan(plan), _schedule(schedule), **options)


def run(
    plan: Plan | str,
    schedule: AnySchedule | None = None,
    *,
    progress: Callable[[dict[str, Any]], None] | None = None,
    **options: Any,
) -> Trace:
    """Run a plan for real on this machine and return what was measured; ``progress`` is called with every event.

    Options are those of ``start``: iterations=5, clock="virtual" (or "paced", "real"), seed=0, learning_rate=3e-3,
    text=, time_scale=, workers=, stand_in=, queueing="pairs" (or "cards"), emulated=, runs_on="cpu",
    parameters_folder=, checkpoint_folder=, checkpoint_every=0, resume_from=, evaluate_every=0, sample_bytes=0.
    """
    return launch.start(_plan(plan), _schedule(schedule), **options).wait(progress)


def baselines(
    plan: Plan | str,
    schedule: AnySchedule | None = None,
    *,
    progress: Callable[[BaselineRun], None] | None = None,
    **options: Any,
) -> DataFrame:
    """The plan against a random placement, the order of the file, and data parallelism alone: each priced, predicted
    and run for real on the same emulated links, as a table.

    Options are those of ``start``, alike for all; ``seed`` is the random placement's, too. ``progress`` is called with
    every row; Ctrl-C keeps the rows so far.
    """
    rows: list[BaselineRun] = []
    try:
        for row in baseline_runs(plan, schedule, **options):
            rows.append(row)
            if progress is not None:
                progress(row)
    except KeyboardInterrupt:
        if not rows:
            raise
    return measured_baselines.baseline_table(rows)


def baseline_runs(plan: Plan | str, schedule: AnySchedule | None = None, **options: Any) -> Iterator[BaselineRun]:
    """The rows of ``baselines`` as they come, each with its plan, its prediction and its measurement."""
    return measured_baselines.baseline_runs(_plan(plan), _schedule(schedule), **options)


def compare(predicted: Trace, measured: Trace) -> Comparison:
    """Errors by row, iteration, kind, stage, device and link; ``.suspects``, ``.drift``, and ``lab.refit``."""
    return compare_traces(predicted, measured)


def refit(comparison: Comparison, plan: Plan | str) -> Refit:
    """The links and computations that would have predicted what was measured, with intervals, and the error left:
    ``.table``, ``.sentence``, ``.topology``, ``.profile``."""
    return comparison.refit(_plan(plan), simulate)


def _nouns(topology: Topology | str, job: Job | str | None) -> tuple[Topology, Job]:
    network = topology if isinstance(topology, Topology) else load_topology(topology)
    if job is None:
        return network, default_job(network)
    return network, job if isinstance(job, Job) else load_job(job)


def _plan(plan: Plan | str | os.PathLike[str]) -> Plan:
    return plan if isinstance(plan, Plan) else files.load_plan(plan)


def _schedule(schedule: AnySchedule | None) -> str | Schedule | None:
    """A file's schedule; anything else as it is."""
    is_file = isinstance(schedule, os.PathLike) or (isinstance(schedule, str) and schedule.lower().endswith(ENDINGS))
    return load_schedule(schedule) if is_file else schedule


def _loaded(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a sweep, schedules read where they are files."""
    if "schedule" not in settings:
        return settings
    given = settings["schedule"]
    one = isinstance(given, str | os.PathLike | Schedule) or not isinstance(given, Iterable)
    return settings | {"schedule": [_schedule(each) for each in ([given] if one else given)]}
