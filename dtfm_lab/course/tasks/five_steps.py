"""Missions about the five steps: the pairing behind an edge of the coarsened graph, and the path through it."""

from collections.abc import Mapping
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import scipy

from dtfm_lab.course.checks import MissionsOf, require
from dtfm_lab.course.mission import Given, NotYet
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.planning.cost import bottleneck_matching, path_cost, shortest_path

lesson = MissionsOf("05_five_steps")

ROWS, COLUMNS = ("ada", "ben", "cleo", "dan"), ("emma", "finn", "gita", "hugo")
STAGES = "ABCDEF"


def least_sum_s(table: FloatArray) -> float:
    """Slowest pair of the pairing of least sum, which need not be the bottleneck matching."""
    return float(table[scipy.optimize.linear_sum_assignment(table)].max())


def give_table(rng: np.random.Generator) -> Mapping[str, Any]:
    """Whole seconds of each pair of two groups of four, whose bottleneck the pairing of least sum does not find."""
    while True:
        seconds = rng.permuted(np.arange(1, 17)).reshape(4, 4)
        if bottleneck_matching(seconds.astype(float))[0] < least_sum_s(seconds):
            break
    lines = [f"| | {' | '.join(COLUMNS)} |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| **{name}** | {' | '.join(map(str, row))} |" for name, row in zip(ROWS, seconds, strict=True)]
    return {"seconds": seconds.tolist(), "rows": list(ROWS), "columns": list(COLUMNS), "table": "\n".join(lines)}


@lesson.mission("pair-by-hand", takes=list, give=give_table)
def pair_by_hand(partners: list[Any], given: Given) -> str:
    require(
        sorted(map(str, partners)) == sorted(COLUMNS),
        f"found {partners!r:.80}; wanted each of {', '.join(COLUMNS)} once",
    )
    table = np.array(given.seconds, dtype=float)
    pairs = [table[row, COLUMNS.index(name)] for row, name in enumerate(partners)]
    wanted, _ = bottleneck_matching(table)
    if max(pairs) > wanted:
        least_sum = sum(pairs) == table[scipy.optimize.linear_sum_assignment(table)].sum()
        why = "; it has the least sum, but the pairs work side by side" if least_sum else ""
        raise NotYet(f"its slowest pair takes {max(pairs):.0f} s, and another pairing has a faster slowest pair{why}")
    return f"The slowest pair takes {wanted:.0f} s: the weight of this edge, whatever the other three pairs cost."


def give_graph(rng: np.random.Generator) -> Mapping[str, Any]:
    """Weights of a coarsened graph of six groups through which going to the nearest group is not the best path."""
    n = len(STAGES)
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


@lesson.mission("order-of-stages", takes=list, give=give_graph)
def order_of_stages(order: list[Any], given: Given) -> str:
    require(sorted(map(str, order)) == sorted(STAGES), f"found {order!r:.80}; wanted each of {', '.join(STAGES)} once")
    weights = np.array(given.weights, dtype=float)
    found_s = sum(weights[STAGES.index(a), STAGES.index(b)] for a, b in pairwise(order))
    wanted_s = min(path_cost(weights, np.array(each)) for each in permutations(range(len(STAGES))))
    nearest = any([STAGES[i] for i in _nearest_first(weights, start)] == order for start in range(len(STAGES)))
    why = "; it goes to the nearest group each time, and pays for that at the end" if nearest else ""
    require(found_s == wanted_s, f"this path costs {found_s:.0f} s, and a cheaper one exists{why}")
    closed_s = wanted_s + weights[STAGES.index(order[-1]), STAGES.index(order[0])]
    return (
        f"{wanted_s:.0f} s. A path stays open: closed to a tour it would cost {closed_s:.0f} s, and nothing goes back."
    )
