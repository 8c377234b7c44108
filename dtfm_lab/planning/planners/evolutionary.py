"""The paper's idea, an evolutionary search with a local search inside, on modern parts.

What differs from DT-FM section 3.4: the population starts from clusters instead of chance alone; parents'
groups are matched before they mix; the local search prices all swaps exactly instead of a gain on the
fastest links; devices may stay on a bench.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.neighbourhood import Neighbourhood
from dtfm_lab.planning.planners.variation import mutated, recombined
from dtfm_lab.planning.problem import Generation, Planner, Problem, planners
from dtfm_lab.planning.starts import structured_rows
from dtfm_lab.planning.walk import walk

STRUCTURED, CHANCE = 6, 4
"""founders of the population"""
IMMIGRANTS = 0.1
"""share of children without parents"""
SCANS = 60
"""moves of one local search, each the choice among all neighbours"""
HOT = (0.002, 0.01)
"""range of starting temperatures, as shares of the best cost"""


@dataclass(frozen=True, eq=False)
class _Individual:
    row: IntArray
    """(N,) all devices, the bench last"""
    cost_s: float


@planners.register("evolutionary")
def evolutionary(problem: Problem, rng: np.random.Generator) -> Iterator[Generation]:
    """Clustered and random placements recombine, mutate and descend; a child takes its worse parent's place."""
    hood = Neighbourhood(problem)
    rows, _ = structured_rows(problem, rng)
    by_chance = [rng.permutation(problem.n_devices) for _ in range(CHANCE)]
    founders = [*rows[:STRUCTURED], *by_chance]
    evaluations = 0
    if problem.start is None:
        for best in _best_so_far(hood, by_chance):
            evaluations += 1
            yield Generation(hood.grid(best.row).copy(), best.cost_s, evaluations, whole=False)
    evaluations += len(rows)
    if problem.start is not None:
        idle = np.setdiff1d(np.arange(problem.n_devices), problem.start)
        founders.insert(0, np.concatenate([problem.start.ravel(), idle]))
    population = [_individual(hood, row) for row in founders[: 1 + (problem.start is not None)]]
    best = min(population, key=_cost)
    grown = 0
    while True:
        median_s = float(np.median([one.cost_s for one in population]))
        yield Generation(hood.grid(best.row).copy(), best.cost_s, evaluations, median_s)
        if grown < len(founders):  # every founder descends once before the first child
            parents, row = [grown] if grown < len(population) else [], founders[grown]
            grown += 1
        else:
            parents, row = _child(problem, population, rng)
        hot = float(np.exp(rng.uniform(*np.log(HOT))))
        row, seen = walk(hood, row, best.cost_s, hot, SCANS, rng)
        child, evaluations = _individual(hood, row), evaluations + seen
        if not parents:
            population.append(child)
        elif child.cost_s <= population[worse := max(parents, key=lambda i: population[i].cost_s)].cost_s:
            population[worse] = child
        best = min(best, child, key=_cost)


def _child(problem: Problem, population: list[_Individual], rng: np.random.Generator) -> tuple[list[int], IntArray]:
    """Whom it may replace, and the row: of two parents, each the better of two drawn, of one, or of chance."""
    if rng.random() < IMMIGRANTS:
        return [int(rng.integers(len(population)))], rng.permutation(problem.n_devices)
    mother, father = (int(min(rng.integers(len(population), size=2), key=lambda i: population[i].cost_s)) for _ in "mf")
    if mother == father or rng.random() < 0.5:
        return [mother], mutated(problem, population[mother].row, rng)
    return [mother, father], recombined(problem, population[mother].row, population[father].row, rng)


def _best_so_far(hood: Neighbourhood, rows: list[IntArray]) -> Iterator[_Individual]:
    """After each row, the cheapest until then: where chance alone would get, which whoever watches sees first."""

    def cheaper(best: _Individual, one: _Individual) -> _Individual:
        return min(best, one, key=_cost)

    yield from accumulate((_individual(hood, row) for row in rows), cheaper)


def _individual(hood: Neighbourhood, row: IntArray) -> _Individual:
    row = hood.repaired(row)
    return _Individual(row, hood.problem.cost(hood.grid(row)))


def _cost(individual: _Individual) -> float:
    return individual.cost_s


_: Planner = evolutionary
