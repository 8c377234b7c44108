"""A search that is watched: what watching costs."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
from browser import Counting, Figure, LabInBrowser

NETWORK, PLANNER = "worldwide", "evolutionary"
WATCHED_S, MARGIN_S, SKIPPED = 12.0, 1.0, 0.2
MARKING = """
import time, json
marks = []
curve = the_lab.plan_panel.real.curve
def mark(_):
    newest = max((rows[-1] for rows in curve.points.values() if len(rows)), key=lambda row: row[0], default=None)
    if newest is not None:
        marks.append((time.time(), time.process_time(), float(newest[0])))
curve.observe(mark, "caption")
"""
UNWATCHED = """
import json, sys, time
import dtfm_lab as lab
topology = lab.load_topology(sys.argv[1])
the_lab = lab.Lab(topology, live=False)
steps = lab.search(topology, the_lab.job, planner=sys.argv[2], seed=0, seconds=float(sys.argv[3]))
print(json.dumps([(time.process_time(), step.evaluations) for step in steps]))
"""


def live(browser: LabInBrowser) -> list[Figure]:
    browser.open_lab(NETWORK, pane="plan")
    browser.ask(MARKING)
    _begin(browser, PLANNER, WATCHED_S)
    browser.settle(MARGIN_S)
    counting = Counting(browser, ".dtfm-convergence:visible", "paints", "drawn")
    browser.settle(WATCHED_S - 2 * MARGIN_S)
    rates = counting.rates()
    browser.until("the_lab.plan_panel.real.search is None")
    watched = np.array([(cpu_s, priced) for _, cpu_s, priced in browser.ask("print(json.dumps(marks))")])
    share, pace = _same_work(watched, _unwatched())
    what = f"{PLANNER} on {NETWORK}"
    return [
        Figure("live: curve drawn", rates.drawn, "frames/s", 12, at_least=True, note=what),
        Figure("live: page", rates.page_frames, "frames/s", 50, at_least=True, note=what),
        Figure("live: websocket", rates.received_bytes / 1000, "KB/s", 40, note=what),
        Figure(
            "live: evaluations per CPU second, of unwatched",
            share,
            "",
            0.8,
            at_least=True,
            note=f"{pace:,.0f} watched",
        ),
    ]


def _begin(browser: LabInBrowser, planner: str, seconds: float) -> None:
    browser.ask(
        f"panel = the_lab.plan_panel.real; panel.planner.value = {planner!r}; "
        f"panel.seconds.value = {seconds}; marks.clear()"
    )
    browser.ask("the_lab.plan_panel.redo()")
    browser.until("panel.search is not None and marks", patience_s=20)


def _unwatched() -> np.ndarray:
    """(n, 2) CPU seconds and evaluations of the same search in a fresh process, without a view."""
    command = [sys.executable, "-c", UNWATCHED, NETWORK, PLANNER, str(WATCHED_S)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return np.array(json.loads(ended.stdout))


def _same_work(watched: np.ndarray, unwatched: np.ndarray) -> tuple[float, float]:
    """CPU seconds that the same evaluations took unwatched, of those that they took watched; and the watched pace.

    A search begins slowly, with bounds and first groups, so the same stretch is compared: that in which both were,
    less its first part.
    """
    most = min(watched[-1, 1], unwatched[-1, 1])
    stretch = most * SKIPPED, most
    cpu_s = [np.diff(np.interp(stretch, marks[:, 1], marks[:, 0]))[0] for marks in (watched, unwatched)]
    return float(cpu_s[1] / cpu_s[0]), float(most * (1 - SKIPPED) / cpu_s[0])
