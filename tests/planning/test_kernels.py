"""The compiled loops do what the plain ones say, and keep their books in order while they walk."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_networks import KINDS, problem_of

from dtfm_lab.planning.cost import bottleneck_matching, coarsened_weights
from dtfm_lab.planning.kernels import board as boards
from dtfm_lab.planning.kernels import draw, grids, groups, matching, order
from dtfm_lab.planning.path import path_cost, shortest_path
from dtfm_lab.planning.planners.annealing import Annealer, Terrain

SHAPES = [(6, 2, 3), (6, 3, 2), (9, 3, 2), (5, 1, 4), (5, 4, 1), (2, 1, 1), (1, 1, 1), (12, 4, 3), (24, 5, 4)]
cases = (st.sampled_from(KINDS), st.sampled_from(SHAPES), st.integers(0, 10_000))


def costs_of(rng, n, steps):
    """(n, n) symmetric, with many equal entries where ``steps`` is small."""
    cost = rng.integers(0, steps, (n, n)).astype(float)
    return cost + cost.T


@given(st.integers(1, 12), st.sampled_from([3, 10**6]), st.integers(0, 10_000))
@settings(max_examples=100, deadline=None)
def test_the_compiled_matching_is_the_plain_one_and_gives_up_only_above_enough(d, steps, seed):
    rng = np.random.default_rng(seed)
    cost = costs_of(rng, 2 * d, steps)
    left, right = rng.permutation(2 * d).reshape(2, d)
    reals, row_of = np.empty((d + 2, d)), np.empty(d, dtype=np.int64)
    exact_s, _ = bottleneck_matching(cost[np.ix_(left, right)])
    assert matching.bottleneck(cost, left, right, np.inf, reals, row_of) == exact_s
    assert sorted(row_of) == list(range(d))
    assert cost[left[row_of], right].max() == exact_s
    enough_s = float(rng.choice(cost.ravel()))
    answer_s = matching.bottleneck(cost, left, right, enough_s, reals, row_of)
    assert answer_s == exact_s if exact_s <= enough_s else answer_s > enough_s


@given(st.integers(1, 9), st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_the_compiled_path_is_the_shortest_and_improving_one_never_lengthens_it(n, seed):
    rng = np.random.default_rng(seed)
    weights = costs_of(rng, n, 1000)
    found, shortest_s = np.empty(n, dtype=np.int64), path_cost(weights, shortest_path(weights))
    assert order.shortest(weights, np.empty((1 << n, n)), found) == pytest.approx(shortest_s)
    assert path_cost(weights, found) == pytest.approx(shortest_s)
    walked = rng.permutation(n)
    before_s = path_cost(weights, walked)
    order.improve(weights, walked)
    assert sorted(walked) == list(range(n))
    assert shortest_s - 1e-9 <= path_cost(weights, walked) <= before_s + 1e-9


def test_improving_a_path_comes_to_an_end_whatever_the_scale_of_its_weights():
    rng = np.random.default_rng(0)
    for _ in range(500):
        n = int(rng.integers(15, 24))
        weights = np.triu(rng.choice([0.1, 0.2, 0.3, 0.4, 0.7], (n, n)) * 1e30, 1)
        weights += weights.T
        walked = rng.permutation(n)
        order.improve(weights, walked)
        assert sorted(walked) == list(range(n))


def test_the_stream_of_chance_is_uniform_and_repeats_with_its_seed():
    state, again = np.array([5], dtype=np.uint64), np.array([5], dtype=np.uint64)
    drawn = np.array([draw.uniform(state) for _ in range(20_000)])
    assert (drawn == [draw.uniform(again) for _ in range(20_000)]).all()
    assert 0 <= drawn.min() < 0.001 < 0.999 < drawn.max() < 1
    assert drawn.mean() == pytest.approx(0.5, abs=0.01)
    assert np.corrcoef(drawn[:-1], drawn[1:])[0, 1] == pytest.approx(0, abs=0.03)


@pytest.mark.parametrize("terrain", Terrain)
@given(*cases)
@settings(max_examples=40, deadline=None)
def test_a_walk_ends_on_a_placement_that_costs_what_it_says(terrain, kind, shape, seed):
    problem, rng = problem_of(kind, shape, seed), np.random.default_rng(seed)
    start = rng.permutation(problem.n_devices)
    start_s = problem.cost(start[: problem.n_tasklets].reshape(problem.n_stages, -1))
    steps = list(Annealer(problem, rng).walk(terrain, start, 0.05 * start_s + 1e-9, 1e-4 * start_s + 1e-12, 120_000.0))
    assert len(steps) == 2
    for row, cost_s, moves in steps:
        assert sorted(row) == list(range(problem.n_devices))
        assert problem.cost(row[: problem.n_tasklets].reshape(problem.n_stages, -1)) == pytest.approx(cost_s)
        assert moves > 0
    assert steps[1][1] <= steps[0][1] <= start_s + 1e-9


@pytest.mark.parametrize("terrain", Terrain)
@given(*cases)
@settings(max_examples=40, deadline=None)
def test_after_a_walk_all_that_is_kept_of_the_placement_is_true(terrain, kind, shape, seed):
    problem, rng = problem_of(kind, shape, seed), np.random.default_rng(seed)
    s, d, pair = problem.n_stages, problem.n_replicas, problem.pair
    alone = np.zeros((problem.n_devices, 1), dtype=np.int64)
    start = rng.permutation(problem.n_devices)
    board = boards.board(pair.group_s, pair.hop_s, problem.classes, alone, s, d, start)
    walk = (board, 0.5, 0.01)
    if terrain is Terrain.GRID:
        grids.anneal_grid(*walk, 1.0, 0.5, 3000, draw.seeded(rng), np.empty_like(start))
    else:
        groups.anneal_groups(*walk, 3000, draw.seeded(rng), np.empty_like(start))
    assert (board.row[board.place] == np.arange(problem.n_devices)).all()
    kept = board.sums_s.copy(), board.slowest_s.copy(), board.links_s.copy(), board.worst_s.copy()
    boards.settle_groups(board)
    boards.settle_links(board)
    assert kept[0] == pytest.approx(board.sums_s)
    assert kept[1] == pytest.approx(board.slowest_s)
    if terrain is Terrain.GRID:
        assert kept[2] == pytest.approx(board.links_s)
        assert kept[3] == pytest.approx(board.worst_s)
    else:
        weights = coarsened_weights(board.row[: s * d].reshape(s, d), pair.hop_s)
        assert kept[3][: s - 1] == pytest.approx(np.diag(weights, 1))


def test_the_same_seed_walks_the_same_way():
    problem = problem_of("geometric", (24, 5, 4), 3)
    for terrain in Terrain:
        first, again = (
            list(Annealer(problem, np.random.default_rng(1)).walk(terrain, np.arange(24), 1.0, 0.01, 60_000.0))
            for _ in range(2)
        )
        assert all((a[0] == b[0]).all() and a[1:] == b[1:] for a, b in zip(first, again, strict=True))
