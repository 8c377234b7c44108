"""What every view does: it follows the theme, and goes without a trace."""

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright").expect

VIEWS = """
import numpy as np
from dtfm_lab.widgets import (
    CandidatesView, ConvergenceView, DevicesView, GanttView, GroupsView, LossView, MapView, MatrixView, ResidualsView,
    TopologyEditor,
)

document = {
    "name": "flat",
    "devices": [{"name": "ada", "region": "", "gpu": "T4", "x": 0.0, "y": 0.0}],
    "regions": [], "between": [], "links": [], "default": {"latency_ms": 50.0, "bandwidth_gbps": 1.0},
}
editor = TopologyEditor(document=document, gpus=["T4"])
world = MapView(document=document)
matrix = MatrixView(document=document)
curve = ConvergenceView()
devices = DevicesView(devices=[{"name": "ada", "stage": 0, "stages": "0", "pipeline": 0, "region": ""}])
losses, residuals = LossView(), ResidualsView()
groups = GroupsView(
    groups=[{"stage": s, "devices": [f"d{s}"], "cost_s": 1.0} for s in range(3)],
    weights=[[0, 1, 2], [1, 0, 1], [2, 1, 0]],
    matchings=[[["d0", "d1", 1.0]], [["d1", "d2", 1.0]]],
)
table = CandidatesView(rows=[{"name": "gpipe"}])
gantt = GanttView()
gantt.set_predicted([0, 1], [1, 2], [0, 1], [0, 0], [0, 1], rows=["ada", "bob"], kinds=[
    {"name": "forward", "color": "#0072B2", "shades": ["#0072B2"], "edge": "", "message": False},
])
"""
SHOWN = ["editor", "world", "matrix", "curve", "groups", "table", "gantt", "devices", "losses", "residuals"]


def test_every_view_follows_the_theme(page, open_notebook, set_theme):
    open_notebook(page, [VIEWS, *SHOWN, "curve.extend([[1, .1, 9, 2, 9]])"])
    page.wait_for_selector(".dtfm-gantt[data-predicted='2']", timeout=90_000)
    colours = "() => [...document.querySelectorAll('.dtfm')].map((view) => getComputedStyle(view).backgroundColor)"
    label = "() => document.querySelector('.dtfm-stage')._cyreg.cy.getElementById('device:ada').style('color')"
    set_theme(page, "light")
    light = page.evaluate(colours), page.evaluate(label)
    set_theme(page, "dark")
    dark = page.evaluate(colours), page.evaluate(label)
    assert len(light[0]) == len(SHOWN)
    assert all(before != after for before, after in zip(light[0], dark[0], strict=True))
    assert light[1] != dark[1]


def test_views_go_without_a_trace(page, open_notebook):
    open_notebook(page, [VIEWS, *SHOWN])
    page.wait_for_selector(".dtfm-gantt", timeout=90_000)
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    expect(page.locator(".dtfm")).to_have_count(0)
    page.evaluate("() => window.jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Light' })")
    page.wait_for_timeout(800)  # the page fixture then finds no script error
