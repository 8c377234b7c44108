"""Ends a search from another thread, in the middle of a compiled loop too."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Flag: TypeAlias = NDArray[np.uint8]
"""(1,): not 0 once the loop that reads it has to end. What it has found so far is what it returns."""

_heard: ContextVar[Flag] = ContextVar("_heard", default=np.zeros(1, np.uint8))  # noqa: B039, as nobody sets the default


class Cancellation:
    """Set by one thread, heard by the searches of another.

    A step of a search may take 0.3 seconds, too long where a hand waits for the next search to begin.
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
        """Within this block, compiled loops of the planners that this thread runs end once it is set.

        It gives a function that ends them after so many seconds, too.
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
    """Return what compiled loops of this thread have to look at."""
    return _heard.get()
