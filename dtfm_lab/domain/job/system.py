"""How a training system computes and communicates: the choices in which frameworks differ, each off by default.

With every choice at its default a job predicts what it did before the choice existed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from dtfm_lab.domain.job.model import BYTES_PER_ELEMENT, LayerKind, ModelSpec
from dtfm_lab.domain.options import Option, options_of
from dtfm_lab.domain.schedule import BY_SHARDS

TRANSPORTS = ("overlapped", "batched", "blocking")
SHARDINGS = ("none", "zero-1", "zero-2", "zero-3")
ATTENTIONS = ("fused", "unfused")
OPERATORS = ("usual", "eager", "fused")
MEMORY_ONLY = ("operators", "dropout", "reserve_bytes", "fragmentation")
"""Choices that change what is held, or may be, and no seconds."""
CHECKPOINTINGS = ("none", "selective", "block", "stage")
BLOCKWISE = ("selective", "block")
"""Checkpointings in which each block computes what it has not kept again, one at a time."""
MiB = 2**20


@dataclass(frozen=True, kw_only=True)
class SystemOptions:
    """The choices that a job, its file and the keywords of ``load_job`` share."""

    transport: Annotated[
        str,
        Option(
            help="Whether a device computes on while it sends (overlapped), or waits, with the two directions between "
            "two devices at once (batched) or in turns (blocking).",
            choices=TRANSPORTS,
        ),
    ] = "overlapped"
    """``blocking`` as torch's send: the device computes on when its message has arrived, and the two directions between
    two devices take turns. ``batched`` as Megatron-LM's: it waits as well, but what two devices send each other at the
    same time travels at the same time (torch's ``batch_isend_irecv`` puts it into one NCCL group)."""
    tensor_parallel: Annotated[
        int | None,
        Option(
            help="GPUs of one host that share each layer; chosen by the planner where null.",
            unit="GPUs",
            least=1,
            varies=False,
        ),
    ] = 1
    sharding: Annotated[
        str | None,
        Option(
            help="What replicas split among them: optimiser states (zero-1), gradients too (zero-2), parameters too "
            "(zero-3, as FSDP); chosen by the planner where null.",
            choices=SHARDINGS,
        ),
    ] = "none"
    overlap: Annotated[bool, Option(help="Synchronise gradients in buckets while the last backward still runs.")] = (
        False
    )
    bucket_bytes: Annotated[
        float, Option(help="Gradient of a bucket, where synchronisation overlaps.", unit="bytes", above=0)
    ] = 25 * MiB
    """The default is that of torch's DistributedDataParallel."""
    fragments: Annotated[
        int, Option(help="Parts of the model that replicas average in turn between iterations.", least=1)
    ] = 1
    """Streaming DiLoCo (Douillard et al. 2025), with local updates (``synchronise_every``): each fragment is averaged
    once in so many iterations, one fragment after the other, evenly apart. The paper puts every P-th layer into a
    fragment; here each is the P-th part of every device's parameters, so that all devices send equally much."""
    fragment_delay: Annotated[
        int,
        Option(help="Iterations that a fragment's average may take to arrive while training goes on.", least=0),
    ] = 0
    """With 0 the average is due before the next iteration, as without fragments. With more, a fragment's changes up to
    an iteration travel beside the passes of the next ones, an equal part in each, and their average is mixed half
    and half with what the replica has become by then (the paper's tau; its alpha is 1/2)."""
    checkpointing: Annotated[
        str | None,
        Option(
            help="Which activations are computed again in the backward; chosen by the planner where not given.",
            choices=CHECKPOINTINGS,
        ),
    ] = None
    """``selective`` keeps every other matrix product and the attention's output (torchtitan's of operators), ``block``
    the input of each block, ``stage`` that of each stage, as ``recompute`` does. A planner chooses ``none``, ``block``
    or ``stage``; without one, what is not given is ``none``."""
    attention: Annotated[
        str, Option(help="Whether attention keeps its matrix for the backward (unfused).", choices=ATTENTIONS)
    ] = "fused"
    """Unfused, a layer keeps 5 a s^2 bytes a sequence more in half precision (Korthikanti et al. 2022, section 4)."""
    operators: Annotated[
        str,
        Option(
            help="What operators keep for the backward: as papers count (usual), torch's with the loss in fp32 "
            "(eager), or with gate and loss each fused (fused).",
            choices=OPERATORS,
        ),
    ] = "usual"
    """Of a gated MLP, fused keeps 3 widths and not 4 (Megatron-LM's SwiGLU: the two halves and their product). Of a
    head in half precision usual keeps the 4 bytes of the softmax (Korthikanti et al. 2022, section 4.3); eager holds
    12, as ``cross_entropy`` has log-softmax and two gradients in fp32 at the beginning of the backward; fused 2, the
    logits that become their own gradient (Liger's, Transformer Engine's)."""
    dropout: Annotated[bool, Option(help="Whether a gpt drops out and keeps the masks; other families never do.")] = (
        True
    )
    """Without it, a gpt's block keeps 16 of 17 widths, and an unfused attention one matrix and not 2.5."""
    sequence_parallel: Annotated[
        bool,
        Option(help="GPUs of a tensor-parallel group split norms, residuals and dropout too, along the sequence."),
    ] = False
    """Korthikanti et al. 2022, section 4.2.2: then nothing is held whole by every GPU. Messages are as large."""
    reserve_bytes: Annotated[
        float,
        Option(
            help="Memory of each GPU that the framework takes: CUDA's context, buffers of NCCL, workspaces.",
            unit="bytes",
            least=0,
        ),
    ] = 0.0
    fragmentation: Annotated[
        float, Option(help="Share of the rest that is lost between allocations, below 1.", least=0)
    ] = 0.0
    """Plans fit what is left of a device's memory behind both. SimuMax counts .06 (its ``mem_factor`` of .94)."""
    gradient_dtype: Annotated[
        str | None, Option(help="Precision of gradients where not that of numbers.", choices=BYTES_PER_ELEMENT)
    ] = None
    """Gradients are kept and exchanged in it. Megatron-LM's are in fp32: with half-precision parameters 18 bytes a
    parameter, 2 + 4 + 12 (its table of the distributed optimizer)."""
    memory_traffic: Annotated[
        bool, Option(help="Count the time of norms, activations and optimiser's step by the memory they move.")
    ] = False
    flush_every: Annotated[
        int | None, Option(help="Micro-batches after which gpipe empties its pipeline; all where not given.", least=1)
    ] = None


def chosen(options: SystemOptions) -> dict[str, Any]:
    """The choices that are not at their default, by name."""
    found = {one.name: (getattr(options, one.field), one.default) for one in options_of(SystemOptions)}
    return {name: value for name, (value, default) in found.items() if value != default and value != "none"}


def contradictions(options: SystemOptions, synchronisation: str, synchronise_every: int) -> Iterator[str]:
    """What contradicts what, in words: the value found and the value wanted."""
    if options.sharding not in (None, "none"):
        if synchronisation not in BY_SHARDS:
            yield (
                f"synchronisation is {synchronisation} with sharding {options.sharding}, in which every replica "
                f"averages a shard of its own; wanted {' or '.join(BY_SHARDS)}"
            )
        if synchronise_every > 1:
            yield (
                f"synchronise_every is {synchronise_every} with sharding {options.sharding}, in which no replica can "
                f"step alone; wanted 1, or sharding none"
            )
    if options.fragmentation >= 1:
        yield f"fragmentation is {options.fragmentation:g}; wanted a share of the memory below 1"
    fragments, delay = options.fragments, options.fragment_delay
    pieces = fragments * max(delay, 1)
    if (fragments, delay) != (1, 0) and (synchronise_every == 1 or synchronise_every % pieces):
        yield (
            f"synchronise_every is {synchronise_every} with fragments {fragments} and fragment_delay {delay}; wanted "
            f"local updates, with a multiple of {pieces} above 1, or fragments 1 and fragment_delay 0"
        )


def missing_numbers(model: ModelSpec, options: SystemOptions) -> Iterator[str]:
    """Choices that need numbers which the model's layers do not give, in words."""
    wanted = {
        "attention_elements": ("attention unfused", options.attention == "unfused"),
        "selective_elements": ("checkpointing selective", options.checkpointing == "selective"),
        "moved_elements": ("memory_traffic", options.memory_traffic),
    }
    for what, (choice, is_chosen) in wanted.items():
        if is_chosen and not any(getattr(layer, what) for layer in model.layers if layer.kind is LayerKind.BLOCK):
            yield (
                f"{choice} needs {what}, which the layers of model {model.name} do not give; wanted a model of a "
                f"family, or layers with {what}"
            )
