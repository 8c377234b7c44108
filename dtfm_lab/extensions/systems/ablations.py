"""What a system's iteration would take with one thing removed. Each case is simulated, with everything else unchanged.

The seconds saved do not add up, because one cause may hide another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import LARGEST, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import format_s, format_share
from dtfm_lab.extensions.systems.outcome import Outcome, predicted, with_free_hosts
from dtfm_lab.extensions.systems.strategy import Budget, priced
from dtfm_lab.planning import search

SAME = 5e-4
"""Share of an iteration below which a difference counts as no change."""
MATTERS = 0.01
"""Minimum share of an iteration that something must save to count as a cause."""
STEPS = 3
"""Generations of the search for another placement. More bring little, and the list must stay quick."""
SCHEDULES = ("gpipe", "1f1b", "adaptive-1f1b")
"""Schedules that are tried instead of the system's own."""
BUCKETS = 4
"""Number of buckets into which a stage's gradient is split if its averaging overlaps. Few, because each bucket pays the
latency."""
NEVER = 10**9
"""A number of iterations between two averages that stands for never."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Ablation:
    """One thing that is removed from a system's iteration, and how long the iteration takes without it."""

    name: str
    """A short, stable name: ``transport``, ``latency``..."""
    kind: str
    """``choice``: the system could do it in another way. ``placement``: other devices could hold its stages. ``ideal``:
    no plan reaches it."""
    noun: str
    """What is removed, in words: ``latency``, ``sends that block``."""
    condition: str
    """The condition in words, as it follows "if": ``links had no latency``."""
    before_s: float
    outcome: Outcome
    """The system's outcome without the removed thing. The communication cost stored in its plan is still the one from
    before the removal."""

    @property
    def iteration_s(self) -> float:
        """Seconds of the iteration without the removed thing."""
        assert self.outcome.iteration_s is not None, "it was predicted"
        return self.outcome.iteration_s

    @property
    def fits(self) -> bool:
        """True if the devices have enough memory for ``plan``."""
        return self.outcome.memory.fits

    @property
    def gain_s(self) -> float:
        """Seconds saved; negative if it would take longer."""
        return self.before_s - self.iteration_s

    @property
    def share(self) -> float:
        """Share of the iteration that is saved."""
        return self.gain_s / self.before_s if self.before_s > 0 else 0.0

    @property
    def matters(self) -> bool:
        """True if it saves at least a hundredth of the iteration."""
        return self.share >= MATTERS

    @cached_property
    def plan(self) -> Plan:
        """The plan without the removed thing, ready to simulate, draw or save."""
        return priced(self.outcome.plan).changed(iteration_s=self.iteration_s)

    @property
    def sentence(self) -> str:
        """The gain in a sentence: ``Latency, 4.2 s (26 %): it would take 12.1 s if links had no latency.``"""
        begin = self.noun[0].upper() + self.noun[1:]
        if abs(self.share) < SAME:
            return f"{begin}, nothing: it would take as long if {self.condition}."
        would = f"it would take {format_s(self.iteration_s)} if {self.condition}"
        lack = "" if self.fits else f", which does not fit: {self.outcome.memory.sentence}"
        if self.gain_s < 0:
            return f"{begin}, nothing: {would}, {format_s(-self.gain_s)} more{lack}."
        return f"{begin}, {format_s(self.gain_s)} ({_percent(self.share)}): {would}{lack}."


def _percent(share: float) -> str:
    """Format a share: ``26 %``, ``0.4 %``."""
    return f"{100 * share:.2g} %" if share < 0.1 else format_share(share, 0)


Trials = Iterator[tuple[str, Plan]]
"""Pairs of a condition in words, and the plan whose seconds are predicted under that condition."""
Trying = Callable[[Outcome], Trials]


def stream_ablations(outcome: Outcome) -> Iterator[Ablation]:
    """Yield each ablation that is possible for the outcome's plan, in the order of ``ABLATIONS``.

    Ablations that the plan's shape or its schedule does not allow are left out. Yields nothing for an outcome without a
    plan.
    """
    if outcome.found is None or outcome.iteration_s is None:
        return
    for name, (kind, noun, trying) in ABLATIONS.items():
        tried = list(_predicted(outcome, trying))
        if tried:
            # Of several ways to remove it, the best one that fits counts.
            condition, without = min(tried, key=lambda one: (not one[1].memory.fits, one[1].iteration_s))
            yield Ablation(
                name=name, kind=kind, noun=noun, condition=condition, before_s=outcome.iteration_s, outcome=without
            )


def _predicted(outcome: Outcome, trying: Trying) -> Iterator[tuple[str, Outcome]]:
    budget = outcome.budget
    try:
        for condition, plan in trying(outcome):
            # an ablation of NICs is predicted with a link per pair, whatever the budget says
            alone = plan.queueing == "pairs" != outcome.plan.queueing
            try:
                found = predicted(outcome.strategy, replace(budget, queueing="pairs") if alone else budget, plan)
            except LabError:  # this system's prediction does not cover it
                continue
            yield condition, found
    except LabError:  # the job, the network or the schedule does not allow it
        return


def _job(condition: str, applies: Callable[[Job], bool], **fields: Any) -> Trying:
    """Return a function that yields the outcome's plan with other ``fields`` of its job. It yields nothing if
    ``applies`` is False for the job, because then nothing would be removed."""

    def trying(outcome: Outcome) -> Trials:
        if applies(outcome.job):
            yield condition.format(job=outcome.job), _with(outcome.plan, **fields)

    return trying


def _network(condition: str, change: Callable[[Topology], Topology]) -> Trying:
    """Return a function that yields the outcome's plan on a changed network."""

    def trying(outcome: Outcome) -> Trials:
        yield condition, outcome.plan.changed(topology=change(outcome.plan.topology))

    return trying


def _with(plan: Plan, **fields: Any) -> Plan:
    return plan.changed(job=plan.job.with_fields(**fields))


def _without_latency(topology: Topology) -> Topology:
    """Return the network without latency. If it has measured times by message size, these become shorter too."""
    return topology.scaled(latency=0.0)


def _without_transfer(topology: Topology) -> Topology:
    """Return the network with infinite bandwidth. Measured times by message size are dropped, because they are not
    known for such a network."""
    full = np.full_like(topology.bandwidth_bytes_per_s, LARGEST)
    return replace(topology, bandwidth_bytes_per_s=full, message_bytes=None, message_s=None)


def with_free_messages(topology: Topology) -> Topology:
    """Return the network on which messages take no time."""
    return with_free_hosts(_without_transfer(_without_latency(topology)))


def _compute(outcome: Outcome) -> Trials:
    topology = outcome.plan.topology
    quick = tuple(replace(device, gpu="", peak_flop_per_s=LARGEST) for device in topology.devices)
    fast = outcome.plan.changed(topology=replace(topology, devices=quick))
    yield "devices computed in no time", _with(fast, memory_traffic=False)


def _inner(outcome: Outcome) -> Trials:
    if outcome.job.group_gpus > 1:
        yield from _network("GPUs that share a layer summed in no time", with_free_hosts)(outcome)


def _overlap(outcome: Outcome) -> Trials:
    job = outcome.job
    if job.n_replicas > 1 and not job.overlap:
        beside = _with(outcome.plan, overlap=True, bucket_bytes=max(job.gradient_bytes / BUCKETS, 1.0))
        yield "gradients were averaged during the last backward", beside


def _nics(outcome: Outcome) -> Trials:
    topology = outcome.plan.topology
    if topology.nic_of is not None or outcome.budget.queueing != "pairs":
        apart = replace(topology, devices=tuple(replace(device, host="") for device in topology.devices))
        yield "every pair of devices had its own link", outcome.plan.changed(topology=apart, queueing="pairs")


def _schedules(outcome: Outcome) -> Trials:
    job = outcome.job
    for name in SCHEDULES if job.n_stages > 1 else ():
        if name != job.schedule_name or job.flush_every is not None:
            yield f"passes followed the schedule {name}", _with(outcome.plan, schedule=name, flush_every=None)


def _placement(outcome: Outcome) -> Trials:
    for found in placements(outcome.plan, outcome.budget):
        yield "this lab placed its shape", found


def placements(plan: Plan, budget: Budget) -> Iterator[Plan]:
    """Yield the plan with the placements that two short searches find: for the lowest communication cost, and for the
    shortest iteration. The shape, the cut, the replicas' shares of the batch and the schedule stay the same."""
    # The plan's own cut and shares, so that only the placement differs.
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
        yield last.plan.changed(job=plan.job, queueing=budget.queueing)


ABLATIONS: dict[str, tuple[str, str, Trying]] = {
    "transport": (
        "choice",
        "sends that block",
        _job(
            "stages computed on while they send",
            lambda job: job.transport != "overlapped" and job.n_stages > 1,
            transport="overlapped",
        ),
    ),
    "nics": ("ideal", "shared NICs", _nics),
    "latency": ("ideal", "latency", _network("links had no latency", _without_latency)),
    "bandwidth": ("ideal", "bandwidth", _network("links had infinite bandwidth", _without_transfer)),
    "messages": ("ideal", "messages", _network("messages took no time", with_free_messages)),
    "compute": ("ideal", "computing", _compute),
    "inner": ("ideal", "sums of layers within a host", _inner),
    "checkpointing": (
        "choice",
        "recomputation",
        _job(
            "nothing were recomputed",
            lambda job: job.checkpoints != "none",
            checkpointing="none",
            recompute=False,
        ),
    ),
    "precision": (
        "choice",
        "the precision of gradients",
        _job(
            "gradients were exchanged in {job.dtype}",
            lambda job: job.gradients_in != job.dtype and job.n_replicas > 1,
            gradient_dtype=None,
        ),
    ),
    "sharding": (
        "choice",
        "split states",
        _job("replicas did not split their states", lambda job: job.sharding != "none", sharding="none"),
    ),
    "placement": ("placement", "the placement", _placement),
    "averaging": (
        "ideal",
        "averaging",
        _job(
            "replicas never averaged",
            lambda job: job.sharding == "none" and job.n_replicas > 1,
            synchronise_every=NEVER,
            fragments=1,
            fragment_delay=0,
            overlap=False,
        ),
    ),
    "overlap": ("choice", "averaging after the last backward", _overlap),
    "schedule": ("choice", "the order of passes", _schedules),
}
"""What can be removed, by name: its kind, a noun, and a function that yields what is tried without it. If it tries
several plans, the fastest that fits counts."""
