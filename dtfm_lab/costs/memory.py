"""The bytes that devices hold: parameters, gradients and optimizer states all the time, a micro-batch's activations for
a while.

The module counts tensors that outlive an operator:

- parameters, gradients and the optimizer states
- the activations of every micro-batch, from its forward to the end of its backward
- messages, from the first byte received to the pass that uses them, and from the pass that makes them to the last byte
  sent

The job states a reserve for what the framework needs itself and for fragmentation (``usable_bytes``). An operator's
temporaries are not counted, with one exception: the gradients of a block that are added up in another precision.

A split backward has two halves: I computes the gradients of the inputs, then W the gradients of the weights. It holds
everything until the end of W, because the gradients that W needs take the place of what I frees (Qi et al. 2024, "Zero
Bubble Pipeline Parallelism", table 1: 32 of a block's 34 bytes per token and width; for a head it would be half). With
checkpoints, a micro-batch keeps less until its backward recomputes the rest: the whole stage, or one block at a time. A
split backward also recomputes one block at a time, but holds all recomputed blocks to the end of W.

The module has three parts: sharding and what is gathered, what is held at all times, and what passes hold for a while.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.job import (
    BYTES_PER_ELEMENT,
    Job,
    Layer,
    LayerKind,
    boundary_bytes,
    boundary_of,
    coded_bytes,
    copied_elements,
    device_expert_elements,
    device_gradient_bytes,
    device_gradient_elements,
    frozen_bytes,
    kept_elements,
    needed_elements,
    whole_copies,
)
from dtfm_lab.domain.job.options import BLOCKWISE
from dtfm_lab.domain.network import Device
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Action, Kind
from dtfm_lab.domain.schedule.task_graph import COMPUTATION, TaskGraph
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import FloatArray, IntArray


def message_bytes_of(job: Job, parameters: int, beside_bytes: float) -> tuple[float, float]:
    """Return the bytes of a layer's weights when they are gathered, and of its gradient when it is scattered.

    The layer has ``parameters`` trained weights and ``beside_bytes`` of frozen ones. The gradient is compressed if the
    job says so.
    """
    gradient_bytes = float(coded_bytes(parameters, job.gradient_coding))
    return float(parameters * BYTES_PER_ELEMENT[job.dtype]) + beside_bytes, gradient_bytes


class Sharded(NamedTuple):
    """The numbers of replicas over which parameters, gradients and optimizer states are sharded; 1 if they are not."""

    parameters: int
    gradients: int
    optimizer: int


def sharded_over(sharding: str | None, n_replicas: int) -> Sharded:
    """Return the divisors for a sharding such as ``zero-2`` (Rajbhandari et al. 2020, figure 1). None, which lets the
    planner choose, counts as no sharding."""
    level = 0 if sharding in (None, "none") else int(sharding[-1])
    return Sharded(*(n_replicas if level >= least else 1 for least in (3, 2, 1)))


class Gathered(NamedTuple):
    """The most that a device holds at a time in addition to its shards."""

    weights_bytes: float
    gradient_elements: int
    """Number of elements of the largest unsharded gradient of a layer, in the precision of gradients."""
    passing_elements: int
    """Number of gradient elements in the job's precision that wait to be added up in another precision
    (``passing_gradient_elements``)."""

    def total_bytes(self, job: Job) -> float:
        """Bytes of weights and gradients together."""
        gradient_bytes = self.gradient_elements * BYTES_PER_ELEMENT[job.gradients_in]
        return self.weights_bytes + self.passing_elements * BYTES_PER_ELEMENT[job.dtype] + gradient_bytes


def gathered_of(job: Job, layers: Sequence[Layer], n_replicas: int) -> Gathered:
    """Return the most weights and gradients of a stage's layers that a device holds in addition to its shards.

    - With zero-3: the weights of the block in use and of the one being fetched. The embedding and the head are held all
      the time, because in FSDP they belong to the root module, which torch's ``fully_shard`` keeps after the forward.
    - With zero-2 and zero-3: the gradients of the layer whose gradients are being scattered.
    - Always: the gradients of one block that wait to be added up in another precision (``passing_gradient_elements``).

    With one replica, only the last applies.
    """
    level, passing = sharded_over(job.sharding, 2), passing_gradient_elements(job, layers)
    if n_replicas == 1 or level.gradients == 1:
        return Gathered(0.0, 0, passing)
    of = [(layer.kind, message_bytes_of(job, layer.parameters, frozen_bytes(job, layer))[0]) for layer in layers]
    blocks = sorted(n_bytes for kind, n_bytes in of if kind is LayerKind.BLOCK)
    root = sum(n_bytes for kind, n_bytes in of if kind is not LayerKind.BLOCK)
    gathered = root + sum(blocks[-2:]) if level.parameters > 1 else 0.0
    return Gathered(gathered, max(layer.parameters for layer in layers), passing)


def passing_gradient_elements(job: Job, layers: Sequence[Layer]) -> int:
    """Return the number of gradient elements that a device holds in the job's precision until they are added up in
    another.

    These are the gradients of one block, the stage's largest. Transformer Engine keeps a buffer for each shape of a
    weight (SimuMax counts these as "dummy wgrad"). Return 0 if both precisions are the same. Also return 0 if the
    framework keeps all gradients in the job's precision anyway, because ``beside_gradients`` counts them.
    """
    if job.gradients_in == job.dtype or job.gradient_buffers == "whole":
        return 0
    blocks = (layer for layer in layers if layer.kind is LayerKind.BLOCK)
    return max((layer.parameters + copied_elements(job, layer) for layer in blocks), default=0)


OPTIMIZER_BYTES = {"fp16": 12, "bf16": 12, "fp32": 8, "fp64": 16}
"""Bytes of optimizer state per parameter, by the job's dtype, with Adam: two moments and, in half precision, a copy of
the parameter, all in fp32. With a parameter and a gradient of 2 bytes, these are the 16 bytes of Rajbhandari et al.
2020 ("ZeRO", section 3.1)."""
MOMENTS_BYTES = {"fp16": 8, "bf16": 8, "fp32": 8, "fp64": 16}
"""Bytes of Adam's two moments per parameter, by the job's dtype. They are part of ``OPTIMIZER_BYTES``."""


def optimizer_bytes(job: Job) -> int:
    """Return the bytes of the optimizer state of one parameter."""
    whole = OPTIMIZER_BYTES[job.dtype]
    return whole if job.optimizer == "adam" else whole - MOMENTS_BYTES[job.dtype] + 2


class HeldOfParameter(NamedTuple):
    """How much a device holds of one kind of number that exists for each trained parameter, such as its gradient."""

    each_bytes: int
    """Bytes of one such number."""
    parts: int
    """Number of replicas over which one copy is sharded."""
    copies: int
    """Number of further copies, on the other GPUs of the device's group."""
    expert_copies: int
    """Number of further copies if the parameter belongs to an expert."""

    def elements(self, n_elements: IntArray, n_experts: IntArray) -> IntArray:
        """Return how many such numbers a device holds for ``n_elements`` parameters, including ``n_experts`` parameters
        of experts."""
        copied = self.copies * (n_elements - n_experts) + self.expert_copies * n_experts
        return np.asarray(-(-n_elements // self.parts) + copied)


def beside_gradients(job: Job, n_replicas: int) -> int:
    """Return the bytes per parameter of a second copy of its gradient (``gradient_buffers``); 0 without one.

    If replicas shard gradients, there is no second copy, because each layer's is freed once it is scattered. A single
    replica has no buckets. Buffers of whole gradients are a second copy only if gradients are added up in another
    precision than the job's.
    """
    if sharded_over(job.sharding, 2).gradients > 1:
        return 0
    if job.gradient_buffers == "buckets" and n_replicas > 1:
        return BYTES_PER_ELEMENT[job.gradients_in]
    return BYTES_PER_ELEMENT[job.dtype] if job.gradient_buffers == "whole" and job.gradients_in != job.dtype else 0


def held_of_parameter(job: Job, n_replicas: int) -> tuple[HeldOfParameter, HeldOfParameter, HeldOfParameter]:
    """Return what a device holds of each trained parameter, of its gradient and of its optimizer state.

    A second copy of the gradient counts as part of it. GPUs of a group that hold the same parameters have a copy each.
    If they shard the optimizer states, each has only a shard of those.
    """
    gradient_bytes = BYTES_PER_ELEMENT[job.gradients_in] + beside_gradients(job, n_replicas)
    sizes = BYTES_PER_ELEMENT[job.dtype], gradient_bytes, optimizer_bytes(job)
    copies = job.data_gpus - 1, job.context_parallel - 1
    of = (copies, copies, (0, 0) if job.splits_states else copies)
    parameter, gradient, state = (
        HeldOfParameter(each, parts, *more)
        for each, parts, more in zip(sizes, sharded_over(job.sharding, n_replicas), of, strict=True)
    )
    return parameter, gradient, state


def static_bytes(job: Job, n_replicas: int) -> float:
    """Return the bytes that a device holds all the time per trained parameter: the parameter, its gradient and its
    optimizer state, after sharding, including copies on the other GPUs of a group.

    ``beside_static_bytes`` adds the rest of a layer, ``gathered_of`` the rest of a stage.
    """
    held = held_of_parameter(job, n_replicas)
    return sum(one.each_bytes / one.parts for one in held) + float(sum(one.copies * one.each_bytes for one in held))


def beside_static_bytes(job: Job, layer: Layer) -> float:
    """Return the bytes to add to ``static_bytes`` x parameters for a layer.

    These are frozen weights on all ``data_gpus``, minus expert copies that ``static_bytes`` overcounts. May be
    negative.
    """
    held = held_of_parameter(job, job.n_replicas or 2)
    missing = sum((one.copies - one.expert_copies) * one.each_bytes for one in held)
    return job.data_gpus * frozen_bytes(job, layer) - float(missing) * layer.expert_elements


class StaticMemory(NamedTuple):
    """Bytes that a device holds all the time. Each array has one entry per position in the pipeline."""

    parameters: IntArray
    gradients: IntArray
    optimizer: IntArray
    frozen: IntArray
    """Bytes of the weights that are not trained."""

    @property
    def weights(self) -> IntArray:
        """Bytes of all weights, trained or frozen."""
        return self.parameters + self.frozen

    @property
    def total(self) -> IntArray:
        return self.weights + self.gradients + self.optimizer


def static_memory(job: Job, n_stages: int) -> StaticMemory:
    """Return the memory that is always held at each position in the pipeline, with the model cut into ``n_stages``.

    A tied embedding counts at both ends. GPUs of a group that hold the same parameters count one copy each. For what is
    sharded over the replicas, a shard counts, rounded up to whole elements (``held_of_parameter``), plus the most that
    is gathered at a time (``gathered_of``).
    """
    n_elements = np.array(device_gradient_elements(job, n_stages), dtype=np.int64)
    n_experts = np.array(device_expert_elements(job, n_stages), dtype=np.int64)
    held = held_of_parameter(job, job.n_replicas)
    weights_bytes, gradient_bytes, states_bytes = (one.each_bytes * one.elements(n_elements, n_experts) for one in held)
    stages = job.layers_of(n_stages)
    whole = [gathered_of(job, layers, job.n_replicas) for layers in stages]
    for position in range(job.n_stages):
        here = whole[position :: job.n_stages]
        weights_bytes[position] += math.ceil(max(one.weights_bytes for one in here))
        gradient_bytes[position] += BYTES_PER_ELEMENT[job.gradients_in] * max(one.gradient_elements for one in here)
        gradient_bytes[position] += held[0].each_bytes * max(one.passing_elements for one in here)
    frozen = np.ceil([sum(frozen_bytes(job, x) for x in layers) for layers in stages]).astype(np.int64)
    frozen *= job.data_gpus
    shared = -(-frozen.reshape(-1, job.n_stages).sum(axis=0) // held[0].parts)
    return StaticMemory(weights_bytes, gradient_bytes, states_bytes, shared)


class ActivationMemory(NamedTuple):
    """Bytes of one micro-batch's activations. Each array has one entry per stage."""

    kept: IntArray
    """Held from the forward to the end of the backward: everything, or what checkpoints leave."""
    recomputed: IntArray
    """Recomputed activations, held in addition from the start of the backward to its end."""


def activation_memory(job: Job, n_stages: int, *, splits: bool = False) -> ActivationMemory:
    """Return the activations of one micro-batch in every stage, with the model cut into ``n_stages``, summed over all
    GPUs of a group.

    ``splits`` is True if backwards have two halves. If blocks are recomputed one at a time, an unsplit backward reaches
    its peak at one of its blocks. It then holds all activations of this block, and those that were kept of all earlier
    layers. The activations of later layers are free by then.
    """
    each = job.microbatch * BYTES_PER_ELEMENT[job.dtype]
    stages = job.layers_of(n_stages)
    whole = each * np.array([sum(needed_elements(job, x) for x in layers) for layers in stages], dtype=np.int64)
    if job.checkpoints == "none":
        return ActivationMemory(whole, np.zeros_like(whole))
    if job.checkpoints in BLOCKWISE:
        kept = each * np.array([sum(kept_elements(job, x) for x in layers) for layers in stages], dtype=np.int64)
        again = each * np.array([_most_at_once(job, layers) for layers in stages], dtype=np.int64)
        return ActivationMemory(kept, whole - kept if splits else again)
    # a checkpointed stage keeps its input, which is the output of the stage before
    first = stages[0][0]
    begins = [first.held_elements if first.kind is LayerKind.EMBEDDING else job.modelled().boundary_elements]
    begins += [layers[-1].output_elements for layers in stages[:-1]]
    kept = np.minimum(whole_copies(job) * each * np.array(begins, dtype=np.int64), whole)
    return ActivationMemory(kept, whole - kept)


def _most_at_once(job: Job, layers: Sequence[Layer]) -> int:
    """Return how many elements of one sequence a backward holds at its peak, in addition to what all layers have kept.

    The backward recomputes one block at a time.
    """
    most, behind = 0, 0
    for layer in reversed(layers):
        kept = kept_elements(job, layer)
        most = max(most, needed_elements(job, layer) - kept - behind)
        behind += kept
    return most


def activation_budget(plan: Plan) -> IntArray:
    """Return (stages, replicas) the maximum number of micro-batches whose activations a device can hold at once.

    This assumes one stage per device. Each micro-batch counts with one message that waits to be sent or used. Two more
    messages are in use by the running passes.
    """
    job = plan.job
    of = activation_memory(job, job.n_stages)
    crossing = np.ceil(boundary_bytes(job, job.n_stages)).astype(np.int64)
    hop_bytes = np.maximum(crossing[:-1], crossing[1:])
    once = static_memory(job, job.n_stages).total + of.recomputed + 2 * hop_bytes
    each = np.maximum(of.kept + hop_bytes, 1)
    return np.asarray(np.maximum(memory_limits(plan) - once[:, None], 0) // each[:, None])


def memory_limits(plan: Plan) -> IntArray:
    """Return (stages, replicas) bytes of memory that a plan may use on each device, see ``usable_bytes``."""
    return np.asarray(usable_bytes(plan.job, plan.topology.devices).astype(np.int64)[plan.placement.devices])


def usable_bytes(job: Job, devices: Sequence[Device]) -> FloatArray:
    """Return (devices,) whole bytes of memory that a plan may use: without the job's reserve and its share for
    fragmentation. At least 0."""
    have = np.array([device.memory_bytes for device in devices]) - job.group_gpus * job.reserve_bytes
    return np.asarray(np.floor(np.clip((1 - job.fragmentation) * have, 0.0, 2.0**62)))


# ---------------------------------------------------------------------------------------------------------------------
# Intervals in which memory is held: from a trace, or from the order of passes.


@dataclass(frozen=True, eq=False)
class ActionTimes:
    """Actions with their times, one per row.

    Times come from a trace, or from a schedule alone. In the second case each computation takes 1 and messages take 0.
    """

    actions: tuple[Action, ...]
    action: IntArray
    iteration: IntArray
    replica: IntArray
    share: FloatArray
    """Fraction of the device's gradient that a synchronisation message carries."""
    start: FloatArray
    end: FloatArray

    @classmethod
    def in_order(cls, graph: TaskGraph) -> ActionTimes:
        """Return times that follow from the order alone. Computation i of a device takes [i, i + 1), and messages never
        wait.

        ``graph`` lists each device's actions together and in order, receives right before their consumers.
        """
        computed = (graph.role == COMPUTATION).astype(np.int64)
        before = np.cumsum(computed) - computed
        device = graph.device
        first = np.flatnonzero(np.diff(device, prepend=-1))
        tick = before - np.repeat(before[first], np.diff(np.append(first, len(device))))
        iteration = np.zeros_like(tick)
        start = tick.astype(np.float64)
        return cls(graph.actions, graph.action, iteration, graph.replica, graph.share, start, start + computed)

    @classmethod
    def of(cls, trace: Trace, graph: TaskGraph) -> ActionTimes:
        """Return the times in a trace. ``graph`` has the same programs and gives the ``share`` of each message."""
        at = {action: i for i, action in enumerate(trace.actions)}
        known = np.array([at.get(action, -1) for action in graph.actions])[graph.action]
        shares = np.zeros((graph.programs.n_replicas, len(trace.actions)))
        shares[graph.replica[known >= 0], known[known >= 0]] = graph.share[known >= 0]
        _, iteration = np.unique(trace.iteration, return_inverse=True)
        share = shares[trace.replica, trace.action]
        return cls(trace.actions, trace.action, iteration, trace.replica, share, trace.start_s, trace.end_s)


class MemoryIntervals(NamedTuple):
    """What devices hold in addition to the static memory, one interval per row: ``n_bytes`` from ``first`` to right
    before ``last``."""

    device: IntArray
    """Number that stands for a device in an iteration: (iteration x positions + position) x replicas + replica."""
    first: FloatArray
    last: FloatArray
    n_bytes: IntArray
    is_message: npt.NDArray[np.bool_]


def memory_intervals(job: Job, n_stages: int, rows: ActionTimes, n_replicas: int) -> MemoryIntervals:
    """Return the intervals in which activations and messages are held.

    ``rows`` has the actions of the first ``n_replicas`` replicas. What no action frees is held until its iteration
    ends.
    """
    return _Intervals(job, n_stages, rows, n_replicas).collected()


class _Intervals:
    """Finds when each allocation ends: by micro-batch for passes, by round for synchronisation."""

    def __init__(self, job: Job, n_stages: int, rows: ActionTimes, n_replicas: int) -> None:
        self.job, self.n_stages, self.rows = job, n_stages, rows
        numbered = [-1 if a.microbatch is None else a.microbatch for a in rows.actions]
        known, number = np.unique(numbered, return_inverse=True)
        self.kind = np.array([_KINDS[a.kind] for a in rows.actions])[rows.action]
        self.stage = np.array([a.stage for a in rows.actions])[rows.action]
        round_trip, self.position = np.divmod(self.stage, job.n_stages)
        self.device = (rows.iteration * job.n_stages + self.position) * n_replicas + rows.replica
        n_numbers, n_here = len(known), n_stages // job.n_stages
        self.key = (self.device * n_here + round_trip) * n_numbers + number[rows.action]
        """(rows,) key of each action: one number for its device in this iteration, stage, and micro-batch or round."""
        self.n_keys = (int(self.device.max()) + 1) * n_here * n_numbers
        ends = np.zeros(int(rows.iteration.max()) + 1)
        np.maximum.at(ends, rows.iteration, rows.end)
        self.until = ends[rows.iteration]
        self.entries: list[MemoryIntervals] = []

    def collected(self) -> MemoryIntervals:
        self._passes()
        self._synchronisation()
        device, first, last, n_bytes, is_message = (
            np.concatenate(columns) for columns in zip(*self.entries, strict=True)
        )
        held = (last > first) & (n_bytes > 0)
        return MemoryIntervals(device[held], first[held], last[held], n_bytes[held], is_message[held])

    def _passes(self) -> None:
        start, end = self._starts_of_passes(), self.rows.end
        of = activation_memory(self.job, self.n_stages, splits=len(self._rows(Kind.BACKWARD_INPUT)) > 0)
        forward = self._moments(start, Kind.FORWARD)
        begun = self._moments(start, Kind.BACKWARD, Kind.BACKWARD_INPUT)
        passed_on = self._moments(end, Kind.BACKWARD, Kind.BACKWARD_INPUT)
        done = self._moments(end, Kind.BACKWARD, Kind.BACKWARD_WEIGHT)
        which = self._rows(Kind.FORWARD)
        self._hold(which, start[which], self._at(done, which), of.kept[self.stage[which]])
        self._hold(which, self._at(begun, which), self._at(done, which), of.recomputed[self.stage[which]])

        crossing = np.ceil(boundary_bytes(self.job, self.n_stages)).astype(np.int64)
        for kind, freed_by in ((Kind.RECV_F, forward), (Kind.RECV_B, passed_on)):
            which = self._rows(kind)
            hop_bytes = crossing[boundary_of(kind, self.stage[which])]
            self._hold(which, start[which], self._at(freed_by, which), hop_bytes, is_message=True)
        for kind, made_by in ((Kind.SEND_F, forward), (Kind.SEND_B, begun)):
            which = self._rows(kind)
            hop_bytes = crossing[boundary_of(kind, self.stage[which])]
            self._hold(which, self._at(made_by, which), end[which], hop_bytes, is_message=True)

    def _starts_of_passes(self) -> FloatArray:
        """Return (rows,) start times. A backward that was computed in parts starts with its first part."""
        start = self.rows.start
        parts = self._rows(Kind.PART)
        if not len(parts):
            return start
        start = start.copy()
        stage = self.device * self.n_stages + self.stage
        first: dict[int, float] = {}
        for row in parts.tolist():
            first[int(stage[row])] = min(first.get(int(stage[row]), np.inf), float(start[row]))
        whole = self._rows(Kind.BACKWARD, Kind.BACKWARD_WEIGHT)
        for row in whole[np.lexsort((self.rows.end[whole], stage[whole]))][::-1].tolist():
            if (begun := first.pop(int(stage[row]), None)) is not None:  # the last one of its stage
                start[row] = begun
        return start

    def _synchronisation(self) -> None:
        """Add what averaging holds. Gradients from other replicas are held until they are averaged. A tied embedding's
        gradient from the other stage, and compressed messages and averages, are held until the step."""
        job, start = self.job, self.rows.start
        whole = np.array(device_gradient_bytes(job, self.n_stages))[self.position]
        shares = np.ceil(self.rows.share * whole).astype(np.int64)
        averaged = self._moments(self.rows.end, Kind.REDUCE)
        which = self._rows(Kind.RECV_G)
        self._hold(which, start[which], self._at(averaged, which), shares[which], is_message=True)

        stepped = np.full(int(self.device.max()) + 1, np.inf)
        which = self._rows(Kind.STEP)
        stepped[self.device[which]] = self.rows.end[which]
        last = np.minimum(stepped[self.device], self.until)
        last = np.where(start < last, last, self.until)  # after local updates, parameters are averaged after the step
        copies = {Kind.RECV_E: np.full(len(start), math.ceil(job.embedding_bytes))}
        if job.codes_gradients:  # uncompressed, an average overwrites what it averages
            copies[Kind.PACK] = shares
            if job.sharding == "none":  # sharded replicas get parameters, uncompressed, which overwrite the old ones
                copies[Kind.RECV_P] = shares
        for kind, n_bytes in copies.items():
            which = self._rows(kind)
            self._hold(which, start[which], last[which], n_bytes[which], is_message=True)

    def _rows(self, *kinds: Kind) -> IntArray:
        return np.flatnonzero(np.isin(self.kind, [_KINDS[kind] for kind in kinds]))

    def _moments(self, when: FloatArray, *kinds: Kind) -> FloatArray:
        """Return (keys,) times: the entry of ``when`` for the action that has this key and one of these kinds. nan if
        no action does."""
        moments = np.full(self.n_keys, np.nan)
        which = self._rows(*kinds)
        moments[self.key[which]] = when[which]
        return moments

    def _at(self, moments: FloatArray, which: IntArray) -> FloatArray:
        """Return the entry of ``moments`` at the key of each of the rows ``which``. Where it is nan, return the end of
        the row's iteration."""
        found = moments[self.key[which]]
        return np.where(np.isnan(found), self.until[which], found)

    def _hold(
        self, which: IntArray, first: FloatArray, last: FloatArray, n_bytes: IntArray, *, is_message: bool = False
    ) -> None:
        self.entries.append(MemoryIntervals(self.device[which], first, last, n_bytes, np.full(len(which), is_message)))


_KINDS = {kind: i for i, kind in enumerate(Kind)}
