"""Answers to the questions of the lessons, by name, so that no cell of a lesson contains one.

``lab.guess(name, ...)`` looks an answer up in ``ANSWERS``. It computes the answer after the guess, from what the lesson
passes as ``of``. The answer to a multiple-choice question is one of its choices, in the words that the lesson shows.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from math import factorial
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError

GIB = 2**30


def answer_to(name: str) -> Callable[..., Any]:
    """Return the function that computes an answer. Raises LabError for a question that no lesson asks."""
    if name not in ANSWERS:
        raise LabError(f"guess {name!r} has no answer; wanted the name of a lesson's question, or an answer of yours")
    return ANSWERS[name]


def percent_off(prediction: float, measurement: float) -> float:
    """Return the distance of a measurement from its prediction, in per cent of the prediction."""
    return 100 * abs(measurement / prediction - 1)


def _iteration_off(predicted: Any, measured: Any) -> float:
    return percent_off(predicted.iteration_s, measured.iteration_s)


def _double_bandwidth(message_s: Any) -> float:
    before_s, after_s = (message_s("Oregon-0", "Tokyo-0", 64_000, faster) for faster in (1, 2))
    return float(100 * (1 - after_s / before_s))


def _which_term(message_s: Any) -> str:
    ends = "Oregon-0", "Tokyo-0"
    latency = message_s(*ends, 0) / message_s(*ends, 64_000)
    return "its latency" if latency > 0.6 else "its bandwidth" if latency < 0.4 else "both alike"


def _which_pair(cost_on: Any, damaged: Any, names: Any) -> str:
    """Return the two rooms between which twice the bandwidth would lower the damaged network's cost most."""

    def with_twice(one: int, other: int) -> float:
        better = damaged.copy()
        better[one, other] = better[other, one] = 2 * damaged[one, other]
        return float(cost_on(better))

    one, other = min(((one, other) for one in (0, 1) for other in (2, 3)), key=lambda pair: with_twice(*pair))
    return f"{names[one]} and {names[other]}"


def _bottleneck(table: Any) -> float:
    places = range(len(table))
    return float(min(max(table[row, to[row]] for row in places) for to in permutations(places)))


def _by_chance(by_chance: Any, world: Any) -> float:
    return float(np.mean([by_chance(world, np.random.default_rng(seed)).cost.total_s for seed in range(20)]))


def _swaps_that_matter(swap_changes_the_cost: Any) -> int:
    return sum(swap_changes_the_cost(np.random.default_rng(seed)) for seed in range(100))


def _held_on_slow_links(simulate: Any, pipeline: Any, textbook: Any) -> int:
    deep = simulate(pipeline(8, 64, 0.6), "adaptive-1f1b", profile=textbook(8))
    return int(deep.context.orders[0].split("B")[0].count("F"))


def _which_suspect(comparison: Any) -> str:
    """Return "computations" or "messages", whichever has the larger relative error. Links are emulated as specified, so
    it should be computations."""
    links = comparison.links["relative_error"].abs().max()
    devices = comparison.devices["relative_error"].abs().max()
    return "computations" if devices > links else "messages"


def _loss_after_kill(calm: Any, killed: Any) -> float:
    losses = zip(calm.context.losses, killed.context.losses, strict=False)
    return float(1000 * max(abs(a - b) for a, b in losses))


def _local_updates(needed: Any, seconds_an_iteration: Any) -> float:
    plain_s, rare_s = (needed[name] * seconds_an_iteration(name, 1000) for name in ("plain", "H = 12"))
    return float(plain_s / rare_s)


def _blocking(own: Any) -> float:
    overlapped, blocking = own
    return float(blocking.predicted / overlapped.predicted)


def _all_there(day: Any) -> float:
    spans_s = np.diff([*np.unique(day.time_s), day.end_s])
    return float(100 * sum(spans_s[day.counts() == 8]) / day.end_s)


def _policies_apart(replay: Any, cards: Any, job: Any, day: Any, restart: Any) -> float:
    others = (replay(cards, job, day, each).samples for each in ("oobleck", "swarm", "goodput"))
    return float(max(others) / restart.samples)


ANSWERS: dict[str, Callable[..., Any]] = {
    # 00 and 01
    "tour-prediction-error": _iteration_off,
    "tour-better-than-chance": lambda chance, found: chance.cost.total_s / found.cost.total_s,
    "why-times-slower": lambda planned, hall, cities: (
        planned(cities, steps=10).iteration_s / planned(hall, steps=10).iteration_s
    ),
    "why-gpus-of-cheapest": lambda planned, cities: planned(cities, objective="price").placement.devices.size,
    "why-larger-batch": lambda planned, cities, batch: (
        planned(cities, global_batch=4 * batch).iteration_s / planned(cities).iteration_s
    ),
    # 02 and 03
    "network-double-bandwidth": _double_bandwidth,
    "network-more-devices": lambda averaging_s: averaging_s(32, "ring") / averaging_s(8, "ring"),
    "network-central-server": lambda averaging_s: (
        averaging_s(32, "ring", queueing="nics") / averaging_s(32, "central", queueing="nics")
    ),
    "network-which-term": _which_term,
    "data-bytes-of-four": lambda total_gb, plan: total_gb(plan),
    "data-wider-model": lambda gigabytes: gigabytes("gpt3-6.7b")[0] / gigabytes("gpt3-xl")[0],
    "data-between-cities": lambda between_gb: between_gb("every city a stage") / between_gb("every city a pipeline"),
    # 04
    "cost-model-damaged-link": lambda cost_on, damaged: cost_on(damaged),
    "cost-model-which-pair": _which_pair,
    "cost-model-cities": lambda stage, pipeline: stage.cost.total_s / pipeline.cost.total_s,
    "cost-model-between": lambda best: best.cost.total_s,
    # 05 and 06
    "five-steps-groupings": lambda: factorial(24) / (factorial(4) ** 6 * factorial(6)),
    "five-steps-bottleneck": _bottleneck,
    "five-steps-edges": lambda plan: len(plan.cost.hop_s),
    "searching-chance": _by_chance,
    "searching-swaps": _swaps_that_matter,
    "searching-gap": lambda: "exactly as much",  # the planner ``exact`` proves that this plan is the best
    # 07
    "seconds-by-chance": lambda by_chance, proven: sum(plan.iteration_s < proven.iteration_s for plan in by_chance),
    "seconds-what-binds": lambda: "a slow GPU in the stage with the most work",
    "seconds-overlap": lambda plan: plan.iteration_s,
    "seconds-faster": lambda proven, fastest: proven.iteration_s / fastest.iteration_s,
    # 08 and 09
    "schedules-1f1b-on-slow-links": lambda seconds: seconds("1f1b", 8, 64, hop_s=0.6),
    "schedules-why-1f1b-waits": lambda: "each device has too few micro-batches on their way",
    "schedules-held-on-slow-links": _held_on_slow_links,
    "schedules-zero-bubble-on-slow-links": lambda seconds: seconds("zb-h1", 8, 64, hop_s=0.6),
    "memory-of-parameters": lambda held: (held.parameters_bytes + held.gradients_bytes + held.optimizer_bytes) / GIB,
    "memory-of-zero-bubble": lambda memory, plan: memory(plan, "zb-h1").peak_bytes.max() / GIB,
    # Bytes per parameter: parameters and gradients in fp16 stay whole, Adam's 12 bytes are split.
    "memory-of-zero-1": lambda replicas: 2 + 2 + 12 / replicas,
    # 10 and 11
    "run-error": _iteration_off,
    "run-real-clock": lambda error: 100 * abs(error),
    "run-which-suspect": _which_suspect,
    "run-hidden-delay": lambda off, own_delay_s: 100 * off.error_s / own_delay_s,
    "faults-loss-after-kill": _loss_after_kill,
    "faults-slow-device": lambda slowed, calm: slowed.iteration_s / calm.iteration_s,
    # 12
    "unequal-pi-with-an-equal-share": lambda data_parallel, network: data_parallel(network).iteration_s,
    "unequal-h100-on-a-home-line": lambda data_parallel, network: (
        data_parallel(network, (9, 9, 9, 9, 9, 9, 9, 65)).iteration_s
    ),
    "unequal-v100-in-bf16": lambda shared_out: shared_out("bf16")[0]["v100-0"],
    "unequal-blocks-of-a-convnet": lambda plan, slow, job: plan(slow, job, seed=0, steps=4).iteration_s,
    # 13
    "compression-times-shorter": lambda plain, rounded: plain.iteration_s / rounded.iteration_s,
    "compression-and-the-loss": lambda plain, rounded: percent_off(
        plain.context.losses[-1], rounded.context.losses[-1]
    ),
    "local-updates-on-fast-links": _local_updates,
    # 14 and 15
    "systems-fsdp-world": lambda world: world["fsdp"].iteration_s / world.best.iteration_s,
    "systems-diloco-world": lambda world, centre: world["diloco"].iteration_s / centre["diloco"].iteration_s,
    "systems-pp-dp": lambda variant, megatron: variant.iteration_s / megatron.iteration_s,
    "codesign-batch": lambda compute_s, synchronise_s: 8 * synchronise_s / compute_s,
    "codesign-share": lambda computing, plan: 100 * computing(plan),
    "codesign-crossing": lambda crossed: crossed.crossings[-1].value,
    # 16 and 17
    "ledger-inside": lambda ledger: 100 * (ledger.to_frame()["verdict"] == "inside").mean(),
    "ledger-blocking": _blocking,
    "ledger-unseen": lambda rows: 100 * rows["error"].abs().max(),
    "change-all-there": _all_there,
    "change-policies-apart": _policies_apart,
    # 18, 19 and 20
    "capstone-idle": lambda plan: len(plan.idle_devices),
    "capstone-peaks": lambda simulate, plan, measured: percent_off(simulate(plan).iteration_s, measured.iteration_s),
    "own-ring-bytes": lambda n, n_bytes: 2 * (n - 1) * n_bytes / n,
    "own-pipeline-megabytes": lambda job: job.n_microbatches * job.activation_bytes / 1e6,
}
"""A function for each question, which computes the answer from what the lesson passes as ``of``."""
