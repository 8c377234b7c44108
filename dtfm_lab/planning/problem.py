"""What a planner is given, a ``Problem``, and what it yields, ``Generation``s; ``planning.planners`` has an example.

What a search holds at one moment is a ``Population``, as far as it is shown: some placements, each with how it came
about. A search does not make one unless it is asked, see ``Generation.held``: it would take time at every step.
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


REORDER_UP_TO = 48
"""Most stages whose order ``Problem.rematched`` improves; with more, the matchings that this needs take too long."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """Place S stages of D replicas on S x D of N devices, so that the communication cost is least.

    Devices are numbers from 0 to N - 1. Two arrays describe a placement: a *grid*, (S, D), has the devices of
    stage s in row s, and column d is a pipeline; a *row*, (N,), is a flattened grid with the idle devices behind it.
    """

    pair: PairCosts
    """Seconds between any two devices, in a data-parallel group and in a pipeline; the only costs there are."""
    n_stages: int
    """Number of pipeline stages, S."""
    n_replicas: int
    """Number of data-parallel replicas of each stage, D."""
    bound_s: float
    """Lower bound: no placement costs less."""
    start: IntArray | None = None
    """(S, D) grid to begin the search with, or None to begin anywhere."""
    background_tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    """Starts threads for a planner that needs some, so that their CPU time counts as the search's."""

    @property
    def n_devices(self) -> int:
        return len(self.pair.hop_s)

    @property
    def n_tasklets(self) -> int:
        return self.n_stages * self.n_replicas

    def grid(self, row: IntArray) -> IntArray:
        """(S, D) grid of the first S x D devices of a row."""
        return row[: self.n_tasklets].reshape(self.n_stages, self.n_replicas)

    def row(self, grid: IntArray) -> IntArray:
        """(N,) devices of a (S, D) grid, then the idle ones."""
        return row_of(grid, self.n_devices)

    def fill(self, row: IntArray, devices: IntArray, groups: IntArray) -> None:
        """Put each device at the first free position of its group, S where idle, of a row in which -1 is free; where
        the group is full, at any position that is left in the end."""
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
        """Seconds of one (S, D) grid with the pipelines that its columns are."""
        return float(total_costs(grid, self.pair))

    def rematched(self, grid: IntArray) -> IntArray:
        """(S, D) grid of the same groups, their pipelines paired at least cost, in a cheaper stage order if any."""
        as_is = np.arange(self.n_stages)
        if self.n_stages > REORDER_UP_TO:
            return align(grid, as_is, self.pair.hop_s)
        weights = coarsened_weights(grid, self.pair.hop_s)
        order = shortest_path(weights)
        shorter = path_cost(weights, order) < path_cost(weights, as_is) - 1e-12
        return align(grid, order if shorter else as_is, self.pair.hop_s)

    @cached_property
    def classes(self) -> IntArray:
        """(N,) class of each device: swapping two devices of one class changes no cost."""
        return interchangeable(np.empty((self.n_devices, 0)), (self.pair.hop_s, self.pair.group_s))


@dataclass(frozen=True, eq=False)
class Generation:
    """One step of a planner. The first three fields are required, the others describe the search to the user."""

    best: IntArray = field(repr=False)
    """(S, D) grid of the cheapest placement so far."""
    best_s: float
    """Cost of ``best`` in seconds, as ``Problem.cost`` computes it."""
    evaluations: int
    """Number of placements priced so far, neighbours in a local search included."""
    median_s: float | None = None
    """Median cost of the current population; None for a planner without one."""
    diversity: float | None = None
    """Diversity of the current population, 0 to 1 (see ``diversity`` below); None for a planner without one."""
    operator: str = ""
    """What made the newest individual, such as chance, structure, recombination or reheating."""
    parents: tuple[int, ...] = ()
    """Birth numbers of the newest individual's parents; the initial population is 0, 1, 2, ... in order."""
    compiling_s: float = 0.0
    """Seconds waited so far for kernels to be compiled; no time limit counts them."""
    bound_s: float | None = None
    """Lower bound that the planner proved itself, if any; the larger of this and ``Problem.bound_s`` holds."""
    complete: bool = True
    """False for progress within a generation, which is shown but not counted as a step."""
    held: Callable[[], Population] | None = field(default=None, repr=False)
    """Returns what the planner holds, to be shown; None for a planner that does not say. It is called before the
    planner goes on, or never."""


class Planner(Protocol):
    """A generator function of generations, registered under a name: ``@planners.register("name")``.

    It usually never returns: the caller stops it after the wanted steps or seconds, or when the best is proven; a
    planner that returns ends the search. Equal problems and seeds must yield equal generations, so all random
    numbers come from ``rng`` and nothing depends on a clock. A search can only be watched or stopped between two
    yields, so a generation should take tens of milliseconds.
    """

    def __call__(self, problem: Problem, rng: np.random.Generator) -> Iterator[Generation]: ...


planners: Registry[Planner] = Registry("planner", group="dtfm_lab.planners")
"""All planners by name: those of ``planning.planners``, which registers them when imported, and plug-ins."""


def diversity(groups: IntArray, best: int, n_stages: int, n_replicas: int) -> float:
    """How differently the others group their devices from the best, 0 (all alike) to 1.

    The mean, over the others, of the share of device pairs that share a group in the best and do not in the other;
    ``groups`` (P, N) are the group of each device, S where it is idle.
    """
    n_others, n_pairs = len(groups) - 1, n_stages * n_replicas * (n_replicas - 1) // 2
    if not n_others or not n_pairs:
        return 0.0
    placed = np.flatnonzero(groups[best] < n_stages)
    there = np.delete(groups, best, axis=0)[:, placed]
    both = (np.arange(n_others)[:, None] * n_stages + groups[best, placed]) * (n_stages + 1) + there
    together = np.bincount(both.ravel(), minlength=n_others * n_stages * (n_stages + 1)).reshape(-1, n_stages + 1)
    pairs = together[:, :n_stages] * (together[:, :n_stages] - 1) // 2
    return float(1.0 - pairs.sum() / (n_pairs * n_others))


def canonical_order(pair: PairCosts) -> IntArray:
    """(N,) devices sorted by their costs to all others, those of a class together, whatever their numbers.

    Classes with equal costs stay in the order of their first devices.
    """
    costs_s = np.hstack([np.sort(pair.hop_s, axis=1), np.sort(pair.group_s, axis=1)])
    profiles = np.unique(costs_s, axis=0, return_inverse=True)[1].ravel()
    return np.lexsort((interchangeable(profiles[:, None], (pair.hop_s, pair.group_s)), profiles))


CompileKernels = Callable[[Problem], object]
"""A function that calls every kernel of a planner once, on a small problem, with arguments of the final types."""


def start_compiling(compile_kernels: CompileKernels) -> BackgroundTask[object]:
    """The task that loads numba and compiles a planner's kernels, or loads them from its cache."""
    return start_once(compile_kernels, partial(compile_kernels, _small_problem()))


def wait_for_kernels(first: Generation, compile_kernels: CompileKernels) -> Iterator[Generation]:
    """Yield ``first`` again and again, as incomplete generations, until the kernels are compiled.

    Each has the seconds waited in ``compiling_s``. Time limits do not count them, since a machine compiles only once.
    """
    for waited_s in while_compiling(compile_kernels, partial(compile_kernels, _small_problem())):
        yield replace(first, complete=False, compiling_s=waited_s)


def _small_problem() -> Problem:
    costs = 1.0 - np.eye(4)
    return Problem(pair=PairCosts(group_s=costs, hop_s=costs.copy()), n_stages=2, n_replicas=2, bound_s=0.0)
