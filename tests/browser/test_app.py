"""The Lab as a page of its own: what a visitor sees, and that no kernel is left, however visitors and server go."""

import signal
import time
from dataclasses import replace

import psutil
import pytest
from conftest import screenshot
from serving import PATIENCE_S, app_server, fresh_page, kernels_of

import dtfm_lab as lab
from dtfm_lab.files.workspaces import WorkspaceState, link_of, state_from_link

pytest.importorskip("voila", reason="the page needs voila")

PLANNED = ".dtfm-lab .dtfm-gantt:not([data-predicted='0'])"
LOOKS_AT_FRAME = """
const look = () => {
    const frame = document.querySelector("#loading");
    if (!frame?.querySelector("#loading_text")) return requestAnimationFrame(look);
    const { width, height } = frame.getBoundingClientRect();
    window.frameAtFirst = [document.title, document.querySelectorAll(".dtfm-lab").length, width, height];
};
look();
"""
"""Keeps what is on the page when its frame is first there: title, number of labs, and the frame's size."""


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """The address of the page, and its server, which waits 15 s for a page that is away."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DTFM_LAB_AWAY_S", "15")  # a page takes long to come on a busy machine
        with app_server(tmp_path_factory.mktemp("app"), "lecture-hall") as (address, process):
            yield address, process


def kernels(process):
    return kernels_of(psutil.Process(process.pid))


def until(holds):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def visit(page, address):
    page.goto(address)
    page.locator(".dtfm-lab .dtfm-panes").first.wait_for()
    page.locator("#loading").wait_for(state="detached")


def opened(page, network):
    """Open another network from the bar's menu."""
    page.get_by_role("button", name="lecture-hall").click()
    page.locator(".dtfm-menu-network select").first.select_option(network)
    page.wait_for_selector(f"{PLANNED} >> nth=0")
    page.locator(".dtfm-pick", has_text=network).wait_for()


def test_a_visitor_finds_a_plan_in_the_whole_window_as_light_as_the_system_and_leaves_no_kernel(app, browser):
    """The page's frame stands before its kernel has answered; the theme follows the visitor's system.

    One visitor goes elsewhere, another one's lid is shut; a page is closed in the test below.
    """
    address, process = app
    lid = browser.new_context(reduced_motion="reduce")
    with fresh_page(browser, color_scheme="dark") as page:
        page.goto(address.split("?")[0])
        assert "/login" in page.url, "nobody without the token gets a kernel"
        assert kernels(process) == []
        page.add_init_script(LOOKS_AT_FRAME)
        page.goto(address, wait_until="commit")
        page.wait_for_function("window.frameAtFirst")
        page.locator("#loading").wait_for(state="detached")
        title, n_labs, width, height = page.evaluate("window.frameAtFirst")
        assert title.startswith("dtfm lab")
        assert n_labs == 0
        assert (width, height) == (page.viewport_size["width"], page.viewport_size["height"])
        page.wait_for_selector(PLANNED)
        assert page.locator(".jp-InputArea:visible, .jp-OutputPrompt:visible").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator(".dtfm-lab").bounding_box() == {"x": 0, "y": 0, **page.viewport_size}
        screenshot(page, "app")
        for theme, surface in (("dark", "rgb(33, 33, 33)"), ("light", "rgb(255, 255, 255)")):
            page.emulate_media(color_scheme=theme)
            is_light = str(theme == "light").lower()
            page.wait_for_selector(f"body[data-jp-theme-light='{is_light}']", state="attached")
            page.wait_for_function(f"() => getComputedStyle(document.body).backgroundColor === '{surface}'")
        opened(page, "volunteers")
        other = lid.new_page()
        other.set_default_timeout(PATIENCE_S * 1000)
        visit(other, address)
        other.locator(".dtfm-pick", has_text="lecture-hall").wait_for()  # nobody else sees what was opened
        found = kernels(process)
        assert len(found) == 2
        assert all(kernel.children() == [] for kernel in found), "torch is not loaded before something runs"
        page.goto("about:blank")
        lid.close()
        until(lambda: not kernels(process))


def test_a_reload_and_a_killed_kernel_lose_nothing_and_a_closed_page_leaves_no_kernel(app, browser):
    address, process = app
    headline = ".dtfm-lab .dtfm-headline"
    with fresh_page(browser) as page:
        visit(page, address)
        page.wait_for_selector(PLANNED)
        opened(page, "volunteers")
        page.reload()
        page.locator(".dtfm-pick", has_text="volunteers").wait_for()
        until(lambda: len(kernels(process)) == 1)
        (kernel,) = kernels(process)
        kernel.kill()
        page.locator(headline, has_text="Python has ended").wait_for()
        page.get_by_role("button", name="Restart and restore").click()
        page.locator(".dtfm-lab:not(.dtfm-gone) .dtfm-pick", has_text="volunteers").wait_for()
        n_kernels = len(kernels(process))
        page.close(run_before_unload=True)
        until(lambda: len(kernels(process)) < n_kernels)


@pytest.mark.parametrize("width", [1440, 1920])
def test_larger_type_pushes_nothing_out_of_the_window(app, browser, width):
    address, _ = app
    size = {"width": width, "height": 900}
    with fresh_page(browser, viewport=size) as page:
        visit(page, address)
        page.wait_for_selector(PLANNED)
        page.locator(".dtfm-bar [data-menu=more]").click()
        page.locator(".dtfm-menu-more").get_by_text("Larger type").click()
        page.locator(".dtfm-lab.dtfm-large").wait_for()
        page.keyboard.press("Escape")
        page.wait_for_timeout(500)
        screenshot(page, f"app-larger-{width}")
        assert page.locator(".dtfm-lab").bounding_box() == {"x": 0, "y": 0, **size}
        for part in (".dtfm-go", "[aria-label='Whole window']", ".dtfm-effect", "[aria-label=Legend]"):
            box = page.locator(f".dtfm-lab {part}").first.bounding_box()
            assert box["x"] + box["width"] <= size["width"], part
            assert box["y"] + box["height"] <= size["height"], part


def test_a_link_opens_its_lab_and_tab_also_after_a_reload_and_a_damaged_one_is_one_line(app, browser):
    """The last test of this server, which is interrupted: its kernels end with it."""
    address, process = app
    network = lab.load_topology("lecture-hall").with_link("ada", "grace", latency_s=0.07)
    plan = lab.plan(replace(network, name="mailed"), "tiny", steps=1)
    link = link_of(WorkspaceState(topology=plan.topology, job=plan.job, plan=plan, pane="groups"))
    with fresh_page(browser, permissions=["clipboard-read", "clipboard-write"]) as page:
        visit(page, address + link)
        page.locator(".dtfm-pick", has_text="mailed").wait_for()
        page.reload()
        page.locator(".dtfm-pick", has_text="mailed").wait_for()
        page.locator("[role=tab][aria-selected=true]", has_text="Groups").wait_for()
        page.locator("#loading").wait_for(state="detached")

        page.locator("[data-menu=more]").click()
        page.locator("button", has_text="Copy link").click()
        page.locator(".dtfm-menu-more", has_text="copied a link of").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert "token" not in copied
        assert state_from_link(copied).plan.rank_map == plan.rank_map
        assert page.evaluate("location.hash") == f"#{copied.partition('#')[2]}"

        page.evaluate("location.hash = '#dtfm-lab=damaged'")
        page.locator(".dtfm-headline[data-kind=error]", has_text="the link is damaged or cut off").wait_for()
        assert page.locator(".dtfm-pick", has_text="mailed").is_visible()

        served = psutil.Process(process.pid).children(recursive=True)
        assert served
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        gone(served)


def gone(served):
    until(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in served))


def test_kernels_end_with_their_server_killed(browser, tmp_path):
    with app_server(tmp_path) as (address, process), fresh_page(browser) as page:
        visit(page, address)
        assert page.locator(".dtfm-lab").is_visible(), "a blank canvas, where no network is named"
        served = psutil.Process(process.pid).children(recursive=True)
        assert served
        process.kill()
        gone(served)
