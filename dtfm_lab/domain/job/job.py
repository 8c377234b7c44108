"""What is trained and how it is cut up: stages, replicas, micro-batches."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job.model import BACKWARD_PER_FORWARD, BYTES_PER_ELEMENT, Layer, ModelSpec
from dtfm_lab.domain.job.model.families import completed
from dtfm_lab.domain.job.system import BLOCKWISE, MEMORY_ONLY, SystemOptions, contradictions, missing_numbers
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.options import Option, check_options, plain, whole
from dtfm_lab.domain.schedule import synchronisations

if TYPE_CHECKING:
    Count = int | Any  # None where a planner chooses; code that has checked ``shaped`` uses it as a number
else:
    Count = int | None

COMPRESSIONS = ("none", "fp16", "int8")
PAPERS_SCHEDULE = "gpipe"
"""What DT-FM runs."""
INT8_BLOCK = 256
"""Numbers that share one scale of 4 bytes (block-wise quantisation, Dettmers et al. 2022)."""


@dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """How a job is cut, scheduled, averaged and compressed: every field has a default."""

    name: Annotated[str, Option(help="Name of the job.", varies=False)] = "job"
    dtype: Annotated[str, Option(help="Precision of numbers: fp16, bf16, fp32 or fp64.", choices=BYTES_PER_ELEMENT)] = (
        "fp16"
    )
    schedule: Annotated[
        str | None,
        Option(help="Pipeline schedule, looked up when used; chosen by the planner where not given.", varies=False),
    ] = None
    """Where neither the job nor a planner names one, ``schedule_name`` is that of the paper."""
    warmups: Annotated[
        tuple[int, ...] | None,
        Option(
            help="Forwards that each stage runs ahead with adaptive-1f1b; chosen for the network where not given.",
            varies=False,
        ),
    ] = None
    synchronisation: Annotated[str, Option(help="How replicas average their gradients.", choices=synchronisations)] = (
        "sharded"
    )
    synchronise_every: Annotated[
        int, Option(help="Iterations; between two, replicas step alone.", unit="iterations", least=1)
    ] = 1
    """With 1, replicas average their gradients before each step. With more, each takes its steps alone (local
    updates). With H, in every H-th iteration, after the step, they average the changes of their parameters since
    these were last equal, and add the average to the parameters of that time, which makes them equal again, to the bit.
    Compression rounds the changes. The optimiser's state stays with each replica; the two ends of a tied embedding
    exchange its gradient in every iteration."""
    compression: Annotated[
        str, Option(help="What messages are rounded to on their way, where that is smaller.", choices=COMPRESSIONS)
    ] = "none"
    gradient_compression: Annotated[
        str | None, Option(help="Compression of synchronisation alone, if not that of all.", choices=COMPRESSIONS)
    ] = None
    codec_bytes_per_s: Annotated[
        float, Option(help="Bytes that a device rounds, or restores, in a second.", unit="bytes/s", above=0)
    ] = 100e9
    """Counted uncompressed. The default is a guess: a fused kernel reads and writes memory once, and shares its
    bandwidth with everything else."""
    recompute: Annotated[
        bool, Option(help="Keep a stage's input only, and repeat its forward before its backward.")
    ] = False
    stages_per_device: Annotated[int, Option(help="Stages of a device where the schedule interleaves.", least=1)] = 2
    blocks_per_stage: Annotated[
        tuple[int, ...] | None,
        Option(help="Blocks of each stage, first stage first; even where not given.", varies=False),
    ] = None
    """Schedules that interleave cut the model into more stages, always evenly, and are refused where this is given and
    is not the even cut."""
    microbatches_per_replica: Annotated[
        tuple[int, ...] | None,
        Option(help="Micro-batches of each pipeline; as even as they divide where not given.", varies=False),
    ] = None


@dataclass(frozen=True, kw_only=True)
class JobOptions(SystemOptions, PipelineOptions):
    """What a job, a job's file and the keywords of ``load_job`` have in common.

    A field that is added to either base is one of the file, of the command line and of the signatures, too.
    """

    n_stages: Annotated[
        Count,
        Option(
            help="Pipeline stages: the pipeline-parallel degree, the paper's D_PP; chosen by the planner where not "
            "given.",
            least=1,
            flag="stages",
            varies=False,
        ),
    ] = None
    n_replicas: Annotated[
        Count,
        Option(
            help="Data-parallel replicas: the paper's D_DP; chosen by the planner where not given.",
            least=1,
            flag="replicas",
            varies=False,
        ),
    ] = None
    microbatch: Annotated[
        Count,
        Option(help="Sequences per pipeline step; chosen by the planner where not given.", unit="sequences", least=1),
    ] = None


_COUNTS = ("blocks_per_stage", "warmups", "microbatches_per_replica")
"""Fields with a count for each stage or replica."""
_SIZES = ("given_gradient_bytes", "given_hop_bytes")
_SIZED_BY = {"model", "n_stages", "n_replicas", "global_batch"}
"""Fields on which message sizes depend, which are those of a stage's gradient and of a replica's mini-batch."""
_AHEAD_BY = {
    *("n_stages", "microbatch", "global_batch", "schedule", "model", "blocks_per_stage"),
    *("recompute", "checkpointing", "attention", "sequence_parallel", "gradient_dtype", "tensor_parallel", "sharding"),
    *MEMORY_ONLY,
}
"""Fields for which a planner chose how many forwards each stage runs ahead: the schedule, and what memory holds."""
LEFT_TO_PLANNERS = (
    *("n_stages", "n_replicas", "microbatch", "schedule", "warmups", "blocks_per_stage", "microbatches_per_replica"),
    *("checkpointing", "tensor_parallel", "sharding"),
)
"""Fields that a planner chooses where they are None."""
_BATCH = Option(help="Sequences per iteration, over all replicas.", unit="sequences", least=1, flag="batch")
_GRADIENT = Option(
    help="One stage's gradient, as the communication cost counts it.",
    unit="bytes",
    least=0,
    name="gradient_bytes",
    varies=False,
)
_HOP = Option(
    help="A replica's whole mini-batch over one boundary, as the communication cost counts it.",
    unit="bytes",
    least=0,
    name="activation_bytes",
    varies=False,
)


@dataclass(frozen=True, kw_only=True)
class JobChanges(JobOptions):
    """The keywords of ``load_job`` and ``with_job``, and the keys of a job's file: each may be left out.

    The class checks nothing: values that are given become fields of a Job, which checks them.
    """

    model: Annotated[
        ModelSpec | str | os.PathLike[str] | None,
        Option(help="A preset's name, or a Hugging Face config.json or its folder."),
    ] = None
    seq_len: Annotated[int | None, Option(help="Tokens per sequence, where not the model's.", unit="tokens")] = None
    global_batch: Annotated[int | None, _BATCH] = None
    gradient_bytes: Annotated[float | None, _GRADIENT] = None
    activation_bytes: Annotated[float | None, _HOP] = None


@dataclass(frozen=True, kw_only=True)
class Job(JobOptions):
    """One training iteration of a model, cut into stages, replicas and micro-batches.

    Stages, replicas and the micro-batch may be left open: a planner chooses them, and the job of its plan has them.

    Raises
    ------
    JobError
        A count below 1, a batch that is no whole number of micro-batches or has fewer than replicas, more stages than
        blocks, a cut that is none of the model, micro-batches per replica that are not those of the batch, choices
        that contradict each other.
    UnknownName
        An unknown dtype, synchronisation or compression. (Schedules are looked up when used.)
    """

    model: ModelSpec | None
    """None for a job that is only priced."""
    global_batch: Annotated[int, _BATCH]
    given_gradient_bytes: Annotated[float | None, _GRADIENT] = None
    """Size of one stage's gradient for the communication cost, instead of the model's."""
    given_hop_bytes: Annotated[float | None, _HOP] = None
    """Size of a replica's whole mini-batch over one boundary for the communication cost, instead of the model's."""

    def __post_init__(self) -> None:
        plain("job", self.name)
        if self.schedule is not None:
            plain(f"job {self.name}: its schedule", self.schedule)
        check_options(self, thing=f"job {self.name}", error=JobError)
        for what in _COUNTS:
            if (counts := getattr(self, what)) is not None:
                object.__setattr__(self, what, self._checked_counts(what, counts))
        if self.model is not None and not isinstance(self.model, ModelSpec):
            raise JobError(
                f"job {self.name}: model is {shortened(self.model)}; wanted a ModelSpec (lab.load_job takes names and "
                f"paths)"
            )
        for contradiction in self._contradictions():
            raise JobError(f"job {self.name}: {contradiction}")
        sized = self.given_gradient_bytes is not None and self.given_hop_bytes is not None
        if self.model is None:
            if not sized:
                raise JobError(f"job {self.name} has no model; wanted one, or gradient_bytes and activation_bytes")
            if self.blocks_per_stage is not None:
                raise JobError(f"job {self.name} has no model to cut; wanted one, or no blocks_per_stage")
            return
        object.__setattr__(self, "model", completed(self.model))
        for missing in missing_numbers(self.model, self):
            raise JobError(f"job {self.name}: {missing}")
        if not sized:
            self.modelled()

    def _contradictions(self) -> Iterator[str]:
        yield from contradictions(self, self.synchronisation, self.synchronise_every)
        if self.recompute and self.checkpointing in BLOCKWISE:
            yield (
                f"checkpointing is {self.checkpointing} and recompute true; wanted one of them, as recompute is "
                f"checkpointing stage"
            )
        heads = 0 if self.model is None else self.model.n_heads
        if self.tensor_parallel is not None and heads % self.tensor_parallel:
            yield (
                f"tensor_parallel is {self.tensor_parallel}; wanted a divisor of the {heads} heads of model "
                f"{self.model.name if self.model else ''}"
            )
        if self.flush_every is not None and self.schedule not in (None, PAPERS_SCHEDULE):
            yield (
                f"flush_every is {self.flush_every} with schedule {shortened(self.schedule)}; wanted "
                f"{PAPERS_SCHEDULE}, which flushes, or no flush_every"
            )

    @classmethod
    def from_bytes(
        cls, n_stages: int, n_replicas: int, gradient_bytes: float, activation_bytes: float, name: str = "bytes"
    ) -> Job:
        """A job that is priced, not simulated or run: the two message sizes of the paper's cost model.

        ``gradient_bytes`` is one stage's gradient, whole (c_dp); ``activation_bytes`` what a replica
        sends over one stage boundary for its whole mini-batch (c_pp).
        """
        return cls(
            name=name,
            model=None,
            n_stages=n_stages,
            n_replicas=n_replicas,
            global_batch=n_replicas,
            microbatch=1,
            given_gradient_bytes=gradient_bytes,
            given_hop_bytes=activation_bytes,
        )

    @property
    def shaped(self) -> bool:
        """Whether stages, replicas and micro-batch are all given."""
        return None not in (self.n_stages, self.n_replicas, self.microbatch)

    @property
    def left_open(self) -> tuple[str, ...]:
        """Fields that are left to a planner; recomputation, which is a checkpointing, is named beside it."""
        found = [what for what in LEFT_TO_PLANNERS if getattr(self, what) is None]
        if self.recompute and "checkpointing" in found:
            found.remove("checkpointing")
        return (*found, *(["recompute"] if "checkpointing" in found else []))

    def freed(self, *fields: str) -> Job:
        """The job with these fields left to a planner, of those that can be."""
        given = {what: False if what == "recompute" else None for what in fields}
        return self.with_fields(**given)

    def require_shape(self) -> None:
        """Raises JobError where stages, replicas or the micro-batch are left to a planner."""
        for what in ("n_stages", "n_replicas", "microbatch"):
            if getattr(self, what) is None:
                raise JobError(f"job {self.name}: {what} is not given; wanted a number, or a plan, which chooses one")

    @property
    def schedule_name(self) -> str:
        """The job's pipeline schedule; that of the paper where it names none."""
        return PAPERS_SCHEDULE if self.schedule is None else self.schedule

    @property
    def gathers_passes(self) -> bool:
        """Whether replicas exchange gradients, and perhaps parameters, in the passes of every micro-batch."""
        return self.sharding in ("zero-2", "zero-3")

    @property
    def n_tasklets(self) -> int:
        """Devices needed: one a stage and replica."""
        self.require_shape()
        return int(self.n_stages * self.n_replicas)

    @property
    def n_microbatches(self) -> int:
        """Micro-batches of an iteration in one pipeline, in the longest where they differ."""
        return max(self.microbatch_counts)

    @cached_property
    def microbatch_counts(self) -> tuple[int, ...]:
        """(R,) micro-batches of each pipeline in an iteration."""
        if self.microbatches_per_replica is not None:
            return self.microbatches_per_replica
        self.require_shape()
        each, spare = divmod(self.global_batch // self.microbatch, self.n_replicas)
        return tuple(each + (replica < spare) for replica in range(self.n_replicas))

    @property
    def mean_microbatches(self) -> float:
        """Mean number of micro-batches of a pipeline in an iteration, by which each micro-batch's loss is divided."""
        return sum(self.microbatch_counts) / len(self.microbatch_counts)

    @property
    def gradient_bytes(self) -> float:
        """One stage's gradient, whole, as the communication cost counts it: of the largest stage."""
        return max(self.stage_gradient_bytes) if self.given_gradient_bytes is None else self.given_gradient_bytes

    @property
    def hop_bytes(self) -> float:
        """A replica's whole mini-batch over one stage boundary, as the communication cost counts it.

        Of the replica with most micro-batches where they differ, as the paper's cost has one size for all pipelines.
        """
        return self.n_microbatches * self.activation_bytes if self.given_hop_bytes is None else self.given_hop_bytes

    @cached_property
    def activation_bytes(self) -> float:
        """Bytes that one micro-batch sends across one stage boundary, forward; its gradient is as large."""
        return compressed_bytes(self.activation_elements, self.dtype, self.compression)

    @property
    def activation_elements(self) -> int:
        """Numbers of one micro-batch that cross a stage boundary."""
        self.require_shape()
        return int(self.microbatch * self.modelled().boundary_elements)

    @cached_property
    def stage_gradient_bytes(self) -> tuple[float, ...]:
        """Per stage, bytes of its whole gradient in messages."""
        how = self.gradients_as
        return tuple(compressed_bytes(n, self.gradients_in, how) for n in self.stage_parameters)

    @property
    def checkpoints(self) -> str:
        """The checkpointing in effect: ``stage`` where either field says so, ``none`` where neither says anything."""
        return "stage" if self.recompute else self.checkpointing or "none"

    @property
    def gradients_in(self) -> str:
        """The dtype of gradients."""
        return self.dtype if self.gradient_dtype is None else self.gradient_dtype

    @property
    def gradients_as(self) -> str:
        """The compression of what replicas exchange."""
        return self.compression if self.gradient_compression is None else self.gradient_compression

    @cached_property
    def stage_parameters(self) -> tuple[int, ...]:
        """Per stage, the parameters that its devices hold."""
        self.require_shape()
        return self.parameters_of(self.n_stages)

    @property
    def averages_every(self) -> int:
        """Iterations from one in which replicas average something to the next: all parameters, or a fragment's part."""
        return self.synchronise_every // (self.fragments * max(self.fragment_delay, 1))

    @property
    def averaged_share(self) -> float:
        """Fraction of the parameters, or their gradients, that replicas average in such an iteration."""
        return 1 / (self.fragments * max(self.fragment_delay, 1))

    @property
    def codes_activations(self) -> bool:
        """Whether messages along the pipeline are compressed at all."""
        return self.activation_bytes < compressed_bytes(self.activation_elements, self.dtype, "none")

    @property
    def codes_gradients(self) -> bool:
        """Whether synchronisation's messages are compressed at all."""
        return self.stage_gradient_bytes[0] < compressed_bytes(self.stage_parameters[0], self.gradients_in, "none")

    @property
    def embedding_bytes(self) -> float:
        """What the first and the last stage send each other where they tie their embeddings: its gradient, never
        compressed."""
        model = self.modelled()
        return float(model.vocab_size * model.d_model * BYTES_PER_ELEMENT[self.gradients_in])

    @property
    def ties_stages(self) -> bool:
        """Whether the first and the last stage, on different devices, hold one embedding."""
        self.require_shape()
        return bool(self.modelled().tied and self.n_stages > 1)

    @cached_property
    def stage_layers(self) -> tuple[tuple[Layer, ...], ...]:
        """Per stage, its layers, first stage first."""
        self.require_shape()
        return self.layers_of(self.n_stages)

    def layers_of(self, n_stages: int) -> tuple[tuple[Layer, ...], ...]:
        """Per stage, its layers, with the model cut into so many stages by ``cut``."""
        counts = self.cut(n_stages)
        model = self.modelled()
        ends = list(accumulate(counts))
        return tuple(model.layers[end - count : end] for count, end in zip(counts, ends, strict=True))

    def cut(self, n_stages: int) -> tuple[int, ...]:
        """Layers of each of so many stages, more than the job's ``n_stages`` where devices hold several.

        Raises JobError where ``blocks_per_stage`` is of another number of stages.
        """
        blocks = self.blocks_per_stage
        if (
            blocks is not None
            and n_stages != self.n_stages
            and self.modelled().cut(self.n_stages, blocks) == (self.modelled().cut(self.n_stages))
        ):
            blocks = None  # the even cut, spelled out
        if blocks is not None and n_stages != self.n_stages:
            raise JobError(
                f"job {self.name}: blocks_per_stage cuts the model into {self.n_stages} stages, a schedule that "
                f"interleaves into {n_stages}; wanted another schedule, or no blocks_per_stage"
            )
        return self.modelled().cut(n_stages, blocks)

    def parameters_of(self, n_stages: int) -> tuple[int, ...]:
        """Per stage of so many; a tied head holds a copy of the embedding where that is on another device."""
        counts = [sum(layer.parameters for layer in layers) for layers in self.layers_of(n_stages)]
        model = self.modelled()
        counts[-1] += model.vocab_size * model.d_model if self.ties_stages else 0
        return tuple(counts)

    @property
    def tokens(self) -> int:
        """Tokens of an iteration, over all replicas."""
        return self.global_batch * self.modelled().seq_len

    @property
    def flop(self) -> float:
        """Forward and backward per iteration, over all replicas; nothing is recomputed."""
        return self.global_batch * self.modelled().forward_flop * (1 + BACKWARD_PER_FORWARD)

    def to_frame(self) -> pd.DataFrame:
        """One row a stage: layers, parameters, flop, gradient_bytes and activation_bytes.

        ``flop`` is forward and backward of the whole mini-batch of one replica, of the one with most micro-batches
        where they differ; ``activation_bytes`` one
        micro-batch over the boundary after the stage, 0 after the last.
        """
        flop_per_forward = (1 + BACKWARD_PER_FORWARD) * self.n_microbatches * self.microbatch
        columns = {
            "layers": [len(layers) for layers in self.stage_layers],
            "parameters": self.stage_parameters,
            "flop": [flop_per_forward * sum(layer.forward_flop for layer in layers) for layers in self.stage_layers],
            "gradient_bytes": self.stage_gradient_bytes,
            "activation_bytes": [*[self.activation_bytes] * (self.n_stages - 1), 0.0],
        }
        return pd.DataFrame(columns).rename_axis("stage")

    def modelled(self) -> ModelSpec:
        """The model, or a JobError where stages or batch do not fit it, or where there is none.

        A job whose message sizes are given can be priced in shapes that its model or batch do not allow.
        """
        if self.model is None:
            raise JobError(f"job {self.name} holds message sizes only; simulating or running it needs a model")
        if self.n_stages is not None:
            self.model.cut(self.n_stages, self.blocks_per_stage)
        if self.microbatch is not None:
            self._check_batch()
        return self.model

    def _check_batch(self) -> None:
        """Raises JobError where the batch is no whole number of micro-batches, or has fewer than replicas."""
        n_microbatches, over = divmod(self.global_batch, self.microbatch)
        replicas = 1 if self.n_replicas is None else self.n_replicas
        if over:
            wanted = " or ".join(
                str(n) for n in (self.global_batch - over, self.global_batch - over + self.microbatch) if n
            )
            raise JobError(
                f"job {self.name}: global batch of {self.global_batch} sequences is not a whole number of "
                f"micro-batches: those of {self.microbatch} sequences leave {over} over; wanted a multiple of "
                f"{self.microbatch}, such as {wanted}"
            )
        if n_microbatches < replicas:
            raise JobError(
                f"job {self.name}: global batch of {self.global_batch} sequences has {n_microbatches} micro-batches of "
                f"{self.microbatch}, too few for {replicas} replicas; wanted {replicas * self.microbatch} or more"
            )
        counts = self.microbatches_per_replica
        if self.gathers_passes and (n_microbatches % replicas or (counts is not None and len(set(counts)) > 1)):
            raise JobError(
                f"job {self.name}: sharding {self.sharding} with {n_microbatches} micro-batches over {replicas} "
                f"replicas, which pass them together; wanted as many for each"
            )
        if counts is not None and (len(counts), sum(counts)) != (replicas, n_microbatches):
            raise JobError(
                f"job {self.name}: microbatches_per_replica is {shortened(list(counts))}, {sum(counts)} in all; wanted "
                f"a count for each of {replicas} replicas, {n_microbatches} in all"
            )

    def with_fields(self, **fields: Any) -> Job:
        """The job with these fields instead.

        ``blocks_per_stage``, ``microbatches_per_replica`` and ``warmups`` are dropped with a change of what they were
        chosen for: another number of stages or blocks, of replicas or micro-batches, another schedule or memory.
        Micro-batches of another size keep the sequences of each replica where they divide them.

        Message sizes that were given for another model, shape or batch are dropped, too, and follow from the model; a
        job without one keeps them, as those of one stage and of one replica.
        """
        changed = {what for what, value in fields.items() if what in _COUNTS or value != getattr(self, what)}
        blocks, model = self.blocks_per_stage, fields.get("model", self.model)
        dropped: dict[str, Any] = {}
        if blocks is not None and ("n_stages" in changed or model is None or model.n_blocks != sum(blocks)):
            dropped["blocks_per_stage"] = None
        resized = changed & {"n_replicas", "microbatch", "global_batch"} == {"microbatch"}
        if changed & {"n_replicas", "microbatch", "global_batch"}:
            dropped["microbatches_per_replica"] = self._shares_of(fields["microbatch"]) if resized else None
        if changed & _AHEAD_BY:
            dropped["warmups"] = None
        if model is not None and any(getattr(self, what) is not None for what in changed & _SIZED_BY):
            dropped |= dict.fromkeys(_SIZES)
        return replace(self, **dropped | fields)

    def _shares_of(self, microbatch: int | None) -> tuple[int, ...] | None:
        """Micro-batches of each replica for as many sequences as it has, in micro-batches of another size."""
        counts = self.microbatches_per_replica
        if counts is None or self.microbatch is None or not isinstance(microbatch, int) or microbatch < 1:
            return None
        sequences = [count * self.microbatch for count in counts]
        return None if any(n % microbatch for n in sequences) else tuple(n // microbatch for n in sequences)

    def _checked_counts(self, what: str, given: object) -> tuple[int, ...]:
        """The counts of a field with one for each stage or replica; raises JobError where they are none of this job."""
        per, n, least = (
            ("replica", self.n_replicas, 1)
            if what == "microbatches_per_replica"
            else ("stage", self.n_stages, int(what == "blocks_per_stage"))
        )
        if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
            raise JobError(f"job {self.name}: {what} is {shortened(given)}; wanted a count for each {per}")
        counts = tuple(whole(f"job {self.name}", what, count, least=least) for count in given)
        if n is None:
            raise JobError(f"job {self.name}: {what} is given without n_{per}s; wanted both, or neither")
        if len(counts) != n:
            raise JobError(
                f"job {self.name}: {what} is {shortened(list(counts))}, for {len(counts)} {per}s; wanted a count for "
                f"each of {n}"
            )
        if what == "blocks_per_stage" and self.model is not None:
            self.model.cut(n, counts)
        return counts

    def shapes(self, n_devices: int) -> list[tuple[int, int]]:
        """(stages, replicas) that use all of ``n_devices`` and that this job's model and batch allow, with equal shares
        for all replicas, whatever its own shape is."""
        shapes = [(n_stages, n_devices // n_stages) for n_stages in range(1, n_devices + 1) if not n_devices % n_stages]
        if self.model is None:
            return shapes
        microbatch = self.microbatch or 1
        return [(s, r) for s, r in shapes if s <= self.model.n_blocks and not self.global_batch % (r * microbatch)]

    def fitted(self, n_devices: int) -> Job:
        """The job in the most square shape that uses all devices and that its batch allows, or else most of them.

        Numbers of stages and replicas that are given are kept, and a micro-batch that is not given becomes one
        sequence. Raises JobError where no shape is left.
        """
        own = self.n_stages, self.n_replicas
        shapes: list[tuple[int, int]] = []
        for n in range(n_devices, 0, -1):
            shapes = [shape for shape in self.shapes(n) if all(a in (None, b) for a, b in zip(own, shape, strict=True))]
            if shapes:
                break
        if not shapes:
            raise JobError(
                f"job {self.name}: {self.n_stages or 'any'} stages x {self.n_replicas or 'any'} replicas do not fit "
                f"{n_devices} devices and a batch of {self.global_batch} sequences; wanted fewer"
            )
        n_stages, n_replicas = min(shapes, key=lambda shape: (abs(shape[0] - shape[1]), -shape[0]))
        return self.with_fields(n_stages=n_stages, n_replicas=n_replicas, microbatch=self.microbatch or 1)


def compressed_bytes(n_elements: int, dtype: str, compression: str) -> float:
    """Bytes that so many numbers take in a message: as they are, or compressed where that is smaller."""
    plain_bytes = n_elements * BYTES_PER_ELEMENT[dtype]
    coded_bytes = {
        "none": plain_bytes,
        "fp16": n_elements * 2,
        "int8": n_elements + 4 * math.ceil(n_elements / INT8_BLOCK),
    }[compression]
    return float(min(plain_bytes, coded_bytes))
