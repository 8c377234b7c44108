"""What a search holds at one moment, as far as it is shown: some placements, each with how it came about.

A search does not make a population unless it is asked, see ``Generation.held``: it would take time at every step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.units import IntArray

SHOWN = 20
"""Most individuals of a population."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Individual:
    """One placement of a population, and how it came about."""

    number: int
    """The same for the same placement over the whole search, and no other's."""
    grid: IntArray = field(repr=False)
    """(S, D) device indices of the topology; a planner's own are those of its problem."""
    cost_s: float
    """By the objective, in its unit: seconds, or dollars for a billion tokens."""
    operator: str
    """What made it, such as ``chance``, ``recombination`` or the name of a mutation."""
    words: str
    """What was done, or to what."""
    generation: int = 0
    """The generation that it was born in; 0 where the search does not count them."""
    parents: tuple["Individual", ...] = ()
    """One or two, without their own parents. The first is the one that was changed."""
    is_estimate: bool = False
    """Whether its cost is an estimate so far."""
    chosen: Callable[[], Job] | None = field(default=None, repr=False)
    """The job with all that the search chose for it; None where it chose nothing but devices."""

    @property
    def gain_s(self) -> float:
        """Seconds less than its better parent; negative where it is dearer, 0 without parents."""
        return min(parent.cost_s for parent in self.parents) - self.cost_s if self.parents else 0.0

    @property
    def childless(self) -> "Individual":
        """The same as a parent: without its own parents, so that no search keeps all that it ever held."""
        return replace(self, parents=()) if self.parents else self

    def changed(self, of_grid: Callable[[IntArray], IntArray], factor: float = 1.0) -> "Individual":
        """With other numbers of devices, and another unit of its cost; its parents likewise."""
        parents = tuple(parent.changed(of_grid, factor) for parent in self.parents)
        return replace(self, grid=of_grid(self.grid), cost_s=self.cost_s * factor, parents=parents)


@dataclass(frozen=True, eq=False, kw_only=True)
class Population:
    """The placements that a search holds at one moment, or some of them."""

    individuals: tuple[Individual, ...]
    """At most ``SHOWN``, the cheapest first; but the best that is priced exactly comes before mere estimates."""
    rule: str
    """Who is in it, in a sentence."""

    def changed(self, of_grid: Callable[[IntArray], IntArray] = np.asarray, factor: float = 1.0) -> "Population":
        """With other numbers of devices, and another unit of the costs."""
        return replace(self, individuals=tuple(one.changed(of_grid, factor) for one in self.individuals))


@dataclass(frozen=True, eq=False, kw_only=True)
class PopulationFrame:
    """A population as it is drawn, and how far the search was."""

    generation: int
    individuals: tuple[Individual, ...]
    """The cheapest first."""
    best: Individual
    """The cheapest so far."""
    median_s: float
    """Median of the individuals' costs."""
    evaluations: int
    """Placements priced so far."""
    rule: str
    """Who is in the population, in a sentence."""
    made_by: Mapping[str, int] = field(default_factory=dict)
    """Number of the individuals by operator; empty where that tells nothing."""
    diversity: float | None = None
    """Share of the devices that are in different stages in two individuals, over all pairs; None where not known."""


def spread(n: int) -> Sequence[int]:
    """``SHOWN`` of n places, the first and the last among them, or all where there are no more."""
    return range(n) if n <= SHOWN else np.linspace(0, n - 1, SHOWN).round().astype(int).tolist()
