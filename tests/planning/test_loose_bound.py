"""A lower bound that is far below its plan says what it leaves out, and promises nothing."""

from dataclasses import replace

import pytest

from dtfm_lab import lab
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning.explain.loose_bound import counts_work_alone, loose_bound_words


def network(n: int, hosts: bool = False) -> Topology:
    names = {"hosts": [f"host-{i // 2}" for i in range(n)]} if hosts else {}
    ones = [[1.0] * n] * n
    return Topology.from_matrices(ones, ones, gpu="T4", **names)


def plan_of(n: int, seconds: float, work_times: float, hosts: bool = False) -> lab.Plan:
    job = lab.load_job("tiny", n_stages=2, n_replicas=n // 2, global_batch=n, microbatch=1)
    plan = lab.evaluate(network(n, hosts), job, stages=[list(range(n // 2)), list(range(n // 2, n))])
    work_s = bound_by_work_s(plan)
    changed = plan.changed(iteration_s=seconds * work_s, iteration_lower_bound_s=work_times * work_s)
    return replace(changed, left_open=("n_stages",), seconds=5.0)


def bound_by_work_s(plan: lab.Plan) -> float:
    low, high = 0.0, 1e3
    for _ in range(200):
        middle = (low + high) / 2
        probe = plan.changed(iteration_s=2e3, iteration_lower_bound_s=middle)
        low, high = (middle, high) if counts_work_alone(probe) else (low, middle)
    return low


def test_a_near_bound_is_given_as_a_ratio():
    plan = plan_of(4, seconds=1.2, work_times=1.0)
    assert loose_bound_words(plan) == ""
    assert "at most 1.20 times faster" in plan.speed_up_words


def test_a_bound_that_counts_work_alone_says_so():
    said = loose_bound_words(plan_of(4, seconds=20.0, work_times=1.0))
    assert said.startswith("The search found nothing better in 5 s. ")
    assert "as if all 4 devices computed all the time" in said
    assert "not messages between stages, the time in which a pipeline fills and the averaging of gradients" in said
    assert said.endswith("A better plan may exist.")
    assert "times faster" not in said


@pytest.mark.parametrize(
    ("n", "hosts", "says"),
    [
        (4, False, "not that devices wait for each other's passes. A"),
        (4, True, "that devices of a host share its NIC"),
        (100, False, "which devices are far apart (it does in networks of up to 96 devices)"),
    ],
)
def test_a_bound_that_was_raised_says_what_it_still_leaves_out(n, hosts, says):
    assert says in loose_bound_words(plan_of(n, seconds=20.0, work_times=2.0, hosts=hosts))


def test_a_placement_of_your_own_was_not_searched_for():
    plan = replace(plan_of(4, seconds=20.0, work_times=1.0), left_open=None, seconds=0.0)
    assert loose_bound_words(plan).startswith("No plan that its search allowed takes less than ")
