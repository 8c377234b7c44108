"""Schedules that cannot finish: one line, with the circle of who waits for whom."""

from __future__ import annotations

import itertools

import pytest
from plans import equal, plan_of

from dtfm_lab.domain.errors import ScheduleError
from dtfm_lab.domain.network import Links
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.simulation.engine import simulate_iteration

KNOTS = {
    # stage 0 wants its first gradient before it sends the second micro-batch, stage 1 begins with the second
    "two devices": ["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"],
    "three devices": ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1", "2F1 2B1 2F0 2B0"],
    "interleaved": ["0F0 2F0 2B0 0B0", "3F0 1F0 3B0 1B0"],
    "interleaved backwards": ["0F0 2F0 0B0 2B0", "1F0 3F0 3B0 1B0"],
    "split": ["0F0 0I0 0W0 0F1 0I1 0W1", "1F1 1I1 1W1 1F0 1I0 1W0"],
}


@pytest.mark.parametrize("what", KNOTS)
@pytest.mark.parametrize("n_replicas", [1, 3])
def test_a_circle_of_waiting_is_refused_and_written_out_in_one_line(what, n_replicas):
    schedule = Schedule.from_orders("knot", KNOTS[what])
    plan = plan_of(schedule.n_devices, schedule.n_microbatches, n_replicas, n_layers=schedule.n_stages)
    links = Links.free(len(plan.topology))
    with pytest.raises(ScheduleError, match=r"schedule knot cannot finish: .*, in a circle") as refused:
        simulate_iteration(plan, schedule, equal(plan, 1, 1, schedule.n_stages), links)
    said = str(refused.value)
    assert "\n" not in said
    circle = said.removeprefix("schedule knot cannot finish: ").removesuffix(", in a circle").split(" waits for ")
    assert circle[0] == circle[-1]
    programs = [program.split() for program in schedule.orders]
    for waiting, wanted in itertools.pairwise(circle):
        same = [p for p in programs if waiting in p and wanted in p]
        neighbours = abs(int(waiting[0]) - int(wanted[0])) == 1 and waiting[-1] == wanted[-1]
        assert neighbours or same[0].index(wanted) < same[0].index(waiting)


def test_the_circle_of_the_smallest_knot():
    plan = plan_of(2, 2)
    with pytest.raises(ScheduleError, match="cannot finish: ") as refused:
        simulate_iteration(plan, Schedule.from_orders("knot", KNOTS["two devices"]), equal(plan, 1, 1), Links.free(2))
    circle = str(refused.value).partition(": ")[2].removesuffix(", in a circle").split(" waits for ")
    assert {"1F1", "0F1", "0B0", "1B0"} <= set(circle)


def test_a_long_circle_is_cut_short():
    """One device wants its first gradient at once, all others run every forward first."""
    n = 30
    hasty = " ".join(f"0F{m} 0B{m}" for m in range(n))
    patient = [" ".join(f"{s}{kind}{m}" for kind in "FB" for m in range(n)) for s in range(1, n)]
    plan = plan_of(n, n)
    with pytest.raises(ScheduleError, match=r" and \d+ more, in a circle") as refused:
        simulate_iteration(plan, Schedule.from_orders("knot", [hasty, *patient]), equal(plan, 1, 1), Links.free(n))
    assert len(str(refused.value)) < 300
