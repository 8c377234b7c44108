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


@lesson.mission(
    "pair-by-hand",
    title="A bottleneck matching by hand",
    takes=list,
    wanted="a list of four names, the partners of ada, ben, cleo and dan",
    give=give_table,
    hints=(
        "Cross out the slowest pair of the table. Can everybody still be paired? Then it is not needed.",
        "Go on crossing out, slowest first, until somebody would be left alone: that pair has to stay.",
        "With one partner each, 24 pairings exist: `itertools.permutations` lists them.",
    ),
    answer="""
        from itertools import permutations
        seconds = given.seconds
        best = min(permutations(range(4)), key=lambda to: max(seconds[row][column] for row, column in enumerate(to)))
        answer = [given.columns[column] for column in best]
    """,
)
def pair_by_hand(partners: list[Any], given: Given) -> str:
    """Two neighbouring groups are to be paired. Seconds of each pair:

    {table}

    Hand in the partners of ada, ben, cleo and dan, in this order, as a list of names, such that the slowest of the four
    pairs is as fast as it can be.
    """
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


@lesson.mission(
    "order-of-stages",
    title="Which group holds which stage?",
    takes=list,
    wanted="a list of the six groups in the order of their stages",
    give=give_graph,
    hints=(
        "Five of the fifteen edges are paid for. Going to the nearest group each time is not the best here.",
        "Six groups have 720 orders, of which half are the other half backwards: let Python try them.",
    ),
    answer="""
        from itertools import pairwise, permutations
        def path_s(order):
            return sum(given.weights[a][b] for a, b in pairwise(order))
        answer = [given.names[group] for group in min(permutations(range(6)), key=path_s)]
    """,
)
def order_of_stages(order: list[Any], given: Given) -> str:
    """A coarsened graph of six groups, A to F, with these weights in seconds:

    {table}

    Hand in the groups in the order of their stages, as a list of letters, such that the pipeline costs least (equation
    4). Which end comes first does not matter.
    """
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
