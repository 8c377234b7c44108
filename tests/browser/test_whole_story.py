"""The whole lab by hand, no code typed: every step from a blank canvas to a refit, a device killed on the way.

``DTFM_SCREENSHOTS=folder`` keeps a picture of every state, light and dark.
"""

import json
import re

import pytest
from lab_page import LabPage

expect = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright").expect
pytest.importorskip("torch", reason="the story trains with torch")

PLACES = {
    "device-1": (110, 100),
    "device-2": (220, 100),
    "device-3": (330, 100),
    "device-4": (560, 100),
    "device-5": (670, 100),
    "device-6": (250, 300),
    "device-7": (370, 300),
    "device-8": (490, 300),
}
REGIONS = (("device-1", "device-2", "device-3"), ("device-4", "device-5"), ("device-6", "device-7", "device-8"))
WATCH = """
states = []
chart = the_lab.schedule_panel.chart
chart.observe(lambda _: states.append((chart.measured_iteration, chart.n_measured)), "n_measured")
"""
PARTIAL_STATES_WANTED = 5
"""of measured bars that fill in under the predicted ones"""
SHAPE = "4 stages x 2 replicas"


def draw(lab: LabPage, eventually) -> None:
    """Eight devices in three regions; the way from device-1 to device-4 slower than the way back."""
    page = lab.page
    lab.tool("Add device")
    for place in PLACES.values():
        lab.click(*place)
        page.wait_for_timeout(250)  # a second click sooner is a double click
    eventually(page, "len(the_lab.topology.devices)", 8)
    lab.tool("Select")
    for region in REGIONS:
        lab.click(400, 400)  # nothing there: nothing selected
        for at, name in enumerate(region):
            lab.click(*PLACES[name], modifiers=["Shift"] if at else [])
        lab.tool("Group")
    eventually(page, "len(the_lab.topology.regions)", 3)
    lab.tool("Link")
    lab.drag(PLACES["device-1"], PLACES["device-6"])
    eventually(page, "len(the_lab.network_panel.drawing.document['links'])", 1)
    panel = page.locator(".dtfm-editor .dtfm-side")
    latency, bandwidth = panel.get_by_label("Latency (ms)"), panel.get_by_label("Bandwidth (Gbit/s)")
    for field, value in ((latency.nth(0), "80"), (bandwidth.nth(0), "0.02"), (latency.nth(1), "10")):
        field.fill(value)
        field.press("Enter")
        page.wait_for_timeout(150)
    lab.tool("Select")
    eventually(page, "float(round(the_lab.topology.latency_s[0, 5] * 1e3, 6))", 80.0)
    eventually(page, "float(round(the_lab.topology.latency_s[5, 0] * 1e3, 6))", 10.0)
    eventually(page, "float(the_lab.topology.bandwidth_bytes_per_s[0, 5])", 2.5e6)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_person_does_all_of_it_without_typing_code(page, open_notebook, ask_kernel, eventually, set_theme, theme):
    open_notebook(page, ["import dtfm_lab as lab\nthe_lab = lab.Lab()\nthe_lab"])
    set_theme(page, theme)
    lab = LabPage(page, f"whole-{theme}")
    eventually(page, "the_lab.lab_state.dark", theme == "dark")
    lab.look("blank")
    draw(lab, eventually)
    lab.look("drawn")

    lab.section("plan").get_by_label("Job").select_option("tiny")  # twelve iterations in seconds, on any machine
    lab.section("plan").get_by_label("Shape").select_option(SHAPE)
    lab.press("Plan")
    eventually(page, "the_lab.plan is not None", True)
    lab.look("planned", at=".dtfm-section-plan")

    lab.press("Race", "plan", last=False)  # the tab, and then what starts it
    lab.press("Race", "plan")
    race = "the_lab.plan_panel.race"
    eventually(page, f"{race}.search is None and len({race}.curve.points) > 3", True)
    lab.look("raced", at=".dtfm-section-plan .dtfm-convergence >> visible=true")
    lab.section("plan").get_by_role("button", name="Take this plan").first.click()
    eventually(page, "the_lab.plan is not None", True)

    for letter in "abcde":
        lab.section("groups").get_by_role("button", name=re.compile(rf"\({letter}\)")).click()
        page.wait_for_timeout(900)
        lab.look(f"step-{letter}", at=".dtfm-section-groups")

    lab.press("Simulate")
    eventually(page, "the_lab.predicted is not None", True)
    lab.look("simulated", at=".dtfm-section-schedule")
    lab.look("what-if", at=".dtfm-section-what-if")

    lab.section("run").get_by_label("Iterations", exact=True).fill("12")
    lab.section("run").get_by_label("Iterations", exact=True).press("Enter")
    ask_kernel(page, WATCH)
    lab.press("Run")
    eventually(page, "the_lab.run_panel.run is not None and len(the_lab.run_panel.run.losses) >= 2", True)
    tile = page.locator(".dtfm-tile").first
    victim = tile.get_attribute("data-device")
    tile.click()
    lab.look("menu", at=".dtfm-devices")
    page.get_by_role("menuitem", name=re.compile("^Kill")).click()
    eventually(page, "[fault.device for fault in the_lab.run_panel.run.faults]", [victim])
    lab.look("recovered", at=".dtfm-devices")
    eventually(page, "the_lab.comparison is not None", True)
    assert ask_kernel(page, "print(the_lab.run_panel.run.status, len(the_lab.measured.context.losses))") == "done 12"
    states = {tuple(state) for state in json.loads(ask_kernel(page, "import json; print(json.dumps(states))"))}
    whole = max(n for _, n in states)
    assert len({state for state in states if 0 < state[1] < whole}) >= PARTIAL_STATES_WANTED, sorted(states)
    lab.look("measured", at=".dtfm-gantt")

    lab.look("compared", at=".dtfm-section-compare")
    row = page.locator(".dtfm-residuals [role=row], .dtfm-residuals tbody tr").nth(1)
    row.click()
    eventually(page, "len(the_lab.lab_state.selected_link)", 2)
    lab.look("residual-selects-its-link", at=".dtfm-editor")
    lab.press("Refit")
    eventually(page, "the_lab.compare_panel.refitting.found is not None", True)
    lab.look("refitted", at=".dtfm-section-compare")

    lab.press("Save", section=None)
    page.get_by_text("saved as lab.json").wait_for()
    before = ask_kernel(
        page, "print(the_lab.plan.cost.total_s, the_lab.measured.iteration_s, the_lab.topology.fingerprint)"
    )
    lab.section("network").get_by_label("Open", exact=True).select_option("lecture-hall")
    eventually(page, "the_lab.topology.name", "lecture-hall")
    page.get_by_text("the network has changed since this plan").first.wait_for()
    lab.look("stale")
    lab.press("Restore", section=None, last=False)
    page.get_by_text("restored").wait_for()
    after = ask_kernel(
        page, "print(the_lab.plan.cost.total_s, the_lab.measured.iteration_s, the_lab.topology.fingerprint)"
    )
    assert json.dumps(after) == json.dumps(before)
    eventually(page, "the_lab.comparison is not None", True)
    lab.look("restored")
    assert ask_kernel(page, "print(the_lab.lab_state.message)") == ""
