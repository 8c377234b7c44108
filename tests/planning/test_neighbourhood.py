"""Every move is priced as if the placement after it had been priced whole."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_networks import KINDS, network

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.topology import Topology
from dtfm_lab.planning.cost import pair_costs
from dtfm_lab.planning.neighbourhood import Neighbourhood
from dtfm_lab.planning.planners.variation import mutated, recombined
from dtfm_lab.planning.problem import Problem, canonical_order
from dtfm_lab.planning.starts import structured_rows

SHAPES = [(6, 2, 3), (6, 3, 2), (9, 3, 2), (5, 1, 4), (5, 4, 1), (2, 1, 1), (12, 4, 3)]
cases = (st.sampled_from(KINDS), st.sampled_from(SHAPES), st.integers(0, 10_000))


def problem_of(kind, shape, seed):
    n, n_stages, n_replicas = shape
    pair = pair_costs(network(kind, n, seed), Job.from_bytes(n_stages, n_replicas, 1e8, 2e8))
    return Problem(pair=pair, n_stages=n_stages, n_replicas=n_replicas, bound_s=0.0)


@pytest.mark.parametrize("window_work", [80_000, 40])
@given(*cases)
@settings(max_examples=30, deadline=None)
def test_a_move_changes_the_energy_by_what_it_says(window_work, kind, shape, seed):
    problem, rng = problem_of(kind, shape, seed), np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dtfm_lab.planning.neighbourhood.WINDOW_WORK", window_work)
        hood = Neighbourhood(problem)
        row = rng.permutation(problem.n_devices)
        moves = hood.moves(row, rng)
    for k in np.flatnonzero(np.isfinite(moves.change_s)):
        after = hood.apply(row, moves, int(k))
        assert sorted(after) == sorted(row)
        assert hood.energy(after) - hood.energy(row) == pytest.approx(moves.change_s[k], abs=1e-9)


@given(*cases)
@settings(max_examples=40, deadline=None)
def test_children_place_each_device_once_and_a_child_of_twins_is_the_twin(kind, shape, seed):
    problem, rng = problem_of(kind, shape, seed), np.random.default_rng(seed)
    mother, father = (rng.permutation(problem.n_devices) for _ in "mf")
    everyone = list(range(problem.n_devices))
    assert sorted(recombined(problem, mother, father, rng)) == everyone
    assert sorted(mutated(problem, mother, rng)) == everyone
    assert (recombined(problem, mother, mother, rng) == mother).all()


@given(*cases)
@settings(max_examples=30, deadline=None)
def test_repairing_a_placement_never_costs(kind, shape, seed):
    problem = problem_of(kind, shape, seed)
    hood, row = Neighbourhood(problem), np.random.default_rng(seed).permutation(problem.n_devices)
    repaired = hood.repaired(row)
    assert sorted(repaired) == sorted(row)
    assert problem.cost(hood.grid(repaired)) <= problem.cost(hood.grid(row)) + 1e-12


@given(*cases)
@settings(max_examples=30, deadline=None)
def test_structured_starts_are_placements_cheapest_first(kind, shape, seed):
    problem = problem_of(kind, shape, seed)
    rows, costs = structured_rows(problem, np.random.default_rng(seed))
    assert (np.sort(rows, axis=1) == np.arange(problem.n_devices)).all()
    assert (np.diff(costs) > 0).all()


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
