"""JupyterLab in a headless Chromium: a person's gestures on one side, the kernel's answer on the other.

Screenshots are for looking at: ``DTFM_SCREENSHOTS=folder pytest tests/browser`` keeps one of each test's end.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from serving import PATIENCE_MS, PATIENCE_S, VIEWPORT, Jupyter, ask, chromium, jupyter_server, watched_page

sync_api = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright")
pytest.importorskip("jupyterlab", reason="the browser tests need jupyterlab")
pytest.importorskip("anywidget", reason="the browser tests need anywidget")
sync_api.expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    """One for all tests. A kernel that imports the lab itself, as a user's does, is what the notebooks are run with."""
    with jupyter_server(tmp_path_factory.mktemp("jupyter"), forks=True) as jupyter:
        yield jupyter


@pytest.fixture(scope="module")  # while playwright lives, its event loop runs, and no other test may have one
def browser() -> Iterator["sync_api.Browser"]:
    with sync_api.sync_playwright() as playwright:
        try:
            browser = chromium(playwright)
        except sync_api.Error as error:
            pytest.skip(f"no Chromium to test with (`playwright install chromium`): {error.message.splitlines()[0]}")
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def context(browser: "sync_api.Browser") -> Iterator["sync_api.BrowserContext"]:
    """What the pages of a file share: the scripts of JupyterLab, loaded once."""
    context = browser.new_context(viewport=VIEWPORT)
    yield context
    context.close()


@pytest.fixture
def page(
    context: "sync_api.BrowserContext", jupyter: Jupyter, request: pytest.FixtureRequest
) -> Iterator["sync_api.Page"]:
    """A new page. Afterwards: nothing was asked of another machine, and no script failed."""
    try:
        with watched_page(context) as page:
            yield page
            screenshot(page, request.node.name)
    finally:
        jupyter.end_sessions()


def screenshot(page: "sync_api.Page", name: str) -> None:
    """Keep one, where the environment asks for some."""
    if folder := os.environ.get("DTFM_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png")


@pytest.fixture
def open_notebook(jupyter: Jupyter) -> Callable[..., None]:
    """``open_notebook(page, cells)`` writes a notebook of these code cells, opens it and runs them all.

    In JupyterLab, or with ``ui="notebooks"`` in Notebook 7.
    """

    def open_notebook(
        page: "sync_api.Page", cells: Sequence[str], name: str = "test.ipynb", ui: str = "lab/tree"
    ) -> None:
        jupyter.open(page, cells, name, ui)
        jupyter.run_all(page)

    return open_notebook


@pytest.fixture
def ask_kernel() -> Callable[..., str]:
    """``ask_kernel(page, code)`` runs code in the open notebook's kernel; returns what it printed."""
    return ask


@pytest.fixture
def eventually(ask_kernel) -> Callable[..., None]:
    """``eventually(page, expression, value)``: Python comes to hold this value."""

    def eventually(page: "sync_api.Page", expression: str, value: object) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while (found := _found(page, expression)) != repr(value):
            assert time.monotonic() < deadline, f"{expression} is {found}, not {value!r}"
            page.wait_for_timeout(100)

    def _found(page: "sync_api.Page", expression: str) -> str:
        try:
            return ask_kernel(page, f"print(repr({expression}))")
        except RuntimeError as error:  # what it asks of is not there yet
            return str(error)

    return eventually


@pytest.fixture
def set_theme(jupyter: Jupyter) -> Iterator[Callable[..., None]]:
    """``set_theme(page, "dark")`` switches JupyterLab's theme as its menu does, for this test."""

    def set_theme(page: "sync_api.Page", brightness: str) -> None:
        theme = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}[brightness]
        page.evaluate("(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
        is_light = str(brightness == "light").lower()
        page.wait_for_selector(f"body[data-jp-theme-light='{is_light}']", state="attached", timeout=PATIENCE_MS)
        page.wait_for_timeout(600)  # the style sheet follows the attribute, and the canvases follow that

    yield set_theme
    shutil.rmtree(jupyter.folder.parent / "config" / "lab" / "user-settings", ignore_errors=True)
