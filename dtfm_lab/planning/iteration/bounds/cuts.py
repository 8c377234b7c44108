"""Cuts of a network in two sides between which messages take long.

Whatever crosses such a cut pays for it: pipelines that cross pass no more micro-batches than the best link across
carries, and stages with devices on both sides average across. Any cut gives a valid bound. Good ones part groups of
devices that are near each other from all others, so candidates come from joining the nearest classes first.
"""

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.bounds.device_classes import DeviceClasses

LEAST_RATIO = 1.15
"""Least ratio of a message's seconds across a cut to those within a side for which the cut is tried."""
MOST_CUTS = 3


def cuts_of(classes: DeviceClasses, message_s: FloatArray) -> list[IntArray]:
    """(C,) sides, 0 or 1, of a few cuts, the one across which messages take longest first.

    ``message_s`` is (C, C). Groups are joined by the least time of the slower direction (single linkage).
    """
    n = len(classes.count)
    if n < 2:
        return []
    slower = np.maximum(message_s, message_s.T)
    group = np.arange(n)
    found: list[tuple[float, IntArray]] = []
    while (n_groups := len(np.unique(group))) > 1:
        apart = np.where(group[:, None] != group[None, :], slower, np.inf)
        joined_s = apart.min()
        for one in np.unique(group):
            inside = group == one
            across_s = slower[np.ix_(inside, ~inside)].min()
            if n_groups == 2 or across_s > joined_s:
                found.append((across_s, (~inside).astype(np.int64)))
        i, j = np.unravel_index(np.argmin(apart), apart.shape)
        group = np.where(group == group[j], group[i], group)
    return _ranked(found, slower, classes.count)


def _ranked(found: list[tuple[float, IntArray]], slower: FloatArray, count: IntArray) -> list[IntArray]:
    usual_s = np.median(np.repeat(np.where(np.isfinite(slower), slower, np.inf).min(axis=1), count))
    seen: set[tuple[int, ...]] = set()
    cuts: list[IntArray] = []
    for across_s, side in sorted(found, key=lambda one: -one[0]):
        side = side if side[0] == 0 else 1 - side
        if across_s < LEAST_RATIO * usual_s or tuple(side.tolist()) in seen or len(cuts) == MOST_CUTS:
            continue
        seen.add(tuple(side.tolist()))
        cuts.append(side)
    return cuts
