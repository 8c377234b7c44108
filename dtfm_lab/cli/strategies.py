"""The commands about training systems: what each would do with a network, and what its model assumes."""

import os
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from dtfm_lab import files, lab
from dtfm_lab.cli.options import (
    STRATEGIES,
    cli,
    executor_option,
    file_option,
    gathered,
    json_option,
    work_options,
)
from dtfm_lab.cli.progress import row_progress
from dtfm_lab.cli.terminal import out, print_json
from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.options import Option, options_of
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import format_s
from dtfm_lab.files.reading import ending_of
from dtfm_lab.systems import Outcomes, Strategy, from_flags, strategies, variant
from dtfm_lab.systems.bars import CHANGES, bars
from dtfm_lab.systems.choosing import chosen
from dtfm_lab.systems.not_modelled import NOT_MODELLED
from dtfm_lab.systems.outcomes import ENDINGS
from dtfm_lab.systems.outcomes_markdown import pairs, times

PICTURES = (".svg", ".pdf", ".png")
"""Endings of files that get the figure."""
TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class ListingSystems(click.Command):
    """Names the systems in its help; they are listed only then, because that loads plug-ins."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"Systems: {', '.join(strategies)}.")


def system_names(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    return [name for name in strategies if name.startswith(begun)]


def _assumable(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Assumptions with a dot after their system and, after ``=``, their choices."""
    every = [
        f"{name}.{one.name}={choice}"
        for name, kind in strategies.items()
        for one in options_of(kind)
        for choice in (one.choices or ("",))
    ]
    return [text for text in every if text.startswith(begun)]


@cli.command("strategies", cls=ListingSystems)
@work_options
@click.option(
    "--system",
    "systems",
    multiple=True,
    shell_complete=system_names,
    help="Ask this one, again for each; all where not given.",
)
@click.option(
    "--assume",
    "assumed",
    multiple=True,
    metavar="SYSTEM.NAME=VALUE",
    shell_complete=_assumable,
    help="Ask a system with another assumption, too: megatron.transport=overlapped. Several of one system hold "
    "together.",
)
@click.option(
    "--flags",
    metavar="TEXT",
    help="Ask a system as it is launched: Megatron-LM's flags, DeepSpeed's JSON or torchtitan's TOML, or their file.",
)
@gathered(STRATEGIES, into="budget")
@click.option(
    "--why",
    metavar="SYSTEM",
    shell_complete=system_names,
    help="Say what makes this one slower here, and what leads from it to the fastest that trains alike.",
)
@executor_option
@click.option("--plans", type=click.Path(file_okay=False), help="Write each system's plan into this folder.")
@file_option("-o", "--output", help="Write it to this file: .html, .md, .csv, .json, or the figure: .svg, .pdf, .png.")
@json_option
def strategies_command(
    topology: Topology,
    job: Job,
    systems: tuple[str, ...],
    assumed: tuple[str, ...],
    flags: str | None,
    budget: dict[str, Any],
    why: str | None,
    executor: str | None,
    plans: str | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Say what each training system would do with TOPOLOGY. That is its best plan, the seconds of an iteration by the
    link model, and what most of them go to.

    `dtfm-lab strategies --list` lists what each is assumed to do, and where that is from. How the job is cut, averaged
    and sent is each system's own.
    """
    if output is not None:
        ending_of(output, (*ENDINGS, *PICTURES))
    names = strategies if systems in ((), ("all",)) else systems
    launched: list[Strategy] = []
    if flags is not None:
        launch = from_flags(_text_of(flags))
        topology, job = launch.on(topology, job)
        launched, names = [launch.strategy], systems
    asked = chosen([*launched, *names, *variants_of(assumed)])
    if why is not None and why not in (labels := [one.label for one in asked]):
        raise unknown("system among those asked", why, labels)
    with row_progress("strategies", "systems", lambda found: found.sentence, total=len(asked)) as show:
        found = lab.strategies(topology, job, systems=asked, executor=executor, progress=show, **budget)
    if plans is not None:
        _save_plans(found, Path(plans))
    if output is not None and output.lower().endswith(PICTURES):
        from dtfm_lab import figures  # plotly takes a while to load

        figures.save(figures.strategies(found), output)
    elif output is not None:
        found.save(output)
    explained = None if why is None or found.stopped else lab.explain(found[why], found)
    if as_json:
        print_json(found.to_dict() | ({} if explained is None else {"why": explained.summary()}))
    else:
        print_outcomes(found)
        if explained is not None:
            out.print(Text(f"\n{explained.text}"))
    if found.stopped:
        sys.exit(130)


@cli.command("systems")
@click.argument("names", nargs=-1, metavar="[SYSTEM]...", shell_complete=system_names)
@json_option
def systems_command(names: tuple[str, ...], as_json: bool) -> None:
    """List the training systems that have a model: what is assumed of each, and where that is from. All, or some."""
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
    told = {"name": name, "title": one.title, "cite": one.cite, "url": one.url, "mathematics": one.mathematics}
    choices = {each.name: None if each.choices is None else list(each.choices) for each in one.assumptions}
    return told | {"assumptions": [each | {"choices": choices[each["name"]]} for each in one.assumed]}


def print_outcomes(found: Outcomes) -> None:
    """A row for each system, the reasons of those without a plan, and a sentence about all."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    headings = ("system", "an iteration", "times", "link a pair", "plan", "micro-batch", "most of it")
    for heading in headings:
        number = heading in ("an iteration", "times", "link a pair", "micro-batch")
        table.add_column(heading, justify="right" if number else "left", overflow="fold")
    drawn = bars(found)
    with_plan = [bar for bar in drawn if bar.outcome.iteration_s is not None]
    least_s = with_plan[0].outcome.iteration_s or 0.0 if with_plan else 0.0
    for bar in with_plan:
        one = bar.outcome
        cause, part_s = next(iter(one.causes.items()), ("", 0.0))
        most = f"{cause} {part_s / one.iteration_s:.0%}" if one.iteration_s else cause
        seconds = format_s(one.iteration_s or 0.0)
        cells = (bar.name, seconds, times(one, least_s), pairs(one), one.shape, str(one.job.microbatch), most)
        table.add_row(*map(Text, cells))
    if with_plan:
        out.print(table)
    for bar in drawn:
        if bar.outcome.iteration_s is None:
            out.print(Text(f"{bar.name}: no plan: {bar.outcome.reason}", style="red"))
    for bar in with_plan:
        if words := bar.outcome.strategy.mathematics:
            out.print(Text(f"{bar.name}: {words}", style="yellow"))
    out.print(f"{found.sentence}.")
    if found.win and not found.stopped:
        out.print(Text(found.win))


def _save_plans(found: Outcomes, folder: Path) -> None:
    """A plan file for each system that has a plan, named after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: cannot be written: {error.strerror or error}") from None
    for one in found:
        if one.found is not None:
            name = re.sub(r"[^\w.-]+", "-", one.name).strip("-")
            files.save_plan(one.found, folder / f"{name}.json")


def _text_of(flags: str) -> str:
    """The text itself, or that of the file of this name."""
    try:
        if os.path.isfile(flags):
            return Path(flags).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{flags}: cannot be read: {error}") from None
    if len(flags.split()) == 1 and not flags.startswith(("-", "{", "[")):
        raise FileError(f"{flags}: no such file; wanted one, or flags themselves")
    return flags


def variants_of(texts: Sequence[str]) -> list[Strategy]:
    """A strategy for each system that is named in texts such as ``megatron.transport=overlapped``."""
    given: dict[str, dict[str, Any]] = defaultdict(dict)
    for text in texts:
        where, equals, value = text.partition("=")
        system, dot, name = where.strip().rpartition(".")
        name = name.replace("-", "_")
        if not (equals and dot) or name in given[system]:
            wanted = "an assumption once" if equals and dot else "such as megatron.transport=overlapped"
            raise click.UsageError(f"--assume is {text!r}; wanted {wanted}")
        options = {one.name: one for one in options_of(strategies[system])}
        if name not in options:
            raise unknown(f"assumption of {system}", name, options)
        given[system][name] = _value(options[name], value.strip())
    return [variant(system, **assumptions) for system, assumptions in given.items()]


def _value(option: Option, text: str) -> Any:
    """The text as a value of the option's type; as it is where it is none, so that the check refuses it by name."""
    choices: Collection[str] = option.choices or ()
    if option.may_be_none and text.lower() == "none" and text not in choices:
        return None
    if option.type is bool:
        return TRUTHS.get(text.lower(), text)
    try:
        return option.type(text) if option.type in (int, float) else text
    except ValueError:
        return text
