"""Missions of the tour: plan around one slow laptop, and see who waits."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dtfm_lab.course.evidence import TRAINED, iteration_again_s, require, same_job, same_network
from dtfm_lab.course.mission import Given, NotYet, mission
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.files import load_job, load_topology
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate

LIMIT_S = 0.25


def give_hall(rng: np.random.Generator) -> Mapping[str, Any]:
    """The lecture hall, with one laptop on a slow line."""
    hall = load_topology("lecture-hall")
    slow = hall.names[int(rng.integers(len(hall)))]
    network: Topology = hall
    for name in hall.names:
        if name != slow:
            network = network.with_link(slow, name, latency_ms=60, bandwidth_gbps=0.01)
    return {"network": network, "slow": slow}


@mission(
    "one-left-the-hall",
    lesson="00_tour",
    title="One laptop has left the hall",
    takes=Plan,
    wanted="a Plan of given.network for tiny",
    give=give_hall,
    minutes=3,
    hints=(
        "Must all eight take part? What does the slow laptop bring, and what do the others wait for?",
        "`lab.load_job('tiny', n_stages=None, n_replicas=None)` leaves stages and replicas to `lab.plan`.",
    ),
    answer="""
        answer = lab.plan(given.network, lab.load_job("tiny", n_stages=None, n_replicas=None), seed=0, steps=2)
    """,
)
def one_left_the_hall(plan: Plan, given: Given) -> str:
    """In `lecture-hall`, {slow} has moved to the cafeteria, onto a line of 10 Mbit/s (`given.network`). Hand in a plan
    of that network for the job `tiny`, in any number of stages and replicas, whose iteration takes less than 0.25 s.
    """
    same_network(plan.topology, given.network)
    same_job(plan.job, load_job("tiny"), "global_batch", *TRAINED)
    iteration_s = iteration_again_s(plan)
    require(iteration_s < LIMIT_S, f"an iteration takes {iteration_s:.3f} s; wanted less than {LIMIT_S} s")
    return f"{iteration_s:.3f} s: {given.slow} is idle, and all others are faster for it. Not every device helps."


def give_waiting(rng: np.random.Generator) -> Mapping[str, Any]:
    """A plan of the lecture hall by chance, in which one device waits clearly longest."""
    hall, job = load_topology("lecture-hall"), load_job("tiny", n_stages=4, n_replicas=2)
    peaks = rng.uniform(0.02, 0.2, len(hall)).tolist()
    uneven = Topology.from_matrices(
        *hall.to_matrices(), name="uneven laptops", gpu="laptop", peak_tflops=peaks, memory_gib=16
    )
    return {"plan": evaluate(uneven, job, stages=rng.permutation(len(hall)).reshape(4, 2).tolist())}


@mission(
    "who-works-most",
    lesson="00_tour",
    title="Who works most?",
    takes=str,
    wanted="the name of a device",
    give=give_waiting,
    minutes=3,
    hints=(
        "`lab.simulate(given.plan)` is a trace. `lab.figures.gantt(trace)` draws it: whose line is fullest?",
        "`trace.bubble` has a row for each device; `busy_s` are the seconds in which it computes.",
    ),
    answer="""
        rows = lab.simulate(given.plan).bubble
        answer = rows.device[rows.busy_s.idxmax()]
    """,
)
def who_works_most(name: str, given: Given) -> str:
    """`given.plan` puts `tiny` on eight laptops of unequal speeds, placed by chance. Simulate it. Which device computes
    for most of the iteration? Hand in its name.
    """
    rows = simulate(given.plan).bubble
    require(name in set(rows.device), f"{name!r:.40} is no device of given.plan; they are {', '.join(rows.device)}")
    busy_s = rows.set_index("device").busy_s / rows.iteration_s.iloc[0]
    if busy_s[name] < busy_s.max():
        peak = {device.name: device.peak_flop_per_s for device in given.plan.topology.devices}
        because = " It is fast, so it is done early." if peak[name] == max(peak.values()) else ""
        raise NotYet(f"{name} computes for {busy_s[name]:.0%} of the iteration; another one for more.{because}")
    return f"{name} computes for {busy_s[name]:.0%} of the iteration, the mean device for {busy_s.mean():.0%}."
