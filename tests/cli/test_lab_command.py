"""``dtfm-lab lab --copy``: the lessons and their pages in a folder of the reader's, whose work is not overwritten."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

from dtfm_lab.cli import machine

Shell = Callable[..., tuple[int, str, str]]
Said, Told = Callable[..., str], Callable[..., Any]
ROOT = Path(__file__).parents[2]
LOADED = "('dtfm_lab.widgets' in __import__('sys').modules, 'dtfm_lab' in globals())"
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


def test_a_kernel_of_the_lab_has_loaded_it_before_the_first_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(machine.KERNELS))
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        answer = client.execute_interactive("", user_expressions={"loaded": LOADED}, timeout=60, store_history=False)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert answer["content"]["user_expressions"]["loaded"]["data"]["text/plain"] == "(True, False)"


# ``dtfm-lab lab --app``: mistakes are said before anything is served. What it serves is looked at in tests/browser


def test_a_network_that_nobody_knows_is_refused(refuses):
    pytest.importorskip("voila", reason="the page needs voila")
    line = refuses("'atlantis'", "lab", "--app", "atlantis", "--no-browser")
    assert "lecture-hall" in line


def test_without_voila_it_says_what_to_install(refuses, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    refuses("pip install 'dtfm_lab[app]'", "lab", "--app")


def test_a_port_is_a_number_of_a_port(refuses):
    refuses("70000 is not in the range 1<=x<=65535", "lab", "--app", "--port", "70000")


@pytest.mark.parametrize("ip", ["203.0.113.5", "no.such.host.invalid"])
def test_an_address_of_another_machine_is_refused(refuses, ip):
    pytest.importorskip("voila", reason="the page needs voila")
    line = refuses(f"no page can be served on '{ip}'", "lab", "--app", "lecture-hall", "--no-browser", "--ip", ip)
    assert "wanted an address of this machine" in line


def test_what_visitors_draw_is_kept_in_a_folder_of_the_page(tmp_path):
    pytest.importorskip("voila", reason="the page needs voila")
    from dtfm_lab.cli.app import notebook_of

    (cell,) = notebook_of("worldwide", tmp_path)["cells"]
    assert cell["source"].endswith(f"lab.Lab('worldwide', autosave=Path('{tmp_path}'))")


def test_how_long_a_kernel_waits_is_a_number_of_seconds(refuses, monkeypatch):
    pytest.importorskip("voila", reason="the page needs voila")
    monkeypatch.setenv("DTFM_LAB_AWAY_S", "soon")
    refuses("DTFM_LAB_AWAY_S is 'soon'; wanted seconds from 1 to 86400", "lab", "--app", "lecture-hall", "--no-browser")
