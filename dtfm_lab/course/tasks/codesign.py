"""Missions about what makes a network compute-bound: by a plan, and by a formula."""

import math
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dtfm_lab.course.evidence import TRAINED, fresh_cases, number_from, require, same_job, same_network
from dtfm_lab.course.mission import Given, NotYet, mission
from dtfm_lab.course.small_networks import plan_of_laptops
from dtfm_lab.domain.plan import Plan
from dtfm_lab.simulation import memory, simulate
from dtfm_lab.systems.ablations import with_free_messages

MOST_BATCH = 64
TIMES = 2.0
"""Times the tokens a second of the given plan that are wanted."""


def give_bound(rng: np.random.Generator) -> Mapping[str, Any]:
    """A plan of four laptops that mostly waits for messages."""
    return {"plan": plan_of_laptops(rng)}


def seconds_of(plan: Plan) -> tuple[float, float]:
    """Seconds of the plan's iteration, and those of the same passes in the same order with free messages."""
    trace = simulate(plan, queueing=plan.queueing)
    free = plan.changed(topology=with_free_messages(plan.topology))
    return trace.iteration_s, simulate(free, trace.context.recorded_schedule, queueing=plan.queueing).iteration_s


@mission(
    "make-it-compute-bound",
    lesson="15_codesign",
    title="Make it compute-bound",
    takes=Plan,
    wanted="a Plan of the given network",
    minutes=10,
    give=give_bound,
    hints=(
        "What does twice the batch do to the seconds that compute, and what to those that synchronise?",
        "`given.plan.topology.scaled(bandwidth=1e6, latency=0)` has nearly free messages: what remains there?",
        "`lab.with_job(given.plan, global_batch=...)` keeps devices and shape.",
    ),
    answer="""
        answer = lab.with_job(given.plan, global_batch=64)
    """,
)
def make_it_compute_bound(plan: Plan, given: Given) -> str:
    """Your `plan` of four laptops computes for less than half of its iteration. Hand in a plan of the same network and
    model that is compute-bound (half of the iteration or more would remain with free messages) and trains at least
    twice as many tokens a second. All four laptops serve, messages are not rounded, gradients are averaged in every
    iteration, the sequence stays as long, and the batch is 64 at most.
    """
    same_network(plan.topology, given.plan.topology)
    same_job(plan.job, given.plan.job, *TRAINED)
    require(not plan.idle_devices, f"{len(plan.idle_devices)} laptops are idle; a single one would never wait")
    require(plan.job.global_batch <= MOST_BATCH, f"the batch is {plan.job.global_batch}; wanted {MOST_BATCH} at most")
    require(memory(plan).fits, memory(plan).sentence)
    (before_s, before_free_s), (after_s, after_free_s) = seconds_of(given.plan), seconds_of(plan)
    computing = after_free_s / after_s
    require(computing >= 0.5, f"{computing:.0%} of its iteration would remain; wanted half or more")
    times = (plan.job.tokens / after_s) / (given.plan.job.tokens / before_s)
    require(
        times >= TIMES,
        f"it is compute-bound, but trains {times:.2f} times as many tokens a second; wanted {TIMES:g}. Waiting for a "
        "pipeline to fill counts as computing, and trains nothing",
    )
    return (
        f"{before_free_s / before_s:.0%} of computing is now {computing:.0%}, and {times:.1f} times as many tokens a "
        "second. Does the loss fall as far per token? That is what lesson 13 measures."
    )


LeastBatch = Callable[[float, float, int, float], int]


@mission(
    "least-batch",
    lesson="15_codesign",
    title="The least batch, by a formula",
    takes=types.FunctionType,
    wanted="a function of (compute_s, synchronise_s, n_replicas, target) that returns a whole number of sequences",
    minutes=10,
    hints=(
        "With a batch of B over D replicas, each computes B / D sequences, one after the other.",
        "The share of computing is c B / D over (c B / D + s). Where is it the target?",
        "Round up to whole sequences of each replica: the batch is D times as many.",
    ),
    answer="""
        import math

        def least_batch(compute_s, synchronise_s, n_replicas, target):
            each = target / (1 - target) * synchronise_s / compute_s
            return n_replicas * max(1, math.ceil(each))

        answer = least_batch
    """,
)
def least_batch(function: LeastBatch, given: Given) -> str:
    """Data parallelism over equal devices: a sequence takes `compute_s` on a device, averaging the gradients
    `synchronise_s`, whatever the batch, and after the last pass. Write a function `least_batch(compute_s,
    synchronise_s, n_replicas, target)` that returns the least batch, in sequences over all replicas (as many each), of
    which at least the share `target` of an iteration is computing.
    """
    rng = fresh_cases()
    for _ in range(20):
        compute_s, synchronise_s = float(rng.uniform(0.01, 2)), float(rng.uniform(0.1, 60))
        n_replicas, target = int(rng.integers(2, 65)), float(rng.uniform(0.3, 0.95))
        found = number_from(function, compute_s, synchronise_s, n_replicas, target)
        each = max(1, math.ceil(target / (1 - target) * synchronise_s / compute_s))
        case = f"{compute_s:.3g} s, {synchronise_s:.3g} s, {n_replicas} replicas and a target of {target:.2f}"
        if found != n_replicas * each:
            slips = {
                each: "that is the batch of one replica",
                n_replicas * max(1, math.ceil(target * synchronise_s / compute_s)): "that makes computing the target's "
                "share of averaging, not of the whole iteration",
            }
            known = next((text for slip, text in slips.items() if found == slip), "")
            raise NotYet(f"for {case} it returns {found:g}" + (f": {known}" if known else ""))
    return "It does not depend on the number of replicas but for rounding: each needs t / (1 - t) s / c sequences."
