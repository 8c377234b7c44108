"""The group of commands, and their options: made from fields of dataclasses, or shared by several commands."""

import os
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any, get_args

import click

from dtfm_lab import files, lab
from dtfm_lab.cli.subjects import Commands
from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.job import LEFT_TO_PLANNERS, Job, JobChanges
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.options import Option, options_of
from dtfm_lab.domain.plan import Plan
from dtfm_lab.lab.arguments import FrontierSettings, PlanOptions, SearchBudget, SimulationOptions
from dtfm_lab.lab.plans import default_job
from dtfm_lab.runtime.protocol.run_options import RunOptions
from dtfm_lab.simulation.schedules import schedules
from dtfm_lab.simulation.sweeps import OF_THE_JOB
from dtfm_lab.systems import Budget

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="dtfm_lab", prog_name="dtfm-lab")
def cli() -> None:
    """Plan, predict, run and compare decentralised training of foundation models."""


AUTO = "auto"
"""Value of an option that is left to the planner."""


def command_line_options(kind: Any, *without: str) -> tuple[Option, ...]:
    """The options of a dataclass that are numbers, booleans or text, or may be given as text."""
    simple = (int, float, bool, str)
    return tuple(
        option
        for option in options_of(kind)
        if option.name not in without and (option.type in simple or str in get_args(option.type))
    )


JOB = command_line_options(JobChanges, "name")
WORK = tuple(option for option in JOB if option.name in ("model", "seq_len", "global_batch", "microbatch", "dtype"))
"""Fields of a job that say what is trained, and not how."""
KEEPING_THE_PLAN = tuple(option for option in JOB if option.name in OF_THE_JOB)
PLANNING = command_line_options(PlanOptions)
SEARCH = command_line_options(SearchBudget)
FRONTIER = command_line_options(FrontierSettings)
SIMULATION = command_line_options(SimulationOptions)
RUN = command_line_options(RunOptions)
STRATEGIES = command_line_options(Budget)


class _ListingOption(click.Option):
    """An option whose help lists its choices, read only when help is printed because that may load plug-ins."""

    def __init__(self, *names: Any, listed: Iterable[str] | None = None, **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self._listed = listed

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None or self._listed is None:
            return record
        return record[0], f"{record[1]} One of {', '.join(self._listed)}."


class _OrAuto(click.ParamType[Any]):
    """The option's own type, or ``auto``, which leaves the choice to the planner: None in Python, null in a file."""

    def __init__(self, type: click.ParamType[Any]) -> None:
        self._own, self.name = type, type.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return AUTO if value == AUTO else self._own.convert(value, param, ctx)


def _may_be_left_open(option: Option) -> bool:
    """Whether None says something else than leaving the option out: where a job's file or preset names a value."""
    return option.may_be_none and (option.default is not None or option.field in LEFT_TO_PLANNERS)


def _unless(option: Option) -> str:
    return f"where not given by the job, or {AUTO}" if _may_be_left_open(option) else "where not given"


def click_option(option: Option, default: object = None) -> Decorator:
    """The command-line option of a field; its value is None if it is not given."""
    flag = (option.flag or option.name).replace("_", "-")
    shown = option.default if default is None else default
    own: Any = option.type if option.type in (int, float) else None if option.type is bool else str
    return click.option(
        f"--{flag}/--no-{flag}" if option.type is bool else f"--{flag}",
        option.name,
        cls=_ListingOption,
        type=_OrAuto(click.types.convert_type(own)) if _may_be_left_open(option) else own,
        default=None,
        help=option.help.replace("where null", f"where {AUTO}").replace("where not given", _unless(option)),
        listed=option.choices,
        show_default=False if shown in (None, "") or option.type is bool else str(shown),
    )


def gathered(options: Iterable[Option], into: str, **defaults: object) -> Decorator:
    """Decorator that passes the options that are given as one dictionary, in the keyword argument ``into``.

    ``defaults`` are values of this command for options that are not given, in place of the fields' defaults.
    """
    options = tuple(options)

    def decorate(command: Command) -> Command:
        @wraps(command)
        def gather(*args: Any, **values: Any) -> Any:
            popped = {option.name: values.pop(option.name) for option in options}
            left_open = {option.name for option in options if _may_be_left_open(option) and popped[option.name] == AUTO}
            given = {name: value for name, value in popped.items() if value is not None}
            given |= dict.fromkeys(left_open)
            return command(*args, **{into: defaults | given}, **values)

        wrapped: Command = gather
        for option in reversed(options):
            wrapped = click_option(option, defaults.get(option.name))(wrapped)
        return wrapped

    return decorate


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
plan_argument = click.argument("plan_file", metavar="PLAN")


def _job_options(fields: Iterable[Option]) -> Decorator:
    """Decorator: TOPOLOGY, --job and these fields of the job, passed as a Topology and a Job. Without --job the job is
    that of the --start plan, or else the network's default job."""

    def decorate(command: Command) -> Command:
        @click.argument("topology")
        @click.option(
            "--typical-prices", is_flag=True, help="Devices without a price have the typical one of their GPU."
        )
        @click.option("--job", "job_name", help="A job by name or a file. Without it: one of the network's size.")
        @gathered(fields, into="overrides")
        @wraps(command)
        def with_job(
            topology: str, typical_prices: bool, job_name: str | None, overrides: dict[str, Any], **values: Any
        ) -> Any:
            network = lab.load_topology(topology)
            network = network.with_typical_prices() if typical_prices else network
            begin = values.get("start")
            job = _default_job(network) if begin is None else begin.job
            if job_name is not None:
                job = lab.load_job(job_name)
            return command(network, files.override(job, **overrides), **values)

        return with_job

    return decorate


def _default_job(network: Topology) -> Job:
    """The network's default job, its shape and micro-batch left open but where message sizes are given for a shape."""
    job = default_job(network)
    return job if job.given_gradient_bytes is not None else job.freed("n_stages", "n_replicas", "microbatch")


job_options = _job_options(JOB)
work_options = _job_options(WORK)


def file_option(*names: str, help: str) -> Decorator:
    """An option for a file to write. It is checked before the command runs, so that no result is computed in vain."""

    def writable(_context: click.Context, _option: click.Parameter, path: str | None) -> str | None:
        if path == "":
            raise FileError("the name of a file to write is empty; wanted a path")
        if path is not None and not os.access(folder := Path(path).parent, os.W_OK):
            raise FileError(f"{path}: cannot be written: {folder} is no folder to write to")
        return path

    return click.option(*names, type=click.Path(dir_okay=False), callback=writable, help=help)


output_option = file_option("-o", "--output", help="Write it to this file.")
executor_option = click.option(
    "--executor",
    metavar="loky:N|threads:N|dask://HOST:PORT",
    help="Compute elsewhere: in N processes or threads here, or on the workers of a scheduler of Dask.",
)
csv_option = file_option("--csv", help="Write the table to this file.")
schedule_option = click.option(
    "--schedule",
    cls=_ListingOption,
    listed=schedules,
    help="Pipeline schedule by name, or a .txt or .csv file; the job's own by default.",
)


def simulation_options(command: Command) -> Command:
    """Decorator: PLAN with its job's fields overridden, passed as a Plan, --schedule, and a dictionary of keywords of
    ``lab.simulate``."""

    @plan_argument
    @schedule_option
    @click.option("--like", type=click.Path(), help="A measured trace: predict what it ran, from its profile.")
    @gathered(SIMULATION, into="how")
    @gathered(KEEPING_THE_PLAN, into="overrides")
    @wraps(command)
    def with_plan(
        plan_file: str,
        schedule: str | None,
        like: str | None,
        how: dict[str, Any],
        overrides: dict[str, Any],
        **rest: Any,
    ) -> Any:
        if like is not None and (named := [*overrides, *(["efficiency"] if "efficiency" in how else [])]):
            raise click.UsageError(f"--like predicts what ran, from its profile; wanted it without {', '.join(named)}")
        plan = files.load_plan(plan_file)
        if like is not None:
            how["like"] = files.load_trace(like)
        if "flush_every" in overrides and schedule is not None and schedule in schedules:
            overrides["schedule"] = schedule  # a job refuses it beside a schedule that does not flush
        return command(lab.with_job(plan, **overrides) if overrides else plan, schedule, how, **rest)

    return with_plan


def start_option(command: Command) -> Command:
    """Decorator: --start, passed as a Plan."""

    def loaded(_context: click.Context, _option: click.Parameter, path: str | None) -> Plan | None:
        return None if path is None else files.load_plan(path)

    about = "A plan file to improve on, its devices found by name; without --job, for its job."
    return click.option("--start", type=click.Path(), callback=loaded, help=about)(command)
