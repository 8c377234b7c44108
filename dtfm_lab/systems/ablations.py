"""What a system's iteration would take with one thing taken away: each is simulated, with all else as it is.

Gains do not add up: two things may hide each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.network.topology import LARGEST
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.planning import search
from dtfm_lab.planning.cost import pair_costs
from dtfm_lab.simulation.efficiency import peak_of, speeds_of
from dtfm_lab.simulation.memory import memory
from dtfm_lab.systems.ablation import Ablation
from dtfm_lab.systems.grids import in_rank_order
from dtfm_lab.systems.outcome import Outcome
from dtfm_lab.systems.strategy import Budget

NAMED = 2
"""Most devices that are left out by name."""
STEPS = 3
"""Generations of the search for another placement: more bring little, and a list must stay quick."""
SCHEDULES = ("gpipe", "1f1b", "adaptive-1f1b")
"""Orders of passes that are tried in place of the system's own."""
BUCKETS = 4
"""Buckets of a stage's gradient, where its averaging overlaps: few, as each pays the latency."""
NEVER = 10**9
"""Iterations between two averages, where replicas never average."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A plan and a budget to predict in place of the system's own."""

    plan: Plan
    budget: Budget
    condition: str


def stream_ablations(outcome: Outcome) -> Iterator[Ablation]:
    """Each thing that the outcome's plan has to take away, one after the other, the cheapest first.

    What the plan's shape or its schedule does not allow is left out. Nothing for an outcome without a plan.
    """
    if outcome.found is None or outcome.iteration_s is None:
        return
    for name, (kind, noun, trials) in ABLATIONS.items():
        best: Ablation | None = None
        for trial in _allowed(trials, outcome):
            try:
                iteration_s = outcome.strategy.trace(trial.plan, trial.budget).iteration_s
                held = memory(trial.plan)
            except LabError:  # what this system's prediction does not know
                continue
            if best is not None and (not held.fits, iteration_s) >= (not best.fits, best.iteration_s):
                continue
            best = Ablation(
                name=name,
                kind=kind,
                noun=noun,
                condition=trial.condition,
                before_s=outcome.iteration_s,
                iteration_s=iteration_s,
                fits=held.fits,
                lacks="" if held.fits else held.sentence,
                near=trial.plan,
            )
        if best is not None:
            yield best


def _allowed(trials: Callable[[Outcome], Iterator[Trial]], outcome: Outcome) -> Iterator[Trial]:
    try:
        yield from trials(outcome)
    except LabError:  # the job, the network or the schedule does not allow it
        return


def _with_job(outcome: Outcome, condition: str, **fields: Any) -> Trial:
    job = outcome.job.with_fields(**fields)
    return Trial(plan=outcome.plan.changed(job=job), budget=outcome.budget, condition=condition)


def _on(outcome: Outcome, topology: Topology, condition: str, **fields: Any) -> Trial:
    job = outcome.job.with_fields(**fields) if fields else outcome.job
    return Trial(plan=outcome.plan.changed(topology=topology, job=job), budget=outcome.budget, condition=condition)


def _transport(outcome: Outcome) -> Iterator[Trial]:
    if outcome.job.transport != "overlapped" and outcome.job.n_stages > 1:
        yield _with_job(outcome, "stages computed on while they send", transport="overlapped")


def _cards(outcome: Outcome) -> Iterator[Trial]:
    topology = outcome.plan.topology
    if topology.card_of is None and outcome.budget.queueing == "pairs":
        return
    apart = replace(topology, devices=tuple(replace(device, host="") for device in topology.devices))
    budget = replace(outcome.budget, queueing="pairs")
    yield Trial(
        plan=outcome.plan.changed(topology=apart, queueing="pairs"),
        budget=budget,
        condition="every pair of devices had a link of its own",
    )


def _overlap(outcome: Outcome) -> Iterator[Trial]:
    job = outcome.job
    if job.n_replicas > 1 and not job.overlap:
        size = max(job.gradient_bytes / BUCKETS, 1.0)
        yield _with_job(outcome, "gradients were averaged during the last backward", overlap=True, bucket_bytes=size)


def _averaging(outcome: Outcome) -> Iterator[Trial]:
    if outcome.job.n_replicas > 1 and outcome.job.sharding == "none":
        alone = {"synchronise_every": NEVER, "fragments": 1, "fragment_delay": 0, "overlap": False}
        yield _with_job(outcome, "replicas never averaged", **alone)


def _latency(outcome: Outcome) -> Iterator[Trial]:
    yield _on(outcome, faster(outcome.plan.topology, latency=True), "links had no latency")


def _bandwidth(outcome: Outcome) -> Iterator[Trial]:
    yield _on(outcome, faster(outcome.plan.topology, bandwidth=True), "links had infinite bandwidth")


def _messages(outcome: Outcome) -> Iterator[Trial]:
    free = faster(outcome.plan.topology, latency=True, bandwidth=True)
    yield _on(outcome, _without_inner(free), "messages took no time")


def _inner(outcome: Outcome) -> Iterator[Trial]:
    if (outcome.job.tensor_parallel or 1) > 1:
        free = _without_inner(outcome.plan.topology)
        yield _on(outcome, free, "GPUs that share a layer summed in no time")


def _without_inner(topology: Topology) -> Topology:
    """The network with free links inside its groups of GPUs."""
    free = (replace(device, inner_latency_s=0.0, inner_bandwidth_bytes_per_s=math.inf) for device in topology.devices)
    return replace(topology, devices=tuple(free))


def _compute(outcome: Outcome) -> Iterator[Trial]:
    topology = outcome.plan.topology
    quick = tuple(replace(device, gpu="", peak_flop_per_s=LARGEST) for device in topology.devices)
    condition = "devices computed in no time"
    yield _on(outcome, replace(topology, devices=quick), condition, memory_traffic=False)


def _alike(outcome: Outcome) -> Iterator[Trial]:
    plan, topology = outcome.plan, outcome.plan.topology
    peaks = [peak_of(device, plan.job.dtype) for device in topology.devices]
    used = [peaks[int(d)] for d in plan.placement.devices.flat]
    fastest = topology.devices[peaks.index(max(used))]
    if min(used) < max(used):
        gpu, peak = fastest.gpu, fastest.peak_flop_per_s
        alike = tuple(replace(device, gpu=gpu, peak_flop_per_s=peak) for device in topology.devices)
        yield _on(outcome, replace(topology, devices=alike), f"every device were as fast as {fastest.name}")


def _ranks(outcome: Outcome) -> Iterator[Trial]:
    plan = outcome.plan
    own = plan.placement.devices
    for order, condition in (
        ("dp-pp", "ranks of one group were neighbours"),
        ("pp-dp", "ranks of one pipeline were neighbours"),
    ):
        other = in_rank_order(plan.topology, plan.job, np.arange(len(plan.topology)), order=order)
        if not (other.placement.devices == own).all():
            yield Trial(plan=other, budget=outcome.budget, condition=condition)


def _placement(outcome: Outcome) -> Iterator[Trial]:
    for found in placements(outcome.plan, outcome.budget):
        yield Trial(plan=found, budget=outcome.budget, condition="this lab placed its shape")


def placements(plan: Plan, budget: Budget) -> Iterator[Plan]:
    """Placements that short searches find for the plan's job, its shape, cut, shares and schedule as they are."""
    cut = {"blocks_per_stage": plan.blocks_per_stage, "microbatches_per_replica": plan.job.microbatch_counts}
    job = plan.job.with_fields(**cut, schedule=plan.job.schedule_name, warmups=plan.job.warmups)
    for objective in ("communication", "iteration"):
        *_, last = search(
            plan.topology,
            job,
            objective=objective,
            seed=budget.seed,
            steps=STEPS,
            start=plan if objective == "iteration" else None,
            queueing=budget.queueing,
            improve_bound=False,
        )
        yield last.plan.changed(job=plan.job)


def _fewer(outcome: Outcome) -> Iterator[Trial]:
    """Without the slowest and farthest pipelines, one, two, four...; the others take their micro-batches."""
    n = outcome.job.n_replicas
    worst = np.argsort(-_pipeline_costs(outcome), kind="stable").tolist()
    for n_without in (1 << power for power in range(n.bit_length()) if 1 << power < n):
        yield _without(outcome, worst[:n_without])


def _pipeline_costs(outcome: Outcome) -> FloatArray:
    """(replicas,) seconds of each pipeline's slowest stage, of its hops, and of its devices in their groups: a ranking,
    which takes no simulation."""
    plan, job = outcome.plan, outcome.job
    grid, pair = plan.placement.devices, pair_costs(plan.topology, job)
    speeds = np.array(speeds_of(job, plan.topology.devices, outcome.budget.efficiency))
    computing_s = job.flop / grid.size / speeds[grid].min(axis=0)
    hops_s = pair.hop_s[grid[:-1], grid[1:]].sum(axis=0)
    groups_s = pair.group_s[grid[:, :, None], grid[:, None, :]].sum(axis=2).max(axis=0)
    return np.asarray(computing_s + hops_s + groups_s, dtype=np.float64)


def _without(outcome: Outcome, replicas: list[int]) -> Trial:
    """Raises JobError where the batch does not divide among the pipelines that are left."""
    plan = outcome.plan
    kept = Placement(np.delete(plan.placement.devices, replicas, axis=1))
    fewer = plan.changed(job=plan.job.with_fields(n_replicas=kept.devices.shape[1]), placement=kept)
    names = [plan.topology.names[int(d)] for d in plan.placement.devices[:, replicas].flat]
    which = " and ".join(names) if len(names) <= NAMED else f"{len(names)} devices"
    pipelines = "one of its pipelines" if len(replicas) == 1 else f"{len(replicas)} of its pipelines"
    return Trial(plan=fewer, budget=outcome.budget, condition=f"it left out {pipelines} ({which})")


def _sharding(outcome: Outcome) -> Iterator[Trial]:
    if outcome.job.sharding != "none":
        yield _with_job(outcome, "replicas did not split their states", sharding="none")


def _checkpointing(outcome: Outcome) -> Iterator[Trial]:
    if outcome.job.checkpoints != "none":
        whole = {"checkpointing": "none", "recompute": False}
        yield _with_job(outcome, "no activation were computed again", **whole)


def _schedule(outcome: Outcome) -> Iterator[Trial]:
    job = outcome.job
    for name in SCHEDULES if job.n_stages > 1 else ():
        if name != job.schedule_name or job.flush_every is not None:
            flush = {"flush_every": None} if job.flush_every is not None else {}
            yield _with_job(outcome, f"passes were in the order of {name}", schedule=name, **flush)


def _precision(outcome: Outcome) -> Iterator[Trial]:
    job = outcome.job
    if job.gradient_dtype is not None and job.gradient_dtype != job.dtype and job.n_replicas > 1:
        yield _with_job(outcome, f"gradients were exchanged in {job.dtype}", gradient_dtype=None)


def faster(topology: Topology, *, latency: bool = False, bandwidth: bool = False) -> Topology:
    """The network without latency, or with infinite bandwidth; times measured by message size follow."""
    latency_s = np.zeros_like(topology.latency_s) if latency else topology.latency_s
    full = np.full_like(topology.bandwidth_bytes_per_s, LARGEST)
    message_s = topology.message_s
    if bandwidth:
        return replace(topology, latency_s=latency_s, bandwidth_bytes_per_s=full, message_bytes=None, message_s=None)
    if message_s is not None:
        message_s = latency_s[:, :, None] + np.maximum(message_s - topology.latency_s[:, :, None], 0.0)
    return replace(topology, latency_s=latency_s, message_s=message_s)


ABLATIONS: dict[str, tuple[str, str, Callable[[Outcome], Iterator[Trial]]]] = {
    "transport": ("choice", "sends that block", _transport),
    "cards": ("ideal", "shared cards", _cards),
    "latency": ("ideal", "latency", _latency),
    "bandwidth": ("ideal", "bandwidth", _bandwidth),
    "messages": ("ideal", "messages", _messages),
    "compute": ("ideal", "computing", _compute),
    "alike": ("ideal", "slower devices", _alike),
    "inner": ("ideal", "sums of layers within a host", _inner),
    "checkpointing": ("choice", "activations computed again", _checkpointing),
    "precision": ("choice", "the precision of gradients", _precision),
    "sharding": ("choice", "split states", _sharding),
    "ranks": ("placement", "the order of ranks", _ranks),
    "placement": ("placement", "the placement", _placement),
    "averaging": ("ideal", "averaging", _averaging),
    "overlap": ("choice", "averaging after the last backward", _overlap),
    "schedule": ("choice", "the order of passes", _schedule),
    "fewer": ("placement", "pipelines of far or slow devices", _fewer),
}
"""What can be taken away, by name: its kind, what it is in words, and what is tried without it. Of several trials the
fastest that fits counts."""
