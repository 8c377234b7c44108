"""What the clocks of a run count and what they tell, by a wall clock that moves when it is told to."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dtfm_lab.runtime.protocol.orders import Iterate
from dtfm_lab.runtime.worker import clocks, worker
from dtfm_lab.runtime.worker.clocks import PacedClock, RealClock, VirtualClock


class Wall:
    """Stands in for the module ``time``."""

    def __init__(self) -> None:
        self.now_s, self.slept_s = 1000.0, 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.slept_s += seconds


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    monkeypatch.setattr(clocks, "time", wall := Wall())
    return wall


def paced(scale: float = 2.0) -> PacedClock:
    clock = PacedClock(scale)
    clock.start_iteration(1000.0)
    return clock


def test_a_paced_computation_that_is_done_in_time_ends_when_its_device_would(wall):
    clock = paced()
    start_s = clock.begin(1.5)
    assert (start_s, wall.now_s) == (1.5, pytest.approx(1003)), "two wall seconds a second"
    wall.now_s += 0.5
    assert clock.finish(start_s, 99.0, 1.0) == 2.5
    assert wall.now_s == pytest.approx(1005)
    assert clock.overruns == 0


def test_a_paced_computation_that_is_not_is_counted_once_and_ends_late(wall):
    clock = paced()
    start_s = clock.begin(0.0)
    wall.now_s += 3
    assert clock.finish(start_s, 99.0, 1.0) == 1.5
    assert (clock.overruns, clock.late_messages, wall.slept_s) == (1, 0, 0)
    assert clock.begin(0.0) == 1.5, "what follows is late, too"


def test_a_message_that_is_late_is_counted_and_one_in_time_is_not(wall):
    clock = paced()
    assert clock.arrive(2.0, 1003.9) == 2.0
    assert clock.late_messages == 0
    assert clock.arrive(2.0, 1005.0) == 2.5
    assert (clock.late_messages, clock.overruns) == (1, 0)


def test_the_virtual_clock_never_sleeps_and_counts_cpu_seconds(wall):
    clock = VirtualClock()
    clock.start_iteration(1000.0)
    assert clock.finish(clock.begin(3.0), 0.25, 99.0) == 3.25
    assert clock.begin(1.0) == 3.25, "one computation at a time"
    assert clock.arrive(7.0, 2000.0) == 7.0
    assert wall.slept_s == 0


def test_the_real_clock_waits_for_the_beginning_of_all_and_tells_what_is(wall):
    clock = RealClock()
    clock.start_iteration(1002.0)
    assert wall.now_s == pytest.approx(1002)
    wall.now_s += 1
    assert clock.begin(77.0) == pytest.approx(1)
    assert clock.arrive(0.0, 1002.5) == 0.5
    clock.delay(2.0)
    assert clock.finish(0.0, 0.0, 0.0) == pytest.approx(3)


def test_a_worker_tells_what_an_iteration_of_its_own_was_late_by():
    """What is counted from the start of the run is told as it grows."""
    one = worker.Worker.__new__(worker.Worker)
    clock = VirtualClock()
    clock.late_messages, clock.overruns = 5, 7
    math = SimpleNamespace(state=SimpleNamespace(version=3), holds_last=True)
    one._executor = SimpleNamespace(math=math, clock=clock)

    def run(order: Iterate) -> float:
        clock.late_messages, clock.overruns = 7, 10
        return 4.5

    one._run_iteration = run
    assert one._iterate(Iterate(iteration=3, began_monotonic_s=0.0)) == {"loss": 4.5, "late_messages": 2, "overruns": 3}
    assert math.state.version == 4
    math.holds_last = False
    assert one._iterate(Iterate(iteration=4, began_monotonic_s=0.0)) == {
        "loss": None,
        "late_messages": 0,
        "overruns": 0,
    }
