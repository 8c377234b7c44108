"""What the Gantt canvas draws, as columns: bars, messages and the critical path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

NO_BAR = -1
FIRST_MESSAGE = -2
"""In ``after``, message m is written as FIRST_MESSAGE - m."""


class Bars(NamedTuple):
    """Columns of a chart, one entry a bar; the dtypes are what the view reads."""

    start: np.ndarray
    end: np.ndarray
    row: np.ndarray
    kind: np.ndarray
    microbatch: np.ndarray
    """-1 where there is none."""
    stage: np.ndarray

    @classmethod
    def of(
        cls,
        start: npt.ArrayLike,
        end: npt.ArrayLike,
        row: npt.ArrayLike,
        kind: npt.ArrayLike,
        microbatch: npt.ArrayLike,
        stage: npt.ArrayLike | None = None,
    ) -> Bars:
        given = np.zeros(np.size(start)) if stage is None else stage
        return cls(*_typed((start, end, row, kind, microbatch, given), ("<f4", "<f4", "<u2", "<u1", "<i4", "<u2")))

    @classmethod
    def concatenate(cls, parts: Sequence[Bars]) -> Bars:
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True))) if parts else NO_BARS

    def ordered(self) -> tuple[Bars, np.ndarray]:
        """Sorted by row, then start, as the view's binary searches need it; and where each bar came from."""
        order = np.lexsort((self.start, self.row))
        return Bars(*(column[order] for column in self)), order

    def buffers(self) -> list[bytes]:
        return [column.tobytes() for column in self]


class Messages(NamedTuple):
    """One entry a message, in the order in which they leave."""

    source: np.ndarray
    """Rows."""
    target: np.ndarray
    """Rows."""
    leaves: np.ndarray
    arrives: np.ndarray
    kind: np.ndarray
    microbatch: np.ndarray
    """-1 where there is none."""

    @classmethod
    def of(cls, *columns: npt.ArrayLike) -> Messages:
        return cls(*_typed(columns, ("<u2", "<u2", "<f4", "<f4", "<u1", "<i4")))


class CriticalPath(NamedTuple):
    """Where the critical path goes, in order of time: along a row, and straight on to the next entry's beginning."""

    row: np.ndarray
    start: np.ndarray
    end: np.ndarray
    bar: np.ndarray
    """The bar of each entry; NO_BAR for a message that is not drawn."""

    @classmethod
    def of(cls, *columns: npt.ArrayLike) -> CriticalPath:
        return cls(*_typed(columns, ("<u2", "<f4", "<f4", "<i4")))


def _typed(columns: Sequence[npt.ArrayLike], dtypes: Sequence[str]) -> list[np.ndarray]:
    return [np.asarray(c).astype(d, copy=True).ravel() for c, d in zip(columns, dtypes, strict=True)]


NO_BARS = Bars.of([], [], [], [], [])
NO_MESSAGES = Messages.of([], [], [], [], [], [])
NO_PATH = CriticalPath.of([], [], [], [])
