"""The parts of planners: classes of devices, clustered placements, pairing and recombination."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_networks import KINDS, problem_of

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning.cost import pair_costs
from dtfm_lab.planning.planners.evolutionary import recombined
from dtfm_lab.planning.planners.initial_placements import ClusteredPlacements
from dtfm_lab.planning.problem import Problem, canonical_order, diversity

SHAPES = [(6, 2, 3), (6, 3, 2), (9, 3, 2), (5, 1, 4), (5, 4, 1), (2, 1, 1), (12, 4, 3)]
cases = (st.sampled_from(KINDS), st.sampled_from(SHAPES), st.integers(0, 10_000))


@given(*cases)
@settings(max_examples=25)
def test_offspring_place_each_device_once_and_that_of_equal_parents_equals_them(kind, shape, seed):
    problem, rng = problem_of(kind, shape, seed), np.random.default_rng(seed)
    leaf_order = ClusteredPlacements(problem, rng).leaf_order
    recipient, donor = (rng.permutation(problem.n_devices) for _ in range(2))
    assert sorted(recombined(problem, recipient, donor, leaf_order, rng)) == list(range(problem.n_devices))
    assert (recombined(problem, recipient, recipient, leaf_order, rng) == recipient).all()


@given(*cases)
def test_pairing_and_reordering_never_cost_more(kind, shape, seed):
    problem = problem_of(kind, shape, seed)
    grid = problem.grid(np.random.default_rng(seed).permutation(problem.n_devices))
    rematched = problem.rematched(grid)
    assert sorted(rematched.ravel()) == sorted(grid.ravel())
    assert problem.cost(rematched) <= problem.cost(grid) + 1e-12


@given(*cases)
def test_clustered_rows_are_placements_cheapest_first(kind, shape, seed):
    problem, rng = problem_of(kind, shape, seed), np.random.default_rng(seed)
    clustered = ClusteredPlacements(problem, rng)
    rows, costs = clustered.rows()
    assert (np.sort(rows, axis=1) == np.arange(problem.n_devices)).all()
    assert (np.diff(costs) > 0).all()
    assert sorted(clustered.flipped(rng)) == list(range(problem.n_devices))


def test_diversity_counts_the_pairs_that_the_best_groups_and_the_others_do_not():
    best, twin, other = [0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1]
    assert diversity(np.array([best, twin]), 0, 2, 2) == 0.0
    assert diversity(np.array([best, other]), 0, 2, 2) == 1.0
    assert diversity(np.array([twin, best, other]), 1, 2, 2) == 0.5
    assert diversity(np.array([[0, 0, 1, 1, 2], [0, 0, 1, 2, 1]]), 0, 2, 2) == 0.5
    assert diversity(np.array([best]), 0, 2, 2) == 0.0


def test_interchangeable_devices_share_a_class_and_stand_together():
    problem = problem_of("even", (6, 2, 3), 0)
    assert len(set(problem.classes)) == 1
    latency = np.full((6, 6), 10.0)
    for region in ([0, 2, 4], [1, 3, 5]):
        latency[np.ix_(region, region)] = 1.0
    regions = Problem(
        pair=pair_costs(Topology.from_matrices(latency, np.ones((6, 6))), Job.from_bytes(2, 3, 1, 1)),
        n_stages=2,
        n_replicas=3,
        bound_s=0.0,
    )
    assert [len(set(regions.classes[region])) for region in ([0, 2, 4], [1, 3, 5])] == [1, 1]
    assert len(set(regions.classes)) == 2
    assert sorted(canonical_order(regions.pair)[:3]) in ([0, 2, 4], [1, 3, 5])
