"""A network and a job as arrays: what decides the seconds, the dollars and the memory of an iteration.

Everything is in SI units: seconds, bytes, FLOP. N devices, L blocks. A *sequence* is one sample of the batch; passes
move micro-batches of several.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import (
    BACKWARD_PER_FORWARD,
    BYTES_PER_ELEMENT,
    Job,
    Layer,
    LayerKind,
    ModelSpec,
    compressed_bytes,
    kept_elements,
    needed_elements,
    repeated_flop,
    whole_copies,
)
from dtfm_lab.domain.job.system import BLOCKWISE
from dtfm_lab.domain.network import Links, Topology, is_shared
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.simulation.collectives import tensor_parallel_s
from dtfm_lab.simulation.efficiency import GivenEfficiency, speeds_of
from dtfm_lab.simulation.memory_intervals import OPTIMIZER_BYTES, usable_bytes
from dtfm_lab.simulation.sharding import gathered_elements, message_bytes_of, passing_gradient_elements, sharded_over

CHECKPOINTINGS_TRIED = ({"checkpointing": "none"}, {"checkpointing": "block"}, {"recompute": True})
"""What is tried where the job names no checkpointing."""


@dataclass(frozen=True, eq=False)
class Passes:
    """What the micro-batches of one size cost. Made by ``IterationProblem.passes``."""

    microbatch: int
    """Sequences of a micro-batch."""
    n_microbatches: int
    """Micro-batches of the whole batch, over all pipelines."""
    recompute: bool
    """Whether a backward repeats its forward."""
    hop_bytes: float
    """Bytes of a micro-batch over one stage boundary, as compressed; its gradient is as large."""
    hop_s: FloatArray
    """(N, N) seconds for which such a message occupies the link from row to column, without the latency."""
    coding_s: float
    """Seconds that a device takes to code or decode one such message; 0 where nothing is compressed.

    A forward and a backward of a stage each code one for each neighbour."""
    backward_per_forward: float
    """FLOP of a backward in forwards: 2, or 3 where it repeats the forward."""
    block_flop: FloatArray
    """(L + 1,) prefix sums over blocks: FLOP of a forward of one micro-batch. Over a device's FLOP/s, seconds."""
    first_flop: float
    """FLOP of a forward of one micro-batch that the first stage does in addition: the embedding."""
    last_flop: float
    """FLOP of a forward of one micro-batch that the last stage does in addition: the head."""
    kept_bytes: FloatArray
    """(L + 1,) prefix sums over blocks: activations of one micro-batch, from its forward to its backward's end.

    Where activations are recomputed, these are held only during the backward, beside ``input_bytes`` of each
    micro-batch from forward to backward."""
    again_bytes: float
    """Held in addition during a backward that computes its blocks again one at a time; less what the head kept, which
    is free by then."""
    first_kept_bytes: float
    last_kept_bytes: float
    input_bytes: float
    """A stage's input, of one micro-batch; what is left of it with recomputation, where that is less than all."""
    first_input_bytes: float
    """The first stage's."""


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
    again_held: float
    """Numbers that a backward, computing its blocks again one at a time, holds in addition for one sequence: of the
    block that needs fewest."""
    again_flop_share: float
    """FLOP that the backwards of blocks checkpointed one by one repeat, for one of their forwards; on average."""
    first_extra: FloatArray
    """(3,) FLOP, parameters and held numbers of the embedding; zeros where there is none."""
    last_extra: FloatArray
    """(3,) FLOP, parameters and held numbers of the head; zeros where there is none."""
    tied_parameters: float
    """Parameters of the copy of the embedding that the last stage holds, where it is not the first; else 0."""
    bytes_per_element: int
    gradient_element_bytes: int
    static_bytes_per_parameter: float
    """Parameter, gradient and optimiser's state; sharded over as many replicas as there may be, the least of any plan.
    ``static_bytes`` tells those of a shape."""
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
        model = job.model
        if model is None:
            raise PlanError(f"job {job.name} has no model; wanted one, or the objective communication")
        blocks = [layer for layer in model.layers if layer.kind is LayerKind.BLOCK]
        n_parameters = sum(layer.parameters for layer in blocks[:1]) + 1
        each, how = BYTES_PER_ELEMENT[job.dtype], job.gradients_as
        microbatches = open_microbatches(job)
        speeds = np.array([speeds_of(job, topology.devices, efficiency, one) for one in microbatches])
        most_replicas = job.n_replicas or len(topology)
        return cls(
            topology=topology,
            job=job,
            queueing=queueing,
            links=Links.of(topology, queueing),
            efficiency=efficiency,
            flop_per_s=speeds.max(axis=0),
            reached=speeds / speeds.max(axis=0),
            latency_s=topology.latency_s,
            memory_bytes=usable_bytes(job, topology.devices),
            price_per_hour=np.array([device.price_per_hour for device in topology.devices]),
            block_flop=_prefix(layer.forward_flop for layer in blocks),
            block_parameters=_prefix(layer.parameters for layer in blocks),
            **_activations(job),
            tied_parameters=float(model.vocab_size * model.d_model) if model.tied else 0.0,
            bytes_per_element=each,
            gradient_element_bytes=BYTES_PER_ELEMENT[job.gradients_in],
            static_bytes_per_parameter=_static_bytes(job, most_replicas),
            codec_bytes_per_s=job.codec_bytes_per_s,
            codes_gradients=compressed_bytes(n_parameters, job.gradients_in, how)
            < compressed_bytes(n_parameters, job.gradients_in, "none"),
            microbatches=microbatches,
        )

    @property
    def recomputations(self) -> tuple[bool, ...]:
        """Whether a plan recomputes whole stages: as the job says."""
        return (self.job.checkpoints == "stage",)

    @cached_property
    def parts(self) -> tuple[Self, ...]:
        """The problems of each checkpointing that the job leaves open, the fastest first where memory allows it; this
        one alone where the job names one."""
        if self.job.checkpointing is not None or self.job.recompute:
            return (self,)
        jobs = [self.job.with_fields(**how, warmups=self.job.warmups) for how in CHECKPOINTINGS_TRIED]
        return tuple(replace(self, job=job, **_activations(job)) for job in jobs)

    @property
    def n_devices(self) -> int:
        return len(self.flop_per_s)

    @property
    def n_blocks(self) -> int:
        return len(self.block_flop) - 1

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
        return _prefix(repeated_flop(self.job, layer) for layer in blocks)

    @cached_property
    def alike(self) -> IntArray:
        """(N,) class of each device, the number of its first: exchanging two of a class changes no plan's seconds,
        dollars or memory."""
        names = [device.region for device in self.topology.devices]
        region = np.unique(names, return_inverse=True)[1]
        own = np.stack(
            [self.flop_per_s, self.memory_bytes, self.price_per_hour, region, self._shared_host, *self.reached]
        )
        links = [self.latency_s, 1 / (self.links.bandwidth_bytes_per_s + 0.0)]
        links += [] if self.links.charged_bytes is None else list(np.moveaxis(self.links.charged_bytes, 2, 0))
        both = [one for matrix in links for one in (matrix, matrix.T)]
        rows = np.hstack([own.T, *(np.sort(matrix, axis=1) for matrix in both)])
        profile = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
        classes = np.arange(self.n_devices)
        for value in np.flatnonzero(np.bincount(profile) > 1):
            left = np.flatnonzero(profile == value)
            while len(left):
                same = np.ones(len(left), dtype=bool)
                first = left[0]
                for matrix in both:
                    differs = ~np.isclose(matrix[left], matrix[first], rtol=0, atol=0, equal_nan=True)
                    differs[:, first] = False
                    differs[np.arange(len(left)), left] = False
                    same &= ~differs.any(axis=1)
                    back = np.isclose(matrix[left, first], matrix[first, left], rtol=0, atol=0, equal_nan=True)
                    same &= back | (left == first)
                classes[left[same]] = first
                left = left[~same]
        return classes

    @property
    def _shared_host(self) -> FloatArray:
        """(N,) the first device of each host of several; -1 for devices with a card of their own."""
        card_of = self.links.card_of
        return np.full(self.n_devices, -1.0) if card_of is None else np.where(is_shared(card_of), card_of, -1.0)

    @property
    def cards(self) -> bool:
        """Whether every message of a device takes the device's own card."""
        return self.queueing == "cards" and self.links.card_of is None

    def gradient_bytes(self, n_parameters: float) -> float:
        """Bytes in messages of the gradient of so many parameters, as compressed."""
        return compressed_bytes(int(n_parameters), self.job.gradients_in, self.job.gradients_as)

    def average_bytes(self, n_parameters: float) -> float:
        """Bytes in messages of what comes back of so many parameters: averages, or parameters where replicas split the
        optimiser's states."""
        if self.job.sharding in (None, "none"):
            return self.gradient_bytes(n_parameters)
        return n_parameters * self.bytes_per_element

    def static_bytes(self, n_replicas: int) -> float:
        """Bytes of a parameter, its gradient and its optimiser's state on a device of so many replicas."""
        return _static_bytes(self.job, n_replicas)

    def gathered_bytes(self, n_replicas: int, *, first: bool = True, last: bool = True) -> float:
        """Most bytes that a device of a first, last or any stage holds whole beside its shards."""
        unwanted = [kind for kind, has in ((LayerKind.EMBEDDING, first), (LayerKind.HEAD, last)) if not has]
        layers = [layer for layer in self.job.modelled().layers if layer.kind not in unwanted]
        whole = gathered_elements(layers, self.job.sharding, n_replicas)
        added = passing_gradient_elements(self.job, layers)
        return float((whole[0] + added) * self.bytes_per_element + whole[1] * self.gradient_element_bytes)

    def flop_per_s_of(self, microbatch: int) -> FloatArray:
        """(N,) FLOP/s that each device reaches with micro-batches of so many sequences, one of ``microbatches``."""
        reached: FloatArray = self.flop_per_s * self.reached[self.microbatches.index(microbatch)]
        return reached

    def estimated_flop_per_s(self, microbatch: int, n_replicas: int) -> FloatArray:
        """(N,) FLOP/s at which devices pass blocks, all-reduces within groups and gathered parameters counted as work.

        For estimates that leave the devices of a group open: its ring goes over the median of the fastest links that
        reach so many. Those without either are ``flop_per_s_of``.
        """
        job, speed = self.job, self.flop_per_s_of(microbatch)
        gathers = job.gathers_passes and n_replicas > 1
        if (job.tensor_parallel or 1) == 1 and not gathers:
            return speed
        blocks = [layer for layer in self.job.modelled().layers if layer.kind is LayerKind.BLOCK]
        each = job.with_fields(n_stages=1, n_replicas=1, microbatch=microbatch)
        sums = np.array([tensor_parallel_s(each, blocks, device) for device in self.topology.devices]) / len(blocks)
        once_s = microbatch * self.block_flop[-1] / len(blocks) / speed
        forward_s, backward_s = once_s + sums[:, 0], BACKWARD_PER_FORWARD * once_s + sums[:, 1]
        if gathers:
            nearest = np.sort(self.links.bandwidth_bytes_per_s, axis=1)[:, ::-1]  # the first is the device itself
            reach = float(np.median(nearest[:, min(n_replicas, self.n_devices) - 1]))
            gather_s, scatter_s = (
                (n_replicas - 1) / n_replicas * n_bytes / reach
                for n_bytes in message_bytes_of(job, blocks[0].parameters)
            )
            gather_s *= job.sharding == "zero-3"
            forward_s, backward_s = np.maximum(forward_s, gather_s), np.maximum(backward_s, gather_s + scatter_s)
        found: FloatArray = speed * (1 + BACKWARD_PER_FORWARD) * once_s / (forward_s + backward_s)
        return found

    def stage_parameters(self, blocks: IntArray) -> FloatArray:
        """(S,) parameters of each stage's devices, for (S,) blocks."""
        counts = _by_stage(self.block_parameters, blocks)
        counts[0] += self.first_extra[1]
        counts[-1] += self.last_extra[1] + (self.tied_parameters if len(blocks) > 1 else 0.0)
        return counts

    def stage_flop(self, blocks: IntArray) -> FloatArray:
        """(S,) FLOP of a forward of one sequence, for (S,) blocks."""
        flop = _by_stage(self.block_flop, blocks)
        flop[0] += self.first_extra[0]
        flop[-1] += self.last_extra[0]
        return flop

    def passes(self, microbatch: int, recompute: bool = False) -> Passes:
        """What micro-batches of so many sequences cost."""
        job, model = self.job, self.job.model
        assert model is not None
        elements = microbatch * model.boundary_elements
        embeds = model.layers[0].kind is LayerKind.EMBEDDING
        plain_bytes = compressed_bytes(elements, job.dtype, "none")
        hop_bytes = compressed_bytes(elements, job.dtype, job.compression)
        devices = np.arange(self.n_devices)
        hop_s = np.array(self.links.moving_s(devices[:, None], devices[None, :], hop_bytes), dtype=float)
        np.fill_diagonal(hop_s, 0.0)
        each = float(microbatch * self.bytes_per_element)
        copies = whole_copies(job)
        return Passes(
            microbatch=microbatch,
            n_microbatches=job.global_batch // microbatch,
            recompute=recompute,
            hop_bytes=hop_bytes,
            hop_s=hop_s,
            coding_s=plain_bytes / job.codec_bytes_per_s if hop_bytes < plain_bytes else 0.0,
            backward_per_forward=BACKWARD_PER_FORWARD + recompute,
            block_flop=microbatch * self.block_flop,
            first_flop=microbatch * float(self.first_extra[0]),
            last_flop=microbatch * float(self.last_extra[0]),
            kept_bytes=each * self.block_held,
            again_bytes=each * self.again_held,
            first_kept_bytes=each * float(self.first_extra[2]),
            last_kept_bytes=each * float(self.last_extra[2]),
            input_bytes=copies * each * model.boundary_elements,
            first_input_bytes=copies * each * (float(self.first_extra[2]) if embeds else model.boundary_elements),
        )


def _static_bytes(job: Job, n_replicas: int) -> float:
    each, over = BYTES_PER_ELEMENT[job.dtype], sharded_over(job.sharding, n_replicas)
    gradient = BYTES_PER_ELEMENT[job.gradients_in]
    return each / over.parameters + gradient / over.gradients + OPTIMIZER_BYTES[job.dtype] / over.optimizer


def _activations(job: Job) -> dict[str, Any]:
    """The fields that depend on which activations are kept."""
    model = job.modelled()
    blocks = [layer for layer in model.layers if layer.kind is LayerKind.BLOCK]
    return {
        "block_held": _prefix(kept_elements(job, layer) for layer in blocks),
        "again_held": float(min((needed_elements(job, x) - kept_elements(job, x) for x in blocks), default=0)),
        "again_flop_share": _share_repeated(job, blocks),
        "first_extra": _extra(job, model, LayerKind.EMBEDDING),
        "last_extra": _extra(job, model, LayerKind.HEAD),
    }


def _prefix(numbers: Iterable[float]) -> FloatArray:
    return np.concatenate([[0.0], np.cumsum(np.fromiter(numbers, dtype=float))])


def _extra(job: Job, model: ModelSpec, kind: LayerKind) -> FloatArray:
    rows = [(x.forward_flop, x.parameters, kept_elements(job, x)) for x in model.layers if x.kind is kind]
    extra: FloatArray = np.array((rows or [(0, 0, 0)])[0], dtype=float)
    return extra


def _share_repeated(job: Job, blocks: Sequence[Layer]) -> float:
    if job.checkpoints not in BLOCKWISE:
        return 0.0
    return sum(repeated_flop(job, x) for x in blocks) / max(sum(x.forward_flop for x in blocks), 1.0)


def _by_stage(prefix: FloatArray, blocks: IntArray) -> FloatArray:
    sums: FloatArray = np.diff(prefix[np.concatenate([[0], np.cumsum(blocks)])])
    return sums


def open_microbatches(job: Job) -> tuple[int, ...]:
    """Sequences that a micro-batch may have: the job's, or all that divide the batch and leave every replica one.

    Micro-batches of one plan are alike: none may be smaller because the batch does not divide.
    """
    if job.microbatch is not None:
        return (job.microbatch,)
    batch, replicas = job.global_batch, job.n_replicas or 1
    small = [m for m in range(1, math.isqrt(batch) + 1) if batch % m == 0]
    found = sorted(m for m in {*small, *(batch // m for m in small)} if m <= batch // replicas)
    if job.microbatches_per_replica is not None:
        found = [m for m in found if batch // m == sum(job.microbatches_per_replica)]
    return tuple(m for m in found if not (job.gathers_passes and batch // m % replicas)) or (1,)
