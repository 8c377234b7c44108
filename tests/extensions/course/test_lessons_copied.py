"""``dtfm-lab lab --copy``: the lessons and their pages in a folder of the reader's, whose work is not overwritten."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dtfm_lab.cli import machine

Shell = Callable[..., tuple[int, str, str]]
Said, Told = Callable[..., str], Callable[..., Any]
ROOT = Path(__file__).parents[3]
LESSONS = sorted(path.name for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))


def test_all_lessons_are_copied_and_their_links_lead_somewhere(shell: Shell) -> None:
    status, said, err = shell("lab", "--copy", "lessons")
    assert (status, err) == (0, "")
    assert f"{len(LESSONS)} lessons are in lessons; open the first with: cd lessons && dtfm-lab lab" in said
    assert sorted(path.name for path in Path("lessons").glob("*.ipynb")) == LESSONS
    for path in Path("lessons").glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        prose = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        links = [link for link in re.findall(r"\]\(([^)#\s]+)", prose) if "://" not in link]
        assert [link for link in links if not (path.parent / link).exists()] == []


def test_what_a_reader_worked_in_is_overwritten_only_when_asked(tells: Told, refuses: Said) -> None:
    tells("lab", "--copy", "lessons")
    Path("lessons/00_tour.ipynb").write_text("mine")
    refuses("00_tour.ipynb is there already; wanted another folder, or --force", "lab", "--copy", "lessons")
    assert Path("lessons/00_tour.ipynb").read_text() == "mine"
    assert tells("lab", "--copy", "lessons", "--force")["lessons"] == LESSONS
    assert Path("lessons/00_tour.ipynb").read_text() != "mine"


def test_a_folder_that_cannot_be_written_is_one_line(refuses: Said) -> None:
    Path("taken").write_text("a file")
    refuses("dtfm-lab: taken: cannot be written: ", "lab", "--copy", "taken")


def test_the_lab_opens_on_the_lessons_of_the_folder_that_it_is_called_in(shell: Shell) -> None:
    assert machine.where_to_open(Path.cwd(), checkout=Path("nowhere")) == []
    shell("lab", "--copy", ".")
    assert machine.where_to_open(Path.cwd(), checkout=ROOT) == ["--LabApp.default_url=/lab/tree/00_tour.ipynb"]
    Path("00_tour.ipynb").unlink()
    [root, url] = machine.where_to_open(Path.cwd(), checkout=ROOT)
    assert root == f"--ServerApp.root_dir={ROOT}"
    assert url == "--LabApp.default_url=/lab/tree/notebooks/00_tour.ipynb"
