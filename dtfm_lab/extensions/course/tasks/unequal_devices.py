"""Missions about devices of unequal speed."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from dtfm_lab.domain.network import HARDWARE, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.extensions.course.checks import (
    TRAINED,
    MissionsOf,
    Number,
    TextValues,
    fits,
    plan_of,
    require,
)
from dtfm_lab.extensions.course.mission import Given
from dtfm_lab.files import load_job
from dtfm_lab.planning import evaluate
from dtfm_lab.planning import plan as plan_for
from dtfm_lab.simulation import simulate

lesson = MissionsOf("12_unequal_devices")

CLOSE = 1.03
"""A reader's division of blocks into stages wins if it takes at most this multiple of the planner's seconds."""


def give_slow_helper(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return the number of fast devices, the milliseconds per micro-batch of a fast one and of a slow one, and the
    number of micro-batches."""
    fast_ms = int(rng.integers(20, 60))
    return {
        "n_fast": int(rng.integers(3, 9)),
        "fast_ms": fast_ms,
        "slow_ms": fast_ms * int(rng.integers(4, 13)),
        "n_microbatches": int(rng.integers(100, 400)),
    }


@lesson.number("worth-of-a-slow-one", give=give_slow_helper)
def worth_of_a_slow_one(given: Given) -> Number:
    n, batch = given.n_fast, given.n_microbatches
    fast_s, slow_s = given.fast_ms / 1e3, given.slow_ms / 1e3
    without_s = batch * fast_s / n
    wanted = without_s - batch / (n / fast_s + 1 / slow_s)
    equal_s = batch * slow_s / (n + 1)
    slips = {"milliseconds": 1e3 * wanted, "saved": without_s - equal_s, "lost": equal_s - without_s}
    slips |= {"one_more": without_s - batch * fast_s / (n + 1), "whole": without_s - wanted}
    return Number(wanted, slips, {"without_s": without_s, "equal_s": equal_s}, within=0.005)


GPUS = ("A100", "V100", "T4", "RTX 3090", "P100", "RTX 4090", "L4", "H100")


def give_four_gpus(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return a row of four GPUs of different kinds, and the maximum seconds with which a plan for them wins."""
    return _row_of(tuple(str(gpu) for gpu in rng.choice(GPUS, 4, replace=False)), float(rng.integers(5, 26)))


@lru_cache(maxsize=64)
def _row_of(gpus: tuple[str, ...], gbps: float) -> Mapping[str, Any]:
    network = Topology.from_matrices(
        np.full((4, 4), 0.1),
        np.full((4, 4), gbps),
        name="four-gpus",
        names=[f"{gpu.lower().replace(' ', '')}-{number}" for number, gpu in enumerate(gpus)],
        gpu=list(gpus),
    )
    shape = {"n_stages": 4, "n_replicas": 1, "tensor_parallel": 1}
    job = load_job("gpt2-small", **shape, dtype="fp16", global_batch=256, microbatch=2)
    even = evaluate(network, job.with_fields(schedule="1f1b"), stages=[[device] for device in range(4)])
    found = plan_for(network, job, objective="iteration", seed=0, steps=2)
    peaks = {gpu: HARDWARE[gpu].peak["fp16"] / 1e12 for gpu in gpus}
    return {
        "network": network,
        "job": job,
        "gpus": ", ".join(gpus),
        "peaks": peaks,
        "named": gpus[1],
        "even_s": simulate(even).iteration_s,
        # A little slower than what the lab finds, so that another good plan also wins.
        "limit_s": CLOSE * simulate(found).iteration_s,
    }


def share_of_work(given: Given, plan: Plan) -> Number:
    """Return the per cent of all FLOP that the named device does if all devices compute for the same time."""
    wanted = 100 * given.peaks[given.named] / sum(given.peaks.values())
    return Number(wanted, {"equal": 25.0, "share": wanted / 100})


@lesson.mission("a-cut-of-your-own", takes=Plan, reason=share_of_work, give=give_four_gpus)
def a_cut_of_your_own(plan: Plan, given: Given) -> TextValues:
    shape = ("global_batch", "microbatch", "n_stages", "n_replicas", "tensor_parallel")
    plan_of(plan, given.network, given.job, *shape, *TRAINED)
    fits(plan)
    seconds = simulate(plan).iteration_s
    require(
        seconds <= given.limit_s,
        f"blocks {plan.job.blocks_per_stage or (3, 3, 3, 3)} take {seconds:.2f} s; wanted at most {given.limit_s:.2f}",
    )
    return {"seconds": seconds}
