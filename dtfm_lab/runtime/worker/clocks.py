"""How a worker counts seconds: the one place where virtual, paced and real runs differ.

All times are seconds of the recorded trace since the iteration began.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

DOZE_S = 0.2
"""a sleep at most, before one looks up"""


class Clock(Protocol):
    overruns: int
    late_messages: int

    def start_iteration(self, began_monotonic_s: float) -> None:
        """``began_monotonic_s``: the moment on ``time.monotonic`` that all workers call 0."""

    def begin(self, ready_s: float) -> float:
        """When a computation whose inputs are there at ``ready_s`` starts."""

    def finish(self, start_s: float, cpu_s: float, drawn_s: float) -> float:
        """When it ends, having used ``cpu_s`` here; ``drawn_s`` is what the profile says."""

    def arrive(self, delivered_s: float, arrived_monotonic_s: float) -> float:
        """When a message counts as there, that the link delivers at ``delivered_s``."""


class VirtualClock:
    """Never sleeps: a logical clock that adds this worker's own CPU time. Immune to crowded cores."""

    overruns = 0
    late_messages = 0

    def start_iteration(self, began_monotonic_s: float) -> None:
        self._now_s = 0.0

    def begin(self, ready_s: float) -> float:
        self._now_s = max(self._now_s, ready_s)
        return self._now_s

    def finish(self, start_s: float, cpu_s: float, drawn_s: float) -> float:
        self._now_s = start_s + cpu_s
        return self._now_s

    def arrive(self, delivered_s: float, arrived_monotonic_s: float) -> float:
        return delivered_s


class PacedClock:
    """Sleeps until the drawn device would be done, ``time_scale`` wall seconds a second.

    A late wake-up is absorbed, because the next computation is planned from the last one's planned
    end. What cannot be absorbed is counted: a computation that ran over, a message that came late.
    """

    def __init__(self, time_scale: float, look_up: Callable[[], None] = lambda: None) -> None:
        """``look_up`` is called now and then in a long sleep, and may raise to end it."""
        self._scale, self._look_up = time_scale, look_up
        self.overruns = 0
        self.late_messages = 0

    def start_iteration(self, began_monotonic_s: float) -> None:
        self._began_s = began_monotonic_s
        self._now_s = 0.0

    def begin(self, ready_s: float) -> float:
        self._now_s = max(self._now_s, ready_s)
        self._sleep_until(self._now_s)
        return self._now_s

    def finish(self, start_s: float, cpu_s: float, drawn_s: float) -> float:
        self._now_s = start_s + drawn_s
        if (wall_s := self._elapsed_s(time.monotonic())) > self._now_s:
            self.overruns += 1
            self._now_s = wall_s
        else:
            self._sleep_until(self._now_s)
        return self._now_s

    def arrive(self, delivered_s: float, arrived_monotonic_s: float) -> float:
        if (arrived_s := self._elapsed_s(arrived_monotonic_s)) > delivered_s:
            self.late_messages += 1
            return arrived_s
        return delivered_s

    def _elapsed_s(self, monotonic_s: float) -> float:
        return (monotonic_s - self._began_s) / self._scale

    def _sleep_until(self, moment_s: float) -> None:
        doze_until(self._began_s + moment_s * self._scale, self._look_up)


class RealClock:
    """Wall time and nothing else."""

    overruns = 0
    late_messages = 0

    def __init__(self, look_up: Callable[[], None] = lambda: None) -> None:
        """``look_up`` as for the paced clock."""
        self._look_up = look_up

    def start_iteration(self, began_monotonic_s: float) -> None:
        self._began_s = began_monotonic_s
        doze_until(began_monotonic_s, self._look_up)

    def begin(self, ready_s: float) -> float:
        return self.elapsed_s()

    def finish(self, start_s: float, cpu_s: float, drawn_s: float) -> float:
        return self.elapsed_s()

    def arrive(self, delivered_s: float, arrived_monotonic_s: float) -> float:
        return arrived_monotonic_s - self._began_s

    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def linger(self, seconds: float) -> None:
        """As a slower device would, when a computation is done."""
        doze_until(time.monotonic() + seconds, self._look_up)


def doze_until(moment_monotonic_s: float, look_up: Callable[[], None]) -> None:
    while (left_s := moment_monotonic_s - time.monotonic()) > 0:
        time.sleep(min(left_s, DOZE_S))
        if left_s > DOZE_S:
            look_up()
