"""Two charts of one pipeline on one time axis: which bars are the same action, and how much later one ends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.units import format_s
from dtfm_lab.widgets.gantt_columns import Bars

MOST_TURNS = 127
"""bars of one action in a row that are told apart, by their order"""


class Difference(NamedTuple):
    """How the lower of two charts differs from the upper one."""

    longer_s: float
    """of the whole iteration"""
    row: int
    """where a bar is farthest from its counterpart; -1 where no two are of one action"""
    most_s: float
    """by how much it ends later there"""


def lateness_s(upper: Bars, lower: Bars) -> npt.NDArray[np.float32]:
    """(lower bars,) seconds by which each ends after the upper bar of the same action; NaN where there is none.

    The same action is the same row, kind, stage and micro-batch; of several, the first goes with the first.
    """
    known, sought = _keys(upper), _keys(lower)
    if not len(known) or not len(sought):
        return np.full(len(sought), np.nan, dtype="<f4")
    order = np.argsort(known)
    at = order[np.minimum(np.searchsorted(known[order], sought), len(known) - 1)]
    return np.where(known[at] == sought, lower.end - upper.end[at], np.nan).astype("<f4")


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


def _keys(bars: Bars) -> npt.NDArray[np.int64]:
    """A number for each bar, the same for the same action."""
    key = np.zeros(len(bars.start), dtype=np.int64)
    for column, bits in ((bars.row, 16), (bars.kind, 8), (bars.stage, 16), (bars.microbatch.astype(np.int64) + 1, 16)):
        key = (key << bits) | column.astype(np.int64)
    order = np.lexsort((bars.start, key))
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    turn = np.empty(len(key), dtype=np.int64)
    turn[order] = np.arange(len(key)) - np.repeat(first, np.diff(np.append(first, len(key))))
    return (key << 7) | np.minimum(turn, MOST_TURNS)
