"""Missions of the capstone: what wins them, and what does not."""

from dataclasses import replace

import pytest
from mission_cases import assert_not_won, assert_won_by_its_answer, worked_answer

import dtfm_lab as lab


def test_capstone_network():
    name = "capstone-network"
    mine = assert_won_by_its_answer(name)
    assert_not_won(name, lab.load_topology("lecture-hall"), because="comes with the lab")
    renamed = replace(lab.load_topology("lecture-hall"), name="mine", description=mine.description)
    assert_not_won(name, renamed, because="comes with the lab")
    assert_not_won(name, replace(mine, description="Mine."), because="where are the numbers from")
    assert_not_won(name, mine.subset(range(4)), because="it has 4 devices")
    alike = lab.Topology.from_matrices([[5] * 6] * 6, [[1] * 6] * 6, regions=["a"] * 3 + ["b"] * 3, gpu="laptop")
    assert_not_won(name, alike, because="where all are alike")


def test_capstone_plan():
    name = "capstone-plan"
    assert_won_by_its_answer(name)
    mine = worked_answer("capstone-network")
    scattered = lab.evaluate(mine, lab.load_job("tiny", n_stages=1, n_replicas=6, global_batch=12), stages=[range(6)])
    assert_not_won(name, scattered, because="times the bound")
    believed = replace(scattered, iteration_lower_bound_s=scattered.iteration_s)
    assert_not_won(name, believed, because="times the bound")
    bundled = lab.plan("lecture-hall", "tiny", seed=0, steps=1)
    assert_not_won(name, bundled, because="comes with the lab")


@pytest.mark.slow
def test_capstone_run():
    name = "capstone-run"
    plan, predicted, measured = assert_won_by_its_answer(name)
    assert_not_won(name, [plan, measured, predicted], because="was simulated")
    assert_not_won(name, [plan, lab.simulate(plan), measured], because="not from the profile")
    assert_not_won(name, [predicted, plan, measured], [plan, predicted], because="wanted [plan, predicted, measured]")
    elsewhere = lab.plan("lecture-hall", plan.job, objective="communication", seed=0, steps=1)
    assert_not_won(name, [elsewhere, predicted, measured], because="comes with the lab")


def test_capstone_systems():
    name = "capstone-systems"
    found = assert_won_by_its_answer(name)
    few = lab.strategies(found.topology, found.job, systems=["ddp", "megatron"])
    assert_not_won(name, few, because="2 systems were asked")
    bundled = lab.strategies("lecture-hall", found.job, systems=["ddp", "megatron", "deepspeed-pipeline", "dt-fm"])
    assert_not_won(name, bundled, because="comes with the lab")
    elsewhere = replace(bundled, topology=found.topology)
    assert_not_won(name, elsewhere, because="is of another network")
