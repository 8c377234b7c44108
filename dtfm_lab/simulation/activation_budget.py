"""How many activations fit into a device: the limit of a schedule that chooses its warm-ups by memory."""

from __future__ import annotations

import numpy as np

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.simulation.memory_intervals import activation_memory, static_memory


def activation_budget(plan: Plan) -> IntArray:
    """(stages, replicas) micro-batches whose activations each device can hold at once, with one stage a device.

    Each counts with one message that waits to be sent or used; two more messages are in use by the running passes.
    """
    job = plan.job
    of = activation_memory(job, job.n_stages)
    n_messages, hop_bytes = (2, int(np.ceil(job.activation_bytes))) if job.n_stages > 1 else (0, 0)
    once = static_memory(job, job.n_stages).total + of.recomputed + n_messages * hop_bytes
    each = np.maximum(of.kept + hop_bytes, 1)
    fit: IntArray = np.maximum(memory_limits(plan) - once[:, None], 0) // each[:, None]
    return fit


def memory_limits(plan: Plan) -> IntArray:
    """(stages, replicas) bytes of memory that the devices have."""
    have = np.array([device.memory_bytes for device in plan.topology.devices])
    grid: IntArray = np.minimum(have, 2.0**62).astype(np.int64)[plan.placement.devices]
    return grid
