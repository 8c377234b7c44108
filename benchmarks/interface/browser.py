"""A page of JupyterLab, the kernel behind it, and what can be counted of both."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import CDPSession, Page, sync_playwright
from serving import CURRENT_KERNEL, PATIENCE_MS, Jupyter, ask, chromium, fresh_page, jupyter_server

from dtfm_lab.cli.machine import JUPYTER

LAB_OPEN = ".dtfm-lab .dtfm-cause"
QUIET_S = 1.0
"""Seconds without a new plan or prediction, after which the lab is at rest."""
COUNT_FRAMES = """() => {
    window.counted ??= requestAnimationFrame(function count() { window.frames += 1; requestAnimationFrame(count); });
    window.frames = 0;
}"""


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    name: str
    value: float
    unit: str
    wanted: float
    at_least: bool = False
    """whether the value must not be below what is wanted; else it must be below it"""
    note: str = ""

    @property
    def kept(self) -> bool:
        return self.value >= self.wanted if self.at_least else self.value < self.wanted

    def __str__(self) -> str:
        wanted = f"{'>=' if self.at_least else '<'} {self.wanted:g} {self.unit}"
        verdict = "" if self.kept else "  MISSED"
        note = f"  ({self.note})" if self.note else ""
        return f"{self.name:46}{self.value:10.3g} {self.unit:11} wanted {wanted:16}{verdict}{note}"


@dataclass
class LabInBrowser:
    """One notebook at a time; the lab in it is ``the_lab``, as in the tests."""

    jupyter: Jupyter
    page: Page
    cdp: CDPSession

    def open(self, cells: Sequence[str]) -> None:
        """A notebook in a kernel of its own that is ready; nothing is run yet."""
        self.jupyter.end_sessions()
        self.jupyter.open(self.page, cells)
        self.page.wait_for_function(f"() => {CURRENT_KERNEL}?.status === 'idle'", timeout=PATIENCE_MS)

    def open_lab(self, network: str, pane: str = "schedule") -> None:
        """The lab on a network, planned and at rest."""
        self.open([f"import dtfm_lab as lab\nthe_lab = lab.Lab({network!r}, autosave=False)\nthe_lab"])
        self.jupyter.run_all(self.page)
        self.page.locator(LAB_OPEN).first.wait_for(timeout=PATIENCE_MS)
        self.until("the_lab.plan is not None")
        self.ask(f"the_lab.lab_state.pane = {pane!r}")
        rested(self)

    def ask(self, code: str) -> Any:
        """What the code prints, read as JSON; None where it prints nothing."""
        printed = ask(self.page, code)
        return json.loads(printed.splitlines()[-1]) if printed else None

    def until(self, expression: str, patience_s: float = 60.0) -> None:
        """Until the expression holds in the kernel."""
        deadline = time.monotonic() + patience_s
        while not self.ask(f"import json; print(json.dumps(bool({expression})))"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{expression} does not hold after {patience_s:g} s")
            self.page.wait_for_timeout(50)

    def settle(self, seconds: float = 1.0) -> None:
        self.page.wait_for_timeout(seconds * 1000)

    def number(self, selector: str, *names: str) -> float:
        """A data attribute that counts, under whichever of these names it goes; 0 where it is missing."""
        return self.page.eval_on_selector(
            selector, "(found, names) => Number(names.map((name) => found.dataset[name]).find(Boolean) ?? 0)", names
        )

    @property
    def kernel_id(self) -> str:
        (session,) = self.jupyter.api("sessions")
        return session["kernel"]["id"]

    @property
    def kernel(self) -> psutil.Process:
        return psutil.Process(self.ask("import os; print(os.getpid())"))

    def heap_bytes(self) -> float:
        """Of the page's JavaScript, after a collection."""
        for _ in range(2):
            self.cdp.send("HeapProfiler.collectGarbage")
        return self.cdp.send("Runtime.getHeapUsage")["usedSize"]


@dataclass
class Rates:
    """What came by in some seconds."""

    page_frames: float
    drawn: float
    received_bytes: float


class Counting:
    """Counts from when it is made: ``rates()`` are per second since then."""

    def __init__(self, browser: LabInBrowser, selector: str, *drawn_names: str) -> None:
        self._browser, self._selector, self._names = browser, selector, drawn_names
        self._received = 0
        browser.cdp.on("Network.webSocketFrameReceived", self._receive)
        browser.cdp.send("Network.enable")
        browser.page.evaluate(COUNT_FRAMES)
        self._drawn = browser.number(selector, *drawn_names)
        self._began_ms = browser.page.evaluate("performance.now()")

    def rates(self) -> Rates:
        ended_ms, frames = self._browser.page.evaluate("[performance.now(), window.frames]")
        drawn = self._browser.number(self._selector, *self._names) - self._drawn
        self._browser.cdp.send("Network.disable")
        self._browser.cdp.remove_listener("Network.webSocketFrameReceived", self._receive)
        seconds = (ended_ms - self._began_ms) / 1000
        return Rates(frames / seconds, drawn / seconds, self._received / seconds)

    def _receive(self, event: dict[str, Any]) -> None:
        frame = event["response"]
        length = len(frame["payloadData"])
        self._received += length if frame["opcode"] == 1 else length * 3 // 4  # binary comes as base64


def rested(browser: LabInBrowser, patience_s: float = 60.0) -> None:
    """Wait until plan and prediction have been the same for a while, and nothing is computed."""
    now = "print([id(the_lab.plan), id(the_lab.predicted), len(the_lab.lab_state.busy)])"
    deadline, before, since = time.monotonic() + patience_s, None, time.monotonic()
    while time.monotonic() < deadline:
        found = browser.ask(now)
        if found != before or found[2]:
            before, since = found, time.monotonic()
        elif time.monotonic() - since > QUIET_S:
            return
        browser.page.wait_for_timeout(100)


@contextmanager
def opened_browser(root: Path) -> Iterator[LabInBrowser]:
    """A page of a JupyterLab whose kernels start as those of ``dtfm-lab lab``."""
    with jupyter_server(root, JUPYTER_PATH=str(JUPYTER)) as jupyter, sync_playwright() as playwright:
        browser = chromium(playwright)
        with fresh_page(browser) as page:
            yield LabInBrowser(jupyter, page, page.context.new_cdp_session(page))
            jupyter.end_sessions()
        browser.close()
