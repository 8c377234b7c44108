"""The interface of a planner: it gets a ``Problem`` and yields ``Generation``s. ``planning.planners`` has an example.

A ``Population`` has the placements that a search holds at one moment and shows, each with its origin. A search makes
one only on request (``Generation.held``), because it would take time at every step.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Protocol

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.registry import Registry
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.background_tasks import BackgroundTask, BackgroundTasks, start_once, while_compiling
from dtfm_lab.planning.cost import (
    PairCosts,
    align,
    coarsened_weights,
    interchangeable,
    path_cost,
    row_of,
    shortest_path,
    total_costs,
)

SHOWN = 20
"""Maximum number of individuals of a population that are shown."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Individual:
    """One placement of a population, and how it was made."""

    number: int
    """Identifies the placement during the whole search."""
    grid: IntArray = field(repr=False)
    """(S, D) device indices of the topology. A planner's own individuals use the indices of its problem."""
    cost_s: float
    """Value of the objective in its unit: seconds, or dollars per billion tokens."""
    operator: str
    """Name of the operator that made it, such as ``chance``, ``recombination`` or a mutation."""
    words: str
    """Words for what the operator did, such as which regions were exchanged."""
    generation: int = 0
    """The generation in which it was made; 0 if the search does not count them."""
    parents: tuple["Individual", ...] = ()
    """Up to two parents, stored without their own parents. The operator changed a copy of the first. Empty if it was
    made from scratch."""
    is_estimate: bool = False
    """True if its cost is only an estimate so far."""
    chosen: Callable[[], Job] | None = field(default=None, repr=False)
    """Returns the job with all that the search chose for it; None if the search chose only devices."""

    @property
    def childless(self) -> "Individual":
        """The same individual without its parents. Parents are stored like this, so that a search does not keep all
        ancestors in memory."""
        return replace(self, parents=()) if self.parents else self

    def changed(self, of_grid: Callable[[IntArray], IntArray], factor: float = 1.0) -> "Individual":
        """Return the individual with its grid translated by ``of_grid`` to other device indices, and its cost
        multiplied by ``factor``. Its parents change in the same way."""
        parents = tuple(parent.changed(of_grid, factor) for parent in self.parents)
        return replace(self, grid=of_grid(self.grid), cost_s=self.cost_s * factor, parents=parents)


@dataclass(frozen=True, eq=False, kw_only=True)
class Population:
    """The placements that a search holds at one moment, or some of them."""

    individuals: tuple[Individual, ...]
    """Up to ``SHOWN`` individuals, cheapest first. Exception: the best one with an exact price comes before any
    estimate."""
    rule: str
    """A sentence for the user that says which placements are shown."""

    def changed(self, of_grid: Callable[[IntArray], IntArray] = np.asarray, factor: float = 1.0) -> "Population":
        """Return the population with the grids of all individuals translated by ``of_grid`` to other device indices,
        and their costs multiplied by ``factor``."""
        return replace(self, individuals=tuple(one.changed(of_grid, factor) for one in self.individuals))


@dataclass(frozen=True, eq=False, kw_only=True)
class PopulationFrame:
    """A population as it is displayed at one step of a search."""

    generation: int
    individuals: tuple[Individual, ...]
    """Individuals, the cheapest first."""
    best: Individual
    """The cheapest individual that the search has found so far."""
    median_s: float
    """Median of the individuals' costs."""
    evaluations: int
    """Number of placements priced so far."""
    rule: str
    """A sentence for the user that says which placements are shown."""
    has_generations: bool = True
    """False if the placements are not a population: the best plans so far, or one plan."""
    made_by: Mapping[str, int] = field(default_factory=dict)
    """Number of individuals by the operator that made them; empty if the search does not count them."""
    diversity: float | None = None
    """Fraction of devices that are in different stages in two individuals, averaged over all pairs; None if unknown."""


def spread(n: int) -> Sequence[int]:
    """Return up to ``SHOWN`` of the numbers 0 to n - 1, evenly spaced and including both ends."""
    return range(n) if n <= SHOWN else np.linspace(0, n - 1, SHOWN).round().astype(int).tolist()


REORDER_UP_TO = 48
"""Maximum number of stages whose order ``Problem.rematched`` improves. With more, the matchings take too long."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """Place S stages of D replicas on S x D of N devices so that the communication cost is minimal.

    Devices are numbers from 0 to N - 1. Two arrays describe a placement. A *grid*, (S, D), has the devices of stage s
    in row s, and column d is a pipeline. A *row*, (N,), is a flattened grid followed by the idle devices.
    """

    pair: PairCosts
    """Seconds between any two devices, in a data-parallel group and in a pipeline. The planner sees no other costs."""
    n_stages: int
    """Number of pipeline stages, S."""
    n_replicas: int
    """Number of data-parallel replicas of each stage, D."""
    bound_s: float
    """Lower bound: no placement costs less."""
    start: IntArray | None = None
    """(S, D) grid to begin the search with; None if the planner may choose."""
    background_tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    """Starts threads for a planner that needs them, so that their CPU time counts as the search's."""

    @property
    def n_devices(self) -> int:
        return len(self.pair.hop_s)

    @property
    def n_tasklets(self) -> int:
        return self.n_stages * self.n_replicas

    def grid(self, row: IntArray) -> IntArray:
        """Return the (S, D) grid of the first S x D devices of a row."""
        return row[: self.n_tasklets].reshape(self.n_stages, self.n_replicas)

    def row(self, grid: IntArray) -> IntArray:
        """Return (N,) the devices of a (S, D) grid, followed by the idle ones."""
        return row_of(grid, self.n_devices)

    def fill(self, row: IntArray, devices: IntArray, groups: IntArray) -> None:
        """Put each of ``devices`` at the first free position of its group (S for idle). A -1 in the row marks a free
        position.

        Devices whose group is full get any positions that are left at the end.
        """
        left = []
        for device, group in zip(devices.tolist(), groups.tolist(), strict=True):
            start = group * self.n_replicas
            end = start + self.n_replicas if group < self.n_stages else self.n_devices
            free = np.flatnonzero(row[start:end] < 0)
            if len(free):
                row[start + free[0]] = device
            else:
                left.append(device)
        row[row < 0] = left

    def cost(self, grid: IntArray) -> float:
        """Return the seconds of one (S, D) grid. Its columns are the pipelines."""
        return float(total_costs(grid, self.pair))

    def rematched(self, grid: IntArray) -> IntArray:
        """Return the (S, D) grid of the same groups with the best pairing of pipelines, in a cheaper stage order if one
        is found. With more than ``REORDER_UP_TO`` stages, the order stays."""
        as_is = np.arange(self.n_stages)
        if self.n_stages > REORDER_UP_TO:
            return align(grid, as_is, self.pair.hop_s)
        weights = coarsened_weights(grid, self.pair.hop_s)
        order = shortest_path(weights)
        # on a tie, the present order stays, so that rounding does not reorder stages
        shorter = path_cost(weights, order) < path_cost(weights, as_is) - 1e-12
        return align(grid, order if shorter else as_is, self.pair.hop_s)

    @cached_property
    def classes(self) -> IntArray:
        """(N,) class of each device. Swapping two devices of one class changes no cost."""
        return interchangeable(np.empty((self.n_devices, 0)), (self.pair.hop_s, self.pair.group_s))


@dataclass(frozen=True, eq=False)
class Generation:
    """One step of a planner. The first three fields are required. The others describe the search to the user."""

    best: IntArray = field(repr=False)
    """(S, D) grid of the cheapest placement so far."""
    best_s: float
    """Cost of ``best`` in seconds, as ``Problem.cost`` computes it."""
    evaluations: int
    """Number of placements priced so far, including neighbours in a local search."""
    median_s: float | None = None
    """Median cost of the current population; None if the planner has no population."""
    diversity: float | None = None
    """Diversity of the current population, 0 to 1 (see ``diversity`` below); None if the planner has no population."""
    operator: str = ""
    """Name of the operator that made the newest individual, such as chance, structure, recombination or reheating."""
    parents: tuple[int, ...] = ()
    """Birth numbers of the newest individual's parents. The initial population has 0, 1, 2, ... in order."""
    compiling_s: float = 0.0
    """Seconds waited so far for kernels to compile; 0 in all generations after the wait. No time limit counts them."""
    bound_s: float | None = None
    """Lower bound in seconds that the planner itself proved; None if it proved none. The larger of this and
    ``Problem.bound_s`` holds."""
    complete: bool = True
    """False for progress within a generation, which is shown but not counted as a step."""
    held: Callable[[], Population] | None = field(default=None, repr=False)
    """Returns the placements that the planner holds, to be shown; None if the planner does not offer it. Call it before
    the planner continues."""


class Planner(Protocol):
    """A generator function that yields generations, registered under a name: ``@planners.register("name")``.

    It may run forever. The caller stops it after the requested steps or seconds, or once the best plan is proven. A
    planner that returns ends the search. Equal problems and seeds must yield equal generations, so all random numbers
    come from ``rng`` and nothing depends on a clock. A search can only be watched or stopped between two yields, so a
    generation should take tens of milliseconds.
    """

    def __call__(self, problem: Problem, rng: np.random.Generator) -> Iterator[Generation]: ...


planners: Registry[Planner] = Registry("planner", group="dtfm_lab.planners")
"""All planners by name: plug-ins, and the lab's own, which ``planning.planners`` registers when imported."""


def diversity(groups: IntArray, best: int, n_stages: int, n_replicas: int) -> float:
    """Return how differently the other individuals group their devices compared with the best, from 0 (all alike) to 1.

    It takes all pairs of devices that share a group in the best individual. The result is the fraction of them that do
    not share a group in another individual, averaged over the others. ``groups`` (P, N) is the group of each device; S
    if idle. ``best`` is a row of it.
    """
    n_others, n_pairs = len(groups) - 1, n_stages * n_replicas * (n_replicas - 1) // 2
    if not n_others or not n_pairs:
        # groups of one device have no pairs that could differ
        return 0.0
    placed = np.flatnonzero(groups[best] < n_stages)
    there = np.delete(groups, best, axis=0)[:, placed]
    # one bincount for all individuals: a planner calls this after every change of its population
    both = (np.arange(n_others)[:, None] * n_stages + groups[best, placed]) * (n_stages + 1) + there
    together = np.bincount(both.ravel(), minlength=n_others * n_stages * (n_stages + 1)).reshape(-1, n_stages + 1)
    pairs = together[:, :n_stages] * (together[:, :n_stages] - 1) // 2
    return float(1.0 - pairs.sum() / (n_pairs * n_others))


def canonical_order(pair: PairCosts) -> IntArray:
    """Return (N,) device indices sorted by their costs to all others, with interchangeable devices together. The order
    does not depend on how devices are numbered.

    Classes of interchangeable devices with equal costs stay in the order of their first devices.
    """
    # sorted, a device's costs do not depend on how the others are numbered
    costs_s = np.hstack([np.sort(pair.hop_s, axis=1), np.sort(pair.group_s, axis=1)])
    profiles = np.unique(costs_s, axis=0, return_inverse=True)[1].ravel()
    return np.lexsort((interchangeable(profiles[:, None], (pair.hop_s, pair.group_s)), profiles))


CompileKernels = Callable[[Problem], object]
"""A function that calls every kernel of a planner once, on a small problem, with arguments of the final types."""


def start_compiling(compile_kernels: CompileKernels) -> BackgroundTask[object]:
    """Return the task that loads numba and compiles a planner's kernels, or loads them from its cache."""
    return start_once(compile_kernels, partial(compile_kernels, _small_problem()))


def wait_for_kernels(first: Generation, compile_kernels: CompileKernels) -> Iterator[Generation]:
    """Yield ``first`` repeatedly, as incomplete generations, until the kernels are compiled.

    ``compiling_s`` of each has the seconds waited. Time limits do not count them, because a machine compiles only once.
    """
    for waited_s in while_compiling(compile_kernels, partial(compile_kernels, _small_problem())):
        yield replace(first, complete=False, compiling_s=waited_s)


def _small_problem() -> Problem:
    # numba compiles for types, not for sizes, so the smallest problem is enough
    costs = 1.0 - np.eye(4)
    return Problem(pair=PairCosts(group_s=costs, hop_s=costs.copy()), n_stages=2, n_replicas=2, bound_s=0.0)
