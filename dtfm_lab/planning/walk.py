"""The local search: from neighbour to neighbour, downhill with noise that fades."""

from __future__ import annotations

import numpy as np

from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.neighbourhood import Neighbourhood

COOLING = 0.05
"""end temperature as a share of the first"""
REPAIR_EVERY = 40


def walk(
    hood: Neighbourhood, row: IntArray, scale_s: float, hot: float, n_moves: int, rng: np.random.Generator
) -> tuple[IntArray, int]:
    """The cheapest row on a walk of ``n_moves`` and how many neighbours it priced.

    Each step prices all neighbours and takes the one with the least change minus exponential noise of
    ``temperature x scale_s``: Metropolis' rule with all its rejections skipped, the best acceptance
    taken. Pipelines and stage order are put right now and then.
    """
    best, best_s, seen = row, hood.problem.cost(hood.grid(row)), 0
    for i, temperature in enumerate(np.geomspace(hot, hot * COOLING, n_moves)):
        moves = hood.moves(row, rng)
        seen += len(moves.change_s)
        key = moves.change_s - temperature * scale_s * rng.standard_exponential(len(moves.change_s))
        k = int(key.argmin()) if len(key) else 0
        if not len(key) or not np.isfinite(key[k]):
            break
        row = hood.apply(row, moves, k)
        if i % REPAIR_EVERY == REPAIR_EVERY - 1:
            row = hood.repaired(row)
        if (cost_s := hood.problem.cost(hood.grid(row))) < best_s:
            best, best_s = row, cost_s
    return best, seen
