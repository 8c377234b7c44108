"""Start a real run from a kernel that never loads torch; refuse what cannot run before anything starts."""

from __future__ import annotations

import importlib.util
import math
import os
from pathlib import Path
from typing import get_args

import psutil

from dtfm_lab.domain.device import as_number, shortened
from dtfm_lab.domain.errors import JobError, LabError, MissingExtra
from dtfm_lab.domain.links import Links
from dtfm_lab.domain.model import ModelSpec, gpt
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import Clock
from dtfm_lab.runtime.pieces import CARRIES
from dtfm_lab.runtime.run import Run
from dtfm_lab.runtime.spec import RunSpec
from dtfm_lab.simulation import build
from dtfm_lab.simulation.durations import analytic
from dtfm_lab.simulation.engine import play

RUN_CLOCKS = tuple(name for name in get_args(Clock) if name != "model")
RUN_DTYPES = ("fp32", "fp64")
MOST_WORKERS = 32
MOST_COUNT = 10**9
BYTE_VALUES = 256
UNLIKE_SUMS = ("ring", "hierarchical")
"""ways of averaging in which the order of a sum depends on where in the vector, or in which region, a number is"""
BYTES_PER_WORKER = 400e6
"""resident memory of a worker before its stage: torch itself, mostly"""


def start(
    plan: Plan,
    schedule: str | Schedule | None = None,
    *,
    iterations: int = 5,
    clock: str = "virtual",
    seed: int = 0,
    text: str | os.PathLike[str] | None = None,
    parameters_folder: str | os.PathLike[str] | None = None,
    time_scale: float | None = None,
) -> Run:
    """Start one torch worker per stage and replica on this machine's CPU.

    Raises
    ------
    MissingExtra
        torch is not installed.
    UnknownName, JobError
        An unknown schedule or clock; a job that cannot be run here (too many workers, no model, dtype).
    ScheduleError
        A schedule that waits for itself.
    """
    if clock not in RUN_CLOCKS:
        raise unknown("clock", clock, RUN_CLOCKS)
    plan.job.modelled()
    links = Links.free(len(plan.topology)) if clock == "real" else Links.of(plan.topology)
    built = build(plan, plan.job.schedule if schedule is None else schedule, links=links)
    spec = RunSpec(
        plan=plan,
        schedule=built.name,
        orders=built.orders,
        iterations=iterations,
        clock=clock,
        seed=seed,
        text=None if text is None else os.fspath(Path(text).resolve()),
        parameters_folder=None if parameters_folder is None else os.fspath(Path(parameters_folder).resolve()),
        time_scale=time_scale,
    )
    _check(spec)
    play(plan, built, analytic(plan, spec.programs(synchronise=True)), Links.of(plan.topology))  # or workers would hang
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra("real runs need torch, which is not installed: pip install 'dtfm_lab[train]'")
    return Run(spec)


def _check(spec: RunSpec) -> None:
    job = spec.plan.job
    model = job.modelled()
    if model.family != "gpt":
        raise JobError(f"job {job.name}: model {model.name} is of the {model.family} family; real runs build gpt only")
    if job.synchronisation not in CARRIES:
        known = ", ".join(CARRIES)
        raise JobError(
            f"job {job.name}: synchronisation is {job.synchronisation}, which can be simulated; real runs know {known}"
        )
    if job.ties_stages and job.synchronise_every > 1 and (job.synchronisation in UNLIKE_SUMS or job.codes_gradients):
        how = f"{job.gradients_as} messages" if job.codes_gradients else f"{job.synchronisation} synchronisation"
        raise JobError(
            f"job {job.name}: {how} every {job.synchronise_every} iterations would round the two copies of a tied "
            f"embedding differently; wanted every iteration, an untied model, or sharded synchronisation uncompressed"
        )
    for what, count, least in (("iterations", spec.iterations, 1), ("seed", spec.seed, 0)):
        if not isinstance(count, int) or isinstance(count, bool) or not least <= count <= MOST_COUNT:
            raise LabError(f"{what} is {count!r}; wanted a whole number from {least} to {MOST_COUNT}")
    if model.vocab_size < BYTE_VALUES:
        raise JobError(f"model {model.name}: vocab_size is {model.vocab_size}; wanted {BYTE_VALUES} or more, for bytes")
    if spec.time_scale is not None and not 0 < (as_number(spec.time_scale) or 0.0) < math.inf:
        raise LabError(f"time_scale is {shortened(spec.time_scale)}; wanted more than 0 wall seconds a second")
    if job.dtype not in RUN_DTYPES:
        raise JobError(f"job {job.name}: dtype is {job.dtype}; workers on a CPU run {' or '.join(RUN_DTYPES)}")
    if model.layers != _as_built(model).layers:
        raise JobError(
            f"job {job.name}: model {model.name} has other layers than the GPT that workers build; wanted "
            f"biases everywhere, an MLP of 4 x d_model and as many learned positions as seq_len, {model.seq_len}"
        )
    if job.n_tasklets > MOST_WORKERS:
        raise JobError(
            f"{job.n_stages} stages x {job.n_replicas} replicas need {job.n_tasklets} workers on this machine; "
            f"wanted at most {MOST_WORKERS}"
        )
    each = 8 if job.dtype == "fp64" else 4
    # parameters, gradients, two optimiser states, what its step needs for a moment, messages; after local updates what
    # replicas last had in common, and what changed since: measured with 25 million parameters, 7.4 and 8.6
    copies = 8 if job.synchronise_every == 1 else 10
    needed = job.n_tasklets * BYTES_PER_WORKER * 0.2 + copies * each * model.parameters * job.n_replicas
    if needed > (available := psutil.virtual_memory().available):
        raise JobError(
            f"job {job.name} needs some {needed / 2**30:.1f} GiB on this machine, {available / 2**30:.1f} are free; "
            f"wanted a smaller model or fewer replicas"
        )
    if spec.text is not None and not Path(spec.text).is_file():
        raise LabError(f"text {spec.text}: no such file")
    if spec.parameters_folder is not None and not Path(spec.parameters_folder).is_dir():
        raise LabError(f"parameters_folder {spec.parameters_folder}: no such folder")
    if spec.text is not None and (size := Path(spec.text).stat().st_size) <= model.seq_len:
        raise LabError(f"text {spec.text} has {size} bytes; wanted more than {model.seq_len}, one sequence")


def _as_built(model: ModelSpec) -> ModelSpec:
    """What ``stages`` makes of a model's sizes."""
    return gpt(
        n_layers=model.n_blocks,
        d_model=model.d_model,
        n_heads=model.n_heads,
        seq_len=model.seq_len,
        vocab_size=model.vocab_size,
        tied=model.tied,
    )
