"""Seconds of collectives: rings over the links of a group, in which every round waits for the slowest link.

A ring gathers, or scatters sums, in n - 1 rounds of 1/n of the bytes, and does both for an all-reduce (Patarasu and
Yuan 2009, "Bandwidth optimal all-reduce algorithms").

With tensor parallelism each block sums a micro-batch's activations over the group twice in the forward and twice in the
backward, behind its attention and its MLP (Shoeybi et al. 2019, "Megatron-LM", section 3 and figure 4); the embedding,
cut by vocabulary, once in the forward, and the head once in the backward. The sums depend on each other and are not
hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.job import BYTES_PER_ELEMENT, Job, Layer, LayerKind
from dtfm_lab.domain.network import Device, Links, Topology
from dtfm_lab.domain.units import IntArray


def ring_gather_s(n_bytes: float, n: int, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Seconds in which n members with 1/n of ``n_bytes`` each give everyone all; also those of a reduce-scatter."""
    return (n - 1) * (latency_s + n_bytes / n / bandwidth_bytes_per_s) if n > 1 else 0.0


def ring_all_reduce_s(n_bytes: float, n: int, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Seconds in which n members sum ``n_bytes`` each and all have the sum: a reduce-scatter and a gather."""
    return 2 * ring_gather_s(n_bytes, n, bandwidth_bytes_per_s, latency_s)


class GroupRings:
    """The rings of a plan's data-parallel groups, all in use at once.

    A ring visits regions and hosts one after the other, as collective libraries lay theirs, so it enters and leaves
    each of them once. Rings that leave a host by its one card share that card.
    """

    def __init__(self, topology: Topology, links: Links, groups: IntArray) -> None:
        """``groups`` is (S, R) devices, a row for each group."""
        self._links, self.n_members = links, groups.shape[1]
        place = {}
        for device in groups.ravel().tolist():
            of = topology.devices[device]
            host = of.host or f" {device}"
            place[device] = (topology.regions.index(of.region), host)
        self._rings = [np.array(sorted(row.tolist(), key=lambda device: place[device])) for row in groups]
        leaving = [links.queues(ring, np.roll(ring, -1))[0] for ring in self._rings]
        used, counts = np.unique(np.concatenate(leaving), return_counts=True)
        self._sharing = [counts[np.searchsorted(used, one)] for one in leaving]

    def gather_s(self, group: int, n_bytes: float) -> float:
        """Seconds in which the members of a group gather ``n_bytes``, or scatter a sum of as many."""
        if self.n_members == 1:
            return 0.0
        ring, sharing = self._rings[group], self._sharing[group]
        after = np.roll(ring, -1)
        moving_s = sharing * self._links.moving_s(ring, after, n_bytes / self.n_members)
        return float((self.n_members - 1) * (moving_s + self._links.latency_s[ring, after]).max())


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
