"""The default planner: a memetic algorithm, an evolutionary search with simulated annealing as its local search.

It follows the paper (DT-FM section 3.4) with other components. The initial population has random placements and
placements made from clusters of the network. The groups of two parents are matched before they are recombined, and the
offspring takes one part of the network from one parent, the donor. The local search is annealing, compiled. Devices may
stay idle.

Annealing alone would have to move the devices of a region one by one, through more expensive placements. A
recombination takes a part of the network as a whole (Radcliffe and Surry, *Formal memetic algorithms*, 1994).
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import scipy

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.planners.initial_placements import ClusteredPlacements
from dtfm_lab.planning.planners.shown_population import PopulationMember, ShownPopulation
from dtfm_lab.planning.problem import Generation, Problem, diversity, planners, wait_for_kernels

N_CLUSTERED = 4
"""Number of placements made from clusters in the initial population: the cheapest of them, without flipped branches."""
N_FLIPPED = 4
"""Number of placements made from clusters with flipped branches in the initial population."""
N_RANDOM = 2
"""Number of random placements in the initial population."""
P_NEW = 0.15
"""Probability that an offspring after the initial population has no parents."""
P_RECOMBINED = 0.2
"""Probability that an offspring is recombined from two parents, if the two picked differ. An offspring that is neither
new (``P_NEW``) nor recombined is a copy of one parent, annealed again."""
ANNEALING_US = 600.0
"""Nominal microseconds per device for annealing the first offspring with up to 8 replicas. With more replicas, they
grow in proportion."""
GROWTH = 1 / 3
"""Each further offspring is annealed longer than the one before it, by this share of the first offspring's annealing.
"""
RANDOM_HOT = 0.1
"""Initial temperature for annealing a random placement: this fraction of the best cost so far, times 8 / S (see
``COLD``)."""
CLUSTERED_HOT = (0.003, 0.01)
"""Range of the initial temperature of a placement made from clusters, as a fraction like ``RANDOM_HOT``. A random value
from it is used."""
PARENT_HOT = (0.001, 0.012)
"""Range of the initial temperature of a copy of a parent, as a fraction like ``RANDOM_HOT``."""
RECOMBINED_HOT = (0.0008, 0.006)
"""Range of the initial temperature of an offspring of two parents, as a fraction like ``RANDOM_HOT``."""
DONOR_SHARE = (0.1, 0.5)
"""Minimum and maximum share of the devices that a recombination takes from the donor."""
COLD = 1e-4
"""Final temperature, as a fraction of the best cost if there are 8 stages. All temperatures are multiplied by 8 / S.
With fewer stages, a cost has fewer and larger parts, so temperatures are higher."""
SLICE_US = 50_000
"""Nominal microseconds of a slice of annealing. It sets how often a search reports progress. A slice is a number of
moves, so results do not depend on the speed of the machine."""
N_SIMILAR = 16
"""Number of similar devices that each device is often swapped with."""
SIMILAR_UP_TO = 512
"""Maximum number of devices whose costs are compared to find similar ones. With more, those with the cheapest
links to a device count as similar to it."""


cost_of = attrgetter("cost_s")


class Offspring(NamedTuple):
    """A new placement before its local search."""

    operator: str
    parents: tuple[int, ...]
    """Indices of its parents in the population."""
    row: IntArray
    hot: float
    """Initial temperature of its annealing, as a fraction of the best cost if there are 8 stages."""


@planners.register("evolutionary")
def evolutionary(problem: Problem, rng: np.random.Generator) -> Iterator[Generation]:
    """A memetic algorithm: clustered and random placements, recombined region by region and annealed.

    A generation is one individual: first the initial population, then offspring that replace a parent if they are at
    least as good.
    """
    random_rows = [rng.permutation(problem.n_devices) for _ in range(N_RANDOM + 1)]
    evaluations, best = 0, None
    population: list[PopulationMember] = []
    shown = ShownPopulation(problem, population)
    if problem.start is None:
        for row in random_rows:
            evaluations += 1
            one = _individual(problem, row)
            best = min(filter(None, [best, one]), key=cost_of)
            shown.wait("chance", row, one)
            grid, held = problem.grid(best.row), partial(shown.held, best)
            yield Generation(grid, best.cost_s, evaluations, operator="chance", complete=False, held=held)
    clustered = ClusteredPlacements(problem, rng)
    rows, costs_s = clustered.rows()
    first_rows = [rows[0]] if problem.start is None else [problem.row(problem.start), rows[0]]
    evaluations += len(first_rows)
    first_ones = [_individual(problem, row) for row in first_rows]
    best = min(filter(None, [best, *first_ones]), key=cost_of)
    operator = "structure" if problem.start is None else "start"
    priced = evaluations + clustered.n_priced
    if problem.start is not None:
        shown.wait("start", first_rows[0], first_ones[0])
        for row in random_rows[:N_RANDOM]:
            shown.wait("chance", row)
    shown.wait("structure", rows[0], first_ones[-1])
    for row, cost_s in zip(rows[1:N_CLUSTERED], costs_s[1:N_CLUSTERED], strict=True):
        shown.wait("structure", row, PopulationMember(row, float(cost_s)))
    held = partial(shown.held, best)
    first = Generation(problem.grid(best.row), best.cost_s, priced, best.cost_s, 0.0, operator, held=held)
    yield first
    yield from wait_for_kernels(first, compile_kernels)
    reproduction = _Reproduction(problem, rng, clustered)
    initial = reproduction.initial_population(rows[:N_CLUSTERED], random_rows[:N_RANDOM])
    n_initial = 0
    for birth_number in count():
        from_initial = next(initial, None)
        n_initial += from_initial is not None
        offspring = from_initial or reproduction.offspring(population)
        parents = tuple(population[i].as_parent for i in offspring.parents)
        improved = PopulationMember(offspring.row, np.inf, birth_number, offspring.operator, parents)
        for row, cost_s, moves in reproduction.local_search(offspring, best.cost_s, birth_number - n_initial):
            evaluations += moves
            improved = replace(improved, row=row, cost_s=cost_s)
            best = min(best, improved, key=cost_of)
            priced, grid, operator = evaluations + clustered.n_priced, problem.grid(best.row), offspring.operator
            held = partial(shown.held, best)
            yield Generation(grid, best.cost_s, priced, operator=operator, complete=False, held=held)
        evaluations += 1
        rematched = _individual(problem, improved.row)
        # the best order of these groups may be cheaper than the one that annealing ended with
        if rematched.cost_s < improved.cost_s:
            improved = replace(improved, row=rematched.row, cost_s=rematched.cost_s)
        best = min(best, improved, key=cost_of)
        _select_survivors(population, improved, offspring.parents, from_initial is not None)
        shown.add(offspring.row, improved, is_initial=from_initial is not None)
        yield Generation(
            best=problem.grid(best.row),
            best_s=best.cost_s,
            evaluations=evaluations + clustered.n_priced,
            median_s=float(np.median([one.cost_s for one in population])),
            diversity=_diversity(problem, population),
            operator=offspring.operator,
            parents=tuple(parent.birth_number for parent in parents),
            held=partial(shown.held, best),
        )


def compile_kernels(problem: Problem) -> None:
    """Call every kernel once to compile it, see ``background_tasks``."""
    for _ in Annealer(problem, np.random.default_rng(0)).anneal(np.arange(problem.n_devices), 1.0, 0.1, 1.0):
        pass


class _Reproduction:
    """Makes the initial population and offspring, and improves them by local search."""

    def __init__(self, problem: Problem, rng: np.random.Generator, clustered: ClusteredPlacements) -> None:
        self._problem, self._rng, self._clustered = problem, rng, clustered
        self._annealer = Annealer(problem, rng)

    def initial_population(self, clustered_rows: IntArray, random_rows: list[IntArray]) -> Iterator[Offspring]:
        """Yield the first placements: the given start if there is one, then clustered placements as they are, some with
        flipped branches, and random ones."""
        if self._problem.start is not None:
            yield Offspring("start", (), self._problem.row(self._problem.start), RECOMBINED_HOT[0])
        for row in clustered_rows:
            yield Offspring("structure", (), row, _log_uniform(self._rng, *CLUSTERED_HOT))
        for _ in range(N_FLIPPED):
            yield self._flipped()
        for row in random_rows:
            yield Offspring("chance", (), row, RANDOM_HOT)

    def offspring(self, population: list[PopulationMember]) -> Offspring:
        """Return a placement to anneal: a new one (random or from clusters), one recombined from two parents, or a copy
        of one parent. Each parent is the better of two random individuals.
        """
        rng = self._rng
        sample = rng.random()
        if sample < P_NEW / 2:
            return Offspring("chance", (), rng.permutation(self._problem.n_devices), RANDOM_HOT)
        if sample < P_NEW:
            return self._flipped()
        recipient, donor = (self._tournament(population) for _ in range(2))
        if sample < P_NEW + P_RECOMBINED and recipient != donor:
            rows = population[recipient].row, population[donor].row
            row = recombined(self._problem, *rows, self._clustered.leaf_order, rng)
            return Offspring("recombination", (recipient, donor), row, _log_uniform(rng, *RECOMBINED_HOT))
        return Offspring("reheating", (recipient,), population[recipient].row, _log_uniform(rng, *PARENT_HOT))

    def _flipped(self) -> Offspring:
        return Offspring("structure", (), self._clustered.flipped(self._rng), _log_uniform(self._rng, *CLUSTERED_HOT))

    def _tournament(self, population: list[PopulationMember]) -> int:
        return min(map(int, self._rng.integers(len(population), size=2)), key=lambda i: population[i].cost_s)

    def local_search(self, offspring: Offspring, best_s: float, n_before: int) -> Iterator[tuple[IntArray, float, int]]:
        """Anneal the offspring in slices. After each slice, yield the best row so far, its cost in seconds and the
        number of moves in the slice.

        The annealing takes longer the larger ``n_before`` is: the number of offspring before this one, or -1 in the
        initial population.
        """
        unit_s = best_s * 8 / max(self._problem.n_stages, 2)
        move_cost = max(1.0, self._problem.n_replicas / 8)
        work_us = ANNEALING_US * self._problem.n_devices * move_cost * (1 + GROWTH * n_before)
        yield from self._annealer.anneal(offspring.row, offspring.hot * unit_s, COLD * unit_s, work_us)


def _select_survivors(
    population: list[PopulationMember], child: PopulationMember, parents: tuple[int, ...], is_initial: bool
) -> None:
    """Add a child of the initial population. A later child replaces its worse parent if it is at least as good, or the
    worst individual if it has no parents.

    A later child with exactly the cost of an individual is very likely a duplicate and is dropped.
    """
    if is_initial:
        population.append(child)
        return
    worse = max(parents or range(len(population)), key=lambda i: population[i].cost_s)
    duplicate = any(abs(child.cost_s - one.cost_s) <= 1e-9 * child.cost_s for one in population)
    if child.cost_s <= population[worse].cost_s and not duplicate:
        population[worse] = child


def _individual(problem: Problem, row: IntArray) -> PopulationMember:
    """Return the row as an individual, with the best pairing of its pipelines and the best order of its stages that was
    found (``Problem.rematched``)."""
    grid = problem.rematched(problem.grid(row))
    return PopulationMember(np.concatenate([grid.ravel(), row[problem.n_tasklets :]]), problem.cost(grid))


def _diversity(problem: Problem, population: list[PopulationMember]) -> float:
    best = min(range(len(population)), key=lambda i: population[i].cost_s)
    groups = np.array([_groups(problem, one.row) for one in population])
    return diversity(groups, best, problem.n_stages, problem.n_replicas)


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def recombined(
    problem: Problem, recipient: IntArray, donor: IntArray, leaf_order: IntArray, rng: np.random.Generator
) -> IntArray:
    """Return (N,) the recipient's row, with the devices of one part of the network grouped as in the donor's row.

    The part is a run of ``leaf_order``, which is (N,) all devices with near devices next to each other. A region's
    grouping is therefore inherited as a unit. Groups have no names, so the donor's groups are first matched to the
    recipient's by the devices that they share. A device whose group is full takes any free position.
    """
    n = problem.n_devices
    recipient_groups, donor_groups = _groups(problem, recipient), _groups(problem, donor)
    n_groups = problem.n_stages + (n > problem.n_tasklets)
    shared = np.zeros((n_groups, n_groups))
    np.add.at(shared, (donor_groups, recipient_groups), 1.0)
    shared[problem.n_stages :, : problem.n_stages] = -n  # the idle devices are matched to the idle devices
    _, match = scipy.optimize.linear_sum_assignment(-shared)
    # the run wraps around, so that devices at its ends are taken as often as others
    part = leaf_order[(rng.integers(n) + np.arange(max(1, int(n * rng.uniform(*DONOR_SHARE))))) % n]
    wanted = recipient_groups.copy()
    wanted[part] = match[donor_groups[part]]
    child = np.where(wanted[recipient] == recipient_groups[recipient], recipient, -1)
    # in random order, because the first to come gets the free position of a group
    unplaced = rng.permutation(recipient[child < 0])
    problem.fill(child, unplaced, wanted[unplaced])
    return child


def _groups(problem: Problem, row: IntArray) -> IntArray:
    """Return (N,) group of each device. Idle devices are in group S."""
    groups = np.empty(len(row), dtype=np.int64)
    groups[row] = np.minimum(np.arange(len(row)) // problem.n_replicas, problem.n_stages)
    return groups


class Annealer:
    """Anneals rows of one problem, one after the other. Its random numbers are seeded once from ``rng``."""

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        # imports numba, which takes a while
        from dtfm_lab.planning.kernels.annealing import annealing_state
        from dtfm_lab.planning.kernels.random_numbers import seeded

        self._problem = problem
        self._random = seeded(rng)
        self._state = annealing_state(
            problem.pair.group_s,
            problem.pair.hop_s,
            problem.classes,
            similar_devices(problem.pair.hop_s),
            problem.n_stages,
            problem.n_replicas,
        )

    def anneal(
        self, row: IntArray, hot_s: float, cold_s: float, work_us: float
    ) -> Iterator[tuple[IntArray, float, int]]:
        """Yield, after every slice, the cheapest row so far, its cost in seconds and the number of moves in the slice.

        ``hot_s`` and ``cold_s`` are the initial and the final temperature, above 0. The annealing takes ``work_us``
        nominal microseconds, see ``move_us``. It reads no clock, so results depend only on the arguments and the state
        of the random numbers.
        """
        from dtfm_lab.planning.kernels.annealing import anneal_groups

        n_moves = max(1, int(work_us / move_us(self._problem.n_replicas)))
        n_slices = max(1, round(work_us / SLICE_US))
        ends = np.linspace(0, n_moves, n_slices + 1).astype(int)
        self._state.row[:] = row
        best, best_s, found = row, np.inf, np.empty_like(row)
        for start, end in pairwise(ends):
            from_s, to_s = (hot_s * (cold_s / hot_s) ** (at / n_moves) for at in (start, end))
            moves = int(end - start)
            if anneal_groups(self._state, from_s, to_s, moves, self._random, found) < best_s:
                row = self._aligned(found)
                # The kernel keeps running sums, which lose all precision once a link of 1e20 s was part of them.
                if (exact_s := self._problem.cost(self._problem.grid(row))) < best_s:
                    best, best_s = row, exact_s
            yield best, best_s, moves

    def _aligned(self, row: IntArray) -> IntArray:
        """Return the row with the best pairing of its columns. The state of the annealing does not change."""
        from dtfm_lab.planning.kernels.annealing import align

        current = self._state.row.copy()
        self._state.row[:] = row
        align(self._state)
        aligned = self._state.row.copy()
        self._state.row[:] = current
        return aligned


def move_us(n_replicas: int) -> float:
    """Return the nominal microseconds of one move, as measured on an ordinary core with 4 to 32 replicas."""
    return float(0.065 * n_replicas**1.2)


def similar_devices(hop_s: FloatArray) -> IntArray:
    """Return (N, K): for each device, the K other devices whose costs to all devices are most similar to its own. K is
    ``N_SIMILAR``, or N - 1 if that is less. With many devices, see ``SIMILAR_UP_TO``."""
    n = len(hop_s)
    unlike = scipy.spatial.distance.cdist(hop_s, hop_s, "cityblock") if n <= SIMILAR_UP_TO else hop_s.copy()
    np.fill_diagonal(unlike, np.inf)
    near = np.argsort(unlike, axis=1, kind="stable")[:, : min(N_SIMILAR, n - 1)] if n > 1 else np.zeros((1, 1))
    return np.ascontiguousarray(near, dtype=np.int64)
