"""The best placement of few devices by enumeration of all groups and branch and bound over their chains.

``CommunicationBound`` spends a small share of a search's time on it, so that the gap of a small network closes. On
networks with more groups the quick bound stays: branch and bound on relaxations of the groups took seconds there for
less than a hundredth of the cost.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice
from math import comb

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.bounds.lower_bound import least_hop_sum_s
from dtfm_lab.planning.cost import PairCosts, align, group_costs
from dtfm_lab.planning.jit_warmup import start_compiling
from dtfm_lab.planning.problem import Generation, Problem

GROUPS_UP_TO = 1500
"""Most groups to enumerate chains of; their matchings take (groups)^2 memory and time."""
COMBINATIONS_UP_TO = 50_000
"""Most groups to price."""
STEPS = 300_000
"""Chains extended between two yields, which takes some milliseconds."""


@dataclass(frozen=True, eq=False)
class Enumeration:
    """Progress of the enumeration."""

    grid: IntArray | None
    """(S, D) cheapest placement below the limit so far; None while there is none."""
    cost_s: float
    """Its cost in seconds, or the limit."""
    done: bool
    """Whether the enumeration is complete: nothing cheaper exists."""


def candidate_groups(pair: PairCosts, n_replicas: int, below_s: float) -> tuple[IntArray, FloatArray] | None:
    """(G, D) all groups that synchronise in less than ``below_s``, cheapest first, and their (G,) costs.

    None where there are too many.
    """
    n = len(pair.group_s)
    if comb(n, n_replicas) > COMBINATIONS_UP_TO or n > 62:
        return None
    groups = np.array(list(combinations(range(n), n_replicas)), dtype=np.int64)
    cost_s = group_costs(groups, pair.group_s)
    order = np.argsort(cost_s, kind="stable")
    order = order[cost_s[order] < below_s]
    return (groups[order], cost_s[order]) if len(order) <= GROUPS_UP_TO else None


def exhaustive(
    pair: PairCosts, n_stages: int, groups: IntArray, cost_s: FloatArray, below_s: float = np.inf
) -> Iterator[Enumeration]:
    """Search for the cheapest chain of S of the groups that costs less than ``below_s``, in short steps.

    A partial chain is pruned when its slowest group, its hops and the cheapest hop for each missing stage cost no
    less than the incumbent.
    """
    from dtfm_lab.planning.kernels.chains import search_chains, weigh_disjoint

    masks = (np.int64(1) << groups).sum(axis=1)
    weights_s = np.empty((len(groups), len(groups)))
    enough_s = below_s - (cost_s.min() if len(cost_s) else 0.0)
    weigh_disjoint(pair.hop_s, groups, masks, enough_s, weights_s)
    dearer = np.argsort(weights_s, axis=1, kind="stable")
    at, chain, best = (np.zeros(n_stages, dtype=np.int64) for _ in range(3))
    best_s, found_s = np.array([below_s]), below_s
    grid: IntArray | None = None
    depth = 0 if len(groups) else -1
    while depth >= 0:
        depth = search_chains(cost_s, masks, weights_s, dearer, at, chain, best, best_s, depth, STEPS)
        if best_s[0] < found_s:
            found_s = float(best_s[0])
            grid = align(groups[best], np.arange(n_stages), pair.hop_s)
        yield Enumeration(grid, found_s, depth < 0)
    if not len(groups):
        yield Enumeration(None, below_s, True)


SHARE = 0.2
"""Largest share of a timed search's seconds that is spent on the bound."""
TURN_S = 0.03
"""Seconds of one turn of a timed search, or a little more: a step is not interrupted."""
STEPS_A_TURN = 8
"""Steps of one turn in a search that is limited by steps."""


class CommunicationBound:
    """The lower bound of one search in seconds; of few devices it is proven in turns between the search's generations.

    A timed search spends at most ``SHARE`` of its time on turns. A search that is limited by steps has the k-th turn
    after its generation k x k, counted from 1, so that equal steps prove equal bounds. There are no turns where
    ``enabled`` is False, nor after a generation whose planner proved a bound itself.
    """

    def __init__(self, problem: Problem, timed: bool, enabled: bool = True) -> None:
        self.bound_s = problem.bound_s
        self._problem, self._timed, self._enabled = problem, timed, enabled
        self._steps: Iterator[Enumeration] | None = None
        self._turns = 0
        self._spent_s = 0.0

    def update(self, found: Generation, generation: int, elapsed_s: float) -> float:
        """The bound after one more generation, complete or not."""
        if found.bound_s is not None:
            self.bound_s = max(self.bound_s, found.bound_s)
        elif self._enabled and found.complete and self.bound_s < found.best_s:
            self._take_turn(found.best_s, generation, elapsed_s)
        self.bound_s = min(self.bound_s, found.best_s)
        return self.bound_s

    def _take_turn(self, best_s: float, generation: int, elapsed_s: float) -> None:
        if generation < (1 if self._timed else (self._turns + 1) ** 2):
            return  # the first plan and the compiling of the planner's kernels come before any bound
        if self._steps is None:
            self._steps = self._chains(best_s)
        if self._timed and self._spent_s > SHARE * elapsed_s:
            return
        self._turns += 1
        began = time.perf_counter()
        for found in islice(self._steps, None if self._timed else STEPS_A_TURN):
            if found.done:
                self.bound_s = max(self.bound_s, found.cost_s)
            if self._timed and time.perf_counter() - began > TURN_S:
                break
        self._spent_s += time.perf_counter() - began

    def _chains(self, best_s: float) -> Iterator[Enumeration]:
        """All chains of groups that may be cheaper than the best placement; nothing where they are too many."""
        pair, n_stages, n_replicas = self._problem.pair, self._problem.n_stages, self._problem.n_replicas
        groups = candidate_groups(pair, n_replicas, best_s - least_hop_sum_s(pair.hop_s, n_stages, n_replicas))
        if groups is None:
            return
        compiling = start_compiling(compile_kernels)
        while self._timed and not compiling.wait(0):
            yield Enumeration(None, 0.0, False)
        compiling.join()
        yield from exhaustive(pair, n_stages, *groups, best_s)


def compile_kernels(problem: Problem) -> None:
    """Call every kernel once, see ``jit_warmup``."""
    groups = candidate_groups(problem.pair, problem.n_replicas, np.inf)
    assert groups is not None, "of a small problem"
    for _ in exhaustive(problem.pair, problem.n_stages, *groups):
        pass
