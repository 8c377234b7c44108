"""Lower bounds against the optimum: no placement costs less."""

from itertools import islice

import numpy as np
import pytest
from bound_networks import KINDS as DRAWN_KINDS
from bound_networks import drawn_case, optimum, reference
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_networks import KINDS, network, optimum_s, renumbered

from dtfm_lab.domain.job import JOBS, Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.files import load_topology
from dtfm_lab.planning import lower_bound_s
from dtfm_lab.planning.bounds import bound_search
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


@pytest.mark.parametrize("kind", DRAWN_KINDS)
def test_the_bound_lies_below_the_optimum_and_near_it(kind):
    cases = [drawn_case(i) for i in range(DRAWN_KINDS.index(kind), 12 * len(DRAWN_KINDS), len(DRAWN_KINDS))]
    ratios = []
    for _, topology, job in cases:
        best_s = optimum(pair_costs(topology, job), job.n_stages, job.n_replicas)[1]
        ratios.append(lower_bound_s(topology, job) / best_s)
    assert max(ratios) <= 1 + 1e-9
    assert np.median(ratios) >= 0.8


@given(st.integers(0, 10**6), st.sampled_from([1 + 1e-9, 1.05, 1.5]))
@settings(max_examples=18, deadline=None, derandomize=True)
def test_a_bound_that_rises_never_passes_the_optimum(i, loose):
    _, topology, job = drawn_case(i)
    pair, shape = pair_costs(topology, job), (job.n_stages, job.n_replicas)
    best_s = optimum(pair, *shape)[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bound_search, "candidate_groups", lambda *_: None)  # else all chains would be tried
        patch.setattr(bound_search, "EFFORTS", ((0.0, 0, 0.1), (0.05, 2, 0.05)))
        told = list(islice(bound_search.increasing_bounds(pair, *shape, best_s * loose), 60))
    assert told[0] == pytest.approx(bound_of_pairs(pair, *shape))
    assert told == sorted(told)
    assert told[-1] <= best_s * (1 + 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("thinlink48", 0.938), ("geometric64", 0.862), ("cities64", 0.835)])
def test_the_bound_of_irregular_networks_rises(name, least):
    topology, job, best_s = reference(name)
    pair = pair_costs(topology, job)
    told = islice(bound_search.increasing_bounds(pair, job.n_stages, job.n_replicas, best_s), 1000)
    assert next(told) < least * best_s
    assert least * best_s < next(bound_s for bound_s in told if bound_s > least * best_s) <= best_s


def test_the_placement_known_of_sixteen_devices_in_eight_cities_is_the_best():
    topology, job, best_s = reference("cities16")
    *_, last = bound_search.increasing_bounds(
        pair_costs(topology, job), job.n_stages, job.n_replicas, best_s * (1 + 1e-9)
    )
    assert last == pytest.approx(best_s, rel=1e-8)


def test_equal_arguments_give_equal_steps():
    topology, job, best_s = reference("thinlink48")
    pair = pair_costs(topology, job)
    one, other = (list(islice(bound_search.increasing_bounds(pair, 6, 8, best_s), 60)) for _ in range(2))
    assert one == other
