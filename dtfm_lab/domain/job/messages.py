"""Sizes of a job's messages, for the simulator and the emulated links alike, and the buckets of its gradients."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from dtfm_lab.domain.job.activations import repeated_flop
from dtfm_lab.domain.job.job import Job
from dtfm_lab.domain.job.model import BYTES_PER_ELEMENT, Layer
from dtfm_lab.domain.job.options import BLOCKWISE, compressed_bytes
from dtfm_lab.domain.schedule import ACROSS_STAGES, Bucket, Kind, Schedule, Step
from dtfm_lab.domain.schedule.synchronisation import LAST
from dtfm_lab.domain.units import IntArray


def message_bytes(job: Job, schedule: Schedule, step: Step) -> float:
    """Bytes that a send carries: a micro-batch's activations, a share of a gradient or, where replicas split the
    optimiser's states, of the parameters, or a tied embedding's gradient."""
    kind = step.action.kind
    if kind in ACROSS_STAGES:
        return boundary_bytes(job, schedule.n_stages)[int(boundary_of(kind, step.action.stage))]
    if kind is Kind.SEND_E:
        return job.embedding_bytes
    whole = device_average_bytes if kind is Kind.SEND_P else device_gradient_bytes
    return step.share * whole(job, schedule.n_stages)[step.action.stage]


def boundary_of(kind: Kind, stage: int | IntArray) -> Any:
    """The boundaries that messages of this kind cross at these stages, as ``Job.boundary_elements`` counts them."""
    return stage + (ACROSS_STAGES[kind] > 0)


@lru_cache(maxsize=64)
def boundary_bytes(job: Job, n_stages: int) -> tuple[float, ...]:
    """(n_stages + 1) bytes that one micro-batch sends over each of ``Job.boundary_elements``."""
    return tuple(compressed_bytes(n, job.dtype, job.compression) for n in job.boundary_elements(n_stages))


@lru_cache(maxsize=64)
def device_gradient_elements(job: Job, n_stages: int) -> tuple[int, ...]:
    """Parameters of all stages of each position in the pipeline, the model cut into ``n_stages``."""
    counts = job.parameters_of(n_stages)
    return tuple(sum(counts[position :: job.n_stages]) for position in range(job.n_stages))


@lru_cache(maxsize=64)
def device_expert_elements(job: Job, n_stages: int) -> tuple[int, ...]:
    """Of these, those of experts."""
    counts = [sum(layer.expert_elements for layer in layers) for layers in job.layers_of(n_stages)]
    return tuple(sum(counts[position :: job.n_stages]) for position in range(job.n_stages))


@lru_cache(maxsize=64)
def device_gradient_bytes(job: Job, n_stages: int) -> tuple[float, ...]:
    """Bytes in messages of the gradients of all stages of each position in the pipeline."""
    return tuple(
        compressed_bytes(n, job.gradients_in, job.gradients_as) for n in device_gradient_elements(job, n_stages)
    )


@lru_cache(maxsize=64)
def device_average_bytes(job: Job, n_stages: int) -> tuple[float, ...]:
    """Bytes in messages of what comes back of the gradients of each position: their averages, or, where replicas split
    the optimiser's states, the parameters stepped with them, which are never compressed."""
    if job.sharding in (None, "none"):
        return device_gradient_bytes(job, n_stages)
    return tuple(compressed_bytes(n, job.dtype, "none") for n in device_gradient_elements(job, n_stages))


@lru_cache(maxsize=64)
def buckets_of(job: Job, schedule: Schedule) -> tuple[tuple[Bucket, ...], ...]:
    """By position in the pipeline, the buckets in the order in which they become ready; empty without overlap.

    Layers are added from the last to the first, over the stages of a device in the order of their last backwards, and
    a bucket is closed once it holds ``bucket_bytes``, as torch's DistributedDataParallel closes its own. A layer is
    never cut.
    """
    if not job.overlap:
        return ()
    return tuple(_of_device(job, schedule, position) for position in range(schedule.n_devices))


def _of_device(job: Job, schedule: Schedule, position: int) -> tuple[Bucket, ...]:
    last, stages = _last_backwards(schedule, position), job.layers_of(schedule.n_stages)
    whole, full = job.parameters_of(schedule.n_stages), job.bucket_bytes / BYTES_PER_ELEMENT[job.gradients_in]
    n_elements = max(sum(whole[stage] for stage in last), 1)
    held: list[tuple[int, dict[int, float]]] = [(0, {})]
    """Of each bucket, its parameters and the fraction of each stage's last backward."""
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
    """The kind of each stage's last backward, the stages of a device in the order of these."""
    last: dict[int, Kind] = {}
    for action in schedule.programs[position]:
        if action.kind in LAST:
            last.pop(action.stage, None)
            last[action.stage] = action.kind
    return last


def _fractions(job: Job, layers: tuple[Layer, ...], *, recomputes: bool) -> list[float]:
    """Of each layer, the fraction of a backward that it takes, by its FLOP, with those of a block computed again before
    its own; where the stage is, the last layer begins with recomputing all."""
    flops = [layer.forward_flop for layer in layers]
    backward = job.modelled().backward.whole
    if recomputes and job.checkpoints in BLOCKWISE:
        flops = [backward * layer.forward_flop + repeated_flop(job, layer) for layer in layers]
    flop = sum(flops)
    shares = [one / flop if flop else 1 / len(layers) for one in flops]
    if recomputes and job.checkpoints == "stage":
        again = 1 / (1 + backward)
        shares = [share * (1 - again) for share in shares]
        shares[-1] += again
    return shares
