"""The world map alone in a cell: real gestures in the page, and what Python holds after them."""

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright").expect

MAP = """
from dtfm_lab import load_topology
from dtfm_lab.widgets.network.document_conversion import document_of
from dtfm_lab.widgets.network.drawing import Drawing
from dtfm_lab.widgets.network.map_editor import MapEditor

editor = MapEditor(Drawing(document_of(load_topology("volunteers"))))
world = editor.canvas
world.gpus = ["T4", "RTX 4090", "RTX 3090"]
messages = []
world.drawing.observe(lambda change: messages.append(1), "document")
def device(name):
    return next(one for one in world.document["devices"] if one["name"] == name)
def regions():
    return [one["name"] for one in world.document["regions"]]
editor.view
"""


class MapPage:
    """Where things are on the first map of the page."""

    def __init__(self, page):
        self.page = page
        self.box = page.locator(".dtfm-map .dtfm-box").first
        self.box.locator("canvas").first.wait_for()
        self.box.scroll_into_view_if_needed()
        page.wait_for_function("() => document.querySelector('.dtfm-map').whereIs?.('London')")
        page.wait_for_timeout(300)

    def place(self, name):
        """Page coordinates of a device, a region's name or a city."""
        x, y = self.page.evaluate("(name) => document.querySelector('.dtfm-map').whereIs(name)", name)
        box = self.box.bounding_box()
        return box["x"] + x, box["y"] + y

    def click(self, name):
        self.page.mouse.click(*self.place(name))
        self.page.wait_for_timeout(100)

    def drag(self, start, end):
        self.page.mouse.move(*start)
        self.page.mouse.down()
        self.page.mouse.move(*end, steps=8)
        self.page.wait_for_timeout(100)
        self.page.mouse.up()


@pytest.fixture
def world(page, open_notebook):
    open_notebook(page, [MAP])
    return MapPage(page)


def test_devices_are_selected_and_dragged_to_another_city(page, world, eventually):
    world.click("amy")
    page.keyboard.down("Shift")
    world.click("ben")
    page.keyboard.up("Shift")
    eventually(page, "world.drawing.selected", ["amy", "ben"])
    world.drag(world.place("amy"), world.place("Miami"))
    eventually(page, "(device('amy')['region'], device('ben')['region'], len(messages))", ("Miami", "Miami", 1))
    eventually(page, "(regions()[-1], world.places['Miami'])", ("Miami", [-80.2, 25.8]))
    page.keyboard.press("Control+z")
    eventually(page, "(device('amy')['region'], regions()[-1])", ("Virginia", "Frankfurt"))


def test_a_region_is_dragged_as_a_whole_and_a_box_selects(page, world, eventually):
    world.drag(world.place("Frankfurt"), world.place("Lisbon"))
    eventually(page, "(regions(), len(messages))", (["Virginia", "Oregon", "London", "Lisbon"], 1))
    x, y = world.place("Oregon")
    page.keyboard.down("Shift")
    world.drag((x - 45, y - 12), (x + 55, y + 90))
    page.keyboard.up("Shift")
    eventually(page, "sorted(world.selected)", ["gus", "hal", "ida", "jack", "kim", "leo"])
    page.keyboard.press("Delete")
    eventually(page, "(len(world.document['devices']), regions()[1], len(messages))", (18, "Oregon", 2))
    assert page.locator(".jp-CodeCell").count() == 1, "typing on the map is not typing in the notebook"


def test_a_click_near_a_city_adds_a_device_there(page, world, eventually):
    page.get_by_role("button", name="Add device", exact=True).click()
    x, y = world.place("Denver")
    page.mouse.click(x + 6, y + 5)
    eventually(page, "[device('device-1')[key] for key in ('region', 'gpu')]", ["Denver", "T4"])
    eventually(page, "world.selected", ["device-1"])
    page.mouse.click(*world.place("Denver"))
    eventually(page, "(device('device-2')['region'], len(messages))", ("Denver", 2))


def test_a_city_is_found_by_name_and_gets_a_device_without_a_mouse(page, world, eventually):
    world.click("amy")
    page.keyboard.press("/")
    page.keyboard.type("Nairobi")
    page.keyboard.press("Enter")
    page.wait_for_timeout(700)
    (x, y), box = world.place("Nairobi"), world.box.bounding_box()
    assert abs(x - box["x"] - box["width"] / 2) < 30
    assert abs(y - box["y"] - box["height"] / 2) < 30
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    eventually(page, "device('device-1')['region']", "Nairobi")


def test_a_city_is_found_in_any_spelling_and_is_the_region_that_stands_there(page, world, eventually):
    for typed, number, region in (("reykjavik", 1, "Reykjavík"), ("boardman", 2, "Oregon")):
        page.locator(".dtfm-map .dtfm-find input").fill(typed)
        page.get_by_role("button", name="Add here", exact=True).click()
        eventually(page, f"device('device-{number}')['region']", region)


def test_what_is_selected_but_no_longer_drawn_is_left_alone(page, world, ask_kernel, eventually):
    ask_kernel(page, "world.drawing.selected = ['amy', 'somebody', 'constructor']")
    expect(page.locator(".dtfm-map .dtfm-caption")).to_contain_text("1 selected")
    world.drag(world.place("amy"), world.place("Virginia"))
    assert ask_kernel(page, "print(len(messages))") == "0", "it is there already"
    page.keyboard.press("Delete")
    eventually(page, "(len(world.document['devices']), len(messages))", (23, 1))


def test_the_wheel_scrolls_the_page_until_the_map_has_the_focus(page, world):
    page.mouse.move(*world.place("Denver"))
    before = world.place("Denver")
    page.mouse.wheel(0, -200)
    page.wait_for_timeout(200)
    assert world.place("Denver") == before
    page.evaluate("document.querySelector('.dtfm-map').focus({ preventScroll: true })")
    page.mouse.wheel(0, -200)
    page.wait_for_timeout(200)
    shift = [abs(a - b) for a, b in zip(world.place("Denver"), before, strict=True)]
    assert max(shift) < 2, "what is under the pointer stays there"
    assert world.place("Miami")[0] > before[0] + 100


def test_python_may_change_the_drawing_and_mark_stages(page, world, ask_kernel, set_theme):
    ask_kernel(page, "world.drawing.document = world.document | {'devices': world.document['devices'][:6]}")
    page.wait_for_function("() => document.querySelector('.dtfm-map').dataset.devices === '6'")
    ask_kernel(page, "world.highlight = {'stages': {'amy': 0, 'ben': 1}}; world.problem = 'device amy: unknown GPU'")
    expect(page.locator(".dtfm-map .dtfm-legend")).to_contain_text("stage, 0 to 1")
    expect(page.locator(".dtfm-map .dtfm-problem")).to_contain_text("unknown GPU")
    set_theme(page, "dark")


def test_devices_in_no_known_place_are_dragged_from_the_tray(page, open_notebook, eventually):
    open_notebook(page, [MAP.replace('"volunteers"', '"lecture-hall"')])
    world = MapPage(page)
    expect(page.locator(".dtfm-map .dtfm-over")).to_contain_text("No device stands in a known place")
    world.drag(world.place("ada"), world.place("Reykjavík"))
    eventually(page, "(device('ada')['region'], regions()[-1])", ("Reykjavík", "Reykjavík"))
