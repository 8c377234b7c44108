"""The placements that the default planner shows: its population, those not annealed yet, and the newest others."""

import math
from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.problem import SHOWN, Population, Problem
from dtfm_lab.planning.problem import Individual as ShownIndividual

WORDS = {
    "chance": "a random placement",
    "structure": "made from clusters of the network",
    "start": "the plan that the search begins with",
    "recombination": "a part of the network as in the second parent, the rest as in the first",
    "reheating": "the same as its parent",
}
RULE = (
    "Placements are annealed one by one. A child replaces its worse parent if it costs no more. Also shown: placements "
    "that are not annealed yet, and the newest that did not survive."
)


@dataclass(frozen=True, eq=False)
class PopulationMember:
    """One placement of a population."""

    row: IntArray
    """(N,) index of the device at each position. Stage s, replica r is at position s x D + r; idle devices follow."""
    cost_s: float
    birth_number: int = -1
    """Position in the order of annealing, from 0; -1 if not annealed."""
    operator: str = ""
    parents: tuple["PopulationMember", ...] = ()
    """The parents, without their own parents."""

    @property
    def as_parent(self) -> "PopulationMember":
        return replace(self, parents=())


class ShownPopulation:
    """Collects the individuals to show. It does no work until ``held`` is called. ``population`` is the planner's own
    list, not a copy."""

    def __init__(self, problem: Problem, population: list[PopulationMember]) -> None:
        self._problem, self._population = problem, population
        self._rows: list[IntArray] = []
        """Placements from which annealing will begin. Their indices are their numbers."""
        self._waiting: dict[int, PopulationMember] = {}
        """The placements of ``_rows`` that have not been annealed yet, by number."""
        self._newest: deque[PopulationMember] = deque(maxlen=SHOWN)

    def wait(self, operator: str, row: IntArray, one: PopulationMember | None = None) -> None:
        """Show a placement until it has been annealed, or until the first offspring after the initial population. Pass
        ``one`` if the placement is already priced."""
        self._waiting[len(self._rows)] = replace(one or PopulationMember(row, math.nan), operator=operator)
        self._rows.append(row)

    def add(self, begun: IntArray, one: PopulationMember, *, is_initial: bool) -> None:
        """Show an individual that was annealed from the row ``begun``, whether or not it survived. ``is_initial`` says
        that it belongs to the initial population."""
        self._newest.append(one)
        for number in list(self._waiting):
            if not is_initial or np.array_equal(self._rows[number], begun):
                del self._waiting[number]

    def held(self, best: PopulationMember) -> Population:
        """Return up to ``SHOWN`` placements, the cheapest first: the best so far, the population, the placements that
        wait to be annealed and, if there is room, the newest others."""
        for number, one in self._waiting.items():
            if math.isnan(one.cost_s):
                cost_s = self._problem.cost(self._problem.grid(one.row))
                self._waiting[number] = replace(one, cost_s=cost_s)
        annealed = [one for one in (best, *self._population, *reversed(self._newest)) if one.birth_number >= 0]
        by_birth = {one.birth_number: one for one in reversed(annealed)}  # the best may still be in annealing
        distinct = [by_birth[number] for number in dict.fromkeys(one.birth_number for one in annealed)]
        n_held = len(self._population)
        shown = [self._shown(len(self._rows) + one.birth_number, one) for one in distinct]
        waiting = [self._shown(number, one) for number, one in self._waiting.items()]
        individuals = sorted((shown[: n_held + 1] + waiting + shown[n_held + 1 :])[:SHOWN], key=lambda one: one.cost_s)
        return Population(individuals=tuple(individuals), rule=RULE)

    def _shown(self, number: int, one: PopulationMember) -> ShownIndividual:
        n_known = len(self._rows)
        return ShownIndividual(
            number=number,
            grid=self._problem.grid(one.row),
            cost_s=one.cost_s,
            operator=one.operator,
            words=f"{WORDS[one.operator]}, {'annealed' if one.birth_number >= 0 else 'not annealed'}",
            parents=tuple(self._shown(n_known + parent.birth_number, parent) for parent in one.parents),
        )
