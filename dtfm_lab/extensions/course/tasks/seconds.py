"""Missions about what the closed form does not see: overlap, and a proven plan that loses to a random one."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import counted
from dtfm_lab.extensions.course.checks import (
    MissionsOf,
    Number,
    TextValues,
    parts_of,
    plan_of,
    priced_again,
    require,
)
from dtfm_lab.extensions.course.mission import Given
from dtfm_lab.extensions.course.small_networks import of_sites
from dtfm_lab.files import load_job
from dtfm_lab.planning import plan as search_plan
from dtfm_lab.simulation import simulate

lesson = MissionsOf("07_communication_or_seconds")

FASTER = 0.95
"""The reader's other plan has to take at most this share of the proven plan's seconds."""
FAST = ("A100", "RTX 4090")
"""GPUs to choose from for the faster machine of ``give_mixed``."""
SLOW = ("V100", "T4")
"""GPUs to choose from for the slower machine."""


def give_row(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return a pipeline on devices that compute in no time, with equal links between them."""
    n_stages, n_microbatches = int(rng.integers(3, 9)), int(rng.integers(4, 40))
    network = Topology.from_matrices(
        latency_ms=np.zeros((n_stages, n_stages)),
        bandwidth_gbps=np.ones((n_stages, n_stages)),
        # So fast that only messages take time.
        peak_flop_per_s=1e24,
        memory_bytes=1e15,
        name="row",
    )
    job = load_job(
        "llama-3-8b", n_stages=n_stages, n_replicas=1, global_batch=n_microbatches, microbatch=1, schedule="gpipe"
    )
    return {"network": network, "job": job, "n_stages": n_stages, "n_microbatches": n_microbatches}


@lesson.number("charged-too-much", give=give_row)
def charged_too_much(given: Given) -> Number:
    hops, count = given.n_stages - 1, given.n_microbatches
    slips = {"endless": float(hops), "stages": given.n_stages * count / (count + given.n_stages - 1)}
    slips |= {"microbatches": float(count), "inverse": (count + hops - 1) / (hops * count)}
    text_values = {"hops": hops, "count": counted(count, "micro-batch")}
    return Number(hops * count / (count + hops - 1), slips, text_values)


def give_mixed(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return a network of two machines with four GPUs each, and a job. The GPUs of the two machines are of different
    kinds, and the devices are in random order."""
    # In random order, so that the names tell nothing.
    machine = rng.permutation(np.repeat(np.arange(2), 4))
    kinds = rng.permutation([str(rng.choice(FAST)), str(rng.choice(SLOW))]).tolist()
    between_gbps = int(rng.integers(10, 26))
    network = of_sites(
        [f"machine-{each}" for each in machine],
        (0.01, 200.0),
        (0.05, between_gbps),
        names=[f"{kinds[each].lower().replace(' ', '')}-{number}" for number, each in enumerate(machine)],
        gpu=[kinds[each] for each in machine],
        name="two-machines",
    )
    shape = {"n_stages": 4, "n_replicas": 2, "tensor_parallel": 1}
    job = load_job("gpt3-xl", **shape, global_batch=128, microbatch=1, schedule="1f1b").settled
    return {"network": network, "job": job, "between_gbps": between_gbps, "kinds": " and ".join(kinds)}


@lesson.mission("proven-and-beaten", takes=(list, tuple), give=give_mixed)
def proven_and_beaten(plans: list[Any], given: Given) -> TextValues:
    for each in parts_of(plans, "two Plans, the proven one first", Plan, Plan):
        plan_of(each, given.network, given.job)
    proven, faster = (priced_again(each) for each in plans)
    least = search_plan(
        given.network, given.job, planner="exact", objective="communication", seed=0, steps=1000
    ).cost.total_s
    require(
        proven.cost.total_s <= least * (1 + 1e-9),
        f"the first costs {proven.cost.total_s:.4f} s of communication, but a placement exists that costs less",
    )
    require(
        faster.cost.total_s > least * (1 + 1e-9),
        "the second has the least communication cost, too; wanted one with a higher communication cost",
    )
    proven_s, faster_s = simulate(proven).iteration_s, simulate(faster).iteration_s
    require(
        faster_s <= FASTER * proven_s,
        f"the second takes {faster_s:.2f} s an iteration, the first {proven_s:.2f} s; wanted at least 5 % less",
    )
    return {"faster_s": faster_s, "proven_s": proven_s, "times": faster.cost.total_s / least}
