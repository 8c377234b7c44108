"""Depth-first branch and bound over all chains of groups, compiled. A chain is one group per stage, in the order of the
stages."""

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.kernels.coarsened_graph import bottleneck


@compiled
def weigh_disjoint(
    hop_s: FloatArray, groups: IntArray, masks: IntArray, enough_s: float, weights_s: FloatArray
) -> None:
    """Fill (G, G) ``weights_s`` with the cost of a hop between every two of the (G, D) groups: their bottleneck
    matching.

    The cost is infinite if the groups share a device, by the (G,) bit masks, or if it exceeds ``enough_s``.
    """
    n_replicas = groups.shape[1]
    reals = np.empty((n_replicas + 2, n_replicas))
    row_of = np.empty(n_replicas, dtype=np.int64)
    for a in range(len(groups)):
        weights_s[a, a] = np.inf
        for b in range(a + 1, len(groups)):
            weight = np.inf
            # Groups that share a device cannot be two stages.
            if not masks[a] & masks[b]:
                weight = bottleneck(hop_s, groups[a], groups[b], enough_s, reals, row_of)
            weights_s[a, b] = weights_s[b, a] = weight if weight <= enough_s else np.inf


@compiled
def search_chains(
    cost_s: FloatArray,
    masks: IntArray,
    weights_s: FloatArray,
    dearer: IntArray,
    at: IntArray,
    chain: IntArray,
    best_chain: IntArray,
    best_s: FloatArray,
    depth: int,
    n_steps: int,
) -> int:
    """Continue the search for ``n_steps`` steps. Return the depth for the next call, or -1 when it is complete.

    A chain and its reverse cost the same. Only the one that starts with the smaller index can become
    the best one.

    Parameters
    ----------
    cost_s, masks, weights_s
        (G,) synchronisation cost of each group in seconds, cheapest first, (G,) its devices as a bit mask, and (G, G)
        cost of the hop between every two groups in seconds.
    dearer
        (G, G) In row g, all groups by rising cost of the hop from group g.
    at, chain
        (S,) position of the search at each depth, and (S,) group of each stage. Zeros at first.
    best_chain, best_s
        (S,) cheapest chain so far, and (1,) its cost in seconds. Until there is one, ``best_s`` is the cost to beat.
    """
    n_groups, n_stages = len(cost_s), len(at)
    # Every hop still to come costs at least this.
    least_s = weights_s.min() if n_stages > 1 else 0.0
    slowest, path, used = np.zeros(n_stages), np.zeros(n_stages), np.zeros(n_stages, dtype=np.int64)
    # Rebuilt from the chain, so that a search can pause between calls.
    for d in range(depth):
        group = chain[d]
        slowest[d] = cost_s[group] if d == 0 else max(slowest[d - 1], cost_s[group])
        path[d] = 0.0 if d == 0 else path[d - 1] + weights_s[chain[d - 1], group]
        used[d] = masks[group] if d == 0 else used[d - 1] | masks[group]
    for _ in range(n_steps):
        i = at[depth]
        rest_s = least_s * (n_stages - 1 - depth)
        if i == n_groups:
            if depth == 0:
                return -1
            depth -= 1
            at[depth] += 1
            continue
        if depth == 0:
            group = i
            slow, way, taken = cost_s[group], 0.0, masks[group]
            over = slow + rest_s >= best_s[0]  # groups are sorted by cost
        else:
            before = chain[depth - 1]
            group = dearer[before, i]
            slow = max(slowest[depth - 1], cost_s[group])
            way = path[depth - 1] + weights_s[before, group]
            taken = used[depth - 1] | masks[group]
            # The row is sorted by weight, so all later groups are over as well.
            over = slowest[depth - 1] + way + rest_s >= best_s[0]
            if not over and (used[depth - 1] & masks[group] or slow + way + rest_s >= best_s[0]):
                at[depth] += 1
                continue
        if over:
            at[depth] = n_groups
            continue
        chain[depth] = group
        if depth < n_stages - 1:
            slowest[depth], path[depth], used[depth] = slow, way, taken
            depth += 1
            at[depth] = 0
            continue
        # A chain and its reverse cost the same, so one of the two is enough.
        if chain[0] <= group:
            best_s[0] = slow + way
            best_chain[:] = chain
        at[depth] += 1
    return depth
