"""The share of an iteration that would remain were every message free: by it a plan is bound to computing or not."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import cast

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.efficiency import GivenEfficiency
from dtfm_lab.systems.knobs import with_batch

STEADY = 120
"""Micro-batches of a replica over which the seconds of further ones are measured, after as many before. A full pipeline
repeats itself every so many micro-batches as are under way, which divide 120 for up to six stages of 1F1B."""
FREE = 1e30
"""Bytes/s of a link on which messages take no time."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """Seconds of an iteration, and of the same iteration with free messages."""

    iteration_s: float
    free_s: float

    @property
    def computing(self) -> float:
        """The second over the first: 1 where no message keeps a device waiting."""
        return min(1.0, self.free_s / self.iteration_s) if self.iteration_s > 0 else 1.0


def share_of(plan: Plan, *, efficiency: GivenEfficiency, queueing: str) -> Share:
    """The seconds of a plan's iteration, and those of the same passes in the same order with free messages.

    Free messages are neither compressed, nor do they take latency or bandwidth, inside a group of GPUs as between
    hosts. What remains is computing, with the fill and drain of pipelines and the wait for slow devices: what a better
    network does not bring.

    An iteration of many micro-batches is not simulated whole. Once a pipeline is full, equally many more of them take
    equally long: beyond 360 of a replica the seconds are continued from two shorter iterations, exactly where the
    pattern of passes repeats itself within 120 of them, else to some thousandths.
    """

    def seconds(one: Plan) -> tuple[float, float]:
        trace = simulate(one, efficiency=efficiency, queueing=queueing)
        free = simulate(free_of(one), trace.context.recorded_schedule, efficiency=efficiency, queueing=queueing)
        return trace.iteration_s, free.iteration_s

    iteration_s, free_s = _continued(plan, seconds)
    return Share(iteration_s=iteration_s, free_s=free_s)


def _continued(plan: Plan, seconds: Callable[[Plan], tuple[float, float]]) -> tuple[float, float]:
    """The seconds of a plan, from those of two shorter iterations where it has very many micro-batches."""
    job = plan.job
    counts = job.microbatch_counts
    times = reduce(math.gcd, counts)
    step = STEADY if len(set(counts)) == 1 else STEADY // 2  # of unequal replicas in sets of several micro-batches
    step = math.lcm(step, job.flush_every or 1)
    if times < 3 * step:
        return seconds(plan)
    more = times % step + 2 * step
    one_batch = job.global_batch // times
    at_less, at_more = (seconds(plan.changed(job=with_batch(job, one_batch * n))) for n in (more - step, more))
    further = (times - more) / step
    return cast(tuple[float, float], tuple(b + further * (b - a) for a, b in zip(at_less, at_more, strict=True)))


def free_of(plan: Plan) -> Plan:
    """The plan on a network on which messages take no time, and are not compressed."""
    how = {"compression": "none", "gradient_compression": None}
    return plan.changed(topology=_free_network(plan.topology), job=plan.job.with_fields(**how))


def _free_network(topology: Topology) -> Topology:
    devices = tuple(
        one if one.gpus == 1 else replace(one, inner_latency_s=0.0, inner_bandwidth_bytes_per_s=FREE)
        for one in topology.devices
    )
    return replace(
        topology,
        devices=devices,
        latency_s=np.zeros_like(topology.latency_s),
        bandwidth_bytes_per_s=np.full_like(topology.bandwidth_bytes_per_s, FREE),
        message_bytes=None,
        message_s=None,
    )
