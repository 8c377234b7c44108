"""A plan during annealing, with everything computed from it: seconds of pipelines and groups, and missing memory.

``count_stages`` counts the FLOP, parameters, activations and messages of each stage. ``warm_up`` sets warm-ups: a
multiple of the number that hides a micro-batch's round trip, limited by memory.
"""

from typing import NamedTuple

import numpy as np

from dtfm_lab.costs.seconds import CENTRAL, HIERARCHICAL, NOTHING, RING
from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.kernels.averaging import average, shard
from dtfm_lab.planning.iteration.kernels.passes import estimate, pass_seconds, play
from dtfm_lab.planning.iteration.kernels.tables import (
    BEGIN,
    CODING,
    END,
    FROZEN,
    GROUP,
    HOP,
    KEPT,
    LATENCY,
    MEMORY,
    NEXT,
    PARAMETERS,
    PASSING,
    REGION,
    Tables,
    coded_bytes,
    moving_s,
)

TOTAL, EACH, UP_FREE, TIED, CRITICAL = range(5)
"""Rows of ``SearchState.pipe``."""
READY, LACKING, AVERAGING = range(3)
"""Indices of the tables in ``SearchState.cell``."""
OFFSET, SLOPE, COUNT = range(3)
"""Rows of ``SearchState.shared_out``."""


class SearchState(NamedTuple):
    """A plan and its costs, as views of ``reals`` and ``wholes``. A state is quick to copy, because these two hold all
    of it except working memory."""

    wholes: IntArray
    reals: FloatArray
    row: IntArray
    """(N,) a flattened grid, followed by the idle devices."""
    grid: IntArray
    """(S, R) device index of each stage and replica: a view of the first S x R entries of ``row``."""
    blocks: IntArray
    """(S,) blocks of each stage."""
    microbatch_counts: IntArray
    """(R,) micro-batches of each pipeline."""
    warmups: IntArray
    """(S,) warm-up forwards: those that each stage runs before it alternates forwards and backwards. A stage never has
    more than the stage before it."""
    stage: FloatArray
    """(10, S), see ``count_stages``. The row GROUP has the seconds of averaging per iteration if all replicas begin at
    once."""
    pipe: FloatArray
    """(5, R) rows:

    - TOTAL: seconds with ``microbatch_counts``
    - EACH: seconds of each further micro-batch
    - UP_FREE: time from which the link from the second stage to the first is free
    - TIED: seconds to exchange an embedding's gradient
    - CRITICAL: stage at which the slowest cycle begins
    """
    cell: FloatArray
    """(3, R, S) tables:

    - READY: time at which the last backward ends
    - LACKING: relative excess over a device's memory, such as 0.1 for 10 %; 0 if the stage fits
    - AVERAGING: bytes that a device holds while its group averages
    """
    scratch: FloatArray
    """(9, S) working memory of ``estimate``."""
    shared_out: FloatArray
    """(3, R) rows. A pipeline takes OFFSET + SLOPE x COUNT seconds.

    COUNT is the number of micro-batches that ``seconds_of`` gave the pipeline last. If a move is kept,
    ``microbatch_counts`` takes these values.
    """


@compiled
def refresh_stages(tables: Tables, state: SearchState) -> None:
    """Recompute the rows of ``stage`` except GROUP, and the bytes that each device holds while its group averages."""
    n, r = state.grid.shape
    count_stages(tables, state.blocks, state.stage)
    differs = tables.synchronisation == CENTRAL or tables.synchronisation == HIERARCHICAL
    for s in range(n):
        for i in range(r):
            # replicas hold equally much, unless one of them is a root or a leader
            if i == 0 or differs:
                needed = averaging_bytes(tables, state, s, i)
            state.cell[AVERAGING, i, s] = needed


@compiled
def refresh_pipeline(tables: Tables, state: SearchState, r: int, exact: bool) -> None:
    """Recompute one pipeline's seconds and memory."""
    n = len(state.blocks)
    m = state.microbatch_counts[r]
    pipe, ready, stage = state.pipe, state.cell[READY, r], state.stage
    if exact:
        pipe[UP_FREE, r] = play(tables, state.grid, r, stage, m, state.warmups, ready)
    else:
        total_s, each_s, at = estimate(tables, state.grid, r, stage, m, state.warmups, ready, state.scratch)
        pipe[TOTAL, r], pipe[EACH, r], pipe[CRITICAL, r] = total_s, each_s, at
        if n > 1 and tables.tied_parameters > 0.0:
            n_bytes = tables.tied_parameters * tables.gradient.plain
            a, b = state.grid[0, r], state.grid[n - 1, r]
            there_s = moving_s(tables, a, b, n_bytes) + tables.link[LATENCY, a, b]
            pipe[TIED, r] = max(there_s, moving_s(tables, b, a, n_bytes) + tables.link[LATENCY, b, a])
    refresh_memory(tables.device, state, r)


@compiled
def refresh_memory(device: FloatArray, state: SearchState, r: int) -> None:
    """Recompute the relative excess over memory of each device of one pipeline."""
    m = state.microbatch_counts[r]
    for s in range(len(state.blocks)):
        need = state.stage[PASSING, s] + min(state.warmups[s] + 1, m) * state.stage[KEPT, s]
        need = max(need, state.cell[AVERAGING, r, s])
        state.cell[LACKING, r, s] = max(need / device[MEMORY, state.grid[s, r]] - 1.0, 0.0)


@compiled
def refresh_group(tables: Tables, state: SearchState, s: int) -> None:
    """Recompute the seconds of one group's averaging."""
    n = state.grid.shape[1]
    longest = 0.0
    if n > 1:
        # working memory: the counts shared out are no longer needed here
        done_s, decoding_s = state.shared_out[0], state.shared_out[1]
        for i in range(n):
            done_s[i] = 0.0
        average(tables, state.grid[s], state.stage[PARAMETERS, s], done_s, decoding_s)
        for i in range(n):
            longest = max(longest, done_s[i] + decoding_s[i])
    state.stage[GROUP, s] = longest / tables.synchronise_every


@compiled
def refresh(tables: Tables, state: SearchState, exact: bool) -> None:
    """Recompute the stages and all pipelines, but not the groups."""
    refresh_stages(tables, state)
    for r in range(state.grid.shape[1]):
        refresh_pipeline(tables, state, r, exact)


@compiled
def copy_state(source: SearchState, target: SearchState) -> None:
    """Copy the plan and its costs, without the working memory ``scratch`` and ``shared_out``."""
    for i in range(len(source.wholes)):
        target.wholes[i] = source.wholes[i]
    for i in range(len(source.reals)):
        target.reals[i] = source.reals[i]


@compiled
def copy_parts(source: SearchState, target: SearchState, p: int, q: int, r1: int, r2: int, g1: int, g2: int) -> None:
    """Copy positions p and q of the row, pipelines r1 and r2, and groups g1 and g2. Negative numbers are skipped."""
    if p >= 0:
        target.row[p], target.row[q] = source.row[p], source.row[q]
    for r in (r1, r2):
        if r >= 0:
            for s in range(len(source.blocks)):
                target.grid[s, r] = source.grid[s, r]
                target.cell[READY, r, s] = source.cell[READY, r, s]
                target.cell[LACKING, r, s] = source.cell[LACKING, r, s]
            for i in range(5):
                target.pipe[i, r] = source.pipe[i, r]
            target.microbatch_counts[r] = source.microbatch_counts[r]
    for g in (g1, g2):
        if g >= 0:
            target.stage[GROUP, g] = source.stage[GROUP, g]


@compiled
def count_stages(tables: Tables, blocks: IntArray, stage: FloatArray) -> None:
    """Fill the rows of ``stage``, (10, S), except GROUP:

    - FLOP: of one micro-batch's forward
    - PARAMETERS: number of parameters
    - KEPT: bytes of one micro-batch's activations from its forward to its backward
    - FROZEN: bytes of weights that are not trained
    - PASSING: all bytes held during the passes except KEPT: parameters, gradients, optimizer states, frozen weights,
      recomputed activations, messages
    - CODING: seconds of encoding and decoding messages per pass
    - NEXT: row of ``Tables.link`` for messages to the next stage
    - BEGIN: the first block
    - END: the block after the last
    """
    n, at, passes = len(blocks), 0, tables.passes
    for s in range(n):
        end = at + blocks[s]
        for i in range(4):
            stage[i, s] = passes.layer[i, end] - passes.layer[i, at]
        stage[CODING, s] = (passes.coding_s[at] if s > 0 else 0.0) + (passes.coding_s[end] if s < n - 1 else 0.0)
        stage[NEXT, s] = HOP + passes.hop[end]
        stage[BEGIN, s], stage[END, s] = at, end
        at = end
    for i in range(4):
        stage[i, 0] += passes.extra[0, i]
        stage[i, n - 1] += passes.extra[1, i]
    stage[PARAMETERS, n - 1] += tables.tied_parameters if n > 1 else 0.0
    at = 0
    for s in range(n):
        end = at + blocks[s]
        again = max(passes.again_bytes - (passes.extra[1, KEPT] if s == n - 1 else 0.0), 0.0)
        if passes.recompute:  # a backward recomputes what its forward did not keep
            left = min(passes.input_bytes[at] if s > 0 else passes.least_inputs[0], stage[KEPT, s])
            again = stage[KEPT, s] - left
            stage[KEPT, s] = left
        messages = (passes.hop_bytes[at] if s > 0 else 0.0) + (passes.hop_bytes[end] if s < n - 1 else 0.0)
        stage[PASSING, s] = stage[PARAMETERS, s] * tables.static_bytes + stage[FROZEN, s] + again + messages
        at = end


@compiled
def averaging_bytes(tables: Tables, state: SearchState, s: int, r: int) -> float:
    """Return the maximum bytes that a device of stage s, replica r, holds while its group averages."""
    grid, parameters = state.grid, state.stage[PARAMETERS, s]
    n_stages, n = grid.shape
    static = parameters * tables.static_bytes + state.stage[FROZEN, s]
    tied = 0.0
    if n_stages > 1 and (s == 0 or s == n_stages - 1):
        tied = np.ceil(tables.tied_parameters * tables.gradient.plain)
    if n == 1 or tables.synchronisation == NOTHING:
        return float(static + tied)
    whole = coded_bytes(parameters, tables.gradient)
    at_sum = (n - 1) * np.ceil(shard(whole, n))
    averages, packed = at_sum, np.ceil(whole)
    if tables.synchronisation == RING:
        at_sum = np.ceil(shard(whole, n))
    elif tables.synchronisation == CENTRAL:
        at_sum, averages = 0.0, np.ceil(whole)
        if r == 0:
            at_sum, averages, packed = (n - 1) * np.ceil(whole), 0.0, 0.0
    elif tables.synchronisation == HIERARCHICAL:
        size, n_leaders, leads = _region_of(tables, grid[s], r)
        shards = (n_leaders - 1) * np.ceil(shard(whole, n_leaders))
        at_sum, averages = 0.0, np.ceil(whole)
        if leads:
            at_sum, averages = max((size - 1) * np.ceil(whole), shards), shards
            packed = packed if size == 1 else 0.0
    if not tables.codes_gradients:
        return float(static + max(at_sum, tied))
    if tables.synchronise_every > 1:  # the step before has used the embedding's gradient
        return float(static + max(packed + max(at_sum, averages), tied))
    return float(static + packed + max(at_sum, averages + tied))


@compiled
def _region_of(tables: Tables, row: IntArray, r: int) -> tuple[int, int, bool]:
    """Return how many of a group's replicas are in replica r's region, how many regions the group has, and True if r is
    the first of its region."""
    size, n_leaders, leads = 0, 0, True
    for i in range(len(row)):
        first = True
        for j in range(i):
            first = first and tables.device[REGION, row[j]] != tables.device[REGION, row[i]]
        n_leaders += first
        if tables.device[REGION, row[i]] == tables.device[REGION, row[r]]:
            size += 1
            leads = leads and i >= r
    return size, n_leaders, leads


@compiled
def warm_up(tables: Tables, state: SearchState, factor: float) -> None:
    """Set the warm-ups to ``factor`` times the warm-ups of a steady pipeline, at least 1F1B's, limited by memory.

    Take the seconds from a stage's forward of a micro-batch to its backward. Divided by the seconds of the slowest
    device or link, they give the micro-batches that must be in flight. All pipelines run equally far ahead: as far as
    the one that needs most, and no further than the one with the least memory allows.
    """
    n, n_replicas = state.grid.shape
    for s in range(n):
        state.warmups[s] = 0
    for r in range(n_replicas):
        slowest_s = 0.0
        for s in range(n):
            f, b = pass_seconds(tables, state.stage, s, state.grid[s, r])
            slowest_s = max(slowest_s, f + b)
            if s < n - 1:
                d, e, hop = state.grid[s, r], state.grid[s + 1, r], int(state.stage[NEXT, s])
                slowest_s = max(slowest_s, tables.link[hop, d, e], tables.link[hop, e, d])
        away_s = 0.0
        for s in range(n - 1, -1, -1):
            f, b = pass_seconds(tables, state.stage, s, state.grid[s, r])
            away_s += f + b
            steady = factor * away_s / slowest_s if slowest_s > 0.0 else 1.0
            # never fewer than 1F1B, in which a stage runs ahead by the stages after it
            state.warmups[s] = max(state.warmups[s], int(min(np.ceil(steady - 1e-9), 1e6)) - 1, n - 1 - s)
            if s:
                d, e, hop = state.grid[s - 1, r], state.grid[s, r], int(state.stage[NEXT, s - 1])
                away_s += tables.link[hop, d, e] + tables.link[LATENCY, d, e]
                away_s += tables.link[hop, e, d] + tables.link[LATENCY, e, d]
    # Lower all stages in proportion: if only the first ones were lowered, the later ones would wait for them.
    share = 1.0
    for s in range(n):
        if state.warmups[s] > 0:
            share = min(share, _most_warmups(tables, state, s) / state.warmups[s])
            state.warmups[s] = int(share * state.warmups[s] + 1e-9)
    limit_warmups(tables, state)


@compiled
def _most_warmups(tables: Tables, state: SearchState, s: int) -> int:
    """Return the maximum warm-ups of a stage, limited by its devices' memory and the number of micro-batches."""
    least = int(np.max(state.microbatch_counts)) - 1
    for r in range(state.grid.shape[1]):
        room = tables.device[MEMORY, state.grid[s, r]] - state.stage[PASSING, s]
        fit = int(room / max(state.stage[KEPT, s], 1.0))
        # a pipeline whose micro-batches all fit at once sets no limit
        if fit < state.microbatch_counts[r]:
            least = min(least, max(fit - 1, 0))
    return least


@compiled
def limit_warmups(tables: Tables, state: SearchState) -> None:
    """Lower the warm-ups until they never rise along the pipeline and fit every device's memory."""
    least = int(np.max(state.microbatch_counts)) - 1
    for s in range(len(state.warmups)):
        least = min(least, _most_warmups(tables, state, s), int(state.warmups[s]))
        state.warmups[s] = least


@compiled
def falling(warmups: IntArray, s: int, to: int) -> None:
    """Set one stage's warm-ups. Raise those before it and lower those after it as needed, so that they never rise."""
    warmups[s] = max(to, 0)
    for i in range(s):
        warmups[i] = max(int(warmups[i]), int(warmups[s]))
    for i in range(s + 1, len(warmups)):
        warmups[i] = min(int(warmups[i]), int(warmups[s]))
