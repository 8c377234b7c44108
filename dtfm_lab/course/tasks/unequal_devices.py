"""Missions about devices that are not equally fast."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dtfm_lab.course.evidence import TRAINED, iteration_again_s, near, require, same_job, same_network
from dtfm_lab.course.mission import Given, NotYet, mission
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.files import load_job
from dtfm_lab.planning import evaluate
from dtfm_lab.planning import plan as plan_for
from dtfm_lab.simulation.memory import memory

CLOSE = 1.03
"""Within so much of the planner's own cut, a cut by hand wins."""


def give_slow_helper(rng: np.random.Generator) -> Mapping[str, Any]:
    """Some equal devices and a slower one."""
    fast_ms = int(rng.integers(20, 60))
    return {
        "n_fast": int(rng.integers(3, 9)),
        "fast_ms": fast_ms,
        "slow_ms": fast_ms * int(rng.integers(4, 13)),
        "n_microbatches": int(rng.integers(100, 400)),
    }


@mission(
    "worth-of-a-slow-one",
    lesson="12_unequal_devices",
    title="What is this device worth?",
    takes=float,
    wanted="a number of seconds",
    give=give_slow_helper,
    hints=(
        "How many micro-batches a second do the fast ones do together? And with the slow one?",
        "With the best shares all are done at the same time, so speeds add up. Seconds are micro-batches over speed.",
        "The worth is seconds without it less seconds with it.",
    ),
    answer="""
        fast = given.n_fast / (given.fast_ms / 1000)
        slow = 1 / (given.slow_ms / 1000)
        answer = given.n_microbatches / fast - given.n_microbatches / (fast + slow)
    """,
)
def worth_of_a_slow_one(worth_s: float, given: Given) -> str:
    """{n_fast} devices take {fast_ms} ms a micro-batch, forward and backward, each holding the whole model; another one
    takes {slow_ms} ms. A batch has {n_microbatches} micro-batches, and messages cost nothing. By how many seconds does
    the slow device shorten an iteration, with the best shares? (They may be fractions of a micro-batch.)
    """
    n, batch = given.n_fast, given.n_microbatches
    fast_s, slow_s = given.fast_ms / 1e3, given.slow_ms / 1e3
    without_s = batch * fast_s / n
    wanted = without_s - batch / (n / fast_s + 1 / slow_s)
    equal_s = batch * slow_s / (n + 1)
    near(
        worth_s,
        wanted,
        tolerance=0.005,
        slips={
            1e3 * wanted: "that is in milliseconds",
            without_s - equal_s: "so it is with equal shares, where all wait for the slow one",
            equal_s - without_s: "so much longer it gets with equal shares, where all wait for the slow one",
            without_s - batch * fast_s / (n + 1): "that is the worth of one more fast device",
            without_s - wanted: "that is the length of the iteration",
        },
    )
    return (
        f"{wanted:.3f} s of {without_s:.2f} s: its part of the speed. With equal shares it would make the iteration "
        f"{equal_s:.1f} s long."
    )


def give_speeds(rng: np.random.Generator) -> Mapping[str, Any]:
    """Pipelines of different speed."""
    return {"pass_ms": [int(x) for x in rng.integers(30, 400, 5)], "n_microbatches": int(rng.integers(60, 140))}


@mission(
    "fair-shares",
    lesson="12_unequal_devices",
    title="Shares of a batch",
    takes=(list, tuple),
    wanted="a list of five whole numbers",
    give=give_speeds,
    hints=(
        "Who is twice as fast does twice as many; shares go by speed, which is one over the milliseconds.",
        "Rounded shares need not add up. Give micro-batches out one after the other: who would be done with it first?",
    ),
    answer="""
        answer = [0] * 5
        for _ in range(given.n_microbatches):
            done_ms = [(share + 1) * each for share, each in zip(answer, given.pass_ms)]
            answer[done_ms.index(min(done_ms))] += 1
    """,
)
def fair_shares(shares: Sequence[int], given: Given) -> str:
    """Five pipelines take {pass_ms} ms a micro-batch, forward and backward. Hand in the micro-batches of each,
    {n_microbatches} in all, with which the slowest pipeline is done as early as can be.
    """
    if len(shares) != 5 or not all(isinstance(n, (int, np.integer)) and n >= 0 for n in shares):
        raise NotYet(f"found {shares!r:.60}; wanted five whole numbers from 0")
    total = int(sum(shares))
    require(total == given.n_microbatches, f"they add up to {total}; wanted {given.n_microbatches}")
    pass_ms = given.pass_ms
    best = shortest_ms(pass_ms, given.n_microbatches)
    done_ms = [int(share) * each for share, each in zip(shares, pass_ms, strict=True)]
    last = int(np.argmax(done_ms))
    require(
        done_ms[last] <= best,
        f"pipeline {last} is done after {done_ms[last] / 1e3:.2f} s, the last of all; it can be done sooner",
    )
    even_ms = -(-given.n_microbatches // 5) * max(pass_ms)
    return f"{best / 1e3:.2f} s; with equal shares it would be {even_ms / 1e3:.2f} s."


def shortest_ms(pass_ms: Sequence[int], n_microbatches: int) -> int:
    """The least time until all are done: micro-batches go, one by one, to who would be done with it first."""
    shares = [0] * len(pass_ms)
    for _ in range(n_microbatches):
        next_ms = [(share + 1) * each for share, each in zip(shares, pass_ms, strict=True)]
        shares[next_ms.index(min(next_ms))] += 1
    return max(share * each for share, each in zip(shares, pass_ms, strict=True))


GPUS = ("A100", "V100", "T4", "RTX 3090", "P100", "RTX 4090", "L4", "H100")


def give_four_gpus(rng: np.random.Generator) -> Mapping[str, Any]:
    """A row of four GPUs of different kinds, and the planner's seconds for them."""
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
    job = load_job("gpt2-small", n_stages=4, n_replicas=1, dtype="fp16", global_batch=256, microbatch=2)
    even = evaluate(network, job.with_fields(schedule="1f1b"), stages=[[device] for device in range(4)])
    found = plan_for(network, job, objective="iteration", seed=0, steps=2)
    return {
        "network": network,
        "job": job,
        "gpus": ", ".join(gpus),
        "even_s": iteration_again_s(even),
        "limit_s": CLOSE * iteration_again_s(found),
    }


@mission(
    "a-cut-of-your-own",
    lesson="12_unequal_devices",
    title="A cut of your own",
    takes=Plan,
    wanted="a Plan of given.network for given.job",
    give=give_four_gpus,
    minutes=15,
    hints=(
        "Look at `lab.simulate(plan).bubble`: which device is never idle?",
        "Blocks by speed: a device with a half of all FLOP/s takes a half of the 12 blocks. The last stage also "
        "computes the head, which is worth several blocks: give it to a fast one.",
        '`lab.evaluate(given.network, given.job.with_fields(blocks_per_stage=(...), schedule="1f1b"), stages=[[...], '
        "[...], [...], [...]])` prices a cut and an order of your own; `lab.plan` with the same network and job "
        "searches.",
    ),
    answer="""
        answer = lab.plan(given.network, given.job, seed=0, steps=2)
    """,
)
def a_cut_of_your_own(plan: Plan, given: Given) -> str:
    """`given.network` has {gpus}; `given.job` is gpt2-small in fp16 in four stages and one pipeline. Cut evenly, in
    this order, an iteration takes {even_s:.2f} s. Hand in a plan of that network and job in the same shape, batch and
    micro-batch, that fits all devices and takes at most {limit_s:.2f} s, by blocks and order of your own
    (`blocks_per_stage`, `stages`).
    """
    same_network(plan.topology, given.network)
    same_job(plan.job, given.job, "global_batch", "microbatch", "n_stages", "n_replicas", "tensor_parallel", *TRAINED)
    report = memory(plan)
    require(report.fits, report.sentence)
    seconds = iteration_again_s(plan)
    require(
        seconds <= given.limit_s,
        f"blocks {plan.job.blocks_per_stage or (3, 3, 3, 3)} take {seconds:.2f} s; wanted at most {given.limit_s:.2f}",
    )
    return f"{seconds:.2f} s instead of {given.even_s:.2f} s: the slowest stage sets the pace, so no stage may be slow."
