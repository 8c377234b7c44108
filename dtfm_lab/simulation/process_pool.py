"""Many tasks, shared out to other processes where that is quicker, their results in order all the same."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future
from typing import TypeVar, TypeVarTuple

from dtfm_lab.domain.errors import RunError

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

WORTH_S = 6.0
"""of work left, from which on other processes are asked: they take two seconds to begin, and on two cores both ways
tie at some three and a half"""
AHEAD = 3
"""tasks that each process is given before the first of them is back: what is left behind when nobody asks on"""
SETTINGS = {"LOKY_MAX_MEMORY_LEAK_SIZE": "4e9"}
"""what a process may grow by before loky takes it for leaking and begins another: caches grow by hundreds of MB"""
LOOK_S = 0.5
"""between two looks of a process for the one that began it"""


def shared_out(
    function: Callable[[*Arguments], Result], tasks: Sequence[tuple[*Arguments]], workers: int | None = None
) -> Iterator[Result]:
    """What a function, one of a module's own, makes of each task, in their order.

    This process begins, and hands over to others when it sees that the rest takes long. They end with the
    iteration, however that ends, and with this process, however that dies. ``workers``: how many others at most,
    one for each core where None; 1 asks none. Raises RunError where one of them dies.
    """
    n_workers = min(_cores() if workers is None else workers, len(tasks))
    spent_s = 0.0
    for n_done, task in enumerate(tasks, start=1):
        begun_s = time.perf_counter()
        result = function(*task)
        spent_s += time.perf_counter() - begun_s
        if n_done == 1:
            spent_s = 0.0  # the first also loads what all need
        yield result
        if n_workers > 1 and spent_s / max(n_done - 1, 1) * (len(tasks) - n_done) > WORTH_S:
            yield from _elsewhere(function, tasks[n_done:], n_workers)
            return


def _elsewhere(
    function: Callable[[*Arguments], Result], tasks: Sequence[tuple[*Arguments]], n_workers: int
) -> Iterator[Result]:
    from loky import ProcessPoolExecutor  # 0.1 s, and most that is shared out is not worth it

    pool = ProcessPoolExecutor(n_workers, initializer=_settle, initargs=(os.getpid(),), env=SETTINGS)
    given: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            given.append(pool.submit(function, *task))
            if len(given) == AHEAD * n_workers:
                yield given.popleft().result()
        while given:
            yield given.popleft().result()
    except BrokenExecutor:
        raise RunError(
            f"one of {n_workers} worker processes died, for want of memory perhaps; wanted fewer, such as workers=1"
        ) from None
    finally:
        pool.shutdown(kill_workers=True)


def _settle(parent: int) -> None:
    """What a process does first: leave interrupts to the one that began it, and end when that is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: int) -> None:
    """A process that was killed cannot tell; having another parent does."""
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
