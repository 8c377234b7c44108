"""A rival's plan is its best: no random change within its own freedoms is faster, and none that is held saves."""

import numpy as np
import pytest

import dtfm_lab as lab
from dtfm_lab.systems import Budget, outcome_of, variant, work_of
from dtfm_lab.systems.bound import fits
from dtfm_lab.systems.grids import device_sets

GRIDS = ("megatron", "deepspeed-pipeline", "deepspeed-zero-3", "fsdp", "ddp")
FREEDOMS = [
    ("megatron", {"order": "dp-pp"}),
    ("megatron", {"order": "pp-dp"}),
    ("megatron", {"overlap": False}),
    ("megatron", {"sharding": "none"}),
    ("megatron", {"microbatches": "given"}),
    ("megatron", {"devices": "all"}),
    ("deepspeed-pipeline", {"sharding": "none"}),
    ("deepspeed-pipeline", {"devices": "all"}),
    ("fsdp", {"reshard": True}),
    ("fsdp", {"devices": "all"}),
    ("ddp", {"devices": "all"}),
]
JOB = lab.load_job("tiny", global_batch=32)


@pytest.mark.parametrize("network", ["lecture-hall", "raspberry-pi"])
@pytest.mark.parametrize("name", GRIDS)
def test_no_random_change_within_its_freedoms_is_faster(network, name):
    topology, budget, strategy = lab.load_topology(network), Budget(), variant(name)
    best = outcome_of(strategy, topology, JOB, budget)
    branches, rng = list(strategy.branches(topology, work_of(JOB), budget)), np.random.default_rng(0)
    for _ in range(200):
        plans = list(branches[rng.integers(len(branches))].plans())
        plan = plans[rng.integers(len(plans))].changed(queueing=budget.queueing)
        if fits(plan):
            assert strategy.seconds(plan, budget) >= best.iteration_s * (1 - 1e-9)


@pytest.mark.parametrize(("name", "held"), FREEDOMS)
def test_a_freedom_that_is_held_saves_nothing(name, held):
    topology = lab.load_topology("lecture-hall").scaled(bandwidth=0.2)
    free, pinned = (outcome_of(variant(name, **how), topology, JOB).iteration_s for how in ({}, held))
    assert pinned is None or free <= pinned * (1 + 1e-9)


def test_devices_that_slow_all_others_are_left_out():
    topology = lab.load_topology("campus")
    laptops = {i for i, device in enumerate(topology.devices) if device.gpu == "laptop"}
    assert any(not laptops & set(one.tolist()) for one in device_sets(topology))
    for name in ("megatron", "fsdp"):
        plan = outcome_of(variant(name), topology, lab.load_job("gpt2-small", global_batch=64)).plan
        assert not laptops & set(plan.placement.devices.flat)


@pytest.mark.parametrize("network", ["campus", "ten-cities", "volunteers"])
def test_sets_of_devices_begin_with_all_and_are_distinct(network):
    topology = lab.load_topology(network)
    sets = [tuple(one.tolist()) for one in device_sets(topology)]
    assert sets[0] == tuple(range(len(topology)))
    assert len(set(sets)) == len(sets)
    assert all(list(one) == sorted(one) for one in sets)
