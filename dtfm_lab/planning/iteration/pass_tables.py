"""Seconds of one micro-batch's passes on each kind of device, as prefix sums over blocks.

A network has few kinds of devices. Whatever a stage takes on one kind is a difference of two prefix sums, whichever
blocks it has: computing, what is computed again, and the messages within a group of GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.job import Job, Layer, LayerKind, boundary_bytes, repeated_flop
from dtfm_lab.domain.network import Device
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.simulation.durations import group_messages_s, hop_gather_s, memory_bandwidth_of, stage_traffic
from dtfm_lab.simulation.efficiency import GivenEfficiency, speeds_of


class Kinds(NamedTuple):
    """The kinds of a network's devices: what decides the seconds of their passes."""

    of_device: IntArray
    """(N,) number of each device's kind."""
    first: list[int]
    """The first device of each kind."""

    @classmethod
    def of(cls, devices: Sequence[Device]) -> Kinds:
        number: dict[tuple[object, ...], int] = {}
        first: list[int] = []
        of_device = np.empty(len(devices), dtype=np.int64)
        for i, d in enumerate(devices):
            key = d.gpu, d.peak_flop_per_s, d.memory_bytes, d.gpus, d.inner_latency_s, d.inner_bandwidth_bytes_per_s
            if key not in number:
                number[key] = len(first)
                first.append(i)
            of_device[i] = number[key]
        return cls(of_device, first)


class PassTable(NamedTuple):
    """Seconds of one micro-batch on K kinds of devices, of a model of L blocks."""

    forward_s: FloatArray
    """(K, L + 1) prefix sums over blocks."""
    backward_s: FloatArray
    """(K, L + 1) prefix sums over blocks, with what is computed again."""
    ends_s: FloatArray
    """(2, 2, K): of the embedding and of the head, the forward and the backward."""
    receive_s: FloatArray
    """(K, L + 1) seconds in which a group of GPUs gathers the message that crosses the boundary before each block, of
    which each GPU received a part; 0 at both ends of the model."""


def pass_table(job: Job, kinds: Sequence[Device], efficiency: GivenEfficiency) -> PassTable:
    """Return the table of a job with a micro-batch; ``simulation.durations.pass_times``, layer by layer."""
    model = job.modelled()
    speeds = speeds_of(job, kinds, efficiency)
    of = {
        layer: np.array([_layer_seconds(job, layer, *one) for one in zip(kinds, speeds, strict=True)])
        for layer in dict.fromkeys(model.layers)
    }
    blocks = [layer for layer in model.layers if layer.kind is LayerKind.BLOCK]
    sums = np.zeros((len(blocks) + 1, len(kinds), 2))
    np.cumsum([of[layer] for layer in blocks], axis=0, out=sums[1:])
    ends = np.zeros((2, 2, len(kinds)))
    for i, kind in enumerate((LayerKind.EMBEDDING, LayerKind.HEAD)):
        for layer in model.layers:
            if layer.kind is kind:
                ends[i] += of[layer].T
    receive = np.zeros((len(kinds), len(blocks) + 1))
    if any(device.gpus > 1 for device in kinds):
        cut = job.with_fields(n_stages=len(blocks), n_replicas=1)
        crossing = boundary_bytes(cut, len(blocks))
        for k, device in enumerate(kinds):
            gathered = {n_bytes: hop_gather_s(job, device, n_bytes) for n_bytes in set(crossing[1:-1])}
            receive[k, 1:-1] = [gathered[n_bytes] for n_bytes in crossing[1:-1]]
    return PassTable(np.ascontiguousarray(sums[:, :, 0].T), np.ascontiguousarray(sums[:, :, 1].T), ends, receive)


def _layer_seconds(job: Job, layer: Layer, device: Device, flop_per_s: float) -> tuple[float, float]:
    """Seconds of one micro-batch's forward and backward of a layer."""
    once_s = job.microbatch * layer.forward_flop / flop_per_s
    again_s = job.microbatch * repeated_flop(job, layer) / flop_per_s
    inside = group_messages_s(job, [layer], device, flop_per_s)
    forward_s = once_s + inside.forward
    backward_s = job.modelled().backward.whole * once_s + again_s + inside.backward + inside.again
    if job.memory_traffic:
        moved = stage_traffic(job, [layer])
        per_byte = 1.0 / memory_bandwidth_of(device)
        forward_s += moved.forward * per_byte
        backward_s += (moved.backward + moved.again) * per_byte
    return forward_s, backward_s
