"""Seconds of collectives: rings over the links of a group, in which every round waits for the slowest link.

A ring gathers, or scatters sums, in n - 1 rounds of 1/n of the bytes, and does both for an all-reduce (Patarasu and
Yuan 2009, "Bandwidth optimal all-reduce algorithms").

With tensor parallelism each block sums a micro-batch's activations over the group twice in the forward and twice in the
backward, behind its attention and its MLP (Shoeybi et al. 2019, "Megatron-LM", section 3 and figure 4); the embedding,
cut by vocabulary, once in the forward, and the head once in the backward. The sums depend on each other and are not
hidden.

With context parallelism the keys and values of a part of the sequence go round in a ring, in c - 1 steps, each beside
the products of the queries with the part that came before; in the backward their gradients go round, too (Liu et al.
2023, "Ring Attention", section 3). Hidden is what these products take, however causal: parts are dealt out so that all
GPUs have as many. With expert parallelism each token goes to its experts and back, all to all, in the forward and in
the backward (Lepikhin et al. 2020, "GShard", section 3.2); every GPU is sent as many, and nothing is hidden. Both have
parameters on several GPUs, whose gradients these average before each step, in rings, not hidden.

With zero-3 (Rajbhandari et al. 2020, "ZeRO", section 7.2.2; Zhao et al. 2023, "PyTorch FSDP", sections 3.3.1 and 4.2) a
layer's parameters are gathered before its forward, dropped, gathered again before its backward, and its gradients are
scattered behind it, in every micro-batch. The next layer is fetched while one computes; the first cannot be hidden,
nor can the last gradients. Layers here are the units that are gathered: embedding, block, head.

With zero-2 no device has room for whole gradients, so each micro-batch scatters its own, as in DeepSpeed's stage 2 and
in FSDP's SHARD_GRAD_OP without ``no_sync``: all but those of the last micro-batch, which the synchronisation sends.
Their seconds are spread evenly over all micro-batches, as all backwards of a stage take the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.job import (
    BACKWARD_PER_FORWARD,
    BYTES_PER_ELEMENT,
    Job,
    Layer,
    LayerKind,
    compressed_bytes,
    copied_elements,
    frozen_bytes,
)
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


class PassParts(NamedTuple):
    """Of one micro-batch over a stage: seconds, or bytes."""

    forward: float
    backward: float
    again: float
    """Of what is recomputed in the backward."""


NOTHING = PassParts(0.0, 0.0, 0.0)


def group_messages_s(job: Job, layers: Sequence[Layer], device: Device, flop_per_s: float) -> PassParts:
    """Seconds of the messages within a group of GPUs for one micro-batch over these layers, beside their computing.

    ``flop_per_s`` is what the group reaches. Checkpointed blocks, or stages, send again what they send in the forward;
    ``selective`` checkpointing keeps what arrived.
    """
    if device.gpus == 1:
        return NOTHING
    of = {layer: _layer_messages_s(job, layer, device, flop_per_s) for layer in dict.fromkeys(layers)}
    forward_s, backward_s = (sum(of[layer][way] for layer in layers) for way in (0, 1))
    blocks_s = sum(of[layer][0] for layer in layers if layer.kind is LayerKind.BLOCK)
    return PassParts(forward_s, backward_s, {"stage": forward_s, "block": blocks_s}.get(job.checkpoints, 0.0))


def _layer_messages_s(job: Job, layer: Layer, device: Device, flop_per_s: float) -> tuple[float, float]:
    """Of the forward and of the backward of one layer."""
    model, inner = job.modelled(), (device.inner_bandwidth_bytes_per_s, device.inner_latency_s)
    n_tensor, n_context, n_experts = tensor_gpus(job, device.gpus), job.context_parallel, job.expert_parallel
    each = job.microbatch * BYTES_PER_ELEMENT[job.dtype] / job.data_gpus
    sum_s = ring_all_reduce_s(each * model.boundary_elements, n_tensor, *inner)
    forward_s, backward_s = (n * sum_s for n in ALL_REDUCES[layer.kind])
    if n_context > 1 and layer.kv_elements:
        step_s = device.inner_latency_s + each * layer.kv_elements / n_tensor / device.inner_bandwidth_bytes_per_s
        beside_s = job.microbatch * model.attention_flop / flop_per_s / n_context
        forward_s += (n_context - 1) * max(step_s - beside_s, 0.0)
        backward_s += (n_context - 1) * max(2 * step_s - BACKWARD_PER_FORWARD * beside_s, 0.0)
    if n_experts > 1 and layer.expert_elements:
        sent_bytes = each * model.boundary_elements * model.experts_per_token / n_tensor
        there_and_back_s = 2 * ring_gather_s(sent_bytes, n_experts, *inner)
        forward_s, backward_s = forward_s + there_and_back_s, backward_s + there_and_back_s
    return forward_s, backward_s


def tensor_gpus(job: Job, gpus: int) -> int:
    """Of a group of so many GPUs, those that share each layer."""
    return max(gpus // job.data_gpus, 1)


def group_average_s(job: Job, n_elements: int, n_experts: int, device: Device) -> float:
    """Seconds in which the GPUs of a group that hold the same of so many parameters, experts' among them, average their
    gradients.

    Where replicas split the optimiser's states, so do they: gradients are scattered and parameters gathered, which
    takes as many rounds.
    """
    if job.data_gpus == 1:
        return 0.0
    inner = device.inner_bandwidth_bytes_per_s, device.inner_latency_s
    gradient, parameter = BYTES_PER_ELEMENT[job.gradients_in], BYTES_PER_ELEMENT[job.dtype]
    back = gradient if job.sharding in (None, "none") else parameter
    alike = (n_elements - n_experts, job.data_gpus), (n_experts / job.expert_parallel, job.context_parallel)
    return sum(
        ring_gather_s(each * elements / tensor_gpus(job, device.gpus), n, *inner)
        for elements, n in alike
        for each in (gradient, back)
        if elements
    )


def hop_gather_s(job: Job, device: Device, n_bytes: float) -> float:
    """Seconds in which a group gathers a message between stages, of which each of its GPUs received a part.

    Each GPU of the sending group sends its part only, over the card that they share, and the receivers gather it over
    their inner links (Narayanan et al. 2021, section 4.1, scatter/gather optimisation).
    """
    inner = device.inner_bandwidth_bytes_per_s, device.inner_latency_s
    return ring_gather_s(n_bytes / job.data_gpus, tensor_gpus(job, device.gpus), *inner)


def streamed_s(compute_s: Sequence[float], before_s: Sequence[float], after_s: Sequence[float]) -> float:
    """Seconds of layers one after the other, each fetched while the one before it computes, and sent behind it.

    Each argument has a number for each layer: seconds of computing, of the message without which the layer cannot
    begin, and of the message that it makes. While a layer computes, the next is fetched and the one before it sent,
    over the same links. Never less than computing alone or the messages alone, never more than both in turn.
    """
    n = len(compute_s)
    beside_s = [(before_s[i + 1] if i + 1 < n else 0.0) + (after_s[i - 1] if i else 0.0) for i in range(n)]
    return before_s[0] + sum(map(max, compute_s, beside_s)) + after_s[-1]


class PassSeconds(NamedTuple):
    """Seconds of one micro-batch's passes on a device."""

    forward: float
    backward: float
    backward_input: float
    backward_weight: float


class LayerMessages(NamedTuple):
    """What the replicas of a stage exchange in the passes of one micro-batch; an entry a layer, first layer first."""

    shares: Sequence[float]
    """The layers' parts of computing, 1 in all."""
    gather_s: Sequence[float]
    """Seconds in which a layer's parameters are gathered."""
    scatter_s: Sequence[float]
    """Seconds in which a layer's gradients are scattered."""


def sharded_passes(alone: PassSeconds, messages: LayerMessages) -> PassSeconds:
    """The passes of a stage with their messages, from those of a device with all parameters."""
    shares, gather_s, scatter_s = messages
    backwards = shares[::-1], gather_s[::-1], scatter_s[::-1]
    none = [0.0] * len(shares)

    def of(seconds: float, parts: Sequence[float], before_s: Sequence[float], after_s: Sequence[float]) -> float:
        return streamed_s([seconds * part for part in parts], before_s, after_s)

    return PassSeconds(
        forward=of(alone.forward, shares, gather_s, none),
        backward=of(alone.backward, *backwards),
        backward_input=of(alone.backward_input, *backwards[:2], none),
        backward_weight=of(alone.backward_weight, backwards[0], none, backwards[2]),
    )


def message_bytes_of(job: Job, parameters: int, beside_bytes: float) -> tuple[float, float]:
    """Bytes of the weights of a layer when gathered, with frozen ones ``beside_bytes``, and of its gradient when
    scattered, as compressed."""
    gradient_bytes = compressed_bytes(parameters, job.gradients_in, job.gradients_as)
    return float(parameters * BYTES_PER_ELEMENT[job.dtype]) + beside_bytes, gradient_bytes


class Sharded(NamedTuple):
    """Divisors of what a device holds of parameters, gradients and the optimiser's states."""

    parameters: int
    gradients: int
    optimizer: int


def sharded_over(sharding: str | None, n_replicas: int) -> Sharded:
    """The divisors of a sharding (Rajbhandari et al. 2020, figure 1); the planner's choice, None, counts as none."""
    level = 0 if sharding in (None, "none") else int(sharding[-1])
    return Sharded(*(n_replicas if level >= least else 1 for least in (3, 2, 1)))


class Gathered(NamedTuple):
    """What a device holds whole beside its shards, at most."""

    weights_bytes: float
    gradient_elements: int


def gathered_of(job: Job, layers: Sequence[Layer], n_replicas: int) -> Gathered:
    """Weights and gradients of a stage's layers that a device holds whole beside its shards, at most.

    With zero-3 the weights of the block in use and of the one fetched ahead, and those of the embedding and the head
    all the time: in FSDP they are the root's own, which torch's ``fully_shard`` does not drop after the forward. With
    it and with zero-2 the gradients of the layer whose gradients are being scattered. Nothing where there is one
    replica.
    """
    level = sharded_over(job.sharding, 2)
    if n_replicas == 1 or level.gradients == 1:
        return Gathered(0.0, 0)
    of = [(layer.kind, message_bytes_of(job, layer.parameters, frozen_bytes(job, layer))[0]) for layer in layers]
    blocks = sorted(n_bytes for kind, n_bytes in of if kind is LayerKind.BLOCK)
    root = sum(n_bytes for kind, n_bytes in of if kind is not LayerKind.BLOCK)
    gathered = root + sum(blocks[-2:]) if level.parameters > 1 else 0.0
    return Gathered(gathered, max(layer.parameters for layer in layers))


def passing_gradient_elements(job: Job, layers: Sequence[Layer]) -> int:
    """Gradients of a stage's largest block, which are made in the precision of numbers and then added in another.

    Transformer Engine keeps a buffer for each shape of a weight (SimuMax counts these as "dummy wgrad"). 0 where both
    precisions are one.
    """
    if job.gradients_in == job.dtype:
        return 0
    blocks = (layer for layer in layers if layer.kind is LayerKind.BLOCK)
    return max((layer.parameters + copied_elements(job, layer) for layer in blocks), default=0)
