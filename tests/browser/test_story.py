"""Parts of the story by hand that the whole of it does not tell: stopping, choices, what a run refuses."""

import re

import pytest
from lab_page import LabPage

expect = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright").expect
pytest.importorskip("torch", reason="the story trains with torch")


def opened(page, open_notebook, eventually, network, name):
    open_notebook(page, [f"import dtfm_lab as lab\nthe_lab = lab.Lab('{network}', autosave=False)\nthe_lab"])
    lab = LabPage(page, name)
    lab.whole_window()
    eventually(page, "the_lab.plan is not None and the_lab.predicted is not None", True)
    lab.settled("Iteration")
    return lab


def test_stopping_a_run_from_the_page_leaves_no_worker(page, open_notebook, ask_kernel, eventually):
    lab = opened(page, open_notebook, eventually, "lecture-hall", "stop")
    ask_kernel(page, "the_lab.run_panel.iterations.value = 10_000")
    lab.press_next("Run it for real")
    eventually(page, "the_lab.run_panel.run is not None and len(the_lab.run_panel.run.losses) > 1", True)
    lab.press_next("Stop the run")
    eventually(page, "the_lab.run_panel.run.status", "stopped")
    ask_kernel(page, "import subprocess")
    left = "subprocess.run(['pgrep', '-g', str(the_lab.run_panel.run.pid)]).returncode"
    eventually(page, left, 1)  # pgrep finds nobody, once the last worker has gone
    eventually(page, "the_lab.measured is not None", True)
    lab.look("stopped")


def test_a_person_tries_schedules_and_choices_and_sees_where_the_time_goes(page, open_notebook, ask_kernel, eventually):
    lab = opened(page, open_notebook, eventually, "lecture-hall", "schedules")
    schedule = lab.pane("Schedule")
    more = lab.more(schedule)
    more.get_by_role("button", name=re.compile("Compare schedules")).click()
    eventually(page, "[row['name'] for row in the_lab.schedule_panel.comparing.table.rows if 'iteration_s' in row]", [
        "1f1b", "adaptive-1f1b", "gpipe", "interleaved-1f1b", "zb-h1",
    ])  # fmt: skip
    lab.look("compared-schedules")
    more.get_by_role("button", name="interleaved-1f1b").click()
    eventually(page, "the_lab.predicted.context.schedule", "interleaved-1f1b")
    more.get_by_label("Averaging", exact=True).select_option("parts go round (ring)")
    more.get_by_label("Compression", exact=True).select_option("8 bits (int8)")
    eventually(page, "the_lab.predicted.context.synchronisation", "ring")
    eventually(page, "the_lab.lab_state.chosen_plan.job.compression", "int8")
    lab.close_menu()
    schedule.get_by_role("button", name="Critical path").click()
    eventually(page, "the_lab.schedule_panel.chart.show_path", True)
    lab.look("critical-path")
    schedule.locator(".dtfm-schedule-menu select").select_option("1f1b")
    eventually(page, "the_lab.predicted.context.schedule", "1f1b")
    caption = schedule.locator(".dtfm-gantt .dtfm-caption")
    for part in ("tokens/s", "MFU", "bubble", "chiefly"):
        expect(caption).to_contain_text(part)
    more = lab.more(schedule)
    more.get_by_label("Messages", exact=True).select_option("one card a device")
    eventually(page, "the_lab.predicted.context.queueing", "cards")
    lab.close_menu()
    run = lab.pane("Run")
    run.get_by_label("Clock", exact=True).select_option("Clock: as drawn")
    lab.press_next("Run it for real")
    refused = "queueing is cards on the paced clock; wanted the virtual clock, or pairs"
    expect(lab.headline).to_contain_text(refused)
    lab.look("refused")
    run.get_by_label("Clock", exact=True).select_option("Clock: CPU time")
    schedule = lab.pane("Schedule")
    lab.more(schedule).get_by_label("Messages", exact=True).select_option("one link a pair")
    eventually(page, "the_lab.predicted.context.queueing", "pairs")
    lab.close_menu()
    lab.press_next("Run it for real")
    eventually(page, "the_lab.comparison is not None", True)
    eventually(page, "the_lab.measured.context.synchronisation", "ring")
    lab.look("ring-and-int8-compared")
