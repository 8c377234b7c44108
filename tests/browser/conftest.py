"""JupyterLab in a headless Chromium: a person's gestures on one side, the kernel's answer on the other.

All tests that follow each other share one Chromium, and in it one JupyterLab, which takes seconds to load. A test opens
its notebook there; a notebook of single views keeps the kernel of the one before.

Screenshots are for looking at: ``DTFM_SCREENSHOTS=folder pytest tests/browser`` keeps one of each test's end.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from serving import PATIENCE_MS, PATIENCE_S, VIEWPORT, Jupyter, Watch, ask, chromium, jupyter_server

sync_api = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright")
pytest.importorskip("jupyterlab", reason="the browser tests need jupyterlab")
pytest.importorskip("anywidget", reason="the browser tests need anywidget")
sync_api.expect.set_options(timeout=PATIENCE_MS)

KEEPS_BUSY = re.compile(r"\bLab(State)?\(")
"""A lab, or its state with a panel, leaves searches and runs behind: its kernel serves no other test."""
AS_LOADED = """() => {
    localStorage.clear();
    const shell = window.jupyterapp?.shell;
    if (shell?.leftCollapsed) shell.expandLeft();
}"""
FAILED = pytest.StashKey[bool]()


class SharedChromium:
    """A Chromium with the page that tests share; both are opened when a test first asks."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._browser: sync_api.Browser | None = None
        self._page: sync_api.Page | None = None
        self.watch: Watch | None = None
        self.keeps_kernel = False
        """Whether the open notebook's kernel may serve another test."""

    @property
    def browser(self) -> "sync_api.Browser":
        if self._browser is None:
            playwright = self._open.enter_context(sync_api.sync_playwright())
            try:
                self._browser = chromium(playwright)
            except sync_api.Error as error:
                self.close()
                why = error.message.splitlines()[0]
                pytest.skip(f"no Chromium to test with (`playwright install chromium`): {why}")
            self._open.callback(self._browser.close)
        return self._browser

    @property
    def page(self) -> "sync_api.Page":
        if self._page is None:
            context = self.browser.new_context(viewport=VIEWPORT)
            context.set_default_timeout(PATIENCE_MS)
            self._page = context.new_page()
            self.watch = Watch(self._page)
        return self._page

    def leave_page(self) -> None:
        """Close the page: the next test opens another."""
        if self._page is not None:
            self._page.context.close()
        self._page, self.keeps_kernel = None, False

    def close(self) -> None:
        self._open.close()
        self._browser, self._page, self.keeps_kernel = None, None, False


shared = SharedChromium()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None):
    """While playwright lives, its event loop runs, and tests of other folders have their own."""
    yield
    if nextitem is None or nextitem.path.parent != item.path.parent:
        shared.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(scope="session")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    """One for all tests. A kernel that imports the lab itself, as a user's does, is in tests/test_notebook_files.py."""
    with jupyter_server(tmp_path_factory.mktemp("jupyter"), forks=True) as jupyter:
        yield jupyter


@pytest.fixture
def browser() -> "sync_api.Browser":
    return shared.browser


@pytest.fixture
def page(request: pytest.FixtureRequest) -> Iterator["sync_api.Page"]:
    """The page that tests share. Afterwards: nothing was asked of another machine, and no script failed."""
    page = shared.page
    yield page
    screenshot(page, request.node.name)
    if request.node.stash.get(FAILED, False):
        shared.leave_page()
        return
    page.mouse.move(0, 0)
    page.emulate_media(reduced_motion="no-preference")
    page.set_viewport_size(VIEWPORT)
    if page.url.startswith("http"):
        page.evaluate(AS_LOADED)
    shared.watch.check()


def screenshot(page: "sync_api.Page", name: str) -> None:
    """Keep one, where the environment asks for some."""
    if folder := os.environ.get("DTFM_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png")


NUMBERS = count()


@pytest.fixture
def open_notebook(jupyter: Jupyter) -> Callable[..., None]:
    """``open_notebook(page, cells)`` opens a notebook of these code cells and runs them all.

    In the JupyterLab that the page shows already, if it does; with ``ui="notebooks"`` in Notebook 7.
    """

    def open_notebook(page: "sync_api.Page", cells: Sequence[str], ui: str = "lab/tree") -> None:
        name = f"test-{next(NUMBERS)}.ipynb"  # of which no session and no layout is known from before
        busy = any(KEEPS_BUSY.search(cell) for cell in cells)
        shows_lab = "/lab" in page.url and page.evaluate("() => Boolean(window.jupyterapp)")
        if not shows_lab or ui != "lab/tree":
            jupyter.end_sessions()
            jupyter.open(page, cells, name, ui)
        elif shared.keeps_kernel and not busy:
            jupyter.replace(page, cells)
        else:
            jupyter.open_instead(page, cells, name)
        shared.keeps_kernel = not busy and ui == "lab/tree"
        jupyter.run_all(page)

    return open_notebook


@pytest.fixture
def ask_kernel() -> Callable[..., str]:
    """``ask_kernel(page, code)`` runs code in the open notebook's kernel; returns what it printed."""
    return ask


RUN_AS_IT_IS = "(the_lab.lab_state.message, (run := the_lab.run_panel.run) and (run.status, run.error, run.last_whole))"


@pytest.fixture
def eventually(ask_kernel) -> Callable[..., None]:
    """``eventually(page, expression, value)``: Python comes to hold this value."""

    def eventually(page: "sync_api.Page", expression: str, value: object) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while (found := _found(page, expression)) != repr(value):
            if time.monotonic() > deadline:
                pytest.fail(f"{expression} is {found}, not {value!r}; {_found(page, RUN_AS_IT_IS)}")
            page.wait_for_timeout(100)

    def _found(page: "sync_api.Page", expression: str) -> str:
        try:
            return ask_kernel(page, f"print(repr({expression}))")
        except RuntimeError as error:  # what it asks of is not there yet
            return str(error)

    return eventually


@pytest.fixture
def set_theme() -> Iterator[Callable[..., None]]:
    """``set_theme(page, "dark")`` switches JupyterLab's theme as its menu does, for this test."""
    pages = []

    def set_theme(page: "sync_api.Page", brightness: str) -> None:
        pages.append(page)
        theme = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}[brightness]
        page.evaluate("(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
        is_light = str(brightness == "light").lower()
        page.wait_for_selector(f"body[data-jp-theme-light='{is_light}']", state="attached", timeout=PATIENCE_MS)
        page.wait_for_timeout(600)  # the style sheet follows the attribute, and the canvases follow that

    yield set_theme
    if pages:
        set_theme(pages[-1], "light")
