"""Commands about the course: its lessons as notebooks and slides, and missions with assignments and marks."""

import importlib.util
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from dtfm_lab import lab
from dtfm_lab.cli.options import json_option
from dtfm_lab.cli.terminal import err, out, print_json, print_rows
from dtfm_lab.domain.errors import FileError, MissingExtra
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import plain_rows
from dtfm_lab.extensions.course import exam
from dtfm_lab.extensions.course.api import LESSONS
from dtfm_lab.extensions.course.deck import deck_of
from dtfm_lab.extensions.course.graded import read_key, read_students, variant_of
from dtfm_lab.extensions.course.pack import pack
from dtfm_lab.extensions.course.teaching import Own, assignment
from dtfm_lab.files.reading import explained, shipped, write_text
from dtfm_lab.simulation.task_runner import usable_cores

LINKS = {"](../docs/": "](docs/", "](../notebooks/": "](../"}
"""Beginning of a link between lessons and pages in the repository -> its beginning in a folder to which lessons were
copied."""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite lessons that are there, with what was worked in them.")
@json_option
def copy_notebooks(folder: Path, force: bool, as_json: bool) -> None:
    """Copy the lessons to FOLDER, and the pages that they link to FOLDER/docs."""
    lessons = {path: folder / path.name for path in sorted(shipped("notebooks").glob("[0-9]*.ipynb"))}
    pages = {path: folder / "docs" / path.name for path in sorted(shipped("docs").glob("*.md"))}
    pages |= {path: folder / "docs" / "pictures" / path.name for path in shipped("docs").glob("pictures/*.svg")}
    if not force and (there := [target.name for target in lessons.values() if target.exists()]):
        raise FileError(f"{folder}: {there[0]} is there already; wanted another folder, or --force to overwrite it")
    with explained(str(folder)):
        (folder / "docs" / "pictures").mkdir(parents=True, exist_ok=True)
        for source, target in (lessons | pages).items():
            shutil.copyfile(source, target)
            target.write_text(relinked(target.read_text(encoding="utf-8")), encoding="utf-8")
    if as_json:
        return print_json({"folder": str(folder), "lessons": [path.name for path in lessons]})
    out.print(f"{len(lessons)} lessons are in {folder}; open the first with: cd {folder} && dtfm-lab lab")


def relinked(text: str) -> str:
    """Return the text of a copied lesson or page with links that lead to the copies."""
    for before, after in LINKS.items():
        text = text.replace(before, after)
    return text


@click.group("missions", invoke_without_command=True)
@click.option("--lesson", help="Only of this lesson, such as 02_network.")
@json_option
@click.pass_context
def missions_group(context: click.Context, lesson: str | None, as_json: bool) -> None:
    """Print the board, as `dtfm-lab show missions` does. The commands below make graded work and mark it."""
    if context.invoked_subcommand is None:
        print_board(lesson, as_json)


@click.command()
@json_option
def show_missions(as_json: bool) -> None:
    """Show the board of the course: every mission, and what you have done."""
    print_board(None, as_json)


def print_board(lesson: str | None, as_json: bool) -> None:
    """Print every mission, and what the reader has done."""
    board = lab.missions.board(lesson)
    if as_json:
        return print_json({"reader": lab.missions.reader(), "missions": plain_rows(board)})
    rows = []
    for row in board.itertuples():
        passed, shown = "yes" if row.passed else "", "looked at" if row.answer_shown else ""
        rows.append((row.lesson, row.mission, row.title, row.minutes, passed, row.tries, row.hints, shown))
    print_rows(("lesson", "mission", "title", "min", "passed", "tries", "hints", "answer"), rows)
    out.print(f"{int(board['passed'].sum())} of {len(board)} passed by {lab.missions.reader()}")


KEY = click.option(
    "--key", "key_path", type=click.Path(dir_okay=False, path_type=Path), help="File of the class's secret key."
)
STUDENTS = click.option(
    "--students",
    "students_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of the students' names, one a line.",
)


@missions_group.command("assignment")
@click.argument("lesson")
@click.option("-o", "--output", "folder", required=True, type=click.Path(path_type=Path), help="Folder to write to.")
@click.option("--hints/--no-hints", default=True, help="Whether hints are given; worked answers never are.")
@KEY
@STUDENTS
def assignment_command(
    lesson: str, folder: Path, hints: bool, key_path: Path | None, students_path: Path | None
) -> None:
    """Write LESSON's missions as graded work: a notebook for students, and source/ with answers for nbgrader.

    With --key and --students, each student gets a notebook with different numbers. They cannot be computed from the
    names without the key. The key is made if it is missing.
    """
    own = _variants(lesson, key_path, students_path)
    source = {f"source/{lesson}/{lesson}.ipynb": assignment(lesson, solved=True, hints=hints)}
    release = {f"release/{lesson}/{lesson}.ipynb": assignment(lesson, solved=False, hints=hints)}
    if own:
        release = {
            f"release/{lesson}/{each.reader}.ipynb": assignment(lesson, solved=False, hints=hints, own=each)
            for each in own
        }
    for name, notebook in (source | release).items():
        _write(folder / name, json.dumps(notebook, indent=1) + "\n")
    for name in [*source, f"release/{lesson}/ ({len(own)} notebooks)"] if own else [*source, *release]:
        err.print(f"wrote {folder / name}")


def _variants(purpose: str, key_path: Path | None, students_path: Path | None) -> list[Own]:
    """Return each student with the text that seeds the student's numbers. Empty without a key and students. Raises
    UsageError if only one of them is given."""
    if key_path is None and students_path is None:
        return []
    if key_path is None or students_path is None:
        given, missing = ("--students", "--key") if key_path is None else ("--key", "--students")
        raise click.UsageError(f"{given} is given without {missing}; wanted both or neither")
    names = read_students(students_path)
    key = read_key(key_path, make=True)
    return [Own(name, variant_of(key, purpose, name)) for name in names]


def _write(path: Path, text: str, *, private: bool = False) -> None:
    """Write a file, and make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text, private=private)


@missions_group.command("exam")
@click.option("-o", "--output", "folder", required=True, type=click.Path(path_type=Path), help="Folder to write to.")
@KEY
@STUDENTS
def exam_command(folder: Path, key_path: Path | None, students_path: Path | None) -> None:
    """Write the exam to print: a sheet with different numbers for each student, and a page with the answers.

    The numbers follow from the names in --students and from --key, which is made if it is missing.
    """
    own = _variants("exam", key_path, students_path)
    if not own:
        raise click.UsageError("an exam is for somebody; wanted --key and --students")
    numbers = {each.reader: exam.numbers_of(each.variant) for each in own}
    for name, answers in (("exam.html", False), ("answers.html", True)):
        _write(folder / name, exam.printed(numbers, answers=answers), private=answers)
        err.print(f"wrote {folder / name}, {len(numbers)} sheets")


@missions_group.command("guesses")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "-o", "--output", default="guesses.html", show_default=True, type=click.Path(dir_okay=False, path_type=Path)
)
def guesses_command(folder: Path, output: Path) -> None:
    """Draw the guesses of a class as a page of histograms, to show before you explain the answers.

    FOLDER has the file of each reader, which lab.missions.export writes.
    """
    from dtfm_lab import figures  # plotly takes a while to load

    figure = figures.guesses(lab.missions.guesses(folder))
    write_text(output, figure.to_html(include_plotlyjs=True))
    err.print(f"wrote {output}")


@missions_group.command("gain")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-o", "--output", default="gain.html", show_default=True, type=click.Path(dir_okay=False, path_type=Path))
@json_option
def gain_command(folder: Path, output: Path, as_json: bool) -> None:
    """Draw how much a class learned between the tests of concepts before and after a course.

    FOLDER has the file of each reader, which lab.missions.export writes.
    """
    table = lab.missions.gain(folder)
    if as_json:
        return print_json({"concepts": plain_rows(table)})
    from dtfm_lab import figures  # plotly takes a while to load

    write_text(output, figures.gain(table).to_html(include_plotlyjs=True))
    err.print(f"wrote {output}")
    return None


@missions_group.command("pack")
@click.option("-o", "--output", "folder", required=True, type=click.Path(path_type=Path), help="Folder to write to.")
def pack_command(folder: Path) -> None:
    """Write the instructor's pack: worked answers, misconceptions, timing, the exam's answers, and a deck per lesson.

    Only your user can read the files.
    """
    for name, text in pack():
        _write(folder / name, text, private=True)
        err.print(f"wrote {folder / name}")


@missions_group.command("mark")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File of the marks, CSV.")
@click.option("--seconds", type=click.FloatRange(1), default=300.0, show_default=True, help="Longest for a notebook.")
@click.option(
    "--memory", type=click.FloatRange(1), default=4.0, show_default=True, help="Most GiB for a notebook's processes."
)
@click.option(
    "--at-once", type=click.IntRange(1), help="Notebooks that are executed at once; as many as cores if none."
)
@click.option(
    "--isolate/--no-isolate",
    default=True,
    help="Whether notebooks run without network, files to write and other processes, where Linux can do that.",
)
@KEY
@json_option
def mark_command(
    folder: Path,
    output: Path | None,
    seconds: float,
    memory: float,
    at_once: int | None,
    isolate: bool,
    key_path: Path | None,
    as_json: bool,
) -> None:
    """Execute every notebook in FOLDER, check its answers, and print or write the marks.

    FOLDER has NAME.ipynb for each student, or NAME/.../*.ipynb as nbgrader collects them. The file of the marks is
    written after each notebook, readable by you alone.
    """
    from dtfm_lab.extensions.course.marking.files import in_one_line
    from dtfm_lab.extensions.course.marking.folder import mark_folder, table

    key = None if key_path is None else read_key(key_path)
    rows: list[dict[str, Any]] = []
    marking = mark_folder(
        folder,
        seconds,
        key=key,
        at_once=at_once or usable_cores(),
        memory_bytes=int(memory * 2**30),
        isolate=isolate,
        hidden=tuple(path for path in (key_path, output) if path is not None),
    )
    for of_one in marking:
        rows += of_one
        if not of_one:
            err.print("not isolated: this machine gives no namespaces to this user; see docs/teach.md, Marks")
            continue
        if output is not None and (output.is_file() or not output.exists()):
            with suppress(FileError):  # a disk may be full for a while
                write_text(output, table(rows).to_csv(index=False), private=True)
        if not as_json:
            points, of = (sum(row[key] for row in of_one) for key in ("points", "of"))
            err.print(f"{in_one_line(of_one[0]['student'])}: {points} of {of} points")
    marks = table(rows)
    if output is not None:
        write_text(output, marks.to_csv(index=False), private=True)
        err.print(f"wrote {output}")
    if as_json:
        return print_json({"marks": plain_rows(marks)})
    if output is None:
        marked = (
            (*row[:2], f"{row.points} of {row.of}", row.tries, "yes" if row.answer_shown is True else "", row.reason)
            for row in marks.itertuples(index=False)
        )
        print_rows(("student", "mission", "points", "tries", "answer shown", "reason"), marked)
    return None


@click.command()
@click.argument("lesson")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File, LESSON.slides.html if none."
)
@click.option("--execute", is_flag=True, help="Execute the lesson first, where its notebook has no outputs.")
def slides_command(lesson: str, output: Path | None, execute: bool) -> None:
    """Make slides of LESSON, such as 02_network, or of any notebook. They are one file that needs no network."""
    path = _notebook(lesson)
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        found = isinstance(notebook["cells"], list)
    except (OSError, ValueError, KeyError, TypeError):
        found = False
    if not found:
        raise FileError(f"{path}: no notebook; wanted one in Jupyter's format")
    if execute:
        err.print(f"executing {path.name}")
        notebook = _executed(path)
    target = output or Path(f"{path.stem}.slides.html")
    write_text(target, deck_of(notebook))
    err.print(f"wrote {target}")


def _executed(path: Path) -> dict[str, Any]:
    """Return a notebook after all its cells were run, with every answer shown."""
    if importlib.util.find_spec("nbclient") is None:
        raise MissingExtra("--execute needs nbclient, which comes with jupyterlab: pip install 'dtfm_lab[lab]'")
    import nbclient  # both take a while to load
    import nbformat

    book = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    resources = {"metadata": {"path": str(path.parent)}}
    shown = os.environ | {"DTFM_LAB_REVEAL": "1"}
    client = nbclient.NotebookClient(book, timeout=300, kernel_name="python3", resources=resources)
    client.execute(env=shown)
    executed: dict[str, Any] = json.loads(nbformat.writes(book))  # type: ignore[no-untyped-call]
    return executed


def _notebook(lesson: str) -> Path:
    if lesson.endswith(".ipynb"):
        return Path(lesson)
    if lesson not in LESSONS:
        raise unknown("lesson", lesson, LESSONS)
    if (path := shipped("notebooks") / f"{lesson}.ipynb").exists():
        return path
    raise FileError(f"{path} is not there; wanted a lesson that is, or the path of a notebook")
