"""Compiled loops agree with the plain ones, and keep their sums while they anneal; the shortest open path."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_networks import KINDS, problem_of

from dtfm_lab.planning.cost import EXACT_UP_TO, bottleneck_matching, coarsened_weights, path_cost, shortest_path
from dtfm_lab.planning.kernels import annealing, coarsened_graph, random_numbers
from dtfm_lab.planning.kernels.coarsened_graph import short_path
from dtfm_lab.planning.planners.evolutionary import Annealer

SHAPES = [(6, 2, 3), (6, 3, 2), (9, 3, 2), (5, 1, 4), (5, 4, 1), (2, 1, 1), (1, 1, 1), (12, 4, 3), (24, 5, 4)]
cases = (st.sampled_from(KINDS), st.sampled_from(SHAPES), st.integers(0, 10_000))


def costs_of(rng, n, steps):
    """(n, n) symmetric, with many equal entries where ``steps`` is small."""
    cost = rng.integers(0, steps, (n, n)).astype(float)
    return cost + cost.T


@given(st.integers(1, 12), st.sampled_from([3, 10**6]), st.integers(0, 10_000))
@settings(max_examples=25)
def test_the_compiled_matching_is_the_plain_one_and_gives_up_only_above_enough(d, steps, seed):
    rng = np.random.default_rng(seed)
    cost = costs_of(rng, 2 * d, steps)
    left, right = rng.permutation(2 * d).reshape(2, d)
    reals, row_of = np.empty((d + 2, d)), np.empty(d, dtype=np.int64)
    exact_s, _ = bottleneck_matching(cost[np.ix_(left, right)])
    assert coarsened_graph.bottleneck(cost, left, right, np.inf, reals, row_of) == exact_s
    assert sorted(row_of) == list(range(d))
    assert cost[left[row_of], right].max() == exact_s
    enough_s = float(rng.choice(cost.ravel()))
    answer_s = coarsened_graph.bottleneck(cost, left, right, enough_s, reals, row_of)
    assert answer_s == exact_s if exact_s <= enough_s else answer_s > enough_s


@given(st.integers(1, 9), st.integers(0, 10_000))
@settings(max_examples=20)
def test_the_compiled_path_is_the_shortest_and_improving_one_never_lengthens_it(n, seed):
    rng = np.random.default_rng(seed)
    weights = costs_of(rng, n, 1000)
    found, shortest_s = np.empty(n, dtype=np.int64), path_cost(weights, shortest_path(weights))
    assert coarsened_graph.shortest_path(weights, np.empty((1 << n, n)), found) == pytest.approx(shortest_s)
    assert path_cost(weights, found) == pytest.approx(shortest_s)
    walked = rng.permutation(n)
    before_s = path_cost(weights, walked)
    coarsened_graph.improve_path(weights, walked)
    assert sorted(walked) == list(range(n))
    assert shortest_s - 1e-9 <= path_cost(weights, walked) <= before_s + 1e-9


def test_improving_a_path_comes_to_an_end_whatever_the_scale_of_its_weights():
    rng = np.random.default_rng(0)
    for _ in range(500):
        n = int(rng.integers(15, 24))
        weights = np.triu(rng.choice([0.1, 0.2, 0.3, 0.4, 0.7], (n, n)) * 1e30, 1)
        weights += weights.T
        walked = rng.permutation(n)
        coarsened_graph.improve_path(weights, walked)
        assert sorted(walked) == list(range(n))


def test_random_numbers_are_uniform_and_repeat_with_their_seed():
    state, again = np.array([5], dtype=np.uint64), np.array([5], dtype=np.uint64)
    drawn = np.array([random_numbers.uniform(state) for _ in range(20_000)])
    assert (drawn == [random_numbers.uniform(again) for _ in range(20_000)]).all()
    assert 0 <= drawn.min() < 0.001 < 0.999 < drawn.max() < 1
    assert drawn.mean() == pytest.approx(0.5, abs=0.01)
    assert np.corrcoef(drawn[:-1], drawn[1:])[0, 1] == pytest.approx(0, abs=0.03)


@given(*cases)
@settings(max_examples=25)
def test_annealing_ends_with_a_placement_of_the_reported_cost(kind, shape, seed):
    problem, rng = problem_of(kind, shape, seed), np.random.default_rng(seed)
    start = rng.permutation(problem.n_devices)
    start_s = problem.cost(problem.grid(start))
    steps = list(Annealer(problem, rng).anneal(start, 0.05 * start_s + 1e-9, 1e-4 * start_s + 1e-12, 120_000.0))
    assert len(steps) == 2
    for row, cost_s, moves in steps:
        assert sorted(row) == list(range(problem.n_devices))
        assert problem.cost(problem.grid(row)) == pytest.approx(cost_s)
        assert moves > 0
    assert steps[1][1] <= steps[0][1] <= start_s + 1e-9


@given(*cases)
@settings(max_examples=25)
def test_after_annealing_all_sums_of_the_placement_are_up_to_date(kind, shape, seed):
    problem, rng = problem_of(kind, shape, seed), np.random.default_rng(seed)
    s, d, pair = problem.n_stages, problem.n_replicas, problem.pair
    alone = np.zeros((problem.n_devices, 1), dtype=np.int64)
    start = rng.permutation(problem.n_devices)
    state = annealing.annealing_state(pair.group_s, pair.hop_s, problem.classes, alone, s, d)
    state.row[:] = start
    annealing.anneal_groups(state, 0.5, 0.01, 3000, random_numbers.seeded(rng), np.empty_like(start))
    assert (state.row[state.place] == np.arange(problem.n_devices)).all()
    kept = state.sums_s.copy(), state.slowest_s.copy()
    annealing.recompute_groups(state)
    assert kept[0] == pytest.approx(state.sums_s)
    assert kept[1] == pytest.approx(state.slowest_s)
    weights = coarsened_weights(state.row[: s * d].reshape(s, d), pair.hop_s)
    assert state.worst_s[: s - 1] == pytest.approx(np.diag(weights, 1))


def symmetric(n, seed):
    weights = np.random.default_rng(seed).random((n, n))
    return np.triu(weights, 1) + np.triu(weights, 1).T


@given(st.integers(1, 7), st.integers(0, 10_000))
@settings(max_examples=25)
def test_short_paths_are_the_shortest_of_all(n, seed):
    weights = symmetric(n, seed)
    order = shortest_path(weights)
    assert sorted(order) == list(range(n))
    assert order[0] <= order[-1]
    best = min(path_cost(weights, np.array(p)) for p in itertools.permutations(range(n)))
    assert path_cost(weights, order) == pytest.approx(best)


def test_a_long_path_along_a_line_is_found():
    n = EXACT_UP_TO + 6
    at = np.random.default_rng(0).permutation(n)
    order = shortest_path(np.abs(at[:, None] - at).astype(float))
    assert list(at[order]) in (list(range(n)), list(range(n))[::-1])


@given(st.integers(2, 10), st.integers(0, 10_000))
def test_the_heuristic_is_a_path_and_never_beats_the_exact_one(n, seed):
    weights = symmetric(n, seed)
    order, tour = (np.zeros(n, dtype=np.int64) for _ in range(2))
    assert short_path(weights, tour, order) == pytest.approx(path_cost(weights, order))
    assert sorted(order) == list(range(n))
    assert path_cost(weights, order) >= path_cost(weights, shortest_path(weights)) - 1e-12
