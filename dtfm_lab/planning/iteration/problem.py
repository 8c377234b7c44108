"""The input of a search for seconds or dollars: a network and a job as arrays, and what to minimise.

First come the micro-batch sizes and the kinds of checkpointing that a job leaves open. ``IterationProblem`` follows,
then the seconds of passes on each kind of device, and last the target.
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
"""Kinds of checkpointing to try if the job names none."""
MOST_PASSES_CHOSEN = 2 * 10**5
"""Maximum number of passes in an iteration, if the micro-batch size is open. Each micro-batch counts once per stage.

Beyond it, smaller micro-batches gain next to nothing, and one simulation takes seconds.
"""


def checkpointings_of(job: Job) -> list[Job]:
    """Return the job with each kind of checkpointing that it leaves open, the fastest first if memory suffices. If the
    job names its checkpointing, return only the job itself."""
    if job.checkpointing is not None or job.recompute:
        return [job]
    return [job.with_fields(**how, warmups=job.warmups) for how in CHECKPOINTINGS_TRIED]


def divisors(n: int) -> list[int]:
    """Return all divisors of ``n``, ascending: the sizes that a batch can be cut into."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def open_microbatches(job: Job) -> tuple[int, ...]:
    """Return the micro-batch sizes to try, in sequences.

    That is the job's size, or else every divisor of the batch that leaves each replica a micro-batch, takes at most
    ``MOST_PASSES_CHOSEN`` passes and suits the job's other fields. If there is no such divisor, the degree of expert
    parallelism is returned. All micro-batches of a plan have the same size: none is smaller because the batch does not
    divide.
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


ROLES = FIRST, MIDDLE, LAST, SOLE = range(4)
"""Roles of a stage. The first one has the embedding, the last one the head, and a sole one both."""
ENDS_OF_ROLE = ((1, 0), (0, 0), (0, 1), (1, 1))
"""For each role: 1 if the stage has the embedding, and 1 if it has the head."""


def roles_of(n_stages: int) -> IntArray:
    """Return (S,) the role of each stage of a pipeline."""
    return np.array([SOLE] if n_stages == 1 else [FIRST, *[MIDDLE] * (n_stages - 2), LAST], dtype=np.int64)


# ---------------------------------------------------------------------------------------------------------------------
# A network and a job as arrays. They decide the seconds, the dollars and the memory of an iteration.
#
# Everything is in SI units: seconds, bytes, FLOP. N devices, L blocks. A *sequence* is one sample of the batch; passes
# move micro-batches of one or more.


class Passes(NamedTuple):
    """Costs of micro-batches of one size, in the form that the kernels read. ``IterationProblem.passes`` makes it."""

    n_microbatches: int
    """Number of micro-batches of the whole batch, over all pipelines."""
    recompute: bool
    """True if whole stages are recomputed: each backward first repeats its stage's forward."""
    hop_bytes: FloatArray
    """(L + 1,) bytes of one micro-batch's message, compressed, over the boundary before each block and after the last
    one. Its gradient is as large. The first entry is for an embedding in a separate stage, the last one for a head in a
    separate stage; 0 if the model has none.
    """
    hop: IntArray
    """(L + 1,) index of the matrix in ``hop_s`` with the seconds of the message over each boundary."""
    hop_s: FloatArray
    """(K, N, N) seconds for which a message of each of K sizes occupies the link from row to column, without the
    latency. The largest size comes first."""
    coding_s: FloatArray
    """(L + 1,) seconds that a device takes to encode or decode the message over each boundary; 0 if nothing is
    compressed.

    Each forward and each backward of a stage codes one message per neighbour.
    """
    least: int
    """Index of the boundary with the smallest message, for bounds that hold for all cuts."""
    backward_per_forward: float
    """FLOP of a backward divided by FLOP of a forward: 2, or 3 if it repeats the forward, and less if weights are
    frozen."""
    layer: FloatArray
    """(4, L + 1) prefix sums over blocks. The rows:

    - FLOP of a forward of one micro-batch
    - trained parameters
    - bytes of activations that one micro-batch keeps from its forward to the end of its backward
    - bytes of frozen weights

    With recomputation, the activations are held only during the backward. From forward to backward a micro-batch then
    keeps only ``input_bytes``.
    """
    extra: FloatArray
    """(2, 4) the four numbers of ``layer`` for the embedding, which only the first stage holds, and for the head, which
    only the last stage holds."""
    again_bytes: float
    """Bytes held in addition during a backward that recomputes its blocks one at a time. On the last stage, subtract
    what the head kept, which is free by then."""
    input_bytes: FloatArray
    """(L + 1,) bytes of one micro-batch's input to a stage, other than the first, that begins with each block. With
    recomputation a micro-batch keeps only this, if it is less than all its activations."""
    least_inputs: FloatArray
    """(2,) bytes of one micro-batch's input to the first stage, and the minimum over all other stages."""
    alone: IntArray
    """(2,) for the embedding and the head: 1 if the model has it, else 0. Only then may it have its own stage."""


@dataclass(frozen=True, eq=False, kw_only=True)
class IterationProblem:
    """The problem of cutting a job into S stages of R replicas on some of N devices. The objective is the seconds or
    the dollars of an iteration.

    A plan is a grid (S, R) of devices, the blocks of each stage (S,), the micro-batches of each pipeline (R,), and the
    order of passes. The first stage also has the embedding, the last one the head.
    """

    topology: Topology
    job: Job
    links: Links
    """``links.moving_s(i, j, n_bytes)`` gives the seconds for which a message occupies a link. It arrives one latency
    later."""
    efficiency: GivenEfficiency
    flop_per_s: FloatArray
    """(N,) FLOP/s that each device reaches in the job's precision, at its best micro-batch size."""
    reached: FloatArray
    """(M, N) share of ``flop_per_s`` that each device reaches with each of ``microbatches``."""
    memory_bytes: FloatArray
    """(N,) bytes that a job may use, whole numbers."""
    price_per_hour: FloatArray
    """(N,) US dollars per hour; 0 if unknown."""
    block_flop: FloatArray
    """(L + 1,) prefix sums over blocks: FLOP of a forward of one sequence."""
    block_parameters: FloatArray
    """(L + 1,) prefix sums over blocks: parameters."""
    block_held: FloatArray
    """(L + 1,) prefix sums over blocks: activation elements held from forward to backward for one sequence."""
    block_frozen: FloatArray
    """(L + 1,) prefix sums over blocks: bytes of frozen weights. If experts have fewer copies than other parameters,
    the difference is subtracted (``costs.memory.beside_static_bytes``)."""
    again_held: float
    """Activation elements that a backward holds in addition for one sequence while it recomputes its blocks one at a
    time. The value is for the block that needs fewest."""
    first_extra: FloatArray
    """(4,) FLOP, parameters, held elements and frozen bytes of the embedding; zeros without an embedding."""
    last_extra: FloatArray
    """(4,) FLOP, parameters, held elements and frozen bytes of the head; zeros without a head."""
    tied_parameters: float
    """Parameters of the second copy of tied embeddings, which the last stage holds unless it is also the first; 0 if
    they are not tied."""
    codes_gradients: bool
    """True if gradients are compressed."""
    microbatches: tuple[int, ...]
    """Micro-batch sizes to try, in sequences, ascending, from ``open_microbatches``."""

    @classmethod
    def of(cls, topology: Topology, job: Job, queueing: str = "pairs", *, efficiency: GivenEfficiency = None) -> Self:
        """Return the problem of a job on a network.

        Raises PlanError for a job without a model and UnknownName for an unknown queueing.
        """
        if job.flush_every is not None and job.schedule is None:
            job = job.with_fields(schedule="gpipe")  # the only one that flushes
        job = job.settled
        model = job.model
        if model is None:
            raise PlanError(f"job {job.name} has no model; wanted one, or the objective communication")
        blocks = [layer for layer in model.layers if layer.kind is LayerKind.BLOCK]
        # a block's gradients show whether compression shrinks them; the + 1 covers a model without blocks
        n_parameters = sum(layer.parameters for layer in blocks[:1]) + 1
        hows = "none", job.gradients_as
        plain_bytes, sent_bytes = (compressed_bytes(n_parameters, job.gradients_in, how) for how in hows)
        microbatches = open_microbatches(job)
        speeds = np.array([speeds_of(job, topology.devices, efficiency, one) for one in microbatches])
        links = Links.of(topology, queueing)
        return cls(
            topology=topology,
            job=job,
            links=links,
            efficiency=efficiency,
            flop_per_s=speeds.max(axis=0),
            reached=speeds / speeds.max(axis=0),
            memory_bytes=usable_bytes(job, topology.devices),
            price_per_hour=np.array([device.price_per_hour for device in topology.devices]),
            block_flop=_sums(blocks, lambda layer: layer.forward_flop),
            block_parameters=_sums(blocks, lambda layer: layer.parameters),
            block_frozen=_sums(blocks, lambda layer: beside_static_bytes(job, layer)),
            **_activations(job),
            tied_parameters=float(model.vocab_size * model.d_model) if model.tied else 0.0,
            codes_gradients=sent_bytes < plain_bytes,
            microbatches=microbatches,
        )

    @cached_property
    def parts(self) -> tuple[Self, ...]:
        """One problem for each kind of checkpointing that the job leaves open, the fastest first if memory suffices.
        Only this problem if the job names one."""
        jobs = checkpointings_of(self.job)
        return tuple(replace(self, job=job, **_activations(job)) for job in jobs) if len(jobs) > 1 else (self,)

    @property
    def n_devices(self) -> int:
        return len(self.flop_per_s)

    @property
    def n_blocks(self) -> int:
        return len(self.block_flop) - 1

    @cached_property
    def alone(self) -> IntArray:
        """(2,) for the embedding and the head: 1 if the model has it, else 0. Only then may it have its own stage."""
        layers = self.job.modelled().layers
        return np.array([layers[0].kind is LayerKind.EMBEDDING, layers[-1].kind is LayerKind.HEAD], dtype=np.int64)

    def least_blocks(self, n_stages: int) -> IntArray:
        """Return (S,) the minimum blocks of each stage: 0 for a stage with the embedding or the head, 1 for any other.
        A sole stage has all blocks."""
        least = np.ones(n_stages, dtype=np.int64)
        if n_stages == 1:
            return least * self.n_blocks
        least[[0, -1]] -= self.alone
        return least

    @property
    def most_stages(self) -> int:
        """The maximum number of stages: one per block, unless the job gives a cut."""
        given = self.job.blocks_per_stage
        return self.n_blocks if given is None else len(given)

    def row(self, grid: IntArray) -> IntArray:
        """Return (N,) the devices of an (S, R) grid, followed by the idle devices."""
        return row_of(grid, self.n_devices)

    @property
    def embedding_bytes(self) -> float:
        """Bytes of the tied embedding that the first and last stage of a pipeline send each other; 0 if it is not
        tied."""
        return self.tied_parameters * BYTES_PER_ELEMENT[self.job.gradients_in]

    @cached_property
    def block_again_flop(self) -> FloatArray:
        """(L + 1,) prefix sums over blocks: FLOP that a backward of one sequence repeats if blocks are checkpointed
        one by one."""
        if self.job.checkpoints not in BLOCKWISE:
            return np.zeros(self.n_blocks + 1)
        blocks = [layer for layer in self.job.modelled().layers if layer.kind is LayerKind.BLOCK]
        return _sums(blocks, lambda layer: repeated_flop(self.job, layer))

    @cached_property
    def alike(self) -> IntArray:
        """(N,) class of each device. Exchanging two devices of a class changes no plan's seconds, dollars or memory."""
        region = np.unique([device.region for device in self.topology.devices], return_inverse=True)[1]
        own = self.flop_per_s, self.memory_bytes, self.price_per_hour, region, self._shared_host, *self.reached
        matrices = [self.links.latency_s, self.links.bandwidth_bytes_per_s]
        if self.links.charged_bytes is not None:
            matrices += [*np.moveaxis(np.nan_to_num(self.links.charged_bytes, nan=-1.0), 2, 0)]
        return interchangeable(np.stack(own, axis=1), tuple(matrices))

    @property
    def _shared_host(self) -> FloatArray:
        """(N,) first device of each device's host; -1 if no other device shares its NIC."""
        nic_of = self.links.nic_of
        return np.full(self.n_devices, -1.0) if nic_of is None else np.where(is_shared(nic_of), nic_of, -1.0)

    @property
    def nics(self) -> bool:
        """True if all messages of a device pass its NIC, and no two devices share one."""
        return self.links.queueing == "nics" and self.links.nic_of is None

    def gradient_bytes(self, n_parameters: Numbers) -> Numbers:
        """Return bytes sent for the gradients of ``n_parameters``, compressed. Takes one count or an array."""
        found: Numbers = coded_bytes(n_parameters, self.job.gradient_coding)
        return found

    def average_bytes(self, n_parameters: Numbers) -> Numbers:
        """Return bytes sent back for ``n_parameters``, compressed: averages, or parameters if replicas split the
        optimizer states."""
        found: Numbers = coded_bytes(n_parameters, self.job.average_coding)
        return found

    def held_bytes(self, n_replicas: int, parameters: FloatArray, frozen: FloatArray) -> FloatArray:
        """Return bytes that devices of stages with these parameters hold all the time, without ``gathered_bytes``.

        ``frozen`` is counted like ``block_frozen``.
        """
        parts = sharded_over(self.job.sharding, n_replicas).parameters
        return parameters * static_bytes(self.job, n_replicas) + frozen / parts

    def gathered_bytes(self, n_replicas: int, *, first: bool = True, last: bool = True) -> float:
        """Return the maximum bytes that a device holds in addition to its shards, such as gathered layers.

        ``first`` and ``last`` say whether its stage may have the embedding and the head.
        """
        unwanted = [kind for kind, has in ((LayerKind.EMBEDDING, first), (LayerKind.HEAD, last)) if not has]
        layers = [layer for layer in self.job.modelled().layers if layer.kind not in unwanted]
        return gathered_of(self.job, layers, n_replicas).total_bytes(self.job)

    def flop_per_s_of(self, microbatch: int) -> FloatArray:
        """Return (N,) FLOP/s that each device reaches with micro-batches of this size, one of ``microbatches``."""
        return np.asarray(self.flop_per_s * self.reached[self.microbatches.index(microbatch)])

    def estimated_flop_per_s(self, microbatch: int, n_replicas: int) -> FloatArray:
        """Return (N,) FLOP/s at which devices compute blocks. The time of all-reduces within groups, of kernel launches
        and of the messages of zero-2 and zero-3 counts as computing time.

        Estimates use it before the devices of a group are known. A ring of replicas is assumed to run at the bandwidth
        of a device's (``n_replicas`` - 1)-th fastest link: the median over all devices. If there are no such messages
        or launches, this is ``flop_per_s_of``.
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
        # a pass takes at least as long as the host needs to launch its kernels
        least = {one: launch_seconds(job, one) for one in set(launch_s)}
        forward_s = np.maximum(forward_s, [least[one].forward for one in launch_s])
        backward_s = np.maximum(backward_s, [least[one].backward for one in launch_s])
        if gathers:
            nearest = np.sort(self.links.bandwidth_bytes_per_s, axis=1)[:, ::-1]  # the first is the device itself
            reach = float(np.median(nearest[:, min(n_replicas, self.n_devices) - 1]))
            reach /= self.links.least_slower(min(n_replicas, self.n_devices))
            gather_s, scatter_s = (
                ring_share(n_replicas) * n_bytes / reach
                for n_bytes in message_bytes_of(job, blocks[0].parameters, frozen_bytes(job, blocks[0]))
            )
            # ZeRO-2 keeps whole parameters, so it scatters gradients but gathers nothing before a pass
            gather_s *= job.sharding == "zero-3"
            both = np.maximum if job.prefetch else np.add
            forward_s, backward_s = both(forward_s, gather_s), both(backward_s, gather_s + scatter_s)
        return np.asarray(speed * (1 + backward) * once_s / (forward_s + backward_s))

    @property
    def backward_per_forward(self) -> float:
        """FLOP of a backward divided by FLOP of a forward, including the forward that it repeats if whole stages are
        recomputed."""
        return float(self.job.modelled().backward.whole + (self.job.checkpoints == "stage"))

    def passes(self, microbatch: int) -> Passes:
        """Return the costs of micro-batches of ``microbatch`` sequences."""
        job, model = self.job, self.job.modelled()
        recompute = job.checkpoints == "stage"
        crossing = crossing_elements(model)
        inside = crossing[1:-1]
        sizes = np.unique(crossing[crossing > 0])[::-1]
        sizes = sizes if len(sizes) else np.array([model.boundary_elements])
        hop_s = np.stack([self._hop_s(microbatch * int(size)) for size in sizes])
        elements = (microbatch * crossing).tolist()
        both = "none", job.compression
        plain_bytes, hop_bytes = (np.array([compressed_bytes(n, job.dtype, how) for n in elements]) for how in both)
        each = float(microbatch * BYTES_PER_ELEMENT[job.dtype])
        scale = np.array([microbatch, 1.0, each, 1.0])
        least = 1 + int(inside.argmin()) if len(inside) else 0
        for end in (0, -1):  # only if it is smaller, or the only boundary
            if crossing[end] and (not crossing[least] or crossing[end] < crossing[least]):
                least = end % len(crossing)
        whole = whole_copies(job) * each
        first_input = self.first_extra[2] if self.alone[0] else model.boundary_elements
        return Passes(
            n_microbatches=job.global_batch // microbatch,
            recompute=recompute,
            hop_bytes=hop_bytes,
            hop=np.where(crossing > 0, np.searchsorted(-sizes, -crossing), 0),
            hop_s=hop_s,
            coding_s=np.where(hop_bytes < plain_bytes, plain_bytes / job.codec_bytes_per_s, 0.0),
            least=least,
            backward_per_forward=self.backward_per_forward,
            layer=np.stack([self.block_flop, self.block_parameters, self.block_held, self.block_frozen])
            * scale[:, None],
            extra=np.stack([self.first_extra, self.last_extra]) * scale,
            again_bytes=each * self.again_held,
            input_bytes=whole * crossing.astype(float),
            least_inputs=whole * np.array([first_input, crossing[least]], dtype=float),
            alone=self.alone,
        )

    def _hop_s(self, n_elements: int) -> FloatArray:
        """Return (N, N) seconds for which a message of ``n_elements`` occupies each link."""
        devices, job = np.arange(self.n_devices), self.job
        n_bytes = compressed_bytes(n_elements, job.dtype, job.compression)
        hop_s = np.array(self.links.moving_s(devices[:, None], devices[None, :], n_bytes), dtype=float)
        np.fill_diagonal(hop_s, 0.0)
        return hop_s


def static_bytes_of(
    problem: IterationProblem, passes: Passes, blocks: FloatArray, role: int, n_replicas: int
) -> FloatArray:
    """Return the bytes of parameters, gradients, optimizer states and frozen weights of a stage with this role,
    including what it gathers.

    ``blocks``, (4, ...), are the sums of ``Passes.layer`` over its blocks.
    """
    first, last = ENDS_OF_ROLE[role]
    _, parameters, _, frozen = _with_ends(passes, blocks, role)
    held = problem.held_bytes(n_replicas, parameters + problem.tied_parameters * (role == LAST), frozen)
    return held + problem.gathered_bytes(n_replicas, first=bool(first), last=bool(last))


def activation_bytes_of(passes: Passes, blocks: FloatArray, role: int) -> tuple[FloatArray, FloatArray]:
    """Return the bytes of activations of a stage with this role: for each micro-batch in flight, and in addition during
    one backward. ``blocks`` is as for ``static_bytes_of``."""
    first, last = ENDS_OF_ROLE[role]
    _, _, whole, _ = _with_ends(passes, blocks, role)
    kept = np.minimum(passes.least_inputs[0 if first else 1], whole) if passes.recompute else whole
    return kept, whole - kept + max(passes.again_bytes - last * passes.extra[1, 2], 0.0)


def _with_ends(passes: Passes, blocks: FloatArray, role: int) -> FloatArray:
    """Return (4, ...) the sums over the blocks of a stage, with the embedding and the head if its role has them."""
    ends = np.array(ENDS_OF_ROLE[role]) @ passes.extra
    return blocks + ends.reshape(4, *[1] * (blocks.ndim - 1))


def crossing_elements(model: ModelSpec) -> IntArray:
    """Return (L + 1,) the activation elements per sequence that cross the boundary before each block and after the last
    one.

    The first entry is for an embedding in a separate stage, the last one for a head; 0 if the model has none.
    """
    blocks = [layer for layer in model.layers if layer.kind is LayerKind.BLOCK]
    first, last = model.layers[0], model.layers[-1]
    embedded = first.output_elements if first.kind is LayerKind.EMBEDDING else 0
    headed = blocks[-1].output_elements if last.kind is LayerKind.HEAD else 0
    return np.array([embedded, *(layer.output_elements for layer in blocks[:-1]), headed])


def _activations(job: Job) -> dict[str, Any]:
    """Return the fields of ``IterationProblem`` that depend on which activations are kept."""
    model = job.modelled()
    blocks = [layer for layer in model.layers if layer.kind is LayerKind.BLOCK]
    return {
        "block_held": _sums(blocks, lambda layer: kept_elements(job, layer)),
        "again_held": float(min((needed_elements(job, x) - kept_elements(job, x) for x in _kinds(blocks)), default=0)),
        "first_extra": _extra(job, model, LayerKind.EMBEDDING),
        "last_extra": _extra(job, model, LayerKind.HEAD),
    }


def _sums(blocks: Sequence[Layer], number: Callable[[Layer], float]) -> FloatArray:
    """Return (L + 1,) prefix sums of a number per block. ``number`` is called once for each distinct block object."""
    of = {id(layer): float(number(layer)) for layer in _kinds(blocks)}
    return np.concatenate([[0.0], np.cumsum([of[id(layer)] for layer in blocks])])


def _kinds(blocks: Sequence[Layer]) -> list[Layer]:
    """Return each distinct block object once."""
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
# A network has few kinds of devices. A stage's seconds on one kind are the difference of two prefix sums, whichever
# blocks it has. They cover computing, recomputation, and the messages within a group of GPUs.


class Kinds(NamedTuple):
    """The kinds of devices in a network. Devices of one kind are equally fast and have equal memory."""

    of_device: IntArray
    """(N,) number of each device's kind."""
    first: list[int]
    """Index of the first device of each kind."""

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
    """Seconds of one micro-batch on each of K kinds of devices, for a model of L blocks."""

    forward_s: FloatArray
    """(K, L + 1) prefix sums over blocks: seconds of a forward."""
    backward_s: FloatArray
    """(K, L + 1) prefix sums over blocks: seconds of a backward, including recomputation."""
    ends_s: FloatArray
    """(2, 2, K) seconds of the embedding and of the head (first index), forward and backward (second index)."""
    receive_s: FloatArray
    """(K, L + 1) seconds in which a group of GPUs gathers the message that crosses the boundary before each block, and
    after the last one. Each GPU received one part of it."""


def pass_table(job: Job, kinds: Sequence[Device], efficiency: GivenEfficiency) -> PassTable:
    """Return the table of a job with a micro-batch size, from ``costs.seconds.layer_passes`` of each layer."""
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
        elements = (job.microbatch * crossing_elements(model)).tolist()
        crossing = [compressed_bytes(n, job.dtype, job.compression) for n in elements]
        for k, device in enumerate(kinds):
            gathered = {n_bytes: hop_gather_s(job, device, n_bytes) for n_bytes in set(crossing)}
            receive[k] = [gathered[n_bytes] for n_bytes in crossing]
    return PassTable(np.ascontiguousarray(sums[:, :, 0].T), np.ascontiguousarray(sums[:, :, 1].T), ends, receive)


# ---------------------------------------------------------------------------------------------------------------------
# What is minimised.


@dataclass(frozen=True, kw_only=True)
class SearchTarget:
    """What a search minimises, seconds or dollars of an iteration, and its limits."""

    dollars: bool = False
    max_price_per_hour: float = math.inf
    """Maximum US dollars per hour for all devices that compute, together."""
    max_iteration_s: float = math.inf

    @property
    def limited(self) -> bool:
        """True if dollars per hour or seconds are limited."""
        return min(self.max_price_per_hour, self.max_iteration_s) < math.inf
