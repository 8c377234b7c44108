"""A row of equal devices, one stage each, as lesson 08 draws it: what missions about schedules are played on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.files import load_job
from dtfm_lab.planning import evaluate

FAST_GBPS = 1e6
"""Bandwidth at which the bytes of a message take no time, so that a hop is its latency."""


def row(hops_s: Sequence[float], n_microbatches: int) -> Plan:
    """Devices in a row, at most eight; a message over hop i takes ``hops_s[i]`` either way, whatever its size."""
    n_devices = len(hops_s) + 1
    latency_s = np.zeros((n_devices, n_devices))
    for before, hop_s in enumerate(hops_s):
        latency_s[before, before + 1] = latency_s[before + 1, before] = hop_s
    network = Topology.from_matrices(1e3 * latency_s, np.full((n_devices, n_devices), FAST_GBPS), name="row")
    job = load_job("tiny", n_stages=n_devices, n_replicas=1, global_batch=n_microbatches, microbatch=1)
    return evaluate(network, job, stages=[[device] for device in range(n_devices)])


def equal_profile(n_devices: int, forward_s: float = 1.0, backward_s: float = 2.0) -> list[ComputeTime]:
    """Seconds of the passes of equal devices; the two halves of a split backward take half of it each, a step 0."""
    seconds = {
        Kind.FORWARD: forward_s,
        Kind.BACKWARD: backward_s,
        Kind.BACKWARD_INPUT: backward_s / 2,
        Kind.BACKWARD_WEIGHT: backward_s / 2,
        Kind.STEP: 0.0,
    }
    return [ComputeTime(stage, 0, kind, each) for stage in range(n_devices) for kind, each in seconds.items()]
