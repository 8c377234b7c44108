"""dtfm-lab: the story from the shell. ``--json`` prints one JSON object on standard output.

Exit status 0: done. 1: the run failed. 2: the input is wrong, one line on standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import click
from pandas import DataFrame
from rich.console import Console
from rich.live import Live
from rich.table import Table

from dtfm_lab import files, lab, planning
from dtfm_lab.compare import Comparison
from dtfm_lab.doctor import doctor_report
from dtfm_lab.domain.errors import FileError, LabError, RunError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.topology import Topology
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import format_s
from dtfm_lab.runtime.launch import RUN_CLOCKS
from dtfm_lab.simulation import schedules

LINKS_SHOWN = 12
"""in a terminal; --json has all of them"""

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


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
        return _print_json({"topologies": rows})
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
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write the plan here.")
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
    _deliver_plan(best.plan, output, as_json)


@cli.command()
@click.argument("topology")
@job_options
@click.option(
    "--placement",
    required=True,
    type=click.Path(),
    help='JSON: {"stages": [[names or indices], ...]}, {"rank_map": [...]} or {"groups": ...}; a plan file serves too.',
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write the plan here.")
@json_option
def evaluate(topology: Topology, job: Job, placement: str, output: str | None, as_json: bool) -> None:
    """Price a placement of your own on TOPOLOGY."""
    data = files.read_mapping(Path(placement))
    data = data.get("summary", data)
    keys = [key for key in ("stages", "rank_map", "groups") if key in data]
    if not keys:
        raise FileError(f"{placement}: no placement; wanted one of the keys stages, rank_map, groups")
    _deliver_plan(lab.evaluate(topology, job, **{keys[0]: data[keys[0]]}), output, as_json)


@cli.command()
@click.argument("what")
@json_option
def show(what: str, as_json: bool) -> None:
    """Show WHAT: a plan file, a trace file, or a topology by name or file."""
    path = Path(what)
    data = files.read_mapping(path) if path.suffix == ".json" else {}
    if "dtfm_plan" in data:
        _deliver_plan(files.load_plan(path), None, as_json)
    elif "dtfm_trace" in data:
        _deliver_trace(files.load_trace(path), None, as_json)
    else:
        _show_topology(lab.load_topology(what), as_json)


@cli.command()
@click.argument("plan_file", metavar="PLAN")
@click.option("--schedule", help=f"One of {', '.join(schedules)}; the job's own by default.")
@click.option("--like", type=click.Path(), help="A measured trace: predict what it ran, from its profile.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write the trace here.")
@json_option
def simulate(plan_file: str, schedule: str | None, like: str | None, output: str | None, as_json: bool) -> None:
    """Predict one iteration of PLAN."""
    measured = None if like is None else files.load_trace(like)
    _deliver_trace(lab.simulate(files.load_plan(plan_file), schedule, like=measured), output, as_json)


@cli.command()
@click.argument("plan_file", metavar="PLAN")
@click.option("--schedule", help=f"One of {', '.join(schedules)}; the job's own by default.")
@click.option("--clock", default="virtual", show_default=True, help=f"One of {', '.join(RUN_CLOCKS)}.")
@click.option("--iterations", type=int, default=5, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--text", type=click.Path(), help="Train on the bytes of this file.")
@click.option("--time-scale", type=float, help="Paced clock: wall seconds per second; chosen by itself otherwise.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write the trace here.")
@json_option
def run(plan_file: str, output: str | None, as_json: bool, **options: Any) -> None:
    """Train under PLAN for real: one torch worker per stage and replica, links as slow as drawn."""

    def progress(event: dict[str, Any]) -> None:
        match event["event"]:
            case "starting":
                err.print(f"starting {event['workers']} workers")
            case "profile":
                err.print(f"profile taken; {event['time_scale']:.3g} wall seconds per second")
            case "iteration":
                err.print(f"iteration {event['iteration']}: loss {event['loss']:.4f}")

    _deliver_trace(lab.run(files.load_plan(plan_file), progress=progress, **options), output, as_json)


@cli.command()
@click.argument("predicted", type=click.Path())
@click.argument("measured", type=click.Path())
@json_option
def compare(predicted: str, measured: str, as_json: bool) -> None:
    """Lay a PREDICTED trace beside a MEASURED one."""
    comparison = lab.compare(files.load_trace(predicted), files.load_trace(measured))
    if as_json:
        return _print_json(comparison.summary())
    context = comparison.measured.context
    out.print(
        f"predicted {format_s(comparison.predicted.iteration_s)}, measured {format_s(comparison.measured.iteration_s)} "
        f"({context.clock} clock, {context.schedule}): error {comparison.iteration_error:+.2%}; "
        f"{context.late_messages} late messages, {context.overruns} overruns"
    )
    for title, frame in (
        ("iteration", comparison.iterations),
        ("kind", comparison.kinds),
        ("stage", comparison.stages),
        (f"link (at most {LINKS_SHOWN}, the worst arrivals first)", _worst_links(comparison)),
    ):
        headings = (str(column).removesuffix("_s").replace("_", " ") for column in frame.columns)
        table = Table(title, *headings, box=None)
        for name, row in zip(frame.index, frame.itertuples(index=False), strict=True):
            cells = zip(frame.columns, row, strict=True)
            table.add_row(str(name), *(_cell(str(column), value) for column, value in cells))
        out.print(table)


@cli.command()
@json_option
def doctor(as_json: bool) -> None:
    """Say what this machine can do, and what is missing for the rest."""
    report = doctor_report()
    if as_json:
        return _print_json(report)
    for key, value in report.items():
        out.print(f"{key:>12}  {value}", markup=False)


@cli.command("lab")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def open_lab(arguments: tuple[str, ...]) -> None:
    """Open JupyterLab on the start notebook; ARGUMENTS go to JupyterLab (after a --)."""
    import importlib.util
    import os

    if importlib.util.find_spec("jupyterlab") is None:
        raise LabError("the lab needs jupyterlab, which is not installed: pip install 'dtfm_lab[lab]'")
    checkout = Path(__file__).parent.parent
    start = Path("notebooks") / "00_start.ipynb"
    where = []
    if (checkout / start).exists():
        where = [f"--ServerApp.root_dir={checkout}", f"--LabApp.default_url=/lab/tree/{start.as_posix()}"]
    # JupyterLab refuses to run as root unless told; in a container there is nobody else
    as_root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", *where, *as_root, *arguments])


def main() -> NoReturn:
    """Entry point: every mistake of a user is one line."""
    try:
        cli.main(standalone_mode=False)
        status = 0
    except click.exceptions.Exit as stop:
        status = stop.exit_code
    except click.exceptions.NoArgsIsHelpError as wanted:
        click.echo(wanted.ctx.get_help())
        status = 0
    except click.ClickException as error:
        status = _complain(error.format_message(), 2)
    except RunError as error:
        status = _complain(str(error), 1)
    except LabError as error:
        status = _complain(str(error), 2)
    except (click.Abort, KeyboardInterrupt):
        status = _complain("stopped", 130)
    except BrokenPipeError:
        sys.stderr.close()
        status = 0
    sys.exit(status)


def _complain(message: str, status: int) -> int:
    click.echo(f"dtfm-lab: {' '.join(message.split())}", err=True)
    return status


def _print_json(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value))


def _worst_links(comparison: Comparison) -> DataFrame:
    links = comparison.links
    order = links["arrival_error_s"].abs().sort_values(ascending=False, kind="stable").index
    return links.loc[order[:LINKS_SHOWN]]


def _deliver_plan(plan: Plan, output: str | None, as_json: bool) -> None:
    if output is not None:
        files.save_plan(plan, output)
    if as_json:
        return _print_json(plan.summary())
    cost = plan.cost
    out.print(
        f"{plan.job.name} on {plan.topology.name}, {plan.job.n_stages} stages x {plan.job.n_replicas} replicas: "
        f"[bold]{format_s(cost.total_s)}[/bold] (data parallel {format_s(cost.data_parallel_s)} + pipeline "
        f"{format_s(cost.pipeline_s)}), bound {format_s(plan.lower_bound_s)}, gap {plan.gap:.1%}, by {plan.planner}"
    )
    table = Table("stage", "devices", "synchronisation", "hop to the next", box=None)
    hops = [*(format_s(float(h)) for h in cost.hop_s), ""]
    for s, (names, hop) in enumerate(zip(plan.stages, hops, strict=True)):
        table.add_row(str(s), " ".join(names), format_s(float(cost.group_s[s])), hop)
    out.print(table)
    if plan.idle_devices:
        out.print("idle: " + " ".join(plan.topology.names[i] for i in plan.idle_devices))


def _deliver_trace(trace: Trace, output: str | None, as_json: bool) -> None:
    if output is not None:
        files.save_trace(trace, output)
    context = trace.context
    summary = {
        "source": context.source,
        "clock": context.clock,
        "schedule": context.schedule,
        "links": context.links,
        "iterations": trace.n_iterations,
        "iteration_s": trace.iteration_s,
        "iteration_ends_s": trace.iteration_ends_s.tolist(),
        "compute_share": trace.compute_share,
        "rows": len(trace),
        "losses": list(context.losses),
        "late_messages": context.late_messages,
        "overruns": context.overruns,
        "time_scale": context.time_scale,
    }
    if as_json:
        return _print_json(summary)
    out.print(
        f"{context.source} {context.schedule}, {context.clock} clock, links {context.links}: iteration "
        f"[bold]{format_s(trace.iteration_s)}[/bold], devices compute {trace.compute_share:.1%} of the time, "
        f"{len(trace)} rows"
    )
    if context.source == "measured":
        out.print(
            f"{trace.n_iterations} iterations, loss {context.losses[0]:.4f} -> {context.losses[-1]:.4f}, "
            f"{context.late_messages} late messages, {context.overruns} overruns"
        )


def _show_topology(topology: Topology, as_json: bool) -> None:
    if as_json:
        return _print_json(files.topology_to_mapping(topology))
    out.print(f"{topology.name}: {len(topology)} devices. {topology.description}")
    links = topology.to_frame()
    region = {d.name: d.region or d.name for d in topology.devices}
    links["from"], links["to"] = links["source"].map(region), links["target"].map(region)
    table = Table("from", "to", "links", "latency ms", "bandwidth Gbit/s", box=None)
    for (a, b), group in links.groupby(["from", "to"], sort=False):
        spans = (_span(group["latency_ms"]), _span(group["bandwidth_gbps"]))
        table.add_row(str(a), str(b), str(len(group)), *spans)
    out.print(table)


def _span(values: Any) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _cell(column: str, value: Any) -> str:
    if value != value:
        return "-"
    if column == "relative_error":
        return f"{value:+.2%}"
    return format_s(float(value)) if column.endswith("_s") else f"{value:g}"
