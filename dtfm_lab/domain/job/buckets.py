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


def _of_device(job: Job, schedule: Schedule, position: int) -> tuple[Bucket, ...]:
    program = schedule.programs[position]
    last = {action.stage: action.kind for action in program if action.kind in LAST}
    order = sorted(last, key=lambda stage: max(i for i, a in enumerate(program) if a.stage == stage and a.kind in LAST))
    layers = job.layers_of(schedule.n_stages)
    elements = {stage: layer_elements(job, schedule.n_stages, stage) for stage in order}
    n_elements = sum(map(sum, elements.values()))
    each_bytes = BYTES_PER_ELEMENT[job.gradients_in]
    found: list[tuple[int, dict[int, float]]] = [(0, {})]
    for stage in order:
        fractions = _fractions(job, layers[stage], recomputes=last[stage] is Kind.BACKWARD)
        for count, fraction in zip(reversed(elements[stage]), reversed(fractions), strict=True):
            n, parts = found[-1]
            if n * each_bytes >= job.bucket_bytes and count:
                n, parts = 0, {}
                found.append((n, parts))
            parts[stage] = parts.get(stage, 0.0) + fraction
            found[-1] = n + count, parts
    return tuple(Bucket(n / max(n_elements, 1), tuple(parts.items())) for n, parts in found)


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
