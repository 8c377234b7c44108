"""A plan that is brought along keeps what it can."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning_networks import KINDS, network

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import JOBS, Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning import adapt_plan, evaluate, plan, search

JOB = Job.from_bytes(3, 4, 1e9, 5e8)


def job_of(n_stages: int, n_replicas: int) -> Job:
    return Job.from_bytes(n_stages, n_replicas, 1e9, 5e8)


@given(st.sampled_from(KINDS), st.integers(12, 15), st.integers(0, 9))
def test_on_the_same_network_nobody_moves(kind, n, seed):
    before = plan(network(kind, n, seed), JOB, "random", steps=1)
    after = adapt_plan(before, before.topology, JOB)
    assert [set(group) for group in after.stages] == [set(group) for group in before.stages]
    assert after.cost.total_s <= before.cost.total_s * (1 + 1e-12)


@given(st.integers(0, 99))
def test_who_is_still_there_keeps_the_stage_and_only_holes_are_filled(seed):
    before = plan(network("geometric", 15, seed), JOB, "random", seed=seed, steps=1)
    gone = set(np.random.default_rng(seed).choice(before.topology.names, 3, replace=False))
    smaller = before.topology.subset([name for name in before.topology.names if name not in gone])
    after = adapt_plan(before, smaller, JOB)
    for was, now in zip(before.stages, after.stages, strict=True):
        assert set(was) - gone <= set(now)
    idle = {before.topology.names[i] for i in before.idle_devices}
    assert set().union(*after.stages) - set().union(*before.stages) <= idle


@pytest.mark.parametrize("lost", [0, 1, 2, 4, 5, 6])
def test_a_hole_goes_to_the_device_that_is_nearest_to_its_group(lost):
    site = np.arange(8) // 4  # a stage in each, and its fourth device is spare
    latency_ms = np.where(site[:, None] == site, 1.0, 100.0)
    topology = Topology.from_matrices(latency_ms, np.full((8, 8), 1.0), name="two sites")
    names = topology.names
    before = evaluate(topology, job_of(2, 3), stages=[list(names[:3]), list(names[4:7])])
    after = adapt_plan(before, topology.subset([i for i in range(8) if i != lost]), job_of(2, 3))
    away = {names[lost], names[3 if lost > 3 else 7]}
    assert [set(group) for group in after.stages] == [set(names[:4]) - away, set(names[4:]) - away]


@pytest.mark.parametrize(("n_stages", "n_replicas"), [(4, 3), (6, 2), (2, 6), (2, 4), (1, 12), (12, 1)])
def test_in_another_shape_the_row_is_cut_anew(n_stages, n_replicas):
    before = plan(network("geometric", 12, 0), JOB, "random", steps=1)
    after = adapt_plan(before, before.topology, job_of(n_stages, n_replicas))
    row = [name for group in before.stages for name in group]
    for stage, group in enumerate(after.stages):
        assert set(group) == set(row[stage * n_replicas : (stage + 1) * n_replicas])


@pytest.mark.parametrize("objective", ["communication", "iteration"])
@pytest.mark.parametrize("shares", [(12, 4), (8, 8)])
def test_pipelines_stay_together_where_a_plan_was_made_for_them(objective, shares):
    """Other pairs of devices would cost less to the communication cost, but a slow pipeline has few micro-batches."""
    latency_ms = np.full((5, 5), 50.0)
    for a, b in ((0, 3), (1, 2)):
        latency_ms[a, b] = latency_ms[b, a] = 1.0
    topology = Topology.from_matrices(latency_ms, np.full((5, 5), 1.0))
    counts = None if len(set(shares)) == 1 else shares
    job = JOBS["tiny"].with_fields(n_stages=2, n_replicas=2, microbatch=1, microbatches_per_replica=counts)
    before = replace(evaluate(topology, job, rank_map=[0, 2, 1, 3, None]), objective=objective)
    assert before.placement.devices.tolist() == [[0, 1], [2, 3]]
    after = adapt_plan(before, topology, job)
    kept = objective == "iteration" or shares != (8, 8)
    assert after.placement.devices.tolist() == ([[0, 1], [2, 3]] if kept else [[0, 1], [3, 2]])
    assert after.job.microbatch_counts == shares
    smaller = topology.subset([*topology.names[:3], topology.names[4]])
    assert adapt_plan(before, smaller, job).pipelines == (
        [["device-0", "device-2"], ["device-1", "device-4"]]
        if kept
        else [["device-0", "device-4"], ["device-1", "device-2"]]
    )


def test_what_a_job_leaves_open_is_as_it_was_planned():
    free = JOBS["tiny"].with_fields(n_stages=None, n_replicas=None, microbatch=None)
    made = free.with_fields(
        n_stages=2,
        n_replicas=2,
        microbatch=2,
        blocks_per_stage=(3, 5),
        microbatches_per_replica=(5, 3),
        schedule="adaptive-1f1b",
        warmups=(4, 1),
        recompute=True,
    )
    before = evaluate(network("geometric", 5, 0), made, stages=[[0, 1], [2, 3]])
    assert adapt_plan(before, before.topology, free).job == made
    pinned = adapt_plan(before, before.topology, free.with_fields(n_replicas=1)).job
    assert (pinned.n_stages, pinned.n_replicas, pinned.microbatch) == (2, 1, 2)
    assert (pinned.blocks_per_stage, pinned.microbatch_counts, pinned.warmups) == (None, (8,), None)


def test_too_few_devices_are_refused_in_words():
    before = plan(network("even", 12, 0), JOB, "random", steps=1)
    with pytest.raises(PlanError, match=r"3 stages x 4 replicas need 12 devices, .* has 11"):
        adapt_plan(before, before.topology.subset(before.topology.names[:11]), JOB)


def test_a_search_can_begin_there():
    before = plan(network("geometric", 16, 1), JOB, seed=0, steps=2)
    smaller = before.topology.subset(before.topology.names[1:])
    start = adapt_plan(before, smaller, JOB)
    assert next(iter(search(smaller, JOB, start=start, steps=1))).best_s <= start.cost.total_s * (1 + 1e-12)
