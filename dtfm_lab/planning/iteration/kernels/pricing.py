"""Seconds, objective and missing memory of a state whose pipelines and groups are up to date.

``share_out`` gives each pipeline its micro-batches, so that the last one ends as early as possible. ``finish`` ends an
iteration exactly as the simulator plays it, for the orders and ways to synchronise that ``tables`` knows.
"""

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.kernels.averaging import average
from dtfm_lab.planning.iteration.kernels.state import (
    COUNT,
    EACH,
    LACKING,
    OFFSET,
    READY,
    SLOPE,
    TIED,
    TOTAL,
    UP_FREE,
    SearchState,
    refresh_memory,
)
from dtfm_lab.planning.iteration.kernels.tables import DOLLARS, GROUP, LATENCY, PARAMETERS, PRICE, Tables, moving_s

PENALTY = 10.0
"""Factor on the relative excesses over memory and limits (``lacking``). A plan that exceeds one of them by 10 % counts
as twice as expensive. So annealing may pass through plans that nearly fit. Chosen by hand."""


@compiled
def lacking(tables: Tables, state: SearchState, seconds: float) -> float:
    """Return how far a plan exceeds device memory and the limits on time and price; 0 if it is valid. This is a sum of
    relative excesses (0.1 is 10 % over one limit)."""
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
def objective(tables: Tables, state: SearchState, seconds: float) -> float:
    """Return the objective of an iteration that takes ``seconds``: these seconds, or US dollars."""
    return seconds * _dollars_per_s(tables, state) if tables.objective == DOLLARS else seconds


@compiled
def _dollars_per_s(tables: Tables, state: SearchState) -> float:
    total = 0.0
    for i in range(state.grid.size):
        total += tables.device[PRICE, state.row[i]]
    return total


@compiled
def seconds_of(tables: Tables, state: SearchState, exact: bool, fixed: bool) -> tuple[float, float]:
    """Return the seconds of an iteration, and the average seconds of its pipelines. If micro-batches are shared out
    again, the second is what ``share_out`` returns. With ``exact``, both are the seconds of the iteration.

    Unless ``fixed`` or ``exact``, micro-batches are shared out again, into ``SearchState.shared_out`` only
    (``take_counts``).
    """
    n, r = state.grid.shape
    pipe, shared_out, cell = state.pipe, state.shared_out, state.cell
    if exact:
        t = finish(tables, state.grid, state.stage, cell[READY], pipe[UP_FREE])
        return t, t
    mean_s, tied_s = 0.0, 0.0
    for i in range(r):
        shared_out[OFFSET, i] = pipe[TOTAL, i] - pipe[EACH, i] * state.microbatch_counts[i]
        shared_out[SLOPE, i] = pipe[EACH, i]
        shared_out[COUNT, i] = state.microbatch_counts[i]
        mean_s += pipe[TOTAL, i] / r
        tied_s = max(tied_s, pipe[TIED, i])
    if not fixed and r > 1:
        mean_s = share_out(shared_out[OFFSET], shared_out[SLOPE], tables.passes.n_microbatches, shared_out[COUNT])
    latest_s = 0.0
    for s in range(n):
        end_s = 0.0
        for i in range(r):
            end_s = max(
                end_s, cell[READY, i, s] + shared_out[SLOPE, i] * (shared_out[COUNT, i] - state.microbatch_counts[i])
            )
        end_s += state.stage[GROUP, s]
        if s == 0 or s == n - 1:
            end_s += tied_s
        latest_s = max(latest_s, end_s)
    return latest_s, mean_s


@compiled
def take_counts(tables: Tables, state: SearchState) -> bool:
    """Take over the micro-batch counts that ``seconds_of`` shared out last. Return True if memory changed."""
    changed = False
    deepest = state.warmups[0] + 1
    for i in range(len(state.microbatch_counts)):
        new, old = int(state.shared_out[COUNT, i]), state.microbatch_counts[i]
        if new != old:
            later_s = state.pipe[EACH, i] * (new - old)
            state.pipe[TOTAL, i] += later_s
            for s in range(len(state.blocks)):
                state.cell[READY, i, s] += later_s
            state.microbatch_counts[i] = new
            # warm-ups limit what is held at once, so beyond them more micro-batches take no more memory
            if min(new, old) < deepest:
                refresh_memory(tables.device, state, i)
                changed = True
    return changed


HALVINGS = 24
"""Minimum number of times that ``share_out`` halves the interval of its time limit. The last interval is 6e-8 of a
micro-batch's seconds. Chosen by hand: only ties are left by then, which the last loop settles."""


@compiled
def share_out(begins: FloatArray, each: FloatArray, total: int, counts: FloatArray) -> float:
    """Fill ``counts`` (R,) with whole micro-batches, at least one each, ``total`` together.

    Pipeline r takes ``begins[r] + each[r] x counts[r]`` seconds. Returns the seconds with fractional micro-batches,
    which is a lower bound for whole ones.
    """
    n = len(each)
    rate, begun = 0.0, 0.0
    for r in range(n):
        rate += 1.0 / each[r]
        begun += begins[r] / each[r]
    even_s = (total + begun) / rate
    low, high = even_s, even_s + each.max()
    while True:  # raise the limit if some pipelines are too slow even for one micro-batch
        n_done = 0.0
        for r in range(n):
            n_done += max(1.0, np.floor((high - begins[r]) / each[r]))
        if n_done >= total:
            break
        low, high = high, 2 * high - even_s + 1e-12 * abs(high)
    halvings = 0
    while halvings < HALVINGS or n_done > total + n:  # more if one pipeline is millions of times slower
        middle = 0.5 * (low + high)
        if halvings >= HALVINGS and not low < middle < high:
            break
        halvings += 1
        n_middle = 0.0
        for r in range(n):
            n_middle += max(1.0, np.floor((middle - begins[r]) / each[r]))
        if n_middle >= total:
            high, n_done = middle, n_middle
        else:
            low = middle
    n_done = 0.0
    for r in range(n):
        counts[r] = max(1.0, np.floor((high - begins[r]) / each[r]))
        n_done += counts[r]
    while n_done > total:
        worst, worst_s = -1, -np.inf
        for r in range(n):
            end_s = begins[r] + each[r] * counts[r]
            if counts[r] > 1.0 and end_s > worst_s:
                worst, worst_s = r, end_s
        # one at a time, or several if rounding hides short differences in long seconds
        counts[worst] = max(1.0, counts[worst] - max(1.0, np.floor((n_done - total) / n)))
        n_done = counts.sum()
    return even_s


@compiled
def finish(tables: Tables, grid: IntArray, stage: FloatArray, ready: FloatArray, up_free_s: FloatArray) -> float:
    """Return the seconds of an iteration whose passes end at ``ready`` (R, S), including averaging and tied embeddings.

    If replicas average only every H-th iteration, these are the mean seconds of H iterations. ``up_free_s`` (R,) is the
    time from which the link from the second stage of each pipeline to the first is free.
    """
    n, r = grid.shape
    tied = n > 1 and tables.tied_parameters > 0.0
    # replicas that split the optimizer states, or step alone, need the embedding's gradient before they average
    tied_first = tied and (tables.synchronise_every > 1 or tables.splits_states)
    done, last_s, then_s, decoding_s = np.empty((r, n)), np.empty((r, n)), np.empty(r), np.empty(r)
    alone_s, together_s = 0.0, 0.0
    for i in range(r):
        for s in range(n):
            done[i, s] = ready[i, s]
        if tied_first:
            _exchange_embedding(tables, grid, i, up_free_s[i], done[i])
        for s in range(n):
            alone_s = max(alone_s, done[i, s])
    for s in range(n):
        for i in range(r):
            then_s[i] = done[i, s]
        average(tables, grid[s], stage[PARAMETERS, s], then_s, decoding_s)
        for i in range(r):
            done[i, s], last_s[i, s] = then_s[i], decoding_s[i]
    for i in range(r):
        if tied and not tied_first:
            _exchange_embedding(tables, grid, i, up_free_s[i], done[i])
        for s in range(n):
            together_s = max(together_s, done[i, s] + last_s[i, s])
    return ((tables.synchronise_every - 1) * alone_s + together_s) / tables.synchronise_every


@compiled
def _exchange_embedding(tables: Tables, grid: IntArray, r: int, up_free_s: float, done: FloatArray) -> None:
    """Let the two ends of pipeline r send each other the embedding's gradient.

    With two stages, it follows the last passes' messages on the same link.
    """
    n = grid.shape[0]
    first, last, n_bytes = grid[0, r], grid[n - 1, r], tables.tied_parameters * tables.gradient.plain
    leaves = max(done[n - 1], up_free_s) if n == 2 else done[n - 1]
    there_s = moving_s(tables, first, last, n_bytes) + tables.link[LATENCY, first, last]
    back_s = moving_s(tables, last, first, n_bytes) + tables.link[LATENCY, last, first]
    done[n - 1] = max(done[n - 1], done[0] + there_s)
    done[0] = max(done[0], leaves + back_s)
