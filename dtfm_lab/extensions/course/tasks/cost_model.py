"""Missions about the cost model: compute equations 1 to 4 by hand and as a function, and see what they depend on."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import format_share
from dtfm_lab.extensions.course.checks import MissionsOf, Number, Trial
from dtfm_lab.extensions.course.mission import Given
from dtfm_lab.extensions.course.small_networks import of_sites
from dtfm_lab.extensions.course.tasks.searching import least_sum_s
from dtfm_lab.planning import evaluate
from dtfm_lab.planning.cost import PairCosts, coarsened_weights, group_costs, hop_costs

lesson = MissionsOf("04_cost_model")

FOUR = ("ada", "ben", "cleo", "dan")
MB = 1e6


def give_four(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return four devices, their six links and two groups. The two groups have different costs, and so have the two
    ways to pair their devices."""
    # Sample until the pairing matters and the groups differ: otherwise a lucky guess would win.
    while True:
        latency_ms = int(rng.choice([50, 100, 150, 200]))
        speeds = {pair: int(rng.choice([50, 100, 200, 400])) for pair in zip(*np.triu_indices(4, 1), strict=True)}
        gradient_mb, activations_mb = int(rng.choice([200, 400, 800])), int(rng.choice([50, 100, 200]))
        megabytes_per_s = np.ones((4, 4))
        for (i, j), speed in speeds.items():
            megabytes_per_s[i, j] = megabytes_per_s[j, i] = speed
        network = Topology.from_matrices(
            latency_s=np.full((4, 4), latency_ms / 1e3),
            bandwidth_bytes_per_s=megabytes_per_s * MB,
            names=FOUR,
            name="four",
        )
        job = Job.from_bytes(2, 2, gradient_bytes=gradient_mb * MB, activation_bytes=activations_mb * MB)
        first = [0, *rng.choice([1, 2, 3], 1).tolist()]
        groups = [first, sorted({0, 1, 2, 3} - set(first))]
        pair_s = network.round_trip_s(gradient_mb * MB / 2)
        hops = _pairings_s(network, job, groups)
        if pair_s[tuple(groups[0])] != pair_s[tuple(groups[1])] and len(set(hops)) == 2:
            break
    rows = "\n".join(f"| {FOUR[i]} - {FOUR[j]} | {speed} |" for (i, j), speed in speeds.items())
    names = [" and ".join(FOUR[device] for device in group) for group in groups]
    return {
        "network": network,
        "job": job,
        "groups": groups,
        "latency_ms": latency_ms,
        "gradient_mb": gradient_mb,
        "activations_mb": activations_mb,
        "table": f"| link, both ways | MB/s |\n| --- | --- |\n{rows}",
        "first": names[0],
        "second": names[1],
    }


def _pairings_s(network: Topology, job: Job, groups: Sequence[Sequence[int]]) -> list[float]:
    """Return the seconds of the slowest pair, for each of the two ways to pair two groups of two devices."""
    hop_s, ((a, b), (c, d)) = network.round_trip_s(job.hop_bytes), groups
    return [max(hop_s[a, c], hop_s[b, d]), max(hop_s[a, d], hop_s[b, c])]


@lesson.number("four-by-hand", give=give_four)
def four_by_hand(given: Given) -> Number:
    network, job, groups = given.network, given.job, np.array(given.groups)
    group_s = group_costs(groups, network.round_trip_s(job.gradient_bytes / 2))
    whole_s = group_costs(groups, network.round_trip_s(job.gradient_bytes))
    pairings_s = _pairings_s(network, job, given.groups)
    hop_s, wanted = min(pairings_s), group_s.max() + min(pairings_s)
    slips = {"one_way": wanted / 2, "added": group_s.sum() + hop_s, "faster_group": group_s.min() + hop_s}
    slips |= {"other_pairing": group_s.max() + max(pairings_s), "whole_gradients": whole_s.max() + hop_s}
    slips |= {"synchronisation": group_s.max(), "hop": hop_s}
    return Number(wanted, slips, {"share": format_share(group_s.max() / wanted, 0)})


def give_cities(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return a network of ``n`` cities with ``n`` devices each. All links within cities are equal, and so are all links
    between them."""
    n, activations_mb = int(rng.integers(3, 7)), int(rng.integers(10, 60)) * 10
    within_ms, between_ms = int(rng.integers(1, 5)), int(rng.integers(30, 200))
    within_gbps, between_gbps = int(rng.integers(5, 30)), int(rng.integers(2, 12)) / 10
    city = [f"city-{number}" for number in range(n) for _ in range(n)]
    network = of_sites(city, (within_ms, within_gbps), (between_ms, between_gbps), name="cities")
    return {
        "network": network,
        "n": n,
        "activations_mb": activations_mb,
        "within_ms": within_ms,
        "between_ms": between_ms,
        "within_gbps": within_gbps,
        "between_gbps": between_gbps,
    }


@lesson.number("change-of-places", give=give_cities)
def change_of_places(given: Given) -> Number:
    shard_mb, wanted = given.activations_mb, given.n * given.activations_mb
    slips = {"shard": shard_mb, "cut_again": shard_mb / given.n, "doubled": 2 * wanted, "bytes": wanted * 1e6}
    return Number(wanted, slips)


@lesson.function("own-cost")
def own_cost(rng: np.random.Generator) -> Iterator[Trial]:
    for n_stages, n_replicas in ((3, 2), (2, 3), (4, 2), (2, 4)):
        n = n_stages * n_replicas
        latency_s, bandwidth = rng.uniform(0.0, 0.2, (n, n)), 10 ** rng.uniform(6, 9, (n, n))
        np.fill_diagonal(latency_s, 0.0)
        np.fill_diagonal(bandwidth, np.inf)
        groups = rng.permutation(n).reshape(n_stages, n_replicas)
        gradient, hop = float(rng.uniform(1e8, 1e9)), float(rng.uniform(1e8, 1e9))
        network = Topology.from_matrices(latency_s=latency_s, bandwidth_bytes_per_s=bandwidth)
        job = Job.from_bytes(n_stages, n_replicas, gradient_bytes=gradient, activation_bytes=hop)
        cost = evaluate(network, job, groups=groups.tolist()).cost
        pair = PairCosts(network.round_trip_s(gradient / n_replicas), network.round_trip_s(hop))
        weights_s = coarsened_weights(groups, pair.hop_s)
        as_given = np.diag(weights_s, 1).sum()
        least_sum = sum(least_sum_s(pair.hop_s[np.ix_(a, b)]) for a, b in pairwise(groups))
        # The known mistakes, so that each gets its own sentence.
        slips = {
            "order_given": cost.data_parallel_s + as_given,
            "least_sum": cost.data_parallel_s + least_sum,
            "no_pipeline": cost.data_parallel_s,
            "no_synchronisation": cost.pipeline_s,
            "added": cost.group_s.sum() + cost.pipeline_s,
            "as_listed": cost.data_parallel_s + hop_costs(groups, pair.hop_s).sum(),
        }
        yield Trial((latency_s, bandwidth, groups.tolist(), gradient, hop), cost.total_s, slips)
