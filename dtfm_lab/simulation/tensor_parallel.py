"""What it costs that the GPUs of a group share each layer: all-reduces in passes, activations that all of them hold.

Each block sums a micro-batch's activations over the group twice in the forward and twice in the backward, behind its
attention and its MLP (Shoeybi et al. 2019, "Megatron-LM", section 3 and figure 4); the embedding, cut by vocabulary,
once in the forward, and the head once in the backward. The sums depend on each other and are not hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dtfm_lab.domain.job import BYTES_PER_ELEMENT, Job, Layer, LayerKind
from dtfm_lab.domain.network import Device
from dtfm_lab.simulation.collectives import ring_all_reduce_s, ring_gather_s

ALL_REDUCES = {LayerKind.EMBEDDING: (1, 0), LayerKind.BLOCK: (2, 2), LayerKind.HEAD: (0, 1)}
"""All-reduces of a micro-batch's activations in the forward and in the backward of a layer."""


class Sums(NamedTuple):
    """Seconds of the all-reduces of one micro-batch over a stage."""

    forward: float
    backward: float
    again: float
    """Of what is recomputed in the backward."""


def tensor_parallel_s(job: Job, layers: Sequence[Layer], device: Device) -> Sums:
    """Seconds of the all-reduces of one micro-batch over these layers.

    Checkpointed blocks, or stages, sum again what they sum in the forward; ``selective`` checkpointing keeps the sums.
    """
    if device.gpus == 1:
        return Sums(0.0, 0.0, 0.0)
    n_bytes = job.activation_elements * BYTES_PER_ELEMENT[job.dtype]
    once_s = ring_all_reduce_s(n_bytes, device.gpus, device.inner_bandwidth_bytes_per_s, device.inner_latency_s)
    forward, backward = (sum(ALL_REDUCES[layer.kind][way] for layer in layers) for way in (0, 1))
    blocks = sum(ALL_REDUCES[layer.kind][0] for layer in layers if layer.kind is LayerKind.BLOCK)
    again = {"stage": forward, "block": blocks}.get(job.checkpoints, 0)
    return Sums(forward * once_s, backward * once_s, again * once_s)


def hop_gather_s(device: Device, n_bytes: float) -> float:
    """Seconds in which a group gathers a message between stages, of which each of its GPUs received a part.

    Each GPU of the sending group sends its part only, over the card that they share, and the receivers gather it over
    their inner links (Narayanan et al. 2021, section 4.1, scatter/gather optimisation).
    """
    return ring_gather_s(n_bytes, device.gpus, device.inner_bandwidth_bytes_per_s, device.inner_latency_s)
