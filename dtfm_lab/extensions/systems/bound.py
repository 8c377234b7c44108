"""Lower bounds of a plan's iteration time and memory, without simulating it.

``choosing`` uses them to drop plans that cannot be the best or cannot fit.

A device starts its first forward once the stages before it have passed on one micro-batch. It then computes all of its
passes, and waits for its sends if they block. After its last backward, the stages before it compute theirs, and the
slowest group averages its gradients. Messages that queue for a link or a NIC, coding, and the exchange of tied
embeddings can only add to this.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtfm_lab.costs.efficiency import GivenEfficiency
from dtfm_lab.costs.memory import activation_memory, memory_limits, static_memory
from dtfm_lab.costs.seconds import NOTHING, RING, pass_times, ring_link_s, ring_rounds, ring_share, shard, way_of
from dtfm_lab.domain.job import Job, boundary_bytes, device_average_bytes, device_gradient_bytes
from dtfm_lab.domain.network import Links
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Kind
from dtfm_lab.domain.units import FloatArray, IntArray, counted, format_bytes
from dtfm_lab.simulation.memory import MemoryReport, may_use, memory

IN_ORDER = ("gpipe", "1f1b", "adaptive-1f1b")
"""Schedules with one stage per device, in which a backward is a single pass."""
INTERLEAVED = "interleaved-1f1b"


def least_iteration_s(plan: Plan, efficiency: GivenEfficiency = None, queueing: str = "pairs") -> float:
    """Return a lower bound of the simulated iteration time in seconds, for these links and this efficiency.

    0 if no bound is known, as for a schedule that you registered. Raises the errors that ``simulate`` raises for the
    job and the efficiency.
    """
    job = plan.job
    in_order = job.schedule_name in IN_ORDER
    # Only for these orders it is known what each device does between the first and the last pass.
    if not in_order and job.schedule_name != INTERLEAVED:
        return 0.0
    n_stages = job.n_stages * (1 if in_order else job.stages_per_device)
    links = Links.of(plan.topology, queueing)
    forward_s, backward_s = _passes(plan, n_stages, efficiency, links)
    n_passes = np.array(job.microbatch_counts, dtype=float)
    busy_s = n_passes * (forward_s + backward_s).reshape(-1, job.n_stages, job.n_replicas).sum(axis=0)
    first = slice(0, job.n_stages)  # each device's first stage
    n_bytes = np.array(boundary_bytes(job, n_stages))[1 : job.n_stages, None]
    hops = NeighbourMessages.of(plan.placement.devices, n_bytes, links)
    # Nothing starts on a stage before the first message has passed all those before it.
    arrival_s = behind(forward_s[first] + hops.onward_s)
    if not in_order:
        return float((arrival_s + busy_s).max())
    if job.transport != "overlapped":  # the device waits for what it sends
        busy_s += n_passes * hops.onward_s + (n_passes - 1) * hops.back_s
    if job.schedule_name == "1f1b":  # few micro-batches are in flight, so round trips can take longer than the passes
        busy_s = np.maximum(busy_s, rounds_s(forward_s + backward_s, hops.onward_s + hops.back_after_s, n_passes))
    average_s = _average_s(job, plan, links)
    return float(
        max(
            (arrival_s + busy_s + np.maximum(behind(backward_s + hops.back_after_s) + average_s[0], average_s)).max(),
            _bucketed_s(job, plan, links, arrival_s + busy_s - backward_s),
        )
    )


def rounds_s(pass_s: FloatArray, hop_s: FloatArray, n_passes: FloatArray) -> FloatArray:
    """Return (stages, replicas): a lower bound of the seconds from a device's first forward to its last backward with
    1F1B.

    A device holds at most as many micro-batches as there are stages from it to the end. It starts another when the
    oldest returns, so round trips follow each other. ``hop_s`` is the time of an activation to the next stage plus the
    time of its gradient back; it is 0 for the last stage.
    """
    n_stages = len(pass_s)
    there_and_back_s = np.cumsum((pass_s + hop_s)[::-1], axis=0)[::-1]
    found: FloatArray = np.ceil(n_passes / np.arange(n_stages, 0, -1)[:, None]) * there_and_back_s
    return found


def _passes(plan: Plan, n_stages: int, efficiency: GivenEfficiency, links: Links) -> tuple[FloatArray, FloatArray]:
    """Return (stages, replicas) seconds of a forward, and (stages, replicas) seconds of a whole backward."""
    shape = n_stages, plan.job.n_replicas
    found = {Kind.FORWARD: np.zeros(shape), Kind.BACKWARD: np.zeros(shape)}
    for row in pass_times(plan, n_stages, efficiency, links):
        if row.kind in found:
            found[row.kind][row.stage, row.replica] = row.seconds
    return found[Kind.FORWARD], found[Kind.BACKWARD]


def behind(seconds: FloatArray) -> FloatArray:
    """Return (stages, replicas): for each stage, the sum of ``seconds`` over the stages before it."""
    return np.vstack([np.zeros((1, seconds.shape[1])), np.cumsum(seconds, axis=0)[:-1]])


class NeighbourMessages(NamedTuple):
    """Messages between neighbouring stages of a pipeline. Each array is (stages, replicas), and 0 where there is no
    message."""

    onward_s: FloatArray
    """Seconds of a message from stage s to s + 1, until it has arrived."""
    back_s: FloatArray
    """Seconds of a message from stage s to s - 1, until it has arrived."""
    onward_moving_s: FloatArray
    """The part of ``onward_s`` for which the message occupies its link."""
    back_moving_s: FloatArray

    @property
    def back_after_s(self) -> FloatArray:
        """Seconds of a message from stage s + 1 to s, until it has arrived."""
        return np.vstack([self.back_s[1:], np.zeros((1, self.back_s.shape[1]))])

    @classmethod
    def of(cls, devices: IntArray, n_bytes: float | FloatArray, links: Links) -> NeighbourMessages:
        """Return the messages of ``n_bytes`` bytes between (stages, replicas) devices. The size is one number, or
        (stages - 1, 1) numbers."""
        here, there = devices[:-1], devices[1:]
        none = np.zeros((1, devices.shape[1]))
        onward, back = links.moving_s(here, there, n_bytes), links.moving_s(there, here, n_bytes)
        return cls(
            np.vstack([onward + links.latency_s[here, there], none]),
            np.vstack([none, back + links.latency_s[there, here]]),
            np.vstack([onward, none]),
            np.vstack([none, back]),
        )


def _synchronises(job: Job) -> bool:
    """True if every iteration ends by averaging whole gradients among replicas."""
    return job.n_replicas > 1 and job.synchronise_every == 1 and way_of(job) != NOTHING


def _average_s(job: Job, plan: Plan, links: Links) -> FloatArray:
    """Return (stages, replicas): minimum seconds from a replica's last backward until its group has averaged."""
    shape = plan.placement.devices.shape
    if not _synchronises(job) or job.overlap or way_of(job) != RING:
        return np.zeros(shape)
    sums, averages = (
        shard(np.array(sizes)[:, None], job.n_replicas)
        for sizes in (device_gradient_bytes(job, job.n_stages), device_average_bytes(job, job.n_stages))
    )
    here, there = plan.placement.devices, np.roll(plan.placement.devices, -1, axis=1)
    latency_s = links.latency_s[here, there]
    slower = links.slower(here)[:, None]
    summed_s, spread_s = (
        slower * links.moving_s(here, there, np.broadcast_to(size, shape)) for size in (sums, averages)
    )
    rounds = ring_rounds(job.n_replicas)
    on_link_s = ring_link_s(job.n_replicas, summed_s, spread_s, latency_s)
    # a shard goes round the ring twice, to be summed and to be spread: n - 1 hops each, from its own start
    around = np.arange(rounds)[None, :] + np.arange(job.n_replicas)[:, None]
    summing_s = (summed_s + latency_s)[:, around % job.n_replicas].sum(axis=2)
    spreading_s = (spread_s + latency_s)[:, (around + rounds) % job.n_replicas].sum(axis=2)
    least_s: FloatArray = np.maximum(on_link_s, summing_s + spreading_s)
    return least_s


def _bucketed_s(job: Job, plan: Plan, links: Links, last_backward_s: FloatArray) -> float:
    """Return the lower bound in seconds if averaging over a ring overlaps the last backward; 0 if it does not, or if
    messages have measured times.

    For each device, the bound is the start of its last backward plus the time of all buckets on its link of the ring.
    The largest one is returned.
    """
    if not _synchronises(job) or not job.overlap or way_of(job) != RING:
        return 0.0
    here, there = plan.placement.devices, np.roll(plan.placement.devices, -1, axis=1)
    n_bytes = ring_share(job.n_replicas) * (
        np.array(device_gradient_bytes(job, job.n_stages)) + np.array(device_average_bytes(job, job.n_stages))
    )
    if links.message_bytes is not None:  # measured times depend on the sizes of buckets, which are unknown here
        return 0.0
    return float((last_backward_s + links.slower(here)[:, None] * links.moving_s(here, there, n_bytes[:, None])).max())


def fits(plan: Plan) -> bool:
    """Return ``memory(plan).fits``, quickly."""
    return not least_lacking_bytes(plan) and peak_memory(plan).fits


def peak_memory(plan: Plan) -> MemoryReport:
    """Return what the plan's devices hold, with the fewest micro-batches that reach the same peak, to be quick.

    1F1B holds the most once its pipeline is full. GPipe with flushes holds the most in each of its rounds. For other
    schedules, and for pipelines with unequal numbers of micro-batches, all micro-batches count.
    """
    job = plan.job
    # The peak is reached once the pipeline is full, so more micro-batches only cost time.
    n_full = {"1f1b": 2 * job.n_stages + 2, "gpipe": 2 * (job.flush_every or job.n_microbatches)}.get(job.schedule_name)
    uneven = len(set(job.microbatch_counts)) > 1
    if n_full is None or uneven or n_full >= job.n_microbatches or job.n_stages == 1:  # nothing to shorten
        return memory(plan)
    fewer = job.with_fields(global_batch=n_full * job.n_replicas * job.microbatch, microbatches_per_replica=None)
    return memory(plan.changed(job=fewer))


def least_lacking_bytes(plan: Plan) -> float:
    """Return how many bytes the worst device lacks of the minimum that it needs; 0 if the plan may fit."""
    return float(_over(plan).max())


def sentence_of(plan: Plan) -> str:
    """Say what the worst device of a plan that does not fit needs, and what it may use."""
    over = _over(plan)
    if not over.any():
        return memory(plan).sentence
    at = np.unravel_index(int(np.argmax(over)), over.shape)
    name, limit = plan.device_names[at[0]][at[1]], int(memory_limits(plan)[at])
    n_over, n = int(np.count_nonzero(over)), over.size
    do = "does" if n_over == 1 else "do"
    return (
        f"{name} needs at least {format_bytes(limit + int(over[at]))} "
        f"and {may_use(plan, int(plan.placement.devices[at]), limit)} "
        f"({format_bytes(int(over[at]))} over; {n_over} of {counted(n, 'device')} {do} not fit)"
    )


def _over(plan: Plan) -> IntArray:
    """Return (places in the pipeline, replicas): how many bytes each device lacks of the minimum that it needs."""
    job = plan.job
    n_stages = job.n_stages * (job.stages_per_device if job.schedule_name == INTERLEAVED else 1)
    of = activation_memory(job, n_stages)
    held = static_memory(job, n_stages).total
    for stage in range(n_stages):
        least = _in_flight(job, stage) * int(of.kept[stage]) + int(of.recomputed[stage])
        if n_stages == job.n_stages:
            held[stage] += least
    over: IntArray = np.maximum(held[:, None] - memory_limits(plan), 0)
    return over


def _in_flight(job: Job, stage: int) -> int:
    """Return the number of micro-batches whose activations a stage holds when its first backward starts, in the replica
    with the fewest micro-batches.

    1 for schedules that are not known to hold more.
    """
    fewest = min(job.microbatch_counts)
    match job.schedule_name:
        case "1f1b":
            return min(job.n_stages - stage, fewest)
        case "gpipe":
            return min(fewest, job.flush_every or fewest)
    return 1
