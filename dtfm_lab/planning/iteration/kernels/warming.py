"""How many forwards each stage runs ahead: a multiple of what hides the way there and back, as memory allows."""

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.iteration.kernels.passes import pass_seconds
from dtfm_lab.planning.iteration.kernels.state import State
from dtfm_lab.planning.iteration.kernels.tables import FLOP, HOP, KEPT, LATENCY, MEMORY, PASSING, Tables


@compiled
def warm_up(tables: Tables, state: State, factor: float) -> None:
    """Set the forwards ahead to ``factor`` times those of a steady pipeline, to the memory's limits.

    A stage is behind its slowest device or link by the seconds from its forward to its backward of one micro-batch;
    so many micro-batches must be on their way. All pipelines run equally far ahead: as far as the one that needs most,
    and as the one with the least memory can.
    """
    n, n_replicas = state.grid.shape
    for s in range(n):
        state.ahead[s] = 0
    for r in range(n_replicas):
        slowest_s = 0.0
        for s in range(n):
            f, b = pass_seconds(tables, state.stage[FLOP, s], state.grid[s, r], (s > 0) + (s < n - 1))
            slowest_s = max(slowest_s, f + b)
            if s < n - 1:
                d, e = state.grid[s, r], state.grid[s + 1, r]
                slowest_s = max(slowest_s, tables.link[HOP, d, e], tables.link[HOP, e, d])
        away_s = 0.0
        for s in range(n - 1, -1, -1):
            f, b = pass_seconds(tables, state.stage[FLOP, s], state.grid[s, r], (s > 0) + (s < n - 1))
            away_s += f + b
            steady = factor * away_s / slowest_s if slowest_s > 0.0 else 1.0
            state.ahead[s] = max(state.ahead[s], int(min(np.ceil(steady - 1e-9), 1e6)) - 1, n - 1 - s)
            if s:
                d, e = state.grid[s - 1, r], state.grid[s, r]
                away_s += tables.link[HOP, d, e] + tables.link[LATENCY, d, e]
                away_s += tables.link[HOP, e, d] + tables.link[LATENCY, e, d]
    # Were only the first stages lowered to their memory, those behind would wait for the whole way of the rest.
    share = 1.0
    for s in range(n):
        if state.ahead[s] > 0:
            share = min(share, _most_ahead(tables, state, s) / state.ahead[s])
            state.ahead[s] = int(share * state.ahead[s] + 1e-9)
    limit_ahead(tables, state)


@compiled
def _most_ahead(tables: Tables, state: State, s: int) -> int:
    """The most forwards that a stage can run ahead by the memory of its devices and the micro-batches there are."""
    least = int(np.max(state.shares)) - 1
    for r in range(state.grid.shape[1]):
        room = tables.device[MEMORY, state.grid[s, r]] - state.stage[PASSING, s]
        fit = int(room / max(state.stage[KEPT, s], 1.0))
        if fit < state.shares[r]:
            least = min(least, max(fit - 1, 0))
    return least


@compiled
def limit_ahead(tables: Tables, state: State) -> None:
    """Lower the forwards ahead until they fall along the pipeline and fit every device's memory."""
    least = int(np.max(state.shares)) - 1
    for s in range(len(state.ahead)):
        least = min(least, _most_ahead(tables, state, s), int(state.ahead[s]))
        state.ahead[s] = least


@compiled
def falling(ahead: IntArray, s: int, to: int) -> None:
    """Set one stage's forwards ahead, and raise those before it and lower those behind it to fall."""
    ahead[s] = max(to, 0)
    for i in range(s):
        ahead[i] = max(int(ahead[i]), int(ahead[s]))
    for i in range(s + 1, len(ahead)):
        ahead[i] = min(int(ahead[i]), int(ahead[s]))
