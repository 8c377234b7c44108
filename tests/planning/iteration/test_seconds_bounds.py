"""No plan is faster than the bound."""

from dataclasses import replace

import numpy as np
import pytest
from every_plan import FAMILIES, SYNCHRONISATIONS, check_bound, drawn, every_plan

import dtfm_lab as lab
from dtfm_lab.planning.iteration.bounds import iteration_bound_steps, price_bound, work_bound_s
from dtfm_lab.planning.iteration.problem import IterationProblem


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(3))
def test_no_plan_of_a_small_network_is_faster_than_its_bound(seed, family):
    case = drawn(seed, most_devices=3)
    check_bound(case, family, (seconds for seconds, _ in every_plan(case, family, np.random.default_rng(0), 60)))


def test_bounds_rise_from_the_work_of_all_devices_and_are_the_same_each_time():
    problem = IterationProblem.of(lab.load_topology("campus"), lab.load_job("gpt3-xl", microbatch=1))
    bounds = list(iteration_bound_steps(problem, 24.7, ["1f1b"]))
    assert bounds[0] == work_bound_s(problem)
    assert bounds == sorted(bounds)
    assert bounds == list(iteration_bound_steps(problem, 24.7, ["1f1b"]))


def test_one_device_alone_is_bounded_by_its_seconds():
    one = lab.load_topology("volunteers").subset([0])
    job = lab.load_job("tiny", n_stages=1, n_replicas=1)
    *_, bound_s = iteration_bound_steps(IterationProblem.of(one, job), 1e9)
    plan = lab.evaluate(one, job, stages=[[0]])
    assert bound_s == pytest.approx(lab.simulate(plan).iteration_s, rel=1e-2)


@pytest.mark.parametrize("seed", range(3))
def test_no_plan_of_a_small_network_is_cheaper_than_its_bound(seed):
    case = drawn(seed, most_devices=3)
    problem = IterationProblem.of(case.topology, case.job, case.queueing)
    prices = problem.price_per_hour
    dollars = [
        seconds * prices[plan.placement.devices].sum() / 3600
        for seconds, plan in every_plan(case, "whole", np.random.default_rng(0), 60)
    ]
    if dollars:
        assert price_bound(problem, FAMILIES["whole"]) <= min(dollars)


@pytest.mark.parametrize("seed", range(3))
def test_no_plan_within_a_price_is_faster_than_the_bound_for_that_price(seed):
    case = drawn(seed, most_devices=3)
    prices = np.array([device.price_per_hour for device in case.topology.devices])
    cap = float(np.median(prices)) * 1.5
    within = [
        seconds
        for seconds, plan in every_plan(case, "whole", np.random.default_rng(0), 60)
        if prices[plan.placement.devices].sum() <= cap
    ]
    check_bound(case, "whole", within, max_price_per_hour=cap)


@pytest.mark.parametrize("synchronisation", sorted(set(SYNCHRONISATIONS)))
@pytest.mark.parametrize("seed", range(90, 92))
def test_where_replicas_are_pinned_their_averaging_is_in_the_bound_and_no_more(seed, synchronisation):
    """With one pipeline nothing is averaged, so where shapes are open averaging seldom decides."""
    case = drawn(seed, most_devices=3)
    job = case.job.with_fields(synchronisation=synchronisation, synchronise_every=1)
    plans = every_plan(replace(case, job=job), "whole", np.random.default_rng(0), 300)
    best_s = min((seconds for seconds, plan in plans if plan.job.n_replicas == 2), default=np.inf)
    problem = IterationProblem.of(case.topology, job.with_fields(n_replicas=2), case.queueing)
    if best_s < np.inf:
        *_, bound_s = iteration_bound_steps(problem, 1.01 * best_s, FAMILIES["whole"])
        assert 0.7 * best_s <= bound_s <= best_s * (1 + 1e-9)
