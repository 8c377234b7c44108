"""Seconds of collectives, and of computations.

Collectives are rings over the links of a group, in which every round waits for the slowest link.

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
scattered behind it, in every micro-batch. The next layer is fetched while one computes (``Job.prefetch``); the first
cannot be hidden, nor can the last gradients. Layers here are the units that are gathered: embedding, block, head.

With zero-2 no device has room for whole gradients, so each micro-batch scatters its own, as in DeepSpeed's stage 2 and
in FSDP's SHARD_GRAD_OP without ``no_sync``: all but those of the last micro-batch, which the synchronisation sends.
Their seconds are spread evenly over all micro-batches, as all backwards of a stage take the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dtfm_lab.domain.errors import JobError, TraceError
from dtfm_lab.domain.job import (
    BACKWARD_PER_FORWARD,
    BYTES_PER_ELEMENT,
    Job,
    Layer,
    LayerKind,
    boundary_bytes,
    device_expert_elements,
    device_gradient_elements,
    frozen_bytes,
    moved_elements,
    repeated_flop,
)
from dtfm_lab.domain.network import Device, Links, Topology, hardware_of
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind, Programs, Step
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.simulation.efficiency import BACKWARD_READS, GivenEfficiency, speeds_of
from dtfm_lab.simulation.memory_intervals import message_bytes_of, sharded_over, static_memory


def ring_gather_s(n_bytes: float, n: int, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Seconds in which n members with 1/n of ``n_bytes`` each give everyone all; also those of a reduce-scatter."""
    return (n - 1) * (latency_s + n_bytes / n / bandwidth_bytes_per_s) if n > 1 else 0.0


def ring_all_reduce_s(n_bytes: float, n: int, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Seconds in which n members sum ``n_bytes`` each and all have the sum: a reduce-scatter and a gather."""
    return 2 * ring_gather_s(n_bytes, n, bandwidth_bytes_per_s, latency_s)


class GroupRings:
    """The rings of a plan's data-parallel groups, all in use at once.

    A ring visits regions and hosts one after the other, as collective libraries lay theirs, so it enters and leaves
    each of them once. Rings that leave a host by its one NIC share that NIC.
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

    Each GPU of the sending group sends its part only, over the NIC that they share, and the receivers gather it over
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


def sharded_passes(alone: PassSeconds, messages: LayerMessages, *, prefetch: bool = True) -> PassSeconds:
    """The passes of a stage with their messages, from those of a device with all parameters.

    Without ``prefetch`` no layer computes while another's messages travel.
    """
    shares, gather_s, scatter_s = messages
    backwards = shares[::-1], gather_s[::-1], scatter_s[::-1]
    none = [0.0] * len(shares)

    def of(seconds: float, parts: Sequence[float], before_s: Sequence[float], after_s: Sequence[float]) -> float:
        if not prefetch:
            return seconds + sum(before_s) + sum(after_s)
        return streamed_s([seconds * part for part in parts], before_s, after_s)

    return PassSeconds(
        forward=of(alone.forward, shares, gather_s, none),
        backward=of(alone.backward, *backwards),
        backward_input=of(alone.backward_input, *backwards[:2], none),
        backward_weight=of(alone.backward_weight, backwards[0], none, backwards[2]),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Seconds of computations: from FLOP and a device's peak, or from a profile measured before a run.
#
# Where a job asks for it, also from the bytes that computing moves in memory and that are counted nowhere else.
# Normalisations, activation functions, dropout, residuals, the loss, and the elementwise parts of an unfused attention
# do so little arithmetic that they take as long as memory takes to be read and written; so does the optimiser's step.


CODING = Kind.PACK, Kind.REDUCE, Kind.STEP
"""Computations of synchronisation."""
WHOLE_FROM_HALVES = {Kind.BACKWARD_INPUT: Kind.BACKWARD, Kind.BACKWARD_WEIGHT: Kind.BACKWARD}


def analytic(
    plan: Plan, programs: Programs, efficiency: GivenEfficiency = None, links: Links | None = None
) -> tuple[ComputeTime, ...]:
    """FLOP of a stage's layers over what its device reaches of its peak, and the coding of compressed messages.

    A backward takes twice a forward, or what ``ModelSpec.backward`` says where weights are frozen, and again what it
    recomputes; split, its two halves take one forward each, and the recomputation goes with the first. The messages
    within a group of GPUs and those of sharded parameters are part of the passes; the latter go over ``links``,
    those of the plan where None. Averaging and the optimiser's step are bound by memory, not FLOP, and count as 0
    beside what they code and what a group of GPUs averages within, but for ``memory_traffic``. Raises JobError where
    the efficiency is not within 0 and 1, or a GPU's memory bandwidth is unknown where the job counts it.
    """
    passes = pass_times(plan, programs.schedule.n_stages, efficiency, links, programs.n_replicas)
    return (*passes, *_synchronising(plan, programs))


def pass_times(
    plan: Plan,
    n_stages: int,
    efficiency: GivenEfficiency = None,
    links: Links | None = None,
    n_replicas: int | None = None,
) -> list[ComputeTime]:
    """The rows of ``analytic`` that are passes, the model cut into so many stages, which need no programs. Of the first
    ``n_replicas``, by default of all."""
    job = plan.job
    speeds = speeds_of(job, plan.topology.devices, efficiency)
    last, backward = n_stages - 1, job.modelled().backward
    elements, n_bytes = job.boundary_elements(n_stages), boundary_bytes(job, n_stages)
    coded_s = BYTES_PER_ELEMENT[job.dtype] / job.codec_bytes_per_s if job.codes_activations else 0.0
    rings = None
    if job.gathers_passes and job.n_replicas > 1:
        rings = GroupRings(plan.topology, links or Links.of(plan.topology, plan.queueing), plan.placement.devices)
    rows = []
    for stage, layers in enumerate(job.layers_of(n_stages)):
        position = stage % job.n_stages
        flop = job.microbatch * sum(layer.forward_flop for layer in layers)
        again_flop = job.microbatch * sum(repeated_flop(job, layer) for layer in layers)
        unweighted_flop = job.microbatch * unweighted(job, layers) if job.memory_traffic else 0.0
        traffic = stage_traffic(job, layers) if job.memory_traffic else NOTHING
        coding_s = 0.0 if job.n_stages == 1 else coded_s * (elements[stage] + elements[stage + 1])
        messages = None if rings is None else _messages(job, layers, rings, position)
        n_received = (0, 0) if job.n_stages == 1 else (int(stage > 0), int(stage < last))
        passes_of: dict[tuple[object, ...], tuple[PassSeconds, list[float]]] = {}
        """Devices that are alike take equal times."""
        for replica in range(n_replicas or job.n_replicas):
            at = int(plan.placement.devices[position, replica])
            device, speed = plan.topology.devices[at], speeds[at]
            kind = device.gpu, device.gpus, device.inner_bandwidth_bytes_per_s, device.inner_latency_s, speed
            if kind in passes_of:
                rows += _rows_of(stage, replica, *passes_of[kind])
                continue
            forward_s, again_s = flop / speed, again_flop / speed
            inputs_s, weights_s = (once * forward_s for once in backward)
            unweighted_s = unweighted_flop / speed
            moved_bytes_per_s = memory_bandwidth_of(device) if job.memory_traffic else 1.0
            moved_s = PassParts(*(n_bytes / moved_bytes_per_s for n_bytes in traffic))
            sums_s = group_messages_s(job, layers, device, speed)
            back_s = again_s + moved_s.again + moved_s.backward + sums_s.backward + sums_s.again
            passes = PassSeconds(
                forward_s + moved_s.forward + sums_s.forward,
                inputs_s + weights_s + back_s,
                inputs_s + unweighted_s + back_s,
                weights_s - unweighted_s,
            )
            if messages is not None:
                passes = sharded_passes(passes, messages, prefetch=job.prefetch)
            gather_s = (hop_gather_s(job, device, n_bytes[stage + behind]) for behind in range(2))
            before_s = [coding_s + n * each_s for n, each_s in zip(n_received, gather_s, strict=True)]
            passes_of[kind] = passes, before_s
            rows += _rows_of(stage, replica, passes, before_s)
    return rows


def _rows_of(stage: int, replica: int, passes: PassSeconds, before_s: Sequence[float]) -> list[ComputeTime]:
    """The passes of a device, with what precedes its forwards and its backwards."""
    return [
        ComputeTime(stage, replica, Kind.FORWARD, passes.forward + before_s[0]),
        ComputeTime(stage, replica, Kind.BACKWARD, passes.backward + before_s[1]),
        ComputeTime(stage, replica, Kind.BACKWARD_INPUT, passes.backward_input + before_s[1]),
        ComputeTime(stage, replica, Kind.BACKWARD_WEIGHT, passes.backward_weight),
    ]


def _messages(job: Job, layers: Sequence[Layer], rings: GroupRings, group: int) -> LayerMessages:
    """What a stage whose gradients, and with zero-3 parameters, are sharded over its replicas gathers and scatters."""
    whole = sum(layer.forward_flop for layer in layers)
    shares = [layer.forward_flop / whole if whole else 1 / len(layers) for layer in layers]
    sizes = [message_bytes_of(job, layer.parameters, frozen_bytes(job, layer)) for layer in layers]
    seconds = {n_bytes: rings.gather_s(group, n_bytes) for n_bytes in {one for size in sizes for one in size}}
    scatter_s = [seconds[gradient] for _, gradient in sizes]
    if job.sharding == "zero-3":
        return LayerMessages(shares, [seconds[parameters] for parameters, _ in sizes], scatter_s)
    # the gradients of the last micro-batch are those that the synchronisation sends
    each = (job.n_microbatches - 1) / job.n_microbatches
    return LayerMessages(shares, [0.0] * len(layers), [each * one_s for one_s in scatter_s])


def _synchronising(plan: Plan, programs: Programs) -> list[ComputeTime]:
    """PACK, REDUCE and STEP take the time of coding; where a device has several of a kind, each takes the mean. Before
    its steps a group of GPUs averages within."""
    job = plan.job
    n_experts = device_expert_elements(job, programs.schedule.n_stages)
    n_elements = device_gradient_elements(job, programs.schedule.n_stages)
    step_bytes = step_traffic_bytes(job, programs.schedule.n_stages)
    rows = []
    for position, tails in enumerate(programs.tails):
        coded_bytes = n_elements[position] * BYTES_PER_ELEMENT[job.gradients_in]
        whole_s = coded_bytes / job.codec_bytes_per_s if job.codes_gradients else 0.0
        alike = {id(tail): tail for tail in tails}
        means = {key: [_mean_coded(tail, kind) for kind in CODING] for key, tail in alike.items()}
        for replica, tail in enumerate(tails):
            device = plan.topology.devices[int(plan.placement.devices[position, replica])]
            for kind, (mean, n_steps) in zip(CODING, means[id(tail)], strict=True):
                seconds = whole_s * mean
                if kind is Kind.STEP and n_steps and job.memory_traffic:
                    seconds += step_bytes[position] / memory_bandwidth_of(device) / n_steps
                if kind is Kind.STEP and n_steps:
                    seconds += group_average_s(job, n_elements[position], n_experts[position], device) / n_steps
                rows.append(ComputeTime(position, replica, kind, seconds))
    return rows


def _mean_coded(tail: Sequence[Step], kind: Kind) -> tuple[float, int]:
    """What each computation of a kind codes on average, in whole gradients, and how many of them there are."""
    steps = [step for step in tail if step.action.kind is kind]
    n_steps = sum(step.rounds for step in steps)
    return (float(np.sum([step.coded for step in steps]) / n_steps) if steps else 0.0), n_steps


def compute_seconds(computations: Iterable[tuple[int, int, Kind]], profile: Iterable[ComputeTime]) -> FloatArray:
    """Seconds of each (stage, replica, kind); raises TraceError where the profile has no row for one.

    Where a profile has only whole backwards, each half of a split one takes half of that.
    """
    table = {(row.stage, row.replica, row.kind): row.seconds for row in profile}

    def seconds(stage: int, replica: int, kind: Kind) -> float:
        if (stage, replica, kind) in table:
            return table[stage, replica, kind]
        whole = table.get((stage, replica, WHOLE_FROM_HALVES.get(kind, kind)))
        if whole is not None:
            return whole / 2
        raise TraceError(
            f"profile has no time for {kind} on stage {stage}, replica {replica}; "
            f"wanted one for every stage, replica and kind"
        )

    return np.array([seconds(*work) for work in computations])


def stage_traffic(job: Job, layers: Sequence[Layer]) -> PassParts:
    """Bytes that the layers of a stage move for one micro-batch.

    Checkpointed blocks, or stages, move in their recomputation what they moved in their forward. Quantised weights are
    restored before each product (``restored_bytes``): in the forward, in its recomputation and in the backward.
    """
    each = job.microbatch * BYTES_PER_ELEMENT[job.dtype]
    forward = each * sum(moved_elements(job, layer) for layer in layers)
    repeated = {"none": [], "stage": layers}.get(
        job.checkpoints, [layer for layer in layers if layer.kind is LayerKind.BLOCK]
    )
    again = each * sum(moved_elements(job, layer) for layer in repeated)
    restored, restored_again = (sum(restored_bytes(job, layer) for layer in some) for some in (layers, repeated))
    return PassParts(forward + restored, BACKWARD_READS * forward + restored, again + restored_again)


def restored_bytes(job: Job, layer: Layer) -> float:
    """Bytes that a layer's quantised weights move each time they are restored: read as they are kept, written in the
    job's precision and read again by the product (Dettmers et al. 2023, "QLoRA", equation 5). 0 for other weights."""
    kept, plain_bytes = frozen_bytes(job, layer), float(layer.frozen_elements * BYTES_PER_ELEMENT[job.dtype])
    return job.data_gpus * (kept + 2 * plain_bytes) if kept < plain_bytes else 0.0


def unweighted(job: Job, layers: Sequence[Layer]) -> float:
    """FLOP of a forward of one sequence that multiply no weights, but queries, keys and values.

    The second half of a split backward, which makes the weights' gradients, has none of their backward. Where weights
    are frozen, ``ModelSpec.backward`` has put them where they belong.
    """
    if job.modelled().frozen_elements:
        return 0.0
    attention = job.modelled().attention_flop
    return sum(min(attention, layer.forward_flop) for layer in layers if layer.attention_elements)


def step_traffic_bytes(job: Job, n_stages: int) -> tuple[float, ...]:
    """Per position in the pipeline, bytes of the optimiser's step: parameters, gradients and states are read and
    written once, gradients as zeros. Where replicas split the states, each steps its shard alone; with zero-1 it still
    holds the whole gradient, which it zeroes."""
    split = job.sharding not in (None, "none")  # among all GPUs that hold the same
    one = {"context_parallel": 1, "expert_parallel": 1} if split else {}
    whole = static_memory(job.with_fields(sharding="none", **one), n_stages)
    over = sharded_over(job.sharding, job.n_replicas)
    stepped = (2 * (whole.total - whole.frozen) - whole.gradients) / over.optimizer
    zeroed = whole.gradients / over.gradients * (job.data_gpus if split else 1)
    return tuple((stepped + zeroed).tolist())


def memory_bandwidth_of(device: Device) -> float:
    """Bytes per second, from the table of hardware. Raises JobError for a GPU that is not in it."""
    known = hardware_of(device.gpu)
    if known is None:
        raise JobError(
            f"device {device.name}: the memory bandwidth of GPU {device.gpu} is unknown; memory_traffic wants a GPU of "
            f"the table of hardware"
        )
    return device.gpus * known.memory_bytes_per_s
