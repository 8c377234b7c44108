"""Missions about searching: the matching behind an edge of the coarsened graph, the path through that graph, and how
good the result is."""

import types
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, pairwise, permutations
from typing import Any

import numpy as np
import scipy

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, format_share
from dtfm_lab.extensions.course.checks import (
    MissionsOf,
    Number,
    TextValues,
    fresh_cases,
    number_from,
    plan_of,
    priced_again,
    require,
)
from dtfm_lab.extensions.course.mission import Given, NotYet
from dtfm_lab.files import load_job
from dtfm_lab.planning.cost import (
    PairCosts,
    bottleneck_matching,
    coarsened_weights,
    group_costs,
    path_cost,
    shortest_path,
)

steps = MissionsOf("05_five_steps")

ROWS = ("ada", "ben", "cleo", "dan")
"""Devices of the first group, one per row of the table of seconds."""
COLUMNS = ("emma", "finn", "gita", "hugo")
"""Devices of the second group, one per column."""
STAGES = "ABCDEF"


def least_sum_s(table: FloatArray) -> float:
    """Return the seconds of the slowest pair in the matching with the smallest sum. It need not be the bottleneck
    matching."""
    return float(table[scipy.optimize.linear_sum_assignment(table)].max())


def give_table(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return whole seconds for each pair of devices of two groups of four. The matching with the smallest sum is not
    their bottleneck matching."""
    while True:
        seconds = rng.permuted(np.arange(1, 17)).reshape(4, 4)
        if bottleneck_matching(seconds.astype(float))[0] < least_sum_s(seconds):
            break
    lines = [f"| | {' | '.join(COLUMNS)} |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| **{name}** | {' | '.join(map(str, row))} |" for name, row in zip(ROWS, seconds, strict=True)]
    return {"seconds": seconds.tolist(), "rows": list(ROWS), "columns": list(COLUMNS), "table": "\n".join(lines)}


@steps.mission("pair-by-hand", takes=list, give=give_table)
def pair_by_hand(partners: list[Any], given: Given) -> TextValues:
    require(
        sorted(map(str, partners)) == sorted(COLUMNS),
        f"found {partners!r:.80}; wanted each of {', '.join(COLUMNS)} once",
    )
    table = np.array(given.seconds, dtype=float)
    pairs = [table[row, COLUMNS.index(name)] for row, name in enumerate(partners)]
    wanted, _ = bottleneck_matching(table)
    if max(pairs) > wanted:
        # The usual mistake: the assignment with the least sum.
        least_sum = sum(pairs) == table[scipy.optimize.linear_sum_assignment(table)].sum()
        why = "; it has the least sum, but the pairs work side by side" if least_sum else ""
        raise NotYet(f"its slowest pair takes {max(pairs):.0f} s, and another pairing has a faster slowest pair{why}")
    return {"wanted": wanted}


def give_graph(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return weights of a coarsened graph of six groups in which always going to the nearest group does not give the
    best path."""
    n = len(STAGES)
    # Sample until the simple way fails from every start: otherwise it could win by luck.
    while True:
        upper = np.triu(rng.integers(1, 30, (n, n)), 1)
        weights = (upper + upper.T).astype(float)
        best = path_cost(weights, shortest_path(weights))
        if all(path_cost(weights, _nearest_first(weights, start)) > best for start in range(n)):
            break
    lines = [f"| | {' | '.join(STAGES)} |", "|" + " --- |" * (n + 1)]
    lines += [f"| **{STAGES[i]}** | {' | '.join(str(int(w)) if w else '' for w in weights[i])} |" for i in range(n)]
    return {"weights": weights.astype(int).tolist(), "names": list(STAGES), "table": "\n".join(lines)}


def _nearest_first(weights: FloatArray, start: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    order = [start]
    while len(order) < len(weights):
        order.append(min(set(range(len(weights))) - set(order), key=lambda node: weights[order[-1], node]))
    return np.array(order)


@steps.mission("order-of-stages", takes=list, give=give_graph)
def order_of_stages(order: list[Any], given: Given) -> TextValues:
    require(sorted(map(str, order)) == sorted(STAGES), f"found {order!r:.80}; wanted each of {', '.join(STAGES)} once")
    weights = np.array(given.weights, dtype=float)
    found_s = sum(weights[STAGES.index(a), STAGES.index(b)] for a, b in pairwise(order))
    wanted_s = min(path_cost(weights, np.array(each)) for each in permutations(range(len(STAGES))))
    nearest = any([STAGES[i] for i in _nearest_first(weights, start)] == order for start in range(len(STAGES)))
    why = "; it goes to the nearest group each time, and pays for that at the end" if nearest else ""
    require(found_s == wanted_s, f"this path costs {found_s:.0f} s, and a cheaper one exists{why}")
    closed_s = wanted_s + weights[STAGES.index(order[-1]), STAGES.index(order[0])]
    return {"wanted_s": wanted_s, "closed_s": closed_s}


searches = MissionsOf("06_searching")


def cheap_hops(given: Given, plan: Plan) -> Number:
    """Return the maximum number of hops within one instance: N - 1, if its N devices serve N consecutive stages."""
    return Number(given.size - 1.0, {"stages": float(given.size), "all_hops": 7.0}, within=0.0)


@searches.mission(
    "spot-under-32",
    takes=Plan,
    reason=cheap_hops,
    give=lambda rng: {"size": int(rng.choice([3, 5, 6, 7]))},
    network="spot",
    job=lambda _: load_job("dtfm-gpt3-xl"),
)
def spot_under_32(plan: Plan, given: Given) -> TextValues:
    plan_of(plan, "spot", load_job("dtfm-gpt3-xl"), "n_stages", "n_replicas", "gradient_bytes", "hop_bytes")
    cost_s = priced_again(plan).cost.total_s
    require(cost_s < 32, f"its placement costs {cost_s:.2f} s; wanted less than 32 s")
    return {"cost_s": cost_s}


def give_claim(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return a plan's cost in seconds and its gap to the lower bound in per cent."""
    return {"cost_s": int(rng.integers(200, 900)) / 10, "gap_percent": int(rng.integers(5, 45))}


@searches.number("what-a-gap-promises", give=give_claim)
def what_a_gap_promises(given: Given) -> Number:
    cost_s, gap = given.cost_s, given.gap_percent / 100
    slips = {"cost": cost_s, "saved": cost_s * gap, "of_bound": cost_s / (1 + gap), "nothing": 0.0}
    return Number(cost_s * (1 - gap), slips, within=0.002)


def simple_bound_s(group_s: np.ndarray[Any, Any], hop_s: np.ndarray[Any, Any], n_stages: int, n_replicas: int) -> float:
    """Return a lower bound on the cost: every message within a group, and every hop, costs as much as the cheapest of
    all pairs."""
    others = ~np.eye(len(group_s), dtype=bool)
    return float((n_replicas - 1) * group_s[others].min() + (n_stages - 1) * hop_s[others].min())


def _groupings(left: list[int], size: int) -> Iterator[list[tuple[int, ...]]]:
    """Yield all ways to divide devices into groups of a size."""
    if not left:
        yield []
        return
    for others in combinations(left[1:], size - 1):
        group = (left[0], *others)
        for more in _groupings([device for device in left if device not in group], size):
            yield [group, *more]


def least_cost_s(pair: PairCosts, n_stages: int, n_replicas: int) -> float:
    """Return the minimum cost over all placements of a few devices. It tries each way to group the devices, with the
    best order of the groups."""
    best_s = np.inf
    for grouping in _groupings(list(range(n_stages * n_replicas)), n_replicas):
        groups = np.array(grouping)
        slowest_s = group_costs(groups, pair.group_s).max()
        if slowest_s < best_s:
            weights = coarsened_weights(groups, pair.hop_s)
            best_s = min(best_s, slowest_s + path_cost(weights, shortest_path(weights)))
    return float(best_s)


def _random_pairs(rng: np.random.Generator, n_stages: int, n_replicas: int) -> PairCosts:
    """Return the pair costs of a random network. Half of the time, it has three sites with slow links between them."""
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
"""A tighter bound has to close, on average, at least this share of the gap that the simple bound leaves."""


@searches.mission("tighten-a-bound", takes=types.FunctionType)
def tighten_a_bound(function: Callable[..., Any], given: Given) -> TextValues:
    rng, closed = fresh_cases(), []
    # Many small networks, because a wrong bound may happen to hold on some.
    for n_stages, n_replicas in ((2, 3), (3, 2), (4, 2), (2, 4)) * 6:
        pair = _random_pairs(rng, n_stages, n_replicas)
        least_s = least_cost_s(pair, n_stages, n_replicas)
        simple_s = simple_bound_s(pair.group_s, pair.hop_s, n_stages, n_replicas)
        found_s = number_from(function, pair.group_s.copy(), pair.hop_s.copy(), n_stages, n_replicas)
        require(
            found_s <= least_s * (1 + 1e-9),
            f"on a network for {n_stages} x {n_replicas} it says {found_s:.4g} s, and a placement costs {least_s:.4g}: "
            "it is not a lower bound",
        )
        closed.append((found_s - simple_s) / (least_s - simple_s) if least_s > simple_s else 1.0)
    share = float(np.mean(closed))
    require(share >= 0, "it is never above the least cost, but on average below the simple one, which is tighter")
    require(
        share >= TO_CLOSE,
        f"it is never above the least cost, but closes {format_share(share, 0)} of what the simple one leaves "
        f"open; wanted {format_share(TO_CLOSE, 0)}",
    )
    return {"n": len(closed), "share": format_share(share, 0)}
