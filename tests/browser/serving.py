"""JupyterLab, the page of the Lab and a Chromium on this machine, for tests and for benchmarks/interface."""

from __future__ import annotations

import json
import os
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Playwright

REPOSITORY = Path(__file__).parents[2]
FORKING = Path(__file__).with_name("kernel_forks.py")
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--auto-accept-this-tab-capture",  # a reader is asked
]
VIEWPORT = {"width": 1440, "height": 1000}
PATIENCE_S = 240 * float(os.environ.get("DTFM_PATIENCE", "1"))
"""Seconds to wait for anything on the page or in the kernel, a cold start included. No test has a deadline of its own;
``DTFM_PATIENCE=3`` waits three times as long on a very busy machine."""
PATIENCE_MS = PATIENCE_S * 1000
CURRENT_KERNEL = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel"
READY = f"""() => {{
    const panel = window.jupyterapp?.shell.currentWidget;
    return panel?.context?.isReady && panel.sessionContext?.isReady
        && {CURRENT_KERNEL}?.connectionStatus === "connected";
}}"""
"""Whether the open notebook has its cells and its kernel. A kernel that lives already is there before the cells, and to
run all cells then is to run none."""
OPEN_ALONE = """async (path) => {
    const { shell, commands } = window.jupyterapp;
    const before = [...shell.widgets("main")];
    const panel = await commands.execute("docmanager:open", { path, factory: "Notebook" });
    before.forEach((widget) => widget.dispose());
    shell.activateById(panel.id);
}"""
"""Opens a notebook and closes all else, in this order: a main area without anything opens a launcher."""
REPLACE = "(notebook) => window.jupyterapp.shell.currentWidget.context.model.fromJSON(notebook)"
FORGET = "from ipywidgets import Widget; Widget.close_all()"


@dataclass(frozen=True)
class Jupyter:
    """A JupyterLab server on this machine, which serves Notebook 7 too."""

    url: str
    token: str
    folder: Path
    """what it serves; notebooks are written here"""
    pid: int

    def api(self, path: str, method: str = "GET") -> list | dict | None:
        request = urllib.request.Request(f"{self.url}/api/{path}", method=method)
        request.add_header("Authorization", f"token {self.token}")
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def end_sessions(self) -> None:
        """Kernels outlive their page; the next notebook must not find an old one."""
        self.end(self.api("sessions"))

    def end(self, sessions: Sequence[dict]) -> None:
        for session in sessions:
            self.api(f"sessions/{session['id']}", method="DELETE")

    def open(self, page: Page, cells: Sequence[str], name: str = "test.ipynb", ui: str = "lab/tree") -> None:
        """Write a notebook of these code cells and open it; ``ui`` is "notebooks" for Notebook 7."""
        (self.folder / name).write_text(json.dumps(notebook(cells)))
        page.goto(f"{self.url}/{ui}/{name}?token={self.token}&reset")
        page.wait_for_function(READY, timeout=PATIENCE_MS)

    def open_instead(self, page: Page, cells: Sequence[str], name: str) -> None:
        """The same in the JupyterLab that the page shows already, in the place of all that is open there."""
        before = self.api("sessions")
        (self.folder / name).write_text(json.dumps(notebook(cells)))
        page.evaluate(OPEN_ALONE, name)
        self.end(before)
        page.wait_for_function(READY, timeout=PATIENCE_MS)

    def replace(self, page: Page, cells: Sequence[str]) -> None:
        """Other cells in the open notebook, whose kernel stays: its widgets are closed, its names are not."""
        page.evaluate(REPLACE, notebook(cells))
        ask(page, FORGET)

    def run_all(self, page: Page) -> None:
        page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")


@contextmanager
def jupyter_server(root: Path, *, forks: bool = False, **environment: str) -> Iterator[Jupyter]:
    """JupyterLab with a home of its own in this folder, so that nobody's settings or extensions matter.

    With ``forks`` its kernels are forks of one process that has loaded the lab; ``environment`` are variables of its.
    """
    folder, config = root / "notebooks", root / "config"
    folder.mkdir()
    (config / "labconfig").mkdir(parents=True)
    # The news pop-up covers buttons, and asks a server far away.
    disabled = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    (config / "labconfig" / "page_config.json").write_text(json.dumps(disabled))
    extensions = root / "data" / "labextensions"  # where an installed wheel has it
    extensions.mkdir(parents=True)
    (extensions / "dtfm-lab").symlink_to(REPOSITORY / "tools" / "labextension")
    port, token = free_port(), secrets.token_hex(16)
    command = [sys.executable, *([str(FORKING)] if forks else ["-m", "jupyterlab"]), "--allow-root", "--no-browser"]
    command += ["--ip=127.0.0.1", f"--port={port}"]
    command += ["--ServerApp.port_retries=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"]
    command += ["--LabApp.expose_app_in_browser=True", "--JupyterNotebookApp.expose_app_in_browser=True"]
    command += ["--LabApp.news_url=None", "--LabApp.collaborative=False"]
    log = root / "jupyterlab.log"
    with log.open("w") as output:
        there = own_environment(root) | environment
        server = subprocess.Popen(command, env=there, cwd=root, stdout=output, stderr=subprocess.STDOUT)
    jupyter = Jupyter(f"http://127.0.0.1:{port}", token, folder, server.pid)
    try:
        _wait_until_up(jupyter, server, log)
        yield jupyter
    finally:
        _end(server, signal.SIGTERM)


@contextmanager
def app_server(root: Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen]]:
    """``dtfm-lab lab --app`` in this folder: the address to open, and the process."""
    command = [sys.executable, "-c", "from dtfm_lab.cli import main; main()", "lab", "--app", "--no-browser"]
    command += [f"--port={free_port()}", *arguments]
    log = root / "app.log"
    with log.open("w") as output:
        server = subprocess.Popen(command, env=own_environment(root), cwd=root, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (said := re.search(r"the lab is at (\S+)", log.read_text())):
            if time.monotonic() > deadline or server.poll() is not None:
                raise RuntimeError(f"the page did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield said[1], server
    finally:
        _end(server, signal.SIGINT)


def kernels_of(server: psutil.Process) -> list[psutil.Process]:
    """The visitors' kernels of ``dtfm-lab lab --app``: children of the page's server."""
    return server.children()


def own_environment(root: Path) -> dict[str, str]:
    # a reader's kernel finds the package compiled, whatever this process is told
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {
        "HOME": str(root),
        "XDG_STATE_HOME": str(root / ".local" / "state"),
        "JUPYTER_CONFIG_DIR": str(root / "config"),
        "JUPYTER_DATA_DIR": str(root / "data"),
        "JUPYTER_RUNTIME_DIR": str(root / "runtime"),
        "IPYTHONDIR": str(root / "ipython"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")])),
    }


def free_port() -> int:
    """A port that is free now, below those that the system gives to connections: a server takes seconds to start."""
    for port in random.SystemRandom().sample(range(12_000, 30_000), 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise RuntimeError("no free port in 100 tries")


def _wait_until_up(jupyter: Jupyter, server: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            jupyter.api("status")
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


def _end(server: subprocess.Popen, politely: signal.Signals) -> None:
    if server.poll() is None:
        server.send_signal(politely)
    try:
        server.wait(15)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def chromium(playwright: Playwright) -> Browser:
    """The machine's Chromium, or else playwright's own."""
    return playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_FLAGS)


@contextmanager
def fresh_page(browser: Browser, **options: object) -> Iterator[Page]:
    """A page that nobody used before. Afterwards: nothing was asked of another machine, and no script failed."""
    context = browser.new_context(**({"viewport": VIEWPORT} | options))
    try:
        with watched_page(context) as page:
            yield page
    finally:
        context.close()


@contextmanager
def watched_page(context: BrowserContext) -> Iterator[Page]:
    """A new page of a context. Afterwards: nothing was asked of another machine, and no script failed."""
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    watch = Watch(page)
    try:
        yield page
    finally:
        page.close()
    watch.check()


class Watch:
    """What must not happen on a page: that it asks another machine, or that a script fails."""

    def __init__(self, page: Page) -> None:
        self._outside: list[str] = []
        self._errors: list[str] = []
        page.on("request", lambda sent: self._outside.append(sent.url) if leaves_the_machine(sent.url) else None)
        page.on("pageerror", lambda error: None if _is_anothers(error) else self._errors.append(str(error)))

    def check(self) -> None:
        """Fail if it has happened since the last check."""
        outside, errors = list(self._outside), list(self._errors)
        self._outside.clear()
        self._errors.clear()
        assert outside == [], f"asked of other machines: {outside}"
        assert errors == [], f"failed on the page: {errors}"


def _is_anothers(error: Exception) -> bool:
    """anywidget tells that a view took longer than two seconds to load, which ``tools/js/shared/view.js`` makes good.

    Notebook 7.6 fails to read a setting's schema on an empty notebook too: nobody else's script is in the stack.
    """
    if "[anywidget] Failed to initialize model." in str(error):
        return True
    frames = [line for line in (getattr(error, "stack", None) or "").splitlines() if line.strip().startswith("at ")]
    return bool(frames) and all("/static/notebook/" in frame or "Promise.all" in frame for frame in frames)


def leaves_the_machine(url: str) -> bool:
    return url.startswith(("http:", "https:", "ws:", "wss:")) and "//127.0.0.1:" not in url


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


def ask(page: Page, code: str) -> str:
    """Run code in the open notebook's kernel; what it printed.

    Raises RuntimeError with what the kernel raised, or where no answer came: a connection that was lost, as a machine
    that is very busy loses it, takes the answers under way with it.
    """
    printed, error = page.evaluate(
        f"""async ([code, patience_ms]) => {{
            const kernel = {CURRENT_KERNEL};
            const future = kernel.requestExecute({{ code }});
            let printed = "";
            let error = null;
            future.onIOPub = (message) => {{
                const {{ header, content }} = message;
                if (header.msg_type === "stream") printed += content.text;
                if (header.msg_type === "error") error = `${{content.ename}}: ${{content.evalue}}`;
            }};
            const late = new Promise((resolve) => setTimeout(resolve, patience_ms, "late"));
            if ((await Promise.race([future.done, late])) === "late") {{
                error = `no answer in ${{patience_ms / 1000}} s (${{kernel.connectionStatus}}, ${{kernel.status}})`;
            }}
            return [printed, error];
        }}""",
        [code, PATIENCE_MS / 2],
    )
    if error is not None:
        raise RuntimeError(error)
    return printed.strip()
