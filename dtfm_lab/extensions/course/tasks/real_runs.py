"""Missions about real runs: predict one, find a link that differs from its specification, and survive a lost worker.
The capstone, which ends with a run, is here too."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dtfm_lab.compare import compare
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan, cut_subplan
from dtfm_lab.domain.trace import LINK_SEPARATOR, Trace
from dtfm_lab.domain.units import counted, format_share, signed_share
from dtfm_lab.extensions.course.checks import (
    MissionsOf,
    Number,
    TextValues,
    fits,
    parts_of,
    predicted_before,
    ran_plan,
    require,
)
from dtfm_lab.extensions.course.mission import Given
from dtfm_lab.extensions.course.small_networks import plan_of_laptops
from dtfm_lab.files import load_topology, topology_names
from dtfm_lab.planning import plan as search_plan
from dtfm_lab.simulation import simulate

runs = MissionsOf("10_real_run")


def give_laptops(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return a plan of four laptops, and the two devices of its first pipeline."""
    plan = plan_of_laptops(rng, bandwidth=0.2)
    first, last = plan.pipelines[0]
    return {"plan": plan, "first": first, "last": last}


def message_ms(given: Given, traces: object) -> Number:
    """Return the milliseconds of one micro-batch's activation from the first stage to the second."""
    network, job = given.plan.topology, given.plan.job
    here, there = network.index(given.first), network.index(given.last)
    n_bytes, latency_s = job.activation_bytes, float(network.latency_s[here, there])
    sent_s = n_bytes / float(network.bandwidth_bytes_per_s[here, there])
    slips = {"no_latency": 1e3 * sent_s, "only_latency": 1e3 * latency_s, "bits": 1e3 * (latency_s + sent_s / 8)}
    return Number(1e3 * (latency_s + sent_s), slips | {"seconds": latency_s + sent_s})


@runs.mission("predicted-within-5", takes=(list, tuple), reason=message_ms, give=give_laptops)
def predicted_within_5(answer: Sequence[object], given: Given) -> TextValues:
    predicted, measured = parts_of(answer, "[predicted, measured], two Traces", Trace, Trace)
    ran_plan(measured, given.plan, iterations=4)
    require(
        measured.context.clock != "paced",
        "on the paced clock, computations are padded to the predicted seconds, so they agree by construction",
    )
    require(
        measured.context.clock == "virtual",
        "on the real clock, workers wait for each other's cores, which no profile knows, and no link is emulated; "
        "wanted the virtual clock",
    )
    # A prediction made after the measurement would be no prediction.
    predicted_before(predicted, measured, given.plan)
    error = compare(predicted, measured).iteration_error
    require(
        abs(error) < 0.05,
        f"it is off by {signed_share(error)}; wanted less than 5 %. Is this machine busy with other things?",
    )
    return {"error": signed_share(error)}


def give_secret(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return a plan, and a network on which one of the plan's links is slower in one direction."""
    plan = plan_of_laptops(rng, bandwidth=0.2)
    here, there = (int(place) for place in plan.placement.devices[:, int(rng.integers(2))])
    if rng.random() < 0.5:
        here, there = there, here
    bandwidth = plan.topology.bandwidth_bytes_per_s.copy()
    bandwidth[here, there] /= int(rng.integers(4, 9))
    # the last question asks for this factor: because of latency, a ratio of seconds does not show it
    return {"plan": plan, "secretly": replace(plan.topology, bandwidth_bytes_per_s=bandwidth)}


def secret_link(given: Given) -> tuple[str, str]:
    """Return the two ends of the link that differs from its specification, from sender to receiver."""
    drawn, truth = given.plan.topology, given.secretly
    here, there = np.argwhere(drawn.bandwidth_bytes_per_s != truth.bandwidth_bytes_per_s)[0]
    return drawn.names[here], drawn.names[there]


def times_narrower(given: Given, answer: Any) -> Number:
    """Return the factor by which the secret link's bandwidth is below its specification. Its latency is as
    specified."""
    source, target = secret_link(given)
    here, there = given.plan.topology.index(source), given.plan.topology.index(target)
    drawn, truth = (each.bandwidth_bytes_per_s[here, there] for each in (given.plan.topology, given.secretly))
    n_bytes = given.plan.job.activation_bytes
    late = given.secretly.transfer_s(n_bytes)[here, there] / given.plan.topology.transfer_s(n_bytes)[here, there]
    factor = float(drawn / truth)
    return Number(factor, {"of_seconds": float(late), "inverse": 1 / factor})


@runs.mission("mystery-link-measured", takes=(list, tuple), reason=times_narrower, give=give_secret)
def mystery_link_measured(answer: Sequence[object], given: Given) -> TextValues:
    measured, name = parts_of(answer, '[measured, "a -> b"]', Trace, str)
    ran_plan(measured, given.plan, iterations=4)
    require(measured.context.links == "emulated", "no link was emulated in this run; wanted the virtual clock")
    source, target = secret_link(given)
    links = compare(simulate(given.plan, like=measured), measured).links
    wanted = LINK_SEPARATOR.join((source, target))
    late = float((links["measured_s"] / links["predicted_s"])[wanted])
    require(late > 2, "all its messages took as long as drawn: this run was not on emulated=given.secretly")
    # A hand-in may have other spaces around the arrow.
    said = LINK_SEPARATOR.join(part.strip() for part in name.split(LINK_SEPARATOR.strip()))
    # The most likely wrong answer gets its own sentence.
    require(said != LINK_SEPARATOR.join((target, source)), "that is the way back; each direction is a separate link")
    require(
        said not in given.plan.topology.names,
        "that is a device. Its computations took as long as predicted. What did it send, or wait for?",
    )
    require(said == wanted, f"messages of {said} took as long as drawn: if late, they waited for another link")
    return {"wanted": wanted, "late": late}


faults = MissionsOf("11_faults")

ITERATIONS = 4


def give_victim(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return a plan of four laptops, the laptop to kill, the number of iterations between two checkpoints, and the
    iteration that is interrupted (from 1)."""
    plan = plan_of_laptops(rng, bandwidth=0.2)
    every = int(rng.integers(4, 8))
    at = every * int(rng.integers(2, 6)) + int(rng.integers(3, every + 1))
    return {"plan": plan, "victim": str(rng.choice(plan.topology.names)), "every": every, "at": at}


def iterations_again(given: Given, traces: object) -> Number:
    """Return the whole iterations since the newest checkpoint if iteration ``given.at`` is interrupted."""
    done = given.at - 1
    again = done % given.every
    return Number(float(again), {"all": float(done), "interval": float(given.every), "one_more": again + 1.0}, within=0)


@faults.mission("survive-a-kill", takes=(list, tuple), reason=iterations_again, give=give_victim)
def survive_a_kill(answer: Sequence[object], given: Given) -> TextValues:
    calm, disturbed = parts_of(answer, "[undisturbed, disturbed], two Traces", Trace, Trace)
    for trace in (calm, disturbed):
        ran_plan(trace, given.plan, iterations=ITERATIONS)
    require(not calm.context.faults, "a worker was lost in the first run, too; wanted [undisturbed, disturbed]")
    require(bool(disturbed.context.faults), "no worker was lost in the second run; wanted [undisturbed, disturbed]")
    lost = {fault.device: fault for fault in disturbed.context.faults}
    require(given.victim in lost, f"the run lost {', '.join(lost)}; wanted {given.victim}")
    fault = lost[given.victim]
    require("SIGKILL" in fault.how, f"{given.victim} {fault.how}; wanted it killed, as by a power cut")
    require(fault.state_from in given.plan.topology.names, f"its state is from {fault.state_from}; wanted a peer's")
    # Equal losses show that nothing was lost but time.
    require(
        calm.context.losses == disturbed.context.losses,
        "the losses differ; wanted the same job, seed, rate and number of iterations in both runs, and nothing else",
    )
    return {"peer": fault.state_from, "lost_s": fault.lost_s}


def give_failures(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return the number of devices, the mean days between two failures of a single device, and the seconds to write a
    checkpoint."""
    return {
        "devices": int(rng.choice([16, 32, 64, 128])),
        "days": int(rng.integers(5, 60)),
        "write_s": int(rng.integers(10, 120)),
    }


@faults.number("checkpoint-every", give=give_failures)
def checkpoint_every(given: Given) -> Number:
    of_one_s = given.days * 86_400
    wanted_s = math.sqrt(2 * given.write_s * of_one_s / given.devices)
    share = given.write_s / wanted_s + wanted_s / 2 / (of_one_s / given.devices)
    slips = {"one_device": wanted_s * math.sqrt(given.devices), "whole_interval": wanted_s / math.sqrt(2)}
    return Number(wanted_s, slips | {"minutes": wanted_s / 60}, {"share": format_share(share)}, within=0.02)


capstone = MissionsOf("18_capstone")

LEAST_DEVICES = 6
UNEQUAL = 3.0
"""Minimum bandwidth of the fastest link of the reader's network, as a multiple of the slowest link's."""
LEAST_WORDS = 15
"""Minimum number of words in the network's description, which has to say where its numbers come from."""
NEAR_BOUND = 1.5
AT_MOST = 64
"""Maximum number of devices of the reader's network, so that its lower bound is computed within seconds."""


def own_network(network: Topology) -> None:
    """Raise NotYet if a network is a bundled one, has too few or too many devices, or links that hardly differ."""
    n = len(network)
    require(n >= LEAST_DEVICES, f"it has {counted(n, 'device')}; wanted at least {LEAST_DEVICES}")
    require(n <= AT_MOST, f"it has {counted(n, 'device')}; wanted at most {AT_MOST}, so that its bound takes seconds")
    for name in topology_names():
        bundled = load_topology(name)
        if len(bundled) != n:
            continue
        # A bundled network that was moved a little is still not the reader's own.
        between = ~np.eye(n, dtype=bool)
        apart = np.abs(np.log(network.bandwidth_bytes_per_s[between] / bundled.bandwidth_bytes_per_s[between]))
        late = np.abs(network.latency_s - bundled.latency_s).max()
        require(apart.max() > 0.01 or late > 1e-4, f"its links are those of {name}, which comes with the lab")
    bandwidth = network.bandwidth_bytes_per_s[~np.eye(n, dtype=bool)]
    ratio = float(bandwidth.max() / bandwidth.min())
    require(
        ratio >= UNEQUAL,
        f"its fastest link is {ratio:.2g} times its slowest; if all are equal, no placement is better than another: "
        f"wanted at least {UNEQUAL:g} times",
    )


@capstone.mission("capstone-network", takes=Topology)
def capstone_network(network: Topology, given: Given) -> TextValues:
    own_network(network)
    require(len(network.regions) >= 2, f"it has {len(network.regions)} region; wanted at least two")
    without = [device.name for device in network.devices if not device.peak_flop_per_s and not device.gpu]
    require(not without, f"{', '.join(without[:3])} have neither a GPU nor a peak; wanted one")
    words = len(network.description.split())
    require(
        words >= LEAST_WORDS,
        f"its description has {words} words; wanted {LEAST_WORDS} or more: where are the numbers from?",
    )
    return {"devices": counted(len(network), "device"), "n_regions": len(network.regions)}


def times_by_free_messages(given: Given, plan: Plan) -> Number:
    """Return the factor by which free messages alone would shorten a plan's iteration."""
    free = plan.changed(topology=plan.topology.scaled(bandwidth=1e6, latency=0))
    now_s, free_s = (simulate(each).iteration_s for each in (plan, free))
    return Number(now_s / free_s, {"share": free_s / now_s, "per_cent": 100 * free_s / now_s}, within=0.02)


@capstone.mission("capstone-plan", takes=Plan, reason=times_by_free_messages)
def capstone_plan(plan: Plan, given: Given) -> TextValues:
    own_network(plan.topology)
    fits(plan)
    found_s = simulate(plan).iteration_s
    # Open, because the bound has to hold for every shape that the reader could have chosen.
    open_job = plan.job.with_fields(
        n_stages=None, n_replicas=None, blocks_per_stage=None, microbatches_per_replica=None, warmups=None
    )
    bound_s = search_plan(plan.topology, open_job, objective="iteration", seed=0, steps=1).iteration_lower_bound_s
    assert bound_s is not None, "a search for seconds has a bound"
    require(
        found_s <= NEAR_BOUND * bound_s,
        f"it takes {found_s:.4g} s, {found_s / bound_s:.2f} times the bound of {bound_s:.4g} s; wanted at "
        f"most {NEAR_BOUND:g} times",
    )
    return {"found_s": found_s, "times": found_s / bound_s}


def busiest_percent(given: Given, answer: Any) -> Number:
    """Return the per cent of the measured iteration for which the busiest device computes."""
    *_, measured = answer
    rows = measured.bubble
    share = rows.busy_s / rows.iteration_s
    slips = {"mean": 100 * float(share.mean()), "waits": 100 - 100 * float(share.max())}
    return Number(100 * float(share.max()), slips | {"share": float(share.max())}, within=0.02)


@capstone.mission("capstone-run", takes=(list, tuple), reason=busiest_percent)
def capstone_run(answer: Sequence[object], given: Given) -> TextValues:
    wanted = "[plan, predicted, measured]: a Plan and two Traces"
    plan, predicted, measured = parts_of(answer, wanted, Plan, Trace, Trace)
    own_network(plan.topology)
    ran_plan(measured, cut_subplan(plan, measured.context.rehearsed), iterations=4)
    predicted_before(predicted, measured, plan)
    require(measured.context.clock == "virtual", "wanted the virtual clock, where a run does not agree by construction")
    error = compare(predicted, measured).iteration_error
    require(
        abs(error) < 0.1, f"it is off by {signed_share(error)}; wanted less than 10 %. What does the comparison name?"
    )
    part = measured.context.rehearsed
    ran = "all of it" if part is None else part.sentence
    return {"error": signed_share(error), "ran": ran}
