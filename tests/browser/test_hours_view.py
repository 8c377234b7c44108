"""The pane Hours on the page: a departure is dragged, added and taken back, and the network shows the moment."""

import pytest
from playwright.sync_api import expect

pytest.importorskip("dtfm_lab.extensions.elasticity")

CELL = """
import ipywidgets as w
import dtfm_lab as lab
from dtfm_lab.widgets import markup
from dtfm_lab.extensions.elasticity import pane as hours
from dtfm_lab.extensions.elasticity.pane import HoursPanel
from dtfm_lab.widgets.lab_state import LabState

hours.policies = ("goodput", "restart")
state = LabState(topology=lab.load_topology("lecture-hall"), job=lab.load_job("small"))
panel = HoursPanel(state)
panel.hours.value = 2
box = w.VBox([w.HTML(f"<style>{markup.CSS}</style>"), panel.view])
box.add_class("dtfm-lab")
panel.redo()
box
"""
AT_REST = "not panel._asked.is_running and len(panel.histories)"
LEAVES = "[end for device, _, end in panel.time_line.line.stays if device == 0][0]"


def test_a_departure_is_dragged_added_and_taken_back(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [CELL])
    eventually(page, AT_REST, 2)
    bars = page.locator(".dtfm-systems-rows button")
    expect(bars.first).to_contain_text("/s")
    page.locator(".dtfm-hours-chart .main-svg").first.wait_for()
    ends = page.locator(".dtfm-hours-end.dtfm-leaves")
    before = float(ask_kernel(page, f"print({LEAVES})"))
    box = ends.first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 30, y, steps=6)
    page.mouse.up()
    eventually(page, f"{LEAVES} < {before} - 100 and {AT_REST}", 2)
    expect(page.locator(".dtfm-hours-by-hand")).to_contain_text("Edited by hand")

    ends.first.focus()
    moved = float(ask_kernel(page, f"print({LEAVES})"))
    page.keyboard.press("ArrowRight")
    eventually(page, f"{LEAVES} > {moved}", True)
    expect(ends.first).to_be_focused()

    n_stays = int(ask_kernel(page, "print(len(panel.time_line.line.stays))"))
    page.keyboard.press("Delete")
    eventually(page, f"len(panel.time_line.line.stays) < {n_stays} and {AT_REST}", 2)
    rows = page.locator(".dtfm-hours-rows svg").bounding_box()
    page.mouse.dblclick(rows["x"] + rows["width"] * 0.5, rows["y"] + 8)
    eventually(page, f"{LEAVES} < panel.time_line.line.end_s * 0.7 and {AT_REST}", 2)
    eventually(page, "len(state.moment['absent']) > 0", True)
    page.get_by_role("button", name="Back to the trace").click()
    eventually(page, f"panel.time_line.edited is None and {AT_REST}", 2)
