"""The lab without a mouse: every stop of the Tab key shows the focus, menus give it back, and nothing keeps it."""

import re

import pytest
from lab_page import PLACES, LabPage
from playwright.sync_api import expect
from serving import ask

pytest.importorskip("torch", reason="a run trains with torch")

MOST_STOPS = 120
DISABLED_FOR_A_MOMENT = """(button) => new Promise((done) => {
    const enable = () => { button.disabled = false; setTimeout(done, 50); };
    button.addEventListener("focusout", () => setTimeout(enable), { once: true });
    button.disabled = true;
})"""
WRONG = """() => {
    const one = document.activeElement;
    const name = `${one.tagName} ${one.getAttribute("aria-label") || one.title || one.textContent}`.slice(0, 80);
    if (!one.closest(".dtfm-lab")) return `the focus left the lab for ${name}`;
    const styles = (part) => ["", "::after"].map((pseudo) => {
        const style = getComputedStyle(part, pseudo);
        return ["outlineStyle", "outlineWidth", "boxShadow", "borderColor", "borderWidth", "stroke", "strokeWidth"]
            .map((name) => style[name]);
    });
    const look = () => JSON.stringify([one, ...one.querySelectorAll("*")].slice(0, 8).map(styles));
    const { x, y, right, bottom } = one.getBoundingClientRect();
    if (right < 1 || bottom < 1 || x > innerWidth - 1 || y > innerHeight - 1) return `out of sight: ${name}`;
    const focused = look();
    one.blur();
    const plain = look();
    one.focus({ preventScroll: true });
    return focused === plain ? `nothing shows the focus of ${name}` : "";
}"""
"""What is wrong with where the focus is; empty for nothing."""
CELLS = "window.jupyterapp.shell.currentWidget.content.widgets.map(({ model }) => model.type)"
PANES = ("Schedule", "Groups", "Search", "What if", "Run", "Systems", "Advice", "Hours", "Course")
TWO = """import dtfm_lab as lab
pair = lab.load_topology("lecture-hall").subset(["ada", "alan"])
job = lab.load_job("tiny", n_stages=1, n_replicas=2, global_batch=4)
the_lab = lab.Lab(pair, job, autosave=False)
the_lab.run_panel.clock.value = "paced"
the_lab"""
PLANNED = "the_lab.plan is not None and not the_lab.lab_state.plan_is_stale and the_lab.predicted is not None"


class Keys:
    """A person's hands on a keyboard."""

    def __init__(self, page, root):
        self.page, self.root = page, root

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def reach(self, target, *, back=False):
        """Go on by Tab until the focus is there."""
        for _ in range(MOST_STOPS):
            if self.is_at(target):
                return
            self.press("Shift+Tab" if back else "Tab")
            wrong = self.page.evaluate(WRONG)
            assert wrong == "", f"on the way to {target}: {wrong}"
        raise AssertionError(f"{target} is not reached by Tab")

    def is_at(self, target):
        return target.count() == 1 and target.evaluate("(one) => one === document.activeElement")

    def button(self, name, within=None):
        return (within or self.root).get_by_role("button", name=name, exact=isinstance(name, str))

    def type(self, text):
        self.page.keyboard.type(text)


def test_the_lab_is_walked_by_keyboard_alone(page, open_notebook, ask_kernel, eventually):
    page.set_viewport_size({"width": 1440, "height": 900})
    open_notebook(page, ['import dtfm_lab as lab\nthe_lab = lab.Lab("raspberry-pi", autosave=False)\nthe_lab'])
    lab = LabPage(page, "keys")
    lab.whole_window()
    keys, bar = Keys(page, lab.root), lab.root.locator(".dtfm-bar")
    eventually(page, PLANNED, True)

    network = bar.locator("[data-menu=network]")
    keys.reach(network)
    keys.press("Enter")
    keys.reach(lab.root.locator(".dtfm-menu-network").get_by_label("Network", exact=True))
    keys.type("lect")
    eventually(page, f"{PLANNED} and the_lab.topology.name", "lecture-hall")
    keys.press("Escape")
    assert keys.is_at(network)
    keys.press("m")  # a letter that makes text of a notebook's cell
    assert page.evaluate(CELLS) == ["code"]

    drawn = ask_kernel(page, "print(the_lab.topology.fingerprint)")
    keys.reach(lab.link("pairs without a line"))
    keys.press("ArrowLeft")
    expect(lab.headline).to_contain_text("Gbit/s:")
    keys.press("z")
    eventually(page, f"{PLANNED} and the_lab.topology.fingerprint", drawn)

    job = bar.locator("[data-menu=job]")
    keys.reach(job, back=True)
    keys.press("Enter")
    keys.reach(lab.root.locator(".dtfm-menu-job").get_by_label("Job", exact=True))
    keys.type("tiny")
    keys.reach(lab.root.locator(".dtfm-menu-job").get_by_label("Batch", exact=True))
    keys.press("Control+a")
    keys.type("8")
    keys.press("Tab")
    eventually(page, f"{PLANNED} and (the_lab.plan.job.name, the_lab.plan.job.global_batch)", ("tiny", 8))
    keys.press("Escape")
    assert keys.is_at(job)

    pictures = lab.root.get_by_role("tablist", name="Views of the network")
    keys.reach(pictures.get_by_role("tab", selected=True))
    for title, view in (("Map", "map"), ("Rows", "canvas")):
        keys.press("ArrowRight")
        expect(pictures.get_by_role("tab", name=title)).to_have_attribute("aria-selected", "true")
        eventually(page, "the_lab.network_panel.shown.value", view)  # else Tab goes into the view before
        keys.reach(lab.root.get_by_role("button", name=re.compile("^(Play|Pause)")).first)
        keys.reach(pictures.get_by_role("tab", selected=True), back=True)

    results = lab.root.get_by_role("tablist", name="Results")
    keys.reach(results.get_by_role("tab", selected=True))
    keys.press("ArrowRight", "ArrowLeft")
    for number, title in enumerate(PANES, 1):  # through every other pane from its tab on, through the others back to it
        lab.key_pane(title)
        tab = results.get_by_role("tab", name=re.compile(f"^{PLACES[title][0]}"))
        keys.reach(network if number % 2 else tab, back=not number % 2)


def test_what_a_plan_leads_to_needs_no_mouse(page, open_notebook, ask_kernel, eventually):
    """From a search to a link: with two workers, whose clock leaves the processor alone between computations."""
    page.set_viewport_size({"width": 1440, "height": 900})
    open_notebook(page, [TWO])
    lab = LabPage(page, "keys")
    lab.whole_window()
    keys = Keys(page, lab.root)
    eventually(page, PLANNED, True)
    searched(lab, keys, eventually)
    try:
        ran_and_killed(lab, keys, eventually)
    finally:
        ask_kernel(page, "the_lab.run_panel.run and the_lab.run_panel.run.stop()")
    eventually(page, "the_lab.comparison is not None", True)
    compared(lab, keys, eventually)
    shared(lab, keys)


def searched(lab, keys, eventually):
    search = lab.key_pane("Search")
    plan = search.get_by_role("button", name="Plan", exact=True)
    plan.wait_for()
    lab.at_rest()
    ask(lab.page, "done = []; the_lab.lab_state.observe(lambda change: done.extend(change['old']), 'busy')")
    keys.reach(plan)
    keys.press("Enter")
    eventually(lab.page, f"{PLANNED} and 'plan' in done and 'plan' not in the_lab.lab_state.busy", True)


def ran_and_killed(lab, keys, eventually):
    run = lab.key_pane("Run")
    keys.reach(run.get_by_label("Iterations", exact=True))
    keys.press("Control+a")
    keys.type("2000")  # more than are done before the walk ends
    keys.press("Tab")
    keys.reach(run.get_by_role("button", name="Run", exact=True), back=True)
    keys.press("Enter")
    eventually(lab.page, "the_lab.run_panel.run is not None and len(the_lab.run_panel.run.losses) >= 2", True)
    disturb = run.get_by_role("button", name=re.compile("^Disturb"))
    keys.reach(disturb)
    keys.press("Enter")
    kill = run.get_by_role("menuitem", name=re.compile("^Kill"))
    kill.wait_for()
    while not keys.is_at(kill):
        keys.press("ArrowDown")
    keys.press("Enter")
    eventually(lab.page, "len(the_lab.run_panel.run.faults)", 1)
    expect(disturb).to_be_focused()


def compared(lab, keys, eventually):
    compare = lab.key_pane("Compare")
    expect(compare.get_by_role("tab", name="Devices")).to_have_attribute("aria-selected", "true")
    told = keys.button("In sentences", compare)
    keys.reach(told)
    keys.press("Enter")
    compare.locator(".dtfm-popover:visible", has_text="its prediction").wait_for()
    keys.press("Escape")
    expect(told).to_be_focused()
    keys.reach(compare.get_by_role("tab", name="Devices"))
    keys.press("ArrowRight", "Enter")
    expect(compare.get_by_role("tab", name="Stages")).to_have_attribute("aria-selected", "true")
    keys.press("ArrowLeft", "Enter")
    keys.reach(compare.get_by_role("button", name=re.compile("(ada|alan)$")).first)
    keys.press("ArrowDown", "Enter")
    eventually(lab.page, "len(the_lab.lab_state.selected)", 1)
    keys.reach(keys.button("Refit", compare), back=True)
    keys.press("Enter")
    eventually(lab.page, "the_lab.compare_panel.refitting.found is not None", True)


def shared(lab, keys):
    share, menu = lab.root.locator(".dtfm-bar [data-menu=more]"), lab.root.locator(".dtfm-menu-more")
    keys.reach(share, back=True)
    for name, done in (("Save page", "opens in any browser"), ("Copy link", "copied"), ("Record", "")):
        keys.press("Enter")
        button = keys.button(re.compile(f"{name}$"), menu)
        keys.reach(button)
        button.evaluate(DISABLED_FOR_A_MOMENT)  # as while it works, if that is shorter than a picture of the page
        assert keys.is_at(button)
        if done:
            keys.press("Enter")
            menu.get_by_text(re.compile(done)).wait_for()
        keys.press("Escape")
        expect(share).to_be_focused()
