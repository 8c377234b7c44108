"""Find the best placement and prove it, by enumeration for few devices, or by branch and bound with a solver.

A group is the devices of one stage. If few groups are possible, every chain of them is tried. If devices fall into few
classes of interchangeable ones, a constraint solver works on counts (``optima``). Otherwise the evolutionary search
alternates with the bound of ``bound_search``. That proves less, and leaves a gap.

Long work runs as a background task, and a search yields every tenth of a second, so it can be watched, paused and
stopped. A question to the solver is only interrupted if it is about counts. Any other finishes within some seconds, and
its answer is kept for when the search continues.
"""

from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import TypeAlias, TypeVar

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.extensions.proofs.bound_search import DEVICES_UP_TO, increasing_bounds, least_hops_s
from dtfm_lab.extensions.proofs.optima import ClassSolver, candidate_groups, class_problem, exhaustive, require_solver
from dtfm_lab.planning.background_tasks import BackgroundTask
from dtfm_lab.planning.cost import least_hop_sum_s
from dtfm_lab.planning.planners.initial_placements import ClusteredPlacements
from dtfm_lab.planning.problem import Generation, Problem, planners

CLASSES_UP_TO = 16
"""The solver is used for up to this number of classes of interchangeable devices."""
N_CLUSTERED = 6
"""Number of clustered placements from which the first incumbent is chosen."""
EFFORT = 2.0
"""Deterministic time of the solver for the first question on a range, about seconds."""
RANGES = 24
"""Number of ranges into which the data-parallel cost is split at first."""
HEAD_START = 20
"""Number of generations of the evolutionary search, including incomplete ones, before bounds are computed. The bounds
start from the cost of the best placement found by then."""
PROVEN = 1e-9
"""Relative gap between bound and best placement below which a range is settled. A smaller gap is rounding."""
POLL_S = 0.1
"""Seconds between two yields while a background task runs."""

T = TypeVar("T")

_Range: TypeAlias = tuple[float, float, float, float, tuple[float, ...]]
"""A range of data-parallel cost: a lower bound on the cost of its placements, its two ends (all three in seconds), the
solver's deterministic time to spend on it, and lower bounds of the hops' costs, from the most expensive hop down."""


def exact(problem: Problem, rng: np.random.Generator) -> Iterator[Generation]:
    """Yield the best placement so far, until it is proved to be the optimum or nothing more can be proved. Raises
    MissingExtra if that needs OR-tools, which is not installed."""
    first = _first_incumbent(problem, rng)
    yield first
    if first.best_s <= problem.bound_s:
        return
    hops_s = least_hop_sum_s(problem.pair.hop_s, problem.n_stages, problem.n_replicas)
    # The hops cost at least this, so a group that costs more than the rest is in no better plan.
    limit_s = first.best_s - hops_s
    listing = problem.background_tasks.run(lambda: candidate_groups(problem.pair, problem.n_replicas, limit_s))
    groups = yield from _wait(listing, first)
    if groups is not None:
        yield from _enumerate_chains(problem, *groups, first)
        return
    require_solver()
    # Identical devices are only counted, which a constraint solver can do if the classes are few.
    if len(np.unique(problem.classes)) <= CLASSES_UP_TO:
        yield from _branch_and_bound(problem, first, rng)
    else:
        yield from _search_and_bound(replace(problem, start=first.best), first, rng)


def _first_incumbent(problem: Problem, rng: np.random.Generator) -> Generation:
    """Return the cheapest of up to ``N_CLUSTERED`` clustered placements and ``problem.start``, if there is one."""
    clustered = ClusteredPlacements(problem, rng)
    rows, _ = clustered.rows()
    grids = [problem.grid(row) for row in rows[:N_CLUSTERED]]
    if problem.start is not None:
        grids.append(problem.start)
    grids = [problem.rematched(grid) for grid in grids]
    cost_s = [problem.cost(grid) for grid in grids]
    cheapest = int(np.argmin(cost_s))
    priced = clustered.n_priced + len(grids)
    return Generation(grids[cheapest], cost_s[cheapest], priced, operator="structure", bound_s=problem.bound_s)


def _enumerate_chains(
    problem: Problem, groups: IntArray, group_s: FloatArray, first: Generation
) -> Iterator[Generation]:
    chains = exhaustive(problem.pair, problem.n_stages, groups, group_s, first.best_s)
    latest = replace(first, operator="every chain")
    # On a thread, so that Stop keeps working.
    while (found := (yield from _wait(problem.background_tasks.run(lambda: next(chains, None)), latest))) is not None:
        if found.grid is not None:
            latest = replace(latest, best=found.grid, best_s=min(latest.best_s, problem.cost(found.grid)))
        latest = replace(latest, bound_s=latest.best_s if found.done else problem.bound_s)
        yield latest


def _branch_and_bound(problem: Problem, first: Generation, rng: np.random.Generator) -> Iterator[Generation]:
    """Branch on the data-parallel cost. The range with the lowest bound comes first. If the solver does not settle it,
    it is split in two.

    The lowest bound of all open ranges is a lower bound of the optimum.
    """
    counts = class_problem(problem.pair, problem.classes, problem.n_stages, problem.n_replicas)
    best, best_s, evaluations = first.best, first.best_s, first.evaluations
    ranges: list[_Range] = []
    initial = _initial_ranges(problem, best_s)
    latest = replace(first, operator="solver", complete=False)
    while (one := (yield from _wait(problem.background_tasks.run(lambda: next(initial, None)), latest))) is not None:
        ranges.append(one)
        yield latest
    heapify(ranges)
    if not ranges:
        yield Generation(best, best_s, evaluations, operator="solver", bound_s=best_s)
    seed = int(rng.integers(1 << 31))
    while ranges:
        bound_s, low_s, high_s, effort, hops_s = heappop(ranges)
        hint = counts.counts(best)
        solver = ClassSolver(counts, low_s, high_s, best_s, hint, effort, seed, hops_s, problem.background_tasks)
        try:
            while not solver.wait(POLL_S):
                yield Generation(best, best_s, evaluations, operator="solver", bound_s=bound_s, complete=False)
        finally:
            solver.close()
        result = solver.result
        if result.counts is not None:
            grid = problem.rematched(counts.placement(result.counts))
            evaluations += 1
            # The solver counts in rounded units, so the true cost decides.
            if (cost_s := problem.cost(grid)) < best_s:
                best, best_s = grid, cost_s
        if not result.done:
            bound_s = max(bound_s, result.bound_s)
            middle_s = 0.5 * (low_s + min(high_s, best_s))
            # A longer limit for narrower ranges: what is left is harder.
            heappush(ranges, (bound_s, low_s, middle_s, effort * 1.5, hops_s))
            heappush(ranges, (max(bound_s, middle_s), middle_s, high_s, effort * 1.5, hops_s))
        ranges = [one for one in ranges if one[0] < best_s * (1 - PROVEN)]
        heapify(ranges)
        # The worst range decides the bound of all, and the heap has it first.
        bound_s = ranges[0][0] if ranges else best_s
        yield Generation(best, best_s, evaluations, operator="solver", bound_s=bound_s)


def _initial_ranges(problem: Problem, best_s: float) -> Iterator[_Range]:
    """Yield the initial ranges of data-parallel cost. Ranges that a quick bound excludes are left out."""
    n_stages, n_replicas = problem.n_stages, problem.n_replicas
    if n_stages == 1 or problem.n_devices > DEVICES_UP_TO:
        yield problem.bound_s, 0.0, best_s, EFFORT, ()
        return
    ends_s = np.linspace(0.0, best_s, RANGES + 1).tolist()
    for low_s, high_s in pairwise(ends_s):
        hops_s = least_hops_s(problem.pair, n_stages, n_replicas, high_s)
        if hops_s is not None and (bound_s := low_s + sum(hops_s)) < best_s:
            yield max(problem.bound_s, bound_s), low_s, high_s, EFFORT, hops_s


def _search_and_bound(problem: Problem, first: Generation, rng: np.random.Generator) -> Iterator[Generation]:
    """Alternate between the evolutionary search, which finds cheaper placements, and the bound, which rises after each
    generation. The bound starts after a head start."""
    bounds: Iterator[float] | None = None
    bound_s, steps = problem.bound_s, 0

    def combined(found: Generation) -> Generation:
        """Return a generation of the evolutionary search with the proven bound. Its best placement is replaced by the
        first one if that is cheaper."""
        if found.best_s > first.best_s:
            found = replace(found, best=first.best, best_s=first.best_s)
        evaluations = first.evaluations + found.evaluations
        return replace(found, bound_s=min(bound_s, found.best_s), evaluations=evaluations)

    for found in planners["evolutionary"](problem, rng):
        # A lower incumbent excludes more, so the search comes first.
        if steps >= HEAD_START and found.complete:
            if bounds is None:
                upper_s = min(first.best_s, found.best_s)
                bounds = increasing_bounds(problem.pair, problem.n_stages, problem.n_replicas, upper_s)
            next_bound = problem.background_tasks.run(partial(next, bounds, None))
            next_s = yield from _wait(next_bound, combined(found))
            if next_s is None:
                return
            bound_s = max(bound_s, next_s)
        steps += not found.compiling_s  # results must not depend on how long kernels take to compile
        yield combined(found)


def _wait(task: BackgroundTask[T], latest: Generation) -> Generator[Generation, None, T]:
    """Yield the latest generation repeatedly, as incomplete, until the task is done. Return its result."""
    while not task.wait(POLL_S):
        yield replace(latest, complete=False)
    return task.result
