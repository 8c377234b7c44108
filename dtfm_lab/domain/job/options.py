"""The job fields that have defaults. Checks, files, command line options and signatures are derived from them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job.model import BYTES_PER_ELEMENT, LayerKind, ModelSpec
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.options import Option, options_of, whole
from dtfm_lab.domain.schedule import BY_SHARDS, synchronisations
from dtfm_lab.domain.units import counted

if TYPE_CHECKING:
    Count = int | Any  # None if a planner chooses; code that has checked ``shaped`` uses it as a number
    Choice = str | Any  # the same; a plan's job has all of them
    Flag = bool | Any
else:
    Count = int | None
    Choice = str | None
    Flag = bool | None

COMPRESSIONS = ("none", "fp16", "int8")
INT8_BLOCK = 256
"""Number of elements that share one scale of 4 bytes (block-wise quantisation, Dettmers et al. 2022)."""
TRANSPORTS = ("overlapped", "batched", "blocking")
SHARDINGS = ("none", "zero-1", "zero-2", "zero-3")
ATTENTIONS = ("fused", "unfused")
OPERATORS = ("usual", "eager", "fused")
MEMORY_ONLY = (
    *("operators", "dropout", "reserve_bytes", "fragmentation", "optimizer", "frozen_weights", "gradient_buffers"),
)
"""Fields of a job that change memory. They change seconds only if ``memory_traffic`` is set. Two exceptions: with
zero-3, ``frozen_weights`` changes message sizes. With adaptive-1f1b, memory limits the warm-ups."""
GRADIENT_BUFFERS = ("none", "buckets", "whole")
OPTIMIZERS = ("adam", "adam-8bit")
FROZEN_BYTES = {"same": None, "int8": 1.0, "nf4": (4 + 0.127) / 8}
"""Bytes per frozen weight of a block. None stands for the bytes of the job's dtype."""
CHECKPOINTINGS = ("none", "selective", "block", "stage")
BLOCKWISE = ("selective", "block")
"""Kinds of checkpointing in which each block recomputes what it did not keep, one block at a time."""
CUTS_BY = ("blocks", "layers", "flop")
MiB = 2**20
WORK = (
    *("model", "frozen_weights", "optimizer", "global_batch", "microbatch", "dtype"),
    *("reserve_bytes", "fragmentation"),
)
"""Fields that say what is trained and the memory that it leaves free, not how it is cut, averaged and sent."""
LEFT_TO_PLANNERS = (
    *("n_stages", "n_replicas", "microbatch", "schedule", "warmups", "blocks_per_stage", "microbatches_per_replica"),
    *("checkpointing", "tensor_parallel", "sharding", "synchronisation", "overlap"),
)
"""Fields that a planner chooses if they are left at None, their default. ``OPENED_BY_NULL`` must be set to None."""
OPENED_BY_NULL = ("tensor_parallel", "sharding", "synchronisation", "overlap")
"""Fields that null leaves to a planner, although null is not their default."""
OF_ONE_SHAPE = ("n_stages", "n_replicas", "blocks_per_stage", "microbatches_per_replica", "warmups")
"""Fields that only fit one number of devices. If that number changes, a planner chooses them again."""
BATCH = Option(help="Sequences per iteration, over all replicas.", unit="sequences", least=1, flag="batch")
GRADIENT = Option(
    help="Size of one stage's gradient, as the communication cost counts it.",
    unit="bytes",
    least=0,
    name="gradient_bytes",
    varies=False,
)
HOP = Option(
    help="Size of the activations that a replica sends over one stage boundary in an iteration, as the communication "
    "cost counts it.",
    unit="bytes",
    least=0,
    name="activation_bytes",
    varies=False,
)


@dataclass(frozen=True, kw_only=True)
class SystemOptions:
    """How a training system computes and communicates: the choices in which frameworks differ."""

    transport: Annotated[str, Option(choices=TRANSPORTS)] = "overlapped"
    """Whether a device computes while it sends (overlapped) or waits. If it waits, the two directions between two
    devices run at once (batched) or alternately (blocking).

    ``blocking`` works like torch's send: the device continues when its message has arrived, and the two directions
    between two devices take turns. ``batched`` works like Megatron-LM. The device waits as well, but messages that two
    devices send each other at the same time travel at the same time. (torch's ``batch_isend_irecv`` puts them into one
    NCCL group.)"""
    tensor_parallel: Annotated[int | None, Option(unit="GPUs", least=1, varies=False)] = 1
    """GPUs of one host that split each layer; chosen by the planner if null."""
    context_parallel: Annotated[int, Option(unit="GPUs", least=1, varies=False)] = 1
    """GPUs of one host that split each sequence into equal parts.

    Keys and values travel around a ring while attention computes (Liu et al. 2023, "Ring Attention with Blockwise
    Transformers for Near-Infinite Context"). Each GPU holds all parameters of its layers."""
    expert_parallel: Annotated[int, Option(unit="GPUs", least=1, varies=False)] = 1
    """GPUs of one host that process different sequences and split the experts of each block.

    Tokens are sent to their experts and back, all to all (Lepikhin et al. 2020, "GShard", section 3.2). All other
    parameters are on every GPU. A micro-batch is shared by all these GPUs. With tensor and context parallelism, a
    device of a plan stands for the product of the three."""
    sharding: Annotated[str | None, Option(choices=SHARDINGS)] = "none"
    """What replicas split among them: optimizer states (zero-1), also gradients (zero-2), or also parameters (zero-3,
    as in FSDP); chosen by the planner if null."""
    prefetch: Annotated[bool, Option()] = True
    """Exchange sharded parameters and gradients of neighbouring layers while a layer computes.

    If False, each layer waits for its own exchanges. FSDP does so with ``limit_all_gathers`` if adapters are separate
    FSDP units. It gathers at most two units at a time, and the adapters of one layer already fill both places."""
    overlap: Annotated[Flag, Option()] = False
    """Synchronise gradients in buckets while the last backward pass still runs; chosen by the planner if null."""
    bucket_bytes: Annotated[float, Option(unit="bytes", above=0)] = 25 * MiB
    """Size of a gradient bucket when synchronisation overlaps the backward pass.

    The default is the same as in torch's DistributedDataParallel."""
    fragments: Annotated[int, Option(least=1)] = 1
    """Number of parts into which the model is split. Replicas average one part after another, between iterations.

    Streaming DiLoCo (Douillard et al. 2025), with local updates (``synchronise_every``). Fragments are averaged one
    after the other, evenly spaced, each once per ``synchronise_every`` iterations. The paper puts every P-th layer into
    a fragment. Here each fragment is the P-th part of every device's parameters, so that all devices send equally much.
    """
    fragment_delay: Annotated[int, Option(least=0)] = 0
    """Iterations that a fragment's average may take to arrive while training continues.

    With 0, the average is due before the next iteration, as without fragments. With more, a fragment's changes travel
    during the passes of the next iterations, an equal part in each. The average is then mixed half and half with the
    replica's current parameters (Streaming DiLoCo's tau; its alpha is 1/2)."""
    checkpointing: Annotated[str | None, Option(choices=CHECKPOINTINGS)] = None
    """Which activations the backward pass recomputes; chosen by the planner if omitted.

    ``selective`` keeps the output of attention and of every second matrix product (torchtitan's operator mode),
    ``block`` keeps the input of each block, and ``stage`` the input of each stage, as ``recompute`` does. If left open,
    a planner chooses one of these; otherwise it is ``none``."""
    early_stop: Annotated[bool, Option()] = False
    """Stop recomputing a block as soon as its backward pass has all that it needs.

    If True, the last matrix product of a checkpointed block is not repeated, because nothing reads its output.
    torch's ``checkpoint(early_stop=True)`` does this, and so does torch.compile with any checkpoint."""
    attention: Annotated[str, Option(choices=ATTENTIONS)] = "fused"
    """Whether attention keeps its score matrix for the backward pass (unfused) or not (fused).

    Unfused attention keeps 5 a s^2 more bytes per sequence in half precision (Korthikanti et al. 2022, section 4). A
    V100 has no FlashAttention, so it depends on the framework's fallback: Megatron-LM keeps the scores (unfused),
    torch's memory-efficient kernel in ``scaled_dot_product_attention`` does not (fused)."""
    operators: Annotated[str, Option(choices=OPERATORS)] = "usual"
    """What operators keep for the backward pass: what papers count (usual), what torch keeps with the loss in fp32
    (eager), or less, with fused gate and loss (fused).

    For a gated MLP, ``fused`` keeps 3 widths instead of 4 (Megatron-LM's SwiGLU: the two halves and their product). For
    a head in half precision, ``usual`` keeps the 4 bytes of the softmax (Korthikanti et al. 2022, section 4.3).
    ``eager`` keeps 12, because ``cross_entropy`` holds the log-softmax and two gradients in fp32 when the backward
    begins. ``fused`` keeps 2: the logits, which become their own gradient (Liger, Transformer Engine)."""
    dropout: Annotated[bool, Option()] = True
    """Whether a gpt model applies dropout and keeps the masks. Other families never do.

    Without dropout a gpt's block keeps 16 of 17 widths, and an unfused attention keeps one matrix instead of 2.5."""
    sequence_parallel: Annotated[bool, Option()] = False
    """Split norms, residuals and dropout along the sequence, among the GPUs of a tensor-parallel group.

    Korthikanti et al. 2022, section 4.2.2. No GPU then holds a whole copy. Message sizes do not change."""
    reserve_bytes: Annotated[float, Option(unit="bytes", least=0)] = 0.0
    """Memory that the framework takes on each GPU: the CUDA context, NCCL buffers and workspaces."""
    fragmentation: Annotated[float, Option(least=0)] = 0.0
    """Share of the remaining memory that plans leave free for gaps between allocations, below 1.

    A plan must fit into the memory that remains after ``reserve_bytes`` and this share. Allocators thrash close to the
    limit: nanotron's runs took 5 to 12 times as long above .9 of the memory (Hugging Face, "Ultra-Scale Playbook",
    2025). SimuMax leaves .06 free (its ``mem_factor`` is .94)."""
    gradient_dtype: Annotated[str | None, Option(choices=BYTES_PER_ELEMENT)] = None
    """Precision in which gradients are kept and sent; the job's dtype if omitted.

    Megatron-LM uses fp32: with half-precision parameters this makes 18 bytes per parameter, 2 + 4 + 12 (its table of
    the distributed optimizer)."""
    gradient_buffers: Annotated[str, Option(choices=GRADIENT_BUFFERS)] = "none"
    """Second copy of the gradients that the framework keeps: none, the buckets in which it sends them, or whole
    gradients in the job's dtype. The first copy is accumulated in gradient_dtype.

    ``none``: gradients are accumulated in the buffers from which they are sent, as in Megatron-LM, FSDP, or torch's DDP
    with ``gradient_as_bucket_view=True``. ``buckets``: torch's DDP by default copies every gradient into a bucket, so
    all buckets together are as large as all gradients, whatever ``bucket_bytes`` is. ``whole``: nanotron's
    ``FP32GradientAccumulator`` keeps the bf16 gradients of all parameters beside its fp32 buffer."""
    optimizer: Annotated[str, Option(choices=OPTIMIZERS)] = "adam"
    """Adam with moments of 4 bytes (adam) or of 1 byte (adam-8bit).

    With adam-8bit each moment takes one byte (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization").
    Its scale, 4 bytes per 2048 moments, is not counted. The fp32 copy of a half-precision parameter stays."""
    frozen_weights: Annotated[str, Option(choices=FROZEN_BYTES)] = "same"
    """Precision of the frozen weights when adapters are trained: the job's dtype (same), int8 or nf4.

    Blocks are quantised; the embedding and the head are not. In nf4 with double quantisation a weight takes 4 bits
    and .127 bits for its scales (Dettmers et al. 2023, "QLoRA", section 3). With ``memory_traffic``, restoring a
    weight takes the time to read and write it in memory."""
    memory_traffic: Annotated[bool, Option()] = False
    """Also count the seconds of norms, activation functions and the optimizer's step, from the memory they move."""
    block_launch_s: Annotated[float, Option(unit="seconds", least=0)] = 0.0
    """Minimum time of a block's forward and backward pass together: the time in which the host launches their kernels.

    A forward takes at least a third of this, a backward two thirds. Use 0 with CUDA graphs, or if a GPU computes
    longer than its host launches. Eager nanotron takes 3.0 ms without and 4.4 ms with tensor parallelism, whatever
    the size of a block. It takes several times as long if blocking sends between hosts keep launches from running
    ahead (Hugging Face, "Ultra-Scale Playbook", 2025, its sweep of 1 to 64 hosts of H100s)."""
    flush_every: Annotated[int | None, Option(least=1)] = None
    """Micro-batches after which gpipe flushes its pipeline; all of them if omitted."""


def chosen(options: SystemOptions) -> dict[str, Any]:
    """Return the options that differ from their default and from ``none``, by name."""
    found = {one.name: (getattr(options, one.field), one.default) for one in options_of(SystemOptions)}
    return {name: value for name, (value, default) in found.items() if value != default and value != "none"}


@dataclass(frozen=True, kw_only=True)
class PipelineOptions:
    """How a job is cut, scheduled, averaged and compressed. Every field has a default."""

    name: Annotated[str, Option(varies=False)] = "job"
    """Name of the job."""
    dtype: Annotated[str, Option(choices=BYTES_PER_ELEMENT)] = "fp16"
    """Precision of parameters and activations: fp16, bf16, fp32 or fp64."""
    schedule: Annotated[str | None, Option(varies=False)] = None
    """Name of the pipeline schedule; chosen by the planner if omitted.

    If neither the job nor a planner names one, ``schedule_name`` is gpipe, which DT-FM runs."""
    warmups: Annotated[tuple[int, ...] | None, Option(varies=False)] = None
    """Warm-up forward passes of each stage under adaptive-1f1b; chosen for the network if omitted."""
    synchronisation: Annotated[Choice, Option(choices=synchronisations)] = "sharded"
    """How replicas average their gradients; chosen by the planner if null."""
    synchronise_every: Annotated[int, Option(unit="iterations", least=1)] = 1
    """Iterations from one synchronisation to the next. In between, each replica steps alone.

    With 1, replicas average their gradients before each step. With H > 1, each replica takes its steps alone (local
    updates). After the step of every H-th iteration, replicas average how much their parameters have changed since they
    were last equal, and add the average to those earlier parameters. This makes all replicas equal again, bit for bit.
    Compression rounds the changes. Each replica keeps its own optimizer state. The two ends of a tied embedding
    exchange its gradient in every iteration."""
    compression: Annotated[str, Option(choices=COMPRESSIONS)] = "none"
    """Precision to which messages are compressed, if that makes them smaller."""
    gradient_compression: Annotated[str | None, Option(choices=COMPRESSIONS)] = None
    """Compression of synchronisation messages; the same as compression if omitted."""
    codec_bytes_per_s: Annotated[float, Option(unit="bytes/s", above=0)] = 100e9
    """Uncompressed bytes that a device compresses or restores per second.

    The default is a guess: a fused kernel reads and writes memory once, and shares its bandwidth with everything else.
    """
    recompute: Annotated[bool, Option()] = False
    """Keep only a stage's input, and repeat its forward pass before its backward pass."""
    stages_per_device: Annotated[int, Option(least=1)] = 2
    """Stages per device when the schedule interleaves."""
    blocks_per_stage: Annotated[tuple[int, ...] | None, Option(varies=False)] = None
    """Blocks of each stage, first stage first; an even cut if omitted.

    Interleaved schedules cut the model into more stages, always by ``cut_by``. The job is refused if it has such a
    schedule and this field differs from the cut that ``cut_by`` gives."""
    cut_by: Annotated[str, Option(choices=CUTS_BY)] = "blocks"
    """What to divide evenly among the stages if blocks_per_stage is omitted.

    ``blocks``: the number of blocks. ``layers``: the same, but embedding and head count as a block each, as with
    Megatron-LM's account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split, or DeepSpeed's
    type:transformer|embedding. ``flop``: the FLOP, including the head's, as in nanotron. A search for seconds or
    dollars chooses the cut itself."""
    microbatches_per_replica: Annotated[tuple[int, ...] | None, Option(varies=False)] = None
    """Micro-batches of each replica; split as evenly as possible if omitted."""


@dataclass(frozen=True, kw_only=True)
class JobOptions(SystemOptions, PipelineOptions):
    """The fields that a job, a job file and the keywords of ``load_job`` share.

    A field added to either base class also appears in files, on the command line and in signatures.
    """

    n_stages: Annotated[Count, Option(least=1, flag="stages", varies=False)] = None
    """Number of pipeline stages (D_PP in DT-FM's paper); chosen by the planner if omitted."""
    n_replicas: Annotated[Count, Option(least=1, flag="replicas", varies=False)] = None
    """Number of data-parallel replicas (D_DP in DT-FM's paper); chosen by the planner if omitted."""
    microbatch: Annotated[Count, Option(unit="sequences", least=1)] = None
    """Sequences per micro-batch; chosen by the planner if omitted."""

    @property
    def shaped(self) -> bool:
        """True if stages, replicas and micro-batch are all given."""
        return None not in (self.n_stages, self.n_replicas, self.microbatch)

    @property
    def data_gpus(self) -> int:
        """GPUs in a device's group that process different tokens with the same parameters (apart from experts)."""
        return self.context_parallel * self.expert_parallel

    @property
    def group_gpus(self) -> int:
        """Number of GPUs of a host that one device of a plan stands for."""
        return (self.tensor_parallel or 1) * self.data_gpus

    @property
    def checkpoints(self) -> str:
        """The checkpointing in effect: ``stage`` if ``recompute`` is True, else ``checkpointing``, or ``none`` if that
        is left open."""
        return "stage" if self.recompute else self.checkpointing or "none"

    @property
    def gradients_in(self) -> str:
        """The dtype in which gradients are kept and sent."""
        return self.dtype if self.gradient_dtype is None else self.gradient_dtype

    @property
    def gradients_as(self) -> str:
        """The compression of synchronisation messages."""
        return self.compression if self.gradient_compression is None else self.gradient_compression

    @property
    def gradient_coding(self) -> Coding:
        """Bytes per element of gradients in the messages between replicas."""
        return coding_of(self.gradients_in, self.gradients_as)

    @property
    def average_coding(self) -> Coding:
        """Bytes per element of averaged gradients in the messages that return them to the replicas.

        If replicas split the optimizer states, updated parameters return instead, and they are never compressed.
        """
        return coding_of(self.dtype, "none") if self.splits_states else self.gradient_coding

    @property
    def splits_states(self) -> bool:
        """True if replicas split the optimizer states. A sharding that is left to the planner counts as none."""
        return self.sharding not in (None, "none")

    @property
    def averages_every(self) -> int:
        """Iterations between two averages. Each average covers all parameters, one fragment, or an equal part of a
        fragment that travels during several iterations (``fragment_delay``)."""
        return self.synchronise_every // (self.fragments * max(self.fragment_delay, 1))

    @property
    def averaged_share(self) -> float:
        """Fraction of the parameters (or gradients) that replicas average each time (see ``averages_every``)."""
        return 1 / (self.fragments * max(self.fragment_delay, 1))


@dataclass(frozen=True, kw_only=True)
class JobChanges(JobOptions):
    """The keywords of ``load_job`` and ``with_job``, and the keys of a job file. Each may be left out.

    This class checks nothing. Given values become fields of a Job, which checks them.
    """

    model: Annotated[ModelSpec | str | os.PathLike[str] | None, Option()] = None
    """A preset by name, or the path of a Hugging Face config.json or of its folder."""
    seq_len: Annotated[int | None, Option(unit="tokens")] = None
    """Tokens per sequence; the model's own if omitted."""
    adapters: Annotated[int | None, Option(least=1)] = None
    """Rank of the LoRA adapters that are trained instead of the model's weights."""
    global_batch: Annotated[int | None, BATCH] = None
    gradient_bytes: Annotated[float | None, GRADIENT] = None
    activation_bytes: Annotated[float | None, HOP] = None


class Coding(NamedTuple):
    """Bytes per element in a message, uncompressed and compressed."""

    plain: float
    """Bytes of an uncompressed element."""
    coded: float
    """Bytes of a compressed element."""
    scales: float
    """Bytes of the scale that is sent with every ``INT8_BLOCK`` compressed elements; 0 without scales."""


def coding_of(dtype: str, compression: str) -> Coding:
    """Return the bytes per element of a dtype in messages with one of ``COMPRESSIONS``."""
    plain = float(BYTES_PER_ELEMENT[dtype])
    return Coding(plain, *{"none": (plain, 0.0), "fp16": (2.0, 0.0), "int8": (1.0, 4.0)}[compression])


def coded_bytes(n_elements: Any, coding: Coding) -> Any:
    """Return the bytes of ``n_elements``, a number or an array of numbers, in messages.

    Elements are compressed only if that makes the message smaller. The search compiles this function with numba.
    """
    plain_bytes = n_elements * coding.plain
    return np.minimum(plain_bytes, n_elements * coding.coded + coding.scales * np.ceil(n_elements / INT8_BLOCK))


def compressed_bytes(n_elements: int, dtype: str, compression: str) -> float:
    """Return the bytes of ``n_elements`` in a message: uncompressed, or compressed if that is smaller."""
    return float(coded_bytes(n_elements, coding_of(dtype, compression)))


# ---------------------------------------------------------------------------------------------------------------------
# What a job refuses, in words that name the field, the value found and the value wanted.


PAPERS_SCHEDULE = "gpipe"
"""The schedule that DT-FM runs."""
PASSED_ON = ("zero-2", "zero-3")
"""Kinds of sharding in which replicas exchange gradients, and perhaps parameters, during every micro-batch's passes."""


def contradictions_of(job: JobOptions, model: ModelSpec | None) -> Iterator[str]:
    """Yield one sentence for each contradiction among a job's fields."""
    if job.sharding not in (None, "none"):
        if job.synchronisation not in (None, *BY_SHARDS):
            yield (
                f"synchronisation is {job.synchronisation} with sharding {job.sharding}, in which every replica "
                f"averages its own shard; wanted {' or '.join(BY_SHARDS)}"
            )
        if job.synchronise_every > 1:
            yield (
                f"synchronise_every is {job.synchronise_every} with sharding {job.sharding}, in which no replica can "
                f"step alone; wanted 1, or sharding none"
            )
    if job.frozen_weights != "same" and not (model is not None and model.frozen_elements):
        yield f"frozen_weights is {job.frozen_weights} and no weight is frozen; wanted adapters, or same"
    if job.fragmentation >= 1:
        yield f"fragmentation is {job.fragmentation:g}; wanted a share of the memory below 1"
    fragments, delay = job.fragments, job.fragment_delay
    pieces = fragments * max(delay, 1)
    # Fragments are averaged in turn, so all of them must fit between two rounds.
    if (fragments, delay) != (1, 0) and (job.synchronise_every == 1 or job.synchronise_every % pieces):
        yield (
            f"synchronise_every is {job.synchronise_every} with fragments {fragments} and fragment_delay {delay}; "
            f"wanted local updates, with a multiple of {pieces} above 1, or fragments 1 and fragment_delay 0"
        )
    if job.recompute and job.checkpointing in BLOCKWISE:
        yield (
            f"checkpointing is {job.checkpointing} and recompute true; wanted one of them, as recompute is "
            f"checkpointing stage"
        )
    heads = 0 if model is None else model.n_heads
    if job.tensor_parallel is not None and heads % job.tensor_parallel:
        yield (
            f"tensor_parallel is {job.tensor_parallel}; wanted a divisor of the {counted(heads, 'head')} of model "
            f"{model.name if model else ''}"
        )
    yield from _unshared(job, model)
    if job.flush_every is not None and job.schedule not in (None, PAPERS_SCHEDULE):
        yield (
            f"flush_every is {job.flush_every} with schedule {shortened(job.schedule)}; wanted "
            f"{PAPERS_SCHEDULE}, which flushes, or no flush_every"
        )


def _unshared(job: JobOptions, model: ModelSpec | None) -> Iterator[str]:
    """Yield one sentence for each size that context or expert parallelism cannot divide, and one for each choice that
    cannot be combined with them."""
    context, experts = job.context_parallel, job.expert_parallel
    # Nothing is divided, so there is nothing to contradict.
    if context * experts == 1:
        return
    if model is None or model.source:
        found = "no model" if model is None else "your own module"
        yield f"context_parallel is {context} and expert_parallel {experts} with {found}; wanted 1 and 1"
        return
    if job.sharding in PASSED_ON:
        yield (
            f"sharding is {job.sharding} with context_parallel {context} and expert_parallel {experts}; wanted none or "
            f"zero-1"
        )
    for what, degree, of, thing in (
        ("context_parallel", context, model.seq_len, "tokens of a sequence"),
        ("expert_parallel", experts, model.n_experts, "experts of a block"),
    ):
        if degree > 1 and (of % degree or not of):
            yield f"{what} is {degree}; wanted a divisor of the {of} {thing}"
    if (job.microbatch or 0) % experts:
        yield (
            f"expert_parallel is {experts} with micro-batches of {job.microbatch}; wanted a multiple of {experts}, as "
            f"each GPU takes its own sequences"
        )


def missing_numbers(model: ModelSpec, job: JobOptions) -> Iterator[str]:
    """Yield one sentence for each choice that needs numbers missing from the model's layers."""
    wanted = {
        "attention_elements": ("attention unfused", job.attention == "unfused"),
        "selective_elements": ("checkpointing selective", job.checkpointing == "selective"),
        "moved_elements": ("memory_traffic", job.memory_traffic),
        "kv_elements": ("context_parallel", job.context_parallel > 1),
    }
    for what, (choice, is_chosen) in wanted.items():
        if is_chosen and not any(getattr(layer, what) for layer in model.layers if layer.kind is LayerKind.BLOCK):
            yield (
                f"{choice} needs {what}, which the layers of model {model.name} do not give; wanted a model of a "
                f"family, or layers with {what}"
            )


def check_batch(job: JobOptions, global_batch: int) -> None:
    """Raise JobError if the batch is not a whole number of micro-batches, or has fewer micro-batches than replicas.
    Also raise it if ``microbatches_per_replica`` does not fit, or if the numbers differ between replicas with zero-2 or
    zero-3."""
    n_microbatches, over = divmod(global_batch, job.microbatch)
    replicas = 1 if job.n_replicas is None else job.n_replicas
    if over:
        wanted = " or ".join(str(n) for n in (global_batch - over, global_batch - over + job.microbatch) if n)
        raise JobError(
            f"job {job.name}: global batch of {counted(global_batch, 'sequence')} is not a whole number of "
            f"micro-batches: those of {counted(job.microbatch, 'sequence')} leave {over} over; wanted a multiple of "
            f"{job.microbatch}, such as {wanted}"
        )
    if n_microbatches < replicas:
        raise JobError(
            f"job {job.name}: global batch of {counted(global_batch, 'sequence')} has "
            f"{counted(n_microbatches, 'micro-batch')} of {job.microbatch}, too few for "
            f"{counted(replicas, 'replica')}; wanted {replicas * job.microbatch} or more"
        )
    counts = job.microbatches_per_replica
    if job.sharding in PASSED_ON and (n_microbatches % replicas or (counts is not None and len(set(counts)) > 1)):
        raise JobError(
            f"job {job.name}: sharding {job.sharding} with {counted(n_microbatches, 'micro-batch')} over {replicas} "
            "replicas, which pass them together; wanted as many for each"
        )
    if counts is not None and (len(counts), sum(counts)) != (replicas, n_microbatches):
        raise JobError(
            f"job {job.name}: microbatches_per_replica is {shortened(list(counts))}, {sum(counts)} in all; wanted a "
            f"count for each of {counted(replicas, 'replica')}, {n_microbatches} in all"
        )


def checked_counts(job: JobOptions, model: ModelSpec | None, what: str, given: object) -> tuple[int, ...]:
    """Return the counts of a field with one entry per stage or replica. Raises JobError if they do not fit this job."""
    per, n, least = ("replica", job.n_replicas, 1) if what == "microbatches_per_replica" else ("stage", job.n_stages, 0)
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise JobError(f"job {job.name}: {what} is {shortened(given)}; wanted a count for each {per}")
    counts = tuple(whole(f"job {job.name}", what, count, least=least) for count in given)
    if n is None:
        raise JobError(f"job {job.name}: {what} is given without n_{per}s; wanted both, or neither")
    if len(counts) != n:
        raise JobError(
            f"job {job.name}: {what} is {shortened(list(counts))}, for {len(counts)} {per}s; wanted a count for "
            f"each of {n}"
        )
    if what == "blocks_per_stage" and model is not None:
        model.cut(n, counts)
    return counts
