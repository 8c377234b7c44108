"""What is trained and how it is cut up: stages, replicas, micro-batches."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Annotated, Any

import pandas as pd

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job.model import BACKWARD_PER_FORWARD, BYTES_PER_ELEMENT, Layer, ModelSpec
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.options import Option, check_options, plain, whole
from dtfm_lab.domain.schedule import synchronisations

COMPRESSIONS = ("none", "fp16", "int8")
INT8_BLOCK = 256
"""Numbers that share one scale of 4 bytes (block-wise quantisation, Dettmers et al. 2022)."""


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What a job, a job's file and the keywords of ``load_job`` have in common: every field has a default.

    A field that is added here is one of the file, of the command line and of the signatures, too.
    """

    name: Annotated[str, Option(help="Name of the job.", varies=False)] = "job"
    dtype: Annotated[str, Option(help="Precision of numbers: fp16, bf16, fp32 or fp64.", choices=BYTES_PER_ELEMENT)] = (
        "fp16"
    )
    schedule: Annotated[str, Option(help="Pipeline schedule, looked up when used.", varies=False)] = "gpipe"
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
    """Schedules that interleave cut the model into more stages, always evenly, and are refused where this is given."""


_STAGES = Option(
    help="Pipeline stages: the pipeline-parallel degree, the paper's D_PP.", least=1, flag="stages", varies=False
)
_REPLICAS = Option(help="Data-parallel replicas: the paper's D_DP.", least=1, flag="replicas", varies=False)
_BATCH = Option(help="Sequences per iteration, over all replicas.", unit="sequences", least=1, flag="batch")
_MICROBATCH = Option(help="Sequences per pipeline step.", unit="sequences", least=1)
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
    n_stages: Annotated[int | None, _STAGES] = None
    n_replicas: Annotated[int | None, _REPLICAS] = None
    global_batch: Annotated[int | None, _BATCH] = None
    microbatch: Annotated[int | None, _MICROBATCH] = None
    gradient_bytes: Annotated[float | None, _GRADIENT] = None
    activation_bytes: Annotated[float | None, _HOP] = None


@dataclass(frozen=True, kw_only=True)
class Job(JobOptions):
    """One training iteration of a model, cut into stages, replicas and micro-batches.

    Raises
    ------
    JobError
        A count below 1, a batch that does not divide, more stages than blocks, a cut that is none of the model.
    UnknownName
        An unknown dtype, synchronisation or compression. (Schedules are looked up when used.)
    """

    model: ModelSpec | None
    """None for a job that is only priced."""
    n_stages: Annotated[int, _STAGES]
    n_replicas: Annotated[int, _REPLICAS]
    global_batch: Annotated[int, _BATCH]
    microbatch: Annotated[int, _MICROBATCH]
    given_gradient_bytes: Annotated[float | None, _GRADIENT] = None
    """Size of one stage's gradient for the communication cost, instead of the model's."""
    given_hop_bytes: Annotated[float | None, _HOP] = None
    """Size of a replica's whole mini-batch over one boundary for the communication cost, instead of the model's."""

    def __post_init__(self) -> None:
        plain("job", self.name)
        plain(f"job {self.name}: its schedule", self.schedule)
        check_options(self, thing=f"job {self.name}", error=JobError)
        if self.blocks_per_stage is not None:
            object.__setattr__(self, "blocks_per_stage", self._checked_cut(self.blocks_per_stage))
        if self.model is None:
            if self.given_gradient_bytes is None or self.given_hop_bytes is None:
                raise JobError(f"job {self.name} has no model; wanted one, or gradient_bytes and activation_bytes")
            return
        if self.given_gradient_bytes is None or self.given_hop_bytes is None:
            self.modelled()

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
    def n_tasklets(self) -> int:
        """Devices needed: one a stage and replica."""
        return self.n_stages * self.n_replicas

    @property
    def n_microbatches(self) -> int:
        """Per replica and iteration."""
        return self.global_batch // (self.n_replicas * self.microbatch)

    @property
    def gradient_bytes(self) -> float:
        """One stage's gradient, whole, as the communication cost counts it: of the largest stage."""
        return max(self.stage_gradient_bytes) if self.given_gradient_bytes is None else self.given_gradient_bytes

    @property
    def hop_bytes(self) -> float:
        """A replica's whole mini-batch over one stage boundary, as the communication cost counts it."""
        return self.n_microbatches * self.activation_bytes if self.given_hop_bytes is None else self.given_hop_bytes

    @cached_property
    def activation_bytes(self) -> float:
        """Bytes that one micro-batch sends across one stage boundary, forward; its gradient is as large."""
        return compressed_bytes(self.activation_elements, self.dtype, self.compression)

    @property
    def activation_elements(self) -> int:
        """Numbers of one micro-batch that cross a stage boundary."""
        return self.microbatch * self.modelled().boundary_elements

    @cached_property
    def stage_gradient_bytes(self) -> tuple[float, ...]:
        """Per stage, bytes of its whole gradient in messages."""
        how = self.gradients_as
        return tuple(compressed_bytes(n, self.dtype, how) for n in self.stage_parameters)

    @property
    def gradients_as(self) -> str:
        """The compression of what replicas exchange."""
        return self.compression if self.gradient_compression is None else self.gradient_compression

    @cached_property
    def stage_parameters(self) -> tuple[int, ...]:
        """Per stage, the parameters that its devices hold."""
        return self.parameters_of(self.n_stages)

    @property
    def codes_activations(self) -> bool:
        """Whether messages along the pipeline are compressed at all."""
        return self.activation_bytes < compressed_bytes(self.activation_elements, self.dtype, "none")

    @property
    def codes_gradients(self) -> bool:
        """Whether synchronisation's messages are compressed at all."""
        return self.stage_gradient_bytes[0] < compressed_bytes(self.stage_parameters[0], self.dtype, "none")

    @property
    def embedding_bytes(self) -> float:
        """What the first and the last stage send each other where they tie their embeddings: its gradient, never
        compressed."""
        model = self.modelled()
        return float(model.vocab_size * model.d_model * BYTES_PER_ELEMENT[self.dtype])

    @property
    def ties_stages(self) -> bool:
        """Whether the first and the last stage, on different devices, hold one embedding."""
        return self.modelled().tied and self.n_stages > 1

    @cached_property
    def stage_layers(self) -> tuple[tuple[Layer, ...], ...]:
        """Per stage, its layers, first stage first."""
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
        """Per iteration, over all replicas."""
        return self.global_batch * self.modelled().seq_len

    @property
    def flop(self) -> float:
        """Forward and backward per iteration, over all replicas; nothing is recomputed."""
        return self.global_batch * self.modelled().forward_flop * (1 + BACKWARD_PER_FORWARD)

    def to_frame(self) -> pd.DataFrame:
        """One row a stage: layers, parameters, flop, gradient_bytes and activation_bytes.

        ``flop`` is forward and backward of one replica's whole mini-batch; ``activation_bytes`` one
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
        self.model.cut(self.n_stages, self.blocks_per_stage)
        at_once = self.n_replicas * self.microbatch
        if over := self.global_batch % at_once:
            wanted = " or ".join(str(n) for n in (self.global_batch - over, self.global_batch - over + at_once) if n)
            raise JobError(
                f"job {self.name}: global batch of {self.global_batch} sequences is not a whole number of "
                f"micro-batches: {self.n_replicas} replicas x {self.microbatch} sequences leave {over} over; "
                f"wanted a multiple of {at_once}, such as {wanted}"
            )
        return self.model

    def with_fields(self, **fields: Any) -> Job:
        """The job with these fields instead; without ``blocks_per_stage`` where it no longer fits."""
        blocks, model = self.blocks_per_stage, fields.get("model", self.model)
        if blocks is not None and (
            fields.get("n_stages", self.n_stages) != self.n_stages or model is None or model.n_blocks != sum(blocks)
        ):
            fields = {"blocks_per_stage": None} | fields
        return replace(self, **fields)

    def _checked_cut(self, blocks: object) -> tuple[int, ...]:
        if not isinstance(blocks, Iterable) or isinstance(blocks, str | bytes | Mapping):
            raise JobError(f"job {self.name}: blocks_per_stage is {shortened(blocks)}; wanted a count for each stage")
        counts = tuple(whole(f"job {self.name}", "blocks_per_stage", count) for count in blocks)
        if len(counts) != self.n_stages:
            raise JobError(
                f"job {self.name}: blocks_per_stage is {shortened(list(counts))}, for {len(counts)} stages; wanted a "
                f"count for each of {self.n_stages}"
            )
        if self.model is None:
            raise JobError(f"job {self.name} has no model to cut; wanted one, or no blocks_per_stage")
        self.model.cut(self.n_stages, counts)
        return counts

    def shapes(self, n_devices: int) -> list[tuple[int, int]]:
        """(stages, replicas) that use all of ``n_devices`` and that this job's model and batch allow."""
        shapes = [(n_stages, n_devices // n_stages) for n_stages in range(1, n_devices + 1) if not n_devices % n_stages]
        if self.model is None:
            return shapes
        return [(s, r) for s, r in shapes if s <= self.model.n_blocks and not self.global_batch % (r * self.microbatch)]


def compressed_bytes(n_elements: int, dtype: str, compression: str) -> float:
    """Bytes that so many numbers take in a message: as they are, or compressed where that is smaller."""
    plain_bytes = n_elements * BYTES_PER_ELEMENT[dtype]
    coded_bytes = {
        "none": plain_bytes,
        "fp16": n_elements * 2,
        "int8": n_elements + 4 * math.ceil(n_elements / INT8_BLOCK),
    }[compression]
    return float(min(plain_bytes, coded_bytes))
