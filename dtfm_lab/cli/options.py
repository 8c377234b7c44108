"""The group of commands and their options. Options are made from fields of dataclasses, or shared by several commands.

``dtfm-lab explain --worth PLAN`` reads like an option of ``explain``, but is a separate command, registered as
``explain --worth``. It has its own function and options. The code calls it a subject of ``explain``.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, get_args, get_origin

import click

from dtfm_lab import files, lab
from dtfm_lab.cli.terminal import print_host_notes, print_notes, waiting
from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.extension import load, offered
from dtfm_lab.domain.job import LEFT_TO_PLANNERS, Job, JobChanges
from dtfm_lab.domain.job.options import OF_ONE_SHAPE, WORK
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.options import Option, options_of, refuse_unknown
from dtfm_lab.lab.arguments import FrontierBudget, PlanOptions, SearchBudget, SimulationOptions
from dtfm_lab.lab.plans import default_job
from dtfm_lab.runtime.protocol.run_options import RunOptions
from dtfm_lab.simulation.schedules import schedules
from dtfm_lab.simulation.variations import OF_THE_JOB


class Commands(click.Group):
    """The group of commands. A command's second word chooses its subject: ``explain --worth`` or ``network from``.

    Commands of extensions are imported when they are called. The help shows the lines that their extension declares.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(name for name in self.known if " " not in name)

    @property
    def known(self) -> set[str]:
        """The names of all commands and subjects, including those of extensions."""
        return {*self.commands, *offered("commands")}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command. An extension's command that has not been called yet has only its name and its line of
        help."""
        if cmd_name in self.commands or (declared := offered("commands").get(cmd_name)) is None:
            return super().get_command(ctx, cmd_name)
        return click.Command(cmd_name, short_help=declared[1], hidden=not declared[1])

    def imported(self, name: str) -> click.Command | None:
        """Return a command or subject, imported if it is an extension's. None if no command has this name.

        Raises LabError if the extension's command cannot be imported.
        """
        declared = offered("commands").get(name)
        if name not in self.commands and declared is not None:
            try:
                found = load(declared[0])
                # Listed as declared, whether it was called before or not.
                found.short_help, found.hidden = declared[1], not declared[1]
                self.add_command(found, name)
            except Exception as error:  # the code of another package may raise anything
                raise LabError(f"the command {name} cannot be loaded: {error!r}") from error
        command = self.commands.get(name)
        if command is not None:
            self._offer_subjects(name, command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # If a user types only the last word of a command, the message names the whole command.
        ends = f" {args[0]}", f" --{args[0]}"
        if args[0] not in self.known and (subject := next((x for x in sorted(self.known) if x.endswith(ends)), None)):
            raise click.UsageError(f"no command {args[0]}; wanted dtfm-lab {subject}")
        rest = args[1:]
        own = rest[: rest.index("--")] if "--" in rest else rest  # words after -- are arguments, never subjects
        for option in own:  # a plug-in may offer a subject without the command whose option it is
            if (subject := f"{args[0]} {option}") in self.known:
                rest.remove(option)
                return subject, self.imported(subject), list(_spread(rest))
        self.imported(args[0])
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, list(_spread(rest))

    def _offer_subjects(self, name: str, command: click.Command) -> None:
        """Add an option for each subject of a command, unless it has it already, and list the subjects below its help.

        The options are hidden, because each subject is a command with its own options and help.
        """
        has = {option for parameter in command.params for option in parameter.opts}
        subjects = [each for each in sorted(self.known) if each.startswith(f"{name} ")]
        options = [option for each in subjects if (option := each.partition(" ")[2]).startswith("-")]
        command.params += [
            click.Option([each], is_flag=True, expose_value=False, hidden=True) for each in options if each not in has
        ]
        if subjects:
            ctx, formatter = click.Context(self), click.HelpFormatter(width=LISTED_WIDTH)
            chosen = [(each, found) for each in subjects if (found := self.get_command(ctx, each))]
            formatter.write("More, each with its own options (add --help):\n")
            formatter.indent()
            lines = [(f"dtfm-lab {each}", found.get_short_help_str(1000)) for each, found in chosen if not found.hidden]
            formatter.write_dl(lines, col_max=40)
            command.epilog = "\b\n" + formatter.getvalue()


LISTED_WIDTH = 76
"""Characters per line of the list of subjects: the 80 of a terminal, minus indentation and a margin."""


def _spread(words: Iterable[str]) -> Iterator[str]:
    """Yield the words with ``--set a=1 b=2`` as ``--set a=1 --set b=2``, because click takes one value per option."""
    setting, previous = False, ""
    for word in words:
        follows = setting and "=" in word and not word.startswith("-")
        if follows and previous != "--set":
            yield "--set"
        setting = follows or word == "--set"
        previous = word
        yield word


Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="dtfm_lab", prog_name="dtfm-lab", hidden=True)  # so that the help fits 24 lines
@click.help_option("-h", "--help", hidden=True)
def cli() -> None:
    """Plan, predict, run and compare decentralised training of foundation models. See examples with COMMAND --help."""


AUTO = "auto"
"""Text on the command line that leaves a field of the job to the planner."""


def command_line_options(kind: Any, *without: str) -> tuple[Option, ...]:
    """Return the options of a dataclass whose values are numbers, booleans or text, or can be given as text."""
    simple = (int, float, bool, str)
    return tuple(
        option
        for option in options_of(kind)
        if option.name not in without and (option.type in simple or str in get_args(option.type))
    )


JOB = {option.name: option for option in options_of(JobChanges) if option.name != "name"}
FLAGS = ("n_stages", "n_replicas", "global_batch", "microbatch", "seq_len", "adapters", "schedule")
"""Fields of a job that have their own flag. All others are set with ``--set NAME=VALUE``."""
OF_THE_WORK = (WORK[0], "seq_len", "adapters", *WORK[1:])
"""Keywords that say what is trained, not how. ``work_options`` offers only these."""
TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
PLANNING = command_line_options(PlanOptions)
SEARCH = command_line_options(SearchBudget)
FRONTIER = command_line_options(FrontierBudget)
SIMULATION = command_line_options(SimulationOptions)
RUN = command_line_options(RunOptions)


def with_help(options: Iterable[Option], **helps: str) -> tuple[Option, ...]:
    """Return the options, some with a help text for one command that replaces the field's own."""
    return tuple(replace(option, help=helps.get(option.name, option.help)) for option in options)


def listing(what: str, names: Iterable[str]) -> type[click.Command]:
    """Return a command class whose help lists these names. ``names`` is read only when help is printed, because that
    loads plug-ins."""

    class Listing(click.Command):
        def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            super().format_help_text(ctx, formatter)
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(f"{what}: {', '.join(names)}.")

    return Listing


def completing(names: Iterable[str]) -> Callable[[Any, Any, str], list[str]]:
    """Return a function that completes what is typed in a shell to one of these names."""
    return lambda _context, _parameter, begun: [name for name in names if name.startswith(begun)]


class _ListingOption(click.Option):
    """An option whose help lists its choices. They are read only when help is printed, because that may load
    plug-ins."""

    def __init__(self, *names: Any, listed: Iterable[str] | None = None, **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self._listed = listed

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record is None or self._listed is None:
            return record
        return record[0], f"{record[1]} One of {', '.join(self._listed)}."


def _flag(option: Option) -> str:
    return (option.flag or option.name).replace("_", "-")


def click_option(option: Option, default: object = None) -> Decorator:
    """Return the decorator that adds a field's command-line option.

    ``default`` (or the field's own default) is only shown in the help. An omitted option passes None, so that a plan's
    or a job's own value can apply.
    """
    flag, shown = _flag(option), option.default if default is None else default
    own: Any = option.type if option.type in (int, float) else None if option.type is bool else str
    return click.option(
        f"--{flag}/--no-{flag}" if option.type is bool else f"--{flag}",
        option.name,
        cls=_ListingOption,
        type=own,
        default=None,  # tells given values from omitted ones, for which a plan's or a job's own value may hold
        help=option.help,
        listed=option.choices,
        show_default=False if shown in (None, "") or option.type is bool else str(shown),
    )


def gathered(options: Iterable[Option], into: str, **defaults: object) -> Decorator:
    """Return a decorator that passes the given options as one dictionary, in the keyword argument ``into``.

    ``defaults`` are this command's values for omitted options. They replace the fields' defaults.
    """
    options = tuple(options)

    def decorate(command: Command) -> Command:
        @wraps(command)
        def gather(*args: Any, **values: Any) -> Any:
            popped = {option.name: values.pop(option.name) for option in options}
            given = {name: value for name, value in popped.items() if value is not None}
            return command(*args, **{into: defaults | given}, **values)

        wrapped: Command = gather
        # Decorators apply from the innermost out, so reversed order lists the options as declared.
        for option in reversed(options):
            wrapped = click_option(option, defaults.get(option.name))(wrapped)
        return wrapped

    return decorate


def plain_value(text: str) -> str | int | float | bool:
    """Return the text as a number or boolean if it is one, otherwise the text itself."""
    text = text.strip()
    for number in (int, float):
        with suppress(ValueError):
            return number(text)
    return TRUTHS.get(text.lower(), text)


def _field_value(option: Option, text: str) -> Any:
    """Return the value of a job's field from its text on the command line. None for ``auto``, if the field may be left
    open. The job checks the value."""
    left_open = option.may_be_none and (option.default is not None or option.field in LEFT_TO_PLANNERS)
    if text == AUTO and left_open:
        return None
    if get_origin(option.type) is tuple:
        return tuple(plain_value(each) for each in text.split(","))
    return plain_value(text)


def assigned(option: str, texts: Iterable[str], example: str) -> dict[str, str]:
    """Return values by name from a repeated option, each given as NAME=VALUE. A name may have a prefix before a dot.

    Raises UsageError for any other text, and for a name that comes twice.
    """
    given: dict[str, str] = {}
    for text in texts:
        where, equals, value = text.partition("=")
        prefix, dot, field = where.strip().rpartition(".")
        if not (field and equals):
            raise click.UsageError(f"{option} is {text!r}; wanted NAME=VALUE, such as {example}")
        # Dashes are allowed, as in the names of the options.
        if (name := f"{prefix}{dot}{field.replace('-', '_')}") in given:
            raise click.UsageError(f"{name} is given twice; wanted it once")
        given[name] = value.strip()
    return given


PLANNERS = "; chosen by the planner"
"""Text from which on a field's help is cut off for commands that do not plan."""


def job_fields(names: Iterable[str], *, without: Iterable[str] = (), plans: bool = True) -> Decorator:
    """Return a decorator that adds ``--set`` for these fields of a job, and flags for the most used ones.

    The values are passed as one dictionary, ``overrides``. Fields in ``without`` get no flag. If the command ``plans``,
    the help says which fields its planner chooses.
    """
    offered = {name: JOB[name] for name in names}
    flags = [option for name, option in offered.items() if name in FLAGS and name not in without]
    may_choose = f", or {AUTO} to let the planner choose" if plans else ""

    def decorate(command: Command) -> Command:
        @click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="NAME=VALUE...",
            help=f"Set other fields of the job, such as dtype=bf16{may_choose}. Names: "
            f"{', '.join(name for name in offered if name not in FLAGS)}.",
        )
        @wraps(command)
        def gather(*args: Any, settings: tuple[str, ...], **values: Any) -> Any:
            texts = {option.name: values.pop(option.name) for option in flags}
            given = {name: text for name, text in texts.items() if text is not None}
            chosen = assigned("--set", settings, "recompute=true")
            refuse_unknown(chosen, offered, "job field")
            if twice := [name for name in chosen if name in given]:
                raise click.UsageError(f"{twice[0]} is given twice; wanted it once")
            given |= chosen
            overrides = {name: _field_value(offered[name], text) for name, text in given.items()}
            return command(*args, overrides=overrides, **values)

        wrapped: Command = gather
        for option in reversed(flags):
            # Where a plan exists already, no planner chooses.
            about = option.help if plans else f"{option.help.partition(PLANNERS)[0].rstrip('.')}."
            flag = click.option(
                f"--{_flag(option)}", option.name, cls=_ListingOption, help=about, listed=option.choices
            )
            wrapped = flag(wrapped)
        return wrapped

    return decorate


def no_such_option(error: click.NoSuchOption) -> str:
    """Return the error line for an unknown option. If it is a field of the job, the line shows how to set it with
    ``--set``."""
    name = error.option_name.lstrip("-").removeprefix("no-").replace("-", "_")
    takes = error.ctx is not None and any(each.name == "settings" for each in error.ctx.command.params)
    if takes and name in JOB:
        return f"no option {error.option_name}; wanted --set {name}=VALUE"
    return error.format_message()


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
plan_argument = click.argument("plan_file", metavar="PLAN")


def _job_options(fields: Iterable[str], *, plans: bool = True, notes: bool = False) -> Decorator:
    """Return a decorator that adds TOPOLOGY, --job and these fields of the job, passed as a Topology and a Job.

    Without --job, the job comes from the --start plan, or is the network's default job. With ``notes``, the notes of
    the job's model are printed.
    """

    def decorate(command: Command) -> Command:
        @click.argument("topology")
        @click.option(
            "--typical-prices", is_flag=True, help="Give devices without a price the typical price of their GPU."
        )
        @click.option("--job", "job_name", help="A job by name or file. By default one that suits the network's size.")
        @click.option(
            "--module",
            metavar="FILE.PY:FUNCTION",
            help="Plan for your own torch module. The function returns (module, data) or (module, data, loss).",
        )
        @click.option(
            "--timed",
            is_flag=True,
            help="With --module: divide its FLOP among its blocks by their time on this machine.",
        )
        @job_fields(fields, plans=plans)
        @wraps(command)
        def with_job(
            topology: str,
            typical_prices: bool,
            job_name: str | None,
            module: str | None,
            timed: bool,
            overrides: dict[str, Any],
            **values: Any,
        ) -> Any:
            with waiting(Path(topology).name, "reading the network"):
                network = lab.load_topology(topology)
                network = network.with_typical_prices() if typical_prices else network
            print_host_notes(network)
            begin = values.get("start")
            job = _default_job(network) if begin is None else begin.job
            # A module brings its own model, so the network's usual job is not loaded first.
            if module is not None or timed:
                job = lab.load_job(job_name, module=module, timed=timed)
            elif job_name is not None:
                job = lab.load_job(job_name)
            job = files.override(job, **overrides)
            if notes:
                print_notes(job)
            return command(network, job, **values)

        return with_job

    return decorate


def _default_job(network: Topology) -> Job:
    """Return the network's default job with its shape and micro-batch left open.

    A job that gives message sizes keeps its shape, because the sizes hold for that shape only.
    """
    job = default_job(network)
    return job if job.given_gradient_bytes is not None else job.freed("n_stages", "n_replicas", "microbatch")


job_options = _job_options(JOB)
placed_options = _job_options(JOB, plans=False)
work_options = _job_options(OF_THE_WORK, notes=True)
shapeless_options = _job_options([name for name in JOB if name not in OF_ONE_SHAPE], notes=True)
"""Options for commands that plan the job on several networks, where it may have a different shape on each."""


def file_option(*names: str, help: str) -> Decorator:
    """Return an option for a file to write. The path is checked before the command runs, so that no result is lost."""

    def writable(_context: click.Context, _option: click.Parameter, path: str | None) -> str | None:
        if path == "":
            raise FileError("the name of a file to write is empty; wanted a path")
        # Checked now: a search may take minutes, and its result would be lost.
        if path is not None and not os.access(folder := Path(path).parent, os.W_OK):
            raise FileError(f"{path}: cannot be written: {folder} is not a folder you can write to")
        return path

    return click.option(*names, type=click.Path(dir_okay=False), callback=writable, help=help)


output_option = file_option("-o", "--output", help="Write the result to this file.")
executor_option = click.option(
    "--executor",
    metavar="here|loky:N|threads:N|dask://HOST:PORT",
    help="Where to compute: in this process only, in N processes or threads here, or on Dask workers.",
)
csv_option = file_option("--csv", help="Write the table to this file.")
schedule_option = click.option(
    "--schedule",
    cls=_ListingOption,
    listed=schedules,
    help="Pipeline schedule: a name, or a .txt or .csv file. By default the job's schedule.",
)


def simulation_options(command: Command) -> Command:
    """Decorator that adds PLAN, --schedule and the options of ``lab.simulate``.

    The command gets a Plan with its job's fields overridden, the schedule, and a dictionary of keywords of
    ``lab.simulate``.
    """

    @plan_argument
    @schedule_option
    @click.option(
        "--like",
        type=click.Path(),
        help="Predict the run of this measured trace, from the durations that were profiled before it.",
    )
    @gathered(SIMULATION, into="how")
    @job_fields((*OF_THE_JOB, "schedule"), without=["schedule"], plans=False)
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
            # A job accepts flush_every only with a schedule that flushes, so it must know which one is simulated.
            overrides["schedule"] = schedule
        return command(lab.with_job(plan, **overrides) if overrides else plan, schedule, how, **rest)

    return with_plan
