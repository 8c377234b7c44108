"""Missions about what the closed form does not see: overlap, and a proven plan that loses to chance."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dtfm_lab.course.checks import (
    MissionsOf,
    Number,
    iteration_again_s,
    parts_of,
    plan_of,
    priced_again,
    require,
)
from dtfm_lab.course.mission import Given
from dtfm_lab.course.small_networks import of_sites
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.files import load_job
from dtfm_lab.planning import plan as search_plan

lesson = MissionsOf("07_communication_or_seconds")

FASTER = 0.95
"""Seconds of the plan that wins by chance, at most, as a share of the proven plan's."""
FAST, SLOW = ("A100", "RTX 4090"), ("V100", "T4")


def give_row(rng: np.random.Generator) -> Mapping[str, Any]:
    """A pipeline over equal links between devices that compute in no time."""
    n_stages, n_microbatches = int(rng.integers(3, 9)), int(rng.integers(4, 40))
    network = Topology.from_matrices(
        latency_ms=np.zeros((n_stages, n_stages)),
        bandwidth_gbps=np.ones((n_stages, n_stages)),
        peak_flop_per_s=1e24,
        memory_bytes=1e15,
        name="row",
    )
    job = load_job(
        "llama-3-8b", n_stages=n_stages, n_replicas=1, global_batch=n_microbatches, microbatch=1, schedule="gpipe"
    )
    return {"network": network, "job": job, "n_stages": n_stages, "n_microbatches": n_microbatches}


@lesson.number(
    "charged-too-much",
    title="What overlap saves",
    wanted="a ratio: communication cost over seconds",
    give=give_row,
    hints=(
        "Let one micro-batch take 1 over a link. The closed form sends all of them over every hop, hop after hop.",
        "In a pipeline the second micro-batch crosses the first hop while the first one crosses the second hop.",
        "When does the last of M micro-batches arrive behind H hops? Backwards it is the same.",
    ),
    answer="""
        plan = lab.evaluate(given.network, given.job, stages=[[device] for device in range(given.n_stages)])
        answer = plan.cost.total_s / lab.simulate(plan).iteration_s
    """,
)
def charged_too_much(given: Given) -> Number:
    """One pipeline of {n_stages} stages over equal links without latency, {n_microbatches} micro-batches by `gpipe`, on
    devices that compute in no time. How many times the seconds of the iteration does the closed form charge?
    (`lab.missions.given("charged-too-much")` has the `network` and the `job`, if you would rather ask the simulator.)
    """
    hops, count = given.n_stages - 1, given.n_microbatches
    return Number(
        hops * count / (count + hops - 1),
        f"{hops} hops x {count} micro-batches against {count} + {hops} - 1: with many micro-batches the closed form "
        "charges every hop, and a pipeline waits for about one.",
        slips={
            float(hops): "that is for endlessly many micro-batches; the pipeline has to fill and drain",
            given.n_stages * count / (count + given.n_stages - 1): "so many stages have one hop less",
            float(count): "more micro-batches do not save more than there are hops",
            (count + hops - 1) / (hops * count): "that is the seconds over the cost; wanted the other way round",
        },
    )


def give_mixed(rng: np.random.Generator) -> Mapping[str, Any]:
    """Two machines with four GPUs each, of two kinds, listed in any order."""
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
    job = load_job("gpt3-xl", n_stages=4, n_replicas=2, global_batch=128, microbatch=1, schedule="1f1b")
    return {"network": network, "job": job, "between_gbps": between_gbps, "kinds": " and ".join(kinds)}


@lesson.mission(
    "proven-and-beaten",
    title="A proven plan that loses to chance",
    takes=(list, tuple),
    wanted="a list of two Plans: the proven one, and one that is faster",
    minutes=10,
    give=give_mixed,
    hints=(
        'The first: `lab.plan(..., planner="exact", objective="communication")` until its gap is 0.',
        "The second: `lab.evaluate(given.network, given.job, groups=...)` of a random permutation of the devices.",
        "Try some tens of permutations and keep the one whose `iteration_s` is least.",
    ),
    answer="""
        import numpy as np
        proven = lab.plan(given.network, given.job, planner="exact", objective="communication", seed=0, steps=1000)
        rng = np.random.default_rng(0)
        by_chance = [
            lab.evaluate(given.network, given.job, groups=rng.permutation(8).reshape(4, 2).tolist()) for _ in range(40)
        ]
        answer = [proven, min(by_chance, key=lambda plan: plan.iteration_s)]
    """,
)
def proven_and_beaten(plans: list[Any], given: Given) -> str:
    """`given = lab.missions.given("proven-and-beaten")` has a `network` of two machines with four GPUs each ({kinds}),
    {between_gbps} Gbit/s between the machines, and a `job` of 4 stages x 2 replicas. Hand in two plans for them,
    `[proven, faster]`: the first of the least communication cost that any placement has, the second dearer than that in
    communication, yet at least 5 % faster in seconds. The cut into stages and the shares of the batch stay as they are.
    """
    for each in parts_of(plans, "two Plans, the proven one first", Plan, Plan):
        plan_of(each, given.network, given.job)
    proven, faster = (priced_again(each) for each in plans)
    least = search_plan(
        given.network, given.job, planner="exact", objective="communication", seed=0, steps=1000
    ).cost.total_s
    require(
        proven.cost.total_s <= least * (1 + 1e-9),
        f"the first costs {proven.cost.total_s:.4f} s of communication, and a placement exists that costs less",
    )
    require(
        faster.cost.total_s > least * (1 + 1e-9),
        "the second has the least communication cost, too; wanted one that is dearer in communication",
    )
    proven_s, faster_s = iteration_again_s(proven), iteration_again_s(faster)
    require(
        faster_s <= FASTER * proven_s,
        f"the second takes {faster_s:.2f} s an iteration, the first {proven_s:.2f} s; wanted at least 5 % less",
    )
    return (
        f"{faster_s:.2f} s instead of {proven_s:.2f} s, with {faster.cost.total_s / least:.1f} times the communication "
        "cost. The proof was right: about a number that has no computation in it."
    )
