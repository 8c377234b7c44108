"""What a layer keeps for its backward and computes again there, under a job's attention and checkpointing.

With ``selective`` and ``block`` checkpointing a block keeps less than its operators need, and computes the rest again,
one block at a time; the embedding and the head are not checkpointed, as in torchtitan and Megatron-LM. With ``stage``
whole stages are: what is left then is no sum over layers, and ``memory_intervals`` counts it.
"""

from __future__ import annotations

import math

from dtfm_lab.domain.job.job import Job
from dtfm_lab.domain.job.model import Layer, LayerKind
from dtfm_lab.domain.job.system import BLOCKWISE


def needed_elements(job: Job, layer: Layer) -> int:
    """Numbers that the backward of one sequence needs, whether kept or computed again."""
    return layer.held_elements + (math.ceil(layer.attention_elements) if job.attention == "unfused" else 0)


def kept_elements(job: Job, layer: Layer) -> int:
    """Numbers of one sequence that are kept from the layer's forward on; all that are needed but for checkpoints."""
    needed = needed_elements(job, layer)
    if layer.kind is not LayerKind.BLOCK or job.checkpoints not in BLOCKWISE:
        return needed
    return min(layer.selective_elements if job.checkpoints == "selective" else job.modelled().boundary_elements, needed)


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
    return layer.moved_elements + (2 * layer.attention_elements if job.attention == "unfused" else 0)
