"""What is trained and how it is cut up: stages, replicas, micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job.model import BYTES_PER_ELEMENT, Layer, ModelSpec, even_shares
from dtfm_lab.domain.job.model.families import completed
from dtfm_lab.domain.job.options import (
    BATCH,
    GRADIENT,
    HOP,
    LEFT_TO_PLANNERS,
    MEMORY_ONLY,
    PAPERS_SCHEDULE,
    PASSED_ON,
    JobOptions,
    check_batch,
    checked_counts,
    coded_bytes,
    compressed_bytes,
    contradictions_of,
    missing_numbers,
)
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.options import check_options, plain
from dtfm_lab.domain.units import counted

if TYPE_CHECKING:
    import pandas as pd

_COUNTS = ("blocks_per_stage", "warmups", "microbatches_per_replica")
"""Fields that hold one count per stage or per replica."""
_SIZES = ("given_gradient_bytes", "given_hop_bytes")
_SIZED_BY = {"model", "n_stages", "n_replicas", "global_batch"}
"""Fields that change the size of a stage's gradient or of a replica's mini-batch, and so the message sizes."""
_AHEAD_BY = {
    *("n_stages", "microbatch", "global_batch", "schedule", "model", "blocks_per_stage", "cut_by"),
    *("recompute", "checkpointing", "attention", "sequence_parallel", "gradient_dtype", "tensor_parallel", "sharding"),
    *("context_parallel", "expert_parallel"),
    *MEMORY_ONLY,
}
"""Fields on which ``warmups`` depends: those that decide the schedule, the cut, or what fits into memory."""


SETTLED = {"sharding": "none", "synchronisation": "sharded", "overlap": False}
"""Values used to price a placement whose job leaves these fields to a planner: the choices of the DT-FM paper (Yuan et
al. 2022)."""


@dataclass(frozen=True, kw_only=True)
class Job(JobOptions):
    """One training iteration of a model, cut into stages, replicas and micro-batches.

    You may leave stages, replicas and the micro-batch open. A planner then chooses them, and the job of its plan holds
    the chosen values.

    Raises
    ------
    JobError
        A count is below 1. The batch is not a whole number of micro-batches, or has fewer micro-batches than replicas.
        There are more stages than blocks, or ``blocks_per_stage`` does not add up to the model. The micro-batches per
        replica do not add up to the batch. Or choices contradict each other.
    UnknownName
        A choice, such as the dtype or the synchronisation, is unknown. (Schedules are looked up when used.)
    """

    model: ModelSpec | None
    """The model to train. None if the job has only message sizes: it can be priced, but not simulated or run."""
    global_batch: Annotated[int, BATCH]
    given_gradient_bytes: Annotated[float | None, GRADIENT] = None
    """Size of one stage's gradient for the communication cost, if it should differ from the model's."""
    given_hop_bytes: Annotated[float | None, HOP] = None
    """Size of a replica's whole mini-batch at one boundary for the communication cost, if it should differ from the
    model's."""

    def __post_init__(self) -> None:
        plain("job", self.name)
        if self.schedule is not None:
            plain(f"job {self.name}: its schedule", self.schedule)
        check_options(self, thing=f"job {self.name}", error=JobError)
        for what in _COUNTS:
            if (counts := getattr(self, what)) is not None:
                object.__setattr__(self, what, checked_counts(self, self.model, what, counts))
        if self.model is not None and not isinstance(self.model, ModelSpec):
            wanted = "a ModelSpec (lab.load_job takes names and paths)"
            raise JobError(f"job {self.name}: model is {shortened(self.model)}; wanted {wanted}")
        for contradiction in contradictions_of(self, self.model):
            raise JobError(f"job {self.name}: {contradiction}")
        sized = self.given_gradient_bytes is not None and self.given_hop_bytes is not None
        if self.model is None:
            if not sized:
                raise JobError(f"job {self.name} has no model; wanted one, or gradient_bytes and activation_bytes")
            if self.blocks_per_stage is not None:
                raise JobError(f"job {self.name} has no model to cut; wanted one, or no blocks_per_stage")
            return
        # A model from an older file may lack numbers that its family determines.
        if not self.model.gives_all:
            object.__setattr__(self, "model", completed(self.model))
        for missing in missing_numbers(self.model, self):
            raise JobError(f"job {self.name}: {missing}")
        if not sized:
            self.modelled()

    @classmethod
    def from_bytes(
        cls, n_stages: int, n_replicas: int, gradient_bytes: float, activation_bytes: float, name: str = "bytes"
    ) -> Job:
        """Return a job that can be priced but not simulated or run, from the two message sizes of DT-FM's cost model.

        ``gradient_bytes`` is one stage's whole gradient (c_dp). ``activation_bytes`` is what a replica sends over
        one stage boundary for its whole mini-batch (c_pp).
        """
        return cls(
            name=name,
            model=None,
            n_stages=n_stages,
            n_replicas=n_replicas,
            # the smallest batch of this shape, because the given sizes do not depend on it
            global_batch=n_replicas,
            microbatch=1,
            given_gradient_bytes=gradient_bytes,
            given_hop_bytes=activation_bytes,
        )

    @property
    def left_open(self) -> tuple[str, ...]:
        """Names of the fields that the job leaves to a planner.

        ``checkpointing`` counts as given if ``recompute`` is True. If it is open, ``recompute`` is listed as well.
        """
        taken = "checkpointing" if self.recompute else ""
        found = tuple(what for what in LEFT_TO_PLANNERS if getattr(self, what) is None and what != taken)
        return (*found, "recompute") if "checkpointing" in found else found

    def freed(self, *fields: str) -> Job:
        """Return the job with these fields left to a planner: None, or False for ``recompute``. Each must be in
        ``LEFT_TO_PLANNERS``, or be ``recompute``."""
        return self.with_fields(**{what: False if what == "recompute" else None for what in fields})

    @property
    def settled(self) -> Job:
        """The job with DT-FM's choice (``SETTLED``) for each of sharding, synchronisation and overlap that it leaves
        open."""
        chosen = {what: value for what, value in SETTLED.items() if getattr(self, what) is None}
        return self.with_fields(**chosen, warmups=self.warmups) if chosen else self

    def require_shape(self) -> None:
        """Raise JobError if stages, replicas or the micro-batch are left to a planner."""
        for what in ("n_stages", "n_replicas", "microbatch"):
            if getattr(self, what) is None:
                raise JobError(f"job {self.name}: {what} is not given; wanted a number, or a plan, which chooses one")

    @property
    def schedule_name(self) -> str:
        """Name of the job's pipeline schedule; ``PAPERS_SCHEDULE`` if the job names none."""
        return PAPERS_SCHEDULE if self.schedule is None else self.schedule

    @property
    def gathers_passes(self) -> bool:
        """True if replicas exchange gradients (zero-2, zero-3) and parameters (zero-3) during the passes of every
        micro-batch."""
        return self.sharding in PASSED_ON

    @property
    def n_tasklets(self) -> int:
        """Number of devices needed: one per stage and replica."""
        self.require_shape()
        return int(self.n_stages * self.n_replicas)

    @property
    def n_microbatches(self) -> int:
        """Micro-batches per iteration in one pipeline; the largest number if pipelines differ."""
        if self.microbatches_per_replica is not None:
            return max(self.microbatches_per_replica)
        self.require_shape()
        return int(-(-(self.global_batch // self.microbatch) // self.n_replicas))  # replicas may be a billion

    @cached_property
    def microbatch_counts(self) -> tuple[int, ...]:
        """(R,) micro-batches per iteration of each pipeline."""
        if self.microbatches_per_replica is not None:
            return self.microbatches_per_replica
        self.require_shape()
        return even_shares(self.global_batch // self.microbatch, self.n_replicas)

    @property
    def mean_microbatches(self) -> float:
        """Average number of micro-batches per pipeline and iteration. Each micro-batch's loss is divided by it."""
        return sum(self.microbatch_counts) / len(self.microbatch_counts)

    @property
    def gradient_bytes(self) -> float:
        """Bytes of one stage's whole gradient, as the communication cost counts them: the given size, or else the
        largest stage's."""
        return max(self.stage_gradient_bytes) if self.given_gradient_bytes is None else self.given_gradient_bytes

    @property
    def hop_bytes(self) -> float:
        """Bytes of a replica's whole mini-batch over the widest stage boundary, as the communication cost counts them:
        the given size, or else the model's.

        If replicas have different numbers of micro-batches, the largest number counts, because DT-FM's cost has one
        size for all pipelines.
        """
        return self.n_microbatches * self.activation_bytes if self.given_hop_bytes is None else self.given_hop_bytes

    @cached_property
    def activation_bytes(self) -> float:
        """Bytes that one micro-batch sends forward across the widest stage boundary. Its gradient is as large."""
        return compressed_bytes(self.activation_elements, self.dtype, self.compression)

    @cached_property
    def least_activation_bytes(self) -> float:
        """``activation_bytes`` of the narrowest boundary at which the model could be cut."""
        self.require_shape()
        least = min((layer.output_elements for layer in self.modelled().layers[:-1]), default=0)
        return compressed_bytes(int(self.microbatch * least), self.dtype, self.compression)

    @property
    def activation_elements(self) -> int:
        """Activation elements of one micro-batch that cross the job's widest stage boundary.

        Boundaries differ only in a torch module of your own. With a single stage there is no boundary, so the widest
        possible cut counts.
        """
        widest = self.modelled().boundary_elements
        return max(self.boundary_elements(self.n_stages)) or int(self.microbatch * widest)

    @cached_property
    def stage_gradient_bytes(self) -> tuple[float, ...]:
        """Bytes of each stage's whole gradient in messages, after compression."""
        return tuple(coded_bytes(np.array(self.stage_parameters), self.gradient_coding).tolist())

    @cached_property
    def stage_parameters(self) -> tuple[int, ...]:
        """Number of trained parameters of each stage."""
        self.require_shape()
        return self.parameters_of(self.n_stages)

    @property
    def codes_activations(self) -> bool:
        """True if messages along the pipeline are compressed."""
        return self.activation_bytes < compressed_bytes(self.activation_elements, self.dtype, "none")

    @property
    def codes_gradients(self) -> bool:
        """True if synchronisation messages are compressed, judged by the first stage's gradient."""
        return self.stage_gradient_bytes[0] < compressed_bytes(self.stage_parameters[0], self.gradients_in, "none")

    @property
    def embedding_bytes(self) -> float:
        """Bytes that the first and the last stage exchange if they share an embedding: the embedding's gradient, never
        compressed."""
        model = self.modelled()
        return float(model.vocab_size * model.d_model * BYTES_PER_ELEMENT[self.gradients_in])

    @property
    def ties_stages(self) -> bool:
        """True if the first and last stage are on different devices and share one embedding."""
        self.require_shape()
        return bool(self.modelled().tied and self.n_stages > 1)

    @cached_property
    def stage_layers(self) -> tuple[tuple[Layer, ...], ...]:
        """Layers of each stage, first stage first."""
        self.require_shape()
        return self.layers_of(self.n_stages)

    def layers_of(self, n_stages: int) -> tuple[tuple[Layer, ...], ...]:
        """Return the layers of each stage if ``cut`` divides the model into ``n_stages`` stages."""
        counts = self.cut(n_stages)
        model = self.modelled()
        ends = list(accumulate(counts))
        return tuple(model.layers[end - count : end] for count, end in zip(counts, ends, strict=True))

    def boundary_elements(self, n_stages: int) -> tuple[int, ...]:
        """Return the activation elements of one micro-batch that cross each of the (n_stages + 1) boundaries of
        ``n_stages`` stages.

        Entry s is the boundary before stage s. Both ends are 0.
        """
        self.require_shape()
        crossing = [int(self.microbatch * layers[-1].output_elements) for layers in self.layers_of(n_stages)[:-1]]
        return 0, *crossing, 0

    def cut(self, n_stages: int) -> tuple[int, ...]:
        """Return the number of layers of each of ``n_stages`` stages.

        There may be more stages than the job's if each device holds several.

        Raises JobError if ``blocks_per_stage`` is for another number of stages, unless it equals the cut by ``cut_by``.
        """
        blocks, model = self.blocks_per_stage, self.modelled()
        if blocks is not None and n_stages != self.n_stages:
            if model.cut(self.n_stages, blocks) != model.cut(self.n_stages, by=self.cut_by):
                raise JobError(
                    f"job {self.name}: blocks_per_stage cuts the model into {counted(self.n_stages, 'stage')}, a "
                    f"schedule that interleaves into {n_stages}; wanted another schedule, or no blocks_per_stage"
                )
            blocks = None  # the even cut, spelled out
        return model.cut(n_stages, blocks, self.cut_by)

    def parameters_of(self, n_stages: int) -> tuple[int, ...]:
        """Return the number of trained parameters of each of ``n_stages`` stages.

        A tied head on another device holds a copy of the embedding, which counts as well.
        """
        counts = [sum(layer.parameters for layer in layers) for layers in self.layers_of(n_stages)]
        model = self.modelled()
        counts[-1] += model.vocab_size * model.d_model if self.ties_stages else 0
        return tuple(counts)

    @property
    def tokens(self) -> int:
        """Tokens per iteration over all replicas; samples if you train a module of your own."""
        model = self.modelled()
        return self.global_batch * (1 if model.source else model.seq_len)

    @property
    def counted(self) -> str:
        """What ``tokens`` counts: tokens, or samples."""
        return "tokens" if self.model is None else self.model.counted

    @property
    def batch_words(self) -> str:
        """The batch of an iteration: ``512 sequences of 2,048 tokens``, or ``64 samples`` of your own module."""
        model = self.modelled()
        if model.source:
            return counted(self.global_batch, "sample")
        return f"{counted(self.global_batch, 'sequence')} of {counted(model.seq_len, 'token')}"

    @property
    def flop(self) -> float:
        """FLOP of forward and backward per iteration, over all replicas, without recomputation."""
        return self.global_batch * self.modelled().forward_flop * (1 + self.modelled().backward.whole)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per stage: layers, parameters, flop, gradient_bytes and activation_bytes.

        ``flop`` covers forward and backward of one replica's whole mini-batch (the largest if they differ).
        ``activation_bytes`` is one micro-batch over the boundary after the stage, 0 after the last.
        """
        import pandas as pd  # takes a while to load

        flop_per_forward = (1 + self.modelled().backward.whole) * self.n_microbatches * self.microbatch
        columns = {
            "layers": [len(layers) for layers in self.stage_layers],
            "parameters": self.stage_parameters,
            "flop": [flop_per_forward * sum(layer.forward_flop for layer in layers) for layers in self.stage_layers],
            "gradient_bytes": self.stage_gradient_bytes,
            "activation_bytes": [
                compressed_bytes(n, self.dtype, self.compression) for n in self.boundary_elements(self.n_stages)[1:]
            ],
        }
        return pd.DataFrame(columns).rename_axis("stage")

    def modelled(self) -> ModelSpec:
        """The model. Raises JobError if the job has no model, or if stages or batch do not fit it.

        A job whose message sizes are given can be priced in shapes that its model or batch do not allow.
        """
        return self._modelled

    @cached_property
    def _modelled(self) -> ModelSpec:
        if self.model is None:
            raise JobError(f"job {self.name} holds message sizes only; simulating or running it needs a model")
        if self.n_stages is not None:
            self.model.cut(self.n_stages, self.blocks_per_stage, self.cut_by)
        if self.microbatch is not None:
            check_batch(self, self.global_batch)
        return self.model

    def with_fields(self, **fields: Any) -> Job:
        """Return the job with these fields replaced.

        ``blocks_per_stage``, ``microbatches_per_replica`` and ``warmups`` are dropped if something they depend on
        changes: the number of stages, blocks, replicas or micro-batches, the schedule, or the memory that the job
        needs. If the micro-batch size changes and divides each replica's sequences, every replica keeps its sequences.

        Message sizes that were given for another model, shape or batch are dropped too, and then follow from the model.
        A job without a model keeps them.
        """
        # Counts by stage or replica are new even if they are equal, because what they fit may have changed.
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
        """Return each replica's number of micro-batches of a new size, so that every replica keeps its sequences.

        Return None if the new size does not divide them, or if the job does not give ``microbatches_per_replica`` and
        ``microbatch``.
        """
        counts = self.microbatches_per_replica
        if counts is None or self.microbatch is None or not isinstance(microbatch, int) or microbatch < 1:
            return None
        sequences = [count * self.microbatch for count in counts]
        return None if any(n % microbatch for n in sequences) else tuple(n // microbatch for n in sequences)

    def shapes(self, n_devices: int) -> list[tuple[int, int]]:
        """Return all (stages, replicas) that use all ``n_devices`` and that the model and batch allow.

        All replicas get equal shares. The job's own shape does not matter.
        """
        shapes = [(n_stages, n_devices // n_stages) for n_stages in range(1, n_devices + 1) if not n_devices % n_stages]
        if self.model is None:
            return shapes
        microbatch = self.microbatch or 1
        return [(s, r) for s, r in shapes if s <= self.model.n_blocks and not self.global_batch % (r * microbatch)]

    def fitted(self, n_devices: int) -> Job:
        """Return the job in the most square shape that uses all devices, or as many as its model and batch allow.

        Given numbers of stages and replicas are kept. If the micro-batch is not given, it becomes one sequence. Raises
        JobError if no shape is possible.
        """
        own = self.n_stages, self.n_replicas
        shapes: list[tuple[int, int]] = []
        # As many devices as possible; an idle one trains nothing.
        for n in range(n_devices, 0, -1):
            shapes = [shape for shape in self.shapes(n) if all(a in (None, b) for a, b in zip(own, shape, strict=True))]
            if shapes:
                break
        if not shapes:
            raise JobError(
                f"job {self.name}: {self.n_stages or 'any'} stages x {self.n_replicas or 'any'} replicas do not fit "
                f"{counted(n_devices, 'device')} and a batch of {counted(self.global_batch, 'sequence')}; wanted fewer"
            )
        n_stages, n_replicas = min(shapes, key=lambda shape: (abs(shape[0] - shape[1]), -shape[0]))
        return self.with_fields(n_stages=n_stages, n_replicas=n_replicas, microbatch=self.microbatch or 1)
