"""Seconds of computations: from FLOP and a device's peak, or from a profile measured before a run.

Where a job asks for it, also from the bytes that computing moves in memory and that are counted nowhere else.
Normalisations, activation functions, dropout, residuals, the loss, and the elementwise parts of an unfused attention do
so little arithmetic that they take as long as memory takes to be read and written; so does the optimiser's step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dtfm_lab.domain.errors import JobError, TraceError
from dtfm_lab.domain.job import (
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
from dtfm_lab.domain.network import Device, Links, hardware_of
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind, Programs, Step
from dtfm_lab.domain.trace import ComputeTime
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.simulation.collectives import (
    NOTHING,
    GroupRings,
    LayerMessages,
    PassParts,
    PassSeconds,
    group_average_s,
    group_messages_s,
    hop_gather_s,
    message_bytes_of,
    sharded_over,
    sharded_passes,
)
from dtfm_lab.simulation.efficiency import BACKWARD_READS, GivenEfficiency, speeds_of
from dtfm_lab.simulation.memory_intervals import static_memory

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
                passes = sharded_passes(passes, messages)
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

    Checkpointed blocks, or stages, move in their recomputation what they moved in their forward.
    """
    each = job.microbatch * BYTES_PER_ELEMENT[job.dtype]
    forward = each * sum(moved_elements(job, layer) for layer in layers)
    repeated = {"none": [], "stage": layers}.get(
        job.checkpoints, [layer for layer in layers if layer.kind is LayerKind.BLOCK]
    )
    return PassParts(forward, BACKWARD_READS * forward, each * sum(moved_elements(job, layer) for layer in repeated))


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
