"""The devices of a run alone in a cell: a menu at each, by mouse and by keyboard."""

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright").expect

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
running = {"condition": "", "said": "", "does": "computing", "waits_for": "", "iteration": 3, "busy": 0.5, "may": may}
devices
"""


def test_a_device_is_disturbed_from_the_menu_at_its_tile(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [DEVICES])
    view = page.locator(".dtfm-devices").first
    tiles = view.locator(".dtfm-tile")
    expect(tiles).to_have_count(4)
    menu = view.locator(".dtfm-menu")
    tiles.first.click()
    expect(menu).to_contain_text("Nothing runs yet")
    expect(menu.get_by_role("menuitem", name="Kill")).to_be_disabled()
    eventually(page, "devices.selected", ["ada"])
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    expect(tiles.first).to_be_focused()

    ask_kernel(page, "devices.running = True; devices.show({name: running for name in names})")
    expect(tiles.nth(1)).to_contain_text("50 % computing")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(tiles.nth(3)).to_be_focused()
    page.keyboard.press("Enter")
    expect(menu.get_by_role("menuitem", name="Kill")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    eventually(page, "done", [("edsger", "slow")])
    expect(tiles.nth(3)).to_be_focused()

    tiles.nth(2).click()
    menu.get_by_role("menuitem", name="Kill").click()
    eventually(page, "done[1:]", [("grace", "kill")])
    lost = "running | {'condition': 'lost', 'said': 'being replaced, 0.4 s', 'does': '', 'may': []}"
    ask_kernel(page, f"devices.show({{'grace': {lost}}})")
    expect(tiles.nth(2)).to_contain_text("being replaced, 0.4 s")
    tiles.nth(3).click(modifiers=["Shift"])
    eventually(page, "devices.selected", ["grace", "edsger"])
    expect(menu).to_be_hidden()
    ask_kernel(page, "devices.selected = ['alan']")
    expect(tiles.nth(1)).to_have_attribute("aria-pressed", "true")


def test_the_menu_stays_in_the_window_and_goes_with_its_tile(page, open_notebook):
    open_notebook(page, [DEVICES, "print('\\n' * 150)"])
    page.set_viewport_size({"width": 900, "height": 420})
    tile = page.locator(".dtfm-devices .dtfm-tile").last
    tile.wait_for()
    tile.click()
    menu = page.locator(".dtfm-devices .dtfm-menu")
    expect(menu).to_be_visible()
    box = menu.bounding_box()
    assert box["x"] >= 0
    assert box["y"] >= 0
    assert box["x"] + box["width"] <= 900
    assert box["y"] + box["height"] <= 420
    page.mouse.move(box["x"] + box["width"] + 40, box["y"] + 10)
    page.mouse.wheel(0, 2000)
    expect(menu).to_be_hidden()
