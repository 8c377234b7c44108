"""What computations cost on this machine, measured in rehearsals before a run.

A rehearsal is an iteration of the same program with the same messages on a copy of each stage. Timed
alone in a loop, the same computations come out 5 to 10 % cheaper: caches stay warm and cores idle.
"""

from __future__ import annotations

import statistics
from typing import NamedTuple

from dtfm_lab.domain.schedule import Kind

WARM_UPS = 2
"""rehearsals that are not counted; one where an iteration takes long"""
LONG_S = 0.5
FEWEST, MOST = 3, 6
"""rehearsals that are counted: more while they have not taken LONG_S together"""


class Measured(NamedTuple):
    cpu_s: float
    """mean of the computing thread's CPU seconds: an iteration adds them up, the slow ones included"""
    wall_s: float
    """mean wall seconds: what the real clock counts"""
    crowded_wall_s: float
    """nine of ten took less, with all workers busy at once"""


class ComputeLog:
    """Times of every computation of one worker, by stage and kind."""

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

    def measured(self) -> dict[tuple[int, Kind], Measured]:
        crowded_s = {k: statistics.quantiles([*seconds, max(seconds)], n=10)[-1] for k, seconds in self._wall_s.items()}
        return {
            k: Measured(statistics.fmean(self._cpu_s[k]), statistics.fmean(self._wall_s[k]), crowded_s[k])
            for k in self._cpu_s
        }
