"""The topology editor alone in a cell: real gestures in the page, and what Python holds after them."""

import pytest
from playwright.sync_api import expect

EDITOR = """
from dtfm_lab.widgets.views.editor import TopologyEditor

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
from dtfm_lab.widgets.views.editor import TopologyEditor
editor = TopologyEditor(gpus=["A100", "T4"])
editor
"""


class EditorPage:
    """Where things are in the first editor on the page."""

    def __init__(self, page):
        self.page = page
        self.stage = page.locator(".dtfm-editor .dtfm-stage").first
        self.stage.locator("canvas").first.wait_for()
        self.stage.scroll_into_view_if_needed()
        page.wait_for_timeout(400)

    def tool(self, name):
        self.page.locator(".dtfm-tools").first.get_by_role("button", name=name, exact=True).click()

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

    def middle(self, line):
        """Where a line is in the middle, from the stage's corner."""
        return self.stage.evaluate(
            "(stage, id) => { const { x, y } = stage._cyreg.cy.getElementById(id).renderedMidpoint(); return [x, y]; }",
            line,
        )

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


def test_an_empty_editor_is_filled_by_clicks_and_by_keyboard_alone(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [EMPTY_EDITOR])
    editor = EditorPage(page)
    assert page.get_by_text("No device yet").is_visible()
    editor.stage.click(position={"x": 20, "y": 20})
    page.keyboard.press("d")
    for x in (120, 360):
        page.mouse.click(*editor.at(x, 150))
        page.wait_for_timeout(400)  # a second click sooner is a double click
    eventually(page, "[(one['name'], one['gpu']) for one in editor.document['devices']]", [
        ("device-1", "A100"), ("device-2", "A100"),
    ])  # fmt: skip
    eventually(page, "editor.selected", ["device-2"])
    ask_kernel(page, "editor.document = editor.document | {'devices': []}; editor.selected = []")
    page.get_by_text("No device yet").wait_for()
    page.locator(".dtfm-editor").focus()
    for key in ("d", "Enter", "Enter", "l", "Control+a", "Enter", "Escape", "n"):
        page.keyboard.press(key)
        page.wait_for_timeout(80)
    links = "[(link['source'], link['target']) for link in editor.document['links']]"
    eventually(page, links, [("device-1", "device-2")])
    eventually(page, "editor.selected", ["device-1"])


def test_dragging_from_device_to_device_links_them_and_the_panel_edits_the_link(page, editor, eventually):
    editor.tool("Add link")
    editor.drag(editor.place("device:bob"), editor.place("device:gus"))
    link = {"source": "bob", "target": "gus", "one_way": False, "latency_ms": 50, "bandwidth_gbps": 1}
    eventually(page, "editor.document['links'][1:]", [link])
    eventually(page, "editor.selected_link", ["bob", "gus"])
    editor.enter("bandwidth", "0.25")
    eventually(page, "editor.document['links'][1:]", [{**link, "bandwidth_gbps": 0.25}])
    eventually(page, "len(messages)", 2)


def test_another_value_for_the_way_back_makes_two_directions_and_one_button_joins_them(page, editor, eventually):
    page.mouse.click(*editor.at(*editor.middle("link:" + '["ada","eve"]')))
    assert page.locator(".dtfm-side [name=back-latency]").get_attribute("placeholder") == "same"
    editor.enter("back-latency", "80")
    there = {"source": "ada", "target": "eve", "one_way": True, "latency_ms": 45, "bandwidth_gbps": 0.1}
    back = {"source": "eve", "target": "ada", "one_way": True, "latency_ms": 80, "bandwidth_gbps": 0.1}
    eventually(page, "editor.document['links']", [there, back])
    assert page.locator(".dtfm-side h4").first.inner_text() == "Link ada → eve"
    assert page.locator(".dtfm-side [name=back-latency]").input_value() == "80"
    page.get_by_role("button", name="Same both ways").click()
    eventually(page, "[(link['latency_ms'], link['one_way']) for link in editor.document['links']]", [(45, False)])
    page.get_by_role("button", name="As elsewhere").click()
    eventually(page, "editor.document['links']", [])


def test_a_link_that_is_selected_anywhere_is_shown_drawn_or_not_and_a_value_draws_it(
    page, editor, ask_kernel, eventually
):
    editor.click("device:bob")
    page.keyboard.down("Shift")
    editor.click("device:gus")
    page.keyboard.up("Shift")
    side = page.locator(".dtfm-side")
    expect(side).to_contain_text("Link bob – gus")
    expect(side).to_contain_text("As any other pair: type a number to give it its own.")
    eventually(page, "editor.selected_link", ["bob", "gus"])
    editor.enter("back-bandwidth", "0.5")
    drawn = {"source": "gus", "target": "bob", "one_way": True, "latency_ms": 50, "bandwidth_gbps": 0.5}
    eventually(page, "editor.document['links'][1:]", [drawn])
    expect(side).to_contain_text("Link bob → gus")
    ask_kernel(page, "editor.selected_link = ['bob', 'eve']")  # another view has selected it
    expect(side).to_contain_text("Link bob – eve")
    expect(page.locator(".dtfm-editor")).to_have_attribute("data-peeked", "bob – eve")
    editor.click("device:gus")
    expect(page.locator(".dtfm-editor")).to_have_attribute("data-peeked", "")
    eventually(page, "(editor.selected, editor.selected_link)", (["gus"], []))


def test_a_region_is_duplicated_with_its_devices_their_links_and_its_pairs(page, editor, eventually):
    editor.click("region:Zurich", dy=14)
    page.keyboard.press("Control+d")
    eventually(page, "[(one['name'], one['region']) for one in editor.document['devices'][4:]]", [
        ("ada-2", "Zurich 2"), ("bob-2", "Zurich 2"),
    ])  # fmt: skip
    eventually(page, "editor.document['regions'][2]['bandwidth_gbps']", 10)
    eventually(page, "[(link['source'], link['target']) for link in editor.document['links']]", [
        ("ada", "eve"), ("ada-2", "eve"),
    ])  # fmt: skip
    page.keyboard.press("Control+z")
    eventually(page, "editor.document == document", True)


def test_a_file_that_is_dropped_on_the_canvas_is_opened_and_a_broken_one_is_said(page, editor, eventually):
    drop = """(stage, [name, text]) => {
        const transfer = new DataTransfer();
        transfer.items.add(new File([text], name));
        for (const kind of ["dragenter", "dragover", "drop"])
            stage.dispatchEvent(new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer: transfer }));
    }"""
    text = "dtfm_topology: 1\ndefault: {latency_ms: 5, bandwidth_gbps: 1}\ndevices: [{name: one}, {name: two}]\n"
    editor.stage.evaluate(drop, ["mine.yaml", text])
    eventually(page, "[one['name'] for one in editor.document['devices']]", ["one", "two"])
    editor.stage.evaluate(drop, ["mine.yaml", "a: ["])
    expect(page.locator(".dtfm-status.dtfm-problem")).to_contain_text("mine.yaml: line 2, column 1: broken YAML")
    eventually(page, "len(editor.document['devices'])", 2)


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
    page.locator(".dtfm-editor").nth(1).wait_for()
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


def test_a_links_label_is_a_slider_and_what_it_does_is_undone_at_once(page, editor, eventually):
    label = page.get_by_role("slider", name="Link ada – eve")
    expect(label).to_have_attribute("aria-valuetext", "0.1 Gbit/s, 45 ms")
    box = label.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 130, middle[1], steps=12)
    page.mouse.up()
    eventually(page, "editor.document['links'][0]['bandwidth_gbps']", 1)
    eventually(page, "(len(editor.drawing.history), editor.can_undo)", (1, True))
    label.focus()
    for key in ("ArrowUp", "ArrowUp", "ArrowLeft"):
        page.keyboard.press(key)
    link = "editor.document['links'][0]"
    eventually(page, f"{link}['bandwidth_gbps'] < 1 and {link}['latency_ms'] > 46", True)
    eventually(page, "len(editor.drawing.history)", 2)
    page.locator(".dtfm-editor").focus()
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    eventually(page, "editor.document == document", True)


def test_the_form_lies_over_a_canvas_that_fills_its_pane_and_escape_closes_it(page, open_notebook, eventually):
    filling = EDITOR.replace("gpus=", "height=0, gpus=").rsplit("editor", 1)[0]
    filling += "import ipywidgets as w\nw.VBox([editor], layout=w.Layout(height='420px'))"
    open_notebook(page, [filling])
    editor = EditorPage(page)
    assert editor.stage.bounding_box()["height"] > 400
    side = page.locator(".dtfm-side")
    expect(side).to_be_hidden()
    page.mouse.dblclick(*editor.place("device:ada"))
    expect(side).to_be_visible()
    expect(side.locator("[name=device-name]")).to_have_value("ada")
    page.keyboard.press("Escape")
    expect(side).to_be_hidden()
    eventually(page, "editor.selected", ["ada"])


def test_a_device_is_dragged_moved_by_arrow_keys_and_added_inside_a_region(page, editor, eventually):
    editor.drag(editor.place("device:gus"), editor.place("device:gus", dx=60, dy=30))
    eventually(page, "device('gus')['x'] > 440 and device('gus')['y'] > 140", True)
    eventually(page, "(device('ada')['x'], len(messages))", (0, 1))
    editor.click("device:eve")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    eventually(page, "(device('eve')['x'], device('eve')['y'], editor.selected)", (425, -5, ["eve"]))
    editor.tool("Add device")
    editor.click("region:Zurich", dy=14)
    eventually(page, "device('device-1')['region']", "Zurich")
    page.keyboard.press("v")
    page.mouse.move(*editor.at(12, 12))
    for count in (1, 2):  # a slow hand's double click, or a quick one's on a busy machine
        page.mouse.down(click_count=count)
        page.mouse.up(click_count=count)
        page.wait_for_timeout(400)
    eventually(page, "(len(editor.document['devices']), editor.selected)", (6, ["device-2"]))


def test_a_device_dropped_on_another_regions_box_joins_it_in_one_edit_and_covers_no_other_device(
    page, editor, ask_kernel, eventually
):
    box = "document.querySelector('.dtfm-stage')._cyreg.cy.getElementById('region:Zurich').boundingBox().w"
    before = page.evaluate(box)
    editor.drag(editor.place("device:gus"), editor.place("device:ada", dx=4, dy=3))
    eventually(page, "device('gus')['region']", "Zurich")
    eventually(page, "len(messages)", 1)
    apart = "(device('gus')['x'] - device('ada')['x'])**2 + (device('gus')['y'] - device('ada')['y'])**2"
    assert float(ask_kernel(page, f"print({apart})")) > 14**2
    assert page.evaluate(box) < 2 * before
    page.keyboard.press("Control+z")
    eventually(page, "(device('gus')['region'], device('gus')['x'])", ("Lisbon", 420.0))


def test_a_pair_of_regions_is_a_pipe_and_gets_conditions_of_its_own_by_a_drag_and_by_its_form(page, editor, eventually):
    assert page.evaluate("() => document.querySelector('.dtfm-stage')._cyreg.cy.edges('.pair').length") == 1
    pipe = page.get_by_role("slider", name="Link Zurich – Lisbon")
    expect(pipe).to_have_attribute("aria-valuetext", "1 Gbit/s, 50 ms")
    editor.tool("Add link")
    editor.drag(editor.place("region:Zurich", dy=14), editor.place("region:Lisbon", dx=-12))
    eventually(page, "[pair['regions'] for pair in editor.document['between']]", [["Zurich", "Lisbon"]])
    expect(page.locator(".dtfm-side")).to_contain_text("Region pair Zurich – Lisbon")
    editor.enter("latency", "30")
    eventually(page, "editor.document['between'][0]['latency_ms']", 30)
    editor.enter("back-latency", "60")
    eventually(page, "[(pair['from'], pair['to'], pair['latency_ms']) for pair in editor.document['between']]", [
        ("Zurich", "Lisbon", 30), ("Lisbon", "Zurich", 60),
    ])  # fmt: skip


def test_devices_are_found_by_words_by_their_gpu_and_by_their_region(page, editor, eventually):
    editor.click("device:ada")
    page.keyboard.press("/")
    page.keyboard.type("t4")
    expect(page.locator(".dtfm-count")).to_have_text("3 devices")
    page.keyboard.press("Enter")
    eventually(page, "sorted(editor.selected)", ["ada", "eve", "gus"])
    page.get_by_role("button", name="A100").click()
    eventually(page, "editor.selected", ["bob"])
    page.mouse.dblclick(*editor.place("region:Lisbon", dx=-12))
    eventually(page, "sorted(editor.selected)", ["eve", "gus"])


def test_the_form_refuses_what_cannot_be_and_takes_the_rest(page, editor, eventually):
    """Numbers of all pairs, then one device's name and numbers, a region's name, and several devices at once."""
    refusal = page.locator(".dtfm-refusal")
    for entry in ("", "-1", "0", "fast"):
        editor.enter("bandwidth", entry)
        expect(refusal).to_contain_text("above 0")
    editor.enter("bandwidth", "2")
    expect(refusal).to_be_hidden()
    eventually(page, "(editor.document['default'], len(messages))", ({"latency_ms": 50, "bandwidth_gbps": 2}, 1))
    editor.click("device:ada")
    for entry, said in (("bob", "already a device named “bob”"), (" ", "needs a name")):
        editor.enter("device-name", entry)
        expect(refusal).to_contain_text(said)
    editor.enter("price", "1.5")
    eventually(page, "(device('ada')['price_per_hour'], len(messages))", (1.5, 2))
    editor.enter("price", "")
    eventually(page, "device('ada').get('price_per_hour')", None)
    editor.enter("device-name", "lovelace")
    eventually(page, "(editor.document['links'][0]['source'], editor.selected)", ("lovelace", ["lovelace"]))
    page.keyboard.down("Shift")
    editor.click("device:bob")
    page.keyboard.up("Shift")
    gpu = page.locator(".dtfm-side [name=gpu]")
    assert gpu.evaluate("(select) => select.value") == "(mixed)"
    gpu.select_option("A100")
    eventually(page, "[one['gpu'] for one in editor.document['devices']]", ["A100", "A100", "T4", "T4"])
    editor.click("region:Lisbon", dx=-12)
    editor.enter("region-name", "Porto")
    eventually(page, "[one['region'] for one in editor.document['devices']]", ["Zurich", "Zurich", "Porto", "Porto"])


def test_a_narrower_editor_shows_everything_unless_a_person_moved_it_and_of_many_links_those_of_the_selected(
    page, open_notebook, ask_kernel, eventually
):
    many = (
        "import numpy as np\nfrom dtfm_lab.domain.network.topology import Topology\n"
        "from dtfm_lab.widgets import TopologyEditor\n"
        "from dtfm_lab.widgets.network.document_conversion import document_of\n"
        "a = np.random.default_rng(0).uniform(1, 90, (18, 18))\n"
        "editor = TopologyEditor(document=document_of(Topology.from_matrices(a + a.T, a + a.T)))\neditor"
    )
    open_notebook(page, [many])
    editor = EditorPage(page)
    within = """() => {
        const stage = document.querySelector(".dtfm-stage");
        const { x1, x2 } = stage._cyreg.cy.elements().renderedBoundingBox();
        return stage.clientWidth < %s && x1 >= 0 && x2 <= stage.clientWidth;
    }"""
    page.wait_for_function(within % 2000)
    ask_kernel(page, "editor.layout.width = '600px'")
    page.wait_for_function(within % 620)
    drawn = "() => document.querySelector('.dtfm-stage')._cyreg.cy.edges('.link').length"
    assert page.evaluate(drawn) == 0
    editor.click("device:device-3")
    eventually(page, "editor.selected", ["device-3"])
    assert page.evaluate(drawn) == 17
    editor.stage.evaluate("(stage) => stage._cyreg.cy.panBy({ x: 500, y: 0 })")
    ask_kernel(page, "editor.layout.width = '580px'")
    page.wait_for_function("() => document.querySelector('.dtfm-stage').clientWidth < 600")
    page.wait_for_timeout(500)
    assert not page.evaluate(within % 2000)


def test_a_plan_shows_the_ways_of_its_messages_and_a_device_dropped_on_another_changes_places_with_it(
    page, editor, ask_kernel, eventually
):
    tasks = {"ada": [0, 0], "bob": [1, 0], "eve": [0, 1], "gus": [1, 1]}
    ask_kernel(page, "swaps = []; editor.drawing.on_swap = lambda a, b: swaps.append((a, b))")
    ask_kernel(page, f"editor.highlight = {{'stages': {{}}, 'tasks': {tasks}}}")
    graph = "document.querySelector('.dtfm-stage')._cyreg.cy"
    links = f"() => {graph}.edges('.link').map((edge) => edge.data('ends').join())"
    page.wait_for_function(f"() => ({links})().length === 4")
    assert sorted(page.evaluate(links)) == ["ada,bob", "ada,eve", "bob,gus", "eve,gus"]
    editor.drag(editor.place("device:gus"), editor.place("device:bob"))
    eventually(page, "swaps", [("gus", "bob")])
    eventually(page, "(device('gus')['x'], messages)", (420.0, []))
