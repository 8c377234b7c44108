"""Map a function over many tasks, in other processes where that is quicker, with the results in order.

The processes are loky's. Added here are the decision whether they are worth starting, and the check that ends them with
this process. With an executor of the caller's, its workers compute instead.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar, TypeVarTuple

from dtfm_lab.domain.errors import RunError
from dtfm_lab.simulation.executors import Executor, Lost, results_of

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

WORTHWHILE_S = 6.0
"""Seconds of work left from which other processes are started. They take two seconds to start, and on two cores both
ways tie at some three and a half."""
ENVIRONMENT = {"LOKY_MAX_MEMORY_LEAK_SIZE": "4e9"}
"""Growth in bytes beyond which loky replaces a process as leaking: our caches grow by hundreds of MB."""
PARENT_CHECK_S = 0.5
"""Seconds between two checks of a worker process whether its parent still runs."""


def map_in_order(
    function: Callable[[*Arguments], Result],
    tasks: Sequence[tuple[*Arguments]],
    workers: int | None = None,
    *,
    executor: Executor | None = None,
    named: Callable[[int], str] = "task {}".format,
    done: Callable[[int, Result], None] | None = None,
) -> Iterator[Result | Lost]:
    """Results of a module-level function for each task, in the order of the tasks.

    This process starts alone and moves the rest to other processes once it measures that the rest takes long. They
    end with the iterator, closed early or not, and with this process, even if it is killed. ``workers`` is the most
    processes to start: one for each core where None, none for 1. Raises RunError where one of them is lost.

    With an ``executor`` all tasks go there, as ``results_of`` describes, and a task may be Lost. ``done`` is called
    with the number of a task and its result as soon as it is there.
    """
    if executor is not None:
        yield from results_of(executor, function, tasks, named=named, done=done)
        return
    n_workers = min(_cores() if workers is None else workers, len(tasks))
    spent_s = 0.0
    for n_done, task in enumerate(tasks, start=1):
        started_s = time.perf_counter()
        result = function(*task)
        spent_s += time.perf_counter() - started_s
        if n_done == 1:
            spent_s = 0.0  # the first also loads what all need
        if done is not None:
            done(n_done - 1, result)
        yield result
        if n_workers > 1 and spent_s / max(n_done - 1, 1) * (len(tasks) - n_done) > WORTHWHILE_S:
            kept = None if done is None else partial(_shifted, done, n_done)
            yield from _in_processes(function, tasks[n_done:], n_workers, kept)
            return


def _shifted(done: Callable[[int, Result], None], first: int, number: int, result: Result) -> None:
    done(first + number, result)


def _in_processes(
    function: Callable[[*Arguments], Result],
    tasks: Sequence[tuple[*Arguments]],
    n_workers: int,
    done: Callable[[int, Result], None] | None = None,
) -> Iterator[Result]:
    from loky import ProcessPoolExecutor  # 0.1 s, and most calls do not need it

    pool = ProcessPoolExecutor(n_workers, initializer=_initialise, initargs=(os.getpid(),), env=ENVIRONMENT)
    try:
        for result in results_of(pool, function, tasks, done=done):
            if isinstance(result, Lost):
                raise RunError(
                    f"one of {n_workers} worker processes died, for want of memory perhaps; wanted fewer, such as "
                    "workers=1"
                )
            yield result
    finally:
        pool.shutdown(kill_workers=True)


def _initialise(parent: int) -> None:
    """Make a worker process ignore interrupts, which its parent handles, and exit when its parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _exit_with(parent: int) -> None:
    """Exit once the parent is another process: a parent that was killed sends no signal."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(1)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
