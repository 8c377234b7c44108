"""Placements that live side by side: what every planner with a population shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dtfm_lab.domain.units import IntArray


@dataclass(frozen=True, eq=False)
class Individual:
    """One placement of a population."""

    row: IntArray
    """(N,) all devices: position stage x D + replica for the first S x D, the bench after them"""
    cost_s: float
    born: int = 0
    """birth number"""


def diversity(population: Sequence[Individual], n_stages: int, n_replicas: int) -> float:
    """How unlike the best the others group their devices, 0 (all alike) to 1.

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


def median_s(population: Sequence[Individual]) -> float:
    """Seconds."""
    return float(np.median([one.cost_s for one in population]))


def cost_of(individual: Individual) -> float:
    return individual.cost_s
