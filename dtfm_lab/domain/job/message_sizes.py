"""Sizes of messages, for the simulator and the emulated links alike."""

from functools import lru_cache

from dtfm_lab.domain.job.job import Job, compressed_bytes
from dtfm_lab.domain.schedule import ACROSS_STAGES, Kind, Schedule, Step


def message_bytes(job: Job, schedule: Schedule, step: Step) -> float:
    """Bytes that a send carries: a micro-batch's activations, a share of a gradient or, where replicas split the
    optimiser's states, of the parameters, or a tied embedding's gradient."""
    kind = step.action.kind
    if kind in ACROSS_STAGES:
        return job.activation_bytes
    if kind is Kind.SEND_E:
        return job.embedding_bytes
    whole = device_average_bytes if kind is Kind.SEND_P else device_gradient_bytes
    return step.share * whole(job, schedule.n_stages)[step.action.stage]


@lru_cache(maxsize=64)
def device_gradient_elements(job: Job, n_stages: int) -> tuple[int, ...]:
    """Parameters of all stages of each position in the pipeline, the model cut into ``n_stages``."""
    counts = job.parameters_of(n_stages)
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
