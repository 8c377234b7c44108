"""The lab's own strategy: no slower than plans that need no search, and every choice of it can be switched off."""

import pytest

import dtfm_lab as lab
from dtfm_lab.domain.job import gpt
from dtfm_lab.systems import Budget, outcome_of, variant

STEPS = Budget(steps=2)
BARE = {"averaging": "sharded", "grids": False, "transport": "overlapped", "microbatches": "given"}
"""The search alone."""


@pytest.mark.parametrize("network", ["lecture-hall", "raspberry-pi", "shared-cards"])
def test_it_is_no_slower_than_grids_and_data_parallelism_with_the_same_transport(network):
    topology, job = lab.load_topology(network), lab.load_job("small")
    ours = outcome_of(variant("dtfm-lab"), topology, job, STEPS)
    for other in (variant("ddp"), variant("megatron", transport="overlapped", overlap=True)):
        theirs = outcome_of(other, topology, job, STEPS)
        assert theirs.iteration_s is None or ours.iteration_s <= theirs.iteration_s * (1 + 1e-9)


def test_other_ways_to_average_never_make_it_slower():
    topology, job = lab.load_topology("mixed-gpus"), lab.load_job("gpt3-xl")
    sharded = outcome_of(variant("dtfm-lab", averaging="sharded", grids=False), topology, job, STEPS)
    tried = outcome_of(variant("dtfm-lab", grids=False), topology, job, STEPS)
    assert tried.iteration_s <= sharded.iteration_s
    assert tried.iteration_s == lab.simulate(tried.plan).iteration_s


def test_with_all_switched_off_it_is_the_plan_of_the_search():
    topology, job = lab.load_topology("lecture-hall"), lab.load_job("small")
    bare = outcome_of(variant("dtfm-lab", **BARE), topology, job, STEPS)
    searched = lab.plan(topology, lab.systems.work_of(job), steps=2, queueing="cards")
    assert bare.iteration_s == searched.iteration_s
    assert bare.considered == 1


def test_where_nothing_fits_whole_it_searches_plans_of_split_states():
    topology = lab.load_topology("datacenter").subset(range(4))
    wide = gpt(name="wide", n_layers=1, d_model=8192, n_heads=64, seq_len=512, vocab_size=50257)
    job = lab.Job(name="wide", model=wide, global_batch=8)
    ours = outcome_of(variant("dtfm-lab", grids=False), topology, job, Budget(steps=1))
    assert ours.found is not None, ours.reason
    assert ours.job.sharding != "none"


@pytest.mark.parametrize("efficiency", [0.05, 0.9])
def test_it_searches_for_the_efficiency_that_is_asked(efficiency):
    topology, job = lab.load_topology("lecture-hall"), lab.load_job("small")
    budget = Budget(steps=2, efficiency=efficiency)
    ours = outcome_of(variant("dtfm-lab"), topology, job, budget)
    assert ours.plan.topology is topology
    assert ours.iteration_s == lab.simulate(ours.plan, efficiency=efficiency).iteration_s
    for other in ("megatron", "sailor"):
        assert ours.iteration_s <= outcome_of(variant(other), topology, job, budget).iteration_s * (1 + 1e-9)
