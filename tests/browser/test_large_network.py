"""A network of hosts that are drawn as boxes on the canvas: their devices on the page, and in Python."""

from playwright.sync_api import expect

CELL = """
import numpy as np
from dtfm_lab import Topology
from dtfm_lab.widgets.lab_state import LabState
from dtfm_lab.widgets.network.network_panel import NetworkPanel
host = np.repeat(np.arange(20), 8)
inside = host[:, None] == host[None, :]
names, hosts = [f"gpu-{i}" for i in range(160)], [f"host-{h}" for h in host]
links = np.where(inside, 0.01, 0.05), np.where(inside, 3600.0, 100.0)
topology = Topology.from_matrices(*links, names=names, hosts=hosts, regions=["east"] * 160, gpu="H100")
state = LabState()
panel = NetworkPanel(state, topology)
panel.editor.height = 420
panel.view
"""


def test_a_host_is_one_device_of_the_canvas_that_counts_its_gpus(page, open_notebook, eventually):
    open_notebook(page, [CELL])
    expect(page.locator(".dtfm-editor .dtfm-key").first).to_have_text("hosts of 8 × H100")
    expect(page.locator(".dtfm-editor .dtfm-status").first).to_contain_text("160 devices")
    page.locator(".dtfm-editor").first.focus()
    page.keyboard.press("Control+a")
    eventually(page, "len(state.selected)", 160)


def test_a_host_opens_by_keyboard_and_its_devices_are_selected_alone(page, open_notebook, eventually):
    open_notebook(page, [CELL])
    editor = page.locator(".dtfm-editor").first
    expect(editor.locator(".dtfm-key").first).to_have_text("hosts of 8 × H100")
    editor.focus()
    page.keyboard.press("n")
    eventually(page, "state.selected", tuple(f"gpu-{i}" for i in range(8)))
    page.keyboard.press("Enter")
    expect(editor.locator(".dtfm-gpu")).to_have_count(8)
    expect(editor.get_by_label("gpu-0, idle")).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    eventually(page, "state.selected", ("gpu-1",))
    page.keyboard.press("Escape")
    expect(editor.locator(".dtfm-host")).to_be_hidden()
    eventually(page, "(state.selected, panel.drawing.selected)", (("gpu-1",), ["host-0"]))
    page.keyboard.press("Delete")
    eventually(page, "(len(state.topology), len(panel.drawing.document['devices']))", (159, 26))


def test_a_host_opens_on_the_map_as_on_the_canvas(page, open_notebook, eventually):
    open_notebook(page, [CELL + "panel.shown.value = 'map'\npanel.map.height = 420\npanel.view"])
    network = page.locator(".dtfm-map").first
    expect(network).to_have_attribute("data-devices", "20")
    card = network.locator(".dtfm-host")
    page.wait_for_function("() => document.querySelector('.dtfm-map').whereIs('host-3')")
    x, y = page.evaluate("() => document.querySelector('.dtfm-map').whereIs('host-3')")
    network.locator(".dtfm-box").click(position={"x": x, "y": y})
    eventually(page, "state.selected", tuple(f"gpu-{i}" for i in range(24, 32)))
    expect(card.locator(".dtfm-gpu")).to_have_count(8)
    card.get_by_label("gpu-26, idle").click()
    eventually(page, "(state.selected, panel.drawing.selected)", (("gpu-26",), ["host-3"]))
    card.get_by_role("button", name="Close the host").click()
    expect(card).to_be_hidden()
    expect(network).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(card.get_by_label("gpu-0, idle")).to_be_focused()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    eventually(page, "state.selected", ("gpu-1",))
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    page.keyboard.press("Delete")
    eventually(page, "(len(state.topology), len(panel.drawing.document['devices']))", (159, 26))
