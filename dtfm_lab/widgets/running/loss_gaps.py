"""What the loss of a device leaves in the chart of a run: a gap that opens in its row, until its copy takes over."""

import time
from collections.abc import Callable

from dtfm_lab.runtime.client.record import RunRecord
from dtfm_lab.widgets.views.gantt import GanttView
from dtfm_lab.widgets.views.gantt.gaps import gap_after, gaps_before

SHOWN_S = 4.0
"""Seconds that an iteration which was begun again is shown at least: a fast one would be over before it is seen."""


class LossGaps:
    """Reads a run at every call and draws the gaps into its chart."""

    def __init__(self, chart: GanttView, now_s: Callable[[], float] = time.monotonic) -> None:
        self._chart, self._now_s = chart, now_s
        self._since_s: dict[str, float] = {}
        """Since when each device is lost that is lost now."""
        self._n_faults = 0
        self._held, self._until_s = -1, 0.0
        """The iteration that was begun again last, and until when it is shown."""

    def iteration(self, run: RunRecord, newest: int) -> int:
        """Return the iteration to show: the newest one, or for a while the one that was begun again."""
        if len(run.faults) > self._n_faults:
            self._n_faults = len(run.faults)
            self._held, self._until_s = run.faults[-1].iteration, self._now_s() + SHOWN_S
        return min(self._held, newest) if self._now_s() < self._until_s else newest

    def draw(self, run: RunRecord, iteration: int) -> None:
        """Draw the gaps into the chart, which shows this iteration."""
        chart, now_s = self._chart, self._now_s()
        lost = [name for name, condition in list(run.conditions.items()) if condition == "lost"]
        self._since_s = {name: self._since_s.get(name, now_s) for name in lost}
        whole_s = float(chart.predicted.end.max(initial=0.0))
        before = gaps_before(run.faults, iteration, whole_s, run.time_scale)
        chart.gaps = [gap for gap in before if gap["device"] not in lost] + [
            gap_after(name, self._last_s(name), now_s - since_s, whole_s, run.time_scale)
            for name, since_s in self._since_s.items()
        ]

    def _last_s(self, device: str) -> float:
        """Return when the last measured bar of a device ends; 0 before any."""
        bars = self._chart.measured
        own = [bars.end[bars.row == row] for row, name in enumerate(self._chart.devices) if name == device]
        return max((float(ends.max(initial=0.0)) for ends in own), default=0.0)
