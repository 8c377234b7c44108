"""Threads of a planner's own, such as a solver's: to wait for in short steps, their CPU time counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Errand(Generic[T]):
    """Work on a thread of its own, begun when made; waited for in steps, so that who waits can show a sign of life."""

    def __init__(self, work: Callable[[], T], name: str = "errand") -> None:
        self._work: Callable[[], T] | None = work
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._clock: int | None = None
        self._used_s = 0.0
        self._done = threading.Event()
        """not ``Thread.is_alive``: an interrupt within ``join`` makes Python 3.11 take a running thread for ended"""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether it is done by then."""
        return self._done.wait(seconds)

    def join(self) -> None:
        """Wait until it is done and its thread has ended."""
        self._done.wait()
        self._thread.join()

    @property
    def result(self) -> T:
        """Once it is done. Raises what the work raised."""
        if self._error is not None:
            raise self._error
        return self._result[0]

    @property
    def cpu_s(self) -> float:
        """CPU seconds so far; where the system cannot read another thread's clock, 0 until it is done."""
        if not self._done.is_set() and self._clock is not None:
            try:
                return time.clock_gettime(self._clock)
            except OSError:  # it ended this moment
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


class Errands:
    """All errands of one search."""

    def __init__(self) -> None:
        self._under_way: list[Errand[Any]] = []
        self._done_s = 0.0

    def run(self, work: Callable[[], T], name: str = "errand") -> Errand[T]:
        """Begin one."""
        self._settle()
        errand = Errand(work, name)
        self._under_way.append(errand)
        return errand

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all of them so far. To be read by the thread that runs the search, between two steps."""
        self._settle()
        return self._done_s + sum(errand.cpu_s for errand in self._under_way)

    def _settle(self) -> None:
        ended = [errand for errand in self._under_way if errand.wait(0)]
        self._done_s += sum(errand.cpu_s for errand in ended)
        self._under_way = [errand for errand in self._under_way if errand not in ended]
