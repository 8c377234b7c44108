"""The command that makes slides of a lesson, by jupyter's own means."""

import importlib.util
from pathlib import Path

import click

from dtfm_lab.cli.notebooks import shipped
from dtfm_lab.cli.options import cli
from dtfm_lab.cli.terminal import err
from dtfm_lab.course import LESSONS
from dtfm_lab.course.slide_types import with_slides
from dtfm_lab.domain.errors import FileError, MissingExtra
from dtfm_lab.domain.registry import unknown
from dtfm_lab.files.reading import write_text


@cli.command("slides")
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
