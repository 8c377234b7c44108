"""Threads during a search: background work that a planner starts, and cancellation of a search.

A search waits for threads such as a constraint solver's in short steps and counts their CPU time. A ``Cancellation``
ends a search from another thread, even inside a compiled loop.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class BackgroundTask(Generic[T]):
    """A function that runs on a separate thread, started at construction. A search waits for it in short steps."""

    def __init__(self, work: Callable[[], T], name: str = "background task") -> None:
        self._work: Callable[[], T] | None = work
        self._future: Future[T] = Future()
        self._clock: int | None = None
        self._used_s = 0.0
        self._done = threading.Event()
        """Set once the task is done. It is used instead of ``Thread.is_alive``, because after an interrupt in ``join``,
        Python 3.11 reports a running thread as ended."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait up to this number of seconds. Return True if the task is done."""
        return self._done.wait(seconds)

    def join(self) -> None:
        """Wait until the task is done and its thread has ended."""
        self._done.wait()
        self._thread.join()

    @property
    def result(self) -> T:
        """Return what the function returned or raise what it raised. Waits until the task is done."""
        return self._future.result()

    @property
    def cpu_s(self) -> float:
        """CPU seconds so far. If the system cannot read another thread's clock, 0 until the task is done."""
        if not self._done.is_set() and self._clock is not None:
            try:
                return time.clock_gettime(self._clock)
            except OSError:  # the thread ended this moment
                self._done.wait(1.0)
        return self._used_s

    def _run(self) -> None:
        if hasattr(time, "pthread_getcpuclockid"):
            self._clock = time.pthread_getcpuclockid(threading.get_ident())
        work, self._work = self._work, None
        assert work is not None, "runs once"
        try:
            self._future.set_result(work())
        except BaseException as error:
            self._future.set_exception(error)
        finally:
            self._used_s = time.thread_time()
            self._done.set()


class BackgroundTasks:
    """All background tasks of one search."""

    def __init__(self) -> None:
        self._running: list[BackgroundTask[Any]] = []
        self._ended_cpu_s = 0.0

    def run(self, work: Callable[[], T], name: str = "background task") -> BackgroundTask[T]:
        """Start a task that calls ``work``, and return it. ``name`` is the name of its thread."""
        self._collect_ended()
        task = BackgroundTask(work, name)
        self._running.append(task)
        return task

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all tasks so far. Read it only on the thread that runs the search, between two steps."""
        self._collect_ended()
        return self._ended_cpu_s + sum(task.cpu_s for task in self._running)

    def _collect_ended(self) -> None:
        ended = [task for task in self._running if task.wait(0)]
        self._ended_cpu_s += sum(task.cpu_s for task in ended)
        self._running = [task for task in self._running if task not in ended]


Flag: TypeAlias = NDArray[np.uint8]
"""(1,) flag; non-zero tells the loop that reads it to end and return what it has found so far."""

_heard: ContextVar[Flag] = ContextVar("_heard", default=np.zeros(1, np.uint8))  # noqa: B039, it is never written


class Cancellation:
    """A request to stop, set by one thread and obeyed by the searches of another thread.

    Compiled loops obey it too. Otherwise a user could wait 0.3 seconds for a step to end before the next search begins.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._flag: Flag = np.zeros(1, np.uint8)

    def set(self) -> None:
        self._is_set = True
        self._flag[0] = 1

    def is_set(self) -> bool:
        return self._is_set

    @contextmanager
    def heard(self) -> Iterator[Callable[[float], None]]:
        """Within this block, compiled planner loops of this thread end once the cancellation is set.

        Yields a function that also ends them after the given number of seconds.
        """
        timers: list[threading.Timer] = []

        def end_after(seconds: float) -> None:
            timers.append(threading.Timer(max(0.0, seconds), self._flag.fill, (1,)))
            timers[-1].start()

        self._flag[0] = self._is_set
        token = _heard.set(self._flag)
        try:
            yield end_after
        finally:
            _heard.reset(token)
            for timer in timers:
                timer.cancel()


def flag() -> Flag:
    """Return the flag that compiled loops of this thread have to check."""
    return _heard.get()


# ---------------------------------------------------------------------------------------------------------------------
# Compiles kernels in the background, so that a search yields a first placement before they are ready.


POLL_S = 0.05
"""Seconds between two yields while kernels compile."""


_tasks: dict[Callable[..., object], BackgroundTask[object]] = {}
_lock = threading.Lock()


def _forget() -> None:
    """Drop unfinished tasks in a forked process. Their threads were not forked, so they would never end."""
    global _lock
    _lock = threading.Lock()
    for key in [key for key, task in _tasks.items() if not task.wait(0.0)]:
        del _tasks[key]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def start_once(key: Callable[..., object], work: Callable[[], object]) -> BackgroundTask[object]:
    """Return the task that runs ``work``, which compiles kernels. Only the first call with a key in this process starts
    it, unless compiling failed."""
    with _lock:
        if key not in _tasks:
            _tasks[key] = BackgroundTask(work, "dtfm-lab compiles")
        return _tasks[key]


def is_done(key: Callable[..., object]) -> bool:
    """True if the task of this key was started and has ended."""
    return key in _tasks and _tasks[key].wait(0.0)


def while_compiling(key: Callable[..., object], work: Callable[[], object]) -> Iterator[float]:
    """Yield the seconds waited so far, every POLL_S, until the kernels are compiled. Yields nothing if they are
    already. Raises what compiling raised.

    The last value is the total. While numba compiles, it holds the interpreter lock, so the last two checks may be far
    apart.
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
