"""DT-FM with and without its scheduler: its published choices, and what follows from them."""

import numpy as np
import pytest

from dtfm_lab import lab
from dtfm_lab.simulation.memory import memory
from dtfm_lab.systems import Budget, outcome_of
from dtfm_lab.systems.modelled.dt_fm import DTFM, LEAST_GENERATIONS, DTFMRandom, random_ranks

NETWORKS = ["worldwide", "universities", "lecture-hall"]
BUDGET = Budget(steps=20)
JOB = lab.load_job("gpt3-xl", global_batch=512)


def shape_of(network):
    return {"n_stages": 8} if len(lab.load_topology(network)) == 64 else {}


def job_of(network):
    return JOB if len(lab.load_topology(network)) == 64 else lab.load_job("tiny")


@pytest.mark.parametrize("network", NETWORKS)
def test_the_scheduler_is_never_slower_than_the_random_placement_of_median_seconds(network):
    topology, job = lab.load_topology(network), job_of(network)
    found = outcome_of(DTFM(planner="evolutionary", **shape_of(network)), topology, job, BUDGET)
    drawn = outcome_of(DTFMRandom(**shape_of(network)), topology, job, BUDGET)
    assert found.iteration_s <= drawn.iteration_s * (1 + 1e-9)


@pytest.mark.parametrize("network", ["universities", "lecture-hall"])
def test_a_short_time_cuts_no_search_off(network):
    topology, job = lab.load_topology(network), lab.load_job("gpt2-small")
    short, whole = (
        [plan.cost.total_s for plan in DTFM(microbatches="given").plans(topology, job, budget)]
        for budget in (Budget(seconds=1e-3), Budget(steps=LEAST_GENERATIONS))
    )
    assert short == whole


def test_random_placements_are_those_of_its_scripts():
    first, second, _ = (np.argsort(one).tolist() for one in random_ranks(64, 3, 0))
    assert first[:10] == [0, 2, 32, 33, 4, 10, 7, 45, 36, 8]  # rank_map of aws_run_gpt3_scheduled_1gpu_training.sh
    assert second[:10] == [0, 42, 36, 19, 15, 13, 55, 11, 1, 10]


def test_every_device_takes_part_and_the_pipeline_is_emptied_as_memory_asks():
    plan = outcome_of(DTFM(n_stages=8), lab.load_topology("worldwide"), JOB, BUDGET).plan
    assert plan.idle_devices == ()
    assert plan.job.schedule_name == "gpipe"
    assert memory(plan).fits
    twice = plan.changed(job=plan.job.with_fields(flush_every=2 * plan.job.flush_every))
    assert not memory(twice).fits


def test_the_plan_without_a_scheduler_is_the_median_of_its_draws():
    topology = lab.load_topology("regional")
    seconds = [outcome_of(DTFMRandom(n_stages=8, n_draws=1), topology, JOB, Budget(seed=seed)) for seed in range(3)]
    assert outcome_of(DTFMRandom(n_stages=8), topology, JOB).iteration_s == pytest.approx(
        float(np.median([one.iteration_s for one in seconds]))
    )


def test_its_plan_is_the_best_placement_of_its_own_cost():
    """The proven optimum of the paper's objective on the world-wide network, whatever the batch."""
    topology = lab.load_topology("worldwide")
    plan = outcome_of(DTFM(n_stages=8, planner="evolutionary"), topology, JOB, BUDGET).plan
    assert {frozenset(topology.devices[i].region for i in group) for group in plan.placement.devices.T.tolist()} == {
        frozenset({region}) for region in topology.regions
    }, "each pipeline stays in its region"
    assert lab.simulate(plan).iteration_s == pytest.approx(plan.iteration_s)
