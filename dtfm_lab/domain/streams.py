"""Rows that come one by one: shown as they come, kept where a person stops them."""

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TypeVar

from pandas import DataFrame

T = TypeVar("T")


def table_of(
    rows: Iterator[T], table: Callable[[Iterable[T]], DataFrame], progress: Callable[[T], object] | None
) -> DataFrame:
    """The table of all rows; ``progress`` is called with each as it arrives. Ctrl-C gives the rows so far.

    The stream is closed at the end, before the executor that its rows come from.
    """
    received: list[T] = []
    try:
        for row in rows:
            received.append(row)
            if progress is not None:
                progress(row)
    except KeyboardInterrupt:
        if not received:
            raise
    finally:
        if isinstance(rows, Generator):
            rows.close()
    return table(received)
