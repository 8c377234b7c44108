"""The order of events: devices come and leave in turns, and at one instant leaving stands before coming."""

import numpy as np

from dtfm_lab.domain.units import BoolArray, FloatArray, IntArray


def in_turns(time_s: FloatArray, device: IntArray, comes: BoolArray) -> tuple[IntArray, int | None]:
    """Events in order, and the first at which a device comes while it is there, or leaves while it is not; None where
    there is none. Left out is who comes and leaves at one instant, and was not there before."""
    by_device = np.lexsort((comes, time_s, device))
    of, at_s, coming = device[by_device], time_s[by_device], comes[by_device]
    step = np.where(coming, 1, -1)
    first = np.append(True, of[1:] != of[:-1])[: len(of)]
    before = np.cumsum(step) - step
    there = before + step - np.repeat(before[first], np.diff(np.append(np.flatnonzero(first), len(of))))
    same = (of[1:] == of[:-1]) & (at_s[1:] == at_s[:-1]) & ~coming[:-1] & coming[1:] & (there[:-1] == -1)
    never = np.append(same, False)[: len(of)] | np.append(False, same)[: len(of)]
    order = np.lexsort((comes, time_s))
    if never.any():
        kept = np.ones(len(of), dtype=bool)
        kept[by_device[never]] = False
        order = order[kept[order]]
    wrong = np.flatnonzero(~never & ((there < 0) | (there > 1)))
    return order, int(by_device[wrong[np.argmin(at_s[wrong])]]) if len(wrong) else None
