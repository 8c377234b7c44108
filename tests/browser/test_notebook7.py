"""Notebook 7, the other interface that Jupyter has: what it shares with JupyterLab is tested there."""

import pytest

pytest.importorskip("notebook", reason="this test needs Notebook 7")


def test_notebook_7_shows_the_lab_planned(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, ["import dtfm_lab as lab\nthe_lab = lab.Lab('lecture-hall')\nthe_lab"], ui="notebooks")
    page.locator(".dtfm-lab .dtfm-panes").first.wait_for()
    eventually(page, "the_lab.plan is not None", True)
    page.wait_for_selector(".dtfm-lab .dtfm-gantt:not([data-predicted='0'])")
    width = page.locator(".dtfm-lab").first.bounding_box()["width"]
    assert width > 900, "the notebook's full width"
