"""The work of those who have left, shared by those who serve the same stage: by how much a step is longer, and where
holes are least in the way."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import BoolArray, FloatArray, IntArray
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.memory_intervals import activation_budget

SAME_S = 1e-9
"""Seconds by which a step is not called shorter."""


class Load(NamedTuple):
    """What a plan asks of its devices, each array (stages, replicas)."""

    iteration_s: float
    busy_s: FloatArray
    """Seconds of an iteration in which each device computes."""
    room: IntArray
    """Micro-batches whose activations each device can hold at once."""


def load_of(plan: Plan) -> Load:
    """Of a simulated iteration."""
    trace = simulate(plan)
    busy_s = trace.bubble["busy_s"].to_numpy().reshape(plan.placement.devices.shape)
    return Load(trace.iteration_s, busy_s, activation_budget(plan))


def longer_s(load: Load, gone: BoolArray) -> FloatArray:
    """(stages,) by how much a step is longer where peers share the work of those who are gone; infinite where nobody
    is left, or a peer lacks the memory for its share of the micro-batches under way."""
    left = (~gone).sum(axis=1)
    extra_s = np.where(left > 0, (load.busy_s * gone).sum(axis=1) / np.maximum(left, 1), np.inf)
    idle_s = load.iteration_s - np.where(gone, 0.0, load.busy_s).max(axis=1)
    n_stages, n_replicas = gone.shape
    # one forward, one backward holds least: as many micro-batches of a pipeline as stages are still to come
    held = np.ceil(np.arange(n_stages, 0, -1) * n_replicas / np.maximum(left, 1))
    over = ~gone & (left < n_replicas)[:, None] & (held[:, None] > load.room)
    return np.where(over.any(axis=1), np.inf, np.maximum(extra_s - idle_s, 0.0))


def better_hole(load: Load, gone: BoolArray, of_class: IntArray) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """A hole of the stage that takes longest, and the place of an alike device of another stage that had better be one;
    None where no exchange shortens the step."""
    worst_s = longer_s(load, gone)
    stage, least_s, found = int(worst_s.argmax()), float(worst_s.max()), None
    for replica in np.flatnonzero(gone[stage]).tolist():
        for other, place in np.argwhere(~gone & (of_class == of_class[stage, replica])).tolist():
            tried = gone.copy()
            tried[stage, replica], tried[other, place] = False, True
            tried_s = float(longer_s(load, tried).max())
            if tried_s < least_s - SAME_S:
                least_s, found = tried_s, ((stage, replica), (other, place))
    return found
