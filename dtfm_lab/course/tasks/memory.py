"""Missions about what fills a device."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dtfm_lab.course.checks import (
    TRAINED,
    MissionsOf,
    Number,
    Trial,
    fits,
    plan_of,
    require,
)
from dtfm_lab.course.mission import Given
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.files import load_job
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.schedules import peak_activations, schedules

lesson = MissionsOf("09_memory")

GIB = 2**30
SLOWER = 1.03


def give_sharded(rng: np.random.Generator) -> Mapping[str, Any]:
    """A stage's parameters, and over how many replicas its states are split."""
    return {"millions": int(rng.integers(100, 2000)), "n_replicas": int(rng.choice([4, 6, 8, 12, 16]))}


@lesson.number("sixteen-bytes", give=give_sharded)
def sixteen_bytes(given: Given) -> Number:
    count, over = given.millions * 1e6, given.n_replicas
    wanted = count * (4 + 12 / over)
    return Number(
        wanted,
        f"{wanted / GIB:.1f} GiB instead of {16 * count / GIB:.1f}: only the 12 bytes of Adam are shared out.",
        slips={
            count * 16: "that is without ZeRO: every replica would keep all of the optimiser's states",
            count * 16 / over: "that is ZeRO-3, which splits parameters and gradients too",
            count * (2 + 14 / over): "that is ZeRO-2, which splits gradients too",
            count * (4 + 8 / over): "Adam keeps two moments in fp32, and in half precision a third number beside them",
            count * (8 + 8 / over): "that is training in fp32",
            wanted / GIB: "that is in GiB; wanted bytes",
            wanted / 1e9: "that is in GB; wanted bytes",
        },
        within=0.002,
    )


@lesson.function("most-held")
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
    """Eight GPUs with less memory than GPipe needs, in a row of slow links."""
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


@lesson.mission("into-sixteen", takes=Plan, give=give_small_devices)
def into_sixteen(plan: Plan, given: Given) -> str:
    wanted = given.plan
    plan_of(plan, wanted.topology, wanted.job, "global_batch", "attention", *TRAINED)
    trace = simulate(plan)
    fits(plan, trace)
    require(
        trace.iteration_s <= SLOWER * given.gpipe_s,
        f"it fits, and takes {trace.iteration_s:.1f} s; wanted at most {SLOWER * given.gpipe_s:.1f} s",
    )
    return (
        f"{trace.iteration_s:.1f} s within 16 GiB: the fullest device holds "
        f"{memory(plan, trace=trace).peak_bytes.max() / GIB:.1f} GiB. "
        f"No more has to be held than hides the links."
    )
