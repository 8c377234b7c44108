"""The commands about where systems are fastest, and about what makes a network compute-bound."""

import json
import sys
from pathlib import Path
from typing import Any, Protocol

import click
import pandas as pd
from rich.text import Text

from dtfm_lab import files, lab
from dtfm_lab.cli.options import (
    STRATEGIES,
    cli,
    command_line_options,
    executor_option,
    file_option,
    gathered,
    job_options,
    json_option,
    work_options,
)
from dtfm_lab.cli.progress import growing_progress
from dtfm_lab.cli.strategies import ListingSystems, system_names, variants_of
from dtfm_lab.cli.terminal import err, out, print_json, print_table
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.files.reading import ending_of, write_text
from dtfm_lab.lab.codesign import CoDesignSettings
from dtfm_lab.systems import CoDesign, Crossings, strategies
from dtfm_lab.systems.crossing_search import default_systems
from dtfm_lab.systems.knobs import KNOBS
from dtfm_lab.systems.variations import AXES, BETWEEN

PICTURES = (".html", ".svg", ".pdf", ".png")
ENDINGS = (*PICTURES, ".csv", ".json")
CODESIGN = command_line_options(CoDesignSettings)
DESIGN_COLUMNS = [
    "knob",
    "global_batch",
    "d_model",
    "seq_len",
    "compression",
    "synchronise_every",
    "bandwidth_gbps",
    "compute_share",
    "iteration_s",
    "tokens_per_s",
    "fits",
]
"""Columns of the designs that a terminal shows; --json has all."""


class WritableResult(Protocol):
    """A result with a table, plain values and a figure of its own."""

    def to_frame(self) -> pd.DataFrame:
        """Its table."""

    def to_dict(self) -> dict[str, Any]:
        """Its plain values."""


@cli.command("crossings", cls=ListingSystems)
@work_options
@click.option("--over", multiple=True, type=click.Choice(AXES), help="An axis; twice for a map of two. [bandwidth]")
@click.option(
    "--values",
    multiple=True,
    metavar="V,V...|LOW:HIGH:N",
    help="Values of the axis, again for the second: Gbit/s, ms, sequences, blocks, names of models, or times.",
)
@click.option("--between", type=click.Choice(BETWEEN), help="Which links change. [hosts]")
@click.option(
    "--system",
    "systems",
    multiple=True,
    shell_complete=system_names,
    help="Compare this one, again for each, or all; all that need no search where not given.",
)
@click.option("--assume", "assumed", multiple=True, metavar="SYSTEM.NAME=VALUE", help="Compare it with this, too.")
@click.option("--precision", type=float, help="Crossings are bracketed to this share of their value. [0.05]")
@click.option("--mathematics", is_flag=True, help="Systems that change the training's mathematics may be the fastest.")
@gathered(STRATEGIES, into="budget")
@executor_option
@file_option("-o", "--output", help=f"Write the figure or the table to this file: {', '.join(ENDINGS)}.")
@json_option
def crossings_command(
    topology: Topology,
    job: Job,
    over: tuple[str, ...],
    values: tuple[str, ...],
    between: str | None,
    systems: tuple[str, ...],
    assumed: tuple[str, ...],
    precision: float | None,
    mathematics: bool,
    budget: dict[str, Any],
    executor: str | None,
    output: str | None,
    as_json: bool,
) -> None:
    """Say at which bandwidth, latency, batch or size of the model which system is fastest on TOPOLOGY."""
    _check(output)
    axes = list(over) or ["bandwidth"]
    if len(values) > len(axes):
        raise click.UsageError(f"--values is given {len(values)} times for {len(axes)} axes; wanted once for each")
    asked: list[Any] | None = None
    if systems or assumed:
        names = list(strategies) if systems == ("all",) else list(systems)
        asked = [*(names if systems else default_systems()), *variants_of(assumed)]
    given = {"between": between, "precision": precision}
    options = {name: value for name, value in given.items() if value is not None} | budget
    read = {axis: _values(axis, text) for axis, text in zip(axes, values, strict=False)}

    def described(found: Crossings) -> str:
        return f"of {found.total}  {found.latest}"

    with growing_progress("crossings", described) as show:
        found = lab.crossings(
            topology,
            job,
            over=axes,
            values=read or None,
            systems=asked,
            mathematics=mathematics,
            executor=executor,
            progress=show,
            **options,
        )
    _write(found, output, "crossings")
    if as_json:
        print_json(found.to_dict())
    else:
        print_crossings(found)
    _end(found.finished)


@cli.command("codesign")
@job_options
@click.option(
    "--knob", "knobs", multiple=True, type=click.Choice(list(KNOBS)), help="Turn this one, again for each. [all]"
)
@click.option(
    "--plan", "plan_file", type=click.Path(), help="A plan file of TOPOLOGY to turn the knobs of, for its job."
)
@gathered(CODESIGN, into="settings")
@file_option("-o", "--output", help=f"Write the figure or the table to this file: {', '.join(ENDINGS)}.")
@json_option
def codesign_command(
    topology: Topology,
    job: Job,
    knobs: tuple[str, ...],
    plan_file: str | None,
    settings: dict[str, Any],
    output: str | None,
    as_json: bool,
) -> None:
    """Say which batch, width, sequence, compression, rarer averaging or bandwidth makes TOPOLOGY compute-bound: an
    iteration of which at least half, or --target, would remain were every message free."""
    _check(output)
    plan = None if plan_file is None else files.load_plan(plan_file)

    def described(found: CoDesign) -> str:
        return f"designs  {found.latest}"

    with growing_progress("codesign", described) as show:
        found = lab.codesign(topology, job, knobs=list(knobs) or None, plan=plan, progress=show, **settings)
    _write(found, output, "codesign")
    if as_json:
        print_json(found.to_dict())
    else:
        print_codesign(found)
    _end(found.finished)


def print_codesign(found: CoDesign) -> None:
    """The plan, a table of the least designs that suffice, what each knob changes of the training, and the sentence."""
    out.print(repr(found.plan))
    print_table(found.brief_frame()[DESIGN_COLUMNS])
    for name, reason in found.skipped.items():
        out.print(Text(f"{name} stops there: {reason}", style="yellow"))
    for name, words in found.mathematics.items():
        out.print(Text(f"{name}: {words}", style="yellow"))
    out.print(f"{found.sentence}.")


def print_crossings(found: Crossings) -> None:
    """A row for each value that was asked for, a column for each system, and the sentence."""
    frame = found.to_frame()
    rows = frame[~frame["refined"].astype(bool)]
    table = rows.pivot_table(index=list(found.over), columns="system", values="iteration_s", dropna=False)
    table = table.reindex(columns=[one.label for one in found.systems])
    table.columns = [f"{label}_s" for label in table.columns]
    shown = table.reset_index()
    print_table(shown.rename(columns={a.name: f"{a.name} ({a.unit})" for a in found.axes}))
    reasons = rows[rows["reason"] != ""].drop_duplicates("system")
    for _, row in reasons.iterrows():
        where = ", ".join(axis.text(row[axis.name]) for axis in found.axes)
        out.print(Text(f"{found.headings[row['system']]} has no plan at {where}: {row['reason']}", style="red"))
    for one in found.crossings:
        axis = found.axes[0]
        between = f"{axis.text(one.low)} and {axis.text(one.high)}"
        out.print(f"{found.name_of(one.before)} until {axis.text(one.value)} (between {between})")
    out.print(f"{found.sentence}.")


def _values(axis: str, text: str) -> Any:
    """The values of an option's text; a range as the tuple that ``lab.crossings`` takes. Raises UsageError."""
    if axis == "model":
        return [name.strip() for name in text.split(",") if name.strip()]
    try:
        if ":" in text:
            low, high, n = text.split(":")
            return float(low), float(high), int(n)
        return [float(number) for number in text.split(",") if number.strip()]
    except ValueError:
        raise click.UsageError(f"--values is {text!r}; wanted numbers, such as 0.1,1,10 or 0.1:10:9") from None


def _check(output: str | None) -> None:
    if output is not None:
        ending_of(output, ENDINGS)


def _write(found: WritableResult, output: str | None, drawn_by: str) -> None:
    """Write the figure, the table or the plain values, as the file's name ends."""
    if output is None:
        return
    ending = ending_of(output, ENDINGS)
    if ending == ".csv":
        write_text(output, found.to_frame().to_csv(index=False))
    elif ending == ".json":
        write_text(output, json.dumps(found.to_dict(), indent=1))
    else:
        from dtfm_lab import figures  # plotly takes a while to load

        figure = getattr(figures, drawn_by)(found)
        if ending == ".html":
            write_text(output, figure.to_html())
        else:
            figures.save(figure, Path(output))


def _end(finished: bool) -> None:
    if not finished:
        err.print("stopped; what was computed is kept")
        sys.exit(130)
