"""Compiles kernels in the background, so that a search yields a first placement before they are ready."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from dtfm_lab.planning.background_tasks import BackgroundTask
from dtfm_lab.planning.cost import PairCosts
from dtfm_lab.planning.problem import Generation, Problem

POLL_S = 0.05
"""Seconds between two yields while kernels are compiled."""

CompileKernels = Callable[[Problem], object]
"""A function that calls every kernel of a planner once, on a small problem, with arguments of the final types."""

_tasks: dict[CompileKernels, BackgroundTask[object]] = {}
_lock = threading.Lock()


def start_compiling(compile_kernels: CompileKernels) -> BackgroundTask[object]:
    """The task that loads numba and compiles the kernels, or loads them from its cache; started once a process."""
    costs = 1.0 - np.eye(4)
    problem = Problem(pair=PairCosts(group_s=costs, hop_s=costs.copy()), n_stages=2, n_replicas=2, bound_s=0.0)
    with _lock:
        if compile_kernels not in _tasks:
            _tasks[compile_kernels] = BackgroundTask(partial(compile_kernels, problem), "dtfm-lab compiles")
        return _tasks[compile_kernels]


def wait_for_kernels(first: Generation, compile_kernels: CompileKernels) -> Iterator[Generation]:
    """Yield ``first`` again and again, as incomplete generations, until the kernels are compiled.

    Each has the seconds waited in ``compiling_s``. Time limits do not count them, since a machine compiles only once.
    """
    task, began = start_compiling(compile_kernels), time.perf_counter()
    while not task.wait(0):
        task.wait(POLL_S)
        yield replace(first, complete=False, compiling_s=time.perf_counter() - began)
    try:
        _ = task.result
    except BaseException:
        _tasks.pop(compile_kernels, None)  # another search may have waited for it too
        raise
