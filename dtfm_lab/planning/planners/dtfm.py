"""The paper's own search, compiled: the baseline that a new planner has to beat at equal CPU time.

A genetic algorithm on partitions into data-parallel groups: two random parents of a population of 100, a
crossover that copies a few genes, a cyclic local search on the offspring (Kang and Moon, *A hybrid genetic
algorithm for multiway graph partitioning*, 2000), the full cost of equations 2 to 4; the offspring takes
the place of its worse parent when it is no worse. ``dtfm`` has the paper's local search, in which only the
fastest link within a group counts; ``hybrid`` is the comparison that the paper draws, with the classical
gain of Kernighan and Lin, the sum over all links.

Source: Yuan et al., *Decentralized Training of Foundation Models in Heterogeneous Environments*
(arXiv 2206.01288), section 3.4; details that it leaves open from the public code, DS3Lab/DT-FM (2022),
``scheduler.py`` and ``scheduler_baseline.py``. There the budget is 100 + 4,900 evaluations; here it is the
caller's. Where the public code slips, the intention is followed:

- survival: a misplaced bracket there compares the offspring with the first parent only;
- a matching is the one whose bottleneck is priced, and both directions of a link count (``planning.cost``);
- in ``hybrid`` the sum of gains at which a cycle may close is of the device that moves, not of whichever
  gains most, and a pair in a group costs a shard, as in equation 2, not the whole gradient.

One oddity is kept because the search does better with it (2 % on ``benchmarks/instances.py``): the last cycle
of a local search is never adopted.

The paper has no idle devices. Here they are one more group of the chromosome, of another size: the crossover
exchanges them, the local search leaves them alone (of three ways tried, on networks with and without
a terrible device, the best).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.cost import align
from dtfm_lab.planning.jit_warmup import until_compiled
from dtfm_lab.planning.problem import Generation, Planner, Problem, planners

POPULATION = 100
GENES = 5
"""copied from one parent to the other"""


@planners.register("dtfm")
def dtfm(problem: Problem, rng: np.random.Generator) -> Iterator[Generation]:
    """The paper's genetic algorithm, one offspring a generation; only the fastest link within a group counts."""
    return _evolved(problem, rng, classical=False)


@planners.register("hybrid")
def hybrid(problem: Problem, rng: np.random.Generator) -> Iterator[Generation]:
    """The same with the classical gain: all links count."""
    return _evolved(problem, rng, classical=True)


def _evolved(problem: Problem, rng: np.random.Generator, *, classical: bool) -> Iterator[Generation]:
    size = _sizes(problem)
    n, s, d = problem.n_devices, problem.n_stages, problem.n_replicas
    population = _founders(problem, size, rng)
    grid = problem.repaired(np.argsort(population[0], kind="stable")[: s * d].reshape(s, d))
    first = Generation(grid, problem.cost(grid), 1, operator="chance", whole=False)
    yield first  # whether or not there is something to wait for: a proven one ends the search
    yield from until_compiled(first, rehearse)
    from dtfm_lab.planning.kernels.cyclic import cycles  # brings numba, which takes a while
    from dtfm_lab.planning.kernels.draw import seeded
    from dtfm_lab.planning.kernels.partition import breed, price, pricing, variety

    cost_s, born = np.full(POPULATION, np.inf), np.arange(POPULATION)
    prices = pricing(problem.pair.group_s, problem.pair.hop_s, s, d, len(size))
    moves = cycles(problem.pair.hop_s, problem.pair.group_s, s, d, classical)
    best, best_s = grid, first.best_s
    for k, founder in enumerate(population):
        cost_s[k] = price(prices, founder)
        if cost_s[k] < best_s:
            best, best_s = align(prices.groups, prices.order, problem.pair.hop_s), float(cost_s[k])
        if 0 < k < POPULATION - 1:
            yield Generation(best, best_s, k + 1, operator="chance", whole=False)
    state, shared = seeded(rng), np.zeros((s, s), dtype=np.int64)
    points, child = np.zeros(n + len(size), dtype=np.int64), np.zeros(n, dtype=np.int64)
    parents: tuple[int, ...] = ()
    evaluations, operator, survived = POPULATION, "chance", True
    while True:
        if survived:
            median_s, diversity = float(np.median(cost_s)), variety(population, cost_s, s, d, shared)
        yield Generation(best, best_s, evaluations, median_s, diversity, operator, parents)
        giver, taker, child_s = breed(prices, moves, population, GENES, size, state, points, child)
        parents, operator = (int(born[giver]), int(born[taker])), "crossover"
        worse = giver if cost_s[giver] > cost_s[taker] else taker
        if survived := child_s <= cost_s[worse]:
            population[worse], cost_s[worse], born[worse] = child, child_s, evaluations
        evaluations += 1
        if child_s < best_s:
            best, best_s = align(prices.groups, prices.order, problem.pair.hop_s), child_s


def rehearse(problem: Problem) -> None:
    """Every kernel once, for ``warmth``."""
    from dtfm_lab.planning.kernels.cyclic import cycles
    from dtfm_lab.planning.kernels.draw import seeded
    from dtfm_lab.planning.kernels.partition import breed, price, pricing, variety

    n, s, d = problem.n_devices, problem.n_stages, problem.n_replicas
    prices = pricing(problem.pair.group_s, problem.pair.hop_s, s, d, s)
    moves = cycles(problem.pair.hop_s, problem.pair.group_s, s, d, False)
    population = np.array([np.repeat(np.arange(s), d), np.tile(np.arange(s), d)])
    cost_s = np.array([price(prices, one) for one in population])
    variety(population, cost_s, s, d, np.zeros((s, s), dtype=np.int64))
    points, child, state = (
        np.zeros(n + s, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
        seeded(np.random.default_rng(0)),
    )
    breed(prices, moves, population, GENES, np.full(s, d), state, points, child)


def _sizes(problem: Problem) -> IntArray:
    """(K,) devices in each group: D in each stage, and who is left on the bench if anyone is."""
    n_idle = problem.n_devices - problem.n_tasklets
    return np.array([problem.n_replicas] * problem.n_stages + [n_idle] * (n_idle > 0))


def _founders(problem: Problem, size: IntArray, rng: np.random.Generator) -> IntArray:
    """(P, N) group of each device: by chance, but for the start in place of the first."""
    founders = np.array([rng.permutation(np.repeat(np.arange(len(size)), size)) for _ in range(POPULATION)])
    if problem.start is not None:
        founders[0] = problem.n_stages
        founders[0, problem.start] = np.arange(problem.n_stages)[:, None]
    return founders


_: Planner = dtfm
