"""The baseline that every other planner must beat."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dtfm_lab.planning.problem import Generation, Planner, Problem, planners


@planners.register("random")
def random_search(problem: Problem, rng: np.random.Generator) -> Iterator[Generation]:
    """Endless random groups, each well paired and in the best order."""
    n, shape = problem.n_tasklets, (problem.n_stages, problem.n_replicas)
    best = rng.permutation(problem.n_devices)[:n].reshape(shape) if problem.start is None else problem.start
    best = problem.repaired(best)
    best_s, evaluations = problem.cost(best), 1
    while True:
        yield Generation(best, best_s, evaluations)
        candidate = problem.repaired(rng.permutation(problem.n_devices)[:n].reshape(shape))
        candidate_s = problem.cost(candidate)
        evaluations += 1
        if candidate_s < best_s:
            best, best_s = candidate, candidate_s


_: Planner = random_search
