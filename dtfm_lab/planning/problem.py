"""What a planner is given and what it hands out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from dtfm_lab.domain.registry import Registry
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.background_tasks import Errands
from dtfm_lab.planning.cost import (
    PairCosts,
    align,
    coarsened_weights,
    group_costs,
    hop_costs,
)
from dtfm_lab.planning.path import path_cost, shortest_path

REORDER_UP_TO = 48
"""stages; with more, all the matchings that a new order needs take longer than they save"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """S stages of D replicas on N devices that are known by their pair costs only."""

    pair: PairCosts
    n_stages: int
    n_replicas: int
    bound_s: float
    """no placement costs less"""
    start: IntArray | None = None
    """(S, D) a placement to begin with"""
    errands: Errands = field(default_factory=Errands)
    """where threads of a planner's own are started, so that their CPU time counts as the search's"""

    @property
    def n_devices(self) -> int:
        return len(self.pair.hop_s)

    @property
    def n_tasklets(self) -> int:
        return self.n_stages * self.n_replicas

    def cost(self, grid: IntArray) -> float:
        """Seconds of one (S, D) grid, as its columns pair."""
        group_s, hop_s = group_costs(grid, self.pair.group_s), hop_costs(grid, self.pair.hop_s)
        return float(group_s.max()) + float(hop_s.sum())

    def repaired(self, grid: IntArray) -> IntArray:
        """The same groups, best paired; in the best order too where that is another and cheaper."""
        as_is = np.arange(self.n_stages)
        if self.n_stages > REORDER_UP_TO:
            return align(grid, as_is, self.pair.hop_s)
        weights = coarsened_weights(grid, self.pair.hop_s)
        order = shortest_path(weights)
        shorter = path_cost(weights, order) < path_cost(weights, as_is) - 1e-12
        return align(grid, order if shorter else as_is, self.pair.hop_s)

    @cached_property
    def classes(self) -> IntArray:
        """(N,) devices of one class are interchangeable: swapping two of them changes no cost."""
        return interchangeable(self.pair, sight(self.pair))


def sight(pair: PairCosts) -> IntArray:
    """(N,) rank of each device by the costs it sees, sorted: equal where two devices see the same."""
    seen = np.hstack([np.sort(pair.hop_s, axis=1), np.sort(pair.group_s, axis=1)])
    return np.unique(seen, axis=0, return_inverse=True)[1].ravel()


def interchangeable(pair: PairCosts, sights: IntArray) -> IntArray:
    """(N,) class of each device, the index of its first: every third device is as far from i as from j."""
    classes = np.arange(len(sights))
    for value in np.flatnonzero(np.bincount(sights) > 1):
        left = np.flatnonzero(sights == value)
        while len(left):
            alike = np.ones(len(left), dtype=bool)
            for matrix in (pair.hop_s, pair.group_s):
                same = matrix[left] == matrix[left[0]]
                same[:, left[0]] = True
                same[np.arange(len(left)), left] = True
                alike &= same.all(axis=1)
            classes[left[alike]] = left[0]
            left = left[~alike]
    return classes


def canonical_order(pair: PairCosts) -> IntArray:
    """(N,) devices sorted by what they see of the network, a class together: numbering plays no part.

    Classes that see the same costs stay in the order of their first devices.
    """
    sights = sight(pair)
    return np.lexsort((interchangeable(pair, sights), sights))


@dataclass(frozen=True, eq=False)
class Generation:
    """One step of a planner."""

    best: IntArray
    """(S, D) best placement so far"""
    best_s: float
    evaluations: int
    """placements priced so far, neighbours of a placement included"""
    median_s: float | None = None
    """of the living population, where there is one"""
    diversity: float | None = None
    """of the living population: see ``population.diversity``"""
    operator: str = ""
    """what made the newest individual, such as chance, structure, recombination, mutation"""
    parents: tuple[int, ...] = ()
    """birth numbers of the newest individual's parents: the founders are 0, 1, 2, ... in order"""
    waited_s: float = 0.0
    """so far for kernels to be compiled, which no budget counts"""
    bound_s: float | None = None
    """a lower bound that the planner has proved itself; the larger of it and the problem's holds"""
    whole: bool = True
    """False for a first look while the population is still being founded; not counted as a step"""


class Planner(Protocol):
    """An endless generator of generations; the caller decides when to stop.

    All chance comes from ``rng``, nothing depends on the clock, and a generation is short (tens of
    milliseconds), so that a search can be watched and stopped.
    """

    def __call__(self, problem: Problem, rng: np.random.Generator) -> Iterator[Generation]: ...


planners: Registry[Planner] = Registry("planner", group="dtfm_lab.planners")
