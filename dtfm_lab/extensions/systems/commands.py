"""Commands about training systems: what each would do with a network, where it is fastest, and what is assumed."""

import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.core import ParameterSource
from rich.text import Text

from dtfm_lab import files
from dtfm_lab.cli.options import (
    Command,
    Decorator,
    assigned,
    command_line_options,
    completing,
    executor_option,
    file_option,
    gathered,
    json_option,
    listing,
    plain_value,
    work_options,
)
from dtfm_lab.cli.terminal import err, out, print_json, print_report, print_table, row_progress
from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.options import Option, options_of
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.report import CHANGES
from dtfm_lab.extensions.systems.api import Budget, Crossings, Outcomes, Strategy, from_flags, strategies, variant
from dtfm_lab.extensions.systems.asked import CrossingOptions
from dtfm_lab.extensions.systems.asked import strategies as asked_of
from dtfm_lab.extensions.systems.choosing import chosen
from dtfm_lab.extensions.systems.crossings import compared_by_default
from dtfm_lab.extensions.systems.outcomes import ENDINGS, report_of
from dtfm_lab.extensions.systems.strategy import NOT_MODELLED
from dtfm_lab.files.reading import ending_of, explained, write_text

PICTURES = (".svg", ".pdf", ".png")
"""Endings of output files into which the figure is written."""
CROSSINGS = command_line_options(CrossingOptions, "systems", "values", "executor", "progress")
CROSSING_ENDINGS = (".html", *PICTURES, ".csv", ".json")
STRATEGIES = command_line_options(Budget)
system_names = completing(strategies)
_Listing = listing("Systems", strategies)


def _assumable(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Return completions of an option's beginning: ``SYSTEM.ASSUMPTION``, and after ``=`` the allowed values."""
    every = [
        f"{name}.{one.name}={choice}"
        for name, kind in strategies.items()
        for one in options_of(kind)
        for choice in (one.choices or ("",))
    ]
    return [text for text in every if text.startswith(begun)]


class NamedSystems(NamedTuple):
    """The systems that a command line names."""

    names: tuple[str, ...]
    """The values of ``--system``, or every system for ``all``; empty without it."""
    variants: list[Strategy]
    """The systems that ``--assume`` names, with their changed assumptions."""


def _named_systems(by_default: str) -> Decorator:
    """Return a decorator that adds ``--system`` and ``--assume``, and passes both as the keyword argument ``named``."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def gather(*args: Any, systems: tuple[str, ...], assumed: tuple[str, ...], **values: Any) -> Any:
            names = tuple(strategies) if systems == ("all",) else systems
            return command(*args, named=NamedSystems(names, variants_of(assumed)), **values)

        assume = click.option(
            "--assume",
            "assumed",
            multiple=True,
            metavar="SYSTEM.NAME=VALUE",
            shell_complete=_assumable,
            help="Also ask a system with a changed assumption: megatron.transport=overlapped. Repeat it to change "
            "several of one system together.",
        )
        help = f"Ask this system. Repeat it for several, or give all. By default: {by_default}."
        return click.option("--system", "systems", multiple=True, shell_complete=system_names, help=help)(
            assume(gather)
        )

    return decorate


@click.command(cls=_Listing)
@work_options
@_named_systems("all")
@click.option(
    "--flags",
    metavar="TEXT",
    help="Ask a system as you launch it: Megatron-LM's flags, DeepSpeed's JSON, torchtitan's TOML or accelerate's "
    "YAML, or their file; or the shell script that launches Megatron-LM.",
)
@gathered(STRATEGIES, into="budget")
@click.option(
    "--why",
    metavar="SYSTEM",
    shell_complete=system_names,
    help="Say what makes this system slower here, and what leads from it to the fastest that trains the same way.",
)
@executor_option
@click.option("--plans", type=click.Path(file_okay=False), help="Write each system's plan into this folder.")
@file_option("-o", "--output", help="Write it to this file: .html, .md, .csv, .json, or the figure: .svg, .pdf, .png.")
@json_option
def strategies_command(
    topology: Topology,
    job: Job,
    named: NamedSystems,
    flags: str | None,
    budget: dict[str, Any],
    why: str | None,
    executor: str | None,
    plans: str | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Say what each training system would do with TOPOLOGY: its best plan, the iteration time by the link model, and
    what takes most of it.

    `dtfm-lab strategies --list` shows what is assumed about each system, with sources. Each system chooses how to
    cut, average and send the job.
    """
    if output is not None:
        ending_of(output, (*ENDINGS, *PICTURES))
    names = named.names or tuple(strategies)
    launched: list[Strategy] = []
    remarks: list[str] = []
    if flags is not None:
        launch = from_flags(_text_of(flags))
        if launch.asks and not _typed("global_batch"):
            # The job's own batch was meant for another launch, so this one has to be typed.
            raise LabError(f"{launch.asks}; wanted --batch, the sequences of an iteration")
        launch = launch.keeping_microbatch() if _typed("microbatch") else launch
        topology, job = launch.on(topology, job)
        launched, names, remarks = [launch.strategy], named.names, launch.remarks
    asked = chosen([*launched, *names, *named.variants])
    # A system with one variant may be named without its assumptions.
    if why is not None and why not in (labels := [one.label for one in asked]):
        variants = [one.label for one in asked if one.name == why]
        if len(variants) != 1:
            raise unknown("system among those asked", why, labels)
        why = variants[0]
    with row_progress("strategies", noun="systems", total=len(asked)) as show:
        found = asked_of(topology, job, systems=asked, executor=executor, progress=show, **budget)
    if plans is not None:
        _save_plans(found, Path(plans))
    if output is not None and output.lower().endswith(PICTURES):
        from dtfm_lab import figures  # plotly takes a while to load

        figures.save(figures.strategies(found), output)
    elif output is not None:
        found.save(output)
    explained = None if why is None or found.stopped else found[why].why(found)
    if as_json:
        more = {} if explained is None else {"why": explained.summary()}
        print_json(found.to_dict() | more | ({"remarks": remarks} if flags is not None else {}))
    else:
        print_report(report_of(found, assumptions=False))
        for remark in remarks:
            out.print(Text(remark, style="dim"))
        if explained is not None:
            out.print(Text(f"\n{explained.text}"))
    if found.stopped:
        sys.exit(130)


@click.command(cls=_Listing)
@work_options
@click.option(
    "--values",
    metavar="V,V...|LOW:HIGH:N",
    help="Values of what varies: Gbit/s, ms, sequences, or multiples of the devices' speed.",
)
@_named_systems("all that need no search")
@gathered(CROSSINGS, into="options", over="bandwidth")
@executor_option
@file_option("-o", "--output", help=f"Write it to this file: {', '.join(CROSSING_ENDINGS)}.")
@json_option
def crossings_command(
    topology: Topology,
    job: Job,
    values: str | None,
    named: NamedSystems,
    options: dict[str, Any],
    executor: str | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Say at which bandwidth, latency or batch which system is fastest on TOPOLOGY."""
    if output is not None:
        ending_of(output, CROSSING_ENDINGS)
    asked: list[Any] | None = None
    if named.names or named.variants:
        asked = [*(named.names or compared_by_default(None)), *named.variants]
    options["values"] = None if values is None else _values(values)
    with row_progress("crossings", lambda found: f"values  {found.latest}") as show:
        found = asked_of(topology, job, systems=asked, executor=executor, progress=show, **options)
    if output is not None:
        _write_crossings(found, output)
    if as_json:
        print_json(found.to_dict())
    else:
        print_crossings(found)
    if not found.finished:
        err.print("stopped; the results so far are kept")
        sys.exit(130)


def print_crossings(found: Crossings) -> None:
    """Print one row per given value and one column per system. Then print why systems have no plan, the crossings and
    the sentence."""
    axis, frame = found.axis, found.to_frame()
    rows = frame[~frame["refined"].astype(bool)]
    table = rows.pivot_table(index=axis.name, columns="system", values="iteration_s", dropna=False)
    table = table.reindex(columns=[one.label for one in found.systems])
    table.columns = [f"{label}_s" for label in table.columns]
    print_table(table.reset_index().rename(columns={axis.name: f"{axis.name} ({axis.unit})"}))
    for _, row in rows[rows["reason"] != ""].drop_duplicates("system").iterrows():
        where = f"{found.headings[row['system']]} has no plan at {axis.text(row[axis.name])}"
        out.print(Text(f"{where}: {row['reason']}", style="red"))
    for one in found.crossings:
        between = f"{axis.text(one.low)} and {axis.text(one.high)}"
        out.print(f"{found.name_of(one.before)} until {axis.text(one.value)} (between {between})")
    out.print(f"{found.sentence}.")


def _write_crossings(found: Crossings, output: str) -> None:
    """Write the table, the plain values or the figure, depending on the file's ending."""
    match ending_of(output, CROSSING_ENDINGS):
        case ".csv":
            write_text(output, found.to_frame().to_csv(index=False))
        case ".json":
            write_text(output, json.dumps(found.to_dict(), indent=1))
        case _:
            from dtfm_lab import figures  # plotly takes a while to load

            figures.save(figures.crossings(found), Path(output))


def _values(text: str) -> list[float] | tuple[float, float, int]:
    """Parse the text of ``--values``. A range becomes a tuple as ``lab.strategies`` takes it: lowest, highest, number.
    Raises UsageError."""
    try:
        if ":" in text:
            low, high, n = text.split(":")
            return float(low), float(high), int(n)
        return [float(number) for number in text.split(",") if number.strip()]
    except ValueError:
        raise click.UsageError(f"--values is {text!r}; wanted numbers, such as 0.1,1,10 or 0.1:10:9") from None


@click.command()
@click.argument("names", nargs=-1, metavar="[SYSTEM]...", shell_complete=system_names)
@json_option
def systems_command(names: tuple[str, ...], as_json: bool) -> None:
    """List the training systems that have a model, what is assumed about each, and the sources. Lists all by
    default."""
    kinds = {name: strategies[name]() for name in (names or strategies)}
    if as_json:
        rows = [_described(name, one) for name, one in kinds.items()]
        return print_json({"systems": rows, "not_modelled": {} if names else NOT_MODELLED})
    for name, one in kinds.items():
        out.print(Text.assemble((name, "bold"), f"  {one.title}, {one.cite}"))
        if one.mathematics:
            out.print(Text(f"  {CHANGES} {one.mathematics}", style="yellow"))
        for each in one.assumptions:
            choices = f" (of {', '.join(each.choices)})" if each.choices is not None else ""
            out.print(f"  {each.name} = {each.default}{choices}: {each.help}")
            out.print(Text(f"    {each.source}", style="dim"))
    if not names and NOT_MODELLED:
        out.print(Text("\nnot modelled", style="bold"))
        for name, reason in NOT_MODELLED.items():
            out.print(f"  {name}: {reason}")
    return None


def _described(name: str, one: Strategy) -> dict[str, Any]:
    answer = {"name": name, "title": one.title, "cite": one.cite, "url": one.url, "mathematics": one.mathematics}
    choices = {each.name: None if each.choices is None else list(each.choices) for each in one.assumptions}
    return answer | {"assumptions": [each | {"choices": choices[each["name"]]} for each in one.assumed]}


def _save_plans(found: Outcomes, folder: Path) -> None:
    """Write a plan file for each system that has a plan, named after the system."""
    with explained(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
    for one in found:
        if one.found is not None:
            name = re.sub(r"[^\w.-]+", "-", one.name).strip("-")
            files.save_plan(one.found, folder / f"{name}.json")


def _typed(field: str) -> bool:
    """True if this field of the job was typed on the command line."""
    context = click.get_current_context()
    named = any(text.partition("=")[0] == field for text in context.params.get("settings", ()))
    return named or context.get_parameter_source(field) is ParameterSource.COMMANDLINE


def _text_of(flags: str) -> str:
    """Return the text itself, or the contents of the file with this name."""
    try:
        if os.path.isfile(flags):
            return Path(flags).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{flags}: cannot be read: {error}") from None
    if len(flags.split()) == 1 and not flags.startswith(("-", "{", "[")):
        raise FileError(f"{flags}: no such file; wanted one, or flags themselves")
    return flags


def variants_of(texts: Sequence[str]) -> list[Strategy]:
    """Return the strategies that texts such as ``megatron.transport=overlapped`` describe, one for each system
    named."""
    given: dict[str, dict[str, Any]] = defaultdict(dict)
    example = "megatron.transport=overlapped"
    for where, text in assigned("--assume", texts, example).items():
        system, dot, name = where.rpartition(".")
        if not dot:
            raise click.UsageError(f"--assume is '{where}={text}'; wanted SYSTEM.NAME=VALUE, such as {example}")
        options = {one.name: one for one in options_of(strategies[system])}
        if name not in options:
            raise unknown(f"assumption of {system}", name, options)
        given[system][name] = _value(options[name], text)
    return [variant(system, **assumptions) for system, assumptions in given.items()]


def _value(option: Option, text: str) -> Any:
    """Parse a value. Text that is not a number or a boolean stays text, so that the later check names it in its
    error."""
    if option.may_be_none and text.lower() == "none" and text not in (option.choices or ()):
        return None
    return plain_value(text) if option.type in (int, float, bool) else text
