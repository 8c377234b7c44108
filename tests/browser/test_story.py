"""The whole story by hand, no code typed: draw, plan, simulate, run, compare."""

import json
import os
import re
from pathlib import Path

import pytest

expect = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright").expect
pytest.importorskip("torch", reason="the story trains with torch")

BLANK_LAB = "import dtfm_lab as lab\nbench = lab.Lab()\nbench"
PARTIAL_STATES_WANTED = 5


class LabPage:
    """Where things are in the lab on the page."""

    def __init__(self, page, name):
        self.page, self.name, self.n_shots = page, name, 0
        self.stage = page.locator(".dtfm-editor .dtfm-stage").first
        self.stage.locator("canvas").first.wait_for(timeout=90_000)
        self.stage.scroll_into_view_if_needed()
        page.wait_for_timeout(500)

    def tool(self, name):
        self.page.locator(".dtfm-toolbar").first.get_by_role("button", name=name, exact=True).click()

    def press(self, name):
        """A button of the lab's own; its icon is part of its accessible name, so match the text."""
        self.page.locator(".dtfm-lab button.jupyter-button", has_text=re.compile(rf"^\s*{name}\s*$")).last.click()

    def at(self, x, y):
        box = self.stage.bounding_box()
        return box["x"] + x, box["y"] + y

    def click(self, x, y, **options):
        self.page.mouse.click(*self.at(x, y), **options)
        self.page.wait_for_timeout(150)

    def drag(self, start, end):
        self.page.mouse.move(*self.at(*start))
        self.page.mouse.down()
        self.page.mouse.move(*self.at(*end), steps=12)
        self.page.wait_for_timeout(100)
        self.page.mouse.up()
        self.page.wait_for_timeout(200)

    def fill(self, label, value):
        field = self.page.locator(".dtfm-editor").get_by_label(label).first
        field.fill(value)
        field.press("Enter")
        self.page.wait_for_timeout(150)

    def look(self, state, at=None):
        """Keep a picture, where the environment asks for some."""
        folder = os.environ.get("DTFM_SCREENSHOTS")
        if folder is None:
            return
        if at is not None:
            self.page.locator(at).first.scroll_into_view_if_needed()
            self.page.wait_for_timeout(300)
        self.n_shots += 1
        self.page.screenshot(path=Path(folder) / f"{self.name}-{self.n_shots}-{state}.png")


PLACES = {"device-1": (150, 110), "device-2": (150, 300), "device-3": (560, 110), "device-4": (560, 300)}


def draw_two_regions(lab, ask_kernel, eventually):
    """Four devices in two regions, the link from device-1 to device-3 slow."""
    page = lab.page
    lab.tool("Add device")
    for place in PLACES.values():
        lab.click(*place)
    eventually(page, "len(bench.topology.devices)", 4)
    lab.tool("Select")
    for pair in (("device-1", "device-2"), ("device-3", "device-4")):
        lab.click(360, 400)  # nothing there: nothing selected
        lab.click(*PLACES[pair[0]])
        page.keyboard.down("Shift")
        lab.click(*PLACES[pair[1]])
        page.keyboard.up("Shift")
        lab.tool("Group")
    eventually(page, "len(bench.topology.regions)", 2)
    lab.tool("Link")
    lab.drag(PLACES["device-1"], PLACES["device-3"])
    lab.tool("Select")
    middle = tuple((a + b) / 2 for a, b in zip(PLACES["device-1"], PLACES["device-3"], strict=True))
    lab.click(*middle)
    lab.fill("Latency", "80")
    lab.fill("Bandwidth", "0.02")
    eventually(page, "float(round(bench.topology.latency_s[0, 2], 6))", 0.08)
    eventually(page, "float(bench.topology.bandwidth_bytes_per_s[2, 0])", 2.5e6)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_person_draws_plans_simulates_runs_and_compares(
    page, open_notebook, ask_kernel, eventually, set_theme, theme
):
    open_notebook(page, [BLANK_LAB])
    set_theme(page, theme)
    lab = LabPage(page, f"story-{theme}")
    lab.look("blank")
    draw_two_regions(lab, ask_kernel, eventually)
    lab.look("drawn")

    lab.press("Plan")
    eventually(page, "bench.plan is not None", True, patience_s=30)
    assert json.loads(ask_kernel(page, "import json; print(json.dumps(bench.plan.idle_devices))")) == []
    lab.look("planned", at=".dtfm-convergence")
    lab.look("groups", at=".dtfm-groups")

    lab.press("Simulate")
    eventually(page, "bench.predicted is not None", True, patience_s=30)
    eventually(page, "bench.predicted.context.clock", "model")
    lab.look("simulated", at=".dtfm-gantt")

    watch = (
        "states = []\n"
        "chart = bench.schedule_panel.chart\n"
        "chart.observe(lambda _: states.append((chart.measured_iteration, chart.n_measured)), 'n_measured')"
    )
    ask_kernel(page, watch)
    lab.press("Run")
    eventually(page, "chart.measured_iteration >= 2", True, patience_s=60)
    lab.look("running", at=".dtfm-gantt")
    eventually(page, "bench.comparison is not None", True, patience_s=60)
    last = int(ask_kernel(page, "print(bench.run_panel.iterations.value - 1)"))
    states = {tuple(s) for s in json.loads(ask_kernel(page, "print(json.dumps(states))"))}
    whole = max(n for _, n in states)
    partial = {(iteration, n) for iteration, n in states if 0 <= iteration < last and 0 < n < whole}
    assert len(partial) >= PARTIAL_STATES_WANTED, sorted(states)
    lab.look("measured", at=".dtfm-gantt")

    expect(page.locator(".dtfm-table").first).to_be_visible()
    assert "error" in page.locator(".dtfm-figure").last.inner_text()
    assert ask_kernel(page, "print(bench.bench.message)") == ""
    lab.look("compared", at=".dtfm-table")
    losses = json.loads(ask_kernel(page, "print(json.dumps(bench.measured.context.losses))"))
    assert losses[-1] < losses[0]


def test_stopping_a_run_from_the_page_leaves_no_worker(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, ["import dtfm_lab as lab\nbench = lab.Lab('lecture-hall')\nbench"])
    lab = LabPage(page, "stop")
    lab.look("opened")
    lab.press("Plan")
    eventually(page, "bench.plan is not None", True, patience_s=30)
    ask_kernel(page, "bench.run_panel.iterations.value = 10_000")
    lab.press("Run")
    eventually(page, "bench.run_panel.run is not None and len(bench.run_panel.run.losses) > 1", True, patience_s=60)
    lab.press("Stop")  # the last one on the page: the run's
    eventually(page, "bench.run_panel.run.status", "stopped")
    left = "import subprocess; print(subprocess.run(['pgrep', '-g', str(bench.run_panel.run.pid)]).returncode)"
    assert ask_kernel(page, left) == "1", "pgrep finds nobody"
    eventually(page, "bench.measured is not None", True)


def test_a_person_tries_schedules_and_choices_and_sees_where_the_time_goes(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, ["import dtfm_lab as lab\nbench = lab.Lab('lecture-hall')\nbench"])
    lab = LabPage(page, "schedules")
    lab.press("Plan")
    eventually(page, "bench.predicted is not None", True, patience_s=30)
    lab.press("Compare schedules")
    eventually(page, "[row['name'] for row in bench.schedule_panel.comparing.table.rows if 'iteration_s' in row]", [
        "1f1b", "adaptive-1f1b", "gpipe", "interleaved-1f1b", "zb-h1",
    ], patience_s=30)  # fmt: skip
    lab.look("compared-schedules", at=".dtfm-candidates")
    page.get_by_role("button", name="interleaved-1f1b").click()
    eventually(page, "bench.predicted.context.schedule", "interleaved-1f1b")
    page.get_by_role("button", name="Critical path").click()
    eventually(page, "bench.schedule_panel.chart.show_path", True)
    lab.look("critical-path", at=".dtfm-gantt")
    page.get_by_label("Averaging").select_option("ring")
    page.get_by_label("Compression").select_option("int8")
    eventually(page, "bench.predicted.context.synchronisation", "ring")
    eventually(page, "bench.bench.chosen_plan.job.compression", "int8")
    page.get_by_role("button", name="1f1b", exact=True).click()
    eventually(page, "bench.predicted.context.schedule", "1f1b")
    caption = page.locator(".dtfm-gantt .dtfm-caption")
    for part in ("tokens/s", "MFU", "bubble", "chiefly"):
        expect(caption).to_contain_text(part)
    page.get_by_label("Messages").select_option("one card a device")
    eventually(page, "bench.predicted.context.queueing", "cards")
    page.get_by_label("Clock").select_option("paced")
    lab.press("Run")
    expect(page.get_by_text("queueing is cards on the paced clock; wanted the virtual clock, or pairs")).to_be_visible()
    lab.look("refused", at=".dtfm-warning")
    page.get_by_label("Clock").select_option("virtual")
    page.get_by_label("Messages").select_option("one link a pair")
    eventually(page, "bench.predicted.context.queueing", "pairs")
    lab.press("Run")
    eventually(page, "bench.comparison is not None", True, patience_s=60)
    eventually(page, "bench.measured.context.synchronisation", "ring")
    lab.look("ring-and-int8-compared")


def test_devices_that_do_not_fit_are_told_above_the_chart(page, open_notebook, eventually):
    open_notebook(page, ["import dtfm_lab as lab\nbench = lab.Lab('worldwide')\nbench"])
    lab = LabPage(page, "memory")
    lab.press("Plan")
    eventually(page, "bench.predicted is not None", True, patience_s=40)
    line = page.get_by_role("alert")
    expect(line).to_contain_text("would need")
    lab.look("lacking", at=".dtfm-alarm")
    page.get_by_label("Recompute activations").check()
    expect(line).to_have_count(0)
    lab.look("fits", at=".dtfm-gantt")
