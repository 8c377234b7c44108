"""Seconds of a layer's passes, of collectives, and of averaging among replicas.

Collectives are rings over the links of a group. Every round of a ring waits for the slowest link. The first part of
this module is about averaging: the bytes of its messages, its rounds, and the time to compress. The simulator, the
search and its bounds use these functions. ``domain.schedule.synchronisation`` says which replica sends to which, and in
which order.

**Rings.** An all-gather or a reduce-scatter takes n - 1 rounds of 1/n of the bytes. An all-reduce does both (Patarasu
and Yuan 2009, "Bandwidth optimal all-reduce algorithms").

**Tensor parallelism.** Each block all-reduces a micro-batch's activations over the group twice in the forward and twice
in the backward, after its attention and its MLP (Shoeybi et al. 2019, "Megatron-LM", section 3 and figure 4). The
embedding, cut by vocabulary, does so once in the forward, and the head once in the backward. Computation waits for
these all-reduces, so they are not hidden.

**Context parallelism.** The sequence is cut into c parts. The keys and values of a part go round in a ring, in c - 1
steps. Each step overlaps with the products of the queries with the part that arrived before. In the backward, their
gradients go round too (Liu et al. 2023, "Ring Attention", section 3). These products hide messages even under a causal
mask, because the parts are assigned so that all GPUs have equal work.

**Expert parallelism.** Each token goes to its experts and back, all to all, in the forward and in the backward
(Lepikhin et al. 2020, "GShard", section 3.2). Every GPU is assumed to receive the same number of tokens, and nothing is
hidden. With context or expert parallelism, several GPUs of a group hold the same parameters. They average their
gradients in rings before each optimizer step, which is not hidden either.

**Passes.** A pass takes its FLOP divided by the FLOP/s that a device reaches. If a job asks for it
(``memory_traffic``), a pass also takes the time of memory traffic that is counted nowhere else. Normalisations,
activation functions, dropout, residuals, the loss, and the elementwise parts of unfused attention do so little
arithmetic that reading and writing memory takes their whole time. The same holds for the optimizer step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dtfm_lab.costs.efficiency import BACKWARD_READS, GivenEfficiency, speeds_of
from dtfm_lab.costs.memory import sharded_over, static_memory
from dtfm_lab.costs.sharded_passes import PassSeconds, layer_messages, sharded_passes
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

# ---------------------------------------------------------------------------------------------------------------------
# How replicas average. Functions take numbers, or arrays that broadcast. numba compiles those that the search's loops
# call, so these call no other function.


WAYS = ("sharded", "sharded-at-once", "central", "ring", "hierarchical")
"""Ways to average gradients whose seconds are known without a simulation. Compiled loops get the index."""
SHARDED, AT_ONCE, CENTRAL, RING, HIERARCHICAL, NOTHING = range(6)
"""Indices of the ways in ``WAYS``, for compiled loops. NOTHING means that nothing is averaged after the passes."""


def way_of(job: Job) -> int | None:
    """Return the index in ``WAYS`` of how a job's replicas average after their passes; None if it is not in ``WAYS``.

    With zero-3 it is NOTHING, because the passes scatter all gradients.
    """
    if job.sharding == "zero-3":
        return NOTHING
    return WAYS.index(job.synchronisation) if job.synchronisation in WAYS else None


def travels_beside(job: Job) -> bool:
    """Return True if averages are sent while later iterations run, or cover only one fragment of the parameters at a
    time."""
    return job.fragments > 1 or job.fragment_delay > 0


def shard(whole: Any, n: Any) -> Any:
    """Return 1/n of the bytes or seconds of a gradient: the shard that one of n replicas averages."""
    return whole / n


def ring_rounds(n: Any) -> Any:
    """Return the number of rounds of a reduce-scatter, or of an all-gather, in a ring of n. An all-reduce takes twice
    as many."""
    return n - 1


def ring_share(n: Any) -> Any:
    """Return the fraction of all bytes that each link of a ring of n carries in a reduce-scatter, or in an
    all-gather."""
    return (n - 1) / n


def ring_link_s(n: Any, there_s: Any, back_s: Any, latency_s: Any) -> Any:
    """Return the minimum seconds in which a link of a ring of n carries all shards of an all-reduce, one after the
    other.

    A message of the reduce-scatter occupies the link for ``there_s``, one of the all-gather for ``back_s``.
    """
    return (n - 1) * (there_s + back_s) + latency_s


def ring_rounds_s(n: Any, round_s: Any) -> Any:
    """Return the seconds of a reduce-scatter, or of an all-gather, in a ring of n if each round takes ``round_s``."""
    return (n - 1) * round_s


def ring_gather_s(n_bytes: float, n: int, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Return the seconds of an all-gather: n members hold 1/n of ``n_bytes`` each, and every member gets all of it. A
    reduce-scatter takes as long."""
    return float(ring_rounds_s(n, latency_s + shard(n_bytes, n) / bandwidth_bytes_per_s)) if n > 1 else 0.0


def ring_all_reduce_s(n_bytes: float, n: int, bandwidth_bytes_per_s: float, latency_s: float) -> float:
    """Return the seconds of an all-reduce in which n members sum ``n_bytes`` each: a reduce-scatter and an
    all-gather."""
    return 2 * ring_gather_s(n_bytes, n, bandwidth_bytes_per_s, latency_s)


class GroupRings:
    """The rings of a plan's data-parallel groups, all in use at once.

    A ring visits regions and hosts one after the other, as in collective libraries, so it enters and leaves each of
    them once. Rings that leave a host through the same NIC share it. Over many hosts, collectives may be slower
    (``Topology.collectives``).
    """

    def __init__(self, topology: Topology, links: Links, groups: IntArray) -> None:
        """``groups`` is (S, R) device indices, one row per group."""
        self._links, self.n_members = links, groups.shape[1]
        place = {}
        for device in groups.ravel().tolist():
            of = topology.devices[device]
            # a device without a host counts as a host of its own, with a name that no host has
            host = of.host or f" {device}"
            place[device] = (topology.regions.index(of.region), host)
        self._rings = [np.array(sorted(row.tolist(), key=lambda device: place[device])) for row in groups]
        leaving = [links.queues(ring, np.roll(ring, -1))[0] for ring in self._rings]
        used, counts = np.unique(np.concatenate(leaving), return_counts=True)
        self._slower = links.slower(groups)
        self._sharing = [counts[np.searchsorted(used, one)] for one in leaving]

    def gather_s(self, group: int, n_bytes: float) -> float:
        """Return the seconds in which the members of a group all-gather, or reduce-scatter, ``n_bytes`` in total."""
        if self.n_members == 1:
            return 0.0
        ring, sharing = self._rings[group], self._sharing[group]
        after = np.roll(ring, -1)
        moving_s = self._slower[group] * sharing * self._links.moving_s(ring, after, shard(n_bytes, self.n_members))
        return float(ring_rounds_s(self.n_members, (moving_s + self._links.latency_s[ring, after]).max()))


class Coded(NamedTuple):
    """How much of its gradient one replica encodes and decodes to average it, if messages are compressed.

    If replicas shard the optimizer states, they send back parameters, uncompressed, so averages are not coded.
    """

    pack_s: float
    """Seconds to encode the messages that the replica sends before its first sum."""
    summed: float
    """Work to decode and encode for all its sums together, as a multiple of coding one whole gradient."""
    n_sums: int
    unpacked: float
    """Work to decode after the last sum, as a multiple of coding one whole gradient."""


def coding_s(n_elements: Any, plain_bytes: Any, codec_bytes_per_s: Any) -> Any:
    """Return the seconds in which a device encodes, or decodes, ``n_elements`` numbers of ``plain_bytes`` each
    uncompressed."""
    return n_elements * plain_bytes / codec_bytes_per_s


def coded_in_shards(whole_s: float, n: int, splits: bool) -> Coded:
    """Return the coding work of each of n replicas if each averages a shard: ``sharded`` and ``sharded-at-once``.

    ``whole_s`` is the seconds to code a whole gradient. ``splits`` is True if replicas shard the optimizer states.
    """
    share = (n - 1) / n
    return Coded(whole_s * share, share if splits else 1.0, 1, 0.0 if splits else share)


def coded_in_ring(whole_s: float, n: int, splits: bool) -> Coded:
    """Return the coding work of each of n replicas in a ring. If replicas shard states (``splits``), the last sum is
    not encoded."""
    return Coded(whole_s / n, (2 * (n - 1) - splits) / n, n - 1, 0.0 if splits else (n - 1) / n)


def coded_at_root(n: int) -> Coded:
    """Return the coding work of replica 0 with ``central``, where it sums the whole gradients of all n replicas."""
    return Coded(0.0, float(n), 1, 0.0)


def coded_by_member(whole_s: float) -> Coded:
    """Return the coding work of a replica that sends its whole gradient and receives the whole average.

    With ``central``, these are all replicas except the first. With ``hierarchical``, they are all except the first of
    each region.
    """
    return Coded(whole_s, 0.0, 0, 1.0)


def coded_by_leader(whole_s: float, n_members: float, n_leaders: int) -> Coded:
    """Return the coding work of a region's first replica, its leader, with ``hierarchical``.

    It sums the whole gradients of its region's ``n_members`` and exchanges shards with the other leaders.
    """
    apart = (n_leaders - 1) / n_leaders
    n_sums, summed = 0, 0.0
    if n_members > 1:
        n_sums, summed = 1, n_members - 1.0 + (apart if n_leaders > 1 else 1.0)
    if n_leaders > 1:
        n_sums, summed = n_sums + 1, summed + 1.0
    return Coded(whole_s * (apart if n_members == 1 else 0.0), summed, n_sums, apart)


def sum_seconds(whole_s: float, coded: Coded, apart: bool) -> tuple[float, float]:
    """Return the coding seconds in each sum of a replica, and after the last message that it receives.

    ``whole_s`` is the seconds to encode or decode a whole gradient. ``apart`` is True if replicas split the optimizer
    states, or average only every few iterations. The decoding after the last message then counts as one more sum, and
    both values are the average over all sums.
    """
    if not apart:
        return (whole_s * coded.summed / coded.n_sums if coded.n_sums else 0.0), whole_s * coded.unpacked
    each_s = whole_s * (coded.summed + coded.unpacked) / (coded.n_sums + 1)
    return each_s, each_s


# ---------------------------------------------------------------------------------------------------------------------
# Passes of layers and stages, and the messages within a group of GPUs.


ALL_REDUCES = {LayerKind.EMBEDDING: (1, 0), LayerKind.BLOCK: (2, 2), LayerKind.HEAD: (0, 1)}
"""Number of all-reduces of a micro-batch's activations in (the forward, the backward) of a layer."""


class PassParts(NamedTuple):
    """Seconds, or bytes, of one micro-batch over a stage or a layer, by pass."""

    forward: float
    backward: float
    again: float
    """The part of the forward that the backward repeats to recompute activations."""


NO_MESSAGES = PassParts(0.0, 0.0, 0.0)


def layer_passes(job: Job, layer: Layer, device: Device, flop_per_s: float) -> PassSeconds:
    """Return the seconds of one micro-batch's passes over a layer. ``flop_per_s`` is what the device, or group of GPUs,
    reaches.

    A backward takes twice the time of a forward, plus what it recomputes. If weights are frozen, ``ModelSpec.backward``
    says how long it takes. A split backward has two halves of one forward each, and the recomputation belongs to the
    first. The messages within a group of GPUs are part of the passes. So is the time to move operators' bytes, if the
    job counts it (``memory_traffic``). A block's pass takes at least as long as launching its kernels
    (``launch_seconds``). Raises JobError if the job counts memory traffic and a GPU's memory bandwidth is unknown.
    """
    once_s, again_s = (job.microbatch * flop / flop_per_s for flop in (layer.forward_flop, repeated_flop(job, layer)))
    inputs_s, weights_s = (times * once_s for times in job.modelled().backward)
    messages_s = group_messages_s(job, layer, device, flop_per_s)
    forward_s = once_s + messages_s.forward
    back_s = again_s + messages_s.backward + messages_s.again
    unweighted_s = 0.0
    if job.memory_traffic:
        moved, bytes_per_s = layer_traffic(job, layer), memory_bandwidth_of(device)
        forward_s += moved.forward / bytes_per_s
        back_s += (moved.again + moved.backward) / bytes_per_s
        unweighted_s = job.microbatch * unweighted(job, layer) / flop_per_s
    passes = PassSeconds(
        forward_s, inputs_s + weights_s + back_s, inputs_s + unweighted_s + back_s, weights_s - unweighted_s
    )
    if layer.kind is not LayerKind.BLOCK or not (launch_s := block_launch_s(job, device)):
        return passes
    return PassSeconds(*map(max, passes, launch_seconds(job, launch_s)))


def block_launch_s(job: Job, device: Device) -> float:
    """Return the minimum seconds of a block's forward and backward together: what the job states, otherwise what was
    measured on the GPU; 0 if neither is known."""
    return job.block_launch_s or (0.0 if device.measured is None else device.measured.block_launch_s)


def launch_seconds(job: Job, launch_s: float) -> PassSeconds:
    """Return the minimum seconds of each of a block's passes, given ``launch_s``, the seconds to launch all its
    kernels.

    A third belongs to the forward and a third to each half of the backward. A recomputing backward takes another third.
    """
    third_s = launch_s / 3
    again_s = third_s if job.checkpoints != "none" else 0.0
    return PassSeconds(third_s, 2 * third_s + again_s, third_s + again_s, third_s)


def stage_passes(job: Job, layers: Sequence[Layer], device: Device, flop_per_s: float) -> PassSeconds:
    """Return the seconds of one micro-batch's passes over the layers of a stage: the sum of ``layer_passes``."""
    counts = Counter(layers)
    of = np.array([layer_passes(job, layer, device, flop_per_s) for layer in counts])
    return PassSeconds(*(np.array(list(counts.values())) @ of).tolist())


def group_messages_s(job: Job, layer: Layer, device: Device, flop_per_s: float) -> PassParts:
    """Return the seconds that one micro-batch spends on messages within a group of GPUs in a layer, in addition to
    computing.

    ``flop_per_s`` is what the group reaches. A checkpointed block, or stage, repeats the messages of its forward.
    ``selective`` checkpointing keeps the received activations, so it repeats none.
    """
    if device.gpus == 1:
        return NO_MESSAGES
    forward_s, backward_s = _layer_messages_s(job, layer, device, flop_per_s)
    return PassParts(forward_s, backward_s, forward_s if _is_sent_again(job, layer) else 0.0)


def _is_sent_again(job: Job, layer: Layer) -> bool:
    return job.checkpoints == "stage" or (job.checkpoints == "block" and layer.kind is LayerKind.BLOCK)


def _layer_messages_s(job: Job, layer: Layer, device: Device, flop_per_s: float) -> tuple[float, float]:
    """Return (forward, backward) seconds of the messages within a group of GPUs in one layer."""
    model, inner = job.modelled(), (device.inner_bandwidth_bytes_per_s, device.inner_latency_s)
    n_tensor, n_context, n_experts = tensor_gpus(job, device.gpus), job.context_parallel, job.expert_parallel
    each = job.microbatch * BYTES_PER_ELEMENT[job.dtype] / job.data_gpus
    sum_s = ring_all_reduce_s(each * model.boundary_elements, n_tensor, *inner)
    forward_s, backward_s = (n * sum_s for n in ALL_REDUCES[layer.kind])
    if n_context > 1 and layer.kv_elements:
        step_s = device.inner_latency_s + each * layer.kv_elements / n_tensor / device.inner_bandwidth_bytes_per_s
        beside_s = job.microbatch * model.attention_flop / flop_per_s / n_context
        # a step costs only the time that the attention products of the previous part do not hide
        forward_s += (n_context - 1) * max(step_s - beside_s, 0.0)
        backward_s += (n_context - 1) * max(2 * step_s - BACKWARD_PER_FORWARD * beside_s, 0.0)
    if n_experts > 1 and layer.expert_elements:
        sent_bytes = each * model.boundary_elements * model.experts_per_token / n_tensor
        there_and_back_s = 2 * ring_gather_s(sent_bytes, n_experts, *inner)
        forward_s, backward_s = forward_s + there_and_back_s, backward_s + there_and_back_s
    return forward_s, backward_s


def tensor_gpus(job: Job, gpus: int) -> int:
    """Return the number of GPUs that share each layer by tensor parallelism, in a group of ``gpus``."""
    return max(gpus // job.data_gpus, 1)


def group_average_s(job: Job, n_elements: int, n_experts: int, device: Device) -> float:
    """Return the seconds in which the GPUs of a group that hold the same parameters average their gradients.

    ``n_elements`` is the number of parameters, including ``n_experts`` of experts. If replicas shard the optimizer
    states, so do these GPUs: they scatter gradients and gather parameters, in the same number of rounds.
    """
    if job.data_gpus == 1:
        return 0.0
    inner = device.inner_bandwidth_bytes_per_s, device.inner_latency_s
    there = BYTES_PER_ELEMENT[job.gradients_in]  # within a group nothing is compressed
    back = BYTES_PER_ELEMENT[job.dtype] if job.splits_states else there
    alike = (n_elements - n_experts, job.data_gpus), (n_experts / job.expert_parallel, job.context_parallel)
    return sum(
        ring_gather_s(each * elements / tensor_gpus(job, device.gpus), n, *inner)
        for elements, n in alike
        for each in (there, back)
        if elements
    )


def hop_gather_s(job: Job, device: Device, n_bytes: float) -> float:
    """Return the seconds in which a group of GPUs gathers a message from another stage, after each GPU received a part.

    Each GPU of the sending group sends only its part, over the NIC that they share. The receivers gather it over the
    links within their group (Narayanan et al. 2021, section 4.1, scatter/gather optimisation).
    """
    inner = device.inner_bandwidth_bytes_per_s, device.inner_latency_s
    return ring_gather_s(n_bytes / job.data_gpus, tensor_gpus(job, device.gpus), *inner)


def layer_traffic(job: Job, layer: Layer) -> PassParts:
    """Return the bytes that a layer's operators move for one micro-batch.

    A checkpointed block, or stage, moves the bytes of its forward again when it is recomputed. Quantised weights are
    restored before each product (``restored_bytes``): in the forward, in its recomputation and in the backward.
    """
    forward = job.microbatch * BYTES_PER_ELEMENT[job.dtype] * moved_elements(job, layer)
    repeats = job.checkpoints == "stage" or (job.checkpoints != "none" and layer.kind is LayerKind.BLOCK)
    restored = restored_bytes(job, layer)
    again = forward + restored if repeats else 0.0
    return PassParts(forward + restored, BACKWARD_READS * forward + restored, again)


def restored_bytes(job: Job, layer: Layer) -> float:
    """Return the bytes that a layer's quantised weights move each time they are restored; 0 for other weights.

    They are read as stored, written in the job's precision and read again by the product (Dettmers et al. 2023,
    "QLoRA", equation 5).
    """
    kept, plain_bytes = frozen_bytes(job, layer), float(layer.frozen_elements * BYTES_PER_ELEMENT[job.dtype])
    return job.data_gpus * (kept + 2 * plain_bytes) if kept < plain_bytes else 0.0


def unweighted(job: Job, layer: Layer) -> float:
    """Return the FLOP of attention in a forward of one sequence, which multiply queries, keys and values and use no
    weights.

    In a split backward, their backward belongs to the first half, because the second half computes only the gradients
    of weights. Return 0 if weights are frozen, because ``ModelSpec.backward`` accounts for this already.
    """
    if job.modelled().frozen_elements or not layer.attention_elements:
        return 0.0
    return min(job.modelled().attention_flop, layer.forward_flop)


def memory_bandwidth_of(device: Device) -> float:
    """Return the memory bandwidth of a device in bytes/s, from the table of hardware. Raises JobError for a GPU that is
    not in it."""
    known = hardware_of(device.gpu)
    if known is None:
        raise JobError(
            f"device {device.name}: the memory bandwidth of GPU {device.gpu} is unknown; memory_traffic wants a GPU of "
            f"the table of hardware"
        )
    return device.gpus * known.memory_bytes_per_s


def step_traffic_bytes(job: Job, n_stages: int) -> tuple[float, ...]:
    """Return, per position in the pipeline, the bytes that the optimizer step moves.

    Parameters and optimizer states are read once and written once. Gradients are read once and set to zero. If replicas
    shard the states, each steps only its shard. With zero-1 it still holds the whole gradient and sets all of it to
    zero.
    """
    split = job.splits_states  # among all GPUs that hold the same parameters
    one = {"context_parallel": 1, "expert_parallel": 1} if split else {}
    # a second copy of gradients is filled in the passes
    whole = static_memory(job.with_fields(sharding="none", gradient_buffers="none", **one), n_stages)
    over = sharded_over(job.sharding, job.n_replicas)
    stepped = (2 * (whole.total - whole.frozen) - whole.gradients) / over.optimizer
    zeroed = whole.gradients / over.gradients * (job.data_gpus if split else 1)
    return tuple((stepped + zeroed).tolist())


# ---------------------------------------------------------------------------------------------------------------------
# Seconds of a plan's computations: from FLOP and a device's peak, or from a profile measured before a run.


CODING = Kind.PACK, Kind.REDUCE, Kind.STEP
"""Kinds of computations after the passes: those of synchronisation, and the optimizer step."""
WHOLE_FROM_HALVES = {Kind.BACKWARD_INPUT: Kind.BACKWARD, Kind.BACKWARD_WEIGHT: Kind.BACKWARD}


def analytic(
    plan: Plan, programs: Programs, efficiency: GivenEfficiency = None, links: Links | None = None
) -> tuple[ComputeTime, ...]:
    """Return the seconds of each of a plan's computations: FLOP divided by the FLOP/s that a device reaches, and the
    coding of compressed messages.

    The messages within a group of GPUs (``layer_passes``) are part of the passes. So are the messages of sharded
    parameters and gradients (``sharded_passes``), which travel over ``links``; None for the plan's links. Sums and the
    optimizer step are bound by memory, not FLOP. They take 0 seconds, except for coding, for averaging within a group
    of GPUs, and with ``memory_traffic``.

    Raises JobError if the efficiency is not above 0 and at most 1, or if the job counts memory traffic and a GPU's
    memory bandwidth is unknown.
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
    """Return the rows of ``analytic`` for passes, with the model cut into ``n_stages``. This needs no programs.

    The rows cover the first ``n_replicas``, by default all.
    """
    job = plan.job
    speeds = speeds_of(job, plan.topology.devices, efficiency)
    last = n_stages - 1
    elements, n_bytes = job.boundary_elements(n_stages), boundary_bytes(job, n_stages)
    coded_s = BYTES_PER_ELEMENT[job.dtype] / job.codec_bytes_per_s if job.codes_activations else 0.0
    rings = None
    if job.gathers_passes and job.n_replicas > 1:
        rings = GroupRings(plan.topology, links or Links.of(plan.topology, plan.queueing), plan.placement.devices)
    rows = []
    for stage, layers in enumerate(job.layers_of(n_stages)):
        position = stage % job.n_stages
        coding_s = 0.0 if job.n_stages == 1 else coded_s * (elements[stage] + elements[stage + 1])
        messages = None if rings is None else layer_messages(job, layers, rings, position)
        # the first stage receives no activations, the last one no gradients
        n_received = (0, 0) if job.n_stages == 1 else (int(stage > 0), int(stage < last))
        passes_of: dict[tuple[object, ...], tuple[PassSeconds, list[float]]] = {}
        """Passes by kind of device, because identical devices take equal times."""
        for replica in range(n_replicas or job.n_replicas):
            at = int(plan.placement.devices[position, replica])
            device, speed = plan.topology.devices[at], speeds[at]
            kind = device.gpu, device.gpus, device.inner_bandwidth_bytes_per_s, device.inner_latency_s, speed
            if kind in passes_of:
                rows += _rows_of(stage, replica, *passes_of[kind])
                continue
            passes = stage_passes(job, layers, device, speed)
            if messages is not None:
                passes = sharded_passes(passes, messages, prefetch=job.prefetch)
            gather_s = (hop_gather_s(job, device, n_bytes[stage + behind]) for behind in range(2))
            before_s = [coding_s + n * each_s for n, each_s in zip(n_received, gather_s, strict=True)]
            passes_of[kind] = passes, before_s
            rows += _rows_of(stage, replica, passes, before_s)
    return rows


def _rows_of(stage: int, replica: int, passes: PassSeconds, before_s: Sequence[float]) -> list[ComputeTime]:
    """Return the rows of one device's passes. ``before_s`` has the seconds that precede each forward and each
    backward."""
    return [
        ComputeTime(stage, replica, Kind.FORWARD, passes.forward + before_s[0]),
        ComputeTime(stage, replica, Kind.BACKWARD, passes.backward + before_s[1]),
        ComputeTime(stage, replica, Kind.BACKWARD_INPUT, passes.backward_input + before_s[1]),
        ComputeTime(stage, replica, Kind.BACKWARD_WEIGHT, passes.backward_weight),
    ]


def _synchronising(plan: Plan, programs: Programs) -> list[ComputeTime]:
    """Return the rows of PACK, REDUCE and STEP: the seconds to compress and restore messages.

    If a device has several computations of a kind, each takes the average. A group of GPUs also averages internally
    before its step, and a step includes its memory traffic if the job counts it.
    """
    job = plan.job
    n_experts = device_expert_elements(job, programs.schedule.n_stages)
    n_elements = device_gradient_elements(job, programs.schedule.n_stages)
    step_bytes = step_traffic_bytes(job, programs.schedule.n_stages)
    rows = []
    for position, tails in enumerate(programs.tails):
        whole_s = 0.0
        if job.codes_gradients:
            whole_s = coding_s(n_elements[position], job.gradient_coding.plain, job.codec_bytes_per_s)
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
    """Return how much each computation of a kind compresses or restores on average, as a multiple of a whole gradient,
    and the number of these computations."""
    steps = [step for step in tail if step.action.kind is kind]
    n_steps = sum(step.rounds for step in steps)
    return (float(np.sum([step.coded for step in steps]) / n_steps) if steps else 0.0), n_steps


def compute_seconds(computations: Iterable[tuple[int, int, Kind]], profile: Iterable[ComputeTime]) -> FloatArray:
    """Return the seconds of each (stage, replica, kind). Raises TraceError if the profile has no row for one.

    If a profile has only whole backwards, each half of a split backward takes half of one.
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
