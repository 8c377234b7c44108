"""Branch and bound on the data-parallel cost: a lower bound that rises in many short steps.

``increasing_bounds`` yields the bounds. ``RisingBound`` spends a small share of a search's time on them, between the
generations of the search.
"""

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.extensions.proofs.optima import candidate_groups, exhaustive, has_solver
from dtfm_lab.extensions.proofs.segment_feasibility import GroupBudget, clusters, segments_feasible
from dtfm_lab.planning.bounds.search_bound import SearchBound
from dtfm_lab.planning.cost import PairCosts, bound_of_pairs, least_hop_sum_s, nearest_partners
from dtfm_lab.planning.problem import Problem, start_compiling

DEVICES_UP_TO = 256
"""Maximum number of devices for which the bound is raised. With more, one step would take too long."""
EFFORTS = ((0.0, 0, 0.02), (0.04, 0, 0.01), (0.2, 2, 0.005), (1.0, 4, 0.003), (5.0, 8, 0.001))
"""Levels of effort, three numbers each: the solver's deterministic time per question (about seconds; 0 does without the
solver), a number of clusters, and a width.

The solver also counts devices by cluster, unless the number of clusters is 0. The width is a share of the upper bound.
A range of costs that is narrower than the width is not split. It is tried with the next level instead.
"""

Hops: TypeAlias = tuple[float, ...] | None
"""Lower bounds of the hops' costs in seconds, from the most expensive hop down. None if no placement exists."""


@dataclass(frozen=True)
class _Range:
    """All placements with a data-parallel cost from ``low_s`` to ``high_s``."""

    low_s: float
    high_s: float
    hops_s: tuple[float, ...]
    """Lower bounds of the hops' costs in seconds, from the most expensive hop down."""
    enough_s: tuple[float, ...]
    """For each hop in ``hops_s``, the highest bound in seconds that is still tried: what the same effort proved for
    groups that cost at most ``low_s``, or else the cost of the most expensive link."""
    effort: int = 0
    """Level of effort that was last tried: an index in EFFORTS."""

    @property
    def bound_s(self) -> float:
        return self.low_s + sum(self.hops_s)


def increasing_bounds(
    pair: PairCosts,
    n_stages: int,
    n_replicas: int,
    upper_s: float,
    most_effort: float = 5.0,
    known_s: float | None = None,
) -> Iterator[float]:
    """Yield lower bounds of the cost of all placements, in seconds: one after each of many short steps. They never
    decrease.

    Branches on the data-parallel cost x. Within a range of x, the k-th most expensive hop costs at least the highest
    level below which k segments are infeasible (``segment_feasibility``). So a placement costs at least the low end of
    the range plus these levels. If few groups are cheap enough for a placement below ``upper_s``, all their chains are
    tried instead.

    ``upper_s`` is the cost of a known placement. ``known_s`` is the result of ``bound_of_pairs`` if the caller has it.
    Ends when no cheaper placement is possible, or when more effort does not help. With one stage or more than 256
    devices it ends after the first bound. A step asks the solver at most once, for at most ``most_effort`` of its
    deterministic time (about seconds).
    Equal arguments give equal steps.
    """
    bound_s = min(upper_s, bound_of_pairs(pair, n_stages, n_replicas) if known_s is None else known_s)
    yield bound_s
    if bound_s >= upper_s or n_stages == 1 or not bound_s > 0 or len(pair.hop_s) > DEVICES_UP_TO:
        return
    # Any plan pays at least these hops, so its groups may cost no more than the rest.
    least_s = least_hop_sum_s(pair.hop_s, n_stages, n_replicas)
    few = candidate_groups(pair, n_replicas, upper_s - least_s)
    # With so few groups, trying all chains is quicker than bounding them.

    if few is not None:
        for found in exhaustive(pair, n_stages, *few, upper_s):
            yield max(bound_s, found.cost_s) if found.done else bound_s
        return
    nearest = nearest_partners(pair.group_s)
    efforts = [line for line in EFFORTS if line[0] <= most_effort]
    labels = [clusters(pair, n) if n else None for _, n, _ in efforts]
    # A hop costs what some link costs, so bisection goes over these values only.
    values = np.unique(pair.hop_s[np.triu_indices(len(pair.hop_s), 1)])
    dearest = (float(values[-1]),) * (n_stages - 1)
    ranges = [_Range(0.0, upper_s - least_s, (float(values[0]),) * (n_stages - 1), dearest)]
    while ranges:
        # The worst range decides the bound of all, so only raising that range helps.
        worst = min(ranges, key=lambda one: (one.bound_s, one.low_s))
        # A range too narrow to be cut is tried again at its upper end, with more effort.
        cut = worst.high_s - worst.low_s > efforts[worst.effort][2] * upper_s
        at_s = 0.5 * (worst.low_s + worst.high_s) if cut else worst.high_s
        effort = worst.effort + (not cut)
        if effort == len(efforts):
            return
        budget = GroupBudget(pair, n_stages, n_replicas, at_s, nearest)
        enough_s = worst.enough_s if cut else dearest
        effort_s, _, _ = efforts[effort]
        # If the hops total what the incumbent leaves above ``low_s``, the range is excluded, so nothing more is proved.
        steps = _dearest_hops(budget, values, worst.hops_s, enough_s, upper_s - worst.low_s, effort_s, labels[effort])
        hops_s = yield from _yield_bound(steps, bound_s)
        ranges.remove(worst)
        if cut:
            settled_s = worst.enough_s
            if hops_s is not None and worst.low_s + sum(hops_s) < upper_s:
                settled_s = hops_s
            ranges.append(replace(worst, low_s=at_s, enough_s=settled_s))
        if hops_s is not None:
            ranges.append(_Range(worst.low_s, at_s, hops_s, enough_s, effort))
        # What is infeasible under a budget is also infeasible under smaller ones, so tighten those ranges too.
        ranges = [_tightened(one, hops_s) if one.high_s <= at_s else one for one in ranges]
        ranges = [one for one in ranges if one.bound_s < upper_s]
        bound_s = max(bound_s, min((one.bound_s for one in ranges), default=upper_s))
        yield bound_s


def least_hops_s(pair: PairCosts, n_stages: int, n_replicas: int, budget_s: float) -> Hops:
    """Return lower bounds of the hops' costs, from the most expensive hop down, if no group costs more than the budget.

    None if no such placement exists. A question to the solver takes at most ``MOST_EFFORT`` of its deterministic time.
    """
    values = np.unique(pair.hop_s[np.triu_indices(len(pair.hop_s), 1)])
    known_s, enough_s = ((float(value),) * (n_stages - 1) for value in (values[0], values[-1]))
    budget = GroupBudget(pair, n_stages, n_replicas, budget_s, nearest_partners(pair.group_s))
    steps = _dearest_hops(budget, values, known_s, enough_s, np.inf, MOST_EFFORT, None)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            hops_s: Hops = end.value
            return hops_s


def _yield_bound(steps: Generator[None, None, Hops], bound_s: float) -> Generator[float, None, Hops]:
    """Run the steps, yield the current bound after each, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            hops_s: Hops = end.value
            return hops_s
        yield bound_s


def _tightened(one: _Range, hops_s: tuple[float, ...] | None) -> _Range:
    if hops_s is None:
        return replace(one, low_s=np.inf)
    return replace(one, hops_s=tuple(max(pair) for pair in zip(one.hops_s, hops_s, strict=True)))


def _dearest_hops(
    budget: GroupBudget,
    values: FloatArray,
    known_s: tuple[float, ...],
    enough_s: tuple[float, ...],
    below_s: float,
    effort: float,
    labels: IntArray | None,
) -> Generator[None, None, Hops]:
    """Return lower bounds of the hops' costs, from the most expensive hop down. None if no placement stays within the
    budget.

    Takes one hop after the other. Bisects its possible costs, sorted in ``values``, between a valid bound in
    ``known_s`` and the cost in ``enough_s``. Stops early when the hops total at least ``below_s``, because the caller
    needs no more.
    """
    if not budget.possible:
        return None
    hops_s = list(known_s)
    for k in range(1, budget.n_stages):
        low = int(np.searchsorted(values, hops_s[k - 1]))
        high = int(np.searchsorted(values, min(enough_s[k - 1], hops_s[max(k - 2, 0)] if k > 1 else np.inf), "right"))
        stride = 1
        while high - low > 1:
            middle = min(low + stride, (low + high) // 2)
            if (yield from segments_feasible(budget, float(values[middle]), k, effort, labels)):
                high = middle
            else:
                low = middle
            # The level is usually near the last one, so steps grow from there instead of halving all.
            stride *= 4
        hops_s[k - 1] = max(hops_s[k - 1], float(values[low]))
        # The sum excludes the range already, so the other hops need no proof.
        if sum(hops_s) >= below_s:
            break
    return tuple(hops_s)


SHARE = 0.2
"""Maximum share of a timed search's time spent on the bound."""
TURN_S = 0.03
"""Seconds of one turn of work on the bound, in a timed search. A turn may take slightly longer, because a step is not
interrupted."""
STEPS_A_TURN = 8
"""Number of steps of the bound per turn, in a search that is limited by steps instead of time."""
MOST_EFFORT = 0.04
"""Maximum deterministic time of one question to the solver, which cannot be interrupted. It takes some tenths of a
second."""


class RisingBound(SearchBound):
    """The lower bound of one search in seconds, raised in short turns between the generations of the search.

    A timed search spends at most ``SHARE`` of its time on turns. In a search limited by steps, the k-th turn comes
    after generation k², counted from 1, so equal steps prove equal bounds. There are no turns if ``enabled`` is False,
    if OR-tools is not installed, or after the planner itself has proved a bound.
    """

    def __init__(self, problem: Problem, timed: bool, enabled: bool = True) -> None:
        super().__init__(problem, timed, enabled and has_solver())
        self._steps: Iterator[float] | None = None
        self._turns = 0
        self._spent_s = 0.0

    def _raise(self, best_s: float, generation: int, elapsed_s: float) -> None:
        if generation < (1 if self._timed else (self._turns + 1) ** 2):
            return  # let the search find its first plan and compile its kernels before spending time on bounds
        compiling = start_compiling(compile_kernels)
        if self._timed and (not compiling.wait(0) or self._spent_s > SHARE * elapsed_s):
            return
        # Without a time limit results must not depend on how long compiling takes, so it waits.
        compiling.join()
        if self._steps is None:
            of = self._problem
            self._steps = increasing_bounds(of.pair, of.n_stages, of.n_replicas, best_s, MOST_EFFORT, of.bound_s)
        self._turns += 1
        began = time.perf_counter()
        for bound_s in islice(self._steps, None if self._timed else STEPS_A_TURN):
            self.bound_s = max(self.bound_s, bound_s)
            if self._timed and time.perf_counter() - began > TURN_S:
                break
        self._spent_s += time.perf_counter() - began


def compile_kernels(problem: Problem) -> None:
    """Import the solver and call every kernel of the bounds once, so that they are compiled before a search needs
    them."""
    for _ in islice(increasing_bounds(problem.pair, problem.n_stages, problem.n_replicas, 100.0), 3):
        pass
    apart = 1.0 + np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0)))
    least_hops_s(PairCosts(group_s=apart, hop_s=apart), 3, 2, 4.0)
