"""Missions about the cost model: equations 2 to 4 by hand and as a function, and what they depend on."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dtfm_lab.course.checks import MissionsOf, Number, Trial
from dtfm_lab.course.mission import Given
from dtfm_lab.course.small_networks import of_sites
from dtfm_lab.course.tasks.five_steps import least_sum_s
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning import evaluate
from dtfm_lab.planning.cost import PairCosts, coarsened_weights, group_costs, hop_costs

lesson = MissionsOf("04_cost_model")

FOUR = ("ada", "ben", "cleo", "dan")
MB = 1e6


def give_four(rng: np.random.Generator) -> Mapping[str, Any]:
    """Four devices, their six links and two groups, such that the pairing matters and the groups cost different."""
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
    """Slowest pair of each of the two pairings of two groups of two."""
    hop_s, ((a, b), (c, d)) = network.round_trip_s(job.hop_bytes), groups
    return [max(hop_s[a, c], hop_s[b, d]), max(hop_s[a, d], hop_s[b, c])]


@lesson.number(
    "four-by-hand",
    title="Four devices on paper",
    wanted="a number of seconds",
    minutes=10,
    give=give_four,
    hints=(
        "Three numbers make the cost: the slower of the two groups, plus the better of two pairings.",
        "A group of two halves the gradient: each device sends one half and gets one half back.",
        "A pairing is as slow as its slower pair. There are two pairings; take the one whose slower pair is faster.",
    ),
    answer="""
        answer = lab.evaluate(given.network, given.job, groups=given.groups).cost.total_s
    """,
)
def four_by_hand(given: Given) -> Number:
    """Four devices, every link with a latency of {latency_ms} ms and its own bandwidth:

    {table}

    The gradient of a stage has {gradient_mb} MB. A pipeline's activations have {activations_mb} MB in an iteration, and
    so have their gradients on the way back. One stage is held by {first}, the other by {second}. How many seconds does
    this placement cost, by equations 1 to 4? It can be done on paper.
    """
    network, job, groups = given.network, given.job, np.array(given.groups)
    group_s = group_costs(groups, network.round_trip_s(job.gradient_bytes / 2))
    whole_s = group_costs(groups, network.round_trip_s(job.gradient_bytes))
    pairings_s = _pairings_s(network, job, given.groups)
    hop_s, wanted = min(pairings_s), group_s.max() + min(pairings_s)
    share = group_s.max() / wanted
    return Number(
        wanted,
        f"{wanted:.3g} s: {share:.0%} of it are the slower group's synchronisation, the rest is the one hop.",
        slips={
            wanted / 2: "that counts one way only; every message has another that comes back",
            group_s.sum() + hop_s: "that adds the two groups; they synchronise at the same time",
            group_s.min() + hop_s: "that takes the faster group; everybody waits for the slower one",
            group_s.max() + max(pairings_s): "the pairing is a choice too, and there is a better one",
            whole_s.max() + hop_s: "that sends whole gradients; each of two devices owns one half",
            group_s.max(): "that is the synchronisation alone; the stages also talk to each other",
            hop_s: "that is the hop alone; the groups also synchronise",
        },
    )


def give_cities(rng: np.random.Generator) -> Mapping[str, Any]:
    """As many cities as devices in each, equal links within and equal ones between."""
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


@lesson.number(
    "change-of-places",
    title="Groups at home, or pipelines?",
    wanted="a number of MB",
    minutes=15,
    give=give_cities,
    hints=(
        "Price both placements for two sizes of the gradient. Each cost is a straight line in that size.",
        "Write both costs with letters. Which letters are on both sides?",
        "What crosses between cities is a shard in the one placement, a pipeline's activations in the other.",
    ),
    answer="""
        def cost_s(groups, gradient_mb):
            job = lab.Job.from_bytes(
                given.n, given.n, gradient_bytes=gradient_mb * 1e6, activation_bytes=given.activations_mb * 1e6
            )
            return lab.evaluate(given.network, job, groups=groups).cost.total_s
        stages = [list(range(i * given.n, i * given.n + given.n)) for i in range(given.n)]
        pipelines = [list(group) for group in zip(*stages)]
        at_0, at_1000 = (cost_s(stages, size) - cost_s(pipelines, size) for size in (0.001, 1000))
        answer = 1000 * at_0 / (at_0 - at_1000)
    """,
)
def change_of_places(given: Given) -> Number:
    """{n} cities of {n} devices: {within_ms} ms and {within_gbps} Gbit/s within a city, {between_ms} ms and
    {between_gbps} Gbit/s between cities. The job has {n} stages of {n} replicas, and a pipeline's activations have
    {activations_mb} MB. Every city can be a stage, or every city a pipeline. For a gradient of a stage of how many MB
    do the two placements cost the same? (`lab.missions.given("change-of-places").network` is the network.)
    """
    wanted = given.n * given.activations_mb
    return Number(
        wanted,
        f"At {wanted} MB a shard is as large as the activations. No latency and no bandwidth is in it: with as many "
        "stages as replicas and cities alike, the network says how much a wrong choice costs, not which one is wrong.",
        slips={
            given.activations_mb: "that is the size of a shard; how large is the gradient that is cut into these?",
            given.activations_mb / given.n: "what a group cuts into shards is the gradient, not the activations",
            2 * wanted: "both messages go there and back; the 2 is on both sides",
            wanted * 1e6: "that is a number of bytes",
        },
    )


@lesson.function(
    "own-cost",
    title="Equations 1 to 4 as a function",
    said="Equations 1 to 4 are yours now: pass your function any matrices, and believe nobody else's number.",
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
def own_cost(rng: np.random.Generator) -> Iterator[Trial]:
    """Write the whole communication cost as a function `cost_s(latency_s, bandwidth, groups, gradient_bytes,
    hop_bytes)` and hand in the function. `groups` is a list of lists of device indices, in no particular order: which
    group holds which stage, and who is paired with whom, is for your function to find. `latency_s` and `bandwidth` are
    matrices, in seconds and bytes/s, from row to column; the two directions of a link may differ, and the way back
    takes the other. It is tried on fresh random networks of six to eight devices.
    """
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
        slips = {
            cost.data_parallel_s + as_given: "it keeps the groups in the order given; a better path may exist",
            cost.data_parallel_s + least_sum: "its pairing has the least sum, not the fastest slowest pair",
            cost.data_parallel_s: "it leaves out the pipeline",
            cost.pipeline_s: "it leaves out the synchronisation",
            cost.group_s.sum() + cost.pipeline_s: "it adds up all groups; they synchronise at the same time",
            cost.data_parallel_s + hop_costs(groups, pair.hop_s).sum(): "it pairs devices as they are listed",
        }
        yield Trial((latency_s, bandwidth, groups.tolist(), gradient, hop), cost.total_s, slips)
