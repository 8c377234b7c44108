"""How a worker measures time. Virtual, paced and real runs differ only in this module.

All times are seconds of the recorded trace, counted from the start of the iteration.
"""

import time
from collections.abc import Callable

LONGEST_SLEEP_S = 0.2
"""Maximum seconds of sleep between two calls of ``check``."""


class Clock:
    """Turns computations and messages into times of the trace."""

    overruns = 0
    """Number of computations that took longer here than their expected duration on the device (paced clock)."""
    late_messages = 0
    """Number of messages that arrived after their emulated link would have delivered them (paced clock)."""

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        """``check`` is called during long sleeps and may raise to end them."""
        self._check = check

    def start_iteration(self, began_monotonic_s: float) -> None:
        """Start an iteration. ``began_monotonic_s``: the moment of ``time.monotonic`` that is time 0 for all
        workers."""
        self._began_s = began_monotonic_s
        self._now_s = 0.0

    def begin(self, ready_s: float) -> float:
        """Return the start of a computation whose inputs are available at ``ready_s``."""
        self._now_s = max(self._now_s, ready_s)
        return self._now_s

    def finish(self, start_s: float, cpu_s: float, specified_s: float) -> float:
        """Return the end of a computation that used ``cpu_s`` here and takes ``specified_s`` in the profile."""
        raise NotImplementedError

    def arrive(self, delivered_s: float, arrived_monotonic_s: float) -> float:
        """Return the arrival of a message that the emulated link delivers at ``delivered_s``."""
        return delivered_s

    def _sleep_until(self, moment_monotonic_s: float) -> None:
        while (left_s := moment_monotonic_s - time.monotonic()) > 0:
            time.sleep(min(left_s, LONGEST_SLEEP_S))
            if left_s > LONGEST_SLEEP_S:
                self._check()


class VirtualClock(Clock):
    """A logical clock that never sleeps and adds this worker's own CPU time, so waiting for a core does not count."""

    def finish(self, start_s: float, cpu_s: float, specified_s: float) -> float:
        self._now_s = start_s + cpu_s
        return self._now_s


class PacedClock(Clock):
    """Sleeps until the plan's device would be done. Each second of the device takes ``time_scale`` wall seconds.

    A late wake-up is absorbed, because the next computation is planned from the planned end of the last one. What
    cannot be absorbed is counted: computations that overran, and messages that arrived late.
    """

    def __init__(self, time_scale: float, check: Callable[[], None] = lambda: None) -> None:
        super().__init__(check)
        self._scale = time_scale

    def begin(self, ready_s: float) -> float:
        self._sleep_until(self._wall_s(super().begin(ready_s)))
        return self._now_s

    def finish(self, start_s: float, cpu_s: float, specified_s: float) -> float:
        self._now_s = start_s + specified_s
        # counted, because the trace then shows this machine and not the device
        if (elapsed_s := self._elapsed_s(time.monotonic())) > self._now_s:
            self.overruns += 1
            self._now_s = elapsed_s
        else:
            self._sleep_until(self._wall_s(self._now_s))
        return self._now_s

    def arrive(self, delivered_s: float, arrived_monotonic_s: float) -> float:
        if (arrived_s := self._elapsed_s(arrived_monotonic_s)) > delivered_s:
            self.late_messages += 1
            return arrived_s
        return delivered_s

    def _elapsed_s(self, monotonic_s: float) -> float:
        return (monotonic_s - self._began_s) / self._scale

    def _wall_s(self, moment_s: float) -> float:
        return self._began_s + moment_s * self._scale


class RealClock(Clock):
    """A clock that measures wall time."""

    def start_iteration(self, began_monotonic_s: float) -> None:
        super().start_iteration(began_monotonic_s)
        # all workers begin at the same moment, whenever their orders arrived
        self._sleep_until(began_monotonic_s)

    def begin(self, ready_s: float) -> float:
        return self.elapsed_s()

    def finish(self, start_s: float, cpu_s: float, specified_s: float) -> float:
        return self.elapsed_s()

    def arrive(self, delivered_s: float, arrived_monotonic_s: float) -> float:
        return arrived_monotonic_s - self._began_s

    def elapsed_s(self) -> float:
        """Return seconds since the iteration began."""
        return time.monotonic() - self._began_s

    def delay(self, seconds: float) -> None:
        """Sleep after a computation, as if the device were slower."""
        self._sleep_until(time.monotonic() + seconds)


def clock_of(name: str, time_scale: float, check_aborted: Callable[[], None]) -> Clock:
    """Return the clock of this name. ``check_aborted`` raises if waiting has become useless."""
    match name:
        case "virtual":
            return VirtualClock()
        case "paced":
            return PacedClock(time_scale, check_aborted)
    return RealClock(check_aborted)
