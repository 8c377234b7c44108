"""Each canvas alone in a cell: real gestures in the page, and what Python holds after them."""

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


CONVERGENCE = """
import numpy as np
from dtfm_lab.widgets.convergence import ConvergenceView
curve = ConvergenceView(title="Search")
curve
"""


def test_the_curve_keeps_what_improved_and_the_newest(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [CONVERGENCE])
    page.get_by_text("No search yet").wait_for(timeout=90_000)
    ask_kernel(page, "curve.extend([[1, .1, 9, 2], [2, .2, 9, 2], [3, .3, 8, 2], [4, .4, 8, 2]])")
    ask_kernel(page, "curve.extend([[5, .5, 8, 3], [6, .6, 8, 3]])")
    ask_kernel(page, "curve.extend([[1, .1, 7, np.nan]], series='random')")
    eventually(page, "curve.points['best'][:, 0].tolist()", [1.0, 3.0, 5.0, 6.0])
    page.wait_for_selector(".dtfm-convergence[data-points='5']")
    page.get_by_role("button", name="x: linear").click()  # few evaluations are read on a linear axis
    assert page.get_by_role("button", name="x: log").is_visible()


def test_a_view_that_opens_late_is_sent_every_point(page, open_notebook):
    more = "curve.extend([[1, .1, 9, 2], [3, .3, 8, 2]])"
    open_notebook(page, [CONVERGENCE, more, "curve"])
    page.wait_for_function(
        "() => document.querySelectorAll(\".dtfm-convergence[data-points='2']\").length === 2", timeout=90_000
    )


def test_a_long_search_is_read_on_a_logarithmic_axis(page, open_notebook):
    open_notebook(page, [CONVERGENCE, "curve.extend([[1, .1, 9, 2], [30_000, .3, 8, 2]])"])
    page.get_by_role("button", name="x: log").wait_for(timeout=90_000)


GROUPS = """
from dtfm_lab.widgets.groups import GroupsView
plan = dict(
    groups=[{"stage": s, "devices": [f"d{2 * s}", f"d{2 * s + 1}"], "cost_s": 1.25} for s in range(3)],
    weights=[[0, 3.21, 5], [3.21, 0, 2], [5, 2, 0]],
    matchings=[[["d0", "d3", 3.21], ["d1", "d2", 0.5]], [["d2", "d4", 1], ["d3", "d5", 2]]],
)
groups = GroupsView()
groups
"""


def test_clicking_a_hop_opens_its_matching(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [GROUPS])
    page.get_by_text("No plan yet").wait_for(timeout=90_000)
    ask_kernel(page, "for name, value in plan.items(): setattr(groups, name, value)")
    page.locator(".dtfm-ring text").filter(has_text="2 devices · 1.25 s").first.wait_for()
    page.get_by_role("button", name="Stage 0 to stage 1, 3.21 s").locator(".hit").click()
    eventually(page, "groups.selected_edge", 0)
    expect(page.locator(".dtfm-matching .bottleneck")).to_have_text(["d0", "3.21 s", "d3"])
    ask_kernel(page, "groups.selected_edge = 1")
    page.get_by_text("Stage 1 to stage 2").wait_for()
    page.get_by_role("button", name="Stage 2 · 2 devices · 1.25 s").locator("circle").click()
    expect(page.locator(".dtfm-groups-side li")).to_have_text(["d4", "d5"])
    eventually(page, "groups.selected_edge", -1)


GANTT = """
import numpy as np
from dtfm_lab.widgets.gantt import GanttView
kinds = [{"name": "forward", "color": "#0072B2"}, {"name": "backward", "color": "#E69F00"}]
predicted = np.array([[0, .1, 0, 0, 0], [.1, .2, 0, 0, 1], [.1, .2, 1, 0, 0], [.2, .4, 1, 1, 0]])
gantt = GanttView(title="Two stages")
gantt
"""


def test_measured_bars_stream_in_below_the_predicted_ones(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [GANTT])
    page.get_by_text("No schedule yet").wait_for(timeout=90_000)
    ask_kernel(page, "gantt.set_predicted(*predicted.T, rows=['ada', 'bob'], kinds=kinds)")
    page.wait_for_selector(".dtfm-gantt[data-predicted='4']")
    box = page.locator(".dtfm-gantt .dtfm-box")
    size = box.bounding_box()
    box.hover(position={"x": size["width"] * 0.15, "y": size["height"] * 0.2})
    page.get_by_role("tooltip").filter(has_text="ada · forward 0 · 0.0 to 100.0 ms (100 ms)").wait_for()
    ask_kernel(page, "gantt.reset_measured(3); late = predicted + [.01, .01, 0, 0, 0]")
    ask_kernel(page, "gantt.extend_measured(*late[:1].T); gantt.extend_measured(*late[2:].T)")
    page.wait_for_selector(".dtfm-gantt[data-measured='3']")
    eventually(page, "(gantt.n_measured, gantt.measured_iteration, len(gantt.measured.start))", (3, 3, 3))
    box.hover(position={"x": size["width"] * 0.16, "y": size["height"] * 0.18})
    page.get_by_role("tooltip").filter(has_text="measured 10.0 to 110.0 ms (100 ms)").wait_for()
    ask_kernel(page, "gantt.reset_measured(4)")
    page.wait_for_selector(".dtfm-gantt[data-measured='0']")


WAITING = """
from dtfm_lab.widgets.gantt import CriticalPath, Messages
gantt.set_predicted(
    [0, .1, .2], [.1, .2, .4], [0, 0, 1], [0, 0, 1], [0, 1, 0],
    rows=["ada", "bob"], names=["S0 · ada", "S1 · bob"], kinds=[*kinds, {"name": "activation", "color": "#56B4E9"}],
    after=[-1, 0, -2],
    messages=Messages.of([0], [1], [.1], [.2], [2], [0]),
    path=CriticalPath.of([0, 1], [0, .2], [.1, .4], [0, 2]),
)
"""


def test_the_chart_tells_what_a_bar_waited_for_and_draws_path_and_messages(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [GANTT])
    chart = page.locator(".dtfm-gantt").first
    page.get_by_text("No schedule yet").wait_for(timeout=90_000)
    path, messages = (chart.get_by_role("button", name=name) for name in ("Critical path", "Messages"))
    expect(path).to_be_hidden()
    ask_kernel(page, WAITING)
    page.wait_for_selector(".dtfm-gantt[data-predicted='3'][data-path='2'][data-messages='1']")
    box = chart.locator(".dtfm-box")
    size = box.bounding_box()
    box.hover(position={"x": size["width"] * 0.75, "y": size["height"] * 0.6})
    said = "S1 · bob · backward 0 · 200.0 to 400.0 ms (200 ms)\nwaited for activation 0 from S0 · ada, in at 200.0 ms"
    expect(page.get_by_role("tooltip")).to_have_text(said)
    box.hover(position={"x": size["width"] * 0.4, "y": size["height"] * 0.2})
    expect(page.get_by_role("tooltip")).to_contain_text("right after forward 0")

    crimson = """(box) => {
        const canvas = box.querySelector("canvas");
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let found = 0;
        for (let at = 0; at < data.length; at += 4)
            found += data[at] === 0xC2 && data[at + 1] === 0 && data[at + 2] === 0x3B;
        return found;
    }"""
    assert box.evaluate(crimson) == 0
    chart.focus()
    page.keyboard.press("p")
    eventually(page, "gantt.show_path", True)
    expect(path).to_have_attribute("aria-pressed", "true")
    page.wait_for_timeout(100)
    assert box.evaluate(crimson) > 100
    messages.click()
    eventually(page, "gantt.show_messages", True)
    ask_kernel(page, "gantt.show_path = False")
    expect(path).to_have_attribute("aria-pressed", "false")


CROWDED = """
n = 4000
at = np.arange(n) / n
gantt.set_predicted(
    at, at + 1 / n, np.zeros(n), np.zeros(n), np.arange(n), rows=["ada", "bob"], kinds=kinds,
    messages=Messages.of(np.zeros(n), np.ones(n), at, at + .01, np.zeros(n), np.arange(n)),
)
"""


def test_a_tangle_of_messages_is_drawn_once_zoomed_in(page, open_notebook, ask_kernel):
    open_notebook(page, [GANTT, WAITING, CROWDED])
    page.wait_for_selector(".dtfm-gantt[data-messages='4000']", timeout=90_000)
    chart = page.locator(".dtfm-gantt").first
    chart.focus()
    page.keyboard.press("m")
    chart.get_by_text("4,000 messages in sight: zoom in to see them").wait_for()
    for _ in range(8):
        page.keyboard.press("+")
    expect(chart.locator(".dtfm-tangle")).to_have_text("")


CANDIDATES = """
from dtfm_lab.widgets.candidates import CandidatesView
table = CandidatesView(chosen="gpipe", caption="click a row", rows=[
    {"name": "gpipe", "iteration_s": 2.0, "bubble": 0.5, "memory": "54.8 GiB of 16 GiB on ada", "fits": False},
    {"name": "1f1b", "iteration_s": 2.5, "bubble": 0.6, "memory": "7.1 GiB of 16 GiB on ada", "fits": True},
    {"name": "zb-h1"},
    {"name": "interleaved-1f1b", "problem": "micro-batches do not divide <b>"},
])
table
"""


def test_a_schedule_is_chosen_from_the_table_by_mouse_and_by_keyboard(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [CANDIDATES])
    view = page.locator(".dtfm-candidates").first
    view.wait_for(timeout=90_000)
    rows = view.get_by_role("row")
    expect(rows).to_have_count(5)
    expect(rows.nth(1)).to_contain_text("no")
    expect(rows.nth(2)).to_contain_text("2.50 s · fastest that fits")
    expect(rows.nth(4)).to_contain_text("micro-batches do not divide <b>")
    rows.nth(2).get_by_text("60.0%").click()
    eventually(page, "table.chosen", "1f1b")
    expect(view.get_by_role("button", name="1f1b", exact=True)).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Tab")
    view.get_by_role("button", name="gpipe").focus()
    page.keyboard.press("Enter")
    eventually(page, "table.chosen", "gpipe")
    expect(view.get_by_role("button", name="gpipe")).to_be_focused()
    ask_kernel(page, "table.stale = True")
    view.get_by_text("compare again").wait_for()


def test_the_wheel_scrolls_the_page_until_the_chart_has_the_focus(page, open_notebook):
    show = "gantt.set_predicted(*predicted.T, rows=['ada', 'bob'], kinds=kinds)"
    open_notebook(page, [GANTT, show])
    page.wait_for_selector(".dtfm-gantt[data-predicted='4']", timeout=90_000)
    box = page.locator(".dtfm-gantt .dtfm-box")
    page.evaluate("""() => {
        window.zooms = [];
        const box = document.querySelector(".dtfm-gantt .dtfm-box");
        box.addEventListener("wheel", (event) => window.zooms.push(event.defaultPrevented));
    }""")
    box.hover()
    page.mouse.wheel(0, -200)
    page.wait_for_function("() => window.zooms.length === 1")
    page.locator(".dtfm-gantt").first.focus()
    page.mouse.wheel(0, -200)
    page.wait_for_function("() => window.zooms.length === 2")
    assert page.evaluate("window.zooms") == [False, True]


def test_every_view_follows_the_theme(page, open_notebook, set_theme):
    show = "gantt.set_predicted(*predicted.T, rows=['ada', 'bob'], kinds=kinds)"
    filled = "for name, value in plan.items(): setattr(groups, name, value)"
    open_notebook(page, [EDITOR, CONVERGENCE, "curve.extend([[1, .1, 9, 2]])", GROUPS, filled, CANDIDATES, GANTT, show])
    page.wait_for_selector(".dtfm-gantt[data-predicted='4']", timeout=90_000)
    colours = "() => [...document.querySelectorAll('.dtfm')].map((view) => getComputedStyle(view).backgroundColor)"
    label = "() => document.querySelector('.dtfm-stage')._cyreg.cy.getElementById('device:ada').style('color')"
    set_theme(page, "light")
    light = page.evaluate(colours), page.evaluate(label)
    set_theme(page, "dark")
    dark = page.evaluate(colours), page.evaluate(label)
    assert len(light[0]) == 5
    assert all(before != after for before, after in zip(light[0], dark[0], strict=True))
    assert light[1] != dark[1]


def test_views_go_without_a_trace(page, open_notebook):
    open_notebook(page, [EDITOR, CONVERGENCE, GROUPS, CANDIDATES, GANTT])
    page.wait_for_selector(".dtfm-gantt", timeout=90_000)
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    expect(page.locator(".dtfm")).to_have_count(0)
    page.evaluate("() => window.jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Light' })")
    page.wait_for_timeout(800)  # the page fixture then finds no script error
