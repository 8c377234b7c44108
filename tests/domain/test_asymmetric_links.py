"""What unequal directions mean: every exchange goes both ways, so a plan's cost knows a pair, not its direction."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning.cost import pair_costs, price_placement

seeds = st.integers(0, 10_000)
few = settings(max_examples=25, deadline=None)
JOB = Job.from_bytes(3, 2, 1.3e9, 2.5e8)


def network(seed: int, n: int = 6) -> Topology:
    rng = np.random.default_rng(seed)
    return Topology.from_matrices(rng.uniform(0, 100, (n, n)), rng.uniform(0.05, 9, (n, n)))


def transposed(topology: Topology) -> Topology:
    return Topology(topology.devices, topology.latency_s.T, topology.bandwidth_bytes_per_s.T)


def cost_s(topology: Topology, grid: np.ndarray) -> float:
    return price_placement(topology, JOB, grid).total_s


def grid_of(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(6).reshape(3, 2)


@given(seeds)
@few
def test_a_pair_costs_one_message_there_and_one_back_each_over_its_own_direction(seed):
    topology = network(seed)
    pair = pair_costs(topology, JOB)
    for matrix, n_bytes in ((pair.group_s, JOB.gradient_bytes / JOB.n_replicas), (pair.hop_s, JOB.hop_bytes)):
        there, back = topology.transfer_s(n_bytes)[1, 4], topology.transfer_s(n_bytes)[4, 1]
        assert matrix[1, 4] == pytest.approx(there + back)


@given(seeds)
@few
def test_turning_every_link_around_changes_no_plan_s_cost(seed):
    topology, grid = network(seed), grid_of(seed)
    assert cost_s(transposed(topology), grid) == pytest.approx(cost_s(topology, grid))


@given(seeds)
@few
def test_the_order_of_the_stages_has_no_direction(seed):
    topology, grid = network(seed), grid_of(seed)
    assert cost_s(topology, grid[::-1]) == pytest.approx(cost_s(topology, grid))
