"""The best plan, with proof: by trying all groups of few devices, or by a constraint solver on classes of devices.

Few groups: every chain of them is tried. Few classes of interchangeable devices: the solver works on counts
(``counting``). Otherwise the usual search goes on, beside it the bound that rises (``rising``): that proves less, and
says how much.

Whatever may take long is an errand, so that somebody who watches, pauses or stops is heard every tenth of a second.
What the solver is being asked at that moment nothing interrupts but a stop of a question on counts: it is thought
through to its end, some seconds at most, and the answer kept for when the search goes on.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import TypeAlias, TypeVar

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.background_tasks import Errand
from dtfm_lab.planning.bounds.bound_search import DEVICES_UP_TO, least_hops_s, rising_bounds
from dtfm_lab.planning.bounds.class_counts import Question, counted
from dtfm_lab.planning.bounds.exhaustive import candidate_groups, exhaustive
from dtfm_lab.planning.bounds.lower_bound import least_hop_sum_s
from dtfm_lab.planning.planners.initial_placements import Structure
from dtfm_lab.planning.problem import Generation, Planner, Problem, planners

CLASSES_UP_TO = 16
"""classes of interchangeable devices that the solver is given"""
FOUNDERS = 6
"""structured placements to begin with"""
EFFORT = 2.0
"""the solver's deterministic time for a first question, about seconds"""
RANGES = 24
"""of data-parallel cost, to begin with"""
HEAD_START = 20
"""steps of the usual search, looks between generations too, before its best limits what the bound looks at"""
PROVEN = 1e-9
"""share of the cost; what is left below is rounding"""
LOOK_S = 0.1
"""how often somebody who watches hears that the solver is still at it"""

T = TypeVar("T")


_Range: TypeAlias = tuple[float, float, float, float, tuple[float, ...]]
"""bound, least and most data-parallel cost, effort to spend, and what the dearest hops cost at least"""


@planners.register("exact")
def exact(problem: Problem, rng: np.random.Generator) -> Iterator[Generation]:
    """Placements that end with the best, proven; ends there, or when nothing more can be proved."""
    best, best_s, evaluations = _begin(problem, rng)
    first = Generation(best, best_s, evaluations, operator="structure", bound_s=problem.bound_s)
    yield first
    if best_s <= problem.bound_s:
        return
    hops_s = least_hop_sum_s(problem.pair.hop_s, problem.n_stages, problem.n_replicas)
    looking = problem.errands.run(lambda: candidate_groups(problem.pair, problem.n_replicas, best_s - hops_s))
    few = yield from _meanwhile(looking, first)
    if few is not None:
        yield from _every_chain(problem, *few, best, best_s, evaluations)
    elif len(np.unique(problem.classes)) <= CLASSES_UP_TO:
        yield from _by_counts(problem, best, best_s, evaluations, rng)
    else:
        yield from _from_both_sides(replace(problem, start=best), best_s, evaluations, rng)


def _begin(problem: Problem, rng: np.random.Generator) -> tuple[IntArray, float, int]:
    shape = (problem.n_stages, problem.n_replicas)
    structure = Structure(problem, rng)
    rows, _ = structure.rows()
    grids = [row[: problem.n_tasklets].reshape(shape) for row in rows[:FOUNDERS]]
    if problem.start is not None:
        grids.append(problem.start)
    grids = [problem.repaired(grid) for grid in grids]
    cost_s = [problem.cost(grid) for grid in grids]
    cheapest = int(np.argmin(cost_s))
    return grids[cheapest], cost_s[cheapest], structure.n_priced + len(grids)


def _every_chain(
    problem: Problem, groups: IntArray, group_s: FloatArray, best: IntArray, best_s: float, evaluations: int
) -> Iterator[Generation]:
    chains = exhaustive(problem.pair, problem.n_stages, groups, group_s, best_s)
    look = Generation(best, best_s, evaluations, operator="every chain", bound_s=problem.bound_s)
    while (found := (yield from _meanwhile(problem.errands.run(lambda: next(chains, None)), look))) is not None:
        if found.grid is not None:
            best, best_s = found.grid, min(best_s, problem.cost(found.grid))
        bound_s = best_s if found.done else problem.bound_s
        look = Generation(best, best_s, evaluations, operator="every chain", bound_s=bound_s)
        yield look


def _by_counts(
    problem: Problem, best: IntArray, best_s: float, evaluations: int, rng: np.random.Generator
) -> Iterator[Generation]:
    """Ranges of data-parallel cost, the one with the least bound first; what is not settled is cut in two.

    The least bound of all ranges bounds the whole.
    """
    counts = counted(problem.pair, problem.classes, problem.n_stages, problem.n_replicas)
    ranges: list[_Range] = []
    cheap = _ranges(problem, best_s)
    look = Generation(best, best_s, evaluations, operator="solver", bound_s=problem.bound_s, whole=False)
    while (one := (yield from _meanwhile(problem.errands.run(lambda: next(cheap, None)), look))) is not None:
        ranges.append(one)
        yield look
    heapify(ranges)
    if not ranges:
        yield Generation(best, best_s, evaluations, operator="solver", bound_s=best_s)
    seed = int(rng.integers(1 << 31))
    while ranges:
        bound_s, low_s, high_s, effort, hops_s = heappop(ranges)
        hint = counts.counts(best)
        question = Question(counts, low_s, high_s, best_s, hint, effort, seed, hops_s, problem.errands)
        try:
            while not question.wait(LOOK_S):
                yield Generation(best, best_s, evaluations, operator="solver", bound_s=bound_s, whole=False)
        finally:
            question.close()
        answer = question.answer
        if answer.counts is not None:
            grid = problem.repaired(counts.placed(answer.counts))
            evaluations += 1
            if (cost_s := problem.cost(grid)) < best_s:
                best, best_s = grid, cost_s
        if not answer.done:
            bound_s = max(bound_s, answer.bound_s)
            middle_s = 0.5 * (low_s + min(high_s, best_s))
            heappush(ranges, (bound_s, low_s, middle_s, effort * 1.5, hops_s))
            heappush(ranges, (max(bound_s, middle_s), middle_s, high_s, effort * 1.5, hops_s))
        ranges = [one for one in ranges if one[0] < best_s * (1 - PROVEN)]
        heapify(ranges)
        bound_s = ranges[0][0] if ranges else best_s
        yield Generation(best, best_s, evaluations, operator="solver", bound_s=bound_s)


def _ranges(problem: Problem, best_s: float) -> Iterator[_Range]:
    """Ranges of data-parallel cost to begin with, where a cheap bound leaves something to find."""
    n_stages, n_replicas = problem.n_stages, problem.n_replicas
    if n_stages == 1 or problem.n_devices > DEVICES_UP_TO:
        yield problem.bound_s, 0.0, best_s, EFFORT, ()
        return
    ends_s = np.linspace(0.0, best_s, RANGES + 1).tolist()
    for low_s, high_s in pairwise(ends_s):
        hops_s = least_hops_s(problem.pair, n_stages, n_replicas, high_s)
        if hops_s is not None and (bound_s := low_s + sum(hops_s)) < best_s:
            yield max(problem.bound_s, bound_s), low_s, high_s, EFFORT, hops_s


def _from_both_sides(
    problem: Problem, best_s: float, evaluations: int, rng: np.random.Generator
) -> Iterator[Generation]:
    """The usual search from above; once it has had a start, the bound from below, step by step."""
    bounds: Iterator[float] | None = None
    bound_s, steps = problem.bound_s, 0
    for found in planners["evolutionary"](problem, rng):
        if steps >= HEAD_START and found.whole:
            if bounds is None:
                bounds = rising_bounds(problem.pair, problem.n_stages, problem.n_replicas, min(best_s, found.best_s))
            look = _beside(found, problem, best_s, bound_s, evaluations)
            risen_s = yield from _meanwhile(problem.errands.run(partial(next, bounds, None)), look)
            if risen_s is None:
                return
            bound_s = max(bound_s, risen_s)
        steps += not found.waited_s  # how long kernels take to compile must not decide what is proved
        yield _beside(found, problem, best_s, bound_s, evaluations)


def _beside(found: Generation, problem: Problem, best_s: float, bound_s: float, evaluations: int) -> Generation:
    """A generation of the usual search with what was known and proved beside it."""
    assert problem.start is not None
    if found.best_s > best_s:
        found = replace(found, best=problem.start, best_s=best_s)
    return replace(found, bound_s=min(bound_s, found.best_s), evaluations=evaluations + found.evaluations)


def _meanwhile(errand: Errand[T], look: Generation) -> Generator[Generation, None, T]:
    """The same look again and again until the errand is done; its result."""
    while not errand.wait(LOOK_S):
        yield replace(look, whole=False)
    return errand.result


_: Planner = exact
