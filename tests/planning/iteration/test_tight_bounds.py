"""Bounds count what a job's choices cost for certain: what is waited for, averaged across a slow cut, or gathered."""

import numpy as np
import pytest
from pinned_jobs import pinned_job

import dtfm_lab as lab

APART = np.array([0, 0, 0, 1, 1, 1])
APART = APART[:, None] != APART[None, :]
SIX = lab.Topology.from_matrices(
    np.where(APART, 40.0, 1.0),
    np.where(APART, 0.5, 5.0),
    gpu=["A100", "A100", "V100", "A100", "V100", "V100"],
    memory_gib=[80] * 6,
    name="six",
)


def bound_over_plan(topology, **options):
    job = pinned_job("gpt3-xl", **{"global_batch": 64} | options)
    plan = lab.plan(topology, job, objective="iteration", steps=10, seed=0)
    return plan.iteration_lower_bound_s / plan.iteration_s


@pytest.mark.parametrize(
    ("synchronisation", "overlap"),
    [("ring", False), ("ring", True), ("hierarchical", False), ("sharded", False), ("sharded", True)],
)
def test_averaging_across_a_slow_cut_takes_what_its_links_take(synchronisation, overlap):
    across = {"n_stages": 1, "n_replicas": 6, "synchronisation": synchronisation, "overlap": overlap}
    assert bound_over_plan(SIX, **across) > 0.85


@pytest.mark.parametrize("sharding", ["zero-1", "zero-2", "zero-3"])
@pytest.mark.parametrize("gradient_dtype", [None, "fp32"])
def test_two_replicas_on_one_link_take_what_they_exchange(sharding, gradient_dtype):
    two = lab.Topology.from_matrices(np.full((2, 2), 1.0), np.full((2, 2), 1.0), gpu=["A100"] * 2, memory_gib=[80] * 2)
    pinned = {"n_stages": 1, "n_replicas": 2, "global_batch": 8, "sharding": sharding, "gradient_dtype": gradient_dtype}
    assert bound_over_plan(two, **pinned) > 0.98


@pytest.mark.parametrize("transport", ["batched", "blocking"])
def test_what_is_sent_is_waited_for(transport):
    two = lab.Topology.from_matrices(np.full((2, 2), 5.0), np.full((2, 2), 1.0), gpu=["A100"] * 2, memory_gib=[80] * 2)
    pinned = {"n_stages": 2, "n_replicas": 1, "global_batch": 32, "transport": transport}
    assert bound_over_plan(two, **pinned) > 0.9
    assert bound_over_plan(two, **pinned | {"checkpointing": "block"}) > 0.9


def test_blocks_computed_again_are_counted():
    one = SIX.subset([0])
    pinned = {"n_stages": 1, "n_replicas": 1, "checkpointing": "block"}
    assert bound_over_plan(one, **pinned) > 0.99
