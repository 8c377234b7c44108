"""How a job cuts the gradient of each device into buckets."""

from __future__ import annotations

from functools import lru_cache

from dtfm_lab.domain.job.activations import repeated_flop
from dtfm_lab.domain.job.job import Job
from dtfm_lab.domain.job.model import BACKWARD_PER_FORWARD, BYTES_PER_ELEMENT, Layer
from dtfm_lab.domain.job.system import BLOCKWISE
from dtfm_lab.domain.schedule import Bucket, Kind, Schedule
from dtfm_lab.domain.schedule.buckets import LAST


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


def layer_elements(job: Job, n_stages: int, stage: int) -> list[int]:
    """Parameters of each layer of a stage, as its device holds them; a head's copy of a tied embedding included."""
    counts = [layer.parameters for layer in job.layers_of(n_stages)[stage]]
    counts[-1] += job.parameters_of(n_stages)[stage] - sum(counts)
    return counts


def bucket_layers(job: Job, schedule: Schedule, position: int) -> list[list[tuple[int, int]]]:
    """(stage, layer of that stage) of each bucket of one device, in the order in which their gradients become whole."""
    last = _last_backwards(schedule, position)
    elements = {stage: layer_elements(job, schedule.n_stages, stage) for stage in last}
    each_bytes = BYTES_PER_ELEMENT[job.gradients_in]
    found: list[list[tuple[int, int]]] = [[]]
    n_bytes = 0
    for stage in last:
        for layer, count in reversed(list(enumerate(elements[stage]))):
            if n_bytes >= job.bucket_bytes and count:
                found.append([])
                n_bytes = 0
            found[-1].append((stage, layer))
            n_bytes += count * each_bytes
    return found


def _last_backwards(schedule: Schedule, position: int) -> dict[int, Kind]:
    """The kind of each stage's last backward, the stages of a device in the order of these."""
    last: dict[int, Kind] = {}
    for action in schedule.programs[position]:
        if action.kind in LAST:
            last.pop(action.stage, None)
            last[action.stage] = action.kind
    return last


def _of_device(job: Job, schedule: Schedule, position: int) -> tuple[Bucket, ...]:
    last, layers = _last_backwards(schedule, position), job.layers_of(schedule.n_stages)
    elements = {stage: layer_elements(job, schedule.n_stages, stage) for stage in last}
    n_elements = max(sum(map(sum, elements.values())), 1)
    fractions = {
        stage: _fractions(job, layers[stage], recomputes=kind is Kind.BACKWARD) for stage, kind in last.items()
    }
    buckets = []
    for held in bucket_layers(job, schedule, position):
        parts: dict[int, float] = {}
        for stage, layer in held:
            parts[stage] = parts.get(stage, 0.0) + fractions[stage][layer]
        buckets.append(Bucket(sum(elements[stage][layer] for stage, layer in held) / n_elements, tuple(parts.items())))
    return tuple(buckets)


def _fractions(job: Job, layers: tuple[Layer, ...], *, recomputes: bool) -> list[float]:
    """Of each layer, the fraction of a backward that it takes, by its FLOP, with those of a block computed again before
    its own; where the stage is, the last layer begins with recomputing all."""
    flops = [layer.forward_flop for layer in layers]
    if recomputes and job.checkpoints in BLOCKWISE:
        flops = [BACKWARD_PER_FORWARD * layer.forward_flop + repeated_flop(job, layer) for layer in layers]
    flop = sum(flops)
    shares = [one / flop if flop else 1 / len(layers) for one in flops]
    if recomputes and job.checkpoints == "stage":
        again = 1 / (1 + BACKWARD_PER_FORWARD)
        shares = [share * (1 - again) for share in shares]
        shares[-1] += again
    return shares
