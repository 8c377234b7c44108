"""Missions about data parallelism and pipelines: count bytes by hand, and find a placement that sends few between
cities."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import LINK_SEPARATOR, Trace
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.extensions.course.checks import MissionsOf, Number, TextValues, plan_of, require
from dtfm_lab.extensions.course.mission import Given
from dtfm_lab.extensions.course.small_networks import of_sites
from dtfm_lab.files import load_job
from dtfm_lab.simulation import simulate

lesson = MissionsOf("03_data_and_pipeline")


def give_shape(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return the sizes of a model of equal blocks, and its numbers of stages and replicas."""
    n_stages = int(rng.integers(3, 9))
    return {
        "n_stages": n_stages,
        "n_replicas": int(rng.integers(3, 9)),
        "blocks": n_stages * int(rng.integers(2, 7)),
        "block_millions": int(rng.integers(5, 90)),
        "width": 512 * int(rng.integers(1, 9)),
        "tokens": 512 * int(rng.integers(1, 5)),
        "batch": 64 * int(rng.integers(1, 20)),
    }


@lesson.number("bytes-by-hand", give=give_shape)
def bytes_by_hand(given: Given) -> Number:
    parameters = given.blocks * given.block_millions * 1e6
    gradients = 2 * (given.n_replicas - 1) * parameters * 2 / 1e9
    activations = 2 * (given.n_stages - 1) * given.batch * given.tokens * given.width * 2 / 1e9
    stages, replicas = given.n_stages, given.n_replicas
    slips = {"one_way": (gradients + activations) / 2, "no_activations": gradients, "no_gradients": activations}
    slips |= {"averages_stay": gradients / 2 + activations, "gradients_stay": gradients + activations / 2}
    slips |= {"one_stage": gradients / stages + activations, "every_replica": gradients + activations * replicas}
    slips |= {"own_part": gradients / (replicas - 1) * replicas + activations}
    slips |= {"own_boundary": gradients + activations / (stages - 1) * stages}
    return Number(gradients + activations, slips, {"gradients": gradients, "activations": activations})


def bytes_between_regions(trace: Trace, topology: Topology) -> float:
    """Return the bytes of a trace's messages between regions: the seconds for which they occupy a link, times its
    bandwidth."""
    region = {device.name: device.region for device in topology.devices}
    rows = trace.to_frame()
    sends = rows[rows["kind"].str.startswith("SEND")]
    total = 0.0
    for link, seconds in (sends["end_s"] - sends["start_s"]).groupby(sends["link"]).sum().items():
        source, target = str(link).split(LINK_SEPARATOR)
        if region[source] != region[target]:
            total += float(seconds * topology.bandwidth_bytes_per_s[topology.index(source), topology.index(target)])
    return total


SWAPS = 1500
"""Number of swaps that one hill climb tries."""
SIZES = ((7, 5, 4), (8, 5, 3), (6, 6, 4), (9, 4, 3), (7, 6, 3))


def give_islands(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return sixteen devices in three cities of unequal size, in random order, a job, and the maximum GB that the
    answer may send between cities: 2 % more than the best placement found."""
    names = [
        name
        for name, n in zip(("Oslo", "Rome", "Lima"), rng.permutation(rng.choice(SIZES)), strict=True)
        for _ in range(n)
    ]
    # In random order, so that device numbers do not give the cities away.
    regions = [names[i] for i in rng.permutation(16)]
    network = of_sites(regions, (1.0, 10.0), (80.0, 0.5), name="three cities", gpu="A100")
    job = load_job(
        "gpt3-xl",
        n_stages=4,
        n_replicas=4,
        tensor_parallel=1,
        global_batch=4 * int(rng.integers(20, 100)),
        microbatch=4,
        dtype="fp16",
        schedule="1f1b",
        recompute=True,
    ).settled
    number = np.unique(regions, return_inverse=True)[1]
    # From three starts, because one climb may end on a small hill.
    best = min(_climbed(job, number, rng) for _ in range(3))
    return {"network": network, "job": job, "limit_gb": round(1.02 * best / 1e9, 1)}


def _climbed(job: Job, regions: IntArray, rng: np.random.Generator) -> float:
    """Improve a random placement by hill climbing and return its bytes between regions. A swap of two devices is kept
    if it sends no more bytes."""
    placement = rng.permutation(len(regions)).reshape(job.n_stages, job.n_replicas)
    best = _bytes_sent(job, regions[placement])
    for _ in range(SWAPS):
        a, b = rng.integers(placement.size, size=2)
        swapped = placement.copy()
        swapped.flat[a], swapped.flat[b] = placement.flat[b], placement.flat[a]
        if (now := _bytes_sent(job, regions[swapped])) <= best:
            placement, best = swapped, now
    return best


def _bytes_sent(job: Job, region: IntArray) -> float:
    """Return the bytes sent between regions in one iteration, if stage s of pipeline r is in ``region[s, r]``.

    It counts the shards of each stage's gradients and averages, and each pipeline's hops in both directions. It also
    counts the tied embedding's gradient between the first and the last stage.
    """
    gradients: FloatArray = np.array(job.stage_gradient_bytes) / job.n_replicas
    apart = (region[:, :, None] != region[:, None, :]).sum(axis=(1, 2))
    hops = (region[1:] != region[:-1]).sum() * 2 * job.n_microbatches * job.activation_bytes
    ends = (region[0] != region[-1]).sum() * 2 * job.embedding_bytes
    return float(2 * (gradients * apart).sum() + hops + ends)


@lesson.mission("keep-it-home", takes=Plan, give=give_islands)
def keep_it_home(plan: Plan, given: Given) -> TextValues:
    plan_of(plan, given.network, given.job)
    crossing_gb = bytes_between_regions(simulate(plan), given.network) / 1e9
    require(crossing_gb <= given.limit_gb, f"{crossing_gb:.1f} GB cross; wanted at most {given.limit_gb} GB")
    return {"crossing_gb": crossing_gb}
