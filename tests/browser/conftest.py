"""JupyterLab in a headless Chromium: a person's gestures on one side, the kernel's answer on the other.

Screenshots are for looking at: ``DTFM_SCREENSHOTS=folder pytest tests/browser`` keeps one of each test's end.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright")
pytest.importorskip("jupyterlab", reason="the browser tests need jupyterlab")
pytest.importorskip("anywidget", reason="the browser tests need anywidget")

REPOSITORY = Path(__file__).parents[2]
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 90_000  # a cold JupyterLab and kernel on a small machine
CURRENT_KERNEL = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel"


@dataclass(frozen=True)
class Jupyter:
    """A JupyterLab server on this machine, for one test session."""

    url: str
    token: str
    folder: Path
    """what it serves; notebooks are written here"""

    def api(self, path: str, method: str = "GET") -> list | dict | None:
        request = urllib.request.Request(f"{self.url}/api/{path}", method=method)
        request.add_header("Authorization", f"token {self.token}")
        with urllib.request.urlopen(request, timeout=10) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def end_sessions(self) -> None:
        """Kernels outlive their page; the next notebook must not find an old one."""
        for session in self.api("sessions"):
            self.api(f"sessions/{session['id']}", method="DELETE")


@pytest.fixture(scope="session")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    """JupyterLab with a home of its own, so that nobody's settings or extensions matter."""
    root = tmp_path_factory.mktemp("jupyter")
    folder, config = root / "notebooks", root / "config"
    folder.mkdir()
    (config / "labconfig").mkdir(parents=True)
    # The news pop-up covers buttons, and asks a server far away.
    disabled = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    (config / "labconfig" / "page_config.json").write_text(json.dumps(disabled))
    environment = os.environ | {
        "HOME": str(root),
        "JUPYTER_CONFIG_DIR": str(config),
        "JUPYTER_DATA_DIR": str(root / "data"),
        "JUPYTER_RUNTIME_DIR": str(root / "runtime"),
        "IPYTHONDIR": str(root / "ipython"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")])),
    }
    port, token = free_port(), secrets.token_hex(16)
    command = [sys.executable, "-m", "jupyterlab", "--allow-root", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
    command += ["--ServerApp.port_retries=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"]
    command += ["--LabApp.expose_app_in_browser=True", "--LabApp.news_url=None", "--LabApp.collaborative=False"]
    log = root / "jupyterlab.log"
    with log.open("w") as output:
        server = subprocess.Popen(command, env=environment, cwd=root, stdout=output, stderr=subprocess.STDOUT)
    jupyter = Jupyter(f"http://127.0.0.1:{port}", token, folder)
    try:
        wait_until_up(jupyter, server, log)
        yield jupyter
    finally:
        server.terminate()
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            server.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_up(jupyter: Jupyter, server: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while time.monotonic() < deadline and server.poll() is None:
        try:
            jupyter.api("status")
            return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


@pytest.fixture(scope="module")  # while playwright lives, its event loop runs, and no other test may have one
def browser() -> Iterator["sync_api.Browser"]:
    with sync_api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_FLAGS)
        except sync_api.Error as error:
            pytest.skip(f"no Chromium to test with (`playwright install chromium`): {error.message.splitlines()[0]}")
        yield browser
        browser.close()


@pytest.fixture
def page(browser, jupyter: Jupyter, request: pytest.FixtureRequest) -> Iterator["sync_api.Page"]:
    """A fresh page. Afterwards: nothing was asked of another machine, and no script failed."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    outside, errors = [], []
    page.on("request", lambda sent: outside.append(sent.url) if leaves_the_machine(sent.url) else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    if folder := os.environ.get("DTFM_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{request.node.name}.png")
    context.close()
    jupyter.end_sessions()
    assert outside == []
    assert errors == []


def leaves_the_machine(url: str) -> bool:
    return url.startswith(("http:", "https:", "ws:", "wss:")) and "//127.0.0.1:" not in url


@pytest.fixture
def open_notebook(jupyter: Jupyter) -> Callable[..., None]:
    """``open_notebook(page, cells)`` writes a notebook of these code cells, opens it and runs them all."""

    def open_notebook(page: "sync_api.Page", cells: Sequence[str], name: str = "test.ipynb") -> None:
        (jupyter.folder / name).write_text(json.dumps(notebook(cells)))
        page.goto(f"{jupyter.url}/lab/tree/{name}?token={jupyter.token}&reset")
        page.wait_for_function(f"() => {CURRENT_KERNEL}?.connectionStatus === 'connected'", timeout=PATIENCE_MS)
        page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")

    return open_notebook


def notebook(cells: Sequence[str]) -> dict:
    def cell(index: int, source: str) -> dict:
        kind = {"cell_type": "code", "execution_count": None, "outputs": []}
        return {**kind, "id": f"cell-{index}", "metadata": {}, "source": source}

    python = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return {
        "cells": [cell(index, source) for index, source in enumerate(cells)],
        "metadata": python,
        "nbformat": 4,
        "nbformat_minor": 5,
    }


@pytest.fixture
def ask_kernel() -> Callable[..., str]:
    """``ask_kernel(page, code)`` runs code in the open notebook's kernel; returns what it printed."""

    def ask_kernel(page: "sync_api.Page", code: str) -> str:
        printed, error = page.evaluate(
            f"""async (code) => {{
                const future = {CURRENT_KERNEL}.requestExecute({{ code }});
                let printed = "";
                let error = null;
                future.onIOPub = (message) => {{
                    const {{ header, content }} = message;
                    if (header.msg_type === "stream") printed += content.text;
                    if (header.msg_type === "error") error = `${{content.ename}}: ${{content.evalue}}`;
                }};
                await future.done;
                return [printed, error];
            }}""",
            code,
        )
        assert error is None, error
        return printed.strip()

    return ask_kernel


@pytest.fixture
def eventually(ask_kernel) -> Callable[..., None]:
    """``eventually(page, expression, value)``: Python comes to hold this value, within a few seconds."""

    def eventually(page: "sync_api.Page", expression: str, value: object, patience_s: float = 8) -> None:
        deadline = time.monotonic() + patience_s
        while (found := ask_kernel(page, f"print(repr({expression}))")) != repr(value):
            assert time.monotonic() < deadline, f"{expression} is {found}, not {value!r}"
            page.wait_for_timeout(100)

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
