"""Waiting for work on a thread: at once where it is quick, else with a bar and a button that ends the waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

import ipywidgets as w

from dtfm_lab.widgets.tasks import FRAME_S
from dtfm_lab.widgets.what_if.answer_markup import busy

AT_ONCE_S = 0.1
"""what takes longer shows how far it is"""
SECONDS_PER_ACTION = 3e-6
"""at first; then what the last work took"""
LEAST_ACTIONS = 5_000
"""from which the time of an action is told"""

Result = TypeVar("Result")


class Patience:
    """``view`` has the height that it needs from the beginning, so that nothing below it moves."""

    def __init__(self) -> None:
        self._pace_s = SECONDS_PER_ACTION
        self._stopped = False
        self.line = w.HTML()
        self.stop = w.Button(
            description="Stop", icon="stop", tooltip="Do not wait for this answer", layout=w.Layout(display="none")
        )
        self.view = w.HBox([self.line, self.stop], layout=w.Layout(min_height="34px", align_items="center"))
        self.stop.on_click(lambda _: self._stop())

    async def wait(self, work: asyncio.Future[Result], n_actions: int, slow: Callable[[bool], None]) -> Result | None:
        """What the work returns, or raises; None where a person stopped waiting for it.

        ``slow`` is called with True when it shows that it takes a while, and with False when that is over.
        """
        began, self._stopped = time.perf_counter(), False
        if not (await asyncio.wait({work}, timeout=AT_ONCE_S))[0]:
            slow(True)
            try:
                await self._show(work, n_actions, began)
            finally:
                self.line.value, self.stop.layout.display = "", "none"
                slow(False)
        if not work.done():
            work.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody asks any more
            return None
        if n_actions > LEAST_ACTIONS and (spent_s := time.perf_counter() - began) > AT_ONCE_S:
            self._pace_s = spent_s / n_actions
        return work.result()

    async def _show(self, work: asyncio.Future[Result], n_actions: int, began: float) -> None:
        expected_s = max(n_actions * self._pace_s, 2 * AT_ONCE_S)
        said = f"computing some {n_actions:,} actions: about {expected_s:.2g} s" if n_actions else "computing"
        self.stop.layout.display = ""
        while not work.done() and not self._stopped:
            self.line.value = busy(said, (time.perf_counter() - began) / expected_s)
            await asyncio.wait({work}, timeout=FRAME_S)

    def _stop(self) -> None:
        self._stopped = True
