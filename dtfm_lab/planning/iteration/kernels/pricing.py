"""The seconds, the objective and the lacks of a state whose pipelines and groups are up to date."""

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.planning.iteration.kernels.replay import finish
from dtfm_lab.planning.iteration.kernels.sharing import share_out
from dtfm_lab.planning.iteration.kernels.state import (
    EACH,
    LACKING,
    READY,
    TIED,
    TOTAL,
    UP_FREE,
    State,
    refresh_memory,
)
from dtfm_lab.planning.iteration.kernels.tables import DOLLARS, GROUP, PRICE, Tables

PENALTY = 10.0
"""Factor on what a plan lacks, as shares of memory or of a limit: one that lacks 10 % counts as twice as dear."""


@compiled
def lacking(tables: Tables, state: State, seconds: float) -> float:
    """What a plan of so many seconds lacks, in memory and below the limits, as a sum of shares; 0 where it is valid."""
    total = 0.0
    n, r = state.grid.shape
    for i in range(r):
        for s in range(n):
            total += state.cell[LACKING, i, s]
    if tables.most_s < np.inf:
        total += max(seconds / tables.most_s - 1.0, 0.0)
    if tables.most_dollars_per_s < np.inf:
        total += max(_dollars_per_s(tables, state) / tables.most_dollars_per_s - 1.0, 0.0)
    return total


@compiled
def objective(tables: Tables, state: State, seconds: float) -> float:
    """Seconds, or dollars, of an iteration of so many seconds."""
    return seconds * _dollars_per_s(tables, state) if tables.objective == DOLLARS else seconds


@compiled
def _dollars_per_s(tables: Tables, state: State) -> float:
    total = 0.0
    for i in range(state.grid.size):
        total += tables.device[PRICE, state.row[i]]
    return total


@compiled
def seconds_of(tables: Tables, state: State, exact: bool, fixed: bool) -> tuple[float, float]:
    """Seconds of an iteration, and those of its pipelines in the mean.

    Unless ``fixed``, or ``exact``, the micro-batches are shared out anew, into ``lots``.
    """
    n, r = state.grid.shape
    pipe, lots, cell = state.pipe, state.lots, state.cell
    if exact:
        t = finish(tables, state.grid, state.stage, cell[READY], pipe[UP_FREE])
        return t, t
    mean_s, tied_s = 0.0, 0.0
    for i in range(r):
        lots[0, i] = pipe[TOTAL, i] - pipe[EACH, i] * state.shares[i]
        lots[1, i] = pipe[EACH, i]
        lots[2, i] = state.shares[i]
        mean_s += pipe[TOTAL, i] / r
        tied_s = max(tied_s, pipe[TIED, i])
    if not fixed and r > 1:
        mean_s = share_out(lots[0], lots[1], tables.n_microbatches, lots[2])
    latest_s = 0.0
    for s in range(n):
        end_s = 0.0
        for i in range(r):
            end_s = max(end_s, cell[READY, i, s] + lots[1, i] * (lots[2, i] - state.shares[i]))
        end_s += state.stage[GROUP, s]
        if s == 0 or s == n - 1:
            end_s += tied_s
        latest_s = max(latest_s, end_s)
    return latest_s, mean_s


@compiled
def take_shares(tables: Tables, state: State) -> bool:
    """Make the micro-batches those that ``seconds_of`` shared out last; whether memory changed by that."""
    changed = False
    deepest = state.ahead[0] + 1
    for i in range(len(state.shares)):
        new, old = int(state.lots[2, i]), state.shares[i]
        if new != old:
            later_s = state.pipe[EACH, i] * (new - old)
            state.pipe[TOTAL, i] += later_s
            for s in range(len(state.blocks)):
                state.cell[READY, i, s] += later_s
            state.shares[i] = new
            if min(new, old) < deepest:
                refresh_memory(tables.device, state, i)
                changed = True
    return changed
