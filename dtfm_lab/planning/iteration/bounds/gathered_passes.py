"""Least seconds of passes whose replicas exchange gradients, and with zero-3 parameters, in every micro-batch.

A ring that gathers has R - 1 rounds, each as long as its slowest link (``GroupRings``): no less than the best link that
leaves a device, and, in a group on both sides of a cut, than the best link across in either direction. Layers follow
each other, so a pass takes no less than all its messages, and no less than computing and the message that nothing
hides: of the first layer that is gathered, of the last that is scattered (``streamed_s``).
"""

import numpy as np

from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.bounds.device_classes import DeviceClasses
from dtfm_lab.planning.iteration.bounds.stage_kinds import FIRST, MIDDLE, SOLE, StageKinds
from dtfm_lab.simulation.sharding import message_bytes_of

Seconds = tuple[FloatArray, FloatArray, FloatArray]
"""(Q, C) of the forward, the backward to the inputs and that to the weights, of one micro-batch."""


def gathered_passes(
    computing: Seconds,
    classes: DeviceClasses,
    kinds: StageKinds,
    microbatch: int,
    n_replicas: int,
    side: IntArray | None = None,
) -> Seconds:
    """The passes of ``computing``, no shorter than messages allow; of a group on both sides of a cut where ``side``
    says which classes lie where."""
    problem = classes.problem
    job = problem.job
    n_microbatches = job.global_batch // microbatch // n_replicas
    gathers = 1.0 if job.sharding == "zero-3" else 0.0
    scatters = 1.0 if job.sharding == "zero-3" else (n_microbatches - 1) / n_microbatches
    block = float(np.diff(problem.block_parameters).min())
    sizes = [message_bytes_of(job, int(n)) for n in (block, problem.first_extra[1], problem.last_extra[1])]
    once = [tuple(_ring_s(classes, n_bytes, n_replicas, side) for n_bytes in size) for size in sizes]
    embeds = (kinds.role % SOLE == FIRST) & (problem.first_extra[0:2] > 0).any()
    heads = (kinds.role > MIDDLE) & (problem.last_extra[0:2] > 0).any()
    gather_s, scatter_s = (
        times
        * (kinds.blocks[:, None] * once[0][what] + embeds[:, None] * once[1][what] + heads[:, None] * once[2][what])
        for what, times in ((0, gathers), (1, scatters))
    )
    begin_s = gathers * np.where(embeds[:, None], np.minimum(once[0][0], once[1][0]), once[0][0])
    begin_back_s = gathers * np.where(heads[:, None], np.minimum(once[0][0], once[2][0]), once[0][0])
    end_s = scatters * np.where(embeds[:, None], np.minimum(once[0][1], once[1][1]), once[0][1])
    forward_s, input_s, weight_s = computing
    splits = weight_s.any()
    forward_s = np.maximum(forward_s + begin_s, gather_s)
    if not splits:
        return forward_s, np.maximum(input_s + begin_back_s + end_s, gather_s + scatter_s), weight_s
    return forward_s, np.maximum(input_s + begin_back_s, gather_s), np.maximum(weight_s + end_s, scatter_s)


def _ring_s(classes: DeviceClasses, n_bytes: float, n_replicas: int, side: IntArray | None) -> FloatArray:
    """(C,) least seconds in which a ring with a device of each class gathers so many bytes."""
    once = classes.moving_s(n_bytes / n_replicas) + classes.latency_s
    least = once.min(axis=1)
    if side is not None:
        for here in (0, 1):
            apart = (side[:, None] == here) & (side[None, :] != here)
            least = np.maximum(least, np.where(apart, once, np.inf).min())
    found: FloatArray = (n_replicas - 1) * least
    return found
