"""What notebooks weigh when they are kept: plain in the repository, and saved with what a reader ran."""

import json
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="notebooks are read by nbformat")
nbclient = pytest.importorskip("nbclient", reason="notebooks are run by nbclient")
pytest.importorskip("anywidget", reason="the views need anywidget")

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
SAVED_BYTES = 200_000

EVERY_VIEW = [
    "import dtfm_lab as lab\nfrom dtfm_lab.widgets.view import View",
    "bench = lab.Lab('worldwide')\nbench",
    "bench.bench.plan = lab.plan(bench.topology, bench.job, planner='random', seconds=0.2, seed=0)",
    "def views(widget):\n"
    "    inside = [view for child in getattr(widget, 'children', ()) for view in views(child)]\n"
    "    return [widget] if isinstance(widget, View) else inside",
    "for view in views(bench):\n    display(view)\nlen(views(bench))",
]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_repository_keeps_no_output_and_no_state(path):
    kept = nbformat.read(path, nbformat.NO_CONVERT)
    assert all(not cell.outputs for cell in kept.cells if cell.cell_type == "code")
    assert "widgets" not in kept.metadata
    assert path.stat().st_size < SAVED_BYTES


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
