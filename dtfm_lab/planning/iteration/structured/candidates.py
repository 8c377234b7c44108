"""The structured plans of a request: all are estimated, and the simulator judges the best of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job, even_shares
from dtfm_lab.domain.network import Links, Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.iteration.candidate import Candidate, unpriced_plan
from dtfm_lab.planning.iteration.judging import simulated_value
from dtfm_lab.planning.iteration.left_open import degrees_of
from dtfm_lab.planning.iteration.structured.device_sets import starting_sets
from dtfm_lab.planning.iteration.structured.estimates import Estimate, Estimator
from dtfm_lab.planning.iteration.structured.layouts import Layout, layouts
from dtfm_lab.planning.iteration.structured.stage_tables import StageTables
from dtfm_lab.planning.iteration.tables_of import SearchTarget
from dtfm_lab.planning.objectives import SearchRequest

REFINED = 4
"""Sets of devices on which all shapes are tried."""
ALIKE = 0.02
"""By how much each plan of a layout lets those that follow it wait: plans of one layout differ little."""
MOST_SIMULATED = 300
"""Most structured plans that the simulator judges, the best by their estimates first."""
TOO_HIGH = 0.9
"""The simulator judges plans until the next estimate, times this, is above the best plan. On drawn clusters estimates
of the best plans were up to 11 % too high, so that a plan that is as much faster may be left to annealing."""


@dataclass(frozen=True, eq=False)
class Judged:
    """A structured plan that the simulator judged."""

    topology: Topology = field(repr=False)
    """The network of groups that it is placed on."""
    candidate: Candidate
    estimate: Estimate


class StructuredPlans:
    """The family of one request, estimated when first asked for and simulated best first."""

    def __init__(self, request: SearchRequest, target: SearchTarget) -> None:
        self._request, self._target = request, target
        self._best = math.inf
        self.estimates: list[Estimate] = []
        self.judged: list[Judged] = []
        """Plans that fit, in the order in which they were simulated."""
        self.n_simulated = 0

    @cached_property
    def estimators(self) -> list[Estimator]:
        """One for each degree of tensor parallelism, large groups first: they have the fewest devices."""
        request, found = self._request, []
        for degree in sorted(degrees_of(request.topology, request.job), reverse=True):
            try:
                job = request.job.with_fields(tensor_parallel=degree)
                network = request.topology.grouped(job.group_gpus)
                tables = StageTables(network, job, request.queueing, request.efficiency)
                if tables.shardings:
                    links = Links.of(network, request.queueing)
                    found.append(Estimator(network, links, tables, request.job, self._target))
            except LabError:  # such as a network without groups of this size
                continue
        return found

    def estimate(self, until: Callable[[], bool]) -> Iterator[int]:
        """Estimate layouts until all are done, or ``until`` says so and a plan fits; yield after each.

        Every set of devices is tried in a few shapes first, those with most FLOP/s before the others; then the most
        promising sets in all shapes.
        """
        self._best = math.inf
        for of, members in self._sets():
            for _ in self._estimated(of, members, coarse=True):
                yield len(self.estimates)
                if self.estimates and until():
                    return
        tried: list[tuple[Estimator, IntArray]] = []
        for one in sorted(self.estimates, key=lambda each: each.value):
            if len(tried) == REFINED:
                return
            of, members = one.of, one.layout.members
            if any(of is other and np.array_equal(members, those) for other, those in tried):
                continue
            tried.append((of, members))
            for _ in self._estimated(of, members, coarse=False):
                yield len(self.estimates)
                if until():
                    return

    def _estimated(self, of: Estimator, members: IntArray, *, coarse: bool) -> Iterator[Layout]:
        """Estimate the layouts of a set of devices that may beat the best estimate."""
        bounded = not self._target.dollars
        if bounded and of.least_s(members) > self._best:
            return
        for layout in layouts(of.links, of.job, members, coarse=coarse):
            if bounded and of.hopeless(layout, self._best):
                continue
            found = of.estimates(layout, coarse=coarse)
            self.estimates += found
            self._best = min([self._best, *(one.value for one in found)])
            yield layout

    def _sets(self) -> list[tuple[Estimator, IntArray]]:
        """Sets of devices on every network of groups, the most promising first: all were it not for their links."""
        found = [(of, members) for of in self.estimators for members in starting_sets(of.topology)]
        return sorted(found, key=lambda one: one[0].promise_s(one[1]))

    def simulated(self) -> Iterator[Judged]:
        """Yield the plans that fit, best estimates first, each as the simulator judges it.

        The best plan of every layout comes first, as plans of one layout are much alike.
        """
        seen: set[tuple[bytes, Job]] = set()
        best = math.inf
        for one in self._by_estimate():
            if self.n_simulated >= MOST_SIMULATED or one.value * TOO_HIGH > best:
                return
            job = job_of(one, self._request.job)
            if job is None or (key := (one.layout.grid.tobytes(), job)) in seen:
                continue
            seen.add(key)
            self.n_simulated += 1
            if (judged := self._judged(one, job)) is not None:
                self.judged.append(judged)
                best = min(best, judged.candidate.best_s)
                yield judged

    def _by_estimate(self) -> list[Estimate]:
        met: dict[int, int] = {}
        ranked: list[tuple[float, int, Estimate]] = []
        for one in sorted(self.estimates, key=lambda each: each.value):
            turn = met.get(id(one.layout), 0)
            met[id(one.layout)] = turn + 1
            ranked.append((one.value * (1.0 + ALIKE * turn), len(ranked), one))
        return [one for *_, one in sorted(ranked, key=lambda each: each[:2])]

    def _judged(self, one: Estimate, job: Job) -> Judged | None:
        """The plan as the simulator judges it; None where it does not fit or cannot be simulated."""
        topology, request = one.tables.topology, self._request
        plan = unpriced_plan(topology, job, one.layout.grid, request.queueing, request.efficiency)
        try:
            seconds, value, lacks = simulated_value(plan, self._target)
        except LabError:  # such as a schedule that these numbers cannot have
            return None
        if lacks > 0:
            return None
        candidate = Candidate(
            best=one.layout.grid,
            best_s=value,
            evaluations=self.n_simulated,
            operator=f"structured, {one.layout.order}",
            complete=False,
            job=job,
            iteration_s=seconds,
        )
        return Judged(topology, candidate, one)


def plan_of(judged: Judged, request: SearchRequest) -> Plan:
    """Return the judged plan, to begin a search with."""
    candidate = judged.candidate
    plan = unpriced_plan(judged.topology, candidate.job, candidate.best, request.queueing, request.efficiency)
    return plan.changed(iteration_s=candidate.iteration_s)


def job_of(one: Estimate, asked: Job) -> Job | None:
    """Return the job with all that the estimate chose; None where it does not allow that."""
    n_stages, n_replicas = one.layout.shape
    job = one.tables.checkpointings[one.checkpointing]
    schedule = asked.schedule or ("1f1b" if one.ahead is None else "adaptive-1f1b")
    warmups = asked.warmups
    try:
        shares = asked.microbatches_per_replica or _shares(one, asked.global_batch // one.microbatch, n_replicas)
        if one.ahead is not None:
            most = max(shares) - 1
            warmups = tuple(min(int(n), most) for n in one.ahead)
        return job.with_fields(
            n_stages=n_stages,
            n_replicas=n_replicas,
            microbatch=one.microbatch,
            sharding=one.sharding,
            synchronisation=one.synchronisation,
            overlap=one.overlap,
            schedule=schedule,
        ).with_fields(
            blocks_per_stage=tuple(one.blocks.tolist()),
            microbatches_per_replica=tuple(shares),
            warmups=warmups if schedule == "adaptive-1f1b" else None,
        )
    except LabError:
        return None


def _shares(one: Estimate, n_microbatches: int, n_replicas: int) -> tuple[int, ...]:
    """Micro-batches of each pipeline so that the last one ends as early as can be; even where devices are alike."""
    if len(one.period_s) == 1 or one.sharding in ("zero-2", "zero-3"):
        return even_shares(n_microbatches, n_replicas)
    shares: IntArray = np.ones(n_replicas, dtype=np.int64)
    rate = 1.0 / one.period_s
    whole_s = (n_microbatches + float((one.fill_s * rate).sum())) / float(rate.sum())
    shares = np.maximum(1, np.floor((whole_s - one.fill_s) * rate)).astype(np.int64)
    while shares.sum() < n_microbatches:
        shares[int(np.argmin(one.fill_s + (shares + 1) * one.period_s))] += 1
    while shares.sum() > n_microbatches:
        taken = np.where(shares > 1, one.fill_s + shares * one.period_s, -math.inf)
        shares[int(np.argmax(taken))] -= 1
    return tuple(shares.tolist())
