"""Equations 1 to 4: against DT-FM's own results, by laws, and where the published code slips."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_networks import KINDS, network, renumbered

from dtfm_lab.domain.job import JOBS, Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.files import load_topology
from dtfm_lab.planning import evaluate
from dtfm_lab.planning.cost import (
    align,
    bottleneck_matching,
    coarsened_weights,
    pair_costs,
    path_cost,
    price_placement,
    shortest_path,
)

PUBLIC = json.loads((Path(__file__).parents[1] / "data" / "public_partitions.json").read_text())["runs"]
seeds = st.integers(0, 10_000)


@pytest.mark.parametrize("run", PUBLIC, ids=lambda run: f"{run['topology']}-{run['seed']}")
def test_public_partitions_cost_what_dtfm_says(run):
    topology, job = load_topology(run["topology"]), JOBS["dtfm-gpt3-xl"]
    in_order = evaluate(topology, job, stages=[run["partition"][group] for group in run["path"]])
    assert in_order.cost.total_s == pytest.approx(run["cost_s"], abs=1e-9)
    assert in_order.cost.data_parallel_s == pytest.approx(run["data_parallel_s"], abs=1e-9)
    assert in_order.cost.pipeline_s == pytest.approx(run["pipeline_s"], abs=1e-9)
    assert evaluate(topology, job, groups=run["partition"]).cost.total_s == pytest.approx(run["cost_s"], abs=1e-9)


@given(seeds, st.sampled_from(KINDS), seeds)
def test_renumbering_devices_changes_no_cost(seed, kind, shuffle):
    topology, job = network(kind, 9, seed), Job.from_bytes(3, 3, 1e8, 2e8)
    grid = np.random.default_rng(seed).permutation(9).reshape(3, 3)
    other, order = renumbered(topology, shuffle)
    there = np.argsort(order)[grid]
    assert price_placement(other, job, there).total_s == pytest.approx(price_placement(topology, job, grid).total_s)


@given(seeds, st.sampled_from(KINDS), st.floats(0.1, 10))
def test_k_times_the_bytes_and_latency_cost_k_times_as_much(seed, kind, k):
    topology, grid = network(kind, 6, seed), np.random.default_rng(seed).permutation(6).reshape(2, 3)
    slower = Topology(topology.devices, k * topology.latency_s, topology.bandwidth_bytes_per_s)
    once = price_placement(topology, Job.from_bytes(2, 3, 1e8, 2e8), grid)
    assert price_placement(slower, Job.from_bytes(2, 3, k * 1e8, k * 2e8), grid).total_s == pytest.approx(
        k * once.total_s
    )


def test_a_group_pays_its_slowest_member_shard_by_shard():
    """Three devices, 1 s latency and 1 byte/s: a third of 6 bytes out and back to each of two partners."""
    topology = Topology.from_matrices(np.full((3, 3), 1e3), np.full((3, 3), 8e-9))
    cost = price_placement(topology, Job.from_bytes(1, 3, 6, 0), np.array([[0, 1, 2]]))
    assert cost.group_s == pytest.approx([2 * 2 * (1 + 2)])
    assert cost.pipeline_s == 0


def test_both_directions_of_a_link_are_paid():
    fast = Topology.from_matrices(np.zeros((2, 2)), np.full((2, 2), 8.0))
    slow_back = fast.with_link(1, 0, latency_s=5.0, one_way=True)
    job = Job.from_bytes(2, 1, 1e9, 1e9)
    for order in ([[0], [1]], [[1], [0]]):
        assert evaluate(fast, job, stages=order).cost.total_s == pytest.approx(2)
        assert evaluate(slow_back, job, stages=order).cost.total_s == pytest.approx(7)


def test_a_pipeline_of_one_stage_has_no_hops_and_a_single_replica_nothing_to_synchronise():
    topology = network("jittered", 4, 0)
    assert evaluate(topology, Job.from_bytes(1, 4, 1e8, 1e8), stages=[[0, 1, 2, 3]]).cost.pipeline_s == 0
    assert evaluate(topology, Job.from_bytes(4, 1, 1e8, 1e8), stages=[[0], [1], [2], [3]]).cost.data_parallel_s == 0


@given(seeds, st.integers(1, 6), st.booleans())
@settings(max_examples=20)
def test_the_bottleneck_matching_is_the_best_of_all_pairings(seed, n, ties):
    cost = np.random.default_rng(seed).random((n, n))
    cost = (cost * 4).round() if ties else cost
    value, columns = bottleneck_matching(cost)
    assert sorted(columns) == list(range(n))
    assert cost[np.arange(n), columns].max() == value
    assert value == min(cost[np.arange(n), list(p)].max() for p in itertools.permutations(range(n)))


@given(seeds, st.sampled_from(KINDS))
def test_aligned_columns_cost_exactly_the_path(seed, kind):
    topology, job = network(kind, 12, seed), Job.from_bytes(4, 3, 1e8, 2e8)
    hop_s = pair_costs(topology, job).hop_s
    groups = np.random.default_rng(seed).permutation(12).reshape(4, 3)
    weights = coarsened_weights(groups, hop_s)
    order = shortest_path(weights)
    grid = align(groups, order, hop_s)
    assert [set(row) for row in grid] == [set(groups[k]) for k in order]
    assert price_placement(topology, job, grid).pipeline_s == pytest.approx(path_cost(weights, order))


def test_a_grid_is_priced_as_it_pairs_not_as_it_could():
    near_far = np.array([[0, 9, 1, 50], [9, 0, 50, 1], [1, 50, 0, 9], [50, 1, 9, 0]], dtype=float)
    topology = Topology.from_matrices(near_far, np.full((4, 4), 1e9))
    job = Job.from_bytes(2, 2, 0, 0)
    crossed = price_placement(topology, job, np.array([[0, 1], [3, 2]]))
    assert crossed.hop_s == pytest.approx([0.1])
    assert crossed.weights_s[0, 1] == pytest.approx(0.002)
    assert evaluate(topology, job, stages=[[0, 1], [3, 2]]).cost.hop_s == pytest.approx([0.002])


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e30])
def test_a_matching_costs_what_it_says_at_any_scale(scale):
    cost = np.array([[1.0, 0.0], [2.0, 1.0]]) * scale
    worst_s, columns = bottleneck_matching(cost)
    assert cost[[0, 1], columns].max() == worst_s == scale
