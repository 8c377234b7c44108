"""What hours would do: memory after much searching and editing, and processes after kernels end."""

from __future__ import annotations

import secrets
import time

import psutil
from browser import Figure, LabInBrowser

MARK = "DTFM_LAB_INTERFACE_BENCH"
"""in the environment of everything that the kernel starts, however far it wanders"""
SEARCHES_WARM, EDITS_WARM = 3, 120
"""before memory is first read: compiled code, the threads' arenas, the history's hundred documents"""
GROWTH_WANTED = 10.0
"""percent"""
GONE_WITHIN_S = 10.0
TIDYING = """
import ctypes, gc
gc.collect()
getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)(0)
"""
EDITING = """
import asyncio, copy, json
async def edit(n_edits):
    drawing = the_lab.network_panel.drawing
    for number in range(n_edits):
        document = copy.deepcopy(drawing.document)
        between = document["between"][number % len(document["between"])]
        between["latency_ms"] = 20.5 + number % 101  # another network, not another drawing of it
        drawing.document = document
        await asyncio.sleep(0.03)
"""


def memory(browser: LabInBrowser, minutes: float, n_edits: int) -> list[Figure]:
    browser.open_lab("worldwide", pane="plan")
    browser.ask(EDITING)
    kernel = browser.kernel
    for _ in range(SEARCHES_WARM):
        _search(browser, 5)
    _edit(browser, EDITS_WARM)
    before = _resident_bytes(browser, kernel), browser.heap_bytes()
    _search(browser, 60 * minutes)
    between = _resident_bytes(browser, kernel), browser.heap_bytes()
    _edit(browser, n_edits)
    after = _resident_bytes(browser, kernel), browser.heap_bytes()
    return [
        Figure(
            f"memory of the {name} grows",
            100 * (now - then) / then,
            "%",
            GROWTH_WANTED,
            note=f"{then / 1e6:.0f} MB, {searched / 1e6:.0f} after {minutes:g} min of search, "
            f"{now / 1e6:.0f} after {n_edits:,} edits",
        )
        for name, then, searched, now in zip(("kernel", "page"), before, between, after, strict=True)
    ]


def _resident_bytes(browser: LabInBrowser, kernel: psutil.Process) -> int:
    """What the kernel holds; what it has freed and the C library has kept is given back first, where that is glibc."""
    browser.ask(TIDYING)
    return kernel.memory_info().rss


def _search(browser: LabInBrowser, seconds: float) -> None:
    browser.ask(
        f"panel = the_lab.plan_panel.real; panel.planner.value = 'evolutionary'; panel.seconds.value = {seconds}"
    )
    browser.ask("panel.start.click()")
    browser.until("panel.search is not None", patience_s=10)
    browser.until("panel.search is None", patience_s=seconds + 60)
    browser.settle(3)


def _edit(browser: LabInBrowser, n_edits: int) -> None:
    browser.ask(f"editing = asyncio.get_running_loop().create_task(edit({n_edits}))")
    browser.until("editing.done()", patience_s=60 + n_edits)
    browser.ask("editing.result()")
    browser.settle(3)


def processes(browser: LabInBrowser) -> list[Figure]:
    """Each case in a kernel of its own, which is ended in the middle of what it does."""
    figures = []
    for doing in ("search", "run"):
        for how in ("shut down", "restarted"):
            mark = secrets.token_hex(8)
            browser.open(
                [
                    f"import os\nos.environ[{MARK!r}] = {mark!r}\n"
                    "import dtfm_lab as lab\nthe_lab = lab.Lab('lecture-hall')\nthe_lab"
                ]
            )
            browser.jupyter.run_all(browser.page)
            browser.settle()
            kernel = browser.kernel
            _busy(browser, doing)
            n_before = len(_descendants(kernel, mark))
            if how == "shut down":
                browser.jupyter.end_sessions()
            else:
                browser.jupyter.api(f"kernels/{browser.kernel_id}/restart", method="POST")
            began_s = time.monotonic()
            while (left := _alive(kernel, mark)) and time.monotonic() - began_s < GONE_WITHIN_S:
                time.sleep(0.1)
            note = f"{n_before} beside the kernel before, gone after {time.monotonic() - began_s:.1f} s"
            note = f"left: {'; '.join(left)}" if left else note
            figures.append(Figure(f"processes left: kernel {how} in a {doing}", len(left), "", 1, note=note))
            browser.page.goto("about:blank")
    return figures


def _busy(browser: LabInBrowser, doing: str) -> None:
    if doing == "search":
        browser.ask("the_lab.plan_panel.real.seconds.value = 600; the_lab.plan_panel.real.planner.value = 'random'")
        browser.ask("the_lab.plan_panel.real.start.click()")
        browser.until("the_lab.plan_panel.real.search is not None")
        browser.settle()
        return
    browser.ask("the_lab.lab_state.plan = lab.plan(the_lab.topology, the_lab.job, seed=0, seconds=0.5)")
    browser.ask("the_lab.run_panel.iterations.value = 10_000")
    browser.ask("the_lab.run_panel.start.click()")
    browser.until("the_lab.run_panel.run is not None and len(the_lab.run_panel.run.losses) > 1")


def _descendants(kernel: psutil.Process, mark: str) -> list[psutil.Process]:
    """Of this kernel, also those that left its tree; not the kernel itself."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != kernel.pid and process.environ().get(MARK) == mark:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found


def _alive(kernel: psutil.Process, mark: str) -> list[str]:
    """The kernel, if the same process still runs, and all that it started."""
    found = [*([kernel] if kernel.is_running() else []), *_descendants(kernel, mark)]
    lines = []
    for process in found:
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                lines.append(f"{process.pid} {' '.join(process.cmdline())[:80]}")
        except psutil.NoSuchProcess:
            continue
    return lines
