"""The whole lab by hand on one screen, no code typed: from a blank canvas to a refit, a device killed on the way.

After every step the frame is where it was, to the pixel, and nothing has scrolled, see ``LabPage.look``.
``DTFM_SCREENSHOTS=folder`` keeps a picture of every state, light and dark.
"""

import json
import re

import pytest
from lab_page import LabPage
from playwright.sync_api import expect

pytest.importorskip("torch", reason="the story trains with torch")

PLACES = {
    "device-1": (0.12, 0.16),
    "device-2": (0.28, 0.16),
    "device-3": (0.44, 0.16),
    "device-4": (0.66, 0.16),
    "device-5": (0.84, 0.16),
    "device-6": (0.3, 0.66),
    "device-7": (0.5, 0.66),
    "device-8": (0.7, 0.66),
}
"""Shares of the canvas' width and height."""
REGIONS = (("device-1", "device-2", "device-3"), ("device-4", "device-5"), ("device-6", "device-7", "device-8"))
WATCH = """
states = []
chart = the_lab.schedule_panel.chart
chart.observe(lambda _: states.append((chart.measured_iteration, chart.n_measured)), "n_measured")
"""
PARTIAL_STATES_WANTED = 5
"""of measured bars that fill in under the predicted ones"""
SHAPE = "4 stages x 2 replicas"
PLANNED = "the_lab.plan is not None and not the_lab.lab_state.plan_is_stale"
NUMBERS = "print(the_lab.plan.cost.total_s, the_lab.measured.iteration_s, the_lab.topology.fingerprint)"


def begin(page, open_notebook, name, size, network=""):
    page.set_viewport_size({"width": size[0], "height": size[1]})
    open_notebook(page, [f"import dtfm_lab as lab\nthe_lab = lab.Lab({network!r})\nthe_lab".replace("''", "")])
    lab = LabPage(page, name)
    if not network:
        page.get_by_role("dialog", name="Open a network").get_by_role("button", name=re.compile("^Close")).click()
    lab.whole_window()
    return lab


def open_blank(lab):
    """By the next step and the card of the gallery."""
    lab.press_next("Open a network")
    door = lab.root.get_by_role("dialog")
    door.get_by_role("button", name=re.compile("^all .* networks")).wait_for()
    lab.look("door")
    card = door.get_by_role("button", name=re.compile("^Blank")).bounding_box()
    lab.click((card["x"] + card["width"] / 2, card["y"] + card["height"] / 2))  # a locator may scroll first
    door.wait_for(state="hidden")


def draw(lab, eventually) -> None:
    """Eight devices in three regions; the way from device-1 to device-6 slower than the way back."""
    page, box = lab.page, lab.stage.bounding_box()
    lab.picture("Rows")
    lab.stage.click(position={"x": box["width"] / 2, "y": box["height"] * 0.9})
    page.keyboard.press("d")
    for across, down in PLACES.values():
        lab.click(lab.at(across * box["width"], down * box["height"]))
        page.wait_for_timeout(250)  # a second click sooner is a double click
    eventually(page, "len(the_lab.topology.devices)", 8)
    lab.look("devices")
    page.keyboard.press("v")
    for region in REGIONS:
        lab.click(lab.at(0.5 * box["width"], 0.9 * box["height"]))  # nothing there: nothing selected
        for at, name in enumerate(region):
            lab.click(lab.where(name), modifiers=["Shift"] if at else [])
        page.keyboard.press("g")
        page.wait_for_timeout(300)
    eventually(page, "len(the_lab.topology.regions)", 3)
    page.keyboard.press("l")
    lab.drag(lab.where("device-1"), lab.where("device-6"))
    eventually(page, "len(the_lab.network_panel.drawing.document['links'])", 1)
    page.keyboard.press("v")
    form = page.locator(".dtfm-editor .dtfm-side")
    if not form.is_visible():
        page.keyboard.press("Enter")
    latency, bandwidth = form.get_by_label("Latency (ms)"), form.get_by_label("Bandwidth (Gbit/s)")
    lab.fill(latency.nth(0), "80")
    lab.fill(bandwidth.nth(0), "0.02")
    lab.fill(latency.nth(1), "10")
    lab.look("link")
    page.keyboard.press("Escape")
    eventually(page, "float(round(the_lab.topology.latency_s[0, 5] * 1e3, 6))", 80.0)
    eventually(page, "float(round(the_lab.topology.latency_s[5, 0] * 1e3, 6))", 10.0)
    eventually(page, "float(the_lab.topology.bandwidth_bytes_per_s[0, 5])", 2.5e6)


def test_a_person_does_all_of_it_without_typing_code(page, open_notebook, ask_kernel, eventually, set_theme):
    open_notebook(page, ["0"])  # where a theme can be chosen, whichever test came before
    set_theme(page, "dark")
    lab = begin(page, open_notebook, "whole", (1440, 900))
    open_blank(lab)
    eventually(page, "the_lab.lab_state.dark", True)
    lab.look("blank")
    draw(lab, eventually)
    lab.look("drawn")

    job = lab.menu("job")
    job.get_by_label("Job", exact=True).select_option("tiny")  # twelve iterations in seconds, on any machine
    job.get_by_label("Shape", exact=True).select_option(SHAPE)
    lab.look("job-menu")
    lab.close_menu()
    eventually(page, f"{PLANNED} and the_lab.plan.job.n_stages == 4 and the_lab.predicted is not None", True)
    assert re.match(r"[\d.]+ m?s", lab.number("Iteration"))
    lab.look("planned-by-itself")

    race(lab, ask_kernel, eventually)
    groups(lab, ask_kernel, eventually)

    schedule = lab.pane("Schedule")
    eventually(page, "the_lab.predicted is not None", True)
    expect(schedule.locator(".dtfm-gantt")).not_to_have_attribute("data-predicted", "0")
    lab.look("predicted")
    lab.pane("What if")
    lab.look("what-if")

    killed_run(lab, ask_kernel, eventually)

    lab.press_next("Compare")
    compared = lab.root.locator(".dtfm-out-compare")
    compared.wait_for()
    lab.look("compared")
    page.wait_for_timeout(600)
    compared.get_by_role("tab", name="Links").click()  # what was measured comes first: the devices
    row = compared.locator(".dtfm-residuals [role=row], .dtfm-residuals tbody tr").nth(1)
    row.click()
    eventually(page, "len(the_lab.lab_state.selected_link)", 2)
    expect(lab.inspector).to_have_attribute("data-kind", "link")
    lab.look("residual-selects-its-link")
    compared.get_by_role("button", name=re.compile("Refit")).click()
    eventually(page, "the_lab.compare_panel.refitting.found is not None", True)
    lab.look("refitted")

    saved_and_restored(lab, ask_kernel, eventually)
    assert ask_kernel(page, "print(the_lab.lab_state.message)") == ""


def race(lab, ask_kernel, eventually) -> None:
    """Several planners side by side; the plan of one is taken."""
    page, search = lab.page, lab.pane("Search")
    lab.look("search")
    lab.more(search).get_by_role("button", name="Race planners").click()
    page.keyboard.press("Escape")
    ask_kernel(page, "the_lab.plan_panel.race.seconds.value = 0.5")
    page.wait_for_timeout(300)
    search.get_by_role("button", name="Start race").click()
    raced = "the_lab.plan_panel.race"
    eventually(page, f"{raced}.search is None and len({raced}.curve.points) > 3", True)
    lab.look("raced")
    search.get_by_role("button", name="Take the leader's plan").click()
    eventually(page, PLANNED, True)


def groups(lab, ask_kernel, eventually) -> None:
    """The paper's five steps, then a device moved by hand, and back."""
    page, pane = lab.page, lab.pane("Groups")
    lab.look("groups")
    pane.get_by_role("button", name="Ring", exact=True).click()
    for letter in "abcde":
        pane.get_by_role("button", name=re.compile(rf"\({letter}\)")).click()
        eventually(page, "the_lab.groups_panel.groups.step", letter)
        page.wait_for_timeout(200)  # it is drawn
        lab.look(f"step-{letter}")
    pane.get_by_role("button", name="Path", exact=True).click()
    name = ask_kernel(page, "print(the_lab.plan.stages[0][0])")
    column = pane.get_by_role("group", name=re.compile("^Stage 3"))
    start, end = middle(pane.locator(f"button[data-device='{name}']")), middle(column)
    lab.drag(start, end, look="move-priced")
    eventually(page, f"{name!r} in the_lab.plan.stages[3]", True)
    lab.look("moved-by-hand")
    pane.get_by_title(re.compile("^Undo: ")).click()
    eventually(page, f"{name!r} in the_lab.plan.stages[0]", True)


def middle(locator):
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def killed_run(lab, ask_kernel, eventually) -> None:
    """A run for real; a device is killed, the run recovers, and is stopped by hand after twelve iterations."""
    page, run = lab.page, lab.pane("Run")
    lab.look("run")
    lab.fill(run.get_by_label("Iterations", exact=True), "2000")  # it must not end before the kill
    ask_kernel(page, WATCH)
    lab.press_next("Run it for real")
    eventually(page, "the_lab.run_panel.run is not None", True)
    lab.look("run-begins")
    eventually(page, "len(the_lab.run_panel.run.losses) >= 2", True)
    run.get_by_role("button", name=re.compile("^Disturb")).click()
    victim = page.get_by_label("Device to disturb").input_value()
    lab.look("disturb")
    page.get_by_role("menuitem", name=re.compile("^Kill")).click()
    eventually(page, "[fault.device for fault in the_lab.run_panel.run.faults]", [victim])
    lab.look("recovered")
    eventually(page, "len(the_lab.run_panel.run.losses) >= 12", True)
    run.get_by_role("button", name="Stop", exact=True).click()
    eventually(page, "the_lab.comparison is not None", True)
    assert ask_kernel(page, "print(the_lab.run_panel.run.status)") == "stopped"
    assert ask_kernel(page, "print(len(the_lab.measured.context.losses) >= 12)") == "True"
    states = {tuple(state) for state in json.loads(ask_kernel(page, "import json; print(json.dumps(states))"))}
    whole = max(n for _, n in states)
    assert len({state for state in states if 0 < state[1] < whole}) >= PARTIAL_STATES_WANTED, sorted(states)
    lab.look("measured")


def saved_and_restored(lab, ask_kernel, eventually) -> None:
    """The lab in a file; another network, which has no run yet; and back, equal to the last digit."""
    page = lab.page
    more = lab.menu("more")
    more.get_by_title("Save the whole lab in this file").click()
    more.get_by_text("saved as lab.json").wait_for()
    lab.look("saved")
    lab.close_menu()
    before = ask_kernel(page, NUMBERS)
    network = lab.menu("network")
    network.get_by_label("Network", exact=True).select_option("lecture-hall")
    eventually(page, "the_lab.topology.name", "lecture-hall")
    lab.close_menu()
    eventually(page, "(the_lab.measured, the_lab.comparison)", (None, None))  # they say nothing about this network
    lab.look("another-network")
    more = lab.menu("more")
    more.get_by_title("Restore the lab from this file or link").click()
    more.get_by_text("restored").wait_for()
    lab.close_menu()
    eventually(page, "the_lab.comparison is not None", True)
    lab.at_rest()
    assert ask_kernel(page, NUMBERS) == before
    lab.look("restored")


def test_every_pane_and_picture_holds_in_smaller_windows(page, open_notebook, eventually, ask_kernel):
    lab = begin(page, open_notebook, "window", (1280, 720), "lecture-hall")
    eventually(page, f"{PLANNED} and the_lab.predicted is not None", True)
    for width, height in ((1280, 720), (1100, 800)):
        page.set_viewport_size({"width": width, "height": height})
        lab.settle()
        for title in ("Search", "Groups", "Schedule", "What if", "Run"):
            lab.key_pane(title)
            lab.look(f"{width}-{title.lower().replace(' ', '-')}")
        for title in ("Matrix", "Map", "Rows"):
            lab.picture(title)
            lab.look(f"{width}-{title.lower()}")
        for menu in ("network", "job", "more"):
            lab.menu(menu)
            lab.look(f"{width}-menu-{menu}")
            lab.close_menu()
    tabs = lab.root.get_by_role("tablist", name="Results").get_by_role("tab")
    before = [tab.bounding_box() for tab in tabs.all()]
    ask_kernel(page, "the_lab.plan_panel.job_controls.batch.value = 7")
    expect(tabs.get_by_label("before the last edit")).not_to_have_count(0)
    lab.look("marked")
    assert [tab.bounding_box() for tab in tabs.all()] == before, "a mark moves no tab"
    for width in (1440, 1280, 1100):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_timeout(300)
        ends = lab.root.get_by_role("button", name="⋯").last.bounding_box()
        assert ends["x"] + ends["width"] <= width, "nothing is pushed out of the window"
