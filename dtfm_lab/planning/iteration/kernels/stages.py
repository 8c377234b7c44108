"""What a stage does and holds: FLOP, parameters, activations, and whether it fits a device's memory."""

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.kernels.tables import (
    CENTRAL,
    HIERARCHICAL,
    RING,
    Tables,
    gradient_bytes,
)


@compiled
def count_stages(
    tables: Tables, blocks: IntArray, flop: FloatArray, parameters: FloatArray, kept: FloatArray, again: FloatArray
) -> None:
    """Fill (S,) FLOP of a forward of one micro-batch, parameters, and bytes of its activations.

    ``kept`` are held from forward to backward, ``again`` in addition during a backward that repeats its forward.
    """
    n, at = len(blocks), 0
    for s in range(n):
        end = at + blocks[s]
        flop[s] = tables.block_flop[end] - tables.block_flop[at]
        parameters[s] = tables.block_parameters[end] - tables.block_parameters[at]
        kept[s] = tables.block_kept_bytes[end] - tables.block_kept_bytes[at]
        at = end
    flop[0] += tables.first_flop
    parameters[0] += tables.first_parameters
    kept[0] += tables.first_kept_bytes
    flop[n - 1] += tables.last_flop
    parameters[n - 1] += tables.last_parameters + (tables.tied_parameters if n > 1 else 0.0)
    kept[n - 1] += tables.last_kept_bytes
    again[:] = 0.0
    if tables.recompute:
        for s in range(n):
            left = min(tables.input_bytes if s else tables.first_input_bytes, kept[s])
            again[s] = kept[s] - left
            kept[s] = left


@compiled
def fixed_bytes(tables: Tables, s: int, n: int, parameters: float, again: float) -> float:
    """Bytes of a stage during its passes, activations from forward to backward left out."""
    return parameters * tables.static_bytes + again + tables.hop_bytes * ((s > 0) + (s < n - 1))


@compiled
def synchronising_bytes(tables: Tables, grid: IntArray, s: int, r: int, parameters: float) -> float:
    """Most bytes of messages that a device holds while its group averages, beside what it holds always."""
    n_stages, n = grid.shape
    tied = tables.tied_parameters * tables.bytes_per_element if n_stages > 1 and s in (0, n_stages - 1) else 0.0
    tied = np.ceil(tied)
    if n == 1:
        return tied
    whole = gradient_bytes(tables, parameters)
    at_sum, averages, packs = (n - 1) * np.ceil(whole / n), (n - 1) * np.ceil(whole / n), True
    if tables.synchronisation == RING:
        at_sum = np.ceil(whole / n)
    elif tables.synchronisation == CENTRAL:
        at_sum, averages, packs = ((n - 1) * np.ceil(whole), 0.0, False) if r == 0 else (0.0, np.ceil(whole), True)
    elif tables.synchronisation == HIERARCHICAL:
        at_sum, averages, packs = _in_hierarchy(tables, grid[s], r, whole)
    if not tables.codes_gradients:
        return max(at_sum, tied)
    packed = np.ceil(whole) if packs else 0.0
    return max(packed + at_sum, packed + averages + tied)


@compiled
def _in_hierarchy(tables: Tables, row: IntArray, r: int, whole: float) -> tuple[float, float, bool]:
    """Bytes at the fullest sum, bytes of received averages, and whether an own gradient is packed."""
    n, n_leaders, size, leads = len(row), 0, 0, True
    for i in range(n):
        first = True
        for j in range(i):
            first = first and tables.region[row[j]] != tables.region[row[i]]
        n_leaders += first
        if tables.region[row[i]] == tables.region[row[r]]:
            size += 1
            leads = leads and i >= r
    if not leads:
        return 0.0, np.ceil(whole), True
    shares = (n_leaders - 1) * np.ceil(whole / n_leaders)
    return max((size - 1) * np.ceil(whole), shares), shares, size == 1
