"""What notebooks weigh when they are kept: plain in the repository, and saved with what a reader ran."""

import json
from pathlib import Path

import pytest

import dtfm_lab as lab

nbformat = pytest.importorskip("nbformat", reason="notebooks are read by nbformat")
nbclient = pytest.importorskip("nbclient", reason="notebooks are run by nbclient")
pytest.importorskip("anywidget", reason="the views need anywidget")

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
SAVED_BYTES = 200_000

SAVED_FIGURE_KB = {
    "network": 52,
    "network_map": 50,
    "plan_map": 52,
    "link_matrix": 60,
    "five_steps": 80,
    "matching": 23,
    "coarse_graph": 27,
    "cost_breakdown": 12,
    "convergence": 13,
    "gantt": 72,
    "side_by_side": 31,
    "bubble": 19,
    "memory_over_time": 74,
}
"""of 64 devices, 8 x 8; a figure of such a plan must leave room for others in its notebook"""

EVERY_VIEW = [
    "import dtfm_lab as lab\nfrom dtfm_lab.widgets.views.view import View",
    "the_lab = lab.Lab('worldwide')\nthe_lab",
    "the_lab.lab_state.plan = lab.plan(the_lab.topology, the_lab.job, planner='random', seconds=0.2, seed=0)",
    "def views(widget):\n"
    "    inside = [view for child in getattr(widget, 'children', ()) for view in views(child)]\n"
    "    return [widget] if isinstance(widget, View) else inside",
    "for view in views(the_lab):\n    display(view)\nlen(views(the_lab))",
]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_repository_keeps_no_output_and_no_state(path):
    kept = nbformat.read(path, nbformat.NO_CONVERT)
    assert all(not cell.outputs for cell in kept.cells if cell.cell_type == "code")
    assert "widgets" not in kept.metadata
    assert path.stat().st_size < SAVED_BYTES


def saved_kb(figure):
    """Of a notebook with nothing but this figure in it, as Jupyter writes it down."""
    data = {"application/vnd.plotly.v1+json": json.loads(figure.to_json())}
    cell = nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("display_data", data)])
    return len(nbformat.writes(nbformat.v4.new_notebook(cells=[cell])).encode()) / 1000


@pytest.fixture(scope="module")
def figures_of_64():
    world = lab.load_topology("worldwide")
    job = lab.load_job("gpt3-xl", n_stages=8, n_replicas=8, global_batch=128, microbatch=1)
    plan = lab.evaluate(world, job, stages=[list(range(stage, 64, 8)) for stage in range(8)])
    ahead, early = (lab.simulate(plan, schedule) for schedule in ("gpipe", "1f1b"))
    search = list(lab.search(world, job, planner="dtfm", objective="communication", seed=0, steps=2000))
    draw = lab.figures
    return {
        "network": draw.network(world, plan),
        "network_map": draw.network_map(world),
        "plan_map": draw.plan_map(plan),
        "link_matrix": draw.link_matrix(world),
        "five_steps": draw.five_steps(plan),
        "matching": draw.matching(plan, 0),
        "coarse_graph": draw.coarse_graph(plan),
        "cost_breakdown": draw.cost_breakdown(plan),
        "convergence": draw.convergence(search, diversity=True, log=False),
        "gantt": draw.gantt(early, lanes=["compute"]),
        "side_by_side": draw.side_by_side([ahead, early]),
        "bubble": draw.bubble(early),
        "memory_over_time": draw.memory_over_time(lab.memory(plan, trace=ahead)),
    }


@pytest.mark.parametrize("name", SAVED_FIGURE_KB)
def test_a_saved_figure_of_64_devices_is_small(figures_of_64, name):
    assert saved_kb(figures_of_64[name]) < SAVED_FIGURE_KB[name]


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
