"""What computations cost on this machine, measured in rehearsals before a run.

A rehearsal is an iteration of the same program with the same messages on a copy of each stage. Timed
alone in a loop, the same computations come out 5 to 10 % cheaper: caches stay warm and cores idle.
"""

from __future__ import annotations

import statistics
from typing import NamedTuple

from dtfm_lab.domain.schedule import Kind

WARM_UPS = 2
REHEARSALS = 8
"""the first WARM_UPS of them are not counted"""


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
        self._cpu_s: dict[tuple[int, Kind], list[float]] = {}
        self._wall_s: dict[tuple[int, Kind], list[float]] = {}

    def add(self, iteration: int, stage: int, kind: Kind, cpu_s: float, wall_s: float) -> None:
        if WARM_UPS - REHEARSALS <= iteration < 0:
            self._cpu_s.setdefault((stage, kind), []).append(cpu_s)
            self._wall_s.setdefault((stage, kind), []).append(wall_s)

    def measured(self) -> dict[tuple[int, Kind], Measured]:
        crowded_s = {k: statistics.quantiles(seconds, n=10)[-1] for k, seconds in self._wall_s.items()}
        return {
            k: Measured(statistics.fmean(self._cpu_s[k]), statistics.fmean(self._wall_s[k]), crowded_s[k])
            for k in self._cpu_s
        }
