"""A whole iteration, exactly as the simulator plays it, for orders and synchronisations that ``tables`` knows."""

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.kernels.averaging import average
from dtfm_lab.planning.iteration.kernels.passes import play
from dtfm_lab.planning.iteration.kernels.stages import count_stages
from dtfm_lab.planning.iteration.kernels.tables import Tables, moving_s


@compiled
def replay(tables: Tables, grid: IntArray, blocks: IntArray, shares: IntArray, ahead: IntArray) -> float:
    """Seconds of an iteration: (S, R) devices, (S,) blocks, (R,) micro-batches, (S,) forwards ahead."""
    n, r = grid.shape
    flop, parameters, kept, again = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    count_stages(tables, blocks, flop, parameters, kept, again)
    ready, up_free_s = np.empty((r, n)), np.zeros(r)
    for i in range(r):
        up_free_s[i] = play(tables, grid, i, flop, shares[i], ahead, ready[i])
    return finish(tables, grid, parameters, ready, up_free_s)


@compiled
def finish(tables: Tables, grid: IntArray, parameters: FloatArray, ready: FloatArray, up_free_s: FloatArray) -> float:
    """Seconds of an iteration whose passes end at ``ready`` (R, S), averaging and tied embeddings included."""
    n, r = grid.shape
    tied_bytes = tables.tied_parameters * tables.bytes_per_element if n > 1 else 0.0
    if tables.synchronise_every == 1:
        return _averaged(tables, grid, parameters, ready, up_free_s, tied_bytes)
    stepped = ready.copy()
    alone_s = 0.0
    for i in range(r):
        if tied_bytes > 0.0:
            _exchange_embedding(tables, grid, i, tied_bytes, up_free_s[i], ready[i], stepped[i])
        alone_s = max(alone_s, stepped[i].max())
    together_s = _averaged(tables, grid, parameters, stepped, up_free_s, 0.0)
    return ((tables.synchronise_every - 1) * alone_s + together_s) / tables.synchronise_every


@compiled
def _averaged(
    tables: Tables,
    grid: IntArray,
    parameters: FloatArray,
    ready: FloatArray,
    up_free_s: FloatArray,
    tied_bytes: float,
) -> float:
    n, r = grid.shape
    done, last_s = np.empty((r, n)), np.empty((r, n))
    here, then, decoding = np.empty(r), np.empty(r), np.empty(r)
    for s in range(n):
        here[:] = ready[:, s]
        average(tables, grid[s], here, parameters[s], then, decoding)
        done[:, s], last_s[:, s] = then, decoding
    latest = 0.0
    for i in range(r):
        stepped = done[i].copy()
        if tied_bytes > 0.0:
            _exchange_embedding(tables, grid, i, tied_bytes, up_free_s[i], done[i], stepped)
        for s in range(n):
            latest = max(latest, stepped[s] + last_s[i, s])
    return latest


@compiled
def _exchange_embedding(
    tables: Tables, grid: IntArray, r: int, n_bytes: float, up_free_s: float, done: FloatArray, stepped: FloatArray
) -> None:
    """The two ends of pipeline r send each other the embedding's gradient; of two stages, behind the last passes'."""
    n = grid.shape[0]
    first, last = grid[0, r], grid[n - 1, r]
    leaves = max(done[n - 1], up_free_s) if n == 2 else done[n - 1]
    there_s = moving_s(tables, first, last, n_bytes) + tables.latency_s[first, last]
    back_s = moving_s(tables, last, first, n_bytes) + tables.latency_s[last, first]
    stepped[n - 1] = max(done[n - 1], done[0] + there_s)
    stepped[0] = max(done[0], leaves + back_s)
