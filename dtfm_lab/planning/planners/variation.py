"""New placements from old ones: recombination and mutation of rows (all N devices, the bench last)."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.problem import Problem


def recombined(problem: Problem, mother: IntArray, father: IntArray, rng: np.random.Generator) -> IntArray:
    """The mother's row with about half of the devices moved to the group where the father has them.

    Groups have no names of their own, so the father's are first matched to the mother's by the devices
    that they share. A device whose group is full takes any free position.
    """
    of_mother, of_father = _groups(problem, mother), _groups(problem, father)
    n_groups = int(of_mother.max()) + 1
    shared = np.zeros((n_groups, n_groups))
    np.add.at(shared, (of_father, of_mother), 1.0)
    shared[problem.n_stages :, : problem.n_stages] = -problem.n_devices  # the bench stays the bench
    _, match = linear_sum_assignment(-shared)
    wish = np.where(rng.random(problem.n_devices) < 0.5, of_mother, match[of_father])
    child = np.where(wish[mother] == of_mother[mother], mother, -1)
    movers = rng.permutation(mother[child < 0])
    homeless = []
    for device in movers:
        free = np.flatnonzero(child[_span(problem, int(wish[device]))] < 0)
        if len(free):
            child[int(wish[device]) * problem.n_replicas + free[0]] = device
        else:
            homeless.append(device)
    child[child < 0] = homeless
    return child


def mutated(problem: Problem, row: IntArray, rng: np.random.Generator) -> IntArray:
    """A segment of stages reversed or moved, or the devices of a few positions shuffled."""
    row, n, s = row.copy(), problem.n_devices, problem.n_stages
    if s > 2 and rng.random() < 0.25:
        grid = row[: problem.n_tasklets].reshape(s, -1)
        first, last = np.sort(rng.choice(s + 1, 2, replace=False))
        segment, rest = grid[first:last], np.delete(grid, np.s_[first:last], axis=0)
        after = int(rng.integers(len(rest) + 1))
        grid[:] = np.concatenate([rest[:after], segment[:: rng.choice([-1, 1])], rest[after:]])
    else:
        some = rng.choice(n, size=min(n, int(rng.integers(2, max(3, n // 4 + 1)))), replace=False)
        row[some] = row[rng.permutation(some)]
    return row


def _groups(problem: Problem, row: IntArray) -> IntArray:
    """(N,) group of each device; the bench is group S."""
    groups = np.empty(len(row), dtype=np.int64)
    groups[row] = np.minimum(np.arange(len(row)) // problem.n_replicas, problem.n_stages)
    return groups


def _span(problem: Problem, group: int) -> slice:
    start = group * problem.n_replicas
    return slice(start, start + problem.n_replicas if group < problem.n_stages else None)
