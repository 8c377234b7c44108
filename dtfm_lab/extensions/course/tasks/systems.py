"""Missions about training systems: which wins where and why, what makes a network compute-bound, and what published
numbers say about an assumption and a fit."""

import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import counted, format_share
from dtfm_lab.extensions.course.checks import (
    TRAINED,
    MissionsOf,
    Number,
    TextValues,
    Trial,
    fits,
    fresh_cases,
    near,
    once_per_reader,
    parts_of,
    plan_of,
    require,
    same_job,
    same_network,
    value_of,
)
from dtfm_lab.extensions.course.mission import Given, NotYet
from dtfm_lab.extensions.course.small_networks import plan_of_laptops, two_rooms
from dtfm_lab.extensions.systems.ablations import with_free_messages
from dtfm_lab.extensions.systems.api import Outcome, Strategy, outcome_of, variant
from dtfm_lab.extensions.systems.modelled.megatron import AS_SHIPPED
from dtfm_lab.files import load_job
from dtfm_lab.planning import evaluate
from dtfm_lab.simulation import simulate

systems = MissionsOf("14_systems")

RIVALS = ("ddp", "megatron", "dt-fm")
"""The systems that compete, each on all devices with the job's micro-batch."""
CLEARLY = 1.05
"""The second-best system must take at least this multiple of the winner's seconds."""
SINGLE_CHANGES: tuple[dict[str, Any], ...] = (
    {"order": "pp-dp"},
    {"overlap": True},
    {"sharding": "zero-1"},
    {"devices": "tried"},
    {"transport": "overlapped"},
    {"synchronisation": "tree"},
    {"stages_per_device": 2},
    {"gradient_dtype": "fp16"},
)
"""Single changes to the assumptions about Megatron-LM as it is shipped, without flags."""


def give_winner(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return eight devices, a batch, and the system that has to win."""
    return {"network": two_rooms(rng), "batch": int(rng.choice([48, 64, 96])), "winner": str(rng.choice(RIVALS))} | {
        "systems": _rivals()
    }


def _rivals() -> list[Strategy]:
    return [variant(name, devices="all", microbatches="given") for name in RIVALS]


def winners_job(given: Given) -> Job:
    return load_job("gpt2-small", global_batch=given.batch)


@systems.mission("a-system-that-wins-here", takes=Topology, give=give_winner, job=winners_job)
def a_system_that_wins_here(network: Topology, given: Given) -> TextValues:
    require(
        len(network) == len(given.network),
        f"it has {counted(len(network), 'device')}; wanted the eight of your network",
    )
    # Only bandwidths may change, so the rest is compared with the given network's.
    plain = replace(
        network, latency_s=given.network.latency_s, bandwidth_bytes_per_s=given.network.bandwidth_bytes_per_s
    )
    same_network(replace(plain, message_bytes=None, message_s=None), given.network)
    job = winners_job(given)
    found = {one.name: outcome_of(one, network, job) for one in _rivals()}
    seconds = {name: one.iteration_s for name, one in found.items() if one.iteration_s is not None}
    first = min(seconds, key=lambda name: seconds[name], default="none")
    require(first == given.winner, f"{first} is fastest here; wanted {given.winner}")
    next_s = min((s for name, s in seconds.items() if name != first), default=np.inf)
    require(
        next_s >= CLEARLY * seconds[first],
        f"the next takes {next_s / seconds[first]:.3f} times as long; wanted at least {CLEARLY} times",
    )
    return {"title": found[first].title, "first_s": seconds[first], "times": next_s / seconds[first]}


def give_rooms(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return eight devices, and a job for them."""
    return {"network": two_rooms(rng), "job": load_job("gpt2-small", global_batch=64), "shipped": AS_SHIPPED}


@once_per_reader
def shipped_and_best_s(given: Given) -> tuple[float, float]:
    """Return the seconds of an iteration of Megatron-LM as shipped, and with the single change that saves most."""
    shipped, *changed = (variant("megatron", **AS_SHIPPED | change) for change in ({}, *SINGLE_CHANGES))
    before_s = outcome_of(shipped, given.network, given.job).iteration_s
    assert before_s is not None, "eight V100s hold this model"
    others = [outcome_of(one, given.network, given.job).iteration_s for one in changed]
    return before_s, min(seconds for seconds in others if seconds is not None)


@systems.mission("which-assumption", takes=Outcome, give=give_rooms)
def which_assumption(outcome: Outcome, given: Given) -> TextValues:
    strategy = outcome.strategy
    require(strategy.name == "megatron", f"this is {strategy.title}; wanted Megatron-LM with one assumption changed")
    shipped = variant("megatron", **AS_SHIPPED)
    changed = [one.name for one in strategy.assumptions if getattr(strategy, one.field) != getattr(shipped, one.field)]
    require(len(changed) == 1, f"{len(changed)} assumptions are changed ({', '.join(changed) or 'none'}); wanted one")
    # These do not count as changes: the search tries all their values.
    require(changed[0] not in ("n_stages", "tensor_parallel"), f"every value of {changed[0]} is tried already")
    same_network(outcome.plan.topology, given.network)
    same_job(outcome.job, given.job, "model", "global_batch")
    again_s = outcome_of(strategy, given.network, given.job).iteration_s
    assert again_s is not None, "an outcome with a plan has seconds"
    before_s, best_s = shipped_and_best_s(given)
    require(again_s < before_s, f"{changed[0]} saves nothing here")
    require(again_s <= best_s * 1.001, f"{changed[0]} saves {before_s - again_s:.3g} s; another one saves more")
    return {"which": changed[0], "again_s": again_s, "before_s": before_s}


codesign = MissionsOf("15_codesign")

MOST_BATCH = 64
TIMES = 2.0
"""Factor by which the answer has to exceed the tokens per second of the given plan."""


def seconds_of(plan: Plan) -> tuple[float, float]:
    """Return the seconds of the plan's iteration, as it is and with free messages in the same order of passes."""
    trace = simulate(plan, queueing=plan.queueing)
    free = plan.changed(topology=with_free_messages(plan.topology))
    return trace.iteration_s, simulate(free, trace.context.recorded_schedule, queueing=plan.queueing).iteration_s


def most_by_bandwidth(given: Given, plan: Plan) -> Number:
    """Return the factor by which free messages alone would shorten the given plan's iteration."""
    now_s, free_s = seconds_of(given.plan)
    return Number(now_s / free_s, {"share": free_s / now_s, "per_cent": 100 * free_s / now_s}, within=0.02)


@codesign.mission(
    "make-it-compute-bound", takes=Plan, reason=most_by_bandwidth, give=lambda rng: {"plan": plan_of_laptops(rng)}
)
def make_it_compute_bound(plan: Plan, given: Given) -> TextValues:
    plan_of(plan, given.plan.topology, given.plan.job, *TRAINED)
    require(not plan.idle_devices, f"{len(plan.idle_devices)} laptops are idle; a single one would never wait")
    require(plan.job.global_batch <= MOST_BATCH, f"the batch is {plan.job.global_batch}; wanted at most {MOST_BATCH}")
    fits(plan)
    (before_s, before_free_s), (after_s, after_free_s) = seconds_of(given.plan), seconds_of(plan)
    computing = after_free_s / after_s
    require(computing >= 0.5, f"{format_share(computing, 0)} of its iteration would remain; wanted at least half")
    times = (plan.job.tokens / after_s) / (given.plan.job.tokens / before_s)
    require(
        times >= TIMES,
        f"it is compute-bound, but trains {times:.2f} times as many tokens a second; wanted {TIMES:g}. Waiting for a "
        "pipeline to fill counts as computing, and trains nothing",
    )
    return {"before": format_share(before_free_s / before_s, 0), "now": format_share(computing, 0), "times": times}


@codesign.function("least-batch")
def least_batch(rng: np.random.Generator) -> Iterator[Trial]:
    for _ in range(20):
        compute_s, synchronise_s = float(rng.uniform(0.01, 2)), float(rng.uniform(0.1, 60))
        n_replicas, target = int(rng.integers(2, 65)), float(rng.uniform(0.3, 0.95))
        each = max(1, math.ceil(target / (1 - target) * synchronise_s / compute_s))
        case = (
            f"{compute_s:.3g} s, {synchronise_s:.3g} s, {counted(n_replicas, 'replica')} and a target of {target:.2f}"
        )
        slips = {
            "one_replica": float(each),
            "of_averaging": float(n_replicas * max(1, math.ceil(target * synchronise_s / compute_s))),
        }
        arguments = compute_s, synchronise_s, n_replicas, target
        yield Trial(arguments, n_replicas * each, slips, within=0, about=f"for {case}")


ledger = MissionsOf("16_published")

TRANSPORTS = ("overlapped", "blocking")


def give_measured(rng: np.random.Generator) -> Mapping[str, Any]:
    """Return two plans and their "measured" seconds, from an efficiency and a transport that the reader does not
    know."""
    network = two_rooms(rng)
    stages = [list(range(4)), list(range(4, 8))]
    efficiency, transport = int(rng.integers(250, 450)) / 1e3, str(rng.choice(TRANSPORTS))
    plans, measured_s = [], []
    for batch in (32, 256):
        job = load_job("gpt2-small", n_stages=2, n_replicas=4, global_batch=batch, microbatch=2, dtype="fp16")
        plan = evaluate(network, job, stages=stages)
        plans.append(plan)
        run = plan.changed(job=plan.job.with_fields(transport=transport))
        measured_s.append(round(simulate(run, "1f1b", efficiency=efficiency).iteration_s, 5))
    return {"plans": plans, "measured_s": measured_s, "small_s": measured_s[0], "large_s": measured_s[1]} | {
        # Underscore: the check may see it, the reader may not.
        "_measured_with": (transport, efficiency)
    }


@ledger.mission("what-was-measured", takes=(list, tuple), give=give_measured)
def what_was_measured(answer: Sequence[object], given: Given) -> TextValues:
    transport, efficiency = parts_of(answer, "[transport, efficiency]", str, float)
    hidden_transport, hidden_efficiency = given._measured_with
    require(transport in TRANSPORTS, f"transport is {transport!r:.30}; wanted one of {', '.join(TRANSPORTS)}")
    require(
        transport == hidden_transport,
        "with that transport, one efficiency can fit one of the two rows, but not both",
    )
    near(float(efficiency), hidden_efficiency, slips={hidden_efficiency * 100: "that is per cent; wanted a share"})
    return {"transport": hidden_transport, "share": format_share(hidden_efficiency)}


@ledger.mission("judged-on-the-unseen", takes=types.FunctionType)
def judged_on_the_unseen(function: Callable[..., Any], given: Given) -> TextValues:
    rng = fresh_cases()
    for n in (3, 4, 9):
        full_s = rng.uniform(1, 20, n)
        measured_s = full_s / rng.uniform(0.2, 0.6, n)
        reached = full_s / measured_s
        others = np.array([np.median(np.delete(reached, i)) for i in range(n)])
        wanted = measured_s * others / full_s - 1
        found = value_of(function, full_s.tolist(), measured_s.tolist())
        try:
            errors = np.asarray(found, dtype=float)
        except (TypeError, ValueError):
            raise NotYet(f"your function returned {found!r:.60}; wanted a list of numbers") from None
        require(
            errors.shape == (n,),
            f"for {counted(n, 'row')} it returns {counted(errors.size, 'number')}; wanted one for each row",
        )
        seen = measured_s * np.median(reached) / full_s - 1
        # The known mistake: fitted to the row itself.
        if np.allclose(errors, seen) and not np.allclose(seen, wanted):
            raise NotYet("each row was among those that its prediction was fitted to: leave it out")
        by_mean = measured_s * np.array([np.delete(reached, i).mean() for i in range(n)]) / full_s - 1
        require(not np.allclose(errors, by_mean) or np.allclose(by_mean, wanted), "that is the mean of the others")
        signs = "the error is measured over predicted, minus 1, not the other way round: plus is longer than predicted"
        require(not np.allclose(errors, 1 / (wanted + 1) - 1), signs)
        require(bool(np.allclose(errors, wanted)), f"for {counted(n, 'row')} the errors differ from the wanted ones")
    return {}
