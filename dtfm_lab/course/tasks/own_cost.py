"""Missions about the cost model as functions of the reader's own, tried on fresh random networks."""

import types
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from dtfm_lab.course.evidence import fresh_cases, near, number_from
from dtfm_lab.course.mission import Given, mission
from dtfm_lab.course.tasks.five_steps import least_sum_s
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.planning import evaluate
from dtfm_lab.planning.cost import PairCosts, coarsened_weights, hop_costs


def _random_links(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
    """(n, n) latencies and bandwidths of n devices, of which no two links are alike; 0 and infinite to oneself."""
    latency_s, bandwidth = rng.uniform(0.0, 0.2, (n, n)), 10 ** rng.uniform(6, 9, (n, n))
    np.fill_diagonal(latency_s, 0.0)
    np.fill_diagonal(bandwidth, np.inf)
    return latency_s, bandwidth


def _round_trip_s(latency_s: FloatArray, bandwidth: FloatArray, n_bytes: float) -> FloatArray:
    one_way: FloatArray = latency_s + n_bytes / bandwidth
    return one_way + one_way.T


@mission(
    "own-group-cost",
    lesson="04_cost_model",
    title="Equation 2 as a function",
    takes=types.FunctionType,
    wanted="a function of (latency_s, bandwidth, group, gradient_bytes) that returns seconds",
    minutes=10,
    hints=(
        "For one member: a sum over all other members. For the group: the largest of these sums.",
        "Each message carries `gradient_bytes / len(group)`.",
        "Out takes entry [i, j] of both matrices, back takes [j, i]; they are two links.",
    ),
    answer="""
        def group_s(latency_s, bandwidth, group, gradient_bytes):
            shard = gradient_bytes / len(group)
            def one_way(i, j):
                return latency_s[i, j] + shard / bandwidth[i, j]
            return max(sum(one_way(i, j) + one_way(j, i) for j in group if j != i) for i in group)
        answer = group_s
    """,
)
def own_group_cost(function: Callable[..., Any], given: Given) -> str:
    """Write equation 2 as a function `group_s(latency_s, bandwidth, group, gradient_bytes)` and hand in the function.
    `latency_s` and `bandwidth` are matrices, in seconds and bytes/s, from row to column; `group` is a list of device
    indices; it returns the seconds that this group synchronises. The two directions of a link may differ: the way out
    takes the one, the way back the other. It is tried on fresh random networks.
    """
    rng = fresh_cases()
    for size in (2, 3, 4, 5, 2, 3):
        latency_s, bandwidth = _random_links(rng, 6)
        group, gradient = rng.permutation(6)[:size].tolist(), float(rng.uniform(1e8, 1e9))
        shard_s = _round_trip_s(latency_s, bandwidth, gradient / size)
        inside = shard_s[np.ix_(group, group)]
        sums_s, out_s = inside.sum(axis=1), (latency_s + gradient / size / bandwidth)[np.ix_(group, group)]
        whole_s = _round_trip_s(latency_s, bandwidth, gradient)[np.ix_(group, group)]
        found = number_from(function, latency_s, bandwidth, list(group), gradient)
        near(
            found,
            sums_s.max(),
            tolerance=1e-6,
            slips={
                2 * out_s.sum(axis=1).max(): "it takes the way out twice; the way back is another link",
                out_s.sum(axis=1).max(): "it counts one way only",
                whole_s.sum(axis=1).max(): "it sends whole gradients instead of shards",
                sums_s.mean(): "it takes the mean over the members; the group waits for the slowest",
                sums_s.sum(): "it adds up all members; they work at the same time",
                inside.max(): "it takes the slowest pair; a member talks to all others, one after the other",
            },
        )
    return "The same seconds as the library on six random networks, none of which you have seen."


@mission(
    "own-cost",
    lesson="04_cost_model",
    title="Equations 1 to 4 as a function",
    takes=types.FunctionType,
    wanted="a function of (latency_s, bandwidth, groups, gradient_bytes, hop_bytes) that returns seconds",
    minutes=20,
    hints=(
        "You have equation 2. Equation 3 for two groups: the smallest, over all `itertools.permutations` of the second "
        "group, of the largest pair.",
        "Equation 4: the cheapest, over all permutations of the groups, of the sum of neighbours' weights.",
        "The sum of the slowest group and the cheapest path; the order in which groups are given means nothing.",
    ),
    answer="""
        from itertools import pairwise, permutations
        def cost_s(latency_s, bandwidth, groups, gradient_bytes, hop_bytes):
            def round_trip(i, j, size):
                return latency_s[i, j] + size / bandwidth[i, j] + latency_s[j, i] + size / bandwidth[j, i]
            def group_s(group):
                shard = gradient_bytes / len(group)
                return max(sum(round_trip(i, j, shard) for j in group if j != i) for i in group)
            def weight_s(one, other):
                return min(
                    max(round_trip(i, j, hop_bytes) for i, j in zip(one, partners)) for partners in permutations(other)
                )
            path_s = min(sum(weight_s(a, b) for a, b in pairwise(order)) for order in permutations(groups))
            return max(group_s(group) for group in groups) + path_s
        answer = cost_s
    """,
)
def own_cost(function: Callable[..., Any], given: Given) -> str:
    """Write the whole communication cost as a function `cost_s(latency_s, bandwidth, groups, gradient_bytes,
    hop_bytes)` and hand in the function. `groups` is a list of lists of device indices, in no particular order: which
    group holds which stage, and who is paired with whom, is for your function to find. The matrices are as in
    `own-group-cost`. It is tried on fresh random networks of six to eight devices.
    """
    rng = fresh_cases()
    for n_stages, n_replicas in ((3, 2), (2, 3), (4, 2), (2, 4)):
        n = n_stages * n_replicas
        latency_s, bandwidth = _random_links(rng, n)
        groups = rng.permutation(n).reshape(n_stages, n_replicas)
        gradient, hop = float(rng.uniform(1e8, 1e9)), float(rng.uniform(1e8, 1e9))
        network = Topology.from_matrices(latency_s=latency_s, bandwidth_bytes_per_s=bandwidth)
        job = Job.from_bytes(n_stages, n_replicas, gradient_bytes=gradient, activation_bytes=hop)
        cost = evaluate(network, job, groups=groups.tolist()).cost
        pair = PairCosts(network.round_trip_s(gradient / n_replicas), network.round_trip_s(hop))
        weights_s = coarsened_weights(groups, pair.hop_s)
        as_given = np.diag(weights_s, 1).sum()
        least_sum = sum(least_sum_s(pair.hop_s[np.ix_(a, b)]) for a, b in pairwise(groups))
        found = number_from(function, latency_s, bandwidth, groups.tolist(), gradient, hop)
        near(
            found,
            cost.total_s,
            tolerance=1e-6,
            slips={
                cost.data_parallel_s + as_given: "it keeps the groups in the order given; a better path may exist",
                cost.data_parallel_s + least_sum: "its pairing has the least sum, not the fastest slowest pair",
                cost.data_parallel_s: "it leaves out the pipeline",
                cost.pipeline_s: "it leaves out the synchronisation",
                cost.group_s.sum() + cost.pipeline_s: "it adds up all groups; they synchronise at the same time",
                cost.data_parallel_s + hop_costs(groups, pair.hop_s).sum(): "it pairs devices as they are listed",
            },
        )
    return "Equations 1 to 4 are yours now: pass your function any matrices, and believe nobody else's number."
