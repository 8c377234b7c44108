"""Start a real run from a kernel that never loads torch; refuse what cannot run before anything starts."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from dtfm_lab.domain.errors import JobError, LabError, MissingExtra
from dtfm_lab.domain.job import ModelSpec
from dtfm_lab.domain.network import QUEUEING, Links, Topology, shortened
from dtfm_lab.domain.plan import Plan, subplan_for
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.trace import Clock, Subplan
from dtfm_lab.files import load_model
from dtfm_lab.runtime.client.gpu_inventory import RUNS_ON as RUNS_ON
from dtfm_lab.runtime.client.gpu_inventory import check_runs_on
from dtfm_lab.runtime.client.proxy_model import NAME, as_tied, stand_in_for, why_not_trained, why_too_large
from dtfm_lab.runtime.client.run import Run
from dtfm_lab.runtime.client.run_options import AnyPath, above_0, check_job, folder, network, path, whole_number
from dtfm_lab.runtime.protocol import checkpoint_folders
from dtfm_lab.runtime.protocol.corpus import Corpus
from dtfm_lab.runtime.protocol.run_spec import RunSpec
from dtfm_lab.simulation import build
from dtfm_lab.simulation.durations import analytic
from dtfm_lab.simulation.engine import simulate_iteration

RUN_CLOCKS = tuple(name for name in get_args(Clock) if name != "model")
ITERATIONS = {"virtual": 20, "paced": 5, "real": 20}
"""with which ``small`` learns more than how frequent each byte is"""
MOST_WORKERS = 32
REHEARSAL_WORKERS = 8
"""of a plan that needs more than MOST_WORKERS"""
SCALES = "more than 0 wall seconds a second"


def start(
    plan: Plan,
    schedule: str | Schedule | None = None,
    *,
    iterations: int | None = None,
    clock: str = "virtual",
    seed: int = 0,
    learning_rate: float = RunSpec.learning_rate,
    text: AnyPath | None = None,
    time_scale: float | None = None,
    workers: int | Sequence[int] | None = None,
    stand_in: str | ModelSpec | None = None,
    queueing: str = "pairs",
    emulated: str | Topology | None = None,
    runs_on: str = "cpu",
    parameters_folder: AnyPath | None = None,
    checkpoint_folder: AnyPath | None = None,
    checkpoint_every: int = 0,
    resume_from: AnyPath | None = None,
    evaluate_every: int = 0,
    sample_bytes: int = 0,
) -> Run:
    """Start one torch worker per stage and replica on this machine, and return at once.

    Parameters
    ----------
    schedule
        A name in ``schedules``, or a Schedule; the job's own where None.
    iterations
        To train. None: 20, on the paced clock, which waits, 5.
    clock
        ``virtual``: no sleeping, each worker's logical clock adds its own CPU time. ``paced``: real time, computations
        padded to the drawn device's. ``real``: wall time and real links.
    seed
        Of parameters and batches.
    learning_rate
        Of AdamW.
    text
        A file to train on, its last tenth held out; None: the one that comes with the lab.
    time_scale
        Paced clock: wall seconds per second; None: chosen from the profile.
    workers
        How much of the plan runs: at most so many workers, or (stages, pipelines). None: all of a plan of up to
        32, of a larger one 8. All stages and as many pipelines as fit run, or the first stages of two; devices,
        links, layers and micro-batches are the plan's. See ``domain.rehearsal``.
    stand_in
        A model by name, a config.json or a ModelSpec, trained in fp32 instead of the job's; messages, and on the paced
        clock computations, keep the job's sizes. None: a small one where the job's own cannot be trained here.
    queueing
        ``pairs`` (every directed pair of devices a link of its own) or, on the virtual clock, ``cards`` (one network
        card a device).
    emulated
        Another network of as many devices, by name, file or Topology, whose links are emulated in place of the
        plan's; what is predicted does not know of it.
    runs_on
        What workers compute on: ``cpu`` or ``cuda``.
    parameters_folder
        Where each stage's trained parameters go at the end, as stage-S.npz.
    checkpoint_folder, checkpoint_every
        Where checkpoints go, and after every how many iterations; 0: only after the last.
    resume_from
        A checkpoint's folder, or one of several, whose newest is meant, to go on from: ``iterations`` more. The model
        is that of the checkpoint, cut and placed as one likes; where text, seed, batch or rate differ, a warning
        says so.
    evaluate_every
        Iterations between looks at the held-out text; 0: only after the last.
    sample_bytes
        How much text the trained model writes at the end.

    Raises
    ------
    MissingExtra
        torch is not installed.
    UnknownName, JobError, LabError
        An unknown schedule or clock, an option out of range, a job that no worker can compute: message sizes only.
    TopologyError
        ``emulated`` has another number of devices.
    ScheduleError
        A schedule that waits for itself, or was made for other sizes than those that run.
    """
    for what, value, known in (("clock", clock, RUN_CLOCKS), ("queueing", queueing, QUEUEING)):
        if not isinstance(value, str) or value not in known:
            raise unknown(what, value, known)
    if queueing == "cards" and clock != "virtual":
        raise LabError(
            f"queueing is cards on the {clock} clock; wanted the virtual clock, or pairs: when a message gets its turn "
            f"at its receiver's card depends on messages that are still to be sent, which no worker can wait for"
        )
    plan.job.modelled()
    running, kept = what_runs(plan, workers)
    check_runs_on(runs_on, running.job.n_tasklets, clock)
    links = Links.free(len(plan.topology)) if clock == "real" else Links.of(plan.topology, queueing)
    built = build(running, running.job.schedule if schedule is None else schedule, links=links)
    spec = RunSpec(
        plan=running,
        schedule=built.name,
        orders=built.orders,
        iterations=whole_number("iterations", ITERATIONS[clock] if iterations is None else iterations, least=1),
        clock=clock,
        seed=whole_number("seed", seed),
        learning_rate=above_0("learning_rate", learning_rate, "a number above 0"),
        text=path("text", text),
        parameters_folder=path("parameters_folder", parameters_folder),
        time_scale=None if time_scale is None else above_0("time_scale", time_scale, SCALES),
        queueing=queueing,
        emulated=None if emulated is None else network(emulated, plan.topology, clock),
        stand_in=_stand_in(running, stand_in),
        rehearsed=kept,
        runs_on=runs_on,
        checkpoint_folder=folder("checkpoint_folder", checkpoint_folder),
        checkpoint_every=whole_number("checkpoint_every", checkpoint_every),
        resume_from=path("resume_from", resume_from),
        evaluate_every=whole_number("evaluate_every", evaluate_every),
        sample_bytes=whole_number("sample_bytes", sample_bytes),
    )
    check_job(spec)
    if reason := why_too_large(spec.trained):
        raise JobError(f"job {spec.trained.name}: {reason}")
    spec = _with_files(spec)
    simulate_iteration(
        running, built, analytic(running, spec.programs(synchronise=True)), spec.links
    )  # or workers would hang
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra("real runs need torch, which is not installed: pip install 'dtfm_lab[train]'")
    return Run(spec)


def what_runs(plan: Plan, workers: int | Sequence[int] | None) -> tuple[Plan, Subplan | None]:
    """The plan, or the part of it that so many workers run, and which that is. Raises what ``subplan_for`` raises, or
    LabError where this machine would have too many."""
    if workers is None:
        return (plan, None) if plan.job.n_tasklets <= MOST_WORKERS else subplan_for(plan, REHEARSAL_WORKERS)
    running, kept = subplan_for(plan, workers)
    if (needed := running.job.n_tasklets) > MOST_WORKERS:
        raise LabError(
            f"workers is {shortened(workers)}: {running.job.n_stages} stages x {running.job.n_replicas} pipelines need "
            f"{needed} on this machine; wanted at most {MOST_WORKERS}"
        )
    return running, kept


def _stand_in(plan: Plan, wanted: str | os.PathLike[str] | ModelSpec | None) -> ModelSpec | None:
    if (isinstance(wanted, str) and wanted == NAME) or (wanted is None and why_not_trained(plan.job)):
        return stand_in_for(plan.job)
    if wanted is None:
        return None
    model = load_model(wanted) if isinstance(wanted, str | os.PathLike) else wanted
    if not isinstance(model, ModelSpec):
        raise LabError(f"stand_in is {shortened(wanted)}; wanted a model by name, a config.json, or a ModelSpec")
    return as_tied(model, plan.job)


def _with_files(spec: RunSpec) -> RunSpec:
    """The same, going on from the newest checkpoint of the folder that it names; refused where a file is not fit."""
    corpus = Corpus.of(spec.text, spec.trained.modelled().seq_len)
    if spec.parameters_folder is not None:
        if not Path(spec.parameters_folder).is_dir():
            raise LabError(f"parameters_folder {spec.parameters_folder}: no such folder")
        folder("parameters_folder", spec.parameters_folder)
    if spec.checkpoint_every and spec.checkpoint_folder is None:
        raise LabError(f"checkpoint_every is {spec.checkpoint_every} without a checkpoint_folder; wanted both")
    if spec.resume_from is not None:
        begin = checkpoint_folders.describe(spec.resume_from)
        trained_with = {"seed": spec.seed, "learning_rate": spec.learning_rate, "corpus": corpus}
        for note in checkpoint_folders.resumable(begin, spec.trained, **trained_with):
            warnings.warn(note, stacklevel=3)
        spec = replace(spec, resume_from=os.fspath(begin.folder), first_iteration=begin.iteration)
    if spec.checkpoint_folder is not None:
        checkpoint_folders.check_free(spec.checkpoint_folder, spec.first_iteration)
    return spec
