"""The communication cost of a placement after every exchange of two devices, compiled."""

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.kernels.coarsened_graph import bottleneck


@compiled
def exchange_costs(grid: IntArray, group_pair_s: FloatArray, hop_pair_s: FloatArray) -> FloatArray:
    """(N, N) seconds after devices a and b of the (S, D) grid change places, the stage order kept, pipelines paired
    anew; on the diagonal as it is, infinite for two devices of one group or two idle ones, where nothing changes.

    Each exchange touches two groups and at most four hops; only these are priced again. That is a few milliseconds for
    64 devices, so nothing cleverer, such as lower bounds of exchanges, is worth its code.
    """
    (n_stages, n_replicas), n = grid.shape, len(hop_pair_s)
    stage, replica = np.full(n, -1), np.full(n, -1)
    group_s, hop_s = np.empty(n_stages), np.zeros(n_stages)
    reals, row_of = np.empty((n_replicas + 2, n_replicas)), np.empty(n_replicas, np.int64)
    changed = grid.copy()
    for s in range(n_stages):
        for r in range(n_replicas):
            stage[grid[s, r]], replica[grid[s, r]] = s, r
        group_s[s] = _group_s(group_pair_s, grid[s])
        if s:
            hop_s[s] = bottleneck(hop_pair_s, grid[s - 1], grid[s], np.inf, reals, row_of)
    costs = np.full((n, n), np.inf)
    for a in range(n):
        costs[a, a] = group_s.max() + hop_s.sum()
        for b in range(a):
            if stage[a] == stage[b]:
                continue
            if stage[a] >= 0:
                changed[stage[a], replica[a]] = b
            if stage[b] >= 0:
                changed[stage[b], replica[b]] = a
            slowest_s, hops_s = 0.0, 0.0
            for s in range(n_stages):
                here = s == stage[a] or s == stage[b]
                slowest_s = max(slowest_s, _group_s(group_pair_s, changed[s]) if here else group_s[s])
                if s and (here or s - 1 == stage[a] or s - 1 == stage[b]):
                    hops_s += bottleneck(hop_pair_s, changed[s - 1], changed[s], np.inf, reals, row_of)
                else:
                    hops_s += hop_s[s]
            costs[a, b] = costs[b, a] = slowest_s + hops_s
            if stage[a] >= 0:
                changed[stage[a], replica[a]] = a
            if stage[b] >= 0:
                changed[stage[b], replica[b]] = b
    return costs


@compiled
def _group_s(pair_s: FloatArray, group: IntArray) -> float:
    """Seconds that a group synchronises: those of its slowest member, equation 2."""
    slowest_s = 0.0
    for a in group:
        own_s = 0.0
        for b in group:
            own_s += pair_s[a, b]
        slowest_s = max(slowest_s, own_s)
    return slowest_s
