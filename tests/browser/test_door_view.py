"""A first visit, the door alone in a cell: it opens by itself, and stays closed once it was closed."""

from conftest import screenshot
from playwright.sync_api import expect

CELL = "from dtfm_lab.widgets.views.door import Door\ndoor = Door()\ndoor.offer()\ndoor"


def test_a_door_opens_by_itself_until_it_was_closed_once(page, open_notebook, eventually):
    open_notebook(page, [CELL])
    door = page.get_by_role("dialog", name="Open a network")
    door.wait_for()
    page.keyboard.press("Escape")
    expect(door).to_be_hidden()
    open_notebook(page, [CELL])
    eventually(page, "door.offered", True)
    page.wait_for_timeout(800)
    expect(door).to_be_hidden()


def test_all_networks_have_a_picture_and_their_whole_sentence(page, open_notebook, eventually):
    open_notebook(page, [CELL.replace("door.offer()", "door.is_open = True")])
    door = page.get_by_role("dialog", name="Open a network")
    door.get_by_role("button", name="all 16 networks").click()
    eventually(page, "len(door.networks)", door.locator(".dtfm-door-row").count())
    assert door.locator(".dtfm-door-row svg").count() == door.locator(".dtfm-door-row").count()
    screenshot(page, "all-networks")
    is_cut = "(row) => row.scrollWidth > row.clientWidth || row.scrollHeight > row.clientHeight"
    assert door.locator(".dtfm-door-row").evaluate_all(f"(rows) => rows.filter({is_cut}).length") == 0
