"""Missions about the order of passes, and about what fills a device's memory."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_share
from dtfm_lab.extensions.course.checks import (
    TRAINED,
    MissionsOf,
    Number,
    TextValues,
    Trial,
    fits,
    plan_of,
    require,
)
from dtfm_lab.extensions.course.mission import Given
from dtfm_lab.extensions.course.small_networks import equal_profile, row
from dtfm_lab.files import load_job
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.schedules import build_named, peak_activations, schedules

orders = MissionsOf("08_schedules")

ROUNDING = 1.001
"""An iteration up to this many times as long as another counts as equally long: the bytes of messages take a little
time in addition to latency."""


def give_pipeline(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return the numbers of stages and micro-batches of a pipeline, and the milliseconds of its passes."""
    return {
        "n_stages": int(rng.integers(5, 25)),
        "n_microbatches": int(rng.integers(30, 130)),
        "forward_ms": int(rng.integers(10, 60)),
        "backward_ms": int(rng.integers(61, 120)),
    }


@orders.number("bubble-share", give=give_pipeline)
def bubble_share(given: Given) -> Number:
    idle, working = given.n_stages - 1, given.n_microbatches
    wanted = idle / (working + idle)
    slips = {"per_cent": 100 * wanted, "of_work": idle / working, "at_work": 1 - wanted}
    slips |= {"first_device": given.n_stages / (working + given.n_stages)}
    text_values = {"share": format_share(wanted), "half": format_share(idle / (2 * working + idle))}
    return Number(wanted, slips, text_values, within=0.002)


def give_slow_row(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return a row of unequal slow links. Forwards take 1 s and backwards 2 s."""
    n_devices, n_microbatches = int(rng.integers(6, 9)), int(rng.integers(48, 64))
    # if hops filled whole turns, rounding would decide
    hops_s = [float(rng.choice([0.4, 0.8, 1.2, 1.8, 2.2, 2.6])) for _ in range(n_devices - 1)]
    return {
        "plan": row(hops_s, n_microbatches),
        "profile": equal_profile(n_devices),
        "hops_s": hops_s,
        "most": sum(_turns(hop_s) for hop_s in hops_s) + 1,
    }


def _turns(hop_s: float) -> int:
    """Return how many turns pass until a micro-batch is back from the next device. A turn is a forward and a backward
    pass, 3 s together."""
    return int(np.ceil((3 + 2 * hop_s) / 3))


@orders.mission("deep-enough", takes=(list, tuple), give=give_slow_row)
def deep_enough(warmups: list[int], given: Given) -> TextValues:
    job = given.plan.job
    numbers = [int(each) for each in warmups if isinstance(each, (int, np.integer)) and not isinstance(each, bool)]
    require(len(numbers) == len(warmups), "warm-ups are whole numbers, one for each device")
    schedule = build_named("adaptive-1f1b", job.n_stages, job.n_microbatches, {"warmups": lambda: numbers})
    held = peak_activations(schedule)[0]
    require(held <= given.most, f"the first device holds {held} activations; wanted at most {given.most}")
    found_s = simulate(given.plan, schedule, profile=given.profile).iteration_s
    shortest_s = simulate(given.plan, "gpipe", profile=given.profile).iteration_s
    require(
        # A little rounding is allowed, since equal orders may add up differently.
        found_s <= ROUNDING * shortest_s,
        f"it takes {found_s:.1f} s with {held} activations; GPipe takes {shortest_s:.1f} s",
    )
    return {"found_s": found_s, "held": held, "n_microbatches": job.n_microbatches}


filling = MissionsOf("09_memory")

GIB = 2**30
SLOWER = 1.03


def give_sharded(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return a stage's number of parameters, and the number of replicas over which its states are sharded."""
    return {"millions": int(rng.integers(100, 2000)), "n_replicas": int(rng.choice([4, 6, 8, 12, 16]))}


@filling.number("sixteen-bytes", give=give_sharded)
def sixteen_bytes(given: Given) -> Number:
    count, over = given.millions * 1e6, given.n_replicas
    wanted = count * (4 + 12 / over)
    slips = {"no_zero": count * 16, "zero_3": count * 16 / over, "zero_2": count * (2 + 14 / over)}
    slips |= {"no_copy": count * (4 + 8 / over), "fp32": count * (8 + 8 / over)}
    slips |= {"in_gib": wanted / GIB, "in_gb": wanted / 1e9}
    return Number(wanted, slips, {"gib": wanted / GIB, "whole_gib": 16 * count / GIB}, within=0.002)


@filling.function("most-held")
def most_held(rng: np.random.Generator) -> Iterator[Trial]:
    for name in ("gpipe", "1f1b", "zb-h1", "zb-h1"):
        n_devices = int(rng.integers(3, 14))
        n_microbatches = n_devices + int(rng.integers(1, 12))
        schedule = schedules[name](n_devices, n_microbatches)
        at = int(rng.integers(0, n_devices))
        order, wanted = schedule.orders[at], peak_activations(schedule)[at]
        shown = order if len(order) < 60 else order[:57] + "..."
        yield Trial((order,), wanted, about=f"of {name}'s {shown!r} (device {at} of {n_devices})")


def give_small_devices(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return eight GPUs with less memory than GPipe needs, in a row of slow links."""
    latency_ms, gbps = float(rng.integers(10, 30)), int(rng.integers(10, 26))
    network = Topology.from_matrices(
        np.full((8, 8), latency_ms), np.full((8, 8), gbps), name="eight-small-ones", gpu="V100", memory_bytes=16 * GIB
    )
    job = load_job(
        "gpt3-xl", n_stages=8, n_replicas=1, global_batch=int(rng.integers(48, 72)), microbatch=1, schedule="gpipe"
    )
    plan = evaluate(network, job, stages=[[device] for device in range(8)])
    return {
        "plan": plan,
        "latency_ms": latency_ms,
        "gbps": gbps,
        "n_microbatches": job.n_microbatches,
        "gpipe_s": simulate(plan).iteration_s,
        "needs_gib": float(memory(plan).peak_bytes.max()) / GIB,
    }


@filling.mission("into-sixteen", takes=Plan, give=give_small_devices)
def into_sixteen(plan: Plan, given: Given) -> TextValues:
    wanted = given.plan
    plan_of(plan, wanted.topology, wanted.job, "global_batch", "attention", *TRAINED)
    trace = simulate(plan)
    fits(plan, trace)
    require(
        trace.iteration_s <= SLOWER * given.gpipe_s,
        f"it fits, but takes {trace.iteration_s:.1f} s; wanted at most {SLOWER * given.gpipe_s:.1f} s",
    )
    return {"iteration_s": trace.iteration_s, "peak_gib": memory(plan, trace=trace).peak_bytes.max() / GIB}
