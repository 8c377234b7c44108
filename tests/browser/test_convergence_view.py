"""The live curve of a search alone in a cell."""

CONVERGENCE = """
import numpy as np
from dtfm_lab.widgets.views.convergence import ConvergenceView
curve = ConvergenceView(title="Search")
curve
"""


def test_the_curve_keeps_what_improved_and_the_newest(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [CONVERGENCE])
    page.get_by_text("No search yet").wait_for()
    ask_kernel(page, "curve.extend([[1, .1, 9, 2, 9], [2, .2, 9, 2, 9], [3, .3, 8, 2, 9], [4, .4, 8, 2, 9]])")
    ask_kernel(page, "curve.extend([[5, .5, 8, 3, 9], [6, .6, 8, 3, 9]])")
    ask_kernel(page, "curve.extend([[1, .1, 7, np.nan, np.nan]], series='random')")
    eventually(page, "curve.points['best'][:, 0].tolist()", [1.0, 3.0, 5.0, 6.0])
    page.wait_for_selector(".dtfm-convergence[data-points='5']")
    page.get_by_role("button", name="x: linear").click()  # few evaluations are read on a linear axis
    assert page.get_by_role("button", name="x: log").is_visible()


def test_a_late_view_is_sent_every_point_and_a_long_search_is_read_on_a_logarithmic_axis(page, open_notebook):
    more = "curve.extend([[1, .1, 9, 2, 9], [30_000, .3, 8, 2, 8.5]])"
    open_notebook(page, [CONVERGENCE, more, "curve"])
    page.wait_for_function("() => document.querySelectorAll(\".dtfm-convergence[data-points='2']\").length === 2")
    assert page.get_by_title("of the population").first.is_visible()
    page.get_by_role("button", name="x: log").first.wait_for()
    page.get_by_role("button", name="seconds").first.click()
    page.get_by_role("button", name="x: linear").first.wait_for()


PANEL = """
import time
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner.plan_panel import PlanPanel
import dtfm_lab as lab
the_lab = LabState(topology=lab.load_topology("volunteers"))
panel = PlanPanel(the_lab, lab.load_job("dtfm-gpt3-xl", n_stages=4, n_replicas=6))
panel.real.seconds.value = 60
panel.mode.value = "Real"
import ipywidgets as w
from dtfm_lab.widgets import markup
panel.view.add_class("dtfm-pane")
box = w.VBox([w.HTML(f"<style>{markup.CSS}</style>"), panel.view])
box.add_class("dtfm-lab")  # the pane gives the curve its height
box
"""
FRAMES = """async () => {
    const view = document.querySelector(".dtfm-convergence[data-points]:not([data-points='0'])");
    const before = Number(view.dataset.drawn ?? 0);
    const began = performance.now();
    let frames = 0;
    const drawn = () => Number(view.dataset.drawn ?? 0) - before;
    const over = () => performance.now() - began >= (drawn() > 0 ? 3000 : 60000);
    await new Promise((done) => {
        const tick = () => { frames += 1; over() ? done() : requestAnimationFrame(tick); };
        requestAnimationFrame(tick);
    });
    const seconds = (performance.now() - began) / 1000;
    return [drawn() / seconds, frames / seconds, seconds];
}"""


def test_a_search_that_runs_is_drawn_and_ends_with_a_plan(page, open_notebook, ask_kernel, eventually):
    received = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: received.append(len(frame))))
    open_notebook(page, [PANEL])
    button = page.get_by_role("button", name="Plan", exact=True)
    button.wait_for()
    button.click()
    page.wait_for_selector(".dtfm-convergence[data-points]:not([data-points='0'])")
    received.clear()
    drawn_per_s, frames_per_s, seconds = page.evaluate(FRAMES)
    print(f"{drawn_per_s:.1f} drawn/s, {frames_per_s:.0f} frames/s, {sum(received) / seconds / 1e3:.1f} kB/s")
    assert 0 < drawn_per_s < 20  # 12 to 15 on a free machine, fewer on a busy one
    assert sum(received) < seconds * 40e3
    page.get_by_role("button", name="Stop").click()
    eventually(page, "the_lab.plan is not None", True)
