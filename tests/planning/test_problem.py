"""What planners build on: classes of devices, structured starts, repairs and recombination."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_networks import KINDS, problem_of

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning.cost import pair_costs
from dtfm_lab.planning.planners.initial_placements import Structure
from dtfm_lab.planning.planners.population import Individual, diversity
from dtfm_lab.planning.planners.variation import recombined
from dtfm_lab.planning.problem import Problem, canonical_order

SHAPES = [(6, 2, 3), (6, 3, 2), (9, 3, 2), (5, 1, 4), (5, 4, 1), (2, 1, 1), (12, 4, 3)]
cases = (st.sampled_from(KINDS), st.sampled_from(SHAPES), st.integers(0, 10_000))


def grid_of(problem, row):
    return row[: problem.n_tasklets].reshape(problem.n_stages, problem.n_replicas)


@given(*cases)
@settings(max_examples=40, deadline=None)
def test_children_place_each_device_once_and_a_child_of_twins_is_the_twin(kind, shape, seed):
    problem, rng = problem_of(kind, shape, seed), np.random.default_rng(seed)
    leaves = Structure(problem, rng).leaves
    mother, father = (rng.permutation(problem.n_devices) for _ in "mf")
    assert sorted(recombined(problem, mother, father, leaves, rng)) == list(range(problem.n_devices))
    assert (recombined(problem, mother, mother, leaves, rng) == mother).all()


@given(*cases)
@settings(max_examples=30, deadline=None)
def test_repairing_a_placement_never_costs(kind, shape, seed):
    problem = problem_of(kind, shape, seed)
    grid = grid_of(problem, np.random.default_rng(seed).permutation(problem.n_devices))
    repaired = problem.repaired(grid)
    assert sorted(repaired.ravel()) == sorted(grid.ravel())
    assert problem.cost(repaired) <= problem.cost(grid) + 1e-12


@given(*cases)
@settings(max_examples=30, deadline=None)
def test_structured_starts_are_placements_cheapest_first(kind, shape, seed):
    problem, rng = problem_of(kind, shape, seed), np.random.default_rng(seed)
    structure = Structure(problem, rng)
    rows, costs = structure.rows()
    assert (np.sort(rows, axis=1) == np.arange(problem.n_devices)).all()
    assert (np.diff(costs) > 0).all()
    assert sorted(structure.turned(rng)) == list(range(problem.n_devices))


def test_diversity_counts_the_pairs_that_the_best_groups_and_the_others_do_not():
    def individual(row, cost_s):
        return Individual(np.array(row), cost_s)

    best, twin = individual([0, 1, 2, 3], 1.0), individual([3, 2, 1, 0], 2.0)
    half, other = individual([0, 1, 2, 4, 3], 2.0), individual([0, 2, 1, 3], 3.0)
    assert diversity([best, twin], 2, 2) == 0.0
    assert diversity([best, other], 2, 2) == 1.0
    assert diversity([best, twin, other], 2, 2) == 0.5
    assert diversity([individual([0, 1, 2, 3, 4], 1.0), half], 2, 2) == 0.5
    assert diversity([best], 2, 2) == 0.0


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
