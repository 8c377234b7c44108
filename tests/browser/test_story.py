"""Parts of the story by hand that the whole of it does not tell: stopping, choices, what does not fit."""

import pytest
from lab_page import LabPage

expect = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright").expect
pytest.importorskip("torch", reason="the story trains with torch")


def test_stopping_a_run_from_the_page_leaves_no_worker(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, ["import dtfm_lab as lab\nthe_lab = lab.Lab('lecture-hall')\nthe_lab"])
    lab = LabPage(page, "stop")
    lab.look("opened")
    lab.press("Plan")
    eventually(page, "the_lab.plan is not None", True)
    ask_kernel(page, "the_lab.run_panel.iterations.value = 10_000")
    lab.press("Run")
    eventually(page, "the_lab.run_panel.run is not None and len(the_lab.run_panel.run.losses) > 1", True)
    lab.press("Stop")  # the last one on the page: the run's
    eventually(page, "the_lab.run_panel.run.status", "stopped")
    left = "import subprocess; print(subprocess.run(['pgrep', '-g', str(the_lab.run_panel.run.pid)]).returncode)"
    assert ask_kernel(page, left) == "1", "pgrep finds nobody"
    eventually(page, "the_lab.measured is not None", True)


def test_a_person_tries_schedules_and_choices_and_sees_where_the_time_goes(page, open_notebook, ask_kernel, eventually):
    open_notebook(page, ["import dtfm_lab as lab\nthe_lab = lab.Lab('lecture-hall')\nthe_lab"])
    lab = LabPage(page, "schedules")
    lab.press("Plan")
    eventually(page, "the_lab.predicted is not None", True)
    lab.press("Compare schedules")
    eventually(page, "[row['name'] for row in the_lab.schedule_panel.comparing.table.rows if 'iteration_s' in row]", [
        "1f1b", "adaptive-1f1b", "gpipe", "interleaved-1f1b", "zb-h1",
    ])  # fmt: skip
    lab.look("compared-schedules", at=".dtfm-candidates")
    page.get_by_role("button", name="interleaved-1f1b").click()
    eventually(page, "the_lab.predicted.context.schedule", "interleaved-1f1b")
    lab.section("schedule").get_by_role("button", name="Critical path").click()
    eventually(page, "the_lab.schedule_panel.chart.show_path", True)
    lab.look("critical-path", at=".dtfm-gantt")
    lab.section("schedule").get_by_label("Averaging").select_option("ring")
    lab.section("schedule").get_by_label("Compression").select_option("int8")
    eventually(page, "the_lab.predicted.context.synchronisation", "ring")
    eventually(page, "the_lab.lab_state.chosen_plan.job.compression", "int8")
    page.get_by_role("button", name="1f1b", exact=True).click()
    eventually(page, "the_lab.predicted.context.schedule", "1f1b")
    caption = page.locator(".dtfm-gantt .dtfm-caption")
    for part in ("tokens/s", "MFU", "bubble", "chiefly"):
        expect(caption).to_contain_text(part)
    lab.section("schedule").get_by_label("Messages").select_option("one card a device")
    eventually(page, "the_lab.predicted.context.queueing", "cards")
    lab.section("run").get_by_label("Clock").select_option("paced")
    lab.press("Run")
    expect(page.get_by_text("queueing is cards on the paced clock; wanted the virtual clock, or pairs")).to_be_visible()
    lab.look("refused", at=".dtfm-warning")
    lab.section("run").get_by_label("Clock").select_option("virtual")
    lab.section("schedule").get_by_label("Messages").select_option("one link a pair")
    eventually(page, "the_lab.predicted.context.queueing", "pairs")
    lab.press("Run")
    eventually(page, "the_lab.comparison is not None", True)
    eventually(page, "the_lab.measured.context.synchronisation", "ring")
    lab.look("ring-and-int8-compared")


def test_devices_that_do_not_fit_are_told_above_the_chart(page, open_notebook, eventually):
    open_notebook(page, ["import dtfm_lab as lab\nthe_lab = lab.Lab('worldwide')\nthe_lab"])
    lab = LabPage(page, "memory")
    lab.press("Plan")
    eventually(page, "the_lab.predicted is not None", True)
    line = lab.section("schedule").get_by_role("alert")
    expect(line).to_contain_text("would need")
    lab.look("lacking", at=".dtfm-alarm")
    lab.section("schedule").get_by_label("Recompute activations").check()
    expect(line).to_have_count(0)
    lab.look("fits", at=".dtfm-gantt")
