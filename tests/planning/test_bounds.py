"""Lower bounds against the optimum: no placement costs less."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning_networks import KINDS, network, optimum_s, renumbered

from dtfm_lab.domain.job import JOBS, Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.files import load_topology
from dtfm_lab.planning import lower_bound_s
from dtfm_lab.planning.cost import bound_of_pairs, pair_costs

SHAPES = [(8, 2, 4), (8, 4, 2), (8, 8, 1), (8, 1, 8), (7, 3, 2), (7, 2, 3), (6, 2, 2), (6, 4, 1), (5, 1, 3), (6, 3, 2)]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_bound_is_the_optimum_where_all_links_are_alike(shape):
    n, n_stages, n_replicas = shape
    topology, job = network("even", n, 0), Job.from_bytes(n_stages, n_replicas, 1e8, 1e8)
    assert lower_bound_s(topology, job) == pytest.approx(optimum_s(topology, job))


@pytest.mark.parametrize(
    ("name", "optimum_s"),
    [("datacenter", 3.439799), ("spot", 31.634160), ("universities", 16.086840), ("regional", 34.802041)],
)
def test_the_bound_proves_the_optimum_of_four_of_the_five_cases(name, optimum_s):
    assert lower_bound_s(load_topology(name), JOBS["dtfm-gpt3-xl"]) == pytest.approx(optimum_s, abs=1e-6)


def test_the_bound_of_the_worldwide_case_is_within_a_tenth():
    assert 0.9 * 49.218380 < lower_bound_s(load_topology("worldwide"), JOBS["dtfm-gpt3-xl"]) < 49.218381


def test_the_bound_is_the_optimum_of_two_far_regions_that_share_many_stages():
    """So many stages that not every length of a segment is distinguished, and no region has a device for the eighth."""
    region = np.arange(14) // 7
    apart = region[:, None] != region
    topology = Topology.from_matrices(np.where(apart, 60.0, 1.0), np.where(apart, 1.0, 10.0))
    job = Job.from_bytes(14, 1, 1e8, 1e8)
    hop_s = pair_costs(topology, job).hop_s
    assert lower_bound_s(topology, job) == pytest.approx(12 * hop_s[0, 1] + hop_s[0, 7])


@given(st.sampled_from(KINDS), st.integers(0, 10**6))
def test_the_bound_does_not_depend_on_the_numbering(kind, seed):
    topology, job = network(kind, 12, seed), Job.from_bytes(3, 3, 1e8, 2e8)
    assert lower_bound_s(renumbered(topology, seed)[0], job) == pytest.approx(lower_bound_s(topology, job))


def test_a_device_that_can_stay_idle_does_not_raise_the_bound():
    latency = np.full((5, 5), 1.0)
    latency[4] = latency[:, 4] = 1e6
    job, everyone = Job.from_bytes(2, 2, 1e6, 1e6), Topology.from_matrices(latency, np.full((5, 5), 1.0))
    assert lower_bound_s(everyone, job) == pytest.approx(lower_bound_s(everyone.subset(range(4)), job))


def test_a_bound_on_many_devices_stays_valid_with_coarser_levels(monkeypatch):
    topology, job = network("geometric", 8, 3), Job.from_bytes(4, 2, 1e8, 2e8)
    optimum = optimum_s(topology, job)
    monkeypatch.setattr("dtfm_lab.planning.cost.WORK", 1)
    monkeypatch.setattr("dtfm_lab.planning.cost.MAX_BUDGETS", 3)
    monkeypatch.setattr("dtfm_lab.planning.cost._lengths", lambda *_: [1, 3])
    assert 0 < bound_of_pairs(pair_costs(topology, job), job.n_stages, job.n_replicas) <= optimum
