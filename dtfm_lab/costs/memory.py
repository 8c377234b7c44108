"""What devices hold: parameters, gradients and optimiser states all the time, activations of a micro-batch for a while.

Counted are tensors that outlive an operator: parameters, gradients and the optimiser's states; the
activations of every micro-batch between its forward and the end of its backward; messages from the first byte
received to the pass that uses them up, and from the pass that makes them to the last byte sent. What a
framework takes for itself and memory lost between allocations are a reserve that the job states (``usable_bytes``);
an operator's own temporaries are not counted, but for the gradients of a block that are added in another precision.

A backward that is split holds everything until the end of W: what I frees, the gradients that W multiplies with take
up again (Qi et al. 2024, "Zero Bubble Pipeline Parallelism", table 1: 32 of a block's 34 bytes a token and width; of
a head it would be half). With checkpoints a micro-batch leaves less, until its backward makes the rest again: that of
the whole stage, or of one block at a time. A split backward does the latter, too, but holds all of it to the end of
W.

Sharding and what is gathered of it come first, then what is held at all times, then what passes hold for a while.
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
    """Bytes of the weights of a layer when gathered, with frozen ones ``beside_bytes``, and of its gradient when
    scattered, as compressed."""
    gradient_bytes = float(coded_bytes(parameters, job.gradient_coding))
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
    """What a device holds beside its shards, at most."""

    weights_bytes: float
    gradient_elements: int
    """Gradients that are whole, in their own precision."""
    passing_elements: int
    """Gradients that are yet to be added, in the precision of numbers (``passing_gradient_elements``)."""

    def total_bytes(self, job: Job) -> float:
        """Bytes of all of it."""
        gradient_bytes = self.gradient_elements * BYTES_PER_ELEMENT[job.gradients_in]
        return self.weights_bytes + self.passing_elements * BYTES_PER_ELEMENT[job.dtype] + gradient_bytes


def gathered_of(job: Job, layers: Sequence[Layer], n_replicas: int) -> Gathered:
    """Weights and gradients of a stage's layers that a device holds beside its shards, at most.

    With zero-3 the weights of the block in use and of the one fetched ahead, and those of the embedding and the head
    all the time: in FSDP they are the root's own, which torch's ``fully_shard`` does not drop after the forward. With
    it and with zero-2 the gradients of the layer whose gradients are being scattered. Neither where there is one
    replica. In any case the gradients of a block that are yet to be added in another precision.
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
    """Gradients of a stage's largest block, which are made in the precision of numbers and then added in another.

    Transformer Engine keeps a buffer for each shape of a weight (SimuMax counts these as "dummy wgrad"). 0 where both
    precisions are one.
    """
    if job.gradients_in == job.dtype:
        return 0
    blocks = (layer for layer in layers if layer.kind is LayerKind.BLOCK)
    return max((layer.parameters + copied_elements(job, layer) for layer in blocks), default=0)


OPTIMIZER_BYTES = {"fp16": 12, "bf16": 12, "fp32": 8, "fp64": 16}
"""Optimiser bytes per parameter by dtype, with Adam: two moments, in half precision also a copy of the parameter, all
in fp32. With a parameter and a gradient of 2 bytes these are the 16 bytes of Rajbhandari et al. 2020 ("ZeRO",
section 3.1)."""
MOMENTS_BYTES = {"fp16": 8, "bf16": 8, "fp32": 8, "fp64": 16}
"""Of these, the two moments."""


def optimizer_bytes(job: Job) -> int:
    """Bytes of the optimiser's states for one parameter."""
    whole = OPTIMIZER_BYTES[job.dtype]
    return whole if job.optimizer == "adam" else whole - MOMENTS_BYTES[job.dtype] + 2


class HeldOfParameter(NamedTuple):
    """How often a device holds one of the numbers that belong to each trained parameter."""

    each_bytes: int
    """Bytes of one."""
    parts: int
    """Replicas that share the first copy of all of them."""
    copies: int
    """Further copies, on the other GPUs of a group."""
    expert_copies: int
    """Further copies where the parameter is an expert's."""

    def elements(self, n_elements: IntArray, n_experts: IntArray) -> IntArray:
        """Whole numbers that a device holds of a stage's parameters, ``n_experts`` of them experts'."""
        copied = self.copies * (n_elements - n_experts) + self.expert_copies * n_experts
        return np.asarray(-(-n_elements // self.parts) + copied)


def held_of_parameter(job: Job, n_replicas: int) -> tuple[HeldOfParameter, HeldOfParameter, HeldOfParameter]:
    """Return what a device holds of a parameter, of its gradient and of its optimiser's state, with so many replicas.

    Where GPUs of a group hold the same parameters each has its own copy, but shards of the optimiser's states.
    """
    sizes = BYTES_PER_ELEMENT[job.dtype], BYTES_PER_ELEMENT[job.gradients_in], optimizer_bytes(job)
    copies = job.data_gpus - 1, job.context_parallel - 1
    of = (copies, copies, (0, 0) if job.splits_states else copies)
    parameter, gradient, state = (
        HeldOfParameter(each, parts, *more)
        for each, parts, more in zip(sizes, sharded_over(job.sharding, n_replicas), of, strict=True)
    )
    return parameter, gradient, state


def static_bytes(job: Job, n_replicas: int) -> float:
    """Bytes that a device of so many replicas holds all the time of each trained parameter: itself, its gradient and
    its optimiser's state. ``beside_static_bytes`` has the rest of a layer, ``gathered_of`` that of a stage."""
    held = held_of_parameter(job, n_replicas)
    return sum(one.each_bytes / one.parts for one in held) + float(sum(one.copies * one.each_bytes for one in held))


def beside_static_bytes(job: Job, layer: Layer) -> float:
    """Bytes that a layer holds beside ``static_bytes`` of each parameter: frozen weights, less the copies that experts
    do not have."""
    missing = sum((one.copies - one.expert_copies) * one.each_bytes for one in held_of_parameter(job, 1))
    return job.data_gpus * frozen_bytes(job, layer) - float(missing) * layer.expert_elements


class StaticMemory(NamedTuple):
    """Bytes that a device holds all the time. Each (positions,)."""

    parameters: IntArray
    gradients: IntArray
    optimizer: IntArray
    frozen: IntArray
    """Weights that are not trained."""

    @property
    def weights(self) -> IntArray:
        """All that a device multiplies by, trained or not."""
        return self.parameters + self.frozen

    @property
    def total(self) -> IntArray:
        return self.weights + self.gradients + self.optimizer


def static_memory(job: Job, n_stages: int) -> StaticMemory:
    """Of each position in the pipeline, the model cut into ``n_stages``; a tied embedding counts at both ends. Where
    GPUs of a group hold the same parameters, each counts its own.

    What is sharded over the replicas counts a shard, rounded up to whole numbers (``held_of_parameter``), and beside it
    what is whole at a time (``gathered_of``).
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
        gradient_bytes[position] += held[1].each_bytes * max(one.gradient_elements for one in here)
        gradient_bytes[position] += held[0].each_bytes * max(one.passing_elements for one in here)
    frozen = np.ceil([sum(frozen_bytes(job, x) for x in layers) for layers in stages]).astype(np.int64)
    frozen *= job.data_gpus
    shared = -(-frozen.reshape(-1, job.n_stages).sum(axis=0) // held[0].parts)
    return StaticMemory(weights_bytes, gradient_bytes, states_bytes, shared)


class ActivationMemory(NamedTuple):
    """Bytes of one micro-batch's activations. Each (stages,)."""

    kept: IntArray
    """Held from forward to the end of the backward: everything, or what checkpoints leave."""
    recomputed: IntArray
    """Held in addition from the beginning of its backward to the end: what is recomputed."""


def activation_memory(job: Job, n_stages: int, *, splits: bool = False) -> ActivationMemory:
    """Activations of every stage, the model cut into ``n_stages``; ``splits`` where backwards have two halves. Of
    all GPUs of a group.

    Where blocks are recomputed one at a time, a backward needs the most when all kept up to a block, and all of that
    block, are held: what the layers behind it kept is free by then.
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
    first = stages[0][0]
    begins = [first.held_elements if first.kind is LayerKind.EMBEDDING else job.modelled().boundary_elements]
    begins += [layers[-1].output_elements for layers in stages[:-1]]
    kept = np.minimum(whole_copies(job) * each * np.array(begins, dtype=np.int64), whole)
    return ActivationMemory(kept, whole - kept)


def _most_at_once(job: Job, layers: Sequence[Layer]) -> int:
    """Numbers of one sequence that a backward, one block at a time, holds beyond what all the layers kept."""
    most, behind = 0, 0
    for layer in reversed(layers):
        kept = kept_elements(job, layer)
        most = max(most, needed_elements(job, layer) - kept - behind)
        behind += kept
    return most


def activation_budget(plan: Plan) -> IntArray:
    """(stages, replicas) micro-batches whose activations each device can hold at once, with one stage a device.

    Each counts with one message that waits to be sent or used; two more messages are in use by the running passes.
    """
    job = plan.job
    of = activation_memory(job, job.n_stages)
    crossing = np.ceil(boundary_bytes(job, job.n_stages)).astype(np.int64)
    hop_bytes = np.maximum(crossing[:-1], crossing[1:])
    once = static_memory(job, job.n_stages).total + of.recomputed + 2 * hop_bytes
    each = np.maximum(of.kept + hop_bytes, 1)
    return np.asarray(np.maximum(memory_limits(plan) - once[:, None], 0) // each[:, None])


def memory_limits(plan: Plan) -> IntArray:
    """(stages, replicas) bytes of memory that the devices have for plans: without the job's reserve."""
    return np.asarray(usable_bytes(plan.job, plan.topology.devices).astype(np.int64)[plan.placement.devices])


def usable_bytes(job: Job, devices: Sequence[Device]) -> FloatArray:
    """(devices,) whole bytes of memory behind the job's reserve; not below 0."""
    have = np.array([device.memory_bytes for device in devices]) - job.group_gpus * job.reserve_bytes
    return np.asarray(np.floor(np.clip((1 - job.fragmentation) * have, 0.0, 2.0**62)))


# ---------------------------------------------------------------------------------------------------------------------
# From when to when it is held: by a trace, or by the order of passes.


@dataclass(frozen=True, eq=False)
class ActionTimes:
    """Actions with their times, by row: of a trace, or of a schedule where computations take 1 and messages 0."""

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
        """Times by order alone: computation i of a device takes [i, i + 1), messages come and leave without waiting.

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
        """The times of a trace of these programs."""
        at = {action: i for i, action in enumerate(trace.actions)}
        known = np.array([at.get(action, -1) for action in graph.actions])[graph.action]
        shares = np.zeros((graph.programs.n_replicas, len(trace.actions)))
        shares[graph.replica[known >= 0], known[known >= 0]] = graph.share[known >= 0]
        _, iteration = np.unique(trace.iteration, return_inverse=True)
        share = shares[trace.replica, trace.action]
        return cls(trace.actions, trace.action, iteration, trace.replica, share, trace.start_s, trace.end_s)


class MemoryIntervals(NamedTuple):
    """What is held beside the static memory: ``n_bytes`` from ``first`` to right before ``last``. Columns."""

    device: IntArray
    """Number of device and iteration: (iteration x positions + position) x replicas + replica."""
    first: FloatArray
    last: FloatArray
    n_bytes: IntArray
    is_message: npt.NDArray[np.bool_]


def memory_intervals(job: Job, n_stages: int, rows: ActionTimes, n_replicas: int) -> MemoryIntervals:
    """Activations and messages of the first ``n_replicas`` of a job, which ``rows`` are of. What no action in ``rows``
    frees is held to the end of its iteration."""
    return _Intervals(job, n_stages, rows, n_replicas).collected()


class _Intervals:
    """Matches every allocation with its end: by micro-batch for passes, by round for synchronisation."""

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
        """(rows,) number of the stage and micro-batch, or round, of this device in this iteration."""
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
        """(rows,) starts; a backward that was computed in parts starts with its first part."""
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
        """Peers' gradients until they are averaged, and copies of the own gradient until the step."""
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
        last = np.where(start < last, last, self.until)  # after local updates, parameters are averaged behind the step
        copies = {Kind.RECV_E: np.full(len(start), math.ceil(job.embedding_bytes))}
        if job.codes_gradients:  # else an average takes the place of what it averages
            copies[Kind.PACK] = shares
            if job.sharding == "none":  # parameters are not compressed, and take the place of those before
                copies[Kind.RECV_P] = shares
        for kind, n_bytes in copies.items():
            which = self._rows(kind)
            self._hold(which, start[which], last[which], n_bytes[which], is_message=True)

    def _rows(self, *kinds: Kind) -> IntArray:
        return np.flatnonzero(np.isin(self.kind, [_KINDS[kind] for kind in kinds]))

    def _moments(self, when: FloatArray, *kinds: Kind) -> FloatArray:
        """(keys,) ``when`` of the key's action of these kinds; nan where it has none."""
        moments = np.full(self.n_keys, np.nan)
        which = self._rows(*kinds)
        moments[self.key[which]] = when[which]
        return moments

    def _at(self, moments: FloatArray, which: IntArray) -> FloatArray:
        """The moment of each row's key; the end of its iteration where that is nan."""
        found = moments[self.key[which]]
        return np.where(np.isnan(found), self.until[which], found)

    def _hold(
        self, which: IntArray, first: FloatArray, last: FloatArray, n_bytes: IntArray, *, is_message: bool = False
    ) -> None:
        self.entries.append(MemoryIntervals(self.device[which], first, last, n_bytes, np.full(len(which), is_message)))


_KINDS = {kind: i for i, kind in enumerate(Kind)}
