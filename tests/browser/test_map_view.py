"""The map alone in a cell: real gestures in the page, and what Python holds after them."""

import itertools

import pytest
from conftest import screenshot
from playwright.sync_api import expect

MAP = """
from dtfm_lab import load_topology
from dtfm_lab.widgets.network.document_conversion import document_of
from dtfm_lab.widgets.network.drawing import Drawing
from dtfm_lab.widgets.views.map import MapView

world = MapView(Drawing(document_of(load_topology("volunteers"))), height=420)
world.gpus = ["T4", "RTX 4090", "RTX 3090"]
messages, swaps = [], []
world.drawing.on_swap = lambda a, b: swaps.append((a, b))
world.drawing.observe(lambda change: messages.append(1), "document")
def device(name):
    return next(one for one in world.document["devices"] if one["name"] == name)
def regions():
    return [one["name"] for one in world.document["regions"]]
def line(a, b):
    return next(one for one in world.document["between"] if one.get("regions") in ([a, b], [b, a]))
world
"""
STAGES = "world.highlight = {'stages': {one['name']: at % 4 for at, one in enumerate(world.document['devices'])}}"
GLIDE_MS = 800
"""Longer than badges and cards take to their new places."""


class MapPage:
    """Where things are on the first map of the page."""

    def __init__(self, page):
        self.page = page
        self.box = page.locator(".dtfm-map .dtfm-box").first
        self.box.locator("canvas").first.wait_for()
        self.box.scroll_into_view_if_needed()
        page.wait_for_function("() => document.querySelector('.dtfm-map').whatIs().badges.length")
        page.wait_for_timeout(300)

    def place(self, name):
        """Page coordinates of a device, a region's name or a city."""
        x, y = self.place_in_box(name)
        box = self.box.bounding_box()
        return box["x"] + x, box["y"] + y

    def place_in_box(self, name):
        """The same from the map's corner, however far the page has scrolled."""
        return self.page.evaluate("(name) => document.querySelector('.dtfm-map').whereIs(name)", name)

    def things(self):
        """Cards, labels, pipes and badges in the box's pixels, as long as nothing is magnified."""
        return self.page.evaluate("() => document.querySelector('.dtfm-map').whatIs()")

    def still(self):
        """The same once nothing moves any more."""
        found = None
        while (now := self.things()) != found:
            found = now
            self.page.wait_for_timeout(300)
        return found

    def until(self, name, holds, arg=None):
        """Wait until this holds of where something is: x and y from the corner of a box of width and height."""
        where = """([name, arg]) => {
            const { clientWidth: width, clientHeight: height } = document.querySelector(".dtfm-map .dtfm-box");
            const [x, y] = document.querySelector(".dtfm-map").whereIs(name);
            return %s;
        }"""
        self.page.wait_for_function(where % holds, arg=[name, arg])

    def click(self, name):
        self.page.mouse.click(*self.place(name))
        self.page.wait_for_timeout(100)

    def drag(self, start, end):
        self.page.mouse.move(*start)
        self.page.mouse.down()
        self.page.mouse.move(*end, steps=8)
        self.page.wait_for_timeout(100)
        self.page.mouse.up()
        self.page.wait_for_timeout(GLIDE_MS)


@pytest.fixture
def world(page, open_notebook):
    open_notebook(page, [MAP])
    return MapPage(page)


def boxes_of(things):
    cards = [
        (c["x"] - c["w"] / 2, c["y"] - c["h"] / 2, c["x"] + c["w"] / 2, c["y"] + c["h"] / 2) for c in things["cards"]
    ]
    labels = [(one["x"] - 38, one["y"] - 14, one["x"] + 38, one["y"] + 14) for one in things["labels"]]
    return cards, labels


def overlap(a, b):
    return a[0] < b[2] and a[2] > b[0] and a[1] < b[3] and a[3] > b[1]


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
    card = next(card for card in world.things()["cards"] if card["name"] == "Oregon")
    box = world.box.bounding_box()
    x, y = box["x"] + card["x"], box["y"] + card["y"]
    page.keyboard.down("Shift")
    world.drag((x - card["w"] / 2 - 6, y - card["h"] / 2 - 6), (x + card["w"] / 2 + 6, y + card["h"] / 2 + 6))
    page.keyboard.up("Shift")
    eventually(page, "sorted(world.selected)", ["gus", "hal", "ida", "jack", "kim", "leo"])
    page.keyboard.press("Delete")
    eventually(page, "(len(world.document['devices']), regions()[1], len(messages))", (18, "Oregon", 2))
    assert page.locator(".jp-CodeCell").count() == 1, "typing on the map is not typing in the notebook"


def test_a_click_near_a_city_adds_a_device_of_the_chosen_gpu(page, world, eventually):
    page.get_by_role("button", name="Add device", exact=True).click()
    x, y = world.place("Denver")
    page.mouse.click(x + 2, y + 1)
    eventually(page, "[device('device-1')[key] for key in ('region', 'gpu')]", ["Denver", "T4"])
    eventually(page, "world.selected", ["device-1"])
    page.get_by_role("combobox", name="GPU of new devices").select_option("RTX 3090")
    page.wait_for_timeout(GLIDE_MS)
    page.mouse.click(*world.place("Denver"))
    eventually(page, "(device('device-2')['region'], device('device-2')['gpu'])", ("Denver", "RTX 3090"))


def test_a_city_is_found_by_name_and_gets_a_device_without_a_mouse(page, world, eventually):
    world.click("amy")
    page.keyboard.press("/")
    page.keyboard.type("Nairobi")
    page.keyboard.press("Enter")
    world.until("Nairobi", "Math.abs(x - width / 2) < 30 && Math.abs(y - height / 2) < 30")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    eventually(page, "device('device-1')['region']", "Nairobi")


def test_a_city_is_found_in_any_spelling_and_is_the_region_that_stands_there(page, world, eventually):
    for typed, number, region in (("reykjavik", 1, "Reykjavík"), ("boardman", 2, "Oregon")):
        page.locator(".dtfm-map .dtfm-map-find input").fill(typed)
        page.get_by_role("button", name="Add here", exact=True).click()
        eventually(page, f"device('device-{number}')['region']", region)


def test_arrow_keys_walk_the_cards_and_enter_opens_one(page, world, eventually):
    page.locator(".dtfm-map").first.focus()
    for key in ("ArrowRight", "Enter", "Enter"):
        page.keyboard.press(key)
        page.wait_for_timeout(100)
    said = page.locator(".dtfm-map .dtfm-map-said")
    expect(said).to_contain_text("Virginia")
    eventually(page, "len(world.selected)", 1)
    eventually(page, "device(world.selected[0])['region']", "Virginia")
    page.keyboard.press("ArrowRight")
    page.keyboard.press(" ")
    eventually(page, "len(world.selected)", 2)


def test_what_is_selected_but_no_longer_drawn_is_left_alone(page, world, ask_kernel, eventually):
    ask_kernel(page, "world.drawing.selected = ['amy', 'somebody', 'constructor']")
    page.wait_for_timeout(300)
    world.drag(world.place("amy"), world.place("Virginia"))
    assert ask_kernel(page, "print(len(messages))") == "0", "it is there already"
    page.keyboard.press("Delete")
    eventually(page, "(len(world.document['devices']), len(messages))", (23, 1))


def test_the_wheel_scrolls_the_page_until_the_map_has_the_focus(page, world):
    page.mouse.move(*world.place("Denver"))
    before, away = world.place_in_box("Denver"), world.place_in_box("Miami")
    page.mouse.wheel(0, -200)
    page.wait_for_timeout(200)
    assert world.place_in_box("Denver") == before
    page.mouse.move(*world.place("Denver"))
    page.evaluate("document.querySelector('.dtfm-map').focus({ preventScroll: true })")
    page.mouse.wheel(0, -200)
    world.until("Miami", "y > arg + 90", before[1])
    shift = [abs(a - b) for a, b in zip(world.place_in_box("Denver"), before, strict=True)]
    assert max(shift) < 2, "what is under the pointer stays there"
    page.get_by_role("button", name="Fit", exact=True).click()
    for name, place in (("Miami", away), ("Denver", before)):
        world.until(name, "Math.abs(x - arg[0]) < 1 && Math.abs(y - arg[1]) < 1", place)


def test_a_label_is_a_slider_of_its_pair_and_the_drag_is_one_entry_of_the_history(page, world, ask_kernel, eventually):
    label = page.locator(".dtfm-map .dtfm-link", has_text="96 ms").first
    box = label.bounding_box()
    cards = world.things()["cards"]
    start = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(start[0] - 130, start[1], steps=10)
    page.wait_for_timeout(300)
    expect(label).to_contain_text("0.05 Gbit/s")
    page.mouse.up()
    eventually(page, "line('Virginia', 'London')['bandwidth_gbps']", 0.05)
    eventually(page, "(len(world.drawing.history), line('Virginia', 'London')['latency_ms'])", (1, 96))
    assert world.things()["cards"] == cards, "no card moves when a number changes"
    label.focus()
    page.keyboard.press("ArrowUp")
    eventually(page, "line('Virginia', 'London')['latency_ms'] > 96", True)


def test_a_device_dropped_on_another_changes_places_in_the_plan_only(page, world, ask_kernel, eventually):
    ask_kernel(page, STAGES)
    page.wait_for_timeout(GLIDE_MS)
    world.drag(world.place("amy"), world.place("gus"))
    eventually(page, "(swaps, len(messages))", ([("amy", "gus")], 0))


def test_badges_keep_their_task_and_land_on_their_new_device(page, world, ask_kernel, set_theme):
    ask_kernel(page, STAGES)
    page.wait_for_timeout(GLIDE_MS)
    before = world.still()
    ask_kernel(page, STAGES.replace("at % 4", "(at + 1) % 4") + "; world.problem = 'device amy: unknown GPU'")
    page.wait_for_timeout(GLIDE_MS)
    after = world.still()
    stage_of = {one["name"]: one["stage"] for one in before["badges"]}
    assert all(one["stage"] == (stage_of[one["name"]] + 1) % 4 for one in after["badges"])
    spots = [
        {(one["name"], round(one["x"]), round(one["y"])) for one in things["badges"]} for things in (before, after)
    ]
    assert spots[0] == spots[1], "devices stay where they are"
    assert before["cards"] == after["cards"]
    expect(page.locator(".dtfm-map .dtfm-map-said")).to_contain_text("unknown GPU")
    set_theme(page, "dark")


@pytest.mark.parametrize("name", ["worldwide", "ten-cities", "islands", "campus"])
def test_cards_and_labels_overlap_nothing(page, open_notebook, ask_kernel, name):
    open_notebook(page, [MAP.replace('"volunteers"', f'"{name}"')])
    world = MapPage(page)
    ask_kernel(page, STAGES)
    page.wait_for_timeout(GLIDE_MS)
    for width, height in ((472, 340), (620, 480), (800, 700)):
        ask_kernel(page, f"world.height = {height}; world.layout.width = '{width}px'")
        page.wait_for_timeout(500)
        cards, labels = boxes_of(world.still())
        assert not any(overlap(a, b) for a, b in itertools.combinations(cards, 2))
        assert not any(overlap(a, b) for a, b in itertools.combinations(labels, 2))
        assert not any(overlap(a, b) for a, b in itertools.product(cards, labels))
        inside = world.box.bounding_box()
        assert all(
            a >= 0 and b >= 0 and c <= inside["width"] and d <= inside["height"] for a, b, c, d in [*cards, *labels]
        )


def test_devices_in_no_known_place_have_cards_and_come_to_a_city_by_its_name(page, open_notebook, eventually):
    open_notebook(page, [MAP.replace('"volunteers"', '"lecture-hall"')])
    world = MapPage(page)
    assert {card["name"] for card in world.things()["cards"]} == {"front", "back"}
    world.click("ada")
    page.locator(".dtfm-map .dtfm-map-find input").fill("Reykjavík")
    page.get_by_role("button", name="Move here", exact=True).click()
    eventually(page, "(device('ada')['region'], regions()[-1])", ("Reykjavík", "Reykjavík"))


def test_a_typed_place_has_a_pin_and_its_new_card_stays_in_view(page, open_notebook, ask_kernel, eventually):
    blank = "from dtfm_lab.widgets.network.document_conversion import empty_document\n"
    made = MAP.replace('Drawing(document_of(load_topology("volunteers")))', "Drawing(empty_document())")
    open_notebook(page, [blank + made])
    box = page.locator(".dtfm-map .dtfm-box").first
    box.locator("canvas").first.wait_for()
    page.wait_for_timeout(500)
    top = "() => document.querySelectorAll('.dtfm-map canvas')[2].toDataURL()"
    before = page.evaluate(top)
    field = page.locator(".dtfm-map .dtfm-map-find input")
    field.fill("Berlin")
    page.wait_for_function(f"(before) => ({top})() !== before", arg=before)
    screenshot(page, "map-pin")
    for n, city in ((1, "Berlin"), (2, "Tokyo")):
        field.fill(city)
        field.press("Enter")
        page.get_by_role("button", name="Add here", exact=True).click()
        eventually(page, f"device('device-{n}')['region']", city)
        page.wait_for_timeout(GLIDE_MS)
        card = box.bounding_box()
        x, y = page.evaluate("(name) => document.querySelector('.dtfm-map').whereIs(name)", city)
        assert 0 < x < card["width"], city
        assert 0 < y < card["height"], city
    screenshot(page, "map-two-cities")
    inside = "[(one['latency_ms'], one['bandwidth_gbps']) for one in world.document['regions']]"
    eventually(page, inside, [(0.5, 10), (0.5, 10)])
