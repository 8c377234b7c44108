"""What a layer keeps for its backward and computes again there, under a job's attention and checkpointing.

With ``selective`` and ``block`` checkpointing a block keeps less than its operators need, and computes the rest again,
one block at a time; the embedding and the head are not checkpointed, as in torchtitan and Megatron-LM. With ``stage``
whole stages are: what is left then is no sum over layers, and ``memory_intervals`` counts it.

With tensor parallelism numbers are those of all GPUs of a group. Norms, residuals and dropout are not divided: every
GPU holds them whole (Korthikanti et al. 2022, section 4.2.1: 10 of the 34 bytes a token and width of a gpt).
"""

from __future__ import annotations

import math

from dtfm_lab.domain.job.job import Job
from dtfm_lab.domain.job.model import Layer, LayerKind, ModelSpec
from dtfm_lab.domain.job.system import BLOCKWISE

WHOLE_WIDTHS = {"gpt": 5, "llama": 4}
"""Widths of a block's held numbers a token that every GPU of a group holds: input and output of both norms, and in a
gpt two dropout masks of half a number each."""
WHOLE_SHARE = 10 / 34
"""Share of a block's held numbers that every GPU of a group holds, in other families: that of a gpt."""


def whole_elements(model: ModelSpec, layer: Layer) -> int:
    """Of a layer's held numbers of one sequence, those that every GPU of a group holds: they are not divided."""
    width = model.boundary_elements
    if layer.kind is LayerKind.EMBEDDING:
        return layer.held_elements
    if layer.kind is LayerKind.HEAD:  # the input and output of its norm; the logits are cut by vocabulary
        return min(2 * width, layer.held_elements)
    known = WHOLE_WIDTHS.get(model.family)
    return min(known * width if known else round(WHOLE_SHARE * layer.held_elements), layer.held_elements)


def needed_elements(job: Job, layer: Layer) -> int:
    """Numbers that the backward of one sequence needs, whether kept or computed again."""
    held = layer.held_elements + (math.ceil(layer.attention_elements) if job.attention == "unfused" else 0)
    copies = _copies(job)
    return held + copies * whole_elements(job.modelled(), layer) if copies else held


def kept_elements(job: Job, layer: Layer) -> int:
    """Numbers of one sequence that are kept from the layer's forward on; all that are needed but for checkpoints."""
    needed = needed_elements(job, layer)
    if layer.kind is not LayerKind.BLOCK or job.checkpoints not in BLOCKWISE:
        return needed
    if job.checkpoints == "block":
        return min((1 + _copies(job)) * job.modelled().boundary_elements, needed)
    if not _copies(job):
        return min(layer.selective_elements, needed)
    share = layer.selective_elements / max(layer.held_elements, 1)  # of what is whole, as of all
    return min(
        layer.selective_elements + math.ceil(share * _copies(job) * whole_elements(job.modelled(), layer)), needed
    )


def _copies(job: Job) -> int:
    """Further GPUs of a group, each with a copy of what is not divided."""
    return (job.tensor_parallel or 1) - 1


def repeated_flop(job: Job, layer: Layer) -> float:
    """FLOP of one sequence that the layer's backward repeats of its forward.

    Selective checkpointing keeps a fused attention's output. Of an unfused attention it keeps that output, too, and
    computes its matrices again, which takes the product of queries and keys: half of the attention's FLOP.
    """
    if job.checkpoints == "stage":
        return layer.forward_flop
    if layer.kind is not LayerKind.BLOCK or job.checkpoints == "none":
        return 0.0
    if job.checkpoints == "block":
        return layer.forward_flop
    scores = job.modelled().attention_flop / 2 if job.attention == "unfused" else 0.0
    return min(layer.selective_flop + scores, layer.forward_flop)


def moved_elements(job: Job, layer: Layer) -> float:
    """Numbers of one sequence that operators other than matrix products read and write in a forward.

    Each matrix that an unfused attention keeps is written by one operator, from another of its size.
    """
    moved = layer.moved_elements + (2 * layer.attention_elements if job.attention == "unfused" else 0)
    copies = _copies(job)
    if not copies:
        return moved
    whole = whole_elements(job.modelled(), layer) / max(layer.held_elements, 1)
    return moved + copies * whole * layer.moved_elements
