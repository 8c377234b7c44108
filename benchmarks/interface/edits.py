"""The lab on the page, and what follows a person's edits and moves."""

from __future__ import annotations

import time

import numpy as np
from browser import Figure, LabInBrowser

OPENINGS, GESTURES, REPLANS, MOVES = 3, 20, 10, 20
OPENED = (("lecture-hall", 8, 2.5), ("worldwide", 64, 4.0))
"""network, devices, seconds wanted until a planned picture moves"""
SHOWN = """async () => {
    const began = performance.now();
    let played = 0;
    document.addEventListener("dtfm-time", ({ detail }) => { if (detail.time?.playing) played ||= performance.now(); });
    window.jupyterapp.commands.execute("notebook:run-all-cells");
    const painted = () => Number(document.querySelector(".dtfm-out-schedule .dtfm-gantt")?.dataset.painted ?? 0);
    let shown = 0;
    const picture = ".dtfm-lab .dtfm-picture canvas, .dtfm-lab .dtfm-picture svg";
    while (!(painted() && played) && performance.now() < began + 60000) {
        if (!shown && document.querySelector(picture)) shown = performance.now();
        await new Promise(requestAnimationFrame);
    }
    return [shown, painted(), played].map((at) => (at ? (at - began) / 1000 : 60));
}"""
"""Seconds until the network is on the page, until the chart of its plan is, and until the iteration plays."""
STAMPED = """
import time, json
stamps = []
the_lab.network_panel.drawing.observe(lambda _: stamps.append(time.time()), "document")
"""
REPLANNING = """
import time, json, copy
plans = []
began_s = 0.0
the_lab.replanning.switch.value = True
def planned(change):
    if change["new"] is not None and not the_lab.lab_state.plan_is_stale:
        plans.append(time.time())
the_lab.lab_state.observe(planned, "plan")
def edit(number):
    global began_s
    plans.clear()
    document = copy.deepcopy(the_lab.network_panel.drawing.document)
    between = document["between"][number % len(document["between"])]
    between["latency_ms"] = between["latency_ms"] * 1.3 + number
    began_s = time.time()
    the_lab.network_panel.drawing.document = document
"""
ASKING = """
import time, json
answers = []
moved_s = 0.0
panel = the_lab.what_if_panel
panel.numbers.observe(lambda _: answers.append(time.time()), "value")
def move(factor):
    global moved_s
    answers.clear()
    moved_s = time.time()
    panel.controls.by_name["bandwidth"].value = factor
"""


def opening(browser: LabInBrowser) -> list[Figure]:
    """From a kernel that is ready until the network is planned, its chart painted and the iteration plays."""
    figures = []
    for network, n_devices, wanted_s in OPENED:
        rows = []
        for _ in range(OPENINGS):
            browser.open([f"import dtfm_lab as lab\nthe_lab = lab.Lab({network!r}, autosave=False)\nthe_lab"])
            rows.append(browser.page.evaluate(SHOWN))
        shown_s, painted_s, played_s = np.median(rows, axis=0)
        worst_s = max(max(row) for row in rows)
        note = (
            f"median of {OPENINGS} fresh kernels, worst {worst_s:.1f} s; network {shown_s:.1f}, chart {painted_s:.1f} s"
        )
        figures.append(Figure(f"opening to a moving plan, {n_devices} devices", played_s, "s", wanted_s, note=note))
    return figures


def gesture(browser: LabInBrowser) -> list[Figure]:
    """Devices are put on an empty canvas, one by one, all over it."""
    browser.open_lab("lecture-hall")
    browser.ask("the_lab.open_network('')")
    browser.ask("the_lab.network_panel.shown.value = 'canvas'")
    browser.ask(STAMPED)
    page = browser.page
    page.evaluate(
        """() => addEventListener("pointerup",
        () => { window.released_s = (performance.timeOrigin + performance.now()) / 1000; }, true)"""
    )
    page.locator(".dtfm-editor").get_by_role("button", name="Add device", exact=True).click()
    stage = page.locator(".dtfm-editor .dtfm-stage").first
    box = stage.bounding_box()
    delays_ms = []
    for number in range(GESTURES):
        before = browser.ask("print(len(stamps))")
        row, column = divmod(number, 5)
        page.mouse.click(box["x"] + box["width"] * (0.1 + 0.2 * column), box["y"] + box["height"] * (0.12 + 0.18 * row))
        released_s = page.evaluate("window.released_s")
        try:
            browser.until(f"len(stamps) > {before}", patience_s=2)
        except TimeoutError:  # the view has moved, and a device lay there
            continue
        delays_ms.append(1000 * (browser.ask(f"print(stamps[{before}])") - released_s))
    note = f"median of {len(delays_ms)}, worst {max(delays_ms):.0f} ms; until the lab has taken the edit in"
    return [Figure("gesture to the Python trait", float(np.median(delays_ms)), "ms", 50, note=note)]


def replan(browser: LabInBrowser) -> list[Figure]:
    """64 devices; the latency between two regions changes."""
    browser.open_lab("worldwide")
    browser.ask(REPLANNING)
    browser.settle(2)
    seconds = []
    for number in range(REPLANS):
        browser.ask(f"edit({number})")
        browser.until("plans", patience_s=10)
        seconds.append(browser.ask("print(plans[0] - began_s)"))
        browser.settle(0.7)
    note = f"median of {REPLANS} edits, worst {max(seconds):.2f} s; 64 devices"
    return [Figure("edit to the new plan", float(np.median(seconds)), "s", 0.3, note=note)]


def whatif(browser: LabInBrowser) -> list[Figure]:
    """The bandwidth slider goes up and down; every place is new to the panel."""
    browser.open_lab("lecture-hall", pane="what-if")
    browser.ask(ASKING)
    browser.until("panel.last is not None", patience_s=30)
    browser.settle(2)
    browser.page.evaluate(
        """() => {
            window.answered_ms = 0;
            new MutationObserver(() => { window.answered_ms = performance.timeOrigin + performance.now(); })
                .observe(document.querySelector(".dtfm-what-if .dtfm-toolbar .widget-html"),
                         { subtree: true, childList: true, characterData: true });
        }"""
    )
    factors = np.geomspace(0.31, 2.9, MOVES)
    kernel_ms, page_ms = [], []
    for factor in factors:
        browser.ask(f"move({factor})")
        browser.until("answers", patience_s=10)
        moved_s, answered_s = browser.ask("print(json.dumps([moved_s, answers[0]]))")
        kernel_ms.append(1000 * (answered_s - moved_s))
        time.sleep(0.2)
        page_ms.append(browser.page.evaluate("window.answered_ms") - 1000 * moved_s)
    note = f"median of {MOVES} moves, worst {max(kernel_ms):.0f} ms; on the page after {np.median(page_ms):.0f} ms"
    return [Figure("what-if answer", float(np.median(kernel_ms)), "ms", 100, note=note)]
