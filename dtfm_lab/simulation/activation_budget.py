"""How many micro-batches fit into a device beside all else: the limit of a schedule that chooses its depth."""

from __future__ import annotations

import numpy as np

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.simulation.memory_intervals import activations, static


def room(plan: Plan) -> IntArray:
    """(stages, replicas) micro-batches whose activations each device can hold at once, beside all else; one stage a
    device.

    Each is counted with a message of its own, which may wait to be sent or used, beside the two at work.
    """
    job = plan.job
    of = activations(job, job.n_stages)
    n_messages, hop_bytes = (2, int(np.ceil(job.activation_bytes))) if job.n_stages > 1 else (0, 0)
    once = static(job, job.n_stages).total + of.remade + n_messages * hop_bytes
    each = np.maximum(of.kept + hop_bytes, 1)
    fit: IntArray = np.maximum(limits(plan) - once[:, None], 0) // each[:, None]
    return fit


def limits(plan: Plan) -> IntArray:
    """(stages, replicas) bytes that the devices have."""
    have = np.array([device.memory_bytes for device in plan.topology.devices])
    grid: IntArray = np.minimum(have, 2.0**62).astype(np.int64)[plan.placement.devices]
    return grid
