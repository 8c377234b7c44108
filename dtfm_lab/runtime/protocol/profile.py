"""Durations of computations on this machine, measured in calibration iterations before a run.

A calibration iteration runs the same program, with the same messages, on a copy of each stage. Timed alone in a loop,
the same computations come out 5 to 10 % cheaper: caches stay warm and cores idle.
"""

import statistics
from typing import NamedTuple

from dtfm_lab.domain.schedule import Kind

WARM_UPS = 2
"""First calibration iterations, which are not counted; only one where an iteration takes longer than LONG_S."""
LONG_S = 0.5
FEWEST, MOST = 3, 6
"""Calibration iterations that are counted: more than the fewest only while these took less than LONG_S together."""


class MeasuredDurations(NamedTuple):
    """Durations of one kind of computation of one worker."""

    cpu_s: float
    """Mean CPU seconds of the computing thread; the mean, because an iteration is a sum of slow and fast ones."""
    wall_s: float
    """Mean wall seconds, which the real clock counts."""
    crowded_wall_s: float
    """Wall seconds that nine of ten took at most, with all workers busy at once."""


class ComputeLog:
    """Durations of every computation of one worker, by stage and kind; kept only while ``counts`` is true."""

    def __init__(self) -> None:
        self.counts = False
        self._cpu_s: dict[tuple[int, Kind], list[float]] = {}
        self._wall_s: dict[tuple[int, Kind], list[float]] = {}

    def clear(self) -> None:
        self._cpu_s.clear()
        self._wall_s.clear()

    def add(self, stage: int, kind: Kind, cpu_s: float, wall_s: float) -> None:
        if self.counts:
            self._cpu_s.setdefault((stage, kind), []).append(cpu_s)
            self._wall_s.setdefault((stage, kind), []).append(wall_s)

    def measured(self) -> dict[tuple[int, Kind], MeasuredDurations]:
        crowded_s = {k: statistics.quantiles([*seconds, max(seconds)], n=10)[-1] for k, seconds in self._wall_s.items()}
        return {
            k: MeasuredDurations(statistics.fmean(self._cpu_s[k]), statistics.fmean(self._wall_s[k]), crowded_s[k])
            for k in self._cpu_s
        }
