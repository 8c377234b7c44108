"""Answers to the questions of the lessons, by name, so that no cell of a lesson contains one.

``lab.guess(name, ...)`` looks an answer up here. It computes the answer after the guess, from what the lesson passes as
``of``. The answer to a multiple-choice question is one of its choices, in the words that the lesson shows.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from math import factorial
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError

ANSWERS: dict[str, Callable[..., Any]] = {}
GIB = 2**30


def answers(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the answer to the question of this name."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if name in ANSWERS:
            raise ValueError(f"there are two answers to {name!r}")
        ANSWERS[name] = function
        return function

    return register


def answer_to(name: str) -> Callable[..., Any]:
    """Return the function that computes an answer. Raises LabError for a question that no lesson asks."""
    if name not in ANSWERS:
        raise LabError(f"guess {name!r} has no answer; wanted the name of a lesson's question, or an answer of yours")
    return ANSWERS[name]


def percent_off(prediction: float, measurement: float) -> float:
    """Return the distance of a measurement from its prediction, in per cent of the prediction."""
    return 100 * abs(measurement / prediction - 1)


@answers("tour-prediction-error")
@answers("run-error")
def _run_error(predicted: Any, measured: Any) -> float:
    return percent_off(predicted.iteration_s, measured.iteration_s)


@answers("tour-better-than-chance")
def _tour_better_than_chance(chance: Any, found: Any) -> float:
    return float(chance.cost.total_s / found.cost.total_s)


@answers("why-times-slower")
def _why_times_slower(planned: Any, hall: Any, cities: Any) -> float:
    return float(planned(cities, steps=10).iteration_s / planned(hall, steps=10).iteration_s)


@answers("why-gpus-of-cheapest")
def _why_gpus_of_cheapest(planned: Any, cities: Any) -> float:
    return float(planned(cities, objective="price").placement.devices.size)


@answers("why-larger-batch")
def _why_larger_batch(planned: Any, cities: Any, batch: int) -> float:
    return float(planned(cities, global_batch=4 * batch).iteration_s / planned(cities).iteration_s)


@answers("network-double-bandwidth")
def _network_double_bandwidth(message_s: Any) -> float:
    before_s, after_s = (message_s("Oregon-0", "Tokyo-0", 64_000, faster) for faster in (1, 2))
    return float(100 * (1 - after_s / before_s))


@answers("network-more-devices")
def _network_more_devices(averaging_s: Any) -> float:
    return float(averaging_s(32, "ring") / averaging_s(8, "ring"))


@answers("network-central-server")
def _network_central_server(averaging_s: Any) -> float:
    return float(averaging_s(32, "ring", queueing="nics") / averaging_s(32, "central", queueing="nics"))


@answers("network-which-term")
def _network_which_term(message_s: Any) -> str:
    ends = "Oregon-0", "Tokyo-0"
    latency = message_s(*ends, 0) / message_s(*ends, 64_000)
    return "its latency" if latency > 0.6 else "its bandwidth" if latency < 0.4 else "both alike"


@answers("data-bytes-of-four")
def _data_bytes_of_four(total_gb: Any, plan: Any) -> float:
    return float(total_gb(plan))


@answers("data-wider-model")
def _data_wider_model(gigabytes: Any) -> float:
    return float(gigabytes("gpt3-6.7b")[0] / gigabytes("gpt3-xl")[0])


@answers("data-between-cities")
def _data_between_cities(between_gb: Any) -> float:
    return float(between_gb("every city a stage") / between_gb("every city a pipeline"))


@answers("cost-model-damaged-link")
def _cost_model_damaged_link(cost_on: Any, damaged: Any) -> float:
    return float(cost_on(damaged))


@answers("cost-model-which-pair")
def _cost_model_which_pair(cost_on: Any, damaged: Any, names: Any) -> str:
    """Return the two rooms whose link, if it were twice as fast, would make the damaged network cheapest."""

    def with_twice(one: int, other: int) -> float:
        better = damaged.copy()
        better[one, other] = better[other, one] = 2 * damaged[one, other]
        return float(cost_on(better))

    one, other = min(((one, other) for one in (0, 1) for other in (2, 3)), key=lambda pair: with_twice(*pair))
    return f"{names[one]} and {names[other]}"


@answers("cost-model-cities")
def _cost_model_cities(stage: Any, pipeline: Any) -> float:
    return float(stage.cost.total_s / pipeline.cost.total_s)


@answers("cost-model-between")
def _cost_model_between(best: Any) -> float:
    return float(best.cost.total_s)


@answers("five-steps-groupings")
def _five_steps_groupings() -> float:
    return factorial(24) / (factorial(4) ** 6 * factorial(6))


@answers("five-steps-bottleneck")
def _five_steps_bottleneck(table: Any) -> float:
    places = range(len(table))
    return float(min(max(table[row, to[row]] for row in places) for to in permutations(places)))


@answers("five-steps-edges")
def _five_steps_edges(plan: Any) -> float:
    return float(len(plan.cost.hop_s))


@answers("searching-chance")
def _searching_chance(by_chance: Any, world: Any) -> float:
    return float(np.mean([by_chance(world, np.random.default_rng(seed)).cost.total_s for seed in range(20)]))


@answers("searching-swaps")
def _searching_swaps(swap_changes_the_cost: Any) -> float:
    return float(sum(swap_changes_the_cost(np.random.default_rng(seed)) for seed in range(100)))


@answers("searching-gap")
def _searching_gap() -> str:
    """Exactly as much, because the planner ``exact`` proves that this plan is the best."""
    return "exactly as much"


@answers("seconds-by-chance")
def _seconds_by_chance(by_chance: Any, proven: Any) -> float:
    return float(sum(plan.iteration_s < proven.iteration_s for plan in by_chance))


@answers("seconds-what-binds")
def _seconds_what_binds() -> str:
    return "a slow GPU in the stage with the most work"


@answers("seconds-overlap")
def _seconds_overlap(plan: Any) -> float:
    return float(plan.iteration_s)


@answers("seconds-faster")
def _seconds_faster(proven: Any, fastest: Any) -> float:
    return float(proven.iteration_s / fastest.iteration_s)


@answers("schedules-1f1b-on-slow-links")
def _schedules_1f1b_on_slow_links(seconds: Any) -> float:
    return float(seconds("1f1b", 8, 64, hop_s=0.6))


@answers("schedules-why-1f1b-waits")
def _schedules_why_1f1b_waits() -> str:
    return "each device has too few micro-batches on their way"


@answers("schedules-held-on-slow-links")
def _schedules_held_on_slow_links(simulate: Any, pipeline: Any, textbook: Any) -> float:
    deep = simulate(pipeline(8, 64, 0.6), "adaptive-1f1b", profile=textbook(8))
    return float(deep.context.orders[0].split("B")[0].count("F"))


@answers("schedules-zero-bubble-on-slow-links")
def _schedules_zero_bubble_on_slow_links(seconds: Any) -> float:
    return float(seconds("zb-h1", 8, 64, hop_s=0.6))


@answers("memory-of-parameters")
def _memory_of_parameters(held: Any) -> float:
    return float((held.parameters_bytes + held.gradients_bytes + held.optimizer_bytes) / GIB)


@answers("memory-of-zero-bubble")
def _memory_of_zero_bubble(memory: Any, plan: Any) -> float:
    return float(memory(plan, "zb-h1").peak_bytes.max() / GIB)


@answers("memory-of-zero-1")
def _memory_of_zero_1(replicas: int) -> float:
    """Return the bytes per parameter: parameters and gradients in fp16 stay whole, Adam's 12 bytes are split."""
    return 2 + 2 + 12 / replicas


@answers("run-real-clock")
def _run_real_clock(error: float) -> float:
    return 100 * abs(error)


@answers("run-which-suspect")
def _run_which_suspect(comparison: Any) -> str:
    """Return what has the largest relative error. Links are emulated as specified, so computations differ."""
    links = comparison.links["relative_error"].abs().max()
    devices = comparison.devices["relative_error"].abs().max()
    return "computations" if devices > links else "messages"


@answers("run-hidden-delay")
def _run_hidden_delay(off: Any, own_delay_s: float) -> float:
    return float(100 * off.error_s / own_delay_s)


@answers("faults-loss-after-kill")
def _faults_loss_after_kill(calm: Any, killed: Any) -> float:
    losses = zip(calm.context.losses, killed.context.losses, strict=False)
    return float(1000 * max(abs(a - b) for a, b in losses))


@answers("faults-slow-device")
def _faults_slow_device(slowed: Any, calm: Any) -> float:
    return float(slowed.iteration_s / calm.iteration_s)


@answers("unequal-pi-with-an-equal-share")
def _unequal_pi_with_an_equal_share(data_parallel: Any, network: Any) -> float:
    return float(data_parallel(network).iteration_s)


@answers("unequal-h100-on-a-home-line")
def _unequal_h100_on_a_home_line(data_parallel: Any, network: Any) -> float:
    return float(data_parallel(network, (9, 9, 9, 9, 9, 9, 9, 65)).iteration_s)


@answers("unequal-v100-in-bf16")
def _unequal_v100_in_bf16(shared_out: Any) -> float:
    return float(shared_out("bf16")[0]["v100-0"])


@answers("unequal-blocks-of-a-convnet")
def _unequal_blocks_of_a_convnet(plan: Any, slow: Any, job: Any) -> float:
    return float(plan(slow, job, seed=0, steps=4).iteration_s)


@answers("compression-times-shorter")
def _compression_times_shorter(plain: Any, rounded: Any) -> float:
    return float(plain.iteration_s / rounded.iteration_s)


@answers("compression-and-the-loss")
def _compression_and_the_loss(plain: Any, rounded: Any) -> float:
    return percent_off(plain.context.losses[-1], rounded.context.losses[-1])


@answers("local-updates-on-fast-links")
def _local_updates_on_fast_links(needed: Any, seconds_an_iteration: Any) -> float:
    plain_s, rare_s = (needed[name] * seconds_an_iteration(name, 1000) for name in ("plain", "H = 12"))
    return float(plain_s / rare_s)


@answers("systems-fsdp-world")
def _systems_fsdp_world(world: Any) -> float:
    return float(world["fsdp"].iteration_s / world.best.iteration_s)


@answers("systems-diloco-world")
def _systems_diloco_world(world: Any, centre: Any) -> float:
    return float(world["diloco"].iteration_s / centre["diloco"].iteration_s)


@answers("systems-pp-dp")
def _systems_pp_dp(variant: Any, megatron: Any) -> float:
    return float(variant.iteration_s / megatron.iteration_s)


@answers("codesign-batch")
def _codesign_batch(compute_s: float, synchronise_s: float) -> float:
    return 8 * synchronise_s / compute_s


@answers("codesign-share")
def _codesign_share(computing: Any, plan: Any) -> float:
    return float(100 * computing(plan))


@answers("codesign-crossing")
def _codesign_crossing(crossed: Any) -> float:
    return float(crossed.crossings[-1].value)


@answers("ledger-inside")
def _ledger_inside(ledger: Any) -> float:
    return float(100 * (ledger.to_frame()["verdict"] == "inside").mean())


@answers("ledger-blocking")
def _ledger_blocking(own: Any) -> float:
    overlapped, blocking = own
    return float(blocking.predicted / overlapped.predicted)


@answers("ledger-unseen")
def _ledger_unseen(rows: Any) -> float:
    return float(100 * rows["error"].abs().max())


@answers("change-all-there")
def _change_all_there(day: Any) -> float:
    spans_s = np.diff([*np.unique(day.time_s), day.end_s])
    return float(100 * sum(spans_s[day.counts() == 8]) / day.end_s)


@answers("change-policies-apart")
def _change_policies_apart(replay: Any, cards: Any, job: Any, day: Any, restart: Any) -> float:
    others = (replay(cards, job, day, each).samples for each in ("oobleck", "swarm", "goodput"))
    return float(max(others) / restart.samples)


@answers("capstone-idle")
def _capstone_idle(plan: Any) -> float:
    return float(len(plan.idle_devices))


@answers("capstone-peaks")
def _capstone_peaks(simulate: Any, plan: Any, measured: Any) -> float:
    return percent_off(simulate(plan).iteration_s, measured.iteration_s)


@answers("own-ring-bytes")
def _own_ring_bytes(n: int, n_bytes: int) -> float:
    return 2 * (n - 1) * n_bytes / n


@answers("own-pipeline-megabytes")
def _own_pipeline_megabytes(job: Any) -> float:
    return float(job.n_microbatches * job.activation_bytes / 1e6)
