"""Random edits by hand, after each of which every number on the screen is compared with Python and with the others."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from browser import Figure, LabInBrowser
from hands import SHORT_MS, Hands, Impossible
from lab_page import PLACES, LabPage
from playwright.sync_api import ConsoleMessage, Error
from serving import PATIENCE_MS
from shown import HOLDS, contradictions, shown

NETWORKS = ("lecture-hall", "campus", "mixed-gpus", "worldwide", "volunteers")
QUIET_S, PATIENCE_S = 0.3, 45.0
AGAIN_S = 2.0
"""Seconds after which a contradiction is looked at again: the page may only have been late."""
WORTH = 1.01
"""Factor by which an iteration may be longer than it was before an edit that was undone."""
PLACES.setdefault("worth", ("What if", "Worth", "worth"))
SHORT_SEARCHES = """
from dtfm_lab.widgets.planner import replanning
replanning.BUDGETS_S = (0.015, 0.1, 0.4)
"""
"""Numbers are compared here, not how good plans are."""
REST = ("Schedule", "Groups", "Search", "What if", "worth")
"""Tabs of which one is shown at random after an edit, as each has numbers of its own."""


@dataclass
class Log:
    """What went wrong on the way."""

    wrong: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def walk(browser: LabInBrowser, edits: int, seed: int = 0, networks: tuple[str, ...] = NETWORKS) -> Iterator[Figure]:
    """Make ``edits`` random edits in all, as many on each network."""
    log = Log()
    browser.page.on("console", lambda said: _hear(log, said))
    for network in networks:
        n = edits // len(networks)
        before = len(log.wrong)
        _walked(browser, network, n, random.Random(f"{seed} {network}"), log)
        note = f"{n} edits, {len(log.late)} late answers and {len(log.refused)} refused gestures so far"
        yield Figure(f"contradictions, {network}", len(log.wrong) - before, "", 1, note=note)
    tracebacks = _tracebacks(browser)
    for line in [*log.console, *tracebacks]:
        print(f"failed: {line}", file=sys.stderr)
    yield Figure("errors in the console", len(log.console), "", 1)
    yield Figure("tracebacks in Python", len(tracebacks), "", 1)


def _walked(browser: LabInBrowser, network: str, n: int, chance: random.Random, log: Log) -> None:
    browser.open_lab(network)
    browser.ask(HOLDS + SHORT_SEARCHES)
    lab = LabPage(browser.page, f"walk-{network}")
    lab.whole_window()
    browser.page.set_default_timeout(SHORT_MS)
    hands, undoing = Hands(lab, chance), Undoing(browser)
    _quiet(browser, log, f"{network}, opened")
    undoing.settle(browser.ask("print(json.dumps(holds()))"))
    for number in range(n):
        try:
            did = hands.one()
        except (Error, AssertionError, Impossible) as error:
            did = f"nothing, {str(error).splitlines()[0] if str(error) else 'impossible'}"
            log.refused.append(f"{network} {number}: {did}")
            with suppress(Error):
                hands.leave()
        where = f"{network} {number}, {did}"
        took_s = _quiet(browser, log, where)
        print(f"{where} ({took_s:.1f} s)", file=sys.stderr, flush=True)
        _judge(browser, where, log, undoing, did)
        if chance.random() < 0.5:
            pane = chance.choice(REST)
            with suppress(Error):
                lab.pane(pane)
            where = f"{where}, then {pane}"
            _quiet(browser, log, where)
            _judge(browser, where, log, undoing, "")
    browser.page.set_default_timeout(PATIENCE_MS)


def _judge(browser: LabInBrowser, where: str, log: Log, undoing: Undoing, did: str) -> None:
    held = browser.ask("print(json.dumps(holds()))")
    found = contradictions(shown(browser), held)
    if found:
        browser.settle(AGAIN_S)
        _quiet(browser, log, where)
        held = browser.ask("print(json.dumps(holds()))")
        stays = contradictions(shown(browser), held)
        log.late += [f"{where}: {line}" for line in found if line not in stays]
        found = stays
    if did in ("undo", "redo"):
        found += undoing.check(held, did)
    undoing.settle(held)
    for line in found:
        print(f"WRONG {where}: {line}", file=sys.stderr, flush=True)
    log.wrong += [f"{where}: {line}" for line in found]
    if held["message"] or held["not_planned"]:
        print(f"  said: {held['message'] or held['not_planned']}", file=sys.stderr, flush=True)


def _quiet(browser: LabInBrowser, log: Log, where: str) -> float:
    """Wait until nothing is searched, predicted or analysed; return how long that took. No rest is wrong, too."""
    began = time.monotonic()
    rested = 0
    while rested < 2:
        browser.settle(QUIET_S)
        rested = rested + 1 if browser.ask("print(json.dumps(bool(at_rest())))") else 0
        if time.monotonic() - began > PATIENCE_S:
            log.wrong.append(f"{where}: the lab does not come to rest")
            print(f"WRONG {log.wrong[-1]}", file=sys.stderr, flush=True)
            break
    return time.monotonic() - began


class Undoing:
    """What the lab held at each depth of its history, so that an undo or a redo can be judged."""

    def __init__(self, browser: LabInBrowser) -> None:
        self._browser = browser
        self._at: dict[int, tuple[Any, float | None]] = {}

    def _depth(self) -> int:
        depth: int = self._browser.ask("print(len(the_lab.lab_state.history.edits.past))")
        return depth

    def settle(self, held: dict[str, Any]) -> None:
        self._at[self._depth()] = held["state"], held.get("iteration_s")

    def check(self, held: dict[str, Any], did: str) -> list[str]:
        """Return how the lab differs from what it was at this depth."""
        if (known := self._at.get(self._depth())) is None:
            return []
        state, iteration_s = known
        names = ("network", "job", "schedule", "choices")
        differs = [name for name, was, now in zip(names, state, held["state"], strict=True) if was != now]
        found = [f"after {did}, {', '.join(differs)} differ from before"] if differs else []
        now_s = held.get("iteration_s")
        if not differs and iteration_s and now_s and now_s > iteration_s * WORTH:
            found.append(f"after {did}, the iteration is {now_s:.4g} s, and was {iteration_s:.4g} s")
        return found


def _hear(log: Log, said: ConsoleMessage) -> None:
    if said.type == "error" and "Failed to load resource" not in said.text:
        log.console.append(said.text[:300])


def _tracebacks(browser: LabInBrowser) -> list[str]:
    """Return the last line of each traceback that a kernel wrote, and what cells show as errors."""
    text = (browser.jupyter.folder.parent / "jupyterlab.log").read_text()
    found = [part.strip().splitlines()[-1] for part in text.split("Traceback (most recent call last):")[1:]]
    shown = ", ".join(f".jp-OutputArea-output[data-mime-type*={kind}]" for kind in ("stderr", "error"))
    cells = browser.page.locator(shown)
    return [*found, *(one.inner_text()[-300:] for one in cells.all())]
