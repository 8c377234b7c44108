"""A new placement from two: recombination of rows (all N devices, the bench last)."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.problem import Problem

PART = (0.1, 0.5)
"""of the devices that come as the father has them, least and most"""


def recombined(
    problem: Problem, mother: IntArray, father: IntArray, leaves: IntArray, rng: np.random.Generator
) -> IntArray:
    """The mother's row, but the devices of one part of the network stand in the groups where the father has them.

    The part is a run of ``leaves`` (N,), an order in which near devices stand together, so that what the father
    does well there arrives whole. Groups have no names of their own: the father's are first matched to the mother's
    by the devices that they share. A device whose group is full takes any free position.
    """
    n = problem.n_devices
    of_mother, of_father = _groups(problem, mother), _groups(problem, father)
    n_groups = problem.n_stages + (n > problem.n_tasklets)
    shared = np.zeros((n_groups, n_groups))
    np.add.at(shared, (of_father, of_mother), 1.0)
    shared[problem.n_stages :, : problem.n_stages] = -n  # the bench stays the bench
    _, match = linear_sum_assignment(-shared)
    part = leaves[(rng.integers(n) + np.arange(max(1, int(n * rng.uniform(*PART))))) % n]
    wish = of_mother.copy()
    wish[part] = match[of_father[part]]
    child = np.where(wish[mother] == of_mother[mother], mother, -1)
    homeless = []
    for device in rng.permutation(mother[child < 0]):
        span = _span(problem, int(wish[device]))
        free = np.flatnonzero(child[span] < 0)
        if len(free):
            child[span.start + free[0]] = device
        else:
            homeless.append(device)
    child[child < 0] = homeless
    return child


def _groups(problem: Problem, row: IntArray) -> IntArray:
    """(N,) group of each device; the bench is group S."""
    groups = np.empty(len(row), dtype=np.int64)
    groups[row] = np.minimum(np.arange(len(row)) // problem.n_replicas, problem.n_stages)
    return groups


def _span(problem: Problem, group: int) -> slice:
    start = group * problem.n_replicas
    return slice(start, start + problem.n_replicas if group < problem.n_stages else None)
