"""Tightens the lower bound between the generations of a search, for a small share of the search's time."""

import time
from collections.abc import Iterator
from itertools import islice

import numpy as np

from dtfm_lab.planning.bounds.bound_search import increasing_bounds, least_hops_s
from dtfm_lab.planning.cost import PairCosts
from dtfm_lab.planning.jit_warmup import start_compiling
from dtfm_lab.planning.problem import Generation, Problem

SHARE = 0.2
"""Largest share of a timed search's seconds that is spent on the bound."""
TURN_S = 0.03
"""Seconds of one turn of a timed search, or a little more: a step is not interrupted."""
STEPS_A_TURN = 8
"""Steps of one turn in a search that is limited by steps."""
MOST_EFFORT = 0.04
"""Most effort for one question to the solver, which cannot be interrupted: some tenths of a second."""


class IncrementalBound:
    """The lower bound of one search in seconds; a planner that proves bounds itself replaces its turns.

    A timed search spends at most ``SHARE`` of its time on it. One that counts steps gives the k-th turn after its
    generation k x k, counted from 1, so that equal steps prove equal bounds. One that is not ``enabled`` spends none.
    """

    def __init__(self, problem: Problem, timed: bool, enabled: bool = True) -> None:
        self.bound_s = problem.bound_s
        self._problem, self._timed, self._enabled = problem, timed, enabled
        self._steps: Iterator[float] | None = None
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
        compiling = start_compiling(compile_kernels)
        if self._timed and (not compiling.wait(0) or self._spent_s > SHARE * elapsed_s):
            return
        compiling.join()
        if self._steps is None:
            problem = self._problem
            self._steps = increasing_bounds(
                problem.pair, problem.n_stages, problem.n_replicas, best_s, MOST_EFFORT, problem.bound_s
            )
        self._turns += 1
        began = time.perf_counter()
        for bound_s in islice(self._steps, None if self._timed else STEPS_A_TURN):
            self.bound_s = max(self.bound_s, bound_s)
            if self._timed and time.perf_counter() - began > TURN_S:
                break
        self._spent_s += time.perf_counter() - began


def compile_kernels(problem: Problem) -> None:
    """Import the solver and call every kernel of the bounds once, see ``jit_warmup``."""
    for _ in islice(increasing_bounds(problem.pair, problem.n_stages, problem.n_replicas, 100.0), 3):
        pass
    apart = 1.0 + np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0)))
    least_hops_s(PairCosts(group_s=apart, hop_s=apart), 3, 2, 4.0)
