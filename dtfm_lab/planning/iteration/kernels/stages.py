"""What a stage does and holds: FLOP, parameters, activations and messages."""

import numpy as np

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.kernels.tables import (
    CENTRAL,
    FLOP,
    HIERARCHICAL,
    KEPT,
    NOTHING,
    PARAMETERS,
    PASSING,
    REGION,
    RING,
    Tables,
    gradient_bytes,
)


@compiled
def count_stages(tables: Tables, blocks: IntArray, stage: FloatArray) -> None:
    """Fill rows of ``stage``, (5, S).

    FLOP of one micro-batch's forward; PARAMETERS; KEPT bytes of one micro-batch's activations from its forward to its
    backward; PASSING bytes that are held during the passes beside these.
    """
    n, at = len(blocks), 0
    for s in range(n):
        end = at + blocks[s]
        for i in range(3):
            stage[i, s] = tables.layer[i, end] - tables.layer[i, at]
        at = end
    stage[FLOP, 0] += tables.first_flop
    stage[PARAMETERS, 0] += tables.first_parameters
    stage[KEPT, 0] += tables.first_kept_bytes
    stage[FLOP, n - 1] += tables.last_flop
    stage[PARAMETERS, n - 1] += tables.last_parameters + (tables.tied_parameters if n > 1 else 0.0)
    stage[KEPT, n - 1] += tables.last_kept_bytes
    for s in range(n):
        again = max(tables.again_bytes - (tables.last_kept_bytes if s == n - 1 else 0.0), 0.0)
        if tables.recompute:  # a backward makes again what its forward did not keep
            left = min(tables.input_bytes if s else tables.first_input_bytes, stage[KEPT, s])
            again = stage[KEPT, s] - left
            stage[KEPT, s] = left
        messages = tables.hop_bytes * ((s > 0) + (s < n - 1))
        stage[PASSING, s] = stage[PARAMETERS, s] * tables.static_bytes + again + messages


@compiled
def averaging_bytes(tables: Tables, grid: IntArray, s: int, r: int, parameters: float) -> float:
    """Most bytes that a device of stage s, replica r, holds while its group averages."""
    n_stages, n = grid.shape
    static = parameters * tables.static_bytes
    tied = 0.0
    if n_stages > 1 and (s == 0 or s == n_stages - 1):
        tied = np.ceil(tables.tied_parameters * tables.gradient_element_bytes)
    if n == 1 or tables.synchronisation == NOTHING:
        return static + tied
    whole = gradient_bytes(tables, parameters)
    at_sum = (n - 1) * np.ceil(whole / n)
    averages, packed = at_sum, np.ceil(whole)
    if tables.synchronisation == RING:
        at_sum = np.ceil(whole / n)
    elif tables.synchronisation == CENTRAL:
        at_sum, averages = 0.0, np.ceil(whole)
        if r == 0:
            at_sum, averages, packed = (n - 1) * np.ceil(whole), 0.0, 0.0
    elif tables.synchronisation == HIERARCHICAL:
        size, n_leaders, leads = _region_of(tables, grid[s], r)
        shares = (n_leaders - 1) * np.ceil(whole / n_leaders)
        at_sum, averages = 0.0, np.ceil(whole)
        if leads:
            at_sum, averages = max((size - 1) * np.ceil(whole), shares), shares
            packed = packed if size == 1 else 0.0
    if not tables.codes_gradients:
        return float(static + max(at_sum, tied))
    if tables.synchronise_every > 1:  # the embedding's gradient has been used by the step before
        return float(static + max(packed + max(at_sum, averages), tied))
    return float(static + packed + max(at_sum, averages + tied))


@compiled
def _region_of(tables: Tables, row: IntArray, r: int) -> tuple[int, int, bool]:
    """Replicas of a group in the region of replica r, regions of the group, and whether r is its region's first."""
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
