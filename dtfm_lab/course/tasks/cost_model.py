"""Missions about the cost model: equations 2 to 4 by hand, and what they depend on."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dtfm_lab.course.evidence import near
from dtfm_lab.course.mission import Given, mission
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.planning.cost import group_costs

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


@mission(
    "four-by-hand",
    lesson="04_cost_model",
    title="Four devices on paper",
    takes=float,
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
def four_by_hand(seconds: float, given: Given) -> str:
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
    near(
        seconds,
        wanted,
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
    share = group_s.max() / wanted
    return f"{wanted:.3g} s: {share:.0%} of it are the slower group's synchronisation, the rest is the one hop."


def give_cities(rng: np.random.Generator) -> Mapping[str, Any]:
    """As many cities as devices in each, equal links within and equal ones between."""
    n, activations_mb = int(rng.integers(3, 7)), int(rng.integers(10, 60)) * 10
    within_ms, between_ms = int(rng.integers(1, 5)), int(rng.integers(30, 200))
    within_gbps, between_gbps = int(rng.integers(5, 30)), int(rng.integers(2, 12)) / 10
    city = np.repeat(np.arange(n), n)
    same = city[:, None] == city
    network = Topology.from_matrices(
        latency_ms=np.where(same, within_ms, between_ms),
        bandwidth_gbps=np.where(same, within_gbps, between_gbps),
        regions=[f"city-{number}" for number in city],
        name="cities",
    )
    return {
        "network": network,
        "n": n,
        "activations_mb": activations_mb,
        "within_ms": within_ms,
        "between_ms": between_ms,
        "within_gbps": within_gbps,
        "between_gbps": between_gbps,
    }


@mission(
    "change-of-places",
    lesson="04_cost_model",
    title="Groups at home, or pipelines?",
    takes=float,
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
def change_of_places(megabytes: float, given: Given) -> str:
    """{n} cities of {n} devices: {within_ms} ms and {within_gbps} Gbit/s within a city, {between_ms} ms and
    {between_gbps} Gbit/s between cities. The job has {n} stages of {n} replicas, and a pipeline's activations have
    {activations_mb} MB. Every city can be a stage, or every city a pipeline. For a gradient of a stage of how many MB
    do the two placements cost the same? (`lab.missions.given("change-of-places").network` is the network.)
    """
    wanted = given.n * given.activations_mb
    near(
        megabytes,
        wanted,
        slips={
            given.activations_mb: "that is the size of a shard; how large is the gradient that is cut into these?",
            given.activations_mb / given.n: "what a group cuts into shards is the gradient, not the activations",
            2 * wanted: "both messages go there and back; the 2 is on both sides",
            wanted * 1e6: "that is a number of bytes",
        },
    )
    return (
        f"At {wanted} MB a shard is as large as the activations. No latency and no bandwidth is in it: with as many "
        "stages as replicas and cities alike, the network says how much a wrong choice costs, not which one is wrong."
    )
