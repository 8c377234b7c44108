"""The best placement of few devices by enumeration of all groups and branch and bound over their chains."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.cost import PairCosts, align, group_costs

GROUPS_UP_TO = 1500
"""Most groups to enumerate chains of; their matchings take (groups)^2 memory and time."""
COMBINATIONS_UP_TO = 50_000
"""Most groups to price."""
STEPS = 300_000
"""Chains extended between two yields, which takes some milliseconds."""


@dataclass(frozen=True, eq=False)
class Enumeration:
    """Progress of the enumeration."""

    grid: IntArray | None
    """(S, D) cheapest placement below the limit so far; None while there is none."""
    cost_s: float
    """Its cost in seconds, or the limit."""
    done: bool
    """Whether the enumeration is complete: nothing cheaper exists."""


def candidate_groups(pair: PairCosts, n_replicas: int, below_s: float) -> tuple[IntArray, FloatArray] | None:
    """(G, D) all groups that synchronise in less than ``below_s``, cheapest first, and their (G,) costs.

    None where there are too many.
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
) -> Iterator[Enumeration]:
    """Search for the cheapest chain of S of the groups that costs less than ``below_s``, in short steps.

    A partial chain is pruned when its slowest group, its hops and the cheapest hop for each missing stage cost no
    less than the incumbent.
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
        yield Enumeration(grid, found_s, depth < 0)
    if not len(groups):
        yield Enumeration(None, below_s, True)
