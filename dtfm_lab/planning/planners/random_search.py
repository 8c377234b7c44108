"""Random search: the baseline that every other planner must beat."""

from collections import deque
from collections.abc import Iterator

import numpy as np

from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.cost import align
from dtfm_lab.planning.problem import SHOWN, Generation, Individual, Population, Problem, planners, wait_for_kernels

WORDS = "a random placement, with the best pairing of pipelines and the best order of stages"
RULE = "Only the best is kept. The others are some of the placements that were tried."


@planners.register("random")
def random_search(problem: Problem, rng: np.random.Generator) -> Iterator[Generation]:
    """Try random groups endlessly, each with the best pairing of its pipelines and its stages in the best order that
    was found."""
    n, n_stages, d = problem.n_tasklets, problem.n_stages, problem.n_replicas
    begin = problem.grid(rng.permutation(problem.n_devices)) if problem.start is None else problem.start
    best = problem.rematched(begin)
    first = Generation(best, problem.cost(best), 1, operator="chance" if problem.start is None else "start")
    yield first
    yield from wait_for_kernels(first, compile_kernels)
    from dtfm_lab.planning.kernels.partition import price, pricing  # imports numba, which takes a while

    prices = pricing(problem.pair.group_s, problem.pair.hop_s, n_stages, d, n_stages + 1)
    group_of, stage_of = np.empty(problem.n_devices, dtype=np.int64), np.repeat(np.arange(n_stages), d)
    best_s, evaluations, cost_s, found_as = first.best_s, 1, first.best_s, 1
    tried: deque[Individual] = deque(maxlen=SHOWN - 1)

    def held() -> Population:
        """Return the best placement, then up to ``SHOWN`` - 1 others, cheapest first. Each call records the newest
        placement unless it is the best. The others are the latest ones recorded."""
        if evaluations != found_as:
            tried.append(_individual(evaluations, align(prices.groups, prices.order, problem.pair.hop_s), cost_s))
        others = sorted((one for one in tried if one.number != found_as), key=lambda one: one.cost_s)
        shown = _individual(found_as, best, best_s), *others
        return Population(individuals=shown, rule=RULE)

    while True:
        group_of[:] = n_stages
        group_of[rng.permutation(problem.n_devices)[:n]] = stage_of
        cost_s = price(prices, group_of)
        evaluations += 1
        if cost_s < best_s:
            best, best_s = align(prices.groups, prices.order, problem.pair.hop_s), cost_s
            found_as = evaluations
        yield Generation(best, best_s, evaluations, operator="chance", held=held)


def _individual(number: int, grid: IntArray, cost_s: float) -> Individual:
    return Individual(number=number, grid=grid, cost_s=cost_s, operator="chance", words=WORDS)


def compile_kernels(problem: Problem) -> None:
    """Call every kernel once to compile it, see ``background_tasks``."""
    from dtfm_lab.planning.kernels.partition import price, pricing

    price(pricing(problem.pair.group_s, problem.pair.hop_s, 2, 2, 3), np.repeat(np.arange(2), 2))
