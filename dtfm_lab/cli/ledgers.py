"""The command that predicts what others measured, and lays the two beside each other."""

import sys
from collections.abc import Iterable

import click
from rich.table import Table
from rich.text import Text

from dtfm_lab import lab
from dtfm_lab.cli.options import cli, file_option, json_option
from dtfm_lab.cli.progress import growing_progress
from dtfm_lab.cli.terminal import out, print_json
from dtfm_lab.domain.errors import LabError
from dtfm_lab.published import Group, Ledger, Row, sources
from dtfm_lab.published import blind as blind_tests
from dtfm_lab.published.ledger import check_ending
from dtfm_lab.published.ledger_html import number
from dtfm_lab.published.tally import Tally

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
@click.option(
    "--blind",
    type=click.Path(dir_okay=False),
    help="A file of rows without measurements: predict them and seal the predictions with a hash (-o sealed.json).",
)
@click.option(
    "--open",
    "opened",
    nargs=2,
    type=click.Path(dir_okay=False),
    metavar="SEALED MEASURED",
    help="A sealed file and the measurements of its rows: check its hash and lay the two beside each other.",
)
@click.option("--strict", is_flag=True, help="Exit with status 1 where a row leaves its band that is no known miss.")
@file_option("-o", "--output", help="Write the ledger to this file: .html, .md, .csv or .json.")
@json_option
def reproduce(
    names: tuple[str, ...],
    own: str | None,
    blind: str | None,
    opened: tuple[str, str] | None,
    strict: bool,
    output: str | None,
    as_json: bool,
) -> None:
    """Lay each number that others published beside our prediction.

    All sources, or some by name, or the rows of your own file; or rows that you have measured and we have not seen.
    """
    if sum(map(bool, (names or own, blind, opened))) > 1:
        raise LabError("sources or --own, --blind and --open are given together; wanted one of them")
    if blind is not None:
        _seal(blind, output, as_json)
        return

    def described(row: Row) -> str:
        return f"{row.source}: {row.setting}, {row.quantity} {row.ratio:.3f}"

    if output is not None:
        check_ending(output)
    if opened is not None:
        ledger = blind_tests.opened(*opened)
    else:
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


def _seal(path: str, output: str | None, as_json: bool) -> None:
    """Predict rows without measurements, print the predictions and their hash, and write them sealed."""
    sealed = blind_tests.seal(path)
    if output is not None:
        blind_tests.save_sealed(sealed, output)
    if as_json:
        print_json(sealed)
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("setting", "quantity", "predicted", "90 % interval"):
        table.add_column(heading, justify="left" if heading == "setting" else "right", overflow="fold")
    for one in sealed["content"]["predictions"]:
        ends = "" if one["interval"] is None else " to ".join(map(number, one["interval"]))
        table.add_row(Text(one["setting"]), one["quantity"], f"{number(one['predicted'])} {one['unit']}", ends)
    out.print(table)
    out.print(f"sha256 {sealed['sha256']}")


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
    print_tallies("class of evidence", ledger.classes)
    print_tallies("what the headline counts", ledger.hard)
    omitted = sum(omission.n for _, omission in ledger.omitted)
    if omitted:
        out.print(f"\n{omitted} published rows are left out; -o ledger.md lists them with the reasons")
    out.print(Text(f"\n{ledger.headline}", style="bold"))
    out.print(ledger.sentence)


def print_tallies(heading: str, tallies: Iterable[Tally]) -> None:
    """Rows counted, what is missed in red."""
    table = Table(box=None, padding=(0, 2, 0, 0), title_justify="left")
    for name in (heading, "inside", "median error", "source's noise", "coverage"):
        table.add_column(name, justify="left" if name == heading else "right")
    for each in tallies:
        table.add_row(
            each.name,
            Text(f"{each.inside} of {each.n}", style="green" if each.inside == each.n else "red"),
            f"{each.median_error:.1%}",
            f"{100 * each.noise:.2g} %" if each.noise else "",
            "" if each.coverage is None else f"{each.coverage:.0%}",
        )
    if table.rows:
        out.print()
        out.print(table)


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
