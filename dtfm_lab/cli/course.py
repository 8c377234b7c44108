"""Commands about the course: its lessons as notebooks and slides, and missions with assignments and marks."""

import importlib.util
import json
import shutil
from pathlib import Path

import click

from dtfm_lab import lab
from dtfm_lab.cli.options import cli, json_option
from dtfm_lab.cli.terminal import err, out, print_json, print_rows
from dtfm_lab.course import LESSONS
from dtfm_lab.course.teaching import assignment, with_slides
from dtfm_lab.domain.errors import FileError, MissingExtra
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import plain_rows
from dtfm_lab.files.reading import write_text

FIRST = "00_tour.ipynb"
LINKS = {"](../docs/": "](docs/", "](../notebooks/": "](../"}
"""Beginnings of links between lessons and pages, as they are in the repository and in a folder of lessons."""


@cli.command("lab --copy")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite lessons that are there, with what was worked in them.")
@json_option
def copy_notebooks(folder: Path, force: bool, as_json: bool) -> None:
    """Copy the lessons to FOLDER, and the pages that they link to FOLDER/docs."""
    lessons = {path: folder / path.name for path in sorted(shipped("notebooks").glob("[0-9]*.ipynb"))}
    pages = {path: folder / "docs" / path.name for path in sorted(shipped("docs").glob("*.md"))}
    if not force and (there := [target.name for target in lessons.values() if target.exists()]):
        raise FileError(f"{folder}: {there[0]} is there already; wanted another folder, or --force to overwrite it")
    try:
        (folder / "docs").mkdir(parents=True, exist_ok=True)
        for source, target in (lessons | pages).items():
            shutil.copyfile(source, target)
            target.write_text(relinked(target.read_text(encoding="utf-8")), encoding="utf-8")
    except OSError as error:
        raise FileError(f"{folder}: cannot be written: {error.strerror or error}") from None
    if as_json:
        return print_json({"folder": str(folder), "lessons": [path.name for path in lessons]})
    out.print(f"{len(lessons)} lessons are in {folder}; open the first with: cd {folder} && dtfm-lab lab")


def shipped(name: str) -> Path:
    """A folder of the repository: inside an installed package, next to the package in a checkout."""
    package = Path(__file__).parents[1]
    return package / name if (package / name).is_dir() else package.parent / name


def relinked(text: str) -> str:
    """The text of a lesson or a page, its links leading where the other one is copied."""
    for before, after in LINKS.items():
        text = text.replace(before, after)
    return text


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
    rows = []
    for row in board.itertuples():
        passed, shown = "yes" if row.passed else "", "looked at" if row.answer_shown else ""
        rows.append((row.lesson, row.mission, row.title, row.minutes, passed, row.tries, row.hints, shown))
    print_rows(("lesson", "mission", "title", "min", "passed", "tries", "hints", "answer"), rows)
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
    from dtfm_lab.cli.marking import mark_folder, with_equal_answers  # nbclient takes a while to load

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
    if output is None:
        marked = (
            (*row[:2], f"{row.points} of {row.of}", row.reason, row.same_as) for row in marks.itertuples(index=False)
        )
        print_rows(("student", "mission", "points", "reason", "same as"), marked)
    return None


@cli.command("export --slides")
@click.argument("lesson")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File, LESSON.slides.html if none."
)
@click.option("--execute", is_flag=True, help="Execute the lesson first, where its notebook has no outputs.")
@click.option("--reveal", metavar="PATH", help="Folder or address of reveal.js; without it, that of a network.")
def slides_command(lesson: str, output: Path | None, execute: bool, reveal: str | None) -> None:
    """Make slides of LESSON, such as 02_network, or of any notebook: a slide a heading, guesses before answers."""
    if importlib.util.find_spec("nbconvert") is None:
        raise MissingExtra("slides need nbconvert, which comes with jupyterlab: pip install 'dtfm_lab[lab]'")
    import nbformat  # both take a while to load
    from nbconvert.exporters import SlidesExporter
    from nbconvert.preprocessors import ExecutePreprocessor

    path = _notebook(lesson)
    try:
        found = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    except Exception:  # nbformat raises many kinds
        raise FileError(f"{path}: no notebook; wanted one in Jupyter's format") from None
    notebook = nbformat.from_dict(with_slides(found))  # type: ignore[no-untyped-call]
    where = {"metadata": {"path": str(path.parent)}}
    if execute:
        err.print(f"executing {path.name}")
        executing = ExecutePreprocessor(timeout=300, kernel_name="python3")  # type: ignore[no-untyped-call]
        executing.preprocess(notebook, where)
    exporter = SlidesExporter(reveal_scroll=True, exclude_input_prompt=True)  # type: ignore[no-untyped-call]
    exporter.exclude_output_prompt = True
    if reveal is not None:
        exporter.reveal_url_prefix = reveal.rstrip("/")
    text, _ = exporter.from_notebook_node(notebook, where)
    target = output or Path(f"{path.stem}.slides.html")
    write_text(target, text)
    err.print(f"wrote {target}")


def _notebook(lesson: str) -> Path:
    if lesson.endswith(".ipynb"):
        return Path(lesson)
    if lesson not in LESSONS:
        raise unknown("lesson", lesson, LESSONS)
    if (path := shipped("notebooks") / f"{lesson}.ipynb").exists():
        return path
    raise FileError(f"{path} is not there; wanted a lesson that is, or the path of a notebook")
