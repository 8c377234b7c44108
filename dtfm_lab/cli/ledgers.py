"""The command that predicts what others measured, and lays the two beside each other."""

import sys

import click
from rich.table import Table
from rich.text import Text

from dtfm_lab import lab
from dtfm_lab.cli.options import cli, file_option, json_option
from dtfm_lab.cli.progress import growing_progress
from dtfm_lab.cli.terminal import out, print_json
from dtfm_lab.published import Group, Ledger, Row, sources
from dtfm_lab.published.ledger import check_ending
from dtfm_lab.published.ledger_html import number

STYLES = {"inside": "green", "known miss": "red", "miss": "bold red"}


class _ListingSources(click.Command):
    """Names the sources in its help; they are listed only then, because that loads plug-ins."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"Sources: {', '.join(sources)}.")


def _completed(_context: click.Context, _argument: click.Parameter, begun: str) -> list[str]:
    return [name for name in sources if name.startswith(begun)]


@cli.command(cls=_ListingSources)
@click.argument("names", nargs=-1, metavar="[SOURCE]...", shell_complete=_completed)
@click.option(
    "--own",
    type=click.Path(dir_okay=False),
    help="A CSV or JSON file of your own rows; docs/published.md has its columns.",
)
@click.option("--strict", is_flag=True, help="Exit with status 1 where a row leaves its band that is no known miss.")
@file_option("-o", "--output", help="Write the ledger to this file: .html, .md, .csv or .json.")
@json_option
def reproduce(names: tuple[str, ...], own: str | None, strict: bool, output: str | None, as_json: bool) -> None:
    """Predict what others measured, and lay each published number beside our prediction.

    All sources, or some by name, or the rows of your own file.
    """

    def described(row: Row) -> str:
        return f"{row.source}: {row.setting}, {row.quantity} {row.ratio:.3f}"

    if output is not None:
        check_ending(output)
    with growing_progress("reproduce", described) as show:
        ledger = lab.reproduce(*names, own=own, progress=show)
    if output is not None:
        ledger.save(output)
    if as_json:
        print_json(ledger.to_dict())
    else:
        print_ledger(ledger)
    if ledger.stopped:
        sys.exit(130)
    if strict and ledger.failures:
        sys.exit(1)


def print_ledger(ledger: Ledger) -> None:
    """A table for each group, what is missed in red, and a sentence about all."""
    name = ""
    titles = {source.name: source.title for source in ledger.sources}
    for group in ledger.groups:
        if group.source != name:
            name = group.source
            out.print(Text(f"\n{name}: {titles.get(name, name)}", style="bold"))
        print_group(group, [row for row in ledger.rows if (row.source, row.group, row.quantity) == group.key])
    if ledger.misses:
        out.print(Text("\nmisses", style="bold"))
    for row in ledger.misses:
        why = row.known_miss.reason if row.known_miss is not None else row.note or "no reason on record"
        out.print(
            Text(f"{row.source}, {row.setting}, {row.quantity} {row.error:+.1%}: {why}", style=STYLES[row.verdict])
        )
    out.print(f"\n{ledger.sentence}")


def print_group(group: Group, rows: list[Row]) -> None:
    """The heading and the rows of a group."""
    facts = [f"{group.inside} of {group.n} inside", f"mean error {group.mean_error:.1%}"]
    if group.their_mean_error is not None:
        facts.append(f"their own {group.their_mean_error:.1%}")
    if group.goal is not None:
        facts.append(f"goal {group.goal:.1%}")
    style = "green" if group.inside == group.n and group.reached else "red"
    out.print(Text.assemble(f"  {group.group}, {group.quantity}: ", (", ".join(facts), style)))
    theirs = any(row.theirs is not None for row in rows)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("   ", "published", "ours", "ratio", *(["theirs"] if theirs else []), "band"):
        table.add_column(heading, justify="left" if not heading.strip() else "right", overflow="fold")
    for row in rows:
        style = STYLES[row.verdict]
        unit = f" {row.unit}" if row.unit else ""
        their = [] if not theirs else ["" if row.theirs is None else f"{row.theirs / row.published:.3f}"]
        table.add_row(
            Text(f"    {row.setting}"),
            Text(number(row.published) + unit),
            Text(number(row.predicted)),
            Text(f"{row.ratio:.3f}", style=style),
            *(Text(each) for each in their),
            Text(str(row.band), style=style),
        )
    out.print(table)
