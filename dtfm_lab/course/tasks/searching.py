"""Missions about searching for a placement and knowing how good it is."""

import types
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from dtfm_lab.course.checks import (
    MissionsOf,
    Number,
    fresh_cases,
    number_from,
    plan_of,
    priced_again,
    require,
)
from dtfm_lab.course.mission import Given
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.files import load_job
from dtfm_lab.planning.cost import PairCosts, coarsened_weights, group_costs, path_cost, shortest_path

lesson = MissionsOf("06_searching")


@lesson.mission("spot-under-32", takes=Plan)
def spot_under_32(plan: Plan, given: Given) -> str:
    plan_of(plan, "spot", load_job("dtfm-gpt3-xl"), "n_stages", "n_replicas", "gradient_bytes", "hop_bytes")
    cost_s = priced_again(plan).cost.total_s
    require(cost_s < 32, f"its placement costs {cost_s:.2f} s; wanted less than 32 s")
    return f"{cost_s:.2f} s: the plateau of 49.5 s is left, by groups that keep what they exchange inside an instance."


def give_claim(rng: np.random.Generator) -> Mapping[str, Any]:
    """A plan's cost and its gap."""
    return {"cost_s": int(rng.integers(200, 900)) / 10, "gap_percent": int(rng.integers(5, 45))}


@lesson.number("what-a-gap-promises", give=give_claim)
def what_a_gap_promises(given: Given) -> Number:
    cost_s, gap = given.cost_s, given.gap_percent / 100
    return Number(
        cost_s * (1 - gap),
        "Between the two, nobody knows: a better plan may exist, or the bound may be loose.",
        slips={
            cost_s: "she may well have a better plan: a gap leaves room for one",
            cost_s * gap: "that is what she can save at most",
            cost_s / (1 + gap): "the gap is a share of the cost, not of the bound",
            0.0: "the bound says more than that",
        },
        within=0.002,
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


@lesson.mission("tighten-a-bound", takes=types.FunctionType)
def tighten_a_bound(function: Callable[..., Any], given: Given) -> str:
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
