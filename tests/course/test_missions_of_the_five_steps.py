"""Missions about the five steps: what wins them, and what does not."""

from itertools import pairwise

import numpy as np
from mission_cases import READERS, assert_not_won, assert_won_by_its_answer, worked_answer
from scipy.optimize import linear_sum_assignment

from dtfm_lab.course import missions


def test_pair_by_hand():
    assert_won_by_its_answer("pair-by-hand")
    given = missions["pair-by-hand"].given(READERS[0])
    least_sum = [given.columns[column] for column in linear_sum_assignment(np.array(given.seconds))[1]]
    assert_not_won("pair-by-hand", least_sum, because="least sum")
    right = worked_answer("pair-by-hand")
    assert_not_won("pair-by-hand", right[::-1], because="faster slowest pair")
    assert_not_won("pair-by-hand", [right[0]] * 4, [0, 1, 2, 3], [[1], None], because="once")


def test_own_matching():
    assert_won_by_its_answer("own-matching")

    def least_sum(table):
        return linear_sum_assignment(table)[1]

    def fastest_first(table):
        columns, left = [None] * len(table), table.copy()
        for _ in table:
            row, column = np.unravel_index(left.argmin(), left.shape)
            columns[row], left[row, :], left[:, column] = column, np.inf, np.inf
        return columns

    assert_not_won("own-matching", least_sum, because="least sum")
    assert_not_won("own-matching", fastest_first, because="fastest pair first")
    assert_not_won("own-matching", lambda table: table.argmin(axis=1), lambda table: 7.0, because="once")
    assert_not_won("own-matching", lambda table: list(range(len(table))), lambda: 0)


def test_order_of_stages():
    assert_won_by_its_answer("order-of-stages")
    right = worked_answer("order-of-stages")
    assert missions["order-of-stages"].verdict(right[::-1], READERS[0]), "backwards is the same path"
    weights = missions["order-of-stages"].given(READERS[0]).weights
    nearest = [0]
    while len(nearest) < 6:
        nearest.append(min(set(range(6)) - set(nearest), key=lambda node: weights[nearest[-1]][node]))
    assert_not_won("order-of-stages", ["ABCDEF"[node] for node in nearest], because="nearest")
    dearest = max((["ABCDEF"[(i + k) % 6] for i in range(6)] for k in range(6)), key=lambda order: path(weights, order))
    assert_not_won("order-of-stages", dearest, because="cheaper")
    assert_not_won("order-of-stages", right[:5], [*right[:5], right[0]], because="once")


def path(weights, order):
    return sum(weights["ABCDEF".index(a)]["ABCDEF".index(b)] for a, b in pairwise(order))
