"""Bytes that operators other than matrix products move through a device's memory, and the seconds that takes.

Norms, activation functions, residuals, the loss, and the elementwise parts of an unfused attention do so little
arithmetic that they take as long as memory takes to be read and written; so does the optimiser's step.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dtfm_lab.domain.errors import JobError
from dtfm_lab.domain.job import BYTES_PER_ELEMENT, Job, Layer, LayerKind, moved_elements
from dtfm_lab.domain.network import Device, hardware_of
from dtfm_lab.simulation.memory_intervals import static_memory
from dtfm_lab.simulation.sharding import sharded_over

BACKWARD_READS = 1.5
"""Numbers moved in a backward for one in a forward: an operator that read one and wrote one reads the gradient of what
it wrote and what it kept, and writes a gradient."""


class Traffic(NamedTuple):
    """Of one micro-batch over one stage, bytes or seconds."""

    forward: float
    backward: float
    again: float
    """Of what is recomputed in the backward."""

    def over(self, bytes_per_s: float) -> "Traffic":
        """The seconds of these bytes."""
        return Traffic(*(n_bytes / bytes_per_s for n_bytes in self))


NO_TRAFFIC = Traffic(0.0, 0.0, 0.0)


def stage_traffic(job: Job, layers: Sequence[Layer]) -> Traffic:
    """Bytes that the layers of a stage move for one micro-batch.

    Checkpointed blocks, or stages, move in their recomputation what they moved in their forward.
    """
    each = job.microbatch * BYTES_PER_ELEMENT[job.dtype]
    forward = each * sum(moved_elements(job, layer) for layer in layers)
    repeated = {"none": [], "stage": layers}.get(
        job.checkpoints, [layer for layer in layers if layer.kind is LayerKind.BLOCK]
    )
    return Traffic(forward, BACKWARD_READS * forward, each * sum(moved_elements(job, layer) for layer in repeated))


def unweighted(job: Job, layers: Sequence[Layer]) -> float:
    """FLOP of a forward of one sequence that multiply no weights, but queries, keys and values.

    The second half of a split backward, which makes the weights' gradients, has none of their backward.
    """
    attention = job.modelled().attention_flop
    return sum(min(attention, layer.forward_flop) for layer in layers if layer.attention_elements)


def step_traffic_bytes(job: Job, n_stages: int) -> tuple[float, ...]:
    """Per position in the pipeline, bytes of the optimiser's step: parameters, gradients and states are read and
    written once, gradients as zeros. Where replicas split the states, each steps its shard alone; with zero-1 it still
    holds the whole gradient, which it zeroes."""
    whole = static_memory(job.with_fields(sharding="none"), n_stages)
    over = sharded_over(job.sharding, job.n_replicas)
    stepped = (2 * whole.total - whole.gradients) / over.optimizer
    zeroed = whole.gradients / over.gradients
    return tuple((stepped + zeroed).tolist())


def memory_bandwidth_of(device: Device) -> float:
    """Bytes per second, from the table of hardware. Raises JobError for a GPU that is not in it."""
    known = hardware_of(device.gpu)
    if known is None:
        raise JobError(
            f"device {device.name}: the memory bandwidth of GPU {device.gpu} is unknown; memory_traffic wants a GPU of "
            f"the table of hardware"
        )
    return device.gpus * known.memory_bytes_per_s
