"""Commands about missions: the board, assignments in nbgrader's format, and their marks."""

import json
from pathlib import Path

import click
from pandas import DataFrame
from rich.table import Table
from rich.text import Text

from dtfm_lab import lab
from dtfm_lab.cli.options import cli, json_option
from dtfm_lab.cli.terminal import err, out, print_json
from dtfm_lab.course.assignment import assignment
from dtfm_lab.domain.units import plain_rows
from dtfm_lab.files.reading import write_text


@cli.group("missions", invoke_without_command=True)
@click.option("--lesson", help="Only of this lesson, such as 02_network.")
@json_option
@click.pass_context
def missions_group(context: click.Context, lesson: str | None, as_json: bool) -> None:
    """The board: every mission, and what you have done. Also assignments, and their marks."""
    if context.invoked_subcommand is not None:
        return None
    board = lab.missions.board(lesson)
    if as_json:
        return print_json({"reader": lab.missions.reader(), "missions": plain_rows(board)})
    table = Table("lesson", "mission", "title", "min", "passed", "tries", "hints", "answer", box=None)
    for row in board.itertuples():
        passed, shown = "yes" if row.passed else "", "looked at" if row.answer_shown else ""
        cells = (row.lesson, row.mission, row.title, row.minutes, passed, row.tries, row.hints, shown)
        table.add_row(*(Text(str(cell)) for cell in cells))
    out.print(table)
    return out.print(f"{int(board['passed'].sum())} of {len(board)} passed by {lab.missions.reader()}")


@missions_group.command("assignment")
@click.argument("lesson")
@click.option("-o", "--output", "folder", required=True, type=click.Path(path_type=Path), help="Folder to write to.")
def assignment_command(lesson: str, folder: Path) -> None:
    """Write LESSON's missions as an assignment: a notebook for students, and source/ with answers for nbgrader."""
    for name, solved in ((f"source/{lesson}/{lesson}.ipynb", True), (f"release/{lesson}/{lesson}.ipynb", False)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(assignment(lesson, solved=solved), indent=1) + "\n")
        err.print(f"wrote {path}")


@missions_group.command("mark")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File of the marks, CSV.")
@click.option("--seconds", type=click.FloatRange(1), default=300.0, show_default=True, help="Longest for a notebook.")
@json_option
def mark_command(folder: Path, output: Path | None, seconds: float, as_json: bool) -> None:
    """Execute every notebook in FOLDER, check its answers, and print or write the marks.

    FOLDER has NAME.ipynb for each student, or NAME/.../*.ipynb as nbgrader collects them.
    """
    from dtfm_lab.cli.marking import mark_folder  # nbclient takes a while to load
    from dtfm_lab.cli.marking.marks import with_equal_answers

    rows = []
    for of_one in mark_folder(folder, seconds):
        rows += of_one
        if not as_json:
            points, of = (sum(row[key] for row in of_one) for key in ("points", "of"))
            err.print(f"{of_one[0]['student']}: {points} of {of} points")
    marks = with_equal_answers(rows)
    if output is not None:
        write_text(output, marks.to_csv(index=False))
        err.print(f"wrote {output}")
    if as_json:
        return print_json({"marks": plain_rows(marks)})
    return None if output is not None else _print_marks(marks)


def _print_marks(marks: DataFrame) -> None:
    table = Table("student", "mission", "points", "reason", "same as", box=None)
    for row in marks.itertuples():
        cells = (row.student, row.mission, f"{row.points} of {row.of}", row.reason, row.same_as)
        table.add_row(*(Text(str(cell)) for cell in cells))
    out.print(table)
