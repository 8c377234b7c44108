"""A link's label under the hand, and an iteration that plays: what follows, and how smoothly."""

from __future__ import annotations

import numpy as np
from browser import Figure, LabInBrowser, rested

TRIES, DRAGGED_S, PLAYED_S = 8, 3.0, 4.0
SIZES = (("lecture-hall", 8, 80.0), ("worldwide", 64, 200.0))
"""network, devices, milliseconds wanted from a move to the new chart"""
FRAMES = 30.0
LABEL = ".dtfm-picture .dtfm-link:visible"
CHART = ".dtfm-out-schedule .dtfm-gantt"
SEARCHED_MS = 240.0
"""The first search has answered so long after the first chart, and the next one has not begun."""
ANSWERED = """async ([chart, x, y, searched]) => {
    const label = document.activeElement;
    const moved = performance.now();
    const at = { bubbles: true, pointerId: 1, buttons: 1, clientX: x, clientY: y };
    label.dispatchEvent(new PointerEvent("pointermove", at));
    const painted = () => Number(document.querySelector(chart)?.dataset.painted ?? 0) - moved;
    const paints = [];
    await new Promise((done) => { // a frame asked for again and again would take time from what is waited for
        const watching = new MutationObserver(() => {
            if (painted() > 0 && painted() !== paints.at(-1)) paints.push(painted());
            if (paints.length === 1) setTimeout(done, searched);
        });
        watching.observe(document.querySelector(chart), { attributeFilter: ["data-painted"] });
        setTimeout(done, 3000);
    });
    return paints;
}"""
"""Milliseconds from one move of a drag until the chart of the plan at hand is painted on the edited network, and until
that of the plan found, where the search moves devices; none where no message of the plan crosses the link."""
FRAME_RATE = """async ([x, y, milliseconds]) => {
    const label = document.activeElement, began = performance.now();
    let frames = 0;
    while (performance.now() < began + milliseconds) {
        const at = { bubbles: true, pointerId: 1, buttons: 1, clientX: x + 90 * Math.sin(frames / 15), clientY: y };
        if (x) label.dispatchEvent(new PointerEvent("pointermove", at));
        await new Promise(requestAnimationFrame);
        frames += 1;
    }
    return (1000 * frames) / (performance.now() - began);
}"""
"""Frames a second; where x is given, with a move of the label in each."""


def drag(browser: LabInBrowser) -> list[Figure]:
    figures = []
    for network, n_devices, wanted_ms in SIZES:
        browser.open_lab(network)
        at_hand_ms: list[float] = []
        found_ms: list[float] = []
        link = 0
        for number in range(TRIES):
            x, y = _hold_label(browser, link)
            paints = browser.page.evaluate(ANSWERED, [CHART, x + (40 if number % 2 else -40), y, SEARCHED_MS])
            browser.page.mouse.up()
            if paints:
                at_hand_ms.append(paints[0])
                found_ms.append(paints[-1])
            else:
                link += 1  # what no message of the plan crosses changes no chart
            rested(browser)
        if not found_ms:
            raise RuntimeError(f"{network}: no drag of a link's label was followed by a new chart")
        n_moved = sum(np.greater(found_ms, at_hand_ms))
        note = f"median of {len(found_ms)}, of which {n_moved} move devices, worst {max(found_ms):.0f} ms"
        note += f"; the plan at hand {np.median(at_hand_ms):.0f} ms"
        name = f"drag of a link to plan and chart, {n_devices} devices"
        figures.append(Figure(name, float(np.median(found_ms)), "ms", wanted_ms, note=note))
        x, y = _hold_label(browser, link)
        figures.append(_frames(browser, f"page while dragging, {n_devices} devices", x, y, DRAGGED_S))
        browser.page.mouse.up()
    return figures


def play(browser: LabInBrowser) -> list[Figure]:
    """The planned iteration of 64 devices plays on the map and along the chart."""
    browser.open_lab("worldwide")
    button = browser.page.locator(".dtfm-player-play:visible").first
    browser.ask("the_lab.run_panel.playback.view.playing = False")
    button.click()
    browser.settle()
    return [_frames(browser, "page while an iteration plays, 64 devices", 0, 0, PLAYED_S)]


def _frames(browser: LabInBrowser, name: str, x: float, y: float, seconds: float) -> Figure:
    """Frames a second; the note has what a frame costs the page's main thread, whatever else the machine does."""
    browser.cdp.send("Performance.enable", {"timeDomain": "threadTicks"})
    before_s = _task_s(browser)
    rate = browser.page.evaluate(FRAME_RATE, [x, y, 1000 * seconds])
    per_frame_ms = 1000 * (_task_s(browser) - before_s) / (rate * seconds)
    browser.cdp.send("Performance.disable")
    note = f"the main thread computes {per_frame_ms:.1f} ms a frame"
    return Figure(name, rate, "frames/s", FRAMES, at_least=True, note=note)


def _task_s(browser: LabInBrowser) -> float:
    metrics = browser.cdp.send("Performance.getMetrics")["metrics"]
    return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")


def _hold_label(browser: LabInBrowser, link: int) -> tuple[float, float]:
    """Press on the label of a link, which has the focus then; the place of the press."""
    labels = browser.page.locator(LABEL)
    labels.first.wait_for()
    label = labels.nth(link % labels.count())
    label.wait_for()
    box = label.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    browser.page.mouse.move(x, y)
    browser.page.mouse.down()
    return x, y
