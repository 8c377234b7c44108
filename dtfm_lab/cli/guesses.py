"""The command about guesses: a reader's own with the score, or a class's as a histogram."""

import click
from pandas import DataFrame
from rich.table import Table
from rich.text import Text

from dtfm_lab import lab
from dtfm_lab.cli.options import cli, file_option, json_option
from dtfm_lab.cli.terminal import err, out, print_json
from dtfm_lab.course.guessing import NEAR, with_unit
from dtfm_lab.domain.units import plain_rows


@cli.command("guesses")
@click.argument("where", metavar="[FOLDER]", required=False, type=click.Path())
@file_option("-o", "--output", help="Draw a histogram a question into this file: .svg, .pdf or .png.")
@json_option
def guesses_command(where: str | None, output: str | None, as_json: bool) -> None:
    """A row a question: how many guessed, the median, the answer, and how many were near it.

    FOLDER holds the files of a class, one a reader, as `lab.missions.export` writes them; without it, your own.
    """
    found = lab.guesses(where)
    if output is not None:
        from dtfm_lab import figures  # plotly takes a while to load

        figures.save(figures.guesses(found), output)
        err.print(f"wrote {output}")
    if as_json:
        return print_json({"guesses": plain_rows(found)})
    if not len(found):
        return out.print("no guesses yet")
    table = Table("question", "readers", "median guess", "median answer", f"within a factor of {NEAR:.0f}", box=None)
    for name, rows in found.groupby("name", sort=False):
        table.add_row(*map(Text, _cells(str(name), rows)))
    out.print(table)
    return out.print(f"{int(found['near'].sum())} of {len(found)} within a factor of {NEAR:.0f}")


def _cells(name: str, rows: DataFrame) -> tuple[str, ...]:
    unit = str(rows["unit"].iloc[0])
    medians = [with_unit(float(rows[column].median()), unit) for column in ("guess", "answer")]
    return name, str(len(rows)), *medians, str(int(rows["near"].sum()))
