"""How far a run is, and how long it will take."""

import time
from collections import deque
from collections.abc import Callable
from html import escape

import ipywidgets as w

from dtfm_lab.domain.units import format_s
from dtfm_lab.runtime.client import run_report
from dtfm_lab.runtime.client.record import RunRecord
from dtfm_lab.widgets import markup

LOOKS = 40
"""Number of the last changes of the count from which the pace is computed."""
FEWEST_ITERATIONS = 2
"""Iterations that must be done before the time left is shown."""


class RunProgress:
    """A line such as ``3 of 8 iterations done, some 4 s left``."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._changes: deque[tuple[float, int]] = deque(maxlen=LOOKS)
        self.line = w.HTML()
        self.view = self.line

    def begin(self) -> None:
        """Start again with another run."""
        self._changes.clear()
        self._write("starting")

    def show(self, run: RunRecord) -> None:
        done, total = len(run.losses), run.spec.iterations
        if not self._changes or self._changes[-1][1] != done:
            if self._changes and self._changes[-1][1] > done:
                self._changes.clear()  # after a fault iterations are repeated
            self._changes.append((self._now_s(), done))
        left_s = self.left_s(total) if run.status == "running" else None
        self._write(run_report.describe_progress(run) + ("" if left_s is None else f", some {_rounded(left_s)} left"))

    def stopping(self) -> None:
        """Show that the run is being stopped."""
        self._write("stopping")

    def left_s(self, total: int) -> float | None:
        """Return wall seconds at the pace of the last iterations; None until there is a pace."""
        if not self._changes:
            return None
        (first_s, first), (last_s, last) = self._changes[0], self._changes[-1]
        if last - first < FEWEST_ITERATIONS:
            return None
        pace_s = (last_s - first_s) / (last - first)
        return max(0.0, pace_s * (total - last) - (self._now_s() - last_s))

    def _write(self, text: str) -> None:
        self.line.value = markup.line(escape(text))


def _rounded(seconds: float) -> str:
    """Return seconds in coarse steps, so that the text does not flicker."""
    return (
        format_s(float(f"{seconds:.1g}"))
        if seconds < 10
        else f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
    )
