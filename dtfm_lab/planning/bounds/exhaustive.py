"""The best placement of few devices: every group there can be, and every chain of groups worth a look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.cost import PairCosts, align, group_costs, total_costs

GROUPS_UP_TO = 1500
"""groups worth a look; their matchings take (groups)^2 memory and time"""
COMBINATIONS_UP_TO = 50_000
STEPS = 300_000
"""chains extended between two yields, some milliseconds"""


@dataclass(frozen=True, eq=False)
class Found:
    """How far the search has got."""

    grid: IntArray | None
    """(S, D) the cheapest placement below the limit; None while there is none"""
    cost_s: float
    """its cost, or the limit"""
    done: bool
    """nothing cheaper exists"""


def candidate_groups(pair: PairCosts, n_replicas: int, below_s: float) -> tuple[IntArray, FloatArray] | None:
    """(G, D) all groups that synchronise in less than ``below_s``, cheapest first, and their (G,) costs.

    None where there are too many to look at.
    """
    n = len(pair.group_s)
    if comb(n, n_replicas) > COMBINATIONS_UP_TO or n > 62:
        return None
    groups = np.array(list(combinations(range(n), n_replicas)), dtype=np.int64)
    cost_s = group_costs(groups, pair.group_s)
    order = np.argsort(cost_s, kind="stable")
    order = order[cost_s[order] < below_s]
    return (groups[order], cost_s[order]) if len(order) <= GROUPS_UP_TO else None


def exhaustive(
    pair: PairCosts, n_stages: int, groups: IntArray, cost_s: FloatArray, below_s: float = np.inf
) -> Iterator[Found]:
    """The cheapest chain of S of the groups that costs less than ``below_s``, in short steps.

    A chain is left as soon as its slowest group, its hops and the cheapest of all hops for the rest come to no less
    than the best chain.
    """
    from dtfm_lab.planning.kernels.chains import search_chains, weigh_disjoint

    masks = (np.int64(1) << groups).sum(axis=1)
    weights_s = np.empty((len(groups), len(groups)))
    enough_s = below_s - (cost_s.min() if len(cost_s) else 0.0)
    weigh_disjoint(pair.hop_s, groups, masks, enough_s, weights_s)
    dearer = np.argsort(weights_s, axis=1, kind="stable")
    at, chain, best = (np.zeros(n_stages, dtype=np.int64) for _ in range(3))
    best_s, found_s = np.array([below_s]), below_s
    grid: IntArray | None = None
    depth = 0 if len(groups) else -1
    while depth >= 0:
        depth = search_chains(cost_s, masks, weights_s, dearer, at, chain, best, best_s, depth, STEPS)
        if best_s[0] < found_s:
            found_s = float(best_s[0])
            grid = align(groups[best], np.arange(n_stages), pair.hop_s)
        yield Found(grid, found_s, depth < 0)
    if not len(groups):
        yield Found(None, below_s, True)


def optimum(pair: PairCosts, n_stages: int, n_replicas: int) -> tuple[IntArray, float]:
    """(S, D) the best of all placements of few devices, some may stay idle, and its cost in seconds.

    Up to ten devices take milliseconds, whatever the shape.
    """
    candidates = candidate_groups(pair, n_replicas, np.inf)
    assert candidates is not None, "few devices have few groups"
    *_, last = exhaustive(pair, n_stages, *candidates)
    assert last.grid is not None, "without a limit there is a placement"
    return last.grid, float(total_costs(last.grid, pair))
