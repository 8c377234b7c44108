"""The flagship: a population of placements, seeded by structure, recombined region by region, annealed.

The paper's idea (DT-FM section 3.4), an evolutionary search with a local search inside, on other parts: the
founders are clusters dealt out instead of chance alone; parents' groups are matched before they mix, and a child
takes one part of the network from its father; the local search is annealing, compiled; devices may stay on a bench.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.jit_warmup import until_compiled
from dtfm_lab.planning.planners.initial_placements import Structure
from dtfm_lab.planning.planners.population import Individual, cost_of, diversity, median_s
from dtfm_lab.planning.planners.variation import recombined
from dtfm_lab.planning.problem import Generation, Planner, Problem, planners

STRUCTURED, TURNED, CHANCE = 4, 4, 1
"""founders of the population"""
IMMIGRANTS, RECOMBINED = 0.15, 0.2
"""shares of children without parents, and of two; the rest are their one parent, reheated"""
ON_GRID = 0.25
"""share of children that are annealed on the grid first"""
WORK_US = 600.0
"""a device, of the first annealing with 8 replicas; with more a move costs more"""
LONGER = 1 / 3
"""of the first annealing, by which each child's is longer than the one before"""
MOLTEN, FRESH, REHEATED, MIXED = 0.025, (0.003, 0.01), (0.001, 0.012), (0.0008, 0.006)
"""first temperatures of chance, structure, one parent, two parents, as shares of the best cost at 8 stages"""
COLD = 1e-4
"""last temperature, likewise; with fewer stages the parts of a cost are fewer and larger, and all is hotter"""
POLISH_HOT, POLISH_WORK = 0.0015, 0.2
"""of the annealing on groups that follows one on the grid"""


class Seedling(NamedTuple):
    """A child before it is annealed."""

    operator: str
    parents: tuple[int, ...]
    """indices in the population"""
    row: IntArray
    hot: float
    """first temperature, as a share of the best cost at 8 stages"""


@planners.register("evolutionary")
def evolutionary(problem: Problem, rng: np.random.Generator) -> Iterator[Generation]:
    """Structured and random founders are annealed; their children too, and take a parent's place if no worse."""
    by_chance = [rng.permutation(problem.n_devices) for _ in range(CHANCE + 1)]
    evaluations, best = 0, None
    if problem.start is None:
        for row in by_chance:
            evaluations += 1
            best = min(filter(None, [best, _individual(problem, row)]), key=cost_of)
            yield Generation(_grid(problem, best.row), best.cost_s, evaluations, operator="chance", whole=False)
    structure = Structure(problem, rng)
    rows, _ = structure.rows()
    firsts = [rows[0]] if problem.start is None else [_started(problem, problem.start), rows[0]]
    evaluations += len(firsts)
    best = min(filter(None, [best, *(_individual(problem, row) for row in firsts)]), key=cost_of)
    operator = "structure" if problem.start is None else "start"
    priced = evaluations + structure.n_priced
    first = Generation(_grid(problem, best.row), best.cost_s, priced, best.cost_s, 0.0, operator)
    yield first
    yield from until_compiled(first, rehearse)
    garden = _Garden(problem, rng, structure)
    founders = garden.founders(rows[:STRUCTURED], by_chance[:CHANCE])
    population: list[Individual] = []
    n_founders = 0
    for born in count():
        founder = next(founders, None)
        n_founders += founder is not None
        child = founder or garden.child(population)
        grown = Individual(child.row, np.inf, born)
        for row, cost_s, moves in garden.grow(child, best.cost_s, born - n_founders):
            evaluations += moves
            grown = Individual(row, cost_s, born)
            best = min(best, grown, key=cost_of)
            priced = evaluations + structure.n_priced
            yield Generation(_grid(problem, best.row), best.cost_s, priced, operator=child.operator, whole=False)
        evaluations += 1
        grown = min(grown, _individual(problem, grown.row, born), key=cost_of)
        best = min(best, grown, key=cost_of)
        parents = tuple(population[i].born for i in child.parents)
        _survive(population, grown, child.parents, founder is not None)
        yield Generation(
            best=_grid(problem, best.row),
            best_s=best.cost_s,
            evaluations=evaluations + structure.n_priced,
            median_s=median_s(population),
            diversity=diversity(population, problem.n_stages, problem.n_replicas),
            operator=child.operator,
            parents=parents,
        )


def rehearse(problem: Problem) -> None:
    """Every kernel once, for ``warmth``."""
    from dtfm_lab.planning.planners.annealing import Annealer, Terrain

    annealer = Annealer(problem, np.random.default_rng(0))
    for terrain in Terrain:
        for _ in annealer.walk(terrain, np.arange(problem.n_devices), 1.0, 0.1, 1.0):
            pass


class _Garden:
    """Makes children and lets them grow."""

    def __init__(self, problem: Problem, rng: np.random.Generator, structure: Structure) -> None:
        from dtfm_lab.planning.planners.annealing import Annealer  # brings numba, which takes a while

        self._problem, self._rng, self._structure = problem, rng, structure
        self._annealer = Annealer(problem, rng)

    def founders(self, structured: IntArray, by_chance: list[IntArray]) -> Iterator[Seedling]:
        """The start where there is one, the best starts as they stand, some with branches turned, some by chance."""
        if self._problem.start is not None:
            yield Seedling("start", (), _started(self._problem, self._problem.start), MIXED[0])
        for row in structured:
            yield Seedling("structure", (), row, _between(self._rng, *FRESH))
        for _ in range(TURNED):
            yield Seedling("structure", (), self._structure.turned(self._rng), _between(self._rng, *FRESH))
        for row in by_chance:
            yield Seedling("chance", (), row, MOLTEN)

    def child(self, population: list[Individual]) -> Seedling:
        """Of nobody (chance or structure), of two parents, or of one; a parent is the better of two drawn."""
        rng, n = self._rng, self._problem.n_devices
        lot = rng.random()
        if lot < IMMIGRANTS / 2:
            return Seedling("chance", (), rng.permutation(n), MOLTEN)
        if lot < IMMIGRANTS:
            return Seedling("structure", (), self._structure.turned(rng), _between(rng, *FRESH))
        mother, father = (self._parent(population) for _ in "mf")
        if lot < IMMIGRANTS + RECOMBINED and mother != father:
            rows = population[mother].row, population[father].row
            row = recombined(self._problem, *rows, self._structure.leaves, rng)
            return Seedling("recombination", (mother, father), row, _between(rng, *MIXED))
        return Seedling("reheating", (mother,), population[mother].row, _between(rng, *REHEATED))

    def _parent(self, population: list[Individual]) -> int:
        return min(map(int, self._rng.integers(len(population), size=2)), key=lambda i: population[i].cost_s)

    def grow(self, child: Seedling, best_s: float, age: int) -> Iterator[tuple[IntArray, float, int]]:
        """The annealing of a child, slice by slice: its best row, the cost and the moves made."""
        from dtfm_lab.planning.planners.annealing import Terrain

        unit_s = best_s * 8 / max(self._problem.n_stages, 2)
        moves_cost = max(1.0, self._problem.n_replicas / 8)
        work_us = WORK_US * self._problem.n_devices * moves_cost * (1 + LONGER * age)
        if self._rng.random() >= ON_GRID:
            yield from self._annealer.walk(Terrain.GROUPS, child.row, child.hot * unit_s, COLD * unit_s, work_us)
            return
        share = _between(self._rng, 0.3, 1.5)
        row, cost_s = child.row, np.inf
        for row, cost_s, moves in self._annealer.walk(
            Terrain.GRID, child.row, child.hot * unit_s, COLD * unit_s, work_us, share
        ):
            yield row, cost_s, moves
        polish_us = POLISH_WORK * work_us
        for polished, polished_s, moves in self._annealer.walk(
            Terrain.GROUPS, row, POLISH_HOT * unit_s, COLD * unit_s, polish_us
        ):
            if polished_s < cost_s:
                row, cost_s = polished, polished_s
            yield row, cost_s, moves


def _survive(population: list[Individual], child: Individual, parents: tuple[int, ...], founder: bool) -> None:
    """A child takes the place of its worse parent, one without parents that of the worst, if it is no worse.

    One that costs what another costs is that other in all likelihood, and leaves.
    """
    if founder:
        population.append(child)
        return
    worse = max(parents or range(len(population)), key=lambda i: population[i].cost_s)
    twin = any(abs(child.cost_s - one.cost_s) <= 1e-9 * child.cost_s for one in population)
    if child.cost_s <= population[worse].cost_s and not twin:
        population[worse] = child


def _individual(problem: Problem, row: IntArray, born: int = 0) -> Individual:
    """Best paired and in the best order."""
    grid = problem.repaired(_grid(problem, row))
    return Individual(np.concatenate([grid.ravel(), row[problem.n_tasklets :]]), problem.cost(grid), born)


def _started(problem: Problem, start: IntArray) -> IntArray:
    """The row of a (S, D) placement."""
    return np.concatenate([start.ravel(), np.setdiff1d(np.arange(problem.n_devices), start)])


def _grid(problem: Problem, row: IntArray) -> IntArray:
    return row[: problem.n_tasklets].reshape(problem.n_stages, problem.n_replicas)


def _between(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


_: Planner = evolutionary
