"""The chart of one iteration alone in a cell."""

import pytest
from playwright.sync_api import expect

GANTT = """
import numpy as np
from dtfm_lab.widgets.views.gantt import GanttView
from dtfm_lab.widgets.views.gantt.bars import Bars, Chart, CriticalPath, MessageColumns
kinds = [{"name": "forward", "color": "#0072B2"}, {"name": "backward", "color": "#E69F00"}]
predicted = np.array([[0, .1, 0, 0, 0], [.1, .2, 0, 0, 1], [.1, .2, 1, 0, 0], [.2, .4, 1, 1, 0]])
gantt = GanttView(title="Two stages")
gantt
"""

SEVERAL = """
twice = np.array([[0, .1, 0, 0, -1], [.1, .2, 0, 0, -1], [.3, .4, 0, 0, -1]])
gantt.set_predicted(Chart(Bars.of(*twice.T)), rows=['ada'], kinds=kinds)
gantt.reset_measured(0)
gantt.extend_measured(*(twice + [.09, .09, 0, 0, 0]).T)
"""
GAP = """
gantt.devices = ['ada', 'bob']
gantt.gaps = [{'device': 'bob', 'from': -.2, 'to': 0, 'text': '200 ms lost', 'tip': 'bob was killed', 'open': False}]
"""


def test_measured_bars_stream_in_over_the_predicted_ones(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [GANTT])
    page.get_by_text("No schedule yet").wait_for()
    ask_kernel(page, "gantt.set_predicted(Chart(Bars.of(*predicted.T)), rows=['ada', 'bob'], kinds=kinds)")
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
    ask_kernel(page, GAP)
    page.wait_for_selector(".dtfm-gantt[data-gaps='1']")
    box.hover(position={"x": size["width"] * 0.2, "y": size["height"] * 0.8})
    page.get_by_role("tooltip").filter(has_text="bob was killed").wait_for()
    ask_kernel(page, SEVERAL)  # of several bars of one action, the first goes with the first
    page.wait_for_selector(".dtfm-gantt[data-predicted='3'][data-measured='3']")
    box.hover(position={"x": size["width"] * 0.5, "y": size["height"] * 0.2})
    tip = page.get_by_role("tooltip")
    expect(tip).to_contain_text("predicted 100.0 to 200.0 ms (100 ms)")
    expect(tip).to_contain_text("measured 190.0 to 290.0 ms (100 ms), ends +90 ms against predicted")


WAITING = """
chart = Chart(
    Bars.of([0, .1, .2], [.1, .2, .4], [0, 0, 1], [0, 0, 1], [0, 1, 0]),
    after=np.array([-1, 0, -2]),
    messages=MessageColumns.of([0], [1], [.1], [.2], [2], [0]),
    path=CriticalPath.of([0, 1], [0, .2], [.1, .4], [0, 2]),
)
activation = {"name": "activation", "color": "#56B4E9"}
gantt.set_predicted(chart, rows=["ada", "bob"], names=["S0 · ada", "S1 · bob"], kinds=[*kinds, activation])
"""


INK = """(box) => {
    const canvas = box.querySelector("canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let found = 0;
    for (let at = 0; at < data.length; at += 4)
        found += data[at] < 60 && data[at + 1] < 60 && data[at + 2] < 60 && data[at + 3] > 180;
    return found;
}"""
"""how many pixels of the chart are nearly black"""


def test_the_chart_tells_what_a_bar_waited_for_and_draws_path_and_messages(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [GANTT])
    chart = page.locator(".dtfm-gantt").first
    page.get_by_text("No schedule yet").wait_for()
    path, messages = (chart.get_by_role("button", name=name) for name in ("Critical path", "Messages"))
    expect(path).to_be_hidden()
    ask_kernel(page, WAITING)
    page.wait_for_selector(".dtfm-gantt[data-predicted='3'][data-path='2'][data-messages='1']")
    box = chart.locator(".dtfm-box")
    size = box.bounding_box()
    box.hover(position={"x": size["width"] * 0.75, "y": size["height"] * 0.6})
    bar = "S1 · bob · backward 0 · 200.0 to 400.0 ms (200 ms)"
    said = f"{bar}\nwaited for activation 0 from S0 · ada, arrived at 200.0 ms"
    expect(page.get_by_role("tooltip")).to_have_text(said)
    box.hover(position={"x": size["width"] * 0.4, "y": size["height"] * 0.2})
    expect(page.get_by_role("tooltip")).to_contain_text("right after forward 0")

    before = box.evaluate(INK)
    chart.focus()
    page.keyboard.press("p")
    eventually(page, "gantt.show_path", True)
    expect(path).to_have_attribute("aria-pressed", "true")
    drawn = f"(before) => ({INK})(document.querySelector('.dtfm-gantt .dtfm-box')) > before + 300"
    page.wait_for_function(drawn, arg=before)
    messages.click()
    eventually(page, "gantt.show_messages", True)
    ask_kernel(page, "gantt.show_path = False")
    expect(path).to_have_attribute("aria-pressed", "false")


CROWDED = """
n = 4000
at = np.arange(n) / n
bars = Bars.of(at, at + 1 / n, np.zeros(n), np.zeros(n), np.arange(n))
messages = MessageColumns.of(np.zeros(n), np.ones(n), at, at + .01, np.zeros(n), np.arange(n))
gantt.set_predicted(Chart(bars, messages=messages), rows=["ada", "bob"], kinds=kinds)
"""


def test_a_tangle_of_messages_is_drawn_once_zoomed_in(page, open_notebook, ask_kernel):
    open_notebook(page, [GANTT, WAITING, CROWDED])
    page.wait_for_selector(".dtfm-gantt[data-messages='4000']")
    chart = page.locator(".dtfm-gantt").first
    chart.focus()
    page.keyboard.press("m")
    chart.get_by_text("4,000 messages in view: zoom in to see them").wait_for()
    for _ in range(8):
        page.keyboard.press("+")
    expect(chart.locator(".dtfm-tangle")).to_have_text("")


WITH_DEVICES = """
gantt.set_predicted(Chart(Bars.of(*predicted.T)), rows=['ada', 'bob'], devices=['ada', 'bob'], kinds=kinds)
"""


def test_a_click_holds_a_bar_selects_its_device_and_a_picture_is_downloaded(
    page, open_notebook, ask_kernel, eventually, tmp_path
):
    open_notebook(page, [GANTT, WITH_DEVICES])
    page.wait_for_selector(".dtfm-gantt[data-predicted='4']")
    chart = page.locator(".dtfm-gantt").first
    box, held = chart.locator(".dtfm-box"), chart.locator(".dtfm-pinned")
    size = box.bounding_box()
    expect(held).to_be_hidden()
    box.click(position={"x": size["width"] * 0.75, "y": size["height"] * 0.6})
    eventually(page, "gantt.selected", ["bob"])
    expect(held).to_contain_text("bob · backward 0 · 200.0 to 400.0 ms (200 ms)")
    page.keyboard.press(",")
    expect(held).to_contain_text("bob · forward 0 · 100.0 to 200.0 ms (100 ms)")
    page.keyboard.press("Escape")
    expect(held).to_be_hidden()
    ask_kernel(page, "gantt.selected = ['ada']")
    box.click(position={"x": size["width"] * 0.75, "y": size["height"] * 0.6}, modifiers=["Shift"])
    eventually(page, "gantt.selected", ["ada", "bob"])
    for call, name, begins in (
        ("gantt.ask_png('chart.png')", "chart.png", b"\x89PNG"),
        ("gantt.offer('chart.svg', 'image/svg+xml', b'<svg/>')", "chart.svg", b"<svg"),
    ):
        with page.expect_download() as file:
            ask_kernel(page, call)
        assert file.value.suggested_filename == name
        file.value.save_as(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begins)


def test_wheel_buttons_and_overview_move_the_window_and_new_bars_are_painted(page, open_notebook, ask_kernel):
    open_notebook(page, [GANTT, WITH_DEVICES])
    page.wait_for_selector(".dtfm-gantt[data-predicted='4'][data-painted]")
    chart = page.locator(".dtfm-gantt").first
    box, overview = chart.locator(".dtfm-box"), chart.locator(".dtfm-minimap")
    size = box.bounding_box()
    page.evaluate("""() => {
        window.zooms = [];
        const box = document.querySelector(".dtfm-gantt .dtfm-box");
        box.addEventListener("wheel", (event) => window.zooms.push(event.defaultPrevented));
    }""")
    box.hover()
    page.mouse.wheel(0, -200)  # it scrolls the page until the chart has the focus
    page.wait_for_function("() => window.zooms.length === 1")
    chart.focus()
    box.hover()  # the page may have moved the chart from under the pointer
    page.mouse.wheel(0, -200)
    page.wait_for_function("() => window.zooms.length === 2")
    assert page.evaluate("window.zooms") == [False, True]
    page.keyboard.press("0")
    first_bar = {"x": size["width"] * 0.15, "y": size["height"] * 0.2}
    tip = page.get_by_role("tooltip")
    for _ in range(3):
        chart.get_by_role("button", name="Zoom in (+)").click()
    box.hover(position=first_bar)
    expect(tip).to_contain_text("ada · forward 1")
    overview.click(position={"x": 40 + size["width"] * 0.05, "y": 10})
    box.hover(position=first_bar)
    expect(tip).to_contain_text("ada · forward 0")
    chart.get_by_role("button", name="Show the whole iteration (0)").click()
    painted = float(chart.get_attribute("data-painted"))
    ask_kernel(page, "gantt.set_predicted(Chart(Bars.of(*predicted[:3].T)), rows=['ada', 'bob'], kinds=kinds)")
    page.wait_for_selector(".dtfm-gantt[data-predicted='3']")
    page.wait_for_function("(before) => +document.querySelector('.dtfm-gantt').dataset.painted > before", arg=painted)


STAGES = """
def device(name, stage, replica, rows, **more):
    return {"label": name, "device": name, "stage": stage, "replica": replica, "rows": rows} | more
units = [
    device("Seoul", 0, -1, [0, 1], members=[device("a", 0, 0, [0, 1]), device("b", 0, 1, [2, 3])]),
    device("Tokyo", 1, -1, [4, 5], members=[device("c", 1, 0, [4, 5]), device("d", 1, 1, [6, 7])]),
]
at = np.arange(8) / 10
def show(by=0.0, **more):
    bars = Bars.of(at + by, at + by + .1, np.arange(8), np.arange(8) % 2, np.zeros(8))
    rows = list("aabbccdd")
    gantt.set_predicted(Chart(bars), rows=rows, devices=rows, kinds=kinds, units=units, n_stages=2, **more)
show()
"""


def test_a_stages_row_opens_its_devices_and_another_closes_it(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, [GANTT, STAGES])
    page.wait_for_selector(".dtfm-gantt[data-predicted='8']")
    chart = page.locator(".dtfm-gantt").first
    page.evaluate("document.addEventListener('dtfm-shine', ({ detail }) => { window.lit = detail.what; })")
    rows = chart.locator(".dtfm-gantt-row")
    seoul = chart.get_by_role("button", name="stage 0, Seoul")
    expect(rows).to_have_count(2)
    expect(seoul).to_have_attribute("aria-expanded", "false")
    seoul.hover()
    page.wait_for_function("() => window.lit?.stage === 0")
    seoul.click()
    expect(rows).to_have_count(4)
    expect(seoul).to_have_attribute("aria-expanded", "true")
    eventually(page, "gantt.selected_stage", 0)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    eventually(page, "gantt.selected", ["a"])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(seoul).to_have_attribute("aria-expanded", "false")
    expect(chart.get_by_role("button", name="stage 1, Tokyo")).to_have_attribute("aria-expanded", "true")

    scroller, box = chart.locator(".dtfm-gantt-scroller"), chart.locator(".dtfm-box")
    ask_kernel(page, "gantt.height = 70")  # rows without room scroll beneath the time axis
    overflows = "(it) => it.scrollHeight > it.clientHeight + 1"
    page.wait_for_function(f"() => ({overflows})(document.querySelector('.dtfm-gantt-scroller'))")
    page.wait_for_timeout(300)
    axis = """(box) => {
        const canvas = box.querySelector("canvas");
        return canvas.getContext("2d").getImageData(0, 0, canvas.width, Math.round(20 * devicePixelRatio)).data.join();
    }"""
    before = None
    while (now := box.evaluate(axis)) != before:  # it is painted again in its new height
        before = now
        page.wait_for_timeout(300)
    scroller.evaluate("(it) => { it.scrollTop = 30; }")
    page.wait_for_timeout(300)
    assert box.evaluate(axis) == before


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_bars_glide_to_their_new_places_and_what_was_stays_as_a_line(page, open_notebook, ask_kernel, motion):
    page.emulate_media(reduced_motion=motion)
    open_notebook(page, [GANTT, STAGES])
    page.wait_for_selector(".dtfm-gantt[data-predicted='8'][data-painted]")
    paints = "+document.querySelector('.dtfm-gantt').dataset.paints"
    before = page.evaluate(paints)
    ask_kernel(page, "show(.5, before=gantt.predicted)")
    page.wait_for_function("(before) => +document.querySelector('.dtfm-gantt').dataset.paints > before", arg=before)
    page.wait_for_timeout(900)
    if motion == "no-preference":  # a busy machine paints few steps of a glide
        page.wait_for_function(f"(before) => {paints} > before + 1", arg=before)
    else:
        assert page.evaluate(paints) <= before + 3
    box = page.locator(".dtfm-gantt .dtfm-box").first
    size = box.bounding_box()
    box.hover(position={"x": size["width"] * 0.2, "y": size["height"] * 0.2})  # the first bar is where the axis begins
    expect(page.get_by_role("tooltip")).to_contain_text("500.0 to 600.0 ms")
