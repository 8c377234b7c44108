"""What a search for seconds or dollars is given: a network and a job as arrays, and what is minimised.

First come the sizes of micro-batches and the checkpointings that a job leaves open, then ``IterationProblem``, then the
seconds of passes on each kind of device, and at last the target.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from dtfm_lab.costs.efficiency import GivenEfficiency, speeds_of
from dtfm_lab.costs.memory import (
    beside_static_bytes,
    gathered_of,
    message_bytes_of,
    sharded_over,
    static_bytes,
    usable_bytes,
)
from dtfm_lab.costs.seconds import (
    WAYS,
    block_launch_s,
    group_messages_s,
    hop_gather_s,
    launch_seconds,
    layer_passes,
    ring_share,
)
from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import (
    BYTES_PER_ELEMENT,
    Job,
    Layer,
    LayerKind,
    ModelSpec,
    boundary_bytes,
    coded_bytes,
    compressed_bytes,
    frozen_bytes,
    kept_elements,
    needed_elements,
    repeated_flop,
    whole_copies,
)
from dtfm_lab.domain.job.options import BLOCKWISE
from dtfm_lab.domain.network import Device, Links, Topology, is_shared
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.cost import interchangeable, row_of

Numbers = TypeVar("Numbers", float, FloatArray)

CHECKPOINTINGS_TRIED = ({"checkpointing": "none"}, {"checkpointing": "block"}, {"recompute": True})
"""What is tried where the job names no checkpointing."""
MOST_PASSES_CHOSEN = 2 * 10**5
"""Most passes of an iteration, each counted forward and backward, in a plan whose micro-batch is left open: larger
micro-batches lose next to nothing by then, and a simulation takes seconds."""


def checkpointings_of(job: Job) -> list[Job]:
    """The job with each checkpointing that it leaves open, the fastest first where memory allows it."""
    if job.checkpointing is not None or job.recompute:
        return [job]
    return [job.with_fields(**how, warmups=job.warmups) for how in CHECKPOINTINGS_TRIED]


def divisors(n: int) -> list[int]:
    """The numbers that divide ``n``, in ascending order: the sizes that a batch can be cut into."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def open_microbatches(job: Job) -> tuple[int, ...]:
    """Sequences that a micro-batch may have: the job's, or all that divide the batch and leave every replica one, in no
    more passes than are chosen.

    Micro-batches of one plan are alike: none may be smaller because the batch does not divide.
    """
    if job.microbatch is not None:
        return (job.microbatch,)
    batch, replicas = job.global_batch, job.n_replicas or 1
    few = MOST_PASSES_CHOSEN // (job.n_stages or 1)
    whole = (m for m in divisors(batch) if m % job.expert_parallel == 0)
    found = [m for m in whole if m <= batch // replicas and batch // m <= few]
    if job.microbatches_per_replica is not None:
        found = [m for m in found if batch // m == sum(job.microbatches_per_replica)]
    return tuple(m for m in found if not (job.gathers_passes and batch // m % replicas)) or (job.expert_parallel,)


# ---------------------------------------------------------------------------------------------------------------------
# A network and a job as arrays: what decides the seconds, the dollars and the memory of an iteration.
#
# Everything is in SI units: seconds, bytes, FLOP. N devices, L blocks. A *sequence* is one sample of the batch; passes
# move micro-batches of several.


class Passes(NamedTuple):
    """What the micro-batches of one size cost, as the kernels read it, too. Made by ``IterationProblem.passes``."""

    n_microbatches: int
    """Micro-batches of the whole batch, over all pipelines."""
    recompute: bool
    """Whether a backward repeats its forward."""
    hop_bytes: FloatArray
    """(L + 1,) bytes of a micro-batch over the boundary before each block, and behind the last, as compressed; its
    gradient is as large. 0 at both ends."""
    hop: IntArray
    """(L + 1,) which of ``hop_s`` such a message takes."""
    hop_s: FloatArray
    """(K, N, N) seconds for which a message of each size that there is occupies the link from row to column, without
    the latency. The largest comes first."""
    coding_s: FloatArray
    """(L + 1,) seconds that a device takes to code or decode one such message; 0 where nothing is compressed.

    A forward and a backward of a stage each code one for each neighbour."""
    least: int
    """The boundary that least crosses, for bounds that hold for all cuts; 0 where there is none."""
    backward_per_forward: float
    """FLOP of a backward in forwards: 2, or 3 where it repeats the forward; less where weights are frozen."""
    layer: FloatArray
    """(4, L + 1) prefix sums over blocks: FLOP of a forward of one micro-batch, parameters that are trained, bytes of
    activations of one micro-batch, kept from its forward to its backward's end, and bytes of frozen weights.

    Where activations are recomputed, these are held only during the backward, beside ``input_bytes`` of each
    micro-batch from forward to backward."""
    extra: FloatArray
    """(2, 4) the same of the embedding, which the first stage has in addition, and of the head, which the last has."""
    again_bytes: float
    """Held in addition during a backward that computes its blocks again one at a time; less what the head kept, which
    is free by then."""
    input_bytes: FloatArray
    """(L + 1,) the input of a stage that begins with each block, of one micro-batch; what is left of it with
    recomputation, where that is less than all."""


@dataclass(frozen=True, eq=False, kw_only=True)
class IterationProblem:
    """Cut a job into S stages of R replicas on some of N devices, so that an iteration takes least time, or money.

    A plan is a grid (S, R) of devices, the blocks of each stage (S,), the micro-batches of each pipeline (R,), and the
    order of passes. The first stage also has the embedding, the last the head.
    """

    topology: Topology
    job: Job
    queueing: str
    links: Links
    """``links.moving_s(i, j, n_bytes)`` are the seconds for which a message occupies a link; then comes the latency."""
    efficiency: GivenEfficiency
    flop_per_s: FloatArray
    """(N,) FLOP/s that each device reaches in the job's precision, at the micro-batch at which it reaches most."""
    reached: FloatArray
    """(M, N) share of these that it reaches with each of ``microbatches``."""
    latency_s: FloatArray
    """(N, N) seconds, one way, from row to column."""
    memory_bytes: FloatArray
    """(N,) whole bytes."""
    price_per_hour: FloatArray
    """(N,) US dollars; 0 where unknown."""
    block_flop: FloatArray
    """(L + 1,) prefix sums over blocks: FLOP of a forward of one sequence."""
    block_parameters: FloatArray
    """(L + 1,) prefix sums over blocks: parameters."""
    block_held: FloatArray
    """(L + 1,) prefix sums over blocks: numbers held from forward to backward for one sequence."""
    block_frozen: FloatArray
    """(L + 1,) prefix sums over blocks: bytes of weights that are not trained, less those of copies that experts, of
    all parameters, do not have (``static_bytes``)."""
    again_held: float
    """Numbers that a backward, computing its blocks again one at a time, holds in addition for one sequence: of the
    block that needs fewest."""
    first_extra: FloatArray
    """(4,) FLOP, parameters, held numbers and frozen bytes of the embedding; zeros where there is none."""
    last_extra: FloatArray
    """(4,) FLOP, parameters, held numbers and frozen bytes of the head; zeros where there is none."""
    tied_parameters: float
    """Parameters of the copy of the embedding that the last stage holds, where it is not the first; else 0."""
    bytes_per_element: int
    gradient_element_bytes: int
    codec_bytes_per_s: float
    """Uncompressed bytes that a device codes in a second."""
    codes_gradients: bool
    """Whether gradients are compressed."""
    microbatches: tuple[int, ...]
    """Sequences that a micro-batch may have, rising; those of ``open_microbatches``."""

    @classmethod
    def of(cls, topology: Topology, job: Job, queueing: str = "pairs", *, efficiency: GivenEfficiency = None) -> Self:
        """The problem of a job on a network.

        Raises PlanError for a job without a model, UnknownName for another queueing.
        """
        if job.flush_every is not None and job.schedule is None:
            job = job.with_fields(schedule="gpipe")  # the only one that flushes
        job = job.settled
        model = job.model
        if model is None:
            raise PlanError(f"job {job.name} has no model; wanted one, or the objective communication")
        blocks = [layer for layer in model.layers if layer.kind is LayerKind.BLOCK]
        n_parameters = sum(layer.parameters for layer in blocks[:1]) + 1
        each, how = BYTES_PER_ELEMENT[job.dtype], job.gradients_as
        microbatches = open_microbatches(job)
        speeds = np.array([speeds_of(job, topology.devices, efficiency, one) for one in microbatches])
        links = Links.of(topology, queueing)
        return cls(
            topology=topology,
            job=job,
            queueing=links.queueing,
            links=links,
            efficiency=efficiency,
            flop_per_s=speeds.max(axis=0),
            reached=speeds / speeds.max(axis=0),
            latency_s=topology.latency_s,
            memory_bytes=usable_bytes(job, topology.devices),
            price_per_hour=np.array([device.price_per_hour for device in topology.devices]),
            block_flop=_sums(blocks, lambda layer: layer.forward_flop),
            block_parameters=_sums(blocks, lambda layer: layer.parameters),
            block_frozen=_sums(blocks, lambda layer: beside_static_bytes(job, layer)),
            **_activations(job),
            tied_parameters=float(model.vocab_size * model.d_model) if model.tied else 0.0,
            bytes_per_element=each,
            gradient_element_bytes=BYTES_PER_ELEMENT[job.gradients_in],
            codec_bytes_per_s=job.codec_bytes_per_s,
            codes_gradients=compressed_bytes(n_parameters, job.gradients_in, how)
            < compressed_bytes(n_parameters, job.gradients_in, "none"),
            microbatches=microbatches,
        )

    @cached_property
    def parts(self) -> tuple[Self, ...]:
        """The problems of each checkpointing that the job leaves open, the fastest first where memory allows it; this
        one alone where the job names one."""
        jobs = checkpointings_of(self.job)
        return tuple(replace(self, job=job, **_activations(job)) for job in jobs) if len(jobs) > 1 else (self,)

    @property
    def n_devices(self) -> int:
        return len(self.flop_per_s)

    @property
    def n_blocks(self) -> int:
        return len(self.block_flop) - 1

    def row(self, grid: IntArray) -> IntArray:
        """(N,) devices of an (S, R) grid, then the idle ones."""
        return row_of(grid, self.n_devices)

    @property
    def embedding_bytes(self) -> float:
        """What the first and the last stage of a pipeline send each other where they tie their embeddings; else 0."""
        return self.tied_parameters * self.gradient_element_bytes

    @cached_property
    def block_again_flop(self) -> FloatArray:
        """(L + 1,) prefix sums over blocks: FLOP that a backward of one sequence repeats where blocks are checkpointed
        one by one."""
        if self.job.checkpoints not in BLOCKWISE:
            return np.zeros(self.n_blocks + 1)
        blocks = [layer for layer in self.job.modelled().layers if layer.kind is LayerKind.BLOCK]
        return _sums(blocks, lambda layer: repeated_flop(self.job, layer))

    @cached_property
    def alike(self) -> IntArray:
        """(N,) class of each device: exchanging two of a class changes no plan's seconds,
        dollars or memory."""
        region = np.unique([device.region for device in self.topology.devices], return_inverse=True)[1]
        own = self.flop_per_s, self.memory_bytes, self.price_per_hour, region, self._shared_host, *self.reached
        matrices = [self.latency_s, self.links.bandwidth_bytes_per_s]
        if self.links.charged_bytes is not None:
            matrices += [*np.moveaxis(np.nan_to_num(self.links.charged_bytes, nan=-1.0), 2, 0)]
        return interchangeable(np.stack(own, axis=1), tuple(matrices))

    @property
    def _shared_host(self) -> FloatArray:
        """(N,) the first device of each host of several; -1 for devices with a NIC of their own."""
        nic_of = self.links.nic_of
        return np.full(self.n_devices, -1.0) if nic_of is None else np.where(is_shared(nic_of), nic_of, -1.0)

    @property
    def nics(self) -> bool:
        """Whether every message of a device takes the device's own NIC."""
        return self.queueing == "nics" and self.links.nic_of is None

    def gradient_bytes(self, n_parameters: Numbers) -> Numbers:
        """Bytes in messages of the gradients of so many parameters, one count or an array, as compressed."""
        found: Numbers = coded_bytes(n_parameters, self.job.gradient_coding)
        return found

    def average_bytes(self, n_parameters: Numbers) -> Numbers:
        """Bytes in messages of what comes back of so many parameters: averages, or parameters where replicas split the
        optimiser's states."""
        found: Numbers = coded_bytes(n_parameters, self.job.average_coding)
        return found

    def static_bytes(self, n_replicas: int) -> float:
        """Bytes of a parameter, its gradient and its optimiser's state on a device of so many replicas, as on all GPUs
        of a group where it is on each: ``costs.memory.static_bytes``."""
        return static_bytes(self.job, n_replicas)

    def held_bytes(self, n_replicas: int, parameters: FloatArray, frozen: FloatArray) -> FloatArray:
        """Bytes that devices of stages with these parameters hold all the time beside ``gathered_bytes``; ``frozen`` as
        ``block_frozen`` counts them."""
        parts = sharded_over(self.job.sharding, n_replicas).parameters
        return parameters * self.static_bytes(n_replicas) + frozen / parts

    def gathered_bytes(self, n_replicas: int, *, first: bool = True, last: bool = True) -> float:
        """Most bytes that a device of a first, last or any stage holds beside its shards."""
        unwanted = [kind for kind, has in ((LayerKind.EMBEDDING, first), (LayerKind.HEAD, last)) if not has]
        layers = [layer for layer in self.job.modelled().layers if layer.kind not in unwanted]
        return gathered_of(self.job, layers, n_replicas).total_bytes(self.job)

    def flop_per_s_of(self, microbatch: int) -> FloatArray:
        """(N,) FLOP/s that each device reaches with micro-batches of so many sequences, one of ``microbatches``."""
        return np.asarray(self.flop_per_s * self.reached[self.microbatches.index(microbatch)])

    def estimated_flop_per_s(self, microbatch: int, n_replicas: int) -> FloatArray:
        """(N,) FLOP/s at which devices pass blocks, all-reduces within groups and gathered parameters counted as work.

        For estimates that leave the devices of a group open: its ring goes over the median of the fastest links that
        reach so many. Those without either are ``flop_per_s_of``.
        """
        job, speed, backward = self.job, self.flop_per_s_of(microbatch), self.job.modelled().backward.whole
        gathers = job.gathers_passes and n_replicas > 1
        launch_s = [block_launch_s(job, device) for device in self.topology.devices]
        if job.group_gpus == 1 and not gathers and not any(launch_s):
            return speed
        blocks = [layer for layer in self.job.modelled().layers if layer.kind is LayerKind.BLOCK]
        each = job.with_fields(n_stages=1, n_replicas=1, microbatch=microbatch)
        n_of = Counter(blocks)
        inside = [
            sum(n * np.array(group_messages_s(each, block, *one)) for block, n in n_of.items())
            for one in zip(self.topology.devices, speed, strict=True)
        ]
        sums = np.array(inside) / len(blocks)
        once_s = microbatch * self.block_flop[-1] / len(blocks) / speed
        forward_s, backward_s = once_s + sums[:, 0], backward * once_s + sums[:, 1]
        least = {one: launch_seconds(job, one) for one in set(launch_s)}
        forward_s = np.maximum(forward_s, [least[one].forward for one in launch_s])
        backward_s = np.maximum(backward_s, [least[one].backward for one in launch_s])
        if gathers:
            nearest = np.sort(self.links.bandwidth_bytes_per_s, axis=1)[:, ::-1]  # the first is the device itself
            reach = float(np.median(nearest[:, min(n_replicas, self.n_devices) - 1]))
            gather_s, scatter_s = (
                ring_share(n_replicas) * n_bytes / reach
                for n_bytes in message_bytes_of(job, blocks[0].parameters, frozen_bytes(job, blocks[0]))
            )
            gather_s *= job.sharding == "zero-3"
            both = np.maximum if job.prefetch else np.add
            forward_s, backward_s = both(forward_s, gather_s), both(backward_s, gather_s + scatter_s)
        return np.asarray(speed * (1 + backward) * once_s / (forward_s + backward_s))

    @property
    def backward_per_forward(self) -> float:
        """FLOP of a backward in forwards, with the forward that it repeats where whole stages are recomputed."""
        return float(self.job.modelled().backward.whole + (self.job.checkpoints == "stage"))

    def passes(self, microbatch: int) -> Passes:
        """What micro-batches of so many sequences cost."""
        job, model = self.job, self.job.modelled()
        recompute = job.checkpoints == "stage"
        blocks = [layer for layer in model.layers if layer.kind is LayerKind.BLOCK]
        crossing = np.array([0, *(layer.output_elements for layer in blocks[:-1]), 0])
        inside = crossing[1:-1]
        sizes = np.unique(inside)[::-1] if len(inside) else np.array([model.boundary_elements])
        hop_s = np.stack([self._hop_s(microbatch * int(size)) for size in sizes])
        elements = (microbatch * crossing).tolist()
        both = "none", job.compression
        plain_bytes, hop_bytes = (np.array([compressed_bytes(n, job.dtype, how) for n in elements]) for how in both)
        each = float(microbatch * self.bytes_per_element)
        scale = np.array([microbatch, 1.0, each, 1.0])
        embeds = model.layers[0].kind is LayerKind.EMBEDDING
        inputs = crossing.astype(float)
        inputs[0] = self.first_extra[2] if embeds else model.boundary_elements
        return Passes(
            n_microbatches=job.global_batch // microbatch,
            recompute=recompute,
            hop_bytes=hop_bytes,
            hop=np.where(crossing > 0, np.searchsorted(-sizes, -crossing), 0),
            hop_s=hop_s,
            coding_s=np.where(hop_bytes < plain_bytes, plain_bytes / job.codec_bytes_per_s, 0.0),
            least=1 + int(inside.argmin()) if len(inside) else 0,
            backward_per_forward=self.backward_per_forward,
            layer=np.stack([self.block_flop, self.block_parameters, self.block_held, self.block_frozen])
            * scale[:, None],
            extra=np.stack([self.first_extra, self.last_extra]) * scale,
            again_bytes=each * self.again_held,
            input_bytes=whole_copies(job) * each * inputs,
        )

    def _hop_s(self, n_elements: int) -> FloatArray:
        """(N, N) seconds for which so many numbers occupy each link."""
        devices, job = np.arange(self.n_devices), self.job
        n_bytes = compressed_bytes(n_elements, job.dtype, job.compression)
        hop_s = np.array(self.links.moving_s(devices[:, None], devices[None, :], n_bytes), dtype=float)
        np.fill_diagonal(hop_s, 0.0)
        return hop_s


def _activations(job: Job) -> dict[str, Any]:
    """The fields that depend on which activations are kept."""
    model = job.modelled()
    blocks = [layer for layer in model.layers if layer.kind is LayerKind.BLOCK]
    return {
        "block_held": _sums(blocks, lambda layer: kept_elements(job, layer)),
        "again_held": float(min((needed_elements(job, x) - kept_elements(job, x) for x in _kinds(blocks)), default=0)),
        "first_extra": _extra(job, model, LayerKind.EMBEDDING),
        "last_extra": _extra(job, model, LayerKind.HEAD),
    }


def _sums(blocks: Sequence[Layer], number: Callable[[Layer], float]) -> FloatArray:
    """(L + 1,) prefix sums of a number of each block, counted once for blocks that are one object."""
    of = {id(layer): float(number(layer)) for layer in _kinds(blocks)}
    return np.concatenate([[0.0], np.cumsum([of[id(layer)] for layer in blocks])])


def _kinds(blocks: Sequence[Layer]) -> list[Layer]:
    """Each block once, of those that are one object."""
    return [*{id(layer): layer for layer in blocks}.values()]


def _extra(job: Job, model: ModelSpec, kind: LayerKind) -> FloatArray:
    layer = next((one for one in model.layers if one.kind is kind), None)
    if layer is None:
        return np.zeros(4)
    own = layer.forward_flop, layer.parameters, kept_elements(job, layer), beside_static_bytes(job, layer)
    return np.array(own, dtype=float)


# ---------------------------------------------------------------------------------------------------------------------
# Seconds of one micro-batch's passes on each kind of device, as prefix sums over blocks.
#
# A network has few kinds of devices. Whatever a stage takes on one kind is a difference of two prefix sums, whichever
# blocks it has: computing, what is computed again, and the messages within a group of GPUs.


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
    """Return the table of a job with a micro-batch; ``costs.seconds.layer_passes`` of each layer."""
    model = job.modelled()
    speeds = speeds_of(job, kinds, efficiency)
    of = {
        layer: np.array([layer_passes(job, layer, *one)[:2] for one in zip(kinds, speeds, strict=True)])
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


# ---------------------------------------------------------------------------------------------------------------------
# What is minimised.


REPLAYED = WAYS
"""Synchronisations that the kernels replay, in the order of their numbers."""


@dataclass(frozen=True, kw_only=True)
class SearchTarget:
    """What is minimised: seconds or dollars of an iteration, under limits."""

    dollars: bool = False
    max_price_per_hour: float = math.inf
    """US dollars an hour of all devices that compute."""
    max_iteration_s: float = math.inf

    @property
    def limited(self) -> bool:
        """Whether there is a limit on dollars or on seconds."""
        return min(self.max_price_per_hour, self.max_iteration_s) < math.inf
