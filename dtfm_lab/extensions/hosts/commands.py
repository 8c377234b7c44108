"""The command for several hosts: export a plan that they run."""

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from dtfm_lab import files, lab
from dtfm_lab.cli.options import (
    command_line_options,
    gathered,
    json_option,
    plan_argument,
    schedule_option,
    with_help,
)
from dtfm_lab.cli.terminal import out, print_json
from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import counted, format_bytes
from dtfm_lab.extensions.hosts.export import PORT, host_command, spec_for
from dtfm_lab.extensions.hosts.export import export as write_run_folder
from dtfm_lab.extensions.hosts.hosts import AWAIT_S, SILENT_S, hosts_of, load_hosts
from dtfm_lab.extensions.hosts.launchers import TARGETS, Launched, launched, write_launch
from dtfm_lab.lab.arguments import as_schedule
from dtfm_lab.runtime.client.run_report import describe_reductions
from dtfm_lab.runtime.protocol.run_options import RunSettings

PAGE = ".html"
EXPORTED = with_help(command_line_options(RunSettings), iterations="Iterations to train.")
"""Run options that an exported run folder stores."""
TO_OPTIONS = ("targets", "hosts_path", "per_host", "port", "force")
"""Options that also apply with ``--to``, which writes a folder for another framework."""


@click.command()
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
    help="Write a folder for another training framework, and for schedulers that start it.",
)
@gathered(EXPORTED, into="options", iterations=5, clock="real")
@click.option("--hosts", "hosts_path", type=click.Path(), help="YAML: which host runs which devices, at which address.")
@click.option("--per-host", type=int, help="Devices per host, without --hosts. Default: 1.")
@click.option("--port", default=PORT, show_default=True, help="Port of the first host, to which the others connect.")
@click.option("--await", "await_s", default=AWAIT_S, show_default=True, help="Seconds for a lost host to return.")
@click.option(
    "--silent", "silent_s", default=SILENT_S, show_default=True, help="Seconds until a silent connection is lost."
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

    By default this is a run folder, with one command line per host. If the output ends in .html, it is a page for any
    browser, with map, Gantt chart and player. It needs neither Python nor a network. With --to it is a folder that runs
    the plan in another framework. The command then lists what that framework cannot express, and what this costs in
    seconds per iteration.
    """
    if folder.lower().endswith(PAGE):
        return _export_page(context, plan_file, folder, schedule, as_json)
    if hosts_path is not None and per_host is not None:
        raise click.UsageError("--hosts says which host runs what; wanted it without --per-host")
    if targets:
        _require_alone(context, "is only for run folders; wanted --to without it", *TO_OPTIONS)
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
        f"{written}: {counted(len(spec.workers), 'worker')} on {counted(len(hosts), 'host')}; instructions are in "
        f"{written / 'README.md'}"
    )
    for name, line in lines.items():
        out.print(f"{name}: {line}")


def _export_to(of: Launched, targets: tuple[str, ...], folder: str, force: bool, as_json: bool) -> None:
    """Write the folder of a plan for another framework. Report how to start it and what differs from the plan."""
    path = write_launch(of, targets, folder, overwrite=force)
    written = sorted(one.name for one in path.iterdir())
    lines = {host.name: f"bash launch.sh {host.name}" for host in of.hosts}
    if as_json:
        answer = {
            "folder": str(path),
            "files": written,
            "lost": of.framework_launch.lost,
            "lacks": of.lacks,
            "commands": lines,
        }
        return print_json(answer)
    for lost in of.framework_launch.lost:
        out.print(f"not as planned: {lost}")
    if of.lacks:
        out.print(f"out of memory: {of.lacks}")
    out.print(f"{path}: {', '.join(written)}; {of.framework_launch.order}")
    for name, line in lines.items():
        out.print(f"{name}: {line}")


def _export_page(context: click.Context, plan_file: str, path: str, schedule: str | None, as_json: bool) -> None:
    """Write PLAN as an HTML page, under ``schedule`` or by default under its own. Raises UsageError for options of a
    run folder."""
    _require_alone(context, f"is only for run folders; wanted {path} without it")
    written = files.save(_under(files.load_plan(plan_file), schedule), path)
    n_bytes = written.stat().st_size
    if as_json:
        return print_json({"page": str(written), "bytes": n_bytes})
    out.print(f"{written}: {format_bytes(n_bytes)}, one file for any browser")


def _under(plan: Plan, schedule: str | None) -> Plan:
    return plan if schedule is None else lab.with_job(plan, schedule=schedule)


def _require_alone(context: click.Context, complaint: str, *others: str) -> None:
    """Raise UsageError if an option was given that does not apply to this kind of output. ``others`` are further
    options that do apply."""
    given = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    if wrong := sorted(given - {"plan_file", "folder", "schedule", "as_json", *others}):
        option = next(each for each in context.command.params if each.name == wrong[0])
        raise click.UsageError(f"{option.opts[0]} {complaint}")
