"""The topology editor alone in a cell: real gestures in the page, and what Python holds after them."""

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright").expect

EDITOR = """
from dtfm_lab.widgets.editor import TopologyEditor

document = {
    "name": "flat",
    "devices": [
        {"name": "ada", "region": "Zurich", "gpu": "T4", "x": 0.0, "y": 0.0},
        {"name": "bob", "region": "Zurich", "gpu": "A100", "x": 140.0, "y": 0.0},
        {"name": "eve", "region": "Lisbon", "gpu": "T4", "x": 420.0, "y": 0.0},
        {"name": "gus", "region": "Lisbon", "gpu": "T4", "x": 420.0, "y": 130.0},
    ],
    "regions": [
        {"name": "Zurich", "latency_ms": 1.0, "bandwidth_gbps": 10.0},
        {"name": "Lisbon", "latency_ms": 2.0, "bandwidth_gbps": 5.0},
    ],
    "between": [],
    "links": [{"source": "ada", "target": "eve", "latency_ms": 45.0, "bandwidth_gbps": 0.1, "one_way": False}],
    "default": {"latency_ms": 50.0, "bandwidth_gbps": 1.0},
}
editor = TopologyEditor(document=document, gpus=["A100", "T4"])
messages = []
editor.observe(lambda change: messages.append(1), "document")
def device(name):
    return next(one for one in editor.document["devices"] if one["name"] == name)
editor
"""
EMPTY_EDITOR = """
from dtfm_lab.widgets.editor import TopologyEditor
editor = TopologyEditor(gpus=["A100", "T4"])
editor
"""


class EditorPage:
    """Where things are in the first editor on the page."""

    def __init__(self, page):
        self.page = page
        self.stage = page.locator(".dtfm-editor .dtfm-stage").first
        self.stage.locator("canvas").first.wait_for(timeout=90_000)
        self.stage.scroll_into_view_if_needed()
        page.wait_for_timeout(400)

    def tool(self, name):
        self.page.locator(".dtfm-toolbar").first.get_by_role("button", name=name, exact=True).click()

    def corner(self):
        box = self.stage.bounding_box()
        return box["x"], box["y"]

    def at(self, x, y):
        left, top = self.corner()
        return left + x, top + y

    def place(self, element, dx=0, dy=0):
        """Page coordinates of "device:ada" or "region:Zurich", or of a point beside it."""
        node = self.stage.evaluate("(stage, id) => stage._cyreg.cy.getElementById(id).renderedPosition()", element)
        return self.at(node["x"] + dx, node["y"] + dy)

    def click(self, element, dx=0, dy=0, **options):
        self.page.mouse.click(*self.place(element, dx, dy), **options)
        self.page.wait_for_timeout(150)

    def drag(self, start, end):
        self.page.mouse.move(*start)
        self.page.mouse.down()
        self.page.mouse.move(*end, steps=10)
        self.page.wait_for_timeout(150)
        self.page.mouse.up()
        self.page.wait_for_timeout(150)

    def enter(self, field, text):
        self.page.locator(f".dtfm-side [name={field}]").first.fill(text)
        self.page.keyboard.press("Enter")


@pytest.fixture
def editor(page, open_notebook):
    open_notebook(page, [EDITOR])
    return EditorPage(page)


def test_clicks_on_an_empty_editor_add_devices_with_the_first_gpu(page, open_notebook, eventually):
    open_notebook(page, [EMPTY_EDITOR])
    editor = EditorPage(page)
    assert page.get_by_text("Press D and click to add a device").is_visible()
    editor.stage.click(position={"x": 20, "y": 20})
    page.keyboard.press("d")
    for x in (120, 360):
        page.mouse.click(*editor.at(x, 150))
        page.wait_for_timeout(400)  # a second click sooner is a double click
    eventually(page, "[(one['name'], one['gpu']) for one in editor.document['devices']]", [
        ("device-1", "A100"), ("device-2", "A100"),
    ])  # fmt: skip
    eventually(page, "editor.selected", ["device-2"])


def test_clicking_inside_a_region_adds_a_device_to_it(page, editor, eventually):
    editor.tool("Add device")
    editor.click("region:Zurich", dy=14)
    eventually(page, "device('device-1')['region']", "Zurich")


def test_dragging_a_device_moves_it_in_python(page, editor, eventually):
    editor.drag(editor.place("device:gus"), editor.place("device:gus", dx=60, dy=30))
    eventually(page, "device('gus')['x'] > 440 and device('gus')['y'] > 140", True)
    eventually(page, "(device('ada')['x'], len(messages))", (0, 1))


def test_arrow_keys_move_what_is_selected(page, editor, eventually):
    editor.click("device:gus")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    eventually(page, "(device('gus')['x'], device('gus')['y'], editor.selected)", (425, 125, ["gus"]))


def test_dragging_from_device_to_device_links_them_and_the_panel_edits_the_link(page, editor, eventually):
    editor.tool("Link")
    editor.drag(editor.place("device:bob"), editor.place("device:gus"))
    link = {"source": "bob", "target": "gus", "latency_ms": 50, "bandwidth_gbps": 1, "one_way": False}
    eventually(page, "editor.document['links'][1:]", [link])
    editor.enter("bandwidth", "0.25")
    page.locator(".dtfm-side [name=one-way]").check()
    page.get_by_role("button", name="Swap direction").click()
    swapped = {"source": "gus", "target": "bob", "latency_ms": 50, "bandwidth_gbps": 0.25, "one_way": True}
    eventually(page, "editor.document['links'][1:]", [swapped])
    eventually(page, "len(messages)", 4)


def test_dragging_from_region_to_region_gives_the_pair_its_own_conditions(page, editor, eventually):
    editor.tool("Link")
    editor.drag(editor.place("region:Zurich", dy=14), editor.place("region:Lisbon", dx=-12))
    eventually(page, "[pair['regions'] for pair in editor.document['between']]", [["Zurich", "Lisbon"]])
    editor.enter("latency", "67")
    eventually(page, "editor.document['between'][0]['latency_ms']", 67)


def test_two_selected_regions_are_connected_by_a_button(page, editor, eventually):
    editor.click("region:Zurich", dy=14)
    page.keyboard.down("Shift")
    editor.click("region:Lisbon", dx=-12)
    page.keyboard.up("Shift")
    page.get_by_role("button", name="Connect regions").click()
    eventually(page, "[sorted(pair['regions']) for pair in editor.document['between']]", [["Lisbon", "Zurich"]])


def test_a_narrower_editor_still_shows_everything_unless_a_person_moved_the_view(page, editor):
    within = """(stage) => {
        const { x1, x2 } = stage._cyreg.cy.elements().renderedBoundingBox();
        return x1 >= 0 && x2 <= stage.clientWidth;
    }"""
    assert editor.stage.evaluate(within)
    page.set_viewport_size({"width": 900, "height": 1000})
    page.wait_for_timeout(500)
    assert editor.stage.evaluate(within)
    editor.stage.evaluate("(stage) => stage._cyreg.cy.panBy({ x: 500, y: 0 })")
    page.set_viewport_size({"width": 1000, "height": 1000})
    page.wait_for_timeout(500)
    assert not editor.stage.evaluate(within)


def test_renaming_keeps_what_refers_to_the_name(page, editor, eventually):
    editor.click("device:ada")
    editor.enter("device-name", "lovelace")
    eventually(page, "editor.document['links'][0]['source']", "lovelace")
    eventually(page, "editor.selected", ["lovelace"])
    editor.click("region:Lisbon", dx=-12)
    editor.enter("region-name", "Porto")
    eventually(page, "[one['region'] for one in editor.document['devices']]", ["Zurich", "Zurich", "Porto", "Porto"])


@pytest.mark.parametrize(
    ("field", "entry", "refusal"),
    [
        ("device-name", "bob", "already a device named “bob”"),
        ("device-name", " ", "needs a name"),
    ],
)
def test_a_name_that_cannot_be_is_refused_in_the_panel(page, editor, eventually, field, entry, refusal):
    editor.click("device:ada")
    editor.enter(field, entry)
    assert refusal in page.locator(".dtfm-refusal").inner_text()
    eventually(page, "(device('ada')['gpu'], messages)", ("T4", []))


def test_a_number_that_cannot_be_is_refused_in_the_panel(page, editor, eventually):
    for entry in ("", "-1", "0", "fast"):
        editor.enter("bandwidth", entry)
        assert "above 0" in page.locator(".dtfm-refusal").inner_text()
    editor.enter("bandwidth", "2")
    assert page.locator(".dtfm-refusal").is_hidden()
    eventually(page, "(editor.document['default'], len(messages))", ({"latency_ms": 50, "bandwidth_gbps": 2}, 1))


def test_several_devices_are_edited_at_once(page, editor, eventually):
    editor.click("device:ada")
    page.keyboard.down("Shift")
    editor.click("device:bob")
    page.keyboard.up("Shift")
    assert page.locator(".dtfm-side [name=gpu]").evaluate("(select) => select.value") == "(mixed)"
    page.locator(".dtfm-side [name=gpu]").select_option("A100")
    eventually(page, "[one['gpu'] for one in editor.document['devices']]", ["A100", "A100", "T4", "T4"])


def test_grouping_deleting_undoing_and_redoing(page, editor, eventually):
    editor.click("device:ada")
    page.keyboard.press("g")
    eventually(page, "device('ada')['region']", "region-1")
    page.keyboard.press("Shift+G")
    eventually(page, "(device('ada')['region'], len(editor.document['regions']))", ("", 2))
    page.keyboard.press("Delete")
    eventually(page, "(len(editor.document['devices']), editor.document['links'])", (3, []))
    for _ in range(3):
        page.keyboard.press("Control+z")
    eventually(page, "editor.document == document", True)
    page.keyboard.press("Control+y")
    eventually(page, "device('ada')['region']", "region-1")
    assert page.locator(".jp-CodeCell").count() == 1, "typing in the editor is not typing in the notebook"


def test_python_may_change_the_document_and_every_view_follows(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [EDITOR, "editor"])
    page.locator(".dtfm-editor").nth(1).wait_for(timeout=90_000)
    editor = EditorPage(page)
    ask_kernel(page, "editor.document = editor.document | {'devices': editor.document['devices'][:2], 'links': []}")
    graphs = "[...document.querySelectorAll('.dtfm-stage')].map((stage) => stage._cyreg.cy)"
    page.wait_for_function(f"() => {graphs}.every((graph) => graph.nodes('.device').length === 2)")
    editor.drag(editor.place("device:bob"), editor.place("device:bob", dx=50, dy=40))
    eventually(page, "len(messages)", 2)
    bobs = f"{graphs}.map((graph) => graph.getElementById('device:bob').position('x'))"
    page.wait_for_function(f"() => new Set({bobs}).size === 1")
    ask_kernel(page, "editor.problem = 'device bob: unknown GPU'; editor.selected = ['ada']")
    page.wait_for_function("() => document.querySelectorAll('.dtfm-status.dtfm-problem').length === 2")
    assert page.locator(".dtfm-side [name=device-name]").first.input_value() == "ada"
