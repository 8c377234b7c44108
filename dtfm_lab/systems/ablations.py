"""What a system's iteration would take with one thing taken away: each is simulated, with all else as it is.

Gains do not add up: two things may hide each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.network.topology import LARGEST
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.units import FloatArray, format_s
from dtfm_lab.planning import evaluate, search
from dtfm_lab.planning.cost import pair_costs
from dtfm_lab.simulation.efficiency import peak_of, speeds_of
from dtfm_lab.systems.grids import in_rank_order
from dtfm_lab.systems.outcome import Outcome, predicted
from dtfm_lab.systems.strategy import Budget

SAME = 5e-4
"""Share of an iteration below which a change counts as none."""
MATTERS = 0.01
"""Share of an iteration that something saves at least where it counts as a cause."""
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Ablation:
    """One thing taken away, and the seconds without it."""

    name: str
    """Short and stable: ``transport``, ``latency``..."""
    kind: str
    """``choice``, what the system could do otherwise; ``placement``, where its devices stand; ``ideal``, what no plan
    reaches."""
    noun: str
    """In words: ``latency``, ``sends that block``."""
    condition: str
    """What would be so, after *if*: ``links had no latency``."""
    before_s: float
    outcome: Outcome
    """The plan without it; its communication cost is that of the plan with it."""

    @property
    def iteration_s(self) -> float:
        """Seconds of the iteration without it."""
        assert self.outcome.iteration_s is not None, "it was predicted"
        return self.outcome.iteration_s

    @property
    def fits(self) -> bool:
        """Whether the devices have the memory for it."""
        return self.outcome.memory.fits

    @property
    def gain_s(self) -> float:
        """Seconds saved, below 0 where it would take longer."""
        return self.before_s - self.iteration_s

    @property
    def share(self) -> float:
        """Share of the iteration that is saved."""
        return self.gain_s / self.before_s if self.before_s > 0 else 0.0

    @property
    def matters(self) -> bool:
        """Whether it saves a hundredth of the iteration at least."""
        return self.share >= MATTERS

    @cached_property
    def plan(self) -> Plan:
        """The plan without it: to be simulated, drawn, saved."""
        near = self.outcome.plan
        return evaluate(near.topology, near.job, rank_map=near.rank_map).changed(iteration_s=self.iteration_s)

    @property
    def sentence(self) -> str:
        """``Latency, 4.2 s (26 %): it would take 12.1 s if links had no latency.``"""
        begin = self.noun[0].upper() + self.noun[1:]
        if abs(self.share) < SAME:
            return f"{begin}, nothing: it would take as long if {self.condition}."
        would = f"it would take {format_s(self.iteration_s)} if {self.condition}"
        lack = "" if self.fits else f", which does not fit: {self.outcome.memory.sentence}"
        if self.gain_s < 0:
            return f"{begin}, nothing: {would}, {format_s(-self.gain_s)} more{lack}."
        return f"{begin}, {format_s(self.gain_s)} ({_percent(self.share)}): {would}{lack}."


def _percent(share: float) -> str:
    """A share in words: ``26 %``, ``0.4 %``."""
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def stream_ablations(outcome: Outcome) -> Iterator[Ablation]:
    """Each thing that the outcome's plan has to take away, one after the other, the cheapest first.

    What the plan's shape or its schedule does not allow is left out. Nothing for an outcome without a plan.
    """
    if outcome.found is None or outcome.iteration_s is None:
        return
    for name, (kind, noun, trials) in ABLATIONS.items():
        tried = []
        for trial in _allowed(trials, outcome):
            try:
                without = predicted(outcome.strategy, trial.budget or outcome.budget, trial.plan)
                tried.append((not without.memory.fits, without.iteration_s, trial.condition, without))
            except LabError:  # what this system's prediction does not know
                continue
        if tried:
            *_, condition, without = min(tried, key=lambda one: one[:2])
            yield Ablation(
                name=name, kind=kind, noun=noun, condition=condition, before_s=outcome.iteration_s, outcome=without
            )


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A plan to predict in place of the system's own."""

    plan: Plan
    condition: str
    budget: Budget | None = None
    """The outcome's where None."""


Trials = Callable[[Outcome], Iterator[Trial]]


def _allowed(trials: Trials, outcome: Outcome) -> Iterator[Trial]:
    try:
        yield from trials(outcome)
    except LabError:  # the job, the network or the schedule does not allow it
        return


def _other(outcome: Outcome, condition: str, topology: Topology | None = None, **fields: Any) -> Trial:
    """The outcome's plan on another network, or with other fields of its job."""
    job = outcome.job.with_fields(**fields) if fields else outcome.job
    return Trial(plan=outcome.plan.changed(topology=topology or outcome.plan.topology, job=job), condition=condition)


OTHERWISE: dict[str, tuple[str, dict[str, Any]]] = {
    "transport": ("stages computed on while they send", {"transport": "overlapped"}),
    "checkpointing": ("no activation were computed again", {"checkpointing": "none", "recompute": False}),
    "precision": ("gradients were exchanged in {job.dtype}", {"gradient_dtype": None}),
    "sharding": ("replicas did not split their states", {"sharding": "none"}),
    "averaging": (
        "replicas never averaged",
        {"synchronise_every": NEVER, "fragments": 1, "fragment_delay": 0, "overlap": False},
    ),
}
"""What would be so if fields of a job were otherwise, and these fields."""
WHERE: dict[str, Callable[[Job], bool]] = {
    "transport": lambda job: job.transport != "overlapped" and job.n_stages > 1,
    "checkpointing": lambda job: job.checkpoints != "none",
    "precision": lambda job: job.gradients_in != job.dtype and job.n_replicas > 1,
    "sharding": lambda job: job.sharding != "none",
    "averaging": lambda job: job.sharding == "none" and job.n_replicas > 1,
}
"""Of which jobs that takes something away."""


def _otherwise(name: str, outcome: Outcome) -> Iterator[Trial]:
    condition, fields = OTHERWISE[name]
    if WHERE[name](outcome.job):
        yield _other(outcome, condition.format(job=outcome.job), **fields)


def _on(condition: str, network: Callable[[Topology], Topology], outcome: Outcome) -> Iterator[Trial]:
    yield _other(outcome, condition, network(outcome.plan.topology))


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


def _without_inner(topology: Topology) -> Topology:
    """The network with free links inside its groups of GPUs."""
    free = (replace(device, inner_latency_s=0.0, inner_bandwidth_bytes_per_s=math.inf) for device in topology.devices)
    return replace(topology, devices=tuple(free))


def with_free_messages(topology: Topology) -> Topology:
    """The network on which no message takes any time."""
    return _without_inner(faster(topology, latency=True, bandwidth=True))


def _compute(outcome: Outcome) -> Iterator[Trial]:
    topology = outcome.plan.topology
    quick = tuple(replace(device, gpu="", peak_flop_per_s=LARGEST) for device in topology.devices)
    fast = replace(topology, devices=quick)
    yield _other(outcome, "devices computed in no time", fast, memory_traffic=False)


def _inner(outcome: Outcome) -> Iterator[Trial]:
    if (outcome.job.tensor_parallel or 1) > 1:
        free = _without_inner(outcome.plan.topology)
        yield _other(outcome, "GPUs that share a layer summed in no time", free)


def _overlap(outcome: Outcome) -> Iterator[Trial]:
    job = outcome.job
    if job.n_replicas > 1 and not job.overlap:
        size = max(job.gradient_bytes / BUCKETS, 1.0)
        yield _other(outcome, "gradients were averaged during the last backward", overlap=True, bucket_bytes=size)


def _cards(outcome: Outcome) -> Iterator[Trial]:
    topology = outcome.plan.topology
    if topology.card_of is None and outcome.budget.queueing == "pairs":
        return
    apart = replace(topology, devices=tuple(replace(device, host="") for device in topology.devices))
    yield Trial(
        plan=outcome.plan.changed(topology=apart, queueing="pairs"),
        condition="every pair of devices had a link of its own",
        budget=replace(outcome.budget, queueing="pairs"),
    )


def _alike(outcome: Outcome) -> Iterator[Trial]:
    plan, topology = outcome.plan, outcome.plan.topology
    peaks = [peak_of(device, plan.job.dtype) for device in topology.devices]
    used = [peaks[int(d)] for d in plan.placement.devices.flat]
    fastest = topology.devices[peaks.index(max(used))]
    if min(used) < max(used):
        gpu, peak = fastest.gpu, fastest.peak_flop_per_s
        alike = tuple(replace(device, gpu=gpu, peak_flop_per_s=peak) for device in topology.devices)
        yield _other(outcome, f"every device were as fast as {fastest.name}", replace(topology, devices=alike))


def _schedules(outcome: Outcome) -> Iterator[Trial]:
    job = outcome.job
    for name in SCHEDULES if job.n_stages > 1 else ():
        if name != job.schedule_name or job.flush_every is not None:
            yield _other(outcome, f"passes were in the order of {name}", schedule=name, flush_every=None)


def _ranks(outcome: Outcome) -> Iterator[Trial]:
    plan = outcome.plan
    own = plan.placement.devices
    for order, condition in (
        ("dp-pp", "ranks of one group were neighbours"),
        ("pp-dp", "ranks of one pipeline were neighbours"),
    ):
        other = in_rank_order(plan.topology, plan.job, np.arange(len(plan.topology)), order=order)
        if not (other.placement.devices == own).all():
            yield Trial(plan=other, condition=condition)


def _placement(outcome: Outcome) -> Iterator[Trial]:
    for found in placements(outcome.plan, outcome.budget):
        yield Trial(plan=found, condition="this lab placed its shape")


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
    return Trial(plan=fewer, condition=f"it left out {pipelines} ({which})")


ABLATIONS: dict[str, tuple[str, str, Trials]] = {
    "transport": ("choice", "sends that block", partial(_otherwise, "transport")),
    "cards": ("ideal", "shared cards", _cards),
    "latency": ("ideal", "latency", partial(_on, "links had no latency", partial(faster, latency=True))),
    "bandwidth": ("ideal", "bandwidth", partial(_on, "links had infinite bandwidth", partial(faster, bandwidth=True))),
    "messages": ("ideal", "messages", partial(_on, "messages took no time", with_free_messages)),
    "compute": ("ideal", "computing", _compute),
    "alike": ("ideal", "slower devices", _alike),
    "inner": ("ideal", "sums of layers within a host", _inner),
    "checkpointing": ("choice", "activations computed again", partial(_otherwise, "checkpointing")),
    "precision": ("choice", "the precision of gradients", partial(_otherwise, "precision")),
    "sharding": ("choice", "split states", partial(_otherwise, "sharding")),
    "ranks": ("placement", "the order of ranks", _ranks),
    "placement": ("placement", "the placement", _placement),
    "averaging": ("ideal", "averaging", partial(_otherwise, "averaging")),
    "overlap": ("choice", "averaging after the last backward", _overlap),
    "schedule": ("choice", "the order of passes", _schedules),
    "fewer": ("placement", "pipelines of far or slow devices", _fewer),
}
"""What can be taken away, by name: its kind, what it is in words, and what is tried without it. Of several trials the
fastest that fits counts."""
