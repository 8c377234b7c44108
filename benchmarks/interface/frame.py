"""The frame of the lab: nothing in it moves while things happen, and everybody can use it."""

from __future__ import annotations

import sys
from collections import Counter

from axe_playwright_python.sync_playwright import Axe
from browser import Figure, LabInBrowser, rested

PANES = (
    *("plan", "groups", "schedule", "what-if", "worth", "run", "compare"),
    *("systems", "hours", "advice", "course", "words"),
)
MENUS = ("network", "job", "more")
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
SERIOUS = ("serious", "critical")
RECORDING = """() => {
    window.moved = [];
    const parts = [".dtfm-bar", ".dtfm-headline", ".dtfm-cause", ".dtfm-effect", ".dtfm-cause > .dtfm-head",
        ".dtfm-effect > .dtfm-head", ".dtfm-picture", ".dtfm-inspector", ".dtfm-lab-foot", ".dtfm-outs"];
    const seen = new Map();
    const lab = document.querySelector(".dtfm-lab");
    function look(name, element) {
        const { left, top, width, height } = element.getBoundingClientRect();
        if (!width || !height) return;
        const origin = lab.getBoundingClientRect();
        const place = [left - origin.left, top - origin.top, width, height].map(Math.round);
        const before = seen.get(name);
        const moved = before?.some((value, at) => Math.abs(value - place[at]) > 1);
        if (moved) window.moved.push(`${name}: ${before} to ${place}`);
        seen.set(name, place);
    }
    (function each() {
        for (const part of parts) { const element = lab.querySelector(part); if (element) look(part, element); }
        for (const out of lab.querySelectorAll(".dtfm-out")) {
            const fill = out.querySelector(".dtfm-fill");
            const name = out.className.match(/dtfm-out-([\\w-]+)/)?.[1];
            if (out.offsetParent && fill) look(`the main view of ${name}`, fill);
        }
        const [high, shown] = [lab.scrollHeight, lab.clientHeight];
        if (high > shown + 1) window.moved.push(`the lab scrolls: ${high} in ${shown}`);
        requestAnimationFrame(each);
    })();
}"""
"""Logs every part of the frame, and every pane's main view, that is elsewhere than in the frame before."""


def jumps(browser: LabInBrowser) -> list[Figure]:
    """A link is slowed, panes are walked through, a slider moves, a device is selected, a plan is run and compared."""
    browser.open_lab("lecture-hall")
    browser.page.evaluate(RECORDING)
    for doing in (
        "import copy; document = copy.deepcopy(the_lab.network_panel.drawing.document); "
        "document['default']['latency_ms'] = 40.0; the_lab.network_panel.drawing.document = document",
        "the_lab.lab_state.pane = 'groups'",
        "the_lab.lab_state.selected = (the_lab.plan.stages[0][0],)",
        "the_lab.lab_state.pane = 'what-if'",
        'the_lab.what_if_panel.controls.by_name["bandwidth"].value = 0.3',
        "the_lab.what_if_panel.pin.click()",
        "the_lab.lab_state.pane = 'plan'",
        "the_lab.plan_panel.real.seconds.value = 1; the_lab.plan_panel.redo()",
        "the_lab.lab_state.pane = 'run'; the_lab.run_panel.iterations.value = 3",
        "the_lab.run_panel.redo()",
    ):
        browser.ask(doing)
        browser.settle(1.5)
    browser.until("the_lab.measured is not None", patience_s=180)
    for pane in ("schedule", "compare", "run"):
        browser.ask(f"the_lab.lab_state.pane = {pane!r}")
        browser.settle()
    moved = browser.page.evaluate("[...new Set(window.moved)]")
    for line in moved:
        print(f"moved: {line}", file=sys.stderr)
    return [Figure("parts of the frame that move", len(moved), "", 1, note="; ".join(moved[:3]))]


def axe(browser: LabInBrowser) -> list[Figure]:
    """axe-core on every pane, its boxes, the menus and dialogs, in both themes."""
    browser.open_lab("worldwide")
    browser.settle(4)
    figures = []
    for theme, name in THEMES.items():
        browser.page.evaluate("(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", name)
        browser.settle(2)
        found: Counter[str] = Counter()
        for pane in PANES:
            browser.ask(f"the_lab.lab_state.pane = {pane!r}")
            browser.settle(2)
            found += _violations(browser, f"{theme}, {pane}")
            for more in browser.page.locator(f".dtfm-out-{pane} .dtfm-more-button:visible").all():
                more.click()
                browser.settle(0.5)
                found += _violations(browser, f"{theme}, {pane}, {more.inner_text()}")
                browser.page.keyboard.press("Escape")
        for menu in MENUS:
            browser.page.locator(f".dtfm-bar [data-menu={menu}]").click()
            browser.settle(0.5)
            found += _violations(browser, f"{theme}, menu {menu}")
            browser.page.keyboard.press("Escape")
        for dialog in ("the_lab.glossary", "the_lab.door"):
            browser.ask(f"{dialog}.is_open = True")
            browser.settle()
            found += _violations(browser, f"{theme}, {dialog}")
            browser.ask(f"{dialog}.is_open = False")
            browser.settle(0.5)
        note = ", ".join(f"{rule} {count}" for rule, count in found.most_common())
        figures.append(Figure(f"axe-core, {theme}: serious findings", found.total(), "", 1, note=note))
    rested(browser)
    return figures


def _violations(browser: LabInBrowser, where: str) -> Counter[str]:
    """Return how often each rule is broken seriously. What breaks any rule is printed."""
    found: Counter[str] = Counter()
    for violation in Axe().run(browser.page, context=".dtfm-lab").response["violations"]:
        if violation["impact"] in SERIOUS:
            found[violation["id"]] += len(violation["nodes"])
        for node in violation["nodes"][:4]:
            what, html = node["target"][-1], node["html"][:160]
            print(f"axe, {where}: {violation['id']} ({violation['impact']}): {what}: {html}", file=sys.stderr)
    return found
