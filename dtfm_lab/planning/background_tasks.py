"""Threads that a planner starts, such as a constraint solver's: waited for in short steps, their CPU time counted."""

import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class BackgroundTask(Generic[T]):
    """A function running on a thread of its own, started when constructed; a search waits for it in short steps."""

    def __init__(self, work: Callable[[], T], name: str = "background task") -> None:
        self._work: Callable[[], T] | None = work
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._clock: int | None = None
        self._used_s = 0.0
        self._done = threading.Event()
        """Used instead of ``Thread.is_alive``: after an interrupt in ``join``, Python 3.11 reports a running thread
        as ended."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether the task is done, after at most so many seconds."""
        return self._done.wait(seconds)

    def join(self) -> None:
        """Wait until the task is done and its thread has ended."""
        self._done.wait()
        self._thread.join()

    @property
    def result(self) -> T:
        """What the function returned; raises what it raised. Available once the task is done."""
        if self._error is not None:
            raise self._error
        return self._result[0]

    @property
    def cpu_s(self) -> float:
        """CPU seconds so far; where the system cannot read another thread's clock, 0 until the task is done."""
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
            self._result.append(work())
        except BaseException as error:
            self._error = error
        finally:
            self._used_s = time.thread_time()
            self._done.set()


class BackgroundTasks:
    """All background tasks of one search."""

    def __init__(self) -> None:
        self._running: list[BackgroundTask[Any]] = []
        self._ended_cpu_s = 0.0

    def run(self, work: Callable[[], T], name: str = "background task") -> BackgroundTask[T]:
        """Start a task."""
        self._collect_ended()
        task = BackgroundTask(work, name)
        self._running.append(task)
        return task

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all tasks so far. Only the thread that runs the search may read it, between two steps."""
        self._collect_ended()
        return self._ended_cpu_s + sum(task.cpu_s for task in self._running)

    def _collect_ended(self) -> None:
        ended = [task for task in self._running if task.wait(0)]
        self._ended_cpu_s += sum(task.cpu_s for task in ended)
        self._running = [task for task in self._running if task not in ended]
