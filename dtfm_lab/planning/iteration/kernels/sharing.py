"""How many micro-batches each pipeline gets, so that the last one ends as early as can be."""

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray


@compiled
def share_out(begins: FloatArray, each: FloatArray, total: int, shares: FloatArray) -> float:
    """Fill ``shares`` (R,) with whole micro-batches, one or more each, ``total`` in all.

    Pipeline r takes ``begins[r] + each[r] x shares[r]`` seconds. Returned are the seconds with fractions of
    micro-batches, which no whole ones undercut.
    """
    n = len(each)
    rate, ahead = 0.0, 0.0
    for r in range(n):
        rate += 1.0 / each[r]
        ahead += begins[r] / each[r]
    even_s = (total + ahead) / rate
    low, high = even_s, even_s + each.max()
    while True:  # pipelines so slow that one micro-batch is too much for them
        n_done = 0.0
        for r in range(n):
            n_done += max(1.0, np.floor((high - begins[r]) / each[r]))
        if n_done >= total:
            break
        low, high = high, 2 * high - even_s + 1e-12 * abs(high)
    for _ in range(24):
        middle = 0.5 * (low + high)
        n_done = 0.0
        for r in range(n):
            n_done += max(1.0, np.floor((middle - begins[r]) / each[r]))
        if n_done >= total:
            high = middle
        else:
            low = middle
    n_done = 0.0
    for r in range(n):
        shares[r] = max(1.0, np.floor((high - begins[r]) / each[r]))
        n_done += shares[r]
    while n_done > total:
        worst, worst_s = -1, -np.inf
        for r in range(n):
            end_s = begins[r] + each[r] * shares[r]
            if shares[r] > 1.0 and end_s > worst_s:
                worst, worst_s = r, end_s
        excess = 1.0
        shares[worst] -= excess
        n_done -= excess
    return even_s
