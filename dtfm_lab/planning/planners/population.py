"""The population of the evolutionary planner: individuals, their diversity and their recombination."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.problem import Problem

DONOR_SHARE = (0.1, 0.5)
"""Least and largest share of the devices that a recombination takes from the donor."""


@dataclass(frozen=True, eq=False)
class Individual:
    """One placement of a population."""

    row: IntArray
    """(N,) all devices: position stage x D + replica for the first S x D, then the idle ones."""
    cost_s: float
    birth_number: int = 0


def cost_of(individual: Individual) -> float:
    return individual.cost_s


def median_s(population: Sequence[Individual]) -> float:
    """Median cost in seconds."""
    return float(np.median([one.cost_s for one in population]))


def diversity(population: Sequence[Individual], n_stages: int, n_replicas: int) -> float:
    """How differently the others group their devices from the best, 0 (all alike) to 1.

    The mean, over the others, of the share of device pairs that share a group in the best and do not in the other.
    """
    best = min(population, key=cost_of)
    n_pairs = n_stages * n_replicas * (n_replicas - 1) // 2
    if len(population) < 2 or not n_pairs:
        return 0.0
    placed = best.row[: n_stages * n_replicas]
    own = np.repeat(np.arange(n_stages), n_replicas) * (n_stages + 1)
    apart = []
    for one in population:
        if one is not best:
            group = np.full(len(one.row), n_stages)
            group[one.row[: len(placed)]] = np.repeat(np.arange(n_stages), n_replicas)
            together = np.bincount(own + group[placed], minlength=n_stages * (n_stages + 1))
            together = together.reshape(n_stages, n_stages + 1)[:, :n_stages]
            apart.append(1.0 - (together * (together - 1)).sum() / (2 * n_pairs))
    return float(np.mean(apart))


def recombined(
    problem: Problem, recipient: IntArray, donor: IntArray, leaf_order: IntArray, rng: np.random.Generator
) -> IntArray:
    """(N,) the recipient's row, but the devices of one part of the network are grouped as in the donor's row.

    The part is a run of ``leaf_order``, (N,) devices with near ones side by side, so that the donor's grouping of a
    region is inherited as a unit. Groups have no names, so the donor's are first matched to the recipient's by the
    devices that they share. A device whose group is full takes any free position.
    """
    n = problem.n_devices
    recipient_groups, donor_groups = _groups(problem, recipient), _groups(problem, donor)
    n_groups = problem.n_stages + (n > problem.n_tasklets)
    shared = np.zeros((n_groups, n_groups))
    np.add.at(shared, (donor_groups, recipient_groups), 1.0)
    shared[problem.n_stages :, : problem.n_stages] = -n  # the idle devices are matched to the idle devices
    _, match = linear_sum_assignment(-shared)
    part = leaf_order[(rng.integers(n) + np.arange(max(1, int(n * rng.uniform(*DONOR_SHARE))))) % n]
    wanted = recipient_groups.copy()
    wanted[part] = match[donor_groups[part]]
    child = np.where(wanted[recipient] == recipient_groups[recipient], recipient, -1)
    unplaced = []
    for device in rng.permutation(recipient[child < 0]):
        group = int(wanted[device])
        start = group * problem.n_replicas
        end = start + problem.n_replicas if group < problem.n_stages else n
        free = np.flatnonzero(child[start:end] < 0)
        if len(free):
            child[start + free[0]] = device
        else:
            unplaced.append(device)
    child[child < 0] = unplaced
    return child


def _groups(problem: Problem, row: IntArray) -> IntArray:
    """(N,) group of each device; the idle ones are group S."""
    groups = np.empty(len(row), dtype=np.int64)
    groups[row] = np.minimum(np.arange(len(row)) // problem.n_replicas, problem.n_stages)
    return groups
