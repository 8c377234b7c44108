"""What the Gantt chart draws, as columns: bars, messages, the critical path, and how two charts differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

NO_BAR = -1
FIRST_MESSAGE = -2
"""In ``after``, message m is written as FIRST_MESSAGE - m."""


class Bars(NamedTuple):
    """Columns of a chart, one entry for each bar, of the dtypes that the page reads."""

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
        """Return the bars by row, then start, as the page's binary searches need them, and each one's index before."""
        order = np.lexsort((self.start, self.row))
        return Bars(*(column[order] for column in self)), order

    def buffers(self) -> list[bytes]:
        return [column.tobytes() for column in self]


class Messages(NamedTuple):
    """Columns of messages, one entry for each, in the order in which they leave."""

    source: np.ndarray
    """Rows of the senders."""
    target: np.ndarray
    """Rows of the receivers."""
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

MICROBATCH_BITS = 23


def lateness_s(upper: Bars, lower: Bars) -> npt.NDArray[np.float32]:
    """Return (lower bars,) seconds by which each ends after the upper bar of its action; NaN where there is none.

    Bars are of the same action where row, kind, stage and micro-batch are equal; of several, the first belongs to the
    first, the second to the second.
    """
    late_s = np.full(len(lower.start), np.nan, dtype="<f4")
    _, above, below = np.intersect1d(*_keys(upper, lower), assume_unique=True, return_indices=True)
    late_s[below] = lower.end[below] - upper.end[above]
    return late_s


def _keys(upper: Bars, lower: Bars) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return a number for each bar: unique within its chart, and equal in both charts for bars of the same action."""
    action, start = (
        np.concatenate(pair) for pair in zip(*((_actions(b), b.start) for b in (upper, lower)), strict=True)
    )
    side = np.repeat([0, 1], [len(upper.start), len(lower.start)])
    order = np.lexsort((start, side, action))
    at = np.arange(len(order))
    another = np.diff(action[order], prepend=-1) != 0
    begins = another | (np.diff(side[order], prepend=0) != 0)
    key = np.empty(len(order), dtype=np.int64)
    key[order] = (np.cumsum(another) << 32) | (at - np.maximum.accumulate(np.where(begins, at, 0)))
    return key[: len(upper.start)], key[len(upper.start) :]


def _actions(bars: Bars) -> npt.NDArray[np.int64]:
    """Return a number for each bar that is equal where row, kind, stage and micro-batch are."""
    row, kind, stage, microbatch = (
        column.astype(np.int64) for column in (bars.row, bars.kind, bars.stage, bars.microbatch)
    )
    return (((row << 8 | kind) << 16 | stage) << MICROBATCH_BITS) | (microbatch + 1)
