"""Planning against named opponents in the same run: ratios, no absolute claims.

Search: ``evolutionary`` against ``random`` with as many seconds each. Pricing: the neighbours that the search
prices incrementally against equations 2 and 3 written plainly with networkx, one placement at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

import networkx as nx
import numpy as np

import dtfm_lab as lab
from dtfm_lab.domain.plan import Plan

CASES = ("datacenter", "spot", "universities", "regional", "worldwide")
SECONDS = 2.0


def plain_price(plan: Plan) -> float:
    """Equations 2 and 3 as one would write them down, for groups in a given order."""
    topology, job = plan.topology, plan.job
    shard = topology.round_trip_s(job.gradient_bytes / job.n_replicas)
    hop = topology.round_trip_s(job.hop_bytes)
    groups = plan.placement.devices.tolist()
    synchronisation = max(sum(shard[a][b] for b in group if b != a) for group in groups for a in group)
    return float(synchronisation + sum(bottleneck(hop, left, right) for left, right in pairwise(groups)))


def bottleneck(cost: np.ndarray, left: list[int], right: list[int]) -> float:
    for threshold in sorted({cost[a][b] for a in left for b in right}):
        graph = nx.Graph((("left", a), ("right", b)) for a in left for b in right if cost[a][b] <= threshold)
        top = [("left", a) for a in left]
        if all(node in graph for node in top):
            matching = nx.bipartite.maximum_matching(graph, top_nodes=top)
            if sum(node in matching for node in top) == len(left):
                return float(threshold)
    raise AssertionError("a complete bipartite graph has a perfect matching")


def seconds_of(work: Callable[[], object], rounds: int) -> float:
    began = time.perf_counter()
    for _ in range(rounds):
        work()
    return (time.perf_counter() - began) / rounds


def main() -> None:
    print(f"{'case':14}{'evolutionary':>16}{'random':>12}{'random / ours':>16}{'gap':>9}")
    for case in CASES:
        chance = lab.plan(case, "dtfm-gpt3-xl", planner="random", seed=0, seconds=SECONDS)
        ours = lab.plan(case, "dtfm-gpt3-xl", seed=0, seconds=SECONDS)
        print(
            f"{case:14}{ours.cost.total_s:>14.3f} s{chance.cost.total_s:>10.3f} s"
            f"{chance.cost.total_s / ours.cost.total_s:>15.2f}x{ours.gap:>9.1%}"
        )
    assert np.isclose(plain_price(chance), chance.cost.total_s)
    plain_per_s = 1 / seconds_of(lambda: plain_price(chance), 20)
    print(
        f"worldwide: the search prices {ours.evaluations / ours.seconds:,.0f} placements a second, "
        f"{ours.evaluations / ours.seconds / plain_per_s:,.0f} times as many as plain networkx prices one by one"
    )


if __name__ == "__main__":
    main()
