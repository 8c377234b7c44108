"""Rows that come one by one: shown as they come, kept where a person stops them."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TypeVar

from pandas import DataFrame

T = TypeVar("T")


def received(rows: Iterator[T], progress: Callable[[T], object] | None, newest: int | None = None) -> deque[T]:
    """All rows, or the ``newest`` so many; ``progress`` is called with each as it arrives. Ctrl-C gives those so far.

    The stream is closed at the end, before the executor that its rows come from.
    """
    kept: deque[T] = deque(maxlen=newest)
    try:
        for row in rows:
            kept.append(row)
            if progress is not None:
                progress(row)
    except KeyboardInterrupt:
        if not kept:
            raise
    finally:
        if isinstance(rows, Generator):
            rows.close()
    return kept


def table_of(
    rows: Iterator[T], table: Callable[[Iterable[T]], DataFrame], progress: Callable[[T], object] | None
) -> DataFrame:
    """The table of all rows, see ``received``."""
    return table(received(rows, progress))
