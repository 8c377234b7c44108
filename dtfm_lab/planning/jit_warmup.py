"""Compiles kernels in the background, so that a search yields a first placement before they are ready."""

import os
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

_tasks: dict[Callable[..., object], BackgroundTask[object]] = {}
_lock = threading.Lock()


def _forget() -> None:
    """In a forked process: the threads that loaded kernels were not forked, so no task of theirs ever ends."""
    global _lock
    _lock = threading.Lock()
    for key in [key for key, task in _tasks.items() if not task.wait(0.0)]:
        del _tasks[key]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def start_compiling(compile_kernels: CompileKernels) -> BackgroundTask[object]:
    """The task that loads numba and compiles a planner's kernels, or loads them from its cache."""
    return start_once(compile_kernels, partial(compile_kernels, _small_problem()))


def start_once(key: Callable[..., object], work: Callable[[], object]) -> BackgroundTask[object]:
    """The task that does this work, which compiles kernels; started once a process for each key."""
    with _lock:
        if key not in _tasks:
            _tasks[key] = BackgroundTask(work, "dtfm-lab compiles")
        return _tasks[key]


def is_done(key: Callable[..., object]) -> bool:
    """Whether the task of this key was started and has ended."""
    return key in _tasks and _tasks[key].wait(0.0)


def while_compiling(key: Callable[..., object], work: Callable[[], object]) -> Iterator[float]:
    """Yield the seconds waited so far, every POLL_S, until the kernels are compiled; raise what compiling raised.

    The last are all seconds: numba holds the interpreter, so that the last look may come long after the one before.
    """
    began = time.perf_counter()
    task = start_once(key, work)
    was_ready = task.wait(0.0)
    while not task.wait(POLL_S):
        yield time.perf_counter() - began
    try:
        _ = task.result
    except BaseException:
        _tasks.pop(key, None)  # another search may have waited for it too
        raise
    if not was_ready:
        yield time.perf_counter() - began


def wait_for_kernels(first: Generation, compile_kernels: CompileKernels) -> Iterator[Generation]:
    """Yield ``first`` again and again, as incomplete generations, until the kernels are compiled.

    Each has the seconds waited in ``compiling_s``. Time limits do not count them, since a machine compiles only once.
    """
    for waited_s in while_compiling(compile_kernels, partial(compile_kernels, _small_problem())):
        yield replace(first, complete=False, compiling_s=waited_s)


def _small_problem() -> Problem:
    costs = 1.0 - np.eye(4)
    return Problem(pair=PairCosts(group_s=costs, hop_s=costs.copy()), n_stages=2, n_replicas=2, bound_s=0.0)
