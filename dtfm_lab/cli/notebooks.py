"""The command that copies the lessons out of the installed package, to be worked in."""

import shutil
from pathlib import Path

import click

from dtfm_lab.cli.options import cli, json_option
from dtfm_lab.cli.terminal import out, print_json
from dtfm_lab.domain.errors import FileError

FIRST = "00_tour.ipynb"
LINKS = {"](../docs/": "](docs/", "](../notebooks/": "](../"}
"""Beginnings of links between lessons and pages, as they are in the repository and in a folder of lessons."""


@cli.command("notebooks")
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
