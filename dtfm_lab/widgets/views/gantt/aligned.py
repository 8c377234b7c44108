"""Two charts of one pipeline on one time axis: which bars are the same action, and how much later one ends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.units import format_s
from dtfm_lab.widgets.views.gantt.columns import Bars

MICROBATCH_BITS = 23


class Difference(NamedTuple):
    """How the lower of two charts differs from the upper one."""

    longer_s: float
    """Seconds by which the whole lower iteration is longer."""
    row: int
    """The row with the largest difference; -1 where no two bars are the same action."""
    most_s: float
    """Seconds by which the lower bar ends later there."""


def lateness_s(upper: Bars, lower: Bars) -> npt.NDArray[np.float32]:
    """(lower bars,) seconds by which each ends after the upper bar of the same action; NaN where there is none.

    The same action is the same row, kind, stage and micro-batch; of several, the first goes with the first.
    """
    late_s = np.full(len(lower.start), np.nan, dtype="<f4")
    _, above, below = np.intersect1d(*_keys(upper, lower), assume_unique=True, return_indices=True)
    late_s[below] = lower.end[below] - upper.end[above]
    return late_s


def difference(upper: Bars, lower: Bars) -> Difference:
    """Of two charts that begin together; neither may be empty."""
    late_s = lateness_s(upper, lower)
    longer_s = float(lower.end.max()) - float(upper.end.max())
    if np.isnan(late_s).all():
        return Difference(longer_s, -1, 0.0)
    at = int(np.nanargmax(np.abs(late_s)))
    return Difference(longer_s, int(lower.row[at]), float(late_s[at]))


def signed_s(seconds: float) -> str:
    """``+0.4 s``, ``−12 ms``"""
    return ("\u2212" if seconds < 0 else "+") + format_s(abs(seconds))


def signed_share(share: float) -> str:
    """``+1.2%``, ``−14.6%``"""
    return ("\u2212" if share < 0 else "+") + f"{abs(share):.1%}"


def _keys(upper: Bars, lower: Bars) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A number for each bar of either chart: none twice in one of them, the same in both for the same action."""
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
    """A number for each row, kind, stage and micro-batch."""
    row, kind, stage, microbatch = (
        column.astype(np.int64) for column in (bars.row, bars.kind, bars.stage, bars.microbatch)
    )
    return (((row << 8 | kind) << 16 | stage) << MICROBATCH_BITS) | (microbatch + 1)
