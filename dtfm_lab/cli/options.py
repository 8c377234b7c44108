"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from dtfm_lab import files, lab
from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.job import COMPRESSIONS
from dtfm_lab.domain.network import QUEUEING
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import synchronisations
from dtfm_lab.planning import planners
from dtfm_lab.simulation.durations import EFFICIENCY
from dtfm_lab.simulation.schedules import schedules
from dtfm_lab.simulation.sweeps import OF_THE_JOB


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--job and its overrides, handed on as one Job for the TOPOLOGY argument; a --start brings its own job."""

    @click.option("--job", "job_name", help="A job by name or a file. Without it: one that fits the network.")
    @click.option("--stages", "n_stages", type=int, help="Pipeline stages.")
    @click.option("--replicas", "n_replicas", type=int, help="Data-parallel replicas.")
    @click.option("--batch", "global_batch", type=int, help="Sequences per iteration, over all replicas.")
    @click.option("--microbatch", type=int, help="Sequences per pipeline step.")
    @click.option("--model", help="Another model: a preset by name, or a Hugging Face config.json or its folder.")
    @click.option("--seq-len", type=int, help="Tokens per sequence.")
    @click.option("--dtype", help="fp16, bf16, fp32 or fp64.")
    @click.option("--gradient-bytes", type=float, help="One stage's gradient, as the cost counts it.")
    @click.option("--activation-bytes", type=float, help="A replica's mini-batch over one boundary.")
    @wraps(command)
    def with_job(topology: str, job_name: str | None, **values: Any) -> Any:
        names = ("n_stages", "n_replicas", "global_batch", "microbatch", "model", "seq_len", "dtype")
        names += ("gradient_bytes", "activation_bytes")
        overrides = {name: value for name in names if (value := values.pop(name)) is not None}
        network = lab.load_topology(topology)
        begin = values.get("start")
        job = lab.default_job(network) if begin is None else begin.job
        if job_name is not None:
            job = lab.load_job(job_name)
        return command(network, files.override(job, **overrides), **values)

    return with_job


def file_option(*names: str, say: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A file to write, refused at once where it cannot be: nobody should search or train for nothing."""

    def writable(_context: click.Context, _option: click.Parameter, path: str | None) -> str | None:
        if path == "":
            raise FileError("the name of a file to write is empty; wanted a path")
        if path is not None and not os.access(folder := Path(path).parent, os.W_OK):
            raise FileError(f"{path}: cannot be written: {folder} is no folder to write to")
        return path

    return click.option(*names, type=click.Path(dir_okay=False), callback=writable, help=say)


output_option = file_option("-o", "--output", say="Write it to this file.")
schedule_option = click.option(
    "--schedule", help=f"One of {', '.join(schedules)}, or a .txt or .csv file; the job's own by default."
)


def simulation_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """PLAN, its job's fields overridden, handed on as a Plan; and how it is simulated, as keywords of ``simulate``."""

    @click.argument("plan_file", metavar="PLAN")
    @schedule_option
    @click.option("--like", type=click.Path(), help="A measured trace: predict what it ran, from its profile.")
    @click.option("--queueing", help=f"Which messages wait for each other: one of {', '.join(QUEUEING)}.")
    @click.option("--efficiency", type=float, help=f"Share of its peak that a device reaches; {EFFICIENCY} by default.")
    @click.option("--microbatch", type=int, help="Sequences per pipeline step.")
    @click.option("--batch", "global_batch", type=int, help="Sequences per iteration, over all replicas.")
    @click.option("--dtype", help="fp16, bf16, fp32 or fp64.")
    @click.option("--compression", help=f"Of all messages: {', '.join(COMPRESSIONS)}.")
    @click.option("--gradient-compression", help="Of synchronisation alone: the same.")
    @click.option("--codec-bytes-per-s", type=float, help="That a device rounds, or restores, in a second.")
    @click.option("--synchronisation", help=f"One of {', '.join(sorted(synchronisations))}.")
    @click.option("--synchronise-every", type=int, help="Iterations; between two, replicas step alone.")
    @click.option("--recompute/--no-recompute", default=None, help="Keep a stage's input only, forward it again.")
    @click.option("--stages-per-device", type=int, help="Where the schedule interleaves.")
    @wraps(command)
    def with_plan(
        plan_file: str,
        schedule: str | None,
        like: str | None,
        queueing: str | None,
        efficiency: float | None,
        **rest: Any,
    ) -> Any:
        overrides = {name: value for name in OF_THE_JOB if (value := rest.pop(name)) is not None}
        if like is not None and (named := [*overrides, *(["efficiency"] if efficiency is not None else [])]):
            raise click.UsageError(f"--like predicts what ran, from its profile; wanted it without {', '.join(named)}")
        plan = files.load_plan(plan_file)
        how = {"queueing": queueing, "efficiency": efficiency, "like": None if like is None else files.load_trace(like)}
        how = {name: value for name, value in how.items() if value is not None}
        return command(lab.with_job(plan, **overrides) if overrides else plan, schedule, how, **rest)

    return with_plan


def start_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--start, handed on as a Plan."""

    def loaded(_context: click.Context, _option: click.Parameter, path: str | None) -> Plan | None:
        return None if path is None else files.load_plan(path)

    say = "A plan file to improve on, its devices found by name; without --job, for its job."
    return click.option("--start", type=click.Path(), callback=loaded, help=say)(command)


def search_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--planner, --seed, --steps and --seconds of a search."""
    for option in (
        click.option("--seed", type=int, default=0, show_default=True),
        click.option("--steps", type=int, help="Search so many generations: reproducible."),
        click.option("--seconds", type=float, help="Search for so long."),
        click.option("--planner", default="evolutionary", show_default=True, help=f"One of {', '.join(planners)}."),
    ):
        command = option(command)
    return command
