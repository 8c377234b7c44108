"""The live curve of a search alone in a cell."""

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright").expect

CONVERGENCE = """
import numpy as np
from dtfm_lab.widgets.convergence import ConvergenceView
curve = ConvergenceView(title="Search")
curve
"""


def test_the_curve_keeps_what_improved_and_the_newest(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [CONVERGENCE])
    page.get_by_text("No search yet").wait_for(timeout=90_000)
    ask_kernel(page, "curve.extend([[1, .1, 9, 2], [2, .2, 9, 2], [3, .3, 8, 2], [4, .4, 8, 2]])")
    ask_kernel(page, "curve.extend([[5, .5, 8, 3], [6, .6, 8, 3]])")
    ask_kernel(page, "curve.extend([[1, .1, 7, np.nan]], series='random')")
    eventually(page, "curve.points['best'][:, 0].tolist()", [1.0, 3.0, 5.0, 6.0])
    page.wait_for_selector(".dtfm-convergence[data-points='5']")
    page.get_by_role("button", name="x: linear").click()  # few evaluations are read on a linear axis
    assert page.get_by_role("button", name="x: log").is_visible()


def test_a_view_that_opens_late_is_sent_every_point(page, open_notebook):
    more = "curve.extend([[1, .1, 9, 2], [3, .3, 8, 2]])"
    open_notebook(page, [CONVERGENCE, more, "curve"])
    page.wait_for_function(
        "() => document.querySelectorAll(\".dtfm-convergence[data-points='2']\").length === 2", timeout=90_000
    )


def test_a_long_search_is_read_on_a_logarithmic_axis(page, open_notebook):
    open_notebook(page, [CONVERGENCE, "curve.extend([[1, .1, 9, 2], [30_000, .3, 8, 2]])"])
    page.get_by_role("button", name="x: log").wait_for(timeout=90_000)
