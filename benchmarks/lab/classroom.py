"""A class on one server: scripted visitors of ``dtfm-lab lab --app``, each with a page in headless Chromium.

They arrive within some minutes, look at the lab until the last has come, press a button now and then, and leave: a
third by closing the page, a third for another page, and a third as a laptop does whose lid is closed, without a word to
the server. Printed are the seconds from a visitor's arrival until the page is usable (its plan is drawn and it has
answered a press), the memory that a visitor takes on the server, and the kernels left after all have gone, every half
minute until there is none. Server and browsers share this machine: a browser stands still between presses, as in a
class it would be another machine. The load of this one is printed. Exits with 1
where a page took longer than it may, or a kernel is left after six minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import click
import numpy as np
import psutil
from machine import machine_line

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "browser"))
from playwright.async_api import Browser, Page, async_playwright
from playwright.async_api import Error as PlaywrightError
from serving import CHROMIUM_FLAGS, PATIENCE_MS, VIEWPORT, app_server, kernels_of

USABLE_S, GONE_S = 10.0, 360.0
"""Longest time until a page is usable, and until all kernels have ended after the last visitor left."""
WAYS = ("closes the page", "goes elsewhere", "closes the lid")
PRESS_EVERY_S = 15.0


@dataclass
class Visitor:
    """What one visitor met, in seconds since arriving."""

    number: int
    frame_s: float = 0.0
    lab_s: float = 0.0
    usable_s: float = 0.0
    answers_s: list[float] = field(default_factory=list)
    """From a press of a tab until its pane stands, each time."""


@dataclass(frozen=True)
class Memory:
    """Bytes that the processes of one visitor take: their own, and with their share of what several hold."""

    own: float
    share: float
    processes: int


@click.command(help=__doc__)
@click.option("--visitors", default=30, show_default=True)
@click.option("--over", default=180.0, show_default=True, help="Seconds within which they arrive.")
@click.option("--stay", default=60.0, show_default=True, help="Seconds that all are there together.")
@click.option("--network", default="lecture-hall", show_default=True)
@click.option("--seed", default=0, show_default=True, help="Of the arrivals.")
def main(visitors: int, over: float, stay: float, network: str, seed: int) -> None:
    click.echo(machine_line())
    with tempfile.TemporaryDirectory() as folder, app_server(Path(folder), network) as (address, server):
        sys.exit(asyncio.run(_class(address, psutil.Process(server.pid), visitors, over, stay, seed)))


async def _class(address: str, server: psutil.Process, n: int, over_s: float, stay_s: float, seed: int) -> int:
    arrivals = np.sort(np.random.default_rng(seed).uniform(0, over_s, n))
    visitors = [Visitor(number) for number in range(n)]
    all_there, leave = asyncio.Barrier(n + 1), asyncio.Event()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_FLAGS)
        coming = [
            asyncio.create_task(_visit(browser, address, visitor, at, all_there, leave))
            for visitor, at in zip(visitors, arrivals, strict=True)
        ]
        await asyncio.wait([asyncio.create_task(all_there.wait()), *coming], return_when=asyncio.FIRST_COMPLETED)
        for done in coming:
            if done.done():
                done.result()
        await asyncio.sleep(stay_s)
        memory = [_memory_of(kernel) for kernel in kernels_of(server)]
        serving = [server, *set(server.children()) - set(kernels_of(server))]
        server_bytes, load = sum(each.memory_full_info().pss for each in serving), os.getloadavg()[0]
        leave.set()
        await asyncio.gather(*coming)
        left_at = time.monotonic()
        _report(visitors, memory, server_bytes, load)
        while (left := len(kernels_of(server))) and time.monotonic() - left_at < GONE_S:
            click.echo(f"kernels left after {time.monotonic() - left_at:4.0f} s: {left}")
            await asyncio.sleep(min(30.0, GONE_S - (time.monotonic() - left_at) + 0.1))
        click.echo(f"kernels left after {time.monotonic() - left_at:4.0f} s: {left}")
        await browser.close()
    slow = [visitor for visitor in visitors if visitor.usable_s > USABLE_S]
    click.echo(f"{len(slow)} of {n} pages took longer than {USABLE_S:.0f} s; {left} kernels are left")
    return int(bool(slow or left))


async def _visit(
    browser: Browser, address: str, visitor: Visitor, at_s: float, all_there: asyncio.Barrier, leave: asyncio.Event
) -> None:
    await asyncio.sleep(at_s)
    context = await browser.new_context(viewport=VIEWPORT, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MS)
    page = await context.new_page()
    tools = await context.new_cdp_session(page)
    try:
        await _arrive(page, address, visitor)
    except PlaywrightError as error:
        visitor.frame_s = visitor.lab_s = visitor.usable_s = PATIENCE_MS / 1e3
        shown = ""
        with contextlib.suppress(PlaywrightError):
            shown = await page.locator("body").inner_text(timeout=5000)
        click.echo(
            f"visitor {visitor.number} never got the lab: {str(error).splitlines()[0]}; the page says {shown!r:.200}"
        )
    waiting = [asyncio.create_task(all_there.wait()), asyncio.create_task(leave.wait())]
    while not leave.is_set():
        await tools.send("Page.setWebLifecycleState", {"state": "frozen"})
        await asyncio.wait(waiting[1:], timeout=PRESS_EVERY_S)
        await tools.send("Page.setWebLifecycleState", {"state": "active"})
        if not leave.is_set() and visitor.answers_s:
            visitor.answers_s.append(await _press(page))
    match WAYS[visitor.number % len(WAYS)]:
        case "closes the page":
            await page.close(run_before_unload=True)
        case "goes elsewhere":
            await page.goto("about:blank")
        case _:
            await context.close()


async def _arrive(page: Page, address: str, visitor: Visitor) -> None:
    """Open the page, wait for the lab, its plan and the answer to a press, and note when each was there."""
    arrived = time.monotonic()
    await page.goto(address, wait_until="commit")
    await page.locator("#loading #loading_text").wait_for()
    visitor.frame_s = time.monotonic() - arrived
    await page.locator(".dtfm-lab .dtfm-panes").first.wait_for()
    await page.locator("#loading").wait_for(state="detached")
    visitor.lab_s = time.monotonic() - arrived
    await page.wait_for_selector(".dtfm-lab .dtfm-gantt:not([data-predicted='0'])")
    visitor.answers_s.append(await _press(page))
    visitor.usable_s = time.monotonic() - arrived


async def _press(page: Page) -> float:
    """Seconds from a press of "Split" until the kernel's answer, a second result, is on the page; or is gone again."""
    shown = await page.locator(".dtfm-lab .dtfm-second").count()
    pressed = time.monotonic()
    await page.locator(".dtfm-head button", has_text="Split").click()
    await page.locator(".dtfm-lab .dtfm-second").first.wait_for(state="detached" if shown else "attached")
    return time.monotonic() - pressed


def _memory_of(kernel: psutil.Process) -> Memory:
    processes = [kernel, *kernel.children(recursive=True)]
    taken = [process.memory_full_info() for process in processes]
    return Memory(sum(each.uss for each in taken), sum(each.pss for each in taken), len(processes))


def _report(visitors: list[Visitor], memory: list[Memory], server_bytes: float, load: float) -> None:
    click.echo(f"{'':34}{'median':>9}{'longest':>9}")
    rows = {
        "frame of the page, s": [each.frame_s for each in visitors],
        "lab stands, s": [each.lab_s for each in visitors],
        "usable, s": [each.usable_s for each in visitors],
        "answer to a press, s": [seconds for each in visitors for seconds in each.answers_s],
        "memory of its own a visitor, MB": [each.own / 1e6 for each in memory],
        "memory with shared parts, MB": [each.share / 1e6 for each in memory],
        "processes a visitor": [float(each.processes) for each in memory],
    }
    for name, numbers in rows.items():
        click.echo(f"{name:34}{np.median(numbers):9.1f}{max(numbers):9.1f}")
    click.echo(
        f"{len(memory)} kernels and the server take {(sum(each.share for each in memory) + server_bytes) / 1e9:.2f} GB"
    )
    click.echo(f"load of the machine while all were there: {load:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
