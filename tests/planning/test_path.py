"""The shortest open path: exact where it says so, sound beyond."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtfm_lab.planning.path import EXACT_UP_TO, _heuristic, path_cost, shortest_path


def symmetric(n, seed):
    weights = np.random.default_rng(seed).random((n, n))
    return np.triu(weights, 1) + np.triu(weights, 1).T


@given(st.integers(1, 7), st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
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
@settings(max_examples=30, deadline=None)
def test_the_heuristic_is_a_path_and_never_beats_the_exact_one(n, seed):
    weights = symmetric(n, seed)
    order = _heuristic(weights)
    assert sorted(order) == list(range(n))
    assert path_cost(weights, order) >= path_cost(weights, shortest_path(weights)) - 1e-12
