"""Whether a plan can fit at all, from the least that its devices hold: what most plans that do not fit fail by."""

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import IntArray, format_bytes
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.memory_intervals import activation_memory, memory_limits, static_memory
from dtfm_lab.systems.bound import INTERLEAVED


def fits(plan: Plan) -> bool:
    """``memory(plan).fits``, found on as few micro-batches as have the same peak.

    1F1B holds the most once its pipeline is full, and GPipe that flushes the most in each of its rounds.
    """
    if least_lacking_bytes(plan):
        return False
    job = plan.job
    n_full = {"1f1b": 2 * job.n_stages + 2, "gpipe": 2 * (job.flush_every or job.n_microbatches)}.get(job.schedule_name)
    uneven = len(set(job.microbatch_counts)) > 1
    if n_full is None or uneven or n_full >= job.n_microbatches or job.n_stages == 1:  # whose graph is built already
        return memory(plan).fits
    fewer = job.with_fields(global_batch=n_full * job.n_replicas * job.microbatch, microbatches_per_replica=None)
    return memory(plan.changed(job=fewer)).fits


def least_lacking_bytes(plan: Plan) -> float:
    """Bytes that the worst device lacks for the least that it holds; 0 where the plan may fit."""
    return float(_over(plan).max())


def sentence_of(plan: Plan) -> str:
    """What the worst device of a plan that does not fit needs and has."""
    over = _over(plan)
    if not over.any():
        return memory(plan).sentence
    at = np.unravel_index(int(np.argmax(over)), over.shape)
    name, limit = plan.device_names[at[0]][at[1]], int(memory_limits(plan)[at])
    n_over, n = int(np.count_nonzero(over)), over.size
    do = "does" if n_over == 1 else "do"
    return (
        f"{name} needs at least {format_bytes(limit + int(over[at]))} and has {format_bytes(limit)} "
        f"({format_bytes(int(over[at]))} over; {n_over} of {n} devices {do} not fit)"
    )


def _over(plan: Plan) -> IntArray:
    """(positions, replicas) bytes that devices lack for the least that they hold."""
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
    """Micro-batches whose activations a stage holds at the beginning of its first backward, of the shortest pipeline;
    1 where the schedule is not known to hold more."""
    fewest = min(job.microbatch_counts)
    match job.schedule_name:
        case "1f1b":
            return min(job.n_stages - stage, fewest)
        case "gpipe":
            return min(fewest, job.flush_every or fewest)
    return 1
