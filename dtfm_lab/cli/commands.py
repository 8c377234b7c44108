"""The commands of dtfm-lab: each reads files, calls ``lab``, and delivers what comes back."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from rich.live import Live
from rich.table import Table

from dtfm_lab import files, lab, planning
from dtfm_lab.cli.doctor import doctor_report
from dtfm_lab.cli.tell import deliver_comparison, deliver_plan, deliver_topology, deliver_trace, err, out, print_json
from dtfm_lab.domain.errors import FileError, MissingExtra
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.topology import Topology
from dtfm_lab.domain.units import format_s
from dtfm_lab.runtime.launch import RUN_CLOCKS
from dtfm_lab.simulation import schedules


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--job and its overrides, handed on as one Job for the TOPOLOGY argument."""

    @click.option("--job", "job_name", help="A job by name or a YAML file. Without it: one that fits the network.")
    @click.option("--stages", "n_stages", type=int, help="Pipeline stages.")
    @click.option("--replicas", "n_replicas", type=int, help="Data-parallel replicas.")
    @click.option("--batch", "global_batch", type=int, help="Sequences per iteration, over all replicas.")
    @click.option("--microbatch", type=int, help="Sequences per pipeline step.")
    @click.option("--dtype", help="fp16, bf16, fp32 or fp64.")
    @click.option("--gradient-bytes", type=float, help="One stage's gradient, as the cost counts it.")
    @click.option("--activation-bytes", type=float, help="A replica's mini-batch over one boundary.")
    @wraps(command)
    def with_job(topology: str, job_name: str | None, **values: Any) -> Any:
        names = ("n_stages", "n_replicas", "global_batch", "microbatch", "dtype", "gradient_bytes", "activation_bytes")
        overrides = {name: value for name in names if (value := values.pop(name)) is not None}
        network = lab.load_topology(topology)
        job = lab.default_job(network) if job_name is None else lab.load_job(job_name)
        return command(network, files.override(job, **overrides), **values)

    return with_job


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """-o, refused at once where it cannot be written: nobody should search or train for nothing."""

    def writable(_context: click.Context, _option: click.Parameter, path: str | None) -> str | None:
        if path is not None and not os.access(folder := Path(path).parent, os.W_OK):
            raise FileError(f"{path}: cannot be written: {folder} is no folder to write to")
        return path

    kind = click.Path(dir_okay=False)
    return click.option("-o", "--output", type=kind, callback=writable, help="Write it to this file.")(command)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="dtfm_lab", prog_name="dtfm-lab")
def cli() -> None:
    """Plan, predict, run and compare decentralised training of foundation models."""


@cli.command()
@json_option
def topologies(as_json: bool) -> None:
    """List the networks that come with the lab."""
    networks = [lab.load_topology(name) for name in files.topology_names()]
    if as_json:
        rows = [{"name": t.name, "devices": len(t), "regions": list(t.regions)} for t in networks]
        return print_json({"topologies": rows})
    table = Table("name", "devices", "regions", "what it is", box=None)
    for t in networks:
        table.add_row(t.name, str(len(t)), str(len(t.regions)), t.description)
    out.print(table)


@cli.command()
@click.argument("topology")
@job_options
@click.option("--planner", default="evolutionary", show_default=True, help="A planner by name.")
@click.option("--seconds", type=float, help="Search for so long (2 s without --steps).")
@click.option("--steps", type=int, help="Search so many generations: reproducible.")
@click.option("--seed", type=int, default=0, show_default=True)
@output_option
@json_option
def plan(topology: Topology, job: Job, output: str | None, as_json: bool, **limits: Any) -> None:
    """Place a job on TOPOLOGY (a name or a YAML file)."""
    best: planning.PlanStep | None = None
    try:
        with Live(console=err, refresh_per_second=8, transient=True) as live:
            for best in lab.search(topology, job, **limits):
                live.update(
                    f"generation {best.generation}: {format_s(best.best_s)}, "
                    f"bound {format_s(best.bound_s)}, gap {best.gap:.1%}"
                )
    except KeyboardInterrupt:
        if best is None:
            raise
        err.print("stopped; the best so far is kept")
    assert best is not None, "a search yields at least one step"
    deliver_plan(best.plan, output, as_json)


@cli.command()
@click.argument("topology")
@job_options
@click.option(
    "--placement",
    required=True,
    type=click.Path(),
    help='JSON: {"stages": [[names or indices], ...]}, {"rank_map": [...]} or {"groups": ...}; a plan file serves too.',
)
@output_option
@json_option
def evaluate(topology: Topology, job: Job, placement: str, output: str | None, as_json: bool) -> None:
    """Price a placement of your own on TOPOLOGY."""
    data = files.read_mapping(Path(placement))
    data = data["summary"] if isinstance(data.get("summary"), dict) else data
    keys = [key for key in ("stages", "rank_map", "groups") if key in data]
    if not keys:
        raise FileError(f"{placement}: no placement; wanted one of the keys stages, rank_map, groups")
    deliver_plan(lab.evaluate(topology, job, **{keys[0]: data[keys[0]]}), output, as_json)


@cli.command()
@click.argument("what")
@json_option
def show(what: str, as_json: bool) -> None:
    """Show WHAT: a plan file, a trace file, or a topology by name or file."""
    path = Path(what)
    data = files.read_mapping(path) if path.is_file() and what not in files.topology_names() else {}
    if "dtfm_plan" in data:
        deliver_plan(files.load_plan(path), None, as_json)
    elif "dtfm_trace" in data:
        deliver_trace(files.load_trace(path), None, as_json)
    else:
        deliver_topology(lab.load_topology(what), as_json)


@cli.command()
@click.argument("plan_file", metavar="PLAN")
@click.option("--schedule", help=f"One of {', '.join(schedules)}; the job's own by default.")
@click.option("--like", type=click.Path(), help="A measured trace: predict what it ran, from its profile.")
@output_option
@json_option
def simulate(plan_file: str, schedule: str | None, like: str | None, output: str | None, as_json: bool) -> None:
    """Predict one iteration of PLAN."""
    measured = None if like is None else files.load_trace(like)
    deliver_trace(lab.simulate(files.load_plan(plan_file), schedule, like=measured), output, as_json)


@cli.command()
@click.argument("plan_file", metavar="PLAN")
@click.option("--schedule", help=f"One of {', '.join(schedules)}; the job's own by default.")
@click.option("--clock", default="virtual", show_default=True, help=f"One of {', '.join(RUN_CLOCKS)}.")
@click.option("--iterations", type=int, default=5, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--text", type=click.Path(), help="Train on the bytes of this file.")
@click.option("--time-scale", type=float, help="Paced clock: wall seconds per second; chosen by itself otherwise.")
@output_option
@json_option
def run(plan_file: str, output: str | None, as_json: bool, **options: Any) -> None:
    """Train under PLAN for real: one torch worker per stage and replica, links as slow as drawn."""

    def progress(event: dict[str, Any]) -> None:
        match event["event"]:
            case "starting":
                err.print(f"starting {event['workers']} workers")
            case "profile":
                err.print(f"profile taken; {event['time_scale']:.3g} wall seconds per second")
                if event["stretched"]:
                    err.print(
                        f"{event['stretched']} computation times stretched: the drawn devices outrun this machine"
                    )
            case "iteration":
                err.print(f"iteration {event['iteration']}: loss {event['loss']:.4f}")

    deliver_trace(lab.run(files.load_plan(plan_file), progress=progress, **options), output, as_json)


@cli.command()
@click.argument("predicted", type=click.Path())
@click.argument("measured", type=click.Path())
@json_option
def compare(predicted: str, measured: str, as_json: bool) -> None:
    """Lay a PREDICTED trace beside a MEASURED one."""
    deliver_comparison(lab.compare(files.load_trace(predicted), files.load_trace(measured)), as_json)


@cli.command()
@json_option
def doctor(as_json: bool) -> None:
    """Say what this machine can do, and what is missing for the rest."""
    report = doctor_report()
    if as_json:
        return print_json(report)
    for key, value in report.items():
        out.print(f"{key:>12}  {value}")


@cli.command("lab")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def open_lab(arguments: tuple[str, ...]) -> None:
    """Open JupyterLab on the start notebook; ARGUMENTS go to JupyterLab (after a --)."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise MissingExtra("the lab needs jupyterlab, which is not installed: pip install 'dtfm_lab[lab]'")
    checkout = Path(__file__).parents[2]
    start = Path("notebooks") / "00_start.ipynb"
    where = []
    if (checkout / start).exists():
        where = [f"--ServerApp.root_dir={checkout}", f"--LabApp.default_url=/lab/tree/{start.as_posix()}"]
    # JupyterLab refuses to run as root unless told; in a container there is nobody else
    as_root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", *where, *as_root, *arguments])
