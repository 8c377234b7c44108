"""The Lab as a page of its own: what a visitor sees, and what is left when the visitor goes."""

import signal
import time

import psutil
import pytest
from conftest import screenshot
from serving import PATIENCE_S, app_server, fresh_page, kernels_of

pytest.importorskip("voila", reason="the page needs voila")


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """The address of the page, and its server."""
    with app_server(tmp_path_factory.mktemp("app"), "lecture-hall") as (address, process):
        yield address, process


def kernels(process):
    return kernels_of(psutil.Process(process.pid))


def until(holds):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def visit(page, address):
    page.goto(address)
    page.locator(".dtfm-lab .dtfm-panes").first.wait_for()
    page.locator("#loading").wait_for(state="detached")


def test_a_visitor_finds_a_plan_in_the_whole_window_and_takes_the_kernel_along(app, browser):
    address, process = app
    with fresh_page(browser) as page:
        visit(page, address)
        assert page.title().startswith("dtfm lab")
        assert page.locator(".jp-InputArea:visible, .jp-OutputPrompt:visible").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert kernels(process)
        page.wait_for_selector(".dtfm-lab .dtfm-gantt:not([data-predicted='0'])")
        assert page.locator(".dtfm-lab").bounding_box() == {"x": 0, "y": 0, **page.viewport_size}
        screenshot(page, "app-planned")
        page.goto("about:blank")
        until(lambda: not kernels(process))


def test_the_frame_of_the_lab_stands_before_the_kernel_has_answered(app, browser):
    address, _ = app
    with fresh_page(browser) as page:
        page.goto(address, wait_until="commit")
        page.locator("#loading #loading_text").wait_for()
        assert page.title().startswith("dtfm lab")
        assert page.locator(".dtfm-lab").count() == 0
        box = page.locator("#loading").bounding_box()
        assert (box["width"], box["height"]) == (page.viewport_size["width"], page.viewport_size["height"])
        page.locator("#loading").wait_for(state="detached")
        page.locator(".dtfm-lab .dtfm-panes").wait_for()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_is_as_light_as_the_visitors_system(app, browser, theme):
    address, _ = app
    with fresh_page(browser, color_scheme=theme, viewport={"width": 1000, "height": 900}) as page:
        visit(page, address)
        screenshot(page, f"app-{theme}")
        surface = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert surface == {"light": "rgb(255, 255, 255)", "dark": "rgb(33, 33, 33)"}[theme]
        assert page.get_attribute("body", "data-jp-theme-light") == str(theme == "light").lower()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        other = {"light": "dark", "dark": "light"}[theme]
        page.emulate_media(color_scheme=other)
        page.wait_for_selector(f"body[data-jp-theme-light='{str(other == 'light').lower()}']", state="attached")


def test_nobody_without_the_token_gets_a_kernel(app, browser):
    address, process = app
    before = len(kernels(process))
    with fresh_page(browser) as page:
        page.goto(address.split("?")[0])
        assert "/login" in page.url
        assert len(kernels(process)) == before


def test_an_interrupt_ends_the_page_and_its_kernels(browser, tmp_path):
    with app_server(tmp_path) as (address, process), fresh_page(browser) as page:
        visit(page, address)
        assert page.locator(".dtfm-lab").is_visible(), "a blank canvas, where no network is named"
        assert kernels(process)
        served = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(15) == 0
        until(lambda: not any(kernel.is_running() for kernel in served))
