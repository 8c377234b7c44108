"""Systems on the page: a bar is chosen by keyboard, an assumption changed."""

import re

import pytest
from playwright.sync_api import expect

pytest.importorskip("dtfm_lab.extensions.systems")

CELL = """
import ipywidgets as w
import dtfm_lab as lab
from dtfm_lab.widgets import markup
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.planner.job_controls import JobControls
from dtfm_lab.extensions.systems.pane import SystemsPanel

state = LabState(topology=lab.load_topology("lecture-hall"))
controls = JobControls(state, lab.load_job("tiny"))
state.plan = lab.plan(state.topology, state.job, steps=1)
panel = SystemsPanel(state, controls.take_exactly, ["dtfm-lab", "megatron"])
panel.seconds.value = 0.2
panel.bars.not_modelled = {"Nowhere": "it has <b>no model</b>"}
box = w.VBox([w.HTML(f"<style>{markup.CSS}</style>"), panel.view])
box.add_class("dtfm-lab")
box
"""
ROWS = """
panel.bars.rows = [*panel.bars.rows, {"name": "no", "title": "Hopeless", "reason": "none of its plans <b>fits</b>"}]
"""


def press(page, name):
    page.locator(".dtfm-lab button.jupyter-button", has_text=re.compile(rf"^\s*{name}\s*$")).last.click()


def test_systems_are_asked_looked_at_and_asked_again(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [CELL])
    view = page.locator(".dtfm-systems").first
    expect(view).to_contain_text("Press the button")
    press(page, "Ask every system")
    expect(view).to_have_attribute("data-known", "2")
    eventually(page, "panel.asking is None", True)
    expect(view.get_by_role("status")).to_contain_text("by the link model")
    ours = view.locator("button[data-name=dtfm-lab]")
    expect(ours).to_contain_text("ours")
    rows = view.locator(".dtfm-systems-rows button")
    rows.first.focus()
    page.keyboard.press("End")
    expect(rows.last).to_be_focused()
    megatron = view.locator("button[data-name=megatron]")
    expect(megatron).to_have_attribute(
        "aria-label", re.compile(r"Megatron-LM: .* an iteration, .*compute \d+ %.*stage")
    )
    megatron.focus()
    page.keyboard.press("Enter")
    eventually(page, "panel.bars.chosen", "megatron")
    expect(megatron).to_have_attribute("aria-pressed", "true")
    expect(megatron).to_be_focused()
    expect(page.locator(".dtfm-assumptions").first).to_be_visible()
    eventually(page, "len(state.shown_tasks) > 0", True)

    press(page, "Assumptions")
    page.get_by_label("While it sends").select_option("it keeps computing (overlapped)")
    expect(megatron).to_contain_text("transport overlapped")
    expect(megatron).to_have_attribute("aria-pressed", "true")

    ask_kernel(page, ROWS)
    expect(view.locator("button[data-name=no]")).to_contain_text("no plan: none of its plans <b>fits</b>")
    view.get_by_text("1 more system").click()
    expect(view.get_by_text("it has <b>no model</b>")).to_be_visible()
    ask_kernel(page, "state.topology = state.topology.scaled(bandwidth=0.5)")
    expect(view.get_by_role("status")).to_contain_text("before the last edit")
