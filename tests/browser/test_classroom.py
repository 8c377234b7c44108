"""Some visitors at once: a kernel each, all of which end, however the visitors leave."""

import time
from pathlib import Path

import psutil
import pytest
from serving import PATIENCE_S, VIEWPORT, app_server, kernels_of

pytest.importorskip("voila", reason="the page needs voila")


def until(holds):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_three_visitors_leave_in_three_ways_and_no_kernel_stays(tmp_path, browser, monkeypatch):
    monkeypatch.setenv("DTFM_LAB_AWAY_S", "15")  # a page takes long to come on a busy machine
    with app_server(Path(tmp_path), "lecture-hall") as (address, process):
        server = psutil.Process(process.pid)
        pages = []
        for _ in range(3):
            context = browser.new_context(viewport=VIEWPORT, reduced_motion="reduce")
            context.set_default_timeout(PATIENCE_S * 1000)
            pages.append(context.new_page())
            pages[-1].goto(address)
        for page in pages:
            page.locator(".dtfm-lab .dtfm-panes").first.wait_for()
            page.wait_for_selector(".dtfm-lab .dtfm-gantt:not([data-predicted='0'])")
        found = kernels_of(server)
        assert len(found) == 3
        assert all(kernel.children() == [] for kernel in found), "torch is not loaded before something runs"
        shut, gone, lid = pages
        shut.close(run_before_unload=True)
        gone.goto("about:blank")
        lid.context.close()
        until(lambda: not kernels_of(server))
        for page in (shut, gone):
            page.context.close()


def test_kernels_end_when_their_server_is_killed(tmp_path, browser):
    with app_server(Path(tmp_path), "lecture-hall") as (address, process):
        server = psutil.Process(process.pid)
        context = browser.new_context(viewport=VIEWPORT, reduced_motion="reduce")
        context.set_default_timeout(PATIENCE_S * 1000)
        page = context.new_page()
        page.goto(address)
        page.locator(".dtfm-lab .dtfm-panes").first.wait_for()
        left = server.children(recursive=True)
        assert len(left) == 1, "the kernel"
        server.kill()
        until(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in left))
        context.close()
