"""Bottleneck perfect matchings, compiled: the weight of an edge of the coarsened graph, equation 3."""

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray


@compiled
def bottleneck(
    hop_s: FloatArray, left: IntArray, right: IntArray, enough_s: float, reals: FloatArray, row_of: IntArray
) -> float:
    """Seconds of the dearest pair of the matching of ``left`` with ``right`` whose dearest pair is cheapest.

    ``row_of`` becomes, for each of ``right``, its partner's index in ``left``. As soon as the answer is
    known to exceed ``enough_s``, some number above ``enough_s`` is returned and ``row_of`` is undefined.

    Rows are matched one after the other along the augmenting path whose dearest pair is cheapest; a pair below
    the threshold, which only rises, costs nothing more.

    Parameters
    ----------
    reals
        (D + 2, D) scratch space.
    """
    n = len(left)
    reach = reals[n]
    before = reals[n + 1]
    threshold_s = 0.0
    for j in range(n):
        reach[j] = np.inf
        row_of[j] = -1
    for i in range(n):
        cheapest = np.inf
        for j in range(n):
            cost = hop_s[left[i], right[j]]
            reals[i, j] = cost
            cheapest = min(cheapest, cost)
            reach[j] = min(reach[j], cost)
        threshold_s = max(threshold_s, cheapest)
    for j in range(n):
        threshold_s = max(threshold_s, reach[j])
    if threshold_s > enough_s:
        return threshold_s
    for i in range(n):
        free = -1
        for j in range(n):
            if row_of[j] < 0 and reals[i, j] <= threshold_s:
                free = j
                break
        if free >= 0:
            row_of[free] = i
            continue
        for j in range(n):
            reach[j] = reals[i, j]
            before[j] = -1.0
        while True:
            nearest, at = np.inf, -1
            for j in range(n):
                if before[j] > -2.0 and reach[j] < nearest:
                    nearest, at = reach[j], j
                    if nearest <= threshold_s and row_of[j] < 0:
                        break
            threshold_s = max(threshold_s, nearest)
            if threshold_s > enough_s:
                return threshold_s
            if row_of[at] < 0:
                break
            row = row_of[at]
            came = before[at]
            before[at] = -2.0 - (came + 1.0)  # marks it as visited and keeps its predecessor in the same number
            for j in range(n):
                if before[j] > -2.0 and reals[row, j] < reach[j]:
                    reach[j] = reals[row, j]
                    before[j] = float(at)
        while True:
            came = before[at] if before[at] > -2.0 else -before[at] - 3.0
            if came < 0:
                row_of[at] = i
                break
            row_of[at] = row_of[int(came)]
            at = int(came)
    return threshold_s


@compiled
def coarsen(hop_s: FloatArray, groups: IntArray, weights_s: FloatArray, reals: FloatArray, row_of: IntArray) -> None:
    """Fill (S, S) ``weights_s`` with the bottleneck matchings of every two of the (S, D) groups."""
    for a in range(len(groups)):
        weights_s[a, a] = 0.0
        for b in range(a + 1, len(groups)):
            weights_s[a, b] = bottleneck(hop_s, groups[a], groups[b], np.inf, reals, row_of)
            weights_s[b, a] = weights_s[a, b]
