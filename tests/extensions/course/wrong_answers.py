"""Answers that do not win a mission, each with words of the sentence that says why.

``wrong("name")`` registers a function of what the first reader is given and of the right answer. Missions whose answer
is a number have their wrong answers, the slips, themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise, permutations
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

import dtfm_lab as lab
from dtfm_lab.extensions.course.tasks.searching import simple_bound_s
from dtfm_lab.extensions.elasticity.policy import Response

Wrong = Iterator[tuple[Any, str]]
WRONG: dict[str, Callable[[Any, Any], Wrong]] = {}


def wrong(name: str) -> Callable[[Callable[[Any, Any], Wrong]], Callable[[Any, Any], Wrong]]:
    def register(answers: Callable[[Any, Any], Wrong]) -> Callable[[Any, Any], Wrong]:
        WRONG[name] = answers
        return answers

    return register


@wrong("one-left-the-hall")
def one_left_the_hall(given, right):
    everybody = lab.plan(given.network, lab.load_job("tiny", n_stages=4, n_replicas=2), seed=0, steps=2)
    yield everybody, "wanted less than 0.25 s"
    yield lab.plan("lecture-hall", "tiny", seed=0, steps=2), "another network"
    rare = lab.load_job("tiny", n_stages=None, n_replicas=None, synchronise_every=8)
    yield lab.plan(given.network, rare, seed=0, steps=2), "synchronise_every"


@wrong("who-works-most")
def who_works_most(given, right):
    devices = given.plan.topology.devices
    yield max(devices, key=lambda device: device.peak_flop_per_s).name, "It is fast"
    yield from ((device.name, "another one does longer") for device in devices if device.name != right)
    yield "zoe", "is not in given.plan"


@wrong("cities-win")
def cities_win(given, right):
    grid = [[f"{city}-{i}" for i in range(4)] for city in ("Oregon", "Virginia", "London", "Frankfurt")]
    four = {"n_stages": 4, "n_replicas": 4, "microbatch": 1}
    for changed, because in (
        ({"global_batch": 512, "schedule": "gpipe"}, "does not fit"),
        ({"global_batch": 256, "schedule": "1f1b"}, "tokens a second"),
        ({"global_batch": 8192, "microbatch": 256}, "at most 4,096"),
        ({"global_batch": 256, "synchronise_every": 64}, "synchronise_every"),
        ({"global_batch": 256, "compression": "int8"}, "compression"),
    ):
        yield lab.evaluate(given.cities, lab.load_job("gpt3-xl", **(four | changed)), stages=grid), because


@wrong("ring-by-hand")
def ring_by_hand(given, right):
    def in_bits(n, n_bytes, latency_s, bandwidth):
        return 2 * (n - 1) * (latency_s + 8 * n_bytes / n / bandwidth)

    yield lambda *ring: right(*ring) / 2, "come back"
    yield lambda n, n_bytes, latency_s, bandwidth: 2 * (n - 1) * (latency_s + n_bytes / bandwidth), "n-th part"
    yield lambda n, n_bytes, latency_s, bandwidth: latency_s + 2 * (n - 1) * n_bytes / n / bandwidth, "returned"
    yield from ((in_bits, "no bits are left") for _ in range(5))
    yield from ((lambda *ring, found=found: found, "wanted a number") for found in (None, float("nan"), "12"))
    yield lambda n: n, "raised TypeError"


@wrong("best-upgrade")
def best_upgrade(given, right):
    network = given.plan.topology
    a, b = np.unravel_index(network.bandwidth_bytes_per_s.argmin(), (6, 6))
    yield [network.names[a], network.names[b]], "slowest link"
    yield from ((pair, "wanted two of") for pair in (["ada", "ada"], ["ada"], ["ada", "zoe"], [[], {}]))
    pairs = [[a, b] for a in network.names for b in network.names if a < b and {a, b} != set(right)]
    yield from ((pair, "another link saves more") for pair in pairs[::5])


@wrong("keep-it-home")
def keep_it_home(given, right):
    by_chance = lab.evaluate(given.network, given.job, stages=np.arange(16).reshape(4, 4).tolist())
    yield by_chance, "GB cross; wanted"
    fastest = lab.plan(given.network, given.job, objective="communication", seed=0, steps=2)
    yield fastest, "GB cross; wanted"
    yield lab.with_job(by_chance, compression="int8"), "the job has"


@wrong("own-cost")
def own_cost(given, right):
    def round_trips(latency_s, bandwidth, size):
        one_way = latency_s + size / bandwidth
        return one_way + one_way.T

    def as_listed(latency_s, bandwidth, groups, gradient_bytes, hop_bytes, orders=lambda groups: [groups]):
        shard_s = round_trips(latency_s, bandwidth, gradient_bytes / len(groups[0]))
        hop_s = round_trips(latency_s, bandwidth, hop_bytes)
        group_s = max(sum(shard_s[i, j] for j in group if i != j) for group in groups for i in group)
        path_s = min(
            sum(max(hop_s[i, j] for i, j in zip(a, b, strict=True)) for a, b in pairwise(order))
            for order in orders(groups)
        )
        return group_s + path_s

    yield as_listed, "as they are listed"
    yield lambda *case: as_listed(*case, orders=permutations), "it returned"
    yield lambda *case: 12.0, "it returned"
    yield lambda *case: None, "returned NoneType"
    yield lambda latency_s, *case: latency_s[99, 99], "raised IndexError"


@wrong("pair-by-hand")
def pair_by_hand(given, right):
    yield [given.columns[column] for column in linear_sum_assignment(np.array(given.seconds))[1]], "least sum"
    yield right[::-1], "faster slowest pair"
    yield from ((pairs, "once") for pairs in ([right[0]] * 4, [0, 1, 2, 3], [[1], None]))


class Odd:
    """What equals everything."""

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    def __str__(self):
        return "A"

    __hash__ = None


@wrong("order-of-stages")
def order_of_stages(given, right):
    weights, nearest = given.weights, [0]
    while len(nearest) < 6:
        nearest.append(min(set(range(6)) - set(nearest), key=lambda node: weights[nearest[-1]][node]))
    yield ["ABCDEF"[node] for node in nearest], "nearest"
    turned = [["ABCDEF"[(i + k) % 6] for i in range(6)] for k in range(6)]

    def path(order):
        return sum(weights["ABCDEF".index(a)]["ABCDEF".index(b)] for a, b in pairwise(order))

    yield max(turned, key=path), "cheaper"
    yield from ((order, "once") for order in (right[:5], [*right[:5], right[0]]))
    yield [Odd() for _ in range(6)], ""


@wrong("spot-under-32")
def spot_under_32(given, right):
    cheaply = {"objective": "communication", "seed": 0, "steps": 1}
    yield lab.plan("spot", "dtfm-gpt3-xl", planner="random", **cheaply), "costs 49.5"
    yield lab.plan("regional", "dtfm-gpt3-xl", **cheaply), "another network"
    yield lab.plan("spot", lab.load_job("dtfm-gpt3-xl", gradient_bytes=1e6), **cheaply), "gradient_bytes"


@wrong("tighten-a-bound")
def tighten_a_bound(given, right):
    def mean_partner(group_s, hop_s, n_stages, n_replicas):
        return (n_replicas - 1) * group_s.mean() + (n_stages - 1) * hop_s.mean()

    yield simple_bound_s, "closes 0 %"
    yield mean_partner, "not a lower bound"
    yield lambda *case: 0.0, "below the simple one"
    yield from ((function, "") for function in (lambda *case: 1.0, lambda *case: "high", lambda: 0.0))


@wrong("proven-and-beaten")
def proven_and_beaten(given, right):
    proven, faster = right
    yield [faster, proven], "a placement exists that costs less"
    yield [proven, proven], "a higher communication cost"
    yield from ((plans, "two Plans") for plans in ([proven], [1.0, 2.0]))
    permuted = (np.random.default_rng(seed).permutation(8).reshape(4, 2).tolist() for seed in range(20))
    by_chance = (lab.evaluate(given.network, given.job, groups=groups) for groups in permuted)
    yield [proven, max(by_chance, key=lambda plan: plan.iteration_s)], "at least 5 % less"
    uneven = given.job.with_fields(blocks_per_stage=(3, 3, 9, 9))
    recut = lab.evaluate(given.network, uneven, stages=faster.placement.devices.tolist())
    yield [proven, recut], "blocks_per_stage"


@wrong("deep-enough")
def deep_enough(given, right):
    yield list(range(len(right) - 1, -1, -1)), "GPipe"
    yield [64] * len(right), "wanted at most"
    yield [each + 1 for each in right], f"wanted at most {given.most}"
    yield [max(each - 1, 0) for each in right[:-1]] + [0], "it takes"
    yield right[:-1], "one per device"
    yield [*right[:-1], 0.5], "whole numbers"


@wrong("most-held")
def most_held(given, right):
    yield lambda order: order.count("F"), "it returned"
    yield lambda order: order.split("B")[0].count("F"), "zb-h1"
    yield lambda order: 5, "it returned"
    yield lambda order: order[1000], "IndexError"
    yield lambda order: Odd(), ""


@wrong("into-sixteen")
def into_sixteen(given, right):
    plan = given.plan
    yield plan, "does not fit"
    for changed, because in (
        ({"schedule": "1f1b"}, "it fits, but takes"),
        ({"recompute": True}, "it fits, but takes"),
        ({"schedule": "adaptive-1f1b", "global_batch": 16}, "global_batch"),
        ({"schedule": "1f1b", "compression": "int8"}, "compression"),
    ):
        yield lab.with_job(plan, **changed), because
    roomy = tuple(replace(each, memory_bytes=2**37) for each in plan.topology.devices)
    yield lab.evaluate(replace(plan.topology, devices=roomy), plan.job, stages=plan.stages), "another network"


@wrong("predicted-within-5")
def predicted_within_5(given, right):
    predicted, measured = right
    yield [measured, measured], "was measured, too"
    yield [measured, predicted], "was simulated"
    yield [lab.simulate(given.plan, "1f1b"), measured], "not from the profile"
    yield [lab.compare(predicted, measured).refit(given.plan, lab.simulate).predicted, measured], "or from a fit"
    yield from ((answer, "wanted [predicted, measured]") for answer in ([predicted], [predicted, 1.0]))


@wrong("mystery-link-measured")
def mystery_link_measured(given, right):
    measured, link = right
    source, target = link.split(" -> ")
    yield [measured, f"{target} -> {source}"], "the way back"
    yield [measured, source], "is a device"
    yield from (([measured, name], "took as long as drawn") for name in ("ada -> alan", "ada -> no one"))
    yield from ((answer, "wanted [measured") for answer in ([link, measured], [measured, 3], [measured]))
    yield [lab.run(given.plan, "1f1b", iterations=4), link], "not on emulated=given.secretly"


@wrong("survive-a-kill")
def survive_a_kill(given, right):
    calm, disturbed = right
    yield from ((answer, "wanted [undisturbed, disturbed]") for answer in ([calm, calm], [disturbed, calm]))
    yield [with_context(calm, losses=tuple(2 * each for each in calm.context.losses)), disturbed], "the losses differ"
    yield [lab.simulate(given.plan), disturbed], "was simulated"
    bystander = next(one for one in given.plan.topology.names if one != given.victim)
    others = tuple(fault._replace(device=bystander) for fault in disturbed.context.faults)
    yield [calm, with_context(disturbed, faults=others)], f"wanted {given.victim}"


def with_context(trace, **changed):
    """A trace that says something else of its run."""
    return replace(trace, context=replace(trace.context, **changed))


def of_another_plan(trace, **changed):
    """A trace that says something else of its plan."""
    return with_context(trace, plan=replace(trace.context.plan, **changed))


@wrong("a-cut-of-your-own")
def a_cut_of_your_own(given, right):
    job = given.job.with_fields(schedule="1f1b")
    even = lab.evaluate(given.network, job, stages=[[device] for device in range(4)])
    yield even, "blocks (3, 3, 3, 3) take"
    slowest = min(range(4), key=lambda at: given.network.devices[at].peak_flop_per_s)
    most_on_it = job.with_fields(blocks_per_stage=tuple(9 if at == slowest else 1 for at in range(4)))
    yield lab.evaluate(given.network, most_on_it, stages=even.stages), "wanted at most"
    yield lab.plan(given.network, given.job.with_fields(global_batch=64), seed=0, steps=2), "global_batch"
    alone = lab.load_job("gpt2-small", n_stages=1, n_replicas=4)
    yield lab.plan(given.network, alone, seed=0, steps=2), "the job has"


@wrong("sooner-at-the-loss")
def sooner_at_the_loss(given, right):
    yield lab.simulate(lab.with_job(given.plan, compression="int8", synchronise_every=8), "1f1b"), "simulated"
    plain = lab.run(given.plan, "1f1b", iterations=6)
    yield plain, "wanted below 3.0"
    yield with_context(plain, losses=(2.9,) * 6), "uncompressed averages every time"
    yield of_another_plan(plain, synchronise_every=100), "never averaged"
    yield of_another_plan(plain, topology_fingerprint="another"), "own links"


@wrong("a-system-that-wins-here")
def a_system_that_wins_here(given, right):
    everywhere = [given.network.scaled(bandwidth=times) for times in (0.01, 0.1, 1, 10, 100)]
    won = [bool(lab.missions.check("a-system-that-wins-here", one)) for one in everywhere]
    assert not all(won), "any network wins"
    yield everywhere[won.index(False)], "wanted"
    yield lab.load_topology("worldwide"), "it has 64 devices"
    faster = tuple(replace(one, gpu="A100") for one in given.network.devices)
    yield replace(given.network, devices=faster), "another network"


@wrong("which-assumption")
def which_assumption(given, right):
    none, tree, two, weak = (
        lab.systems.variant("megatron", **given.shipped | changes)
        for changes in (
            {},
            {"synchronisation": "tree"},
            {"overlap": True, "gradient_dtype": "fp16"},
            {"sharding": "zero-1"},
        )
    )
    found = lab.strategies(given.network, given.job, systems=[none, tree, two, weak, "ddp"])
    yield found[none.label], "0 assumptions are changed (none)"
    yield found[tree.label], "saves nothing here"
    yield found[two.label], "2 assumptions"
    yield found[weak.label], "another one saves more"
    yield found["ddp"], "wanted Megatron-LM"


@wrong("make-it-compute-bound")
def make_it_compute_bound(given, right):
    plan = given.plan
    yield plan, "would remain; wanted at least half"
    yield lab.with_job(plan, global_batch=128), "wanted at most 64"
    yield lab.with_job(plan, global_batch=64, compression="int8"), "compression"
    yield lab.with_job(plan, global_batch=64, synchronise_every=8), "synchronise_every"
    alone = lab.load_job("tiny", n_stages=1, n_replicas=1, global_batch=64)
    yield lab.evaluate(plan.topology, alone, stages=[[0]]), "3 laptops are idle"
    yield lab.evaluate(plan.topology.scaled(bandwidth=10), plan.job, stages=plan.stages), "another network"


@wrong("least-batch")
def least_batch(given, right):
    def of_averaging(compute_s, synchronise_s, n_replicas, target):
        return n_replicas * max(1, int(np.ceil(target * synchronise_s / compute_s)))

    yield lambda *case: right(*case) // case[2], "batch of one replica"
    yield of_averaging, "not of the whole iteration"
    yield lambda *case: 64, "it returned"
    yield lambda *case: None, "wanted a number"


@wrong("what-was-measured")
def what_was_measured(given, right):
    transport, efficiency = right
    yield [{"overlapped": "blocking", "blocking": "overlapped"}[transport], efficiency], "but not both"
    yield [transport, efficiency * 100], "per cent"
    yield [transport, efficiency * 1.05], "is not it"
    yield [transport, "0.3"], "wanted [transport, efficiency]"
    yield ["quick", efficiency], "wanted one of"


@wrong("judged-on-the-unseen")
def judged_on_the_unseen(given, right):
    def errors(full_s, measured_s, of_others):
        full, measured = np.array(full_s), np.array(measured_s)
        return list(measured * of_others(full / measured) / full - 1)

    def means(reached):
        return np.array([np.delete(reached, i).mean() for i in range(len(reached))])

    yield lambda full, measured: errors(full, measured, np.median), "leave it out"
    yield lambda full, measured: errors(full, measured, means), ""
    yield lambda full, measured: [0.0] * len(full), "differ from the wanted"
    yield lambda full, measured: [0.1], "wanted one for each row"


@wrong("how-often-to-write")
def how_often_to_write(given, right):
    yield right / 6, "mostly writing"
    yield right * 8, "done again"
    yield from ((value, "wanted seconds above 0") for value in (0, -5.0, float("inf"), float("nan")))


@wrong("a-policy-for-each")
def a_policy_for_each(given, right):
    yield from (([name] * 3, "of what the best policy does") for name in given.names[:2])
    yield right[:1], "wanted three names"
    yield from (([*right[:2], name], f"wanted one of {given.names[0]}") for name in ("resart", 3, None, Odd()))


@wrong("spread-the-replicas")
def spread_the_replicas(given, right):
    together = [[0, 1], [2, 3], [4, 5]]
    yield lab.evaluate(given.network, given.job, stages=together), "all of stage"
    yield lab.evaluate(given.network, given.job, stages=[[0, 2], [1, 3], [4, 5]]), "all of stage 2 is there"
    yield lab.evaluate(given.network.scaled(bandwidth=9), given.job, stages=right.stages), "another network"
    yield lab.with_job(right, global_batch=8), "global_batch"
    flat = given.job.with_fields(n_stages=1, n_replicas=6)
    yield lab.evaluate(given.network, flat.with_fields(global_batch=96), stages=[range(6)]), "n_stages"


@wrong("beat-a-policy")
def beat_a_policy(given, right):
    yield lambda now: None, "it trains 0.000 times"
    yield lambda now: right(now) if now.lost or now.operation is None else None, "wanted 1.05 times"
    yield lambda now: Response(now.fleet.operation(now.present)), "wanted a pause"
    yield lambda now: "go on", "wanted a Response, or None"
    yield lambda now: 1 / 0, "raised ZeroDivisionError"

    def faster(now):
        found = now.fleet.operation(now.present)
        return Response(None if found is None else replace(found, step_s=0.1), pause_s=60)

    yield faster, "that now.fleet.operation makes"


@wrong("capstone-network")
def capstone_network(given, right):
    hall = lab.load_topology("lecture-hall")
    yield hall, "comes with the lab"
    yield replace(hall, name="mine", description=right.description), "comes with the lab"
    yield replace(right, description="Mine."), "where are the numbers from"
    yield right.subset(range(4)), "it has 4 devices"
    alike = lab.Topology.from_matrices([[5] * 6] * 6, [[1] * 6] * 6, regions=["a"] * 3 + ["b"] * 3, gpu="laptop")
    yield alike, "if all are equal"


@wrong("capstone-plan")
def capstone_plan(given, right):
    job = lab.load_job("tiny", n_stages=1, n_replicas=6, global_batch=12)
    scattered = lab.evaluate(right.topology, job, stages=[range(6)])
    yield scattered, "times the bound"
    yield replace(scattered, iteration_lower_bound_s=scattered.iteration_s), "times the bound"
    yield lab.plan("lecture-hall", "tiny", seed=0, steps=1), "comes with the lab"


@wrong("capstone-run")
def capstone_run(given, right):
    plan, predicted, measured = right
    yield [plan, measured, predicted], "was simulated"
    yield [plan, lab.simulate(plan), measured], "not from the profile"
    mixed = ([predicted, plan, measured], [plan, predicted])
    yield from ((answer, "wanted [plan, predicted, measured]") for answer in mixed)
    elsewhere = lab.plan("lecture-hall", plan.job, objective="communication", seed=0, steps=1)
    yield [elsewhere, predicted, measured], "comes with the lab"
