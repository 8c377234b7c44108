"""Big Gantt charts: how soon they are painted, and how they follow the hand."""

from __future__ import annotations

import numpy as np
from browser import Counting, Figure, LabInBrowser

SIZES = ((10_000, 0.3, 50.0), (100_000, 0.7, 40.0))
"""bars, seconds wanted to the first paint, frames a second wanted"""
N_ROWS, TRIES, MOVED_S = 64, 3, 2.0
CHART = """
import json, time
import numpy as np
from dtfm_lab.widgets.views.gantt import GanttView
from dtfm_lab.widgets.views.gantt.bars import Bars, Chart
kinds = [{"name": "forward", "color": "#0072B2"}, {"name": "backward", "color": "#E69F00"}]
gantt = GanttView(title="Many bars", height=700)
def show(n_bars, n_rows, seed):
    rng = np.random.default_rng(seed)
    each = n_bars // n_rows
    edges = np.cumsum(rng.uniform(0.5, 1.5, (n_rows, 2 * each)), axis=1)
    start, end = edges[:, 0::2].ravel(), edges[:, 1::2].ravel()
    row, number = np.repeat(np.arange(n_rows), each), np.tile(np.arange(each), n_rows)
    rows = [f"device {r}" for r in range(n_rows)]
    began_s = time.time()
    bars = Bars.of(start, end, row, number % 2, number // 2)
    gantt.set_predicted(Chart(bars), rows=rows, kinds=kinds)
    print(json.dumps([began_s, time.time()]))
gantt
"""

EACH_FRAME = """async ([how, milliseconds]) => {
    const box = document.querySelector(".dtfm-gantt .dtfm-box");
    const target = box.querySelector("canvas") ?? box;
    const { left, top, width, height } = box.getBoundingClientRect();
    const ends = performance.now() + milliseconds;
    for (let turn = 0; performance.now() < ends; turn += 1) {
        const at = { bubbles: true, cancelable: true, pointerId: 1, clientY: top + height / 2 };
        if (how === "wheel") {
            const deltaY = turn % 120 < 60 ? -20 : 20;
            target.dispatchEvent(new WheelEvent("wheel", { ...at, clientX: left + width / 2, deltaY }));
        } else {
            const clientX = left + width * (0.5 + 0.3 * Math.sin(turn / 20));
            target.dispatchEvent(new PointerEvent("pointermove", { ...at, clientX }));
        }
        await new Promise(requestAnimationFrame);
    }
}"""
"""events of our own: a driver's come a few tens a second, and it is the chart that is to be measured"""


def gantt(browser: LabInBrowser) -> list[Figure]:
    figures = []
    browser.open([CHART])
    browser.jupyter.run_all(browser.page)
    browser.page.locator(".dtfm-gantt").first.wait_for()
    browser.settle()
    for n_bars, paint_s, frames in SIZES:
        seconds, in_python_s = [], []
        for seed in range(TRIES):
            before = browser.number(".dtfm-gantt", "painted")
            began_s, sent_s = browser.ask(f"show({n_bars}, {N_ROWS}, {seed})")
            browser.page.wait_for_function(
                "(before) => Number(document.querySelector('.dtfm-gantt').dataset.painted) > before",
                arg=before,
                timeout=20_000,
            )
            painted_ms = browser.page.evaluate(
                "performance.timeOrigin + Number(document.querySelector('.dtfm-gantt').dataset.painted)"
            )
            seconds.append(painted_ms / 1000 - began_s)
            in_python_s.append(sent_s - began_s)
            browser.settle(0.5)
        note = f"median of {TRIES}, worst {max(seconds):.2f} s; of it {np.median(in_python_s):.2f} s in Python"
        figures.append(Figure(f"Gantt, {n_bars:,} bars: painted", float(np.median(seconds)), "s", paint_s, note=note))
        for how, move in (("wheel", _wheel), ("drag", _drag)):
            counting = Counting(browser, ".dtfm-gantt", "paints")
            move(browser)
            rates = counting.rates()
            note = f"page {rates.page_frames:.0f} frames/s"
            figures.append(
                Figure(f"Gantt, {n_bars:,} bars: {how}", rates.drawn, "frames/s", frames, at_least=True, note=note)
            )
    return figures


def _wheel(browser: LabInBrowser) -> None:
    """In and out again, the chart in focus; a turn of the wheel for each frame."""
    browser.page.locator(".dtfm-gantt").first.focus()
    browser.page.evaluate(EACH_FRAME, ["wheel", 1000 * MOVED_S])


def _drag(browser: LabInBrowser) -> None:
    """To and fro, a little zoomed in, so that there is somewhere to go; a move of the mouse for each frame."""
    page = browser.page
    page.locator(".dtfm-gantt").first.focus()
    page.keyboard.press("0")
    page.keyboard.press("+")
    page.keyboard.press("+")
    box = page.locator(".dtfm-gantt .dtfm-box").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.evaluate(EACH_FRAME, ["drag", 1000 * MOVED_S])
    page.mouse.up()
