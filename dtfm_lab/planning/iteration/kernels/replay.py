"""A whole iteration, exactly as the simulator plays it, for orders and synchronisations that ``tables`` knows."""

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.kernels.averaging import average
from dtfm_lab.planning.iteration.kernels.tables import LATENCY, PARAMETERS, Tables, moving_s


@compiled
def finish(tables: Tables, grid: IntArray, stage: FloatArray, ready: FloatArray, up_free_s: FloatArray) -> float:
    """Seconds of an iteration whose passes end at ``ready`` (R, S), averaging and tied embeddings included.

    ``up_free_s`` (R,) is when the link from the second stage of each pipeline to the first is free.
    """
    n, r = grid.shape
    tied = n > 1 and tables.tied_parameters > 0.0
    always = tables.synchronise_every == 1
    done, last_s, then_s, decoding_s = np.empty((r, n)), np.empty((r, n)), np.empty(r), np.empty(r)
    alone_s, together_s = 0.0, 0.0
    for i in range(r):
        for s in range(n):
            done[i, s] = ready[i, s]
        if tied and not always:
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
        if tied and always:
            _exchange_embedding(tables, grid, i, up_free_s[i], done[i])
        for s in range(n):
            together_s = max(together_s, done[i, s] + last_s[i, s])
    return ((tables.synchronise_every - 1) * alone_s + together_s) / tables.synchronise_every


@compiled
def _exchange_embedding(tables: Tables, grid: IntArray, r: int, up_free_s: float, done: FloatArray) -> None:
    """The two ends of pipeline r send each other the embedding's gradient; of two stages, behind the last passes'."""
    n = grid.shape[0]
    first, last, n_bytes = grid[0, r], grid[n - 1, r], tables.tied_parameters * tables.gradient_element_bytes
    leaves = max(done[n - 1], up_free_s) if n == 2 else done[n - 1]
    there_s = moving_s(tables, first, last, n_bytes) + tables.link[LATENCY, first, last]
    back_s = moving_s(tables, last, first, n_bytes) + tables.link[LATENCY, last, first]
    done[n - 1] = max(done[n - 1], done[0] + there_s)
    done[0] = max(done[0], leaves + back_s)
