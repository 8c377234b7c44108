"""Missions about searching for a placement and knowing how good it is."""

import types
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from dtfm_lab.course.evidence import fresh_cases, near, number_from, priced_again, require, same_job, same_network
from dtfm_lab.course.mission import Given, mission
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.files import load_job
from dtfm_lab.planning import plan as search_plan
from dtfm_lab.planning.cost import PairCosts, coarsened_weights, group_costs
from dtfm_lab.planning.path import path_cost, shortest_path


@mission(
    "spot-under-32",
    lesson="06_searching",
    title="Where the published search stops",
    takes=Plan,
    wanted="a Plan of spot for dtfm-gpt3-xl",
    minutes=10,
    hints=(
        "On a plateau, every step that swaps two devices costs the same: what would a search need to leave it?",
        "Look at `lab.figures.network(plan.topology, plan)`: in a cheap plan, what do the instances of four GPUs hold?",
        "Some planners start from groups that the network's own clusters suggest: `lab.planners` lists all.",
    ),
    answer="""
        answer = lab.plan("spot", "dtfm-gpt3-xl", objective="communication", seed=0, steps=50)
    """,
)
def spot_under_32(plan: Plan, given: Given) -> str:
    """Every random placement of `dtfm-gpt3-xl` on the network `spot` costs 49.5 s, and the published search finds
    nothing below 43 s in its budget. Hand in a plan, in 8 stages of 8 replicas, whose communication cost is below 32 s.
    Only that is asked: that the model needs more memory than these GPUs have, of which the lab warns, does not count.
    """
    same_network(plan.topology, "spot")
    same_job(plan.job, load_job("dtfm-gpt3-xl"), "n_stages", "n_replicas", "gradient_bytes", "hop_bytes")
    cost_s = priced_again(plan).cost.total_s
    require(cost_s < 32, f"its placement costs {cost_s:.2f} s; wanted less than 32 s")
    return f"{cost_s:.2f} s: the plateau of 49.5 s is left, by groups that keep what they exchange inside an instance."


def give_claim(rng: np.random.Generator) -> Mapping[str, Any]:
    """A plan's cost and its gap."""
    return {"cost_s": int(rng.integers(200, 900)) / 10, "gap_percent": int(rng.integers(5, 45))}


@mission(
    "what-a-gap-promises",
    lesson="06_searching",
    title="What a gap promises",
    takes=float,
    wanted="a number of seconds",
    minutes=2,
    give=give_claim,
    hints=(
        "The gap is (cost - bound) / cost: which of the two is asked for?",
        "No plan costs less than the bound, and nobody says that one reaches it.",
    ),
    answer="""
        answer = given.cost_s * (1 - given.gap_percent / 100)
    """,
)
def what_a_gap_promises(seconds: float, given: Given) -> str:
    """A plan costs {cost_s} s with a gap of {gap_percent} %. A colleague says that hers, in the same shape, on the same
    network and for the same job, costs less. Below how many seconds can you be sure that she made a mistake?
    """
    cost_s, gap = given.cost_s, given.gap_percent / 100
    near(
        seconds,
        cost_s * (1 - gap),
        tolerance=0.002,
        slips={
            cost_s: "she may well have a better plan: a gap leaves room for one",
            cost_s * gap: "that is what she can save at most",
            cost_s / (1 + gap): "the gap is a share of the cost, not of the bound",
            0.0: "the bound says more than that",
        },
    )
    return "Between the two, nobody knows: a better plan may exist, or the bound may be loose."


def give_pairs(rng: np.random.Generator) -> Mapping[str, Any]:
    """Six instances of two and six single devices, shuffled, on which the paper's search ends on its plateau."""
    while True:
        order = rng.permutation(18)
        host = np.empty(18, dtype=np.int64)
        host[order] = [*np.repeat(np.arange(6), 2), *range(6, 12)]
        slow_gbps = int(rng.integers(5, 20)) / 10
        network = Topology.from_matrices(
            latency_ms=np.where(host[:, None] == host, 0.0, 10.0),
            bandwidth_gbps=np.where(host[:, None] == host, 100.0, slow_gbps),
            names=[f"gpu-{number}" for number in range(18)],
            regions=[f"instance-{each}" if each < 6 else "single" for each in host],
            name="pairs",
        )
        job = Job.from_bytes(3, 6, gradient_bytes=6e8, activation_bytes=float(rng.integers(4, 9)) * 1e8, name="pairs")
        found = search_plan(network, job, planner="dtfm", seed=int(rng.integers(1000)), steps=500)
        if found.gap > 0.1:
            return {"network": network, "job": job, "published": found, "published_s": round(found.cost.total_s, 3)}


@mission(
    "beat-the-search-by-hand",
    lesson="06_searching",
    title="Beat the published search by hand",
    takes=Plan,
    wanted="a Plan of the given network and job",
    minutes=15,
    give=give_pairs,
    hints=(
        "Synchronisation cannot be had cheaper: a single device has five slow partners in every group. What is left?",
        "A hop is cheap when all six of its pairs are inside an instance. Which devices can take part in such a hop?",
        "Put one GPU of every instance into one group and its twin into another; the singles are the third group.",
    ),
    answer="""
        names = {}
        for device in given.network.devices:
            names.setdefault(device.region, []).append(device.name)
        singles = names.pop("single")
        groups = [[pair[0] for pair in names.values()], [pair[1] for pair in names.values()], singles]
        answer = lab.evaluate(given.network, given.job, groups=groups)
    """,
)
def beat_the_search_by_hand(plan: Plan, given: Given) -> str:
    """`given = lab.missions.given("beat-the-search-by-hand")` has a `network` of 18 GPUs, six instances of two and six
    single ones (`region` says which), and a `job` of 3 stages x 6 replicas. The published search has ended at
    {published_s} s after 500 steps (`given.published`). Hand in a plan that costs less, of three groups that you chose,
    each a list of six names: `lab.evaluate(given.network, given.job, groups=[...])`. No planner is allowed.
    """
    same_network(plan.topology, given.network)
    same_job(plan.job, given.job, "n_stages", "n_replicas", "gradient_bytes", "hop_bytes")
    cost = priced_again(plan).cost
    require(
        cost.total_s < given.published.cost.total_s * (1 - 1e-9),
        f"its placement costs {cost.total_s:.3f} s; wanted less than {given.published_s} s",
    )
    require(
        plan.planner == "given",
        f"it costs {cost.total_s:.3f} s, but the planner {plan.planner} found it; wanted groups of your own, by hand",
    )
    return (
        f"{cost.total_s:.3f} s instead of {given.published_s} s, with hops of {cost.hop_s.min():.3f} and "
        f"{cost.hop_s.max():.3f} s. Twelve devices have to be right at once before a hop gets any cheaper."
    )


def simple_bound_s(group_s: np.ndarray[Any, Any], hop_s: np.ndarray[Any, Any], n_stages: int, n_replicas: int) -> float:
    """Every message of a group costs at least the cheapest of all pairs, and so does every hop."""
    others = ~np.eye(len(group_s), dtype=bool)
    return float((n_replicas - 1) * group_s[others].min() + (n_stages - 1) * hop_s[others].min())


def _groupings(left: list[int], size: int) -> Iterator[list[tuple[int, ...]]]:
    """All ways to cut devices into groups of a size."""
    if not left:
        yield []
        return
    for others in combinations(left[1:], size - 1):
        group = (left[0], *others)
        for more in _groupings([device for device in left if device not in group], size):
            yield [group, *more]


def least_cost_s(pair: PairCosts, n_stages: int, n_replicas: int) -> float:
    """The least cost of all placements of few devices, each of which is tried."""
    best_s = np.inf
    for grouping in _groupings(list(range(n_stages * n_replicas)), n_replicas):
        groups = np.array(grouping)
        slowest_s = group_costs(groups, pair.group_s).max()
        if slowest_s < best_s:
            weights = coarsened_weights(groups, pair.hop_s)
            best_s = min(best_s, slowest_s + path_cost(weights, shortest_path(weights)))
    return float(best_s)


def _random_pairs(rng: np.random.Generator, n_stages: int, n_replicas: int) -> PairCosts:
    """Pair costs of a random network, in every second case one of three sites."""
    n = n_stages * n_replicas
    site = rng.integers(0, 3, n) if rng.integers(2) else np.zeros(n)
    same = site[:, None] == site
    spread = 10 ** rng.uniform(0, 1.0, (n, n))
    network = Topology.from_matrices(
        latency_s=np.where(same, 0.001, 0.05) * spread, bandwidth_bytes_per_s=np.where(same, 1e9, 1e8) / spread
    )
    shard, hop = rng.uniform(1e8, 1e9, 2)
    return PairCosts(network.round_trip_s(shard), network.round_trip_s(hop))


TO_CLOSE = 0.2
"""Share of what the simple bound leaves open that a tighter one has to close, on average."""


@mission(
    "tighten-a-bound",
    lesson="06_searching",
    title="Tighten a bound",
    takes=types.FunctionType,
    wanted="a function of (group_s, hop_s, n_stages, n_replicas) that returns seconds",
    minutes=30,
    hints=(
        "Every device serves. A device has D - 1 partners in its group, and they cannot all be its nearest one.",
        "What must the slowest device of all pay, even with the partners that it would choose itself?",
        "A hop has D pairs, so 2 D devices: the slowest of them pays at least its own cheapest link. Which is the "
        "smallest that this can be, whichever 2 D devices they are?",
    ),
    answer="""
        import numpy as np
        def bound_s(group_s, hop_s, n_stages, n_replicas):
            to_itself = np.where(np.eye(len(group_s)), np.inf, 0.0)
            nearest = np.sort(group_s + to_itself, axis=1)[:, : n_replicas - 1]
            cheapest = np.sort((hop_s + to_itself).min(axis=1))
            return nearest.sum(axis=1).max() + (n_stages - 1) * cheapest[2 * n_replicas - 1]
        answer = bound_s
    """,
)
def tighten_a_bound(function: Callable[..., Any], given: Given) -> str:
    """A simple lower bound: each of the D - 1 messages of a device in its group costs at least as much as the cheapest
    pair of all, and so does each of the S - 1 hops. Write a tighter one, `bound_s(group_s, hop_s, n_stages,
    n_replicas)`, and hand in the function. `group_s` and `hop_s` are (N, N) matrices: the seconds of each pair as
    partners in a group, equation 2, and as neighbours in a pipeline, equation 3, both ways together. All N = S x D
    devices serve. On fresh random networks of six and eight devices, of which every placement is tried, your bound must
    never be above the least cost, and on average it must close a fifth of what the simple one leaves open.
    """
    rng, closed = fresh_cases(), []
    for n_stages, n_replicas in ((2, 3), (3, 2), (4, 2), (2, 4)) * 6:
        pair = _random_pairs(rng, n_stages, n_replicas)
        least_s = least_cost_s(pair, n_stages, n_replicas)
        simple_s = simple_bound_s(pair.group_s, pair.hop_s, n_stages, n_replicas)
        found_s = number_from(function, pair.group_s.copy(), pair.hop_s.copy(), n_stages, n_replicas)
        require(
            found_s <= least_s * (1 + 1e-9),
            f"on a network for {n_stages} x {n_replicas} it says {found_s:.4g} s, and a placement costs {least_s:.4g}: "
            "it is no lower bound",
        )
        closed.append((found_s - simple_s) / (least_s - simple_s) if least_s > simple_s else 1.0)
    share = float(np.mean(closed))
    require(share >= 0, "never above the least cost, but on average below the simple one, which is tighter")
    require(
        share >= TO_CLOSE,
        f"never above the least cost; it closes {share:.0%} of what the simple one leaves open; wanted {TO_CLOSE:.0%}",
    )
    return (
        f"Valid on {len(closed)} networks, and {share:.0%} of what the simple bound leaves open is closed. (One that "
        "tries all placements would close all of it here, and would not end in a lifetime for 64 devices.)"
    )
