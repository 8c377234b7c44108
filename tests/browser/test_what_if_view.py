"""What-ifs on the page: a slider by keyboard, pins and the file row."""

import re

from playwright.sync_api import expect

CELL = """
import ipywidgets as w
import dtfm_lab as lab
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.what_if import WhatIfPanel
from dtfm_lab.widgets.shell.workspace import Workspace

the_lab = LabState()
panel = WhatIfPanel(the_lab)
row = Workspace(the_lab, {"what_if": panel})
box = w.VBox([w.HTML(f"<style>{markup.CSS}</style>"), row.view, panel.view])
box.add_class("dtfm-lab")
box
"""
PLANNED = """
plan = lab.plan(lab.load_topology("lecture-hall"), lab.load_job("tiny"), steps=3)
the_lab.topology, the_lab.job, the_lab.plan = plan.topology, plan.job, plan
"""


def press(page, name):
    page.locator(".dtfm-lab button.jupyter-button", has_text=re.compile(rf"^\s*{name}\s*$")).last.click()


def test_a_slider_answers_is_pinned_saved_and_restored(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [CELL])
    slider = page.get_by_role("slider", name="Bandwidth of every link")
    expect(slider).to_be_disabled()
    ask_kernel(page, PLANNED)
    answer, numbers = page.locator(".dtfm-answer"), page.locator(".dtfm-what-if-numbers")
    expect(answer).to_contain_text("the plan as it is")
    expect(slider).to_be_enabled()
    expect(slider).to_have_attribute("aria-valuetext", "× 1")
    slider.focus()
    for _ in range(10):
        page.keyboard.press("ArrowLeft")
    eventually(page, "panel.setting.values['bandwidth'] < 1 and panel.last.setting == panel.setting", True)
    expect(numbers).to_contain_text("→")
    expect(answer).to_contain_text("+")
    eventually(page, "the_lab.note_of('what-if').startswith('Bandwidth × 0.')", True)
    press(page, "Pin this")
    expect(page.locator(".dtfm-pin-chip")).to_have_count(1)
    eventually(page, "len(panel.pins.pins)", 1)
    kept = ask_kernel(page, "print(panel.settings())")

    press(page, "Save")
    expect(page.get_by_text("saved as lab.json")).to_be_visible()
    page.locator(".dtfm-what-if button[title^='Reset all']").click()
    expect(answer).to_contain_text("the plan as it is")
    press(page, "Restore")
    expect(page.get_by_text("restored lecture-hall, its plan")).to_be_visible()
    eventually(page, f"panel.settings() == {kept}", True)
    expect(answer).to_contain_text("+")

    slider.dblclick()
    eventually(page, "panel.setting == panel.base", True)
    wide = "[...document.querySelectorAll('.dtfm-what-if')].some((e) => e.scrollWidth > e.clientWidth + 1)"
    assert not page.evaluate(wide), "nothing is wider than its place"
