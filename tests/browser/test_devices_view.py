"""The button that disturbs a device, alone in a cell: its menu by mouse and by keyboard."""

from playwright.sync_api import expect

DEVICES = """
from dtfm_lab.widgets.views.devices import DevicesView
from dtfm_lab.widgets.running.fault_controls import ACTIONS
done = []
names = ["ada", "alan", "grace", "edsger"]
devices = DevicesView(lambda *act: done.append(act), actions=ACTIONS, hint="Nothing runs yet", devices=[
    {"name": n, "stage": i % 2, "stages": str(i % 2), "pipeline": i // 2, "region": "Oregon"}
    for i, n in enumerate(names)
])
may = ["kill", "pause", "slow"]
running = {"condition": "", "said": "", "busy": 0.5, "may": may}
devices
"""


def test_a_device_is_disturbed_from_the_menu(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [DEVICES])
    view = page.locator(".dtfm-devices").first
    button = view.locator(".dtfm-disturb")
    expect(button).to_be_disabled()
    expect(button).to_have_attribute("title", "Nothing runs yet")

    ask_kernel(page, "devices.running = True; devices.states = {name: running for name in names}")
    button.click()
    menu = view.locator(".dtfm-faults")
    expect(menu).to_contain_text("50 % of the iteration computing")
    menu.get_by_label("Device to disturb").select_option("edsger")
    eventually(page, "devices.selected", ["edsger"])
    expect(button).to_have_text("Disturb edsger")
    expect(menu.get_by_role("menuitem", name="Resume")).to_be_disabled()
    menu.get_by_role("menuitem", name="Kill").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    eventually(page, "done", [("edsger", "slow")])
    expect(menu).to_be_hidden()
    expect(button).to_be_focused()

    ask_kernel(page, "devices.selected = ['grace']")
    page.keyboard.press("Enter")
    menu.get_by_role("menuitem", name="Kill").hover()
    page.mouse.down()
    ask_kernel(page, "devices.states = {name: running | {'busy': 0.75} for name in names}")
    expect(menu).to_contain_text("75 % of the iteration computing")
    page.mouse.up()  # what is pressed is still there
    eventually(page, "done[1:]", [("grace", "kill")])
    page.set_viewport_size({"width": 900, "height": 420})
    button.click()
    box = menu.bounding_box()
    assert min(box["x"], box["y"], 900 - box["x"] - box["width"], 420 - box["y"] - box["height"]) >= 0, "in the window"
    page.keyboard.press("Escape")
    lost = "running | {'condition': 'lost', 'said': 'being replaced, 0.4 s', 'may': []}"
    ask_kernel(page, f"devices.states = devices.states | {{'grace': {lost}}}")
    button.click()
    expect(menu).to_contain_text("Nothing runs yet")
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    ask_kernel(page, "devices.running = False")
    expect(button).to_be_disabled()
