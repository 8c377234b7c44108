"""A plan under change, with all that is computed from it: seconds of pipelines and groups, memory that is lacking."""

from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.kernels.averaging import average
from dtfm_lab.planning.iteration.kernels.passes import estimate, play
from dtfm_lab.planning.iteration.kernels.replay import finish
from dtfm_lab.planning.iteration.kernels.sharing import share_out
from dtfm_lab.planning.iteration.kernels.stages import count_stages, fixed_bytes, synchronising_bytes
from dtfm_lab.planning.iteration.kernels.tables import CENTRAL, DOLLARS, HIERARCHICAL, Tables, moving_s

LACKING = 10.0
"""Factor on what a plan lacks, as shares of memory or of a limit: one that lacks 10 % counts as twice as dear."""
SMOOTHING = 0.1
"""Weight of what the mean pipeline takes beside the slowest, which gives a direction on plateaus."""


class State(NamedTuple):
    row: IntArray
    """(N,) a flattened grid, then the idle devices."""
    grid: IntArray
    """(S, R) the row's beginning, a view."""
    blocks: IntArray
    shares: IntArray
    """(R,) micro-batches of each pipeline."""
    ahead: IntArray
    """(S,) forwards ahead, falling."""
    flop: FloatArray
    """(S,), as the next three: see ``count_stages``."""
    parameters: FloatArray
    kept: FloatArray
    again: FloatArray
    passing: FloatArray
    """(S,) bytes during the passes, activations from forward to backward left out."""
    averaging: FloatArray
    """(S, R) bytes while a group averages."""
    ready: FloatArray
    """(R, S) ends of the last backwards."""
    up_free_s: FloatArray
    """(R,) when the link from the second stage to the first is free."""
    line: FloatArray
    """(R, 2) seconds at ``shares``, and seconds of each further micro-batch."""
    critical: IntArray
    """(R,) a stage of the dearest cycle of each pipeline."""
    group_s: FloatArray
    """(S,) seconds of averaging where all replicas begin at once."""
    tied_s: FloatArray
    """(R,) seconds in which the two ends exchange a tied embedding's gradient."""
    over: FloatArray
    """(R, S) share by which devices lack memory."""
    scratch: FloatArray
    """(9, S)"""
    lots: FloatArray
    """(3, R)"""


@compiled
def refresh_stages(tables: Tables, state: State) -> None:
    """Recompute what follows from the blocks alone."""
    n, r = state.grid.shape
    count_stages(tables, state.blocks, state.flop, state.parameters, state.kept, state.again)
    differs = tables.synchronisation == CENTRAL or tables.synchronisation == HIERARCHICAL
    for s in range(n):
        state.passing[s] = fixed_bytes(tables, s, n, state.parameters[s], state.again[s])
        static = state.parameters[s] * tables.static_bytes
        state.averaging[s] = static + synchronising_bytes(tables, state.grid, s, 0, state.parameters[s])
        if differs:
            for i in range(1, r):
                state.averaging[s, i] = static + synchronising_bytes(tables, state.grid, s, i, state.parameters[s])


@compiled
def refresh_pipeline(tables: Tables, state: State, r: int, exact: bool) -> None:
    """Recompute one pipeline's seconds and memory."""
    n = len(state.blocks)
    m = state.shares[r]
    if exact:
        state.up_free_s[r] = play(tables, state.grid, r, state.flop, m, state.ahead, state.ready[r])
    else:
        state.critical[r] = estimate(
            tables, state.grid, r, state.flop, m, state.ahead, state.ready[r], state.line[r], state.scratch
        )
        if n > 1 and tables.tied_parameters > 0.0:
            n_bytes = tables.tied_parameters * tables.bytes_per_element
            a, b = state.grid[0, r], state.grid[n - 1, r]
            state.tied_s[r] = max(
                moving_s(tables, a, b, n_bytes) + tables.latency_s[a, b],
                moving_s(tables, b, a, n_bytes) + tables.latency_s[b, a],
            )
    refresh_memory(tables.memory_bytes, state, r)


@compiled
def refresh_memory(memory_bytes: FloatArray, state: State, r: int) -> None:
    """Recompute what one pipeline's devices lack in memory."""
    m = state.shares[r]
    for s in range(len(state.blocks)):
        need = state.passing[s] + min(state.ahead[s] + 1, m) * state.kept[s]
        state.over[r, s] = max(max(need, state.averaging[s, r]) / memory_bytes[state.grid[s, r]] - 1.0, 0.0)


@compiled
def refresh_group(tables: Tables, state: State, s: int) -> None:
    """Recompute the seconds of one group's averaging."""
    n = state.grid.shape[1]
    if n == 1:
        state.group_s[s] = 0.0
        return
    state.lots[0] = 0.0
    average(tables, state.grid[s], state.lots[0], state.parameters[s], state.lots[1], state.lots[2])
    state.group_s[s] = (state.lots[1] + state.lots[2]).max() / tables.synchronise_every


@compiled
def refresh(tables: Tables, state: State, exact: bool) -> None:
    """Recompute everything but ``shares`` and ``ahead``."""
    refresh_pipelines(tables, state, exact)
    if not exact:
        for s in range(len(state.blocks)):
            refresh_group(tables, state, s)


@compiled
def refresh_pipelines(tables: Tables, state: State, exact: bool) -> None:
    """Recompute everything but the groups."""
    refresh_stages(tables, state)
    for r in range(state.grid.shape[1]):
        refresh_pipeline(tables, state, r, exact)


@compiled
def lacking(tables: Tables, state: State, seconds: float) -> float:
    """What a plan of so many seconds lacks, in memory and below the limits, as a sum of shares; 0 where it is valid."""
    total = state.over.sum()
    if tables.most_s < np.inf:
        total += max(seconds / tables.most_s - 1.0, 0.0)
    if tables.most_dollars_per_s < np.inf:
        total += max(dollars_per_s(tables, state) / tables.most_dollars_per_s - 1.0, 0.0)
    return total


@compiled
def dollars_per_s(tables: Tables, state: State) -> float:
    total = 0.0
    for i in range(state.grid.size):
        total += tables.price_per_s[state.row[i]]
    return total


@compiled
def objective(tables: Tables, state: State, seconds: float) -> float:
    """Seconds, or dollars, of an iteration of so many seconds."""
    return seconds * dollars_per_s(tables, state) if tables.objective == DOLLARS else seconds


@compiled
def seconds_of(tables: Tables, state: State, exact: bool, fixed: bool) -> tuple[float, float]:
    """Seconds of an iteration, and the seconds of a pipeline in the mean, after ``refresh``.

    Unless ``fixed``, or ``exact``, the micro-batches are shared out anew.
    """
    n, r = state.grid.shape
    if exact:
        t = finish(tables, state.grid, state.parameters, state.ready, state.up_free_s)
        return t, t
    begins, each, shares = state.lots[0], state.lots[1], state.lots[2]
    mean_s = 0.0
    for i in range(r):
        each[i] = state.line[i, 1]
        begins[i] = state.line[i, 0] - each[i] * state.shares[i]
        shares[i] = state.shares[i]
    if fixed or r == 1:
        for i in range(r):
            mean_s += state.line[i, 0] / r
    else:
        mean_s = share_out(begins, each, tables.n_microbatches, shares)
    latest = 0.0
    ends_s = state.scratch[0]
    ends_s[:] = 0.0
    tied_s = 0.0
    for i in range(r):
        later_s = each[i] * (shares[i] - state.shares[i])
        tied_s = max(tied_s, state.tied_s[i])
        for s in range(n):
            ends_s[s] = max(ends_s[s], state.ready[i, s] + later_s)
    for s in range(n):
        latest = max(latest, ends_s[s] + state.group_s[s] + (tied_s if s in (0, n - 1) else 0.0))
    return latest, mean_s


@compiled
def take_shares(tables: Tables, state: State) -> bool:
    """Make the micro-batches those that ``seconds_of`` shared out last; whether memory changed by that."""
    changed = False
    deepest = state.ahead[0] + 1
    for i in range(len(state.shares)):
        new, old = int(state.lots[2, i]), state.shares[i]
        if new != old:
            later_s = state.line[i, 1] * (new - old)
            state.line[i, 0] += later_s
            state.ready[i] += later_s
            state.shares[i] = new
            if min(new, old) < deepest:
                refresh_memory(tables.memory_bytes, state, i)
                changed = True
    return changed


@compiled
def copy_pipeline(source: State, target: State, r: int) -> None:
    """Copy all that belongs to one pipeline."""
    for s in range(len(source.blocks)):
        target.ready[r, s], target.over[r, s] = source.ready[r, s], source.over[r, s]
    target.line[r, 0], target.line[r, 1] = source.line[r, 0], source.line[r, 1]
    target.up_free_s[r], target.critical[r] = source.up_free_s[r], source.critical[r]
    target.tied_s[r], target.shares[r] = source.tied_s[r], source.shares[r]


@compiled
def copy_state(source: State, target: State) -> None:
    """Copy everything but scratch."""
    target.row[:], target.blocks[:], target.shares[:] = source.row, source.blocks, source.shares
    target.ahead[:], target.flop[:], target.parameters[:] = source.ahead, source.flop, source.parameters
    target.kept[:], target.again[:], target.group_s[:] = source.kept, source.again, source.group_s
    target.passing[:], target.averaging[:] = source.passing, source.averaging
    target.ready[:], target.over[:], target.line[:] = source.ready, source.over, source.line
    target.up_free_s[:], target.critical[:], target.tied_s[:] = source.up_free_s, source.critical, source.tied_s
