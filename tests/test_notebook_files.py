"""Lessons in the repository: as they run now, with light still pictures; and what a reader's saved notebook weighs."""

import ast
import base64
import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="notebooks are read by nbformat")
nbclient = pytest.importorskip("nbclient", reason="notebooks are run by nbclient")
pytest.importorskip("anywidget", reason="the views need anywidget")

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SOURCES = ROOT / "tools" / "lessons"
SAVED_BYTES = 200_000
KEPT_BYTES = 300_000
"""of a lesson in the repository, with its still pictures"""
MACHINE = r"(?<![\w.])/(home|root|Users|work|tmp|var|private)/|[A-Z]:\\+Users"
"""Where folders of a machine begin."""

EVERY_VIEW = [
    "import dtfm_lab as lab\nfrom dtfm_lab.widgets.views.view import View",
    "the_lab = lab.Lab('worldwide')\nthe_lab",
    "the_lab.lab_state.plan = lab.plan(the_lab.topology, the_lab.job, planner='random', seconds=0.2, seed=0)",
    "def views(widget):\n"
    "    inside = [view for child in getattr(widget, 'children', ()) for view in views(child)]\n"
    "    return [widget] if isinstance(widget, View) else inside",
    "for view in views(the_lab):\n    display(view)\nlen(views(the_lab))",
]


def code_cells(path):
    return [cell for cell in nbformat.read(path, nbformat.NO_CONVERT).cells if cell.cell_type == "code"]


def outputs_of(path):
    return [output for cell in code_cells(path) for output in shown_by(cell)]


def shown_by(cell):
    """What a cell shows, or would show after a guess."""
    return cell.metadata.get("dtfm_lab", {}).get("revealed", cell.outputs)


def test_every_lesson_is_kept_as_it_runs_now():
    """Its notebook holds the cells of its source, and what these cells showed when they ran."""
    checked = subprocess.run(
        [sys.executable, "-m", "tools.notebooks", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr[-500:]
    assert [path.stem for path in NOTEBOOKS] == sorted(path.stem for path in SOURCES.glob("[0-9]*.py"))


def test_the_folder_of_notebooks_shows_each_lesson_once():
    """JupyterLab lists what is in it: notebooks, and nothing that they are made of."""
    shown = subprocess.run(["git", "ls-files", "notebooks"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    if shown.returncode != 0:
        pytest.skip("not a clone")
    assert [name for name in shown.stdout.split() if not name.endswith(".ipynb")] == []
    for path in NOTEBOOKS:  # nor does an editor with jupytext write twins beside them
        assert "formats" not in nbformat.read(path, nbformat.NO_CONVERT).metadata.get("jupytext", {})


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_kept_notebook_is_light_and_has_no_state(path):
    kept = nbformat.read(path, nbformat.NO_CONVERT)
    assert "widgets" not in kept.metadata
    assert path.stat().st_size < KEPT_BYTES
    kinds = {kind for output in outputs_of(path) for kind in output.get("data", {})}
    assert kinds <= {"text/plain", "text/html", "text/markdown", "image/png"}
    assert "<script" not in "".join(str(output.get("data", {}).get("text/html", "")) for output in outputs_of(path))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_kept_notebook_ran_without_an_error(path):
    assert all(cell.execution_count for cell in code_cells(path) if has_code(cell.source))
    assert [output.ename for output in outputs_of(path) if output.output_type == "error"] == []
    said = "".join(output.get("text", "") for output in outputs_of(path))
    assert "Traceback" not in said


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_kept_notebook_shows_every_figure(path):
    """A cell that ends in a figure or in the lab has a picture that a reader without scripts sees."""
    without = [cell.source for cell in code_cells(path) if ends_in_a_figure(cell.source) and not pictures(cell)]
    assert without == []
    for cell in code_cells(path):
        for picture in pictures(cell):
            width, height = struct.unpack(">II", base64.b64decode(picture)[16:24])
            assert width > 400
            assert height > 100


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_kept_notebook_names_no_folder_of_a_machine(path):
    shown = [json.dumps({k: v for k, v in output.items() if k != "data"}) for output in outputs_of(path)]
    shown += [str(v) for output in outputs_of(path) for k, v in output.get("data", {}).items() if k != "image/png"]
    assert [line for line in shown if re.search(MACHINE, line)] == []


def has_code(source):
    return any(line.strip() and not line.strip().startswith("#") for line in source.splitlines())


def pictures(cell):
    found = [output.get("data", {}).get("image/png") for output in shown_by(cell)]
    return [picture for picture in found if picture]


def ends_in_a_figure(source):
    try:
        last = ast.parse(source).body[-1:]
    except SyntaxError:  # a cell that awaits, or a line for the shell
        return False
    text = ast.unparse(last[0].value) if last and isinstance(last[0], ast.Expr) else ""
    shown = text == "the_lab" or text.startswith(("lab.figures.", "lab.Lab("))
    return shown and not text.startswith("lab.figures.save(")


def test_a_saved_notebook_with_the_lab_and_every_view_is_small():
    cells = [nbformat.v4.new_code_cell(source) for source in EVERY_VIEW]
    book = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(book, timeout=90, kernel_name="python3", store_widget_state=False).execute()
    n_views = int(book.cells[-1].outputs[-1].data["text/plain"])
    assert n_views > 3
    shown = [output.data for output in book.cells[-1].outputs if output.output_type == "display_data"]
    assert len(shown) == n_views
    weights = [len(json.dumps(data)) for data in shown]
    assert len(nbformat.writes(book).encode()) < SAVED_BYTES, weights
