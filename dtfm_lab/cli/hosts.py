"""Commands for several hosts: measure the network between them, and export a plan that they run."""

import os
import socket
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from dtfm_lab import files, lab
from dtfm_lab.cli.options import (
    cli,
    command_line_options,
    file_option,
    gathered,
    json_option,
    plan_argument,
    schedule_option,
    told,
)
from dtfm_lab.cli.plan_reports import report_topology
from dtfm_lab.cli.terminal import err, out, print_json
from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import counted, format_bytes, format_range, format_s
from dtfm_lab.files.reading import read_text
from dtfm_lab.lab.arguments import as_schedule
from dtfm_lab.runtime.client.run_report import describe_reductions
from dtfm_lab.runtime.multihost.export import PORT, host_command, spec_for
from dtfm_lab.runtime.multihost.export import export as write_run_folder
from dtfm_lab.runtime.multihost.hosts import AWAIT_S, SILENT_S, hosts_of, load_hosts
from dtfm_lab.runtime.multihost.launchers import TARGETS, Launched, launched, write_launch
from dtfm_lab.runtime.probe import ProbeListener, address_for_others, host_and_port, join
from dtfm_lab.runtime.protocol.certificates import require_private
from dtfm_lab.runtime.protocol.run_options import RunSettings

PAGE = ".html"
EXPORTED = told(command_line_options(RunSettings), iterations="Iterations to train.")
"""Options of a run that an exported run folder holds."""
STEPS = 4
"""Generations of the search behind what a probe predicts."""
TO_OPTIONS = ("targets", "hosts_path", "per_host", "port", "force")
"""Options that a folder for another framework takes, too."""


@cli.command()
@plan_argument
@click.option(
    "-o", "--output", "folder", required=True, type=click.Path(), help="The run folder to write, or a page.html."
)
@schedule_option
@click.option(
    "--to",
    "targets",
    multiple=True,
    type=click.Choice(TARGETS),
    help="Write a folder for a framework of one's own, and any schedulers that start it.",
)
@gathered(EXPORTED, into="options", iterations=5, clock="real")
@click.option("--hosts", "hosts_path", type=click.Path(), help="YAML: which host runs which devices, at which address.")
@click.option("--per-host", type=int, help="Without --hosts: so many devices a host; 1 by default.")
@click.option("--port", default=PORT, show_default=True, help="Of the first host, where the others connect.")
@click.option("--await", "await_s", default=AWAIT_S, show_default=True, help="Seconds for a lost host to come back.")
@click.option(
    "--silent", "silent_s", default=SILENT_S, show_default=True, help="Seconds after which a silent link is lost."
)
@click.option("--force", is_flag=True, help="Overwrite an earlier run folder.")
@json_option
@click.pass_context
def export(
    context: click.Context,
    /,
    plan_file: str,
    folder: str,
    schedule: str | None,
    targets: tuple[str, ...],
    hosts_path: str | None,
    per_host: int | None,
    force: bool,
    as_json: bool,
    options: dict[str, Any],
    **waiting: Any,
) -> None:
    """Write what hosts need to run PLAN, or a page to look at it.

    For hosts that is a folder with a line that starts each of them. Where the output ends in .html it is one file for
    any browser, with map, Gantt chart and player, which needs neither Python nor a network. With --to it is a folder
    that runs the plan in another framework; what that cannot express is said, with its price.
    """
    if folder.lower().endswith(PAGE):
        return _export_page(context, plan_file, folder, schedule, as_json)
    if hosts_path is not None and per_host is not None:
        raise click.UsageError("--hosts says which host runs what; wanted it without --per-host")
    if targets:
        _require_alone(context, "is of a run folder; wanted --to without it", *TO_OPTIONS)
        plan = _under(files.load_plan(plan_file), schedule)
        how = {"hosts_path": hosts_path, "per_host": per_host, "port": waiting["port"]}
        return _export_to(launched(plan, targets, **how), targets, folder, force, as_json)
    spec = spec_for(files.load_plan(plan_file), as_schedule(schedule), **options)
    hosts = hosts_of(spec, 1 if per_host is None else per_host) if hosts_path is None else load_hosts(hosts_path, spec)
    if not force and (Path(folder) / "run.json").is_file():
        raise FileError(f"{folder}: an earlier run folder is there; wanted a new folder, or --force")
    written = write_run_folder(spec, folder, hosts, overwrite=force, **waiting)
    lines = {host.name: host_command(host, str(written)) for host in hosts}
    if as_json:
        return print_json({"folder": str(written), "hosts": [host.name for host in hosts], "commands": lines})
    if reductions := describe_reductions(spec):
        out.print(reductions)
    out.print(
        f"{written}: {counted(len(spec.workers), 'worker')} on {counted(len(hosts), 'host')}; what to do is in "
        f"{written / 'README.md'}"
    )
    for name, line in lines.items():
        out.print(f"{name}: {line}")


def _export_to(of: Launched, targets: tuple[str, ...], folder: str, force: bool, as_json: bool) -> None:
    """Write the folder of a plan in another framework, and say how to start it and what is not as planned."""
    path = write_launch(of, targets, folder, overwrite=force)
    written = sorted(one.name for one in path.iterdir())
    lines = {host.name: f"bash launch.sh {host.name}" for host in of.hosts}
    if as_json:
        told = {"folder": str(path), "files": written, "lost": of.told.lost, "lacks": of.lacks, "commands": lines}
        return print_json(told)
    for lost in of.told.lost:
        out.print(f"not as planned: {lost}")
    if of.lacks:
        out.print(f"out of memory: {of.lacks}")
    out.print(f"{path}: {', '.join(written)}; {of.told.order}")
    for name, line in lines.items():
        out.print(f"{name}: {line}")


def _export_page(context: click.Context, plan_file: str, path: str, schedule: str | None, as_json: bool) -> None:
    """Write PLAN as a page, under its own schedule or another. Raises UsageError for options of a run folder."""
    _require_alone(context, f"is of a run folder; wanted {path} without it")
    written = files.save(_under(files.load_plan(plan_file), schedule), path)
    n_bytes = written.stat().st_size
    if as_json:
        return print_json({"page": str(written), "bytes": n_bytes})
    out.print(f"{written}: {format_bytes(n_bytes)}, one file for any browser")


def _under(plan: Plan, schedule: str | None) -> Plan:
    return plan if schedule is None else lab.with_job(plan, schedule=schedule)


def _require_alone(context: click.Context, complaint: str, *others: str) -> None:
    """Raises UsageError for an option that was given and is of another kind of output."""
    given = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if wrong := sorted(given - {"plan_file", "folder", "schedule", "as_json", *others}):
        option = next(each for each in context.command.params if each.name == wrong[0])
        raise click.UsageError(f"{option.opts[0]} {complaint}")


@cli.command("doctor --probe")
@click.option(
    "--listen",
    metavar="[ADDRESS:]PORT",
    help="Wait here for hosts; this machine alone without an address, 0.0.0.0 for any.",
)
@click.option("--hosts", "n_hosts", type=int, help="How many to wait for.")
@click.option("--join", "joined", metavar="HOST:PORT", help="Be a host of the probe that listens there.")
@click.option("--name", help="Of this host, or of the network that is made; this machine's name by default.")
@click.option("--region", default="", help="Of this host.")
@click.option("--token-file", type=click.Path(), help="Read the token from here, instead of DTFM_PROBE_TOKEN.")
@click.option("--advertise", metavar="HOST:PORT", help="Where others reach this host's data port, if not directly.")
@click.option("--data-port", type=int, default=0, help="Others time messages to here; any free one by default.")
@click.option("--seconds", type=float, default=6.0, show_default=True, help="About as many for each pair.")
@click.option("--wait", "wait_s", type=float, default=60.0, show_default=True, help="Seconds, for the others to come.")
@file_option("-o", "--output", help="Write the network to this file.")
@json_option
def probe(
    listen: str | None,
    n_hosts: int | None,
    joined: str | None,
    name: str | None,
    token_file: str | None,
    output: str | None,
    as_json: bool,
    seconds: float,
    advertise: str | None,
    **as_host: Any,
) -> None:
    """Measure latency and bandwidth between your own hosts.

    One of --listen and --join. Every host runs dtfm-lab doctor --probe --join HOST:PORT and is told the token
    by DTFM_PROBE_TOKEN, --token-file or a prompt; one machine (it may be one of them) runs dtfm-lab doctor --probe
    --listen ADDRESS:PORT --hosts N -o network.yaml. Each host times a block of a GPT, too, and what a job would come
    to is predicted.
    """
    if (listen is None) == (joined is None):
        raise click.UsageError("wanted one of --listen and --join")
    address, port = host_and_port(joined or listen or "0", default_host=None if joined else "127.0.0.1")
    token = _token(token_file)
    if joined is not None:
        if not token and sys.stdin.isatty():
            token = click.prompt("token", hide_input=True, err=True)
        if not token:
            raise click.UsageError("--join wants the token that the listener printed, in DTFM_PROBE_TOKEN")
        reached_at = None if advertise is None else host_and_port(advertise)
        as_host |= {"name": name or socket.gethostname(), "advertise": reached_at}
        return join(address, port, token=token, report=_print_now, **as_host)
    if n_hosts is None:
        raise click.UsageError("--listen wants --hosts, the number to wait for")
    with ProbeListener(address, port, token) as listener:
        given = "" if token else f"DTFM_PROBE_TOKEN={listener.token} "
        known = address_for_others(address)
        where = f"[{known}]:{listener.port}" if ":" in known else f"{known}:{listener.port}"
        _print_now(
            f"waiting for {counted(n_hosts, 'host')}; on each: {given}dtfm-lab doctor --probe --join {where} --name "
            "NAME"
        )
        found_as = name or "probed"
        network = listener.probe(n_hosts, wait_s=as_host["wait_s"], seconds=seconds, name=found_as, report=_print_now)
    if output is not None:
        files.save_topology(network, output)
    _print_now(_prediction(network))
    return report_topology(network, as_json)


def _prediction(network: Topology) -> str:
    """What a job of the network's size would come to on it, in a line to be proved wrong by a run."""
    try:
        plan = lab.plan(network, steps=STEPS)
    except LabError as error:
        return f"no plan for it: {error}"
    trace, job = lab.simulate(plan), plan.job
    return (
        f"{job.name} on it, {job.n_stages} x {job.n_replicas}: {format_s(trace.iteration_s)} an iteration, "
        f"{format_range(*trace.interval())} with 90 % confidence"
    )


def _token(file: str | None) -> str | None:
    """The token of a probe, from a file or DTFM_PROBE_TOKEN. Raises FileError."""
    if file is None:
        return os.environ.get("DTFM_PROBE_TOKEN")
    require_private(Path(file))
    if not (token := read_text(Path(file)).strip()):
        raise FileError(f"{file}: is empty; wanted the token that the listener printed")
    return token


def _print_now(line: str) -> None:
    err.print(line)
    sys.stderr.flush()
