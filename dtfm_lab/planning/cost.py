"""What a placement costs: equations 2 to 4 of the paper, both directions of every link priced, and the order of
the stages.

A pair of devices that exchange a message each way takes ``topology.round_trip_s``: on symmetric
links exactly the published 2 (alpha + c / beta). Shapes: N devices, S stages, D replicas.

The order of the stages is the shortest open path through the coarsened graph, equation 4.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
import numpy.typing as npt
import scipy

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import CostBreakdown
from dtfm_lab.domain.units import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class PairCosts:
    """Seconds between any two devices, (N, N) symmetric, zero on the diagonal."""

    group_s: FloatArray
    """As partners in a data-parallel group: one gradient shard out and one back, equation 2."""
    hop_s: FloatArray
    """As neighbours in a pipeline: a mini-batch's activations forward and their gradients back, equation 3."""


def pair_costs(topology: Topology, job: Job) -> PairCosts:
    """The pair costs of a job on a topology; the communication cost depends on nothing else."""
    return _pair_costs(topology, job.gradient_bytes / job.n_replicas, job.hop_bytes)


@lru_cache(maxsize=2)
def _pair_costs(topology: Topology, shard_bytes: float, hop_bytes: float) -> PairCosts:
    return PairCosts(group_s=topology.round_trip_s(shard_bytes), hop_s=topology.round_trip_s(hop_bytes))


def group_costs(groups: IntArray, group_pair_s: FloatArray) -> FloatArray:
    """(..., S) seconds that each group of (..., S, D) devices synchronises: equation 2.

    Every member sends a shard to every other and gets one back, one peer after the other; the
    group waits for its slowest member.
    """
    within: FloatArray = group_pair_s[groups[..., :, None], groups[..., None, :]]
    return np.asarray(within.sum(axis=-1).max(axis=-1))


def bottleneck_matching(cost: FloatArray) -> tuple[float, IntArray]:
    """The assignment of columns to rows whose dearest pair is cheapest; of such assignments, the one of least sum.

    Returns the dearest pair's cost and, (D,), the column of each row. Exact: the answer is the smallest threshold
    such that the pairs up to it contain a perfect matching. It is at least the dearest of the cheapest
    entries of each row and column, which usually is the answer already; else a binary search finds it.
    """
    floor = max(cost.min(axis=1).max(), cost.min(axis=0).max())
    if not _matchable(cost, floor):
        thresholds = np.unique(cost[cost > floor])
        low, high = 0, len(thresholds) - 1
        while low < high:
            middle = (low + high) // 2
            if _matchable(cost, thresholds[middle]):
                high = middle
            else:
                low = middle + 1
        floor = thresholds[low]
    forbidden = 2.0 * len(cost) * floor or 1.0  # more than all allowed pairs together, whatever the scale
    _, columns = scipy.optimize.linear_sum_assignment(np.where(cost <= floor, cost, forbidden))
    return float(floor), columns.astype(np.int64)


def _matchable(cost: FloatArray, threshold: float) -> bool:
    above: npt.NDArray[np.bool_] = cost > threshold
    return not above[scipy.optimize.linear_sum_assignment(above)].any()


def coarsened_weights(groups: IntArray, hop_pair_s: FloatArray) -> FloatArray:
    """(S, S) symmetric weights of the coarsened graph: the bottleneck between every two (S, D) groups, equation 3."""
    weights = np.zeros((len(groups), len(groups)))
    for a, b in combinations(range(len(groups)), 2):
        weights[a, b], _ = bottleneck_matching(hop_pair_s[np.ix_(groups[a], groups[b])])
    return weights + weights.T


def align(groups: IntArray, order: IntArray, hop_pair_s: FloatArray) -> IntArray:
    """The (S, D) grid of the groups in stage order, whose columns are pipelines.

    Column by column each device is followed by its partner in the bottleneck matching of the two
    neighbouring groups, so every hop of the grid costs what its edge of the coarsened graph weighs.
    """
    grid = groups[order].copy()
    for s in range(len(grid) - 1):
        _, columns = bottleneck_matching(hop_pair_s[np.ix_(grid[s], grid[s + 1])])
        grid[s + 1] = grid[s + 1, columns]
    return grid


def hop_costs(grid: IntArray, hop_pair_s: FloatArray) -> FloatArray:
    """(..., S-1) seconds of each hop of (..., S, D) grids, as their columns pair."""
    return np.asarray(hop_pair_s[grid[..., :-1, :], grid[..., 1:, :]].max(axis=-1))


def total_costs(grid: IntArray, pair: PairCosts) -> FloatArray:
    """(...) seconds of (..., S, D) grids, as their columns pair: equation 1."""
    total: FloatArray = group_costs(grid, pair.group_s).max(axis=-1) + hop_costs(grid, pair.hop_s).sum(axis=-1)
    return total


def price_placement(topology: Topology, job: Job, devices: IntArray) -> CostBreakdown:
    """The cost of a (S, D) grid exactly as its columns pair, whether or not that is the best pairing."""
    pair = pair_costs(topology, job)
    return CostBreakdown(
        group_s=group_costs(devices, pair.group_s),
        hop_s=hop_costs(devices, pair.hop_s),
        weights_s=coarsened_weights(devices, pair.hop_s),
    )


EXACT_UP_TO = 14
"""Most nodes for Held-Karp; beyond, it takes more memory and time than the last percent is worth."""


def path_cost(weights: FloatArray, order: IntArray) -> float:
    """Sum of the edges along the path."""
    return float(weights[order[:-1], order[1:]].sum())


def shortest_path(weights: FloatArray) -> IntArray:
    """(S,) node order of the cheapest open path through (S, S) symmetric weights, its smaller end first.

    Exact up to 14 nodes (Held and Karp 1962); above, ``short_path`` of the kernels: good, not proven. Deterministic.
    """
    order = _held_karp(weights) if len(weights) <= EXACT_UP_TO else _short(weights)
    return order if order[0] <= order[-1] else order[::-1].copy()


@lru_cache(maxsize=EXACT_UP_TO)
def _layers(n: int) -> tuple[tuple[IntArray, IntArray, IntArray], ...]:
    """Every extension of a path by one node, by number of visited nodes: (visited set as bits, row, next node)."""
    masks = np.arange(1 << n)
    visited = (masks[:, None] >> np.arange(n)) & 1
    layers = []
    for size in range(1, n):
        layer = masks[visited.sum(axis=1) == size]
        row, node = np.nonzero(visited[layer] == 0)
        layers.append((layer, row, node))
    return tuple(layers)


def _held_karp(weights: FloatArray) -> IntArray:
    """Dynamic programme over ``reach[visited, last]``, the cheapest path over the visited set that ends in last."""
    n = len(weights)
    reach = np.full((1 << n, n), np.inf)
    reach[1 << np.arange(n), np.arange(n)] = 0.0
    for layer, row, node in _layers(n):
        onward = (reach[layer][:, :, None] + weights).min(axis=1)
        reach[layer[row] | (1 << node), node] = onward[row, node]
    visited = (1 << n) - 1
    order = [int(reach[visited].argmin())]
    while len(order) < n:
        visited ^= 1 << order[-1]
        order.append(int((reach[visited] + weights[order[-1]]).argmin()))
    return np.array(order)


def _short(weights: FloatArray) -> IntArray:
    from dtfm_lab.planning.kernels.coarsened_graph import short_path  # imports numba, which takes a while

    order, tour = (np.zeros(len(weights), dtype=np.int64) for _ in range(2))
    short_path(weights, tour, order)
    return order
