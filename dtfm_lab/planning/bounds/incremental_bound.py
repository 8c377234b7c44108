"""The bound of a search that goes on: raised between generations, for a small share of the time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice

import numpy as np

from dtfm_lab.planning.bounds.bound_search import least_hops_s, rising_bounds
from dtfm_lab.planning.cost import PairCosts
from dtfm_lab.planning.jit_warmup import warm
from dtfm_lab.planning.problem import Generation, Problem

SHARE = 0.2
"""of a search's seconds"""
TURN_S = 0.03
"""a turn ends with the first step that ends later"""
STEPS_A_TURN = 8
"""where a search is counted and not timed"""
MOST_EFFORT = 0.04
"""keeps one question to the solver, which nothing interrupts, within tenths of a second"""


class RaisedBound:
    """Seconds that no placement undercuts; what the planner proves itself counts too, and then stands alone.

    A timed search spends ``SHARE`` of its time on it. One that counts steps gives the k-th turn after its generation
    k x k, counted from 1, so that equal steps prove equal bounds. One that is not ``raising`` spends none.
    """

    def __init__(self, problem: Problem, timed: bool, raising: bool = True) -> None:
        self.bound_s = problem.bound_s
        self._problem, self._timed, self._raising = problem, timed, raising
        self._steps: Iterator[float] | None = None
        self._turns = 0
        self._spent_s = 0.0

    def after(self, found: Generation, generation: int, elapsed_s: float) -> float:
        """The bound after one more generation, or after a look at it when it is not whole."""
        if found.bound_s is not None:
            self.bound_s = max(self.bound_s, found.bound_s)
        elif self._raising and found.whole and self.bound_s < found.best_s:
            self._rise(found.best_s, generation, elapsed_s)
        self.bound_s = min(self.bound_s, found.best_s)
        return self.bound_s

    def _rise(self, best_s: float, generation: int, elapsed_s: float) -> None:
        if generation < (1 if self._timed else (self._turns + 1) ** 2):
            return  # the first plan, and the compiling of the planner's kernels, come before any bound
        ready = warm(rehearse)
        if self._timed and (ready.is_alive() or self._spent_s > SHARE * elapsed_s):
            return
        ready.join()
        if self._steps is None:
            problem = self._problem
            self._steps = rising_bounds(
                problem.pair, problem.n_stages, problem.n_replicas, best_s, MOST_EFFORT, problem.bound_s
            )
        self._turns += 1
        began = time.perf_counter()
        for bound_s in islice(self._steps, None if self._timed else STEPS_A_TURN):
            self.bound_s = max(self.bound_s, bound_s)
            if self._timed and time.perf_counter() - began > TURN_S:
                break
        self._spent_s += time.perf_counter() - began


def rehearse(problem: Problem) -> None:
    """Loads the solver and compiles what bounds need, for ``warmth``."""
    for _ in islice(rising_bounds(problem.pair, problem.n_stages, problem.n_replicas, 100.0), 3):
        pass
    apart = 1.0 + np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0)))
    least_hops_s(PairCosts(group_s=apart, hop_s=apart), 3, 2, 4.0)
