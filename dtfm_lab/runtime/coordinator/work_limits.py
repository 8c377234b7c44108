"""How long a worker may work at one thing before it counts as stuck, though it lives and sends heartbeats.

A computation may take the longer of ``LEAST_S`` and ``TIMES`` times the longest computation that the calibration timed
on that worker, in wall seconds with all workers busy at once (nine of ten took less). Padding of the paced clock, a
slowdown that was ordered, links and waiting for a shared GPU do not count, as they come before or after the computation
itself. Before the calibration is over, and in orders that are not computations (making connections, reading and writing
a checkpoint), ``UNKNOWN_S`` is the limit. The same limits hold for a worker whose heartbeats stop: a call in C that
holds Python's lock stops them, too.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from dtfm_lab.domain.schedule import Kind
from dtfm_lab.runtime.protocol.profile import MeasuredDurations
from dtfm_lab.runtime.protocol.run_spec import RunSpec

LEAST_S = 30.0
"""A computation may always take so long: machines swap, and others use them, too."""
TIMES = 20.0
"""A computation may take so many times what the longest one took in calibration."""
UNKNOWN_S = 300.0
"""Limit of what nobody has timed before."""
GAP_S = 2.0
"""Where the coordinator itself has not looked for so long, because it was stopped, that time counts for no worker."""
OF_COMPUTATIONS = ("iterate", "evaluate")
"""Orders in which a worker without heartbeats must be computing."""


class ReportedWork:
    """What one worker said last that it works at."""

    def __init__(self) -> None:
        self.at = ""
        """In words; empty where it waits, sleeps, or has said nothing yet."""
        self.computes = False
        self.since_s = time.monotonic()
        """Since when, by the coordinator's monotonic clock; of a worker that waits, when it said so."""

    def heard(self, message: Mapping[str, Any]) -> None:
        """Take in a message of the worker."""
        self.at, self.computes, self.since_s = "", False, time.monotonic()
        if message.get("event") == "alive" and message.get("at"):
            self.at, self.computes = message["at"], message["computes"]
            self.since_s -= message["for_s"]


class WorkLimits:
    """The limits of every rank."""

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._computing_s: list[float] | None = None
        self._looked_s = time.monotonic()

    def calibrated(self, measured: Mapping[tuple[int, int, Kind], MeasuredDurations]) -> None:
        """Learn from the calibration how long computations take."""
        longest_s = [0.0] * len(self._spec.workers)
        for (stage, replica, _), figures in measured.items():
            rank = self._spec.rank(stage, replica)
            longest_s[rank] = max(longest_s[rank], figures.crowded_wall_s)
        self._computing_s = [max(LEAST_S, TIMES * each_s) for each_s in longest_s]

    def look(self, all_progress: Iterable[ReportedWork]) -> None:
        """To be called before each round of checks."""
        now_s = time.monotonic()
        if (gap_s := now_s - self._looked_s) > GAP_S:
            for progress in all_progress:
                progress.since_s = min(progress.since_s + gap_s, now_s)
        self._looked_s = now_s

    def overdue(self, rank: int, progress: ReportedWork, do: str) -> str | None:
        """Return what the worker has been at for too long while ``do`` is ordered, a predicate; None if nothing."""
        limit_s = self._limit_s(rank, progress, do)
        if time.monotonic() - progress.since_s <= limit_s:
            return None
        what = f"was at {progress.at}" if progress.at else "gave no sign of life"
        return f"{what} for more than {limit_s:.0f} s"

    def _limit_s(self, rank: int, progress: ReportedWork, do: str) -> float:
        computes = progress.computes or (not progress.at and do in OF_COMPUTATIONS)
        if computes and self._computing_s is not None:
            return self._computing_s[rank]
        if do == "write":  # text, a model's forward for each byte
            return UNKNOWN_S + self._spec.sample_bytes
        return UNKNOWN_S
