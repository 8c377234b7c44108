"""What a layer keeps for its backward, what it recomputes, and what frozen weights take in memory.

With ``selective`` and ``block`` checkpointing, a block keeps less than its operators need and recomputes the rest, one
block at a time. Embedding and head are not checkpointed, as in torchtitan and Megatron-LM. With ``stage``
checkpointing, whole stages are recomputed. What a stage keeps is then not a sum over its layers, so ``costs.memory``
counts it.

With context and expert parallelism, every GPU of a group has its own tokens, and activations are the sum over all. Each
GPU holds its own copy of the parameters, except for experts, which are split among expert-parallel GPUs.

With tensor parallelism, numbers are totals over the GPUs of a group. Norms, residuals and dropout are not divided:
every GPU holds them whole (Korthikanti et al. 2022, section 4.2.1: 10 of the 34 bytes per token and width of a gpt),
unless they are cut along the sequence (section 4.2.2).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from dtfm_lab.domain.job.job import Job
from dtfm_lab.domain.job.model import BYTES_PER_ELEMENT, Layer, LayerKind, ModelSpec
from dtfm_lab.domain.job.options import BLOCKWISE, FROZEN_BYTES, coded_bytes, compressed_bytes
from dtfm_lab.domain.schedule import ACROSS_STAGES, Bucket, Kind, Schedule, Step
from dtfm_lab.domain.schedule.synchronisation import LAST
from dtfm_lab.domain.units import IntArray

WHOLE_WIDTHS = {"gpt": 5, "llama": 4, "moe": 4}
"""Elements per token, in multiples of the model's width, that every GPU of a group holds whole: input and output of
both norms, and in a gpt two dropout masks of half a number each."""
WHOLE_SHARE = 10 / 34
"""Share of a block's held elements that every GPU of a group holds whole, for other families: a gpt's share."""


DROPOUT_WIDTHS = {"gpt": 1}
"""Elements of the dropout masks that a block holds per token, in multiples of the model's width: two masks, whose
elements count half."""
DROPOUT_SHARE = {"gpt": 3 / 5}
"""Dropout's share of what unfused attention keeps: mask and output, 1.5 of 2.5 elements."""
USUAL_LOGITS = 2
"""Elements that ``families`` counts for each logit: in half precision, the 4 bytes of the softmax."""


def frozen_bytes(job: Job, layer: Layer) -> float:
    """Return the bytes of a layer's weights that are held but not trained."""
    plain_bytes = BYTES_PER_ELEMENT[job.dtype]
    own = FROZEN_BYTES[job.frozen_weights] if layer.kind is LayerKind.BLOCK else None
    return layer.frozen_elements * (plain_bytes if own is None else min(own, plain_bytes))


def copied_elements(job: Job, layer: Layer) -> int:
    """Return how many more trained parameters of a layer a group of GPUs holds than a single copy has."""
    beside = layer.parameters - layer.expert_elements
    return (job.data_gpus - 1) * beside + (job.context_parallel - 1) * layer.expert_elements


def whole_elements(job: Job, layer: Layer) -> int:
    """Return how many of a layer's held elements per sequence every GPU of a tensor-parallel group holds whole."""
    model = job.modelled()
    width = model.boundary_elements
    if layer.kind is LayerKind.EMBEDDING:
        return layer.held_elements
    if layer.kind is LayerKind.HEAD:  # the input and output of its norm; the logits are cut by vocabulary
        return min(2 * width, layer.held_elements)
    known = WHOLE_WIDTHS.get(model.family)
    if known is None:
        return min(round(WHOLE_SHARE * layer.held_elements), layer.held_elements)
    return min((known - _masks(job)) * width, layer.held_elements)


def needed_elements(job: Job, layer: Layer) -> int:
    """Return how many elements per sequence the layer's backward needs, kept or recomputed."""
    held = layer.held_elements + _beside(job, layer)
    if job.attention == "unfused":
        share = 0.0 if job.dropout else DROPOUT_SHARE.get(job.modelled().family, 0.0)
        held += math.ceil((1 - share) * layer.attention_elements)
    copies = _copies(job)
    return held + copies * whole_elements(job, layer) if copies else held


def _masks(job: Job) -> int:
    """Return the elements per token, in multiples of the model's width, that a block does not keep because dropout is
    off. 0 if it is on."""
    return 0 if job.dropout else DROPOUT_WIDTHS.get(job.modelled().family, 0)


def _beside(job: Job, layer: Layer) -> int:
    """Return how many more elements per sequence the layer holds with the job's ``operators`` and ``dropout`` than by
    default. It is negative if there are fewer."""
    model = job.modelled()
    if layer.kind is LayerKind.HEAD:
        if layer.held_elements < USUAL_LOGITS * layer.output_elements:
            return 0  # not built by a family
        eager = 3 * max(4 // BYTES_PER_ELEMENT[job.dtype], 1)
        each = {"usual": USUAL_LOGITS, "eager": eager, "fused": 1}[job.operators]
        return (each - USUAL_LOGITS) * layer.output_elements
    if layer.kind is not LayerKind.BLOCK:
        return 0
    less = _masks(job) * model.boundary_elements
    if job.operators == "fused" and layer.gated_elements:
        less += layer.gated_elements
    elif job.operators == "fused" and model.family == "llama":
        # held is 4 d + 2 q + 2 kv + 4 d_ff a token, and selective 2 d + 2 q + kv + d_ff: their difference has d_ff
        queries = model.seq_len * model.n_heads * model.head_dim
        less += max(layer.held_elements - 2 * layer.selective_elements + 2 * queries, 0) // 2
    return -min(less, layer.held_elements)


def kept_elements(job: Job, layer: Layer) -> int:
    """Return how many elements per sequence are kept from the layer's forward to its backward.

    Without checkpointing, these are all ``needed_elements``.
    """
    needed = needed_elements(job, layer)
    if layer.kind is not LayerKind.BLOCK or job.checkpoints not in BLOCKWISE:
        return needed
    if job.checkpoints == "block":
        return min((1 + _copies(job)) * job.modelled().boundary_elements, needed)
    if not _copies(job):
        return min(layer.selective_elements, needed)
    share = layer.selective_elements / max(layer.held_elements, 1)  # whole elements are kept in the same share as all
    return min(layer.selective_elements + math.ceil(share * _copies(job) * whole_elements(job, layer)), needed)


def _copies(job: Job) -> int:
    """Return how many extra copies of undivided activations a tensor-parallel group holds: its GPUs - 1, or 0 with
    ``sequence_parallel``."""
    return whole_copies(job) - 1


def whole_copies(job: Job) -> int:
    """Return how many copies a tensor-parallel group holds of activations that it does not divide.

    One per GPU, or one in total with ``sequence_parallel``.
    """
    return 1 if job.sequence_parallel else job.tensor_parallel or 1


def last_product_flop(model: ModelSpec, layer: Layer) -> float:
    """Return the FLOP per sequence of a block's last matrix product, the MLP's down projection.

    0 if the MLP's width is unknown, as with experts.
    """
    if model.family not in ("gpt", "llama") or not layer.attention_elements:
        return 0.0
    tokens, width = model.seq_len, model.d_model
    frozen_flop = model.adapter_flop(layer)
    each = (layer.forward_flop - model.attention_flop - frozen_flop) / (2 * tokens * width)  # weights over the width
    if model.family == "gpt":
        inner = (each - 2 * model.n_heads * model.head_dim - layer.kv_elements / tokens) / 2
    else:  # q + 2 kv + q + 3 d_ff of these weights, and kv + q + d_ff of those that selective checkpointing repeats
        inner = each - 2 * layer.selective_flop / (2 * tokens * width)
    return max(2.0 * tokens * width * inner, 0.0)


def repeated_flop(job: Job, layer: Layer) -> float:
    """Return the forward FLOP of one sequence that the layer repeats in its backward.

    Selective checkpointing keeps the output of attention. An unfused attention recomputes its matrices, which takes the
    product of queries and keys: half of the attention's FLOP.
    """
    if job.checkpoints == "stage":
        return layer.forward_flop
    if layer.kind is not LayerKind.BLOCK or job.checkpoints == "none":
        return 0.0
    if job.checkpoints == "block":
        return layer.forward_flop - (last_product_flop(job.modelled(), layer) if job.early_stop else 0.0)
    scores = job.modelled().attention_flop / 2 if job.attention == "unfused" else 0.0
    return min(layer.selective_flop + scores, layer.forward_flop)


def moved_elements(job: Job, layer: Layer) -> float:
    """Return how many elements per sequence operators other than matrix products read and write in a forward.

    Each matrix that an unfused attention keeps counts twice: the operator that writes it also reads a matrix of the
    same size.
    """
    moved = layer.moved_elements + (2 * layer.attention_elements if job.attention == "unfused" else 0)
    copies = _copies(job)
    if not copies:
        return moved
    whole = whole_elements(job, layer) / max(layer.held_elements, 1)
    return moved + copies * whole * layer.moved_elements


# ---------------------------------------------------------------------------------------------------------------------
# Sizes of a job's messages, for the simulator and the emulated links alike, and the buckets of its gradients.


def message_bytes(job: Job, schedule: Schedule, step: Step) -> float:
    """Return the bytes of a message: a micro-batch's activations, a share of a gradient, a tied embedding's gradient,
    or, if replicas split the optimizer states, a share of the parameters."""
    kind = step.action.kind
    if kind in ACROSS_STAGES:
        return boundary_bytes(job, schedule.n_stages)[int(boundary_of(kind, step.action.stage))]
    if kind is Kind.SEND_E:
        return job.embedding_bytes
    whole = device_average_bytes if kind is Kind.SEND_P else device_gradient_bytes
    return step.share * whole(job, schedule.n_stages)[step.action.stage]


def boundary_of(kind: Kind, stage: int | IntArray) -> Any:
    """Return the number of the stage boundary that a message crosses, as in ``Job.boundary_elements``. ``stage`` is the
    stage that sends or receives it, or an array of them."""
    return stage + (ACROSS_STAGES[kind] > 0)


@lru_cache(maxsize=64)
def boundary_bytes(job: Job, n_stages: int) -> tuple[float, ...]:
    """Return (n_stages + 1) bytes that one micro-batch sends over each boundary of ``Job.boundary_elements``."""
    return tuple(compressed_bytes(n, job.dtype, job.compression) for n in job.boundary_elements(n_stages))


@lru_cache(maxsize=64)
def device_gradient_elements(job: Job, n_stages: int) -> tuple[int, ...]:
    """Return the number of trained parameters of the device at each position of the pipeline.

    The model is cut into ``n_stages`` stages. A device holds several of them if the schedule interleaves.
    """
    counts = job.parameters_of(n_stages)
    return tuple(sum(counts[position :: job.n_stages]) for position in range(job.n_stages))


@lru_cache(maxsize=64)
def device_expert_elements(job: Job, n_stages: int) -> tuple[int, ...]:
    """Return the number of expert parameters of the device at each position of the pipeline (see
    ``device_gradient_elements``)."""
    counts = [sum(layer.expert_elements for layer in layers) for layers in job.layers_of(n_stages)]
    return tuple(sum(counts[position :: job.n_stages]) for position in range(job.n_stages))


@lru_cache(maxsize=64)
def device_gradient_bytes(job: Job, n_stages: int) -> tuple[float, ...]:
    """Return the bytes of a whole gradient in messages, after compression, for the device at each position of the
    pipeline."""
    return tuple(coded_bytes(np.array(device_gradient_elements(job, n_stages)), job.gradient_coding).tolist())


@lru_cache(maxsize=64)
def device_average_bytes(job: Job, n_stages: int) -> tuple[float, ...]:
    """Return the bytes of the averages that return to the device at each position of the pipeline.

    These are averaged gradients. If replicas split the optimizer states, they are updated parameters, which are never
    compressed (``Job.average_coding``).
    """
    return tuple(coded_bytes(np.array(device_gradient_elements(job, n_stages)), job.average_coding).tolist())


@lru_cache(maxsize=64)
def buckets_of(job: Job, schedule: Schedule) -> tuple[tuple[Bucket, ...], ...]:
    """Return each position's buckets in the order in which they become ready; empty without overlap.

    Layers are added from last to first, over the stages of a device in the order of their last backwards. A bucket is
    closed once it holds ``bucket_bytes``, as in torch's DistributedDataParallel. Layers are never split.
    """
    if not job.overlap:
        return ()
    return tuple(_of_device(job, schedule, position) for position in range(schedule.n_devices))


def _of_device(job: Job, schedule: Schedule, position: int) -> tuple[Bucket, ...]:
    last, stages = _last_backwards(schedule, position), job.layers_of(schedule.n_stages)
    whole, full = job.parameters_of(schedule.n_stages), job.bucket_bytes / BYTES_PER_ELEMENT[job.gradients_in]
    n_elements = max(sum(whole[stage] for stage in last), 1)
    held: list[tuple[int, dict[int, float]]] = [(0, {})]
    """For each bucket, its number of parameters and, by stage, the fraction of the last backward that its layers
    take."""
    for stage, kind in last.items():
        layers = stages[stage]
        counts = [layer.parameters for layer in layers]
        counts[-1] += whole[stage] - sum(counts)  # a head's copy of a tied embedding
        fractions = _fractions(job, layers, recomputes=kind is Kind.BACKWARD)
        for count, fraction in zip(reversed(counts), reversed(fractions), strict=True):
            n, parts = held[-1]
            if n >= full and count:
                held.append((0, {}))
                n, parts = held[-1]
            held[-1] = n + count, parts | {stage: parts.get(stage, 0.0) + fraction}
    return tuple(Bucket(n / n_elements, tuple(parts.items())) for n, parts in held)


def _last_backwards(schedule: Schedule, position: int) -> dict[int, Kind]:
    """Return the kind of each stage's last backward, in the order in which the device runs them."""
    last: dict[int, Kind] = {}
    for action in schedule.programs[position]:
        if action.kind in LAST:
            last.pop(action.stage, None)
            last[action.stage] = action.kind
    return last


def _fractions(job: Job, layers: tuple[Layer, ...], *, recomputes: bool) -> list[float]:
    """Return the fraction of a backward that each layer takes, by its FLOP.

    The repeated forward of a block counts as part of the block's backward. If the whole stage is recomputed first, that
    counts as part of the last layer's backward.
    """
    flops = [layer.forward_flop for layer in layers]
    backward = job.modelled().backward.whole
    if recomputes and job.checkpoints in BLOCKWISE:
        flops = [backward * layer.forward_flop + repeated_flop(job, layer) for layer in layers]
    flop = sum(flops)
    # Without FLOP, as in a job of message sizes, layers count alike.
    shares = [one / flop if flop else 1 / len(layers) for one in flops]
    if recomputes and job.checkpoints == "stage":
        again = 1 / (1 + backward)
        shares = [share * (1 - again) for share in shares]
        shares[-1] += again
    return shares
