"""Candidates: plans as arrays, their prices by the replay or the simulator, and the structured plans of a request."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from dtfm_lab.costs.efficiency import GivenEfficiency
from dtfm_lab.costs.memory import memory_limits
from dtfm_lab.costs.seconds import WAYS
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job, even_shares
from dtfm_lab.domain.job.options import MEMORY_ONLY, PASSED_ON, chosen
from dtfm_lab.domain.network import Links, Topology
from dtfm_lab.domain.plan import CostBreakdown, Placement, Plan
from dtfm_lab.domain.units import FloatArray, IntArray, by_key
from dtfm_lab.planning.iteration.problem import IterationProblem, SearchTarget
from dtfm_lab.planning.iteration.shape_searches import (
    KernelPlan,
    ShapeSearch,
)
from dtfm_lab.planning.iteration.structured.estimates import Estimator, LayoutEstimate
from dtfm_lab.planning.iteration.structured.layouts import GridLayout, StageTables, degrees_of, layouts
from dtfm_lab.planning.problem import Generation
from dtfm_lab.planning.search import SearchRequest
from dtfm_lab.simulation.memory import memory, over_bytes_when_played
from dtfm_lab.simulation.simulate import iteration_seconds

# ---------------------------------------------------------------------------------------------------------------------
# Candidates, and their prices: by the compiled replay if it covers the job, else by the simulator.


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidate(Generation):
    """The best plan so far of a search for seconds or dollars, and the search's progress.

    ``best`` is an (S, R) grid of device indices of the topology, ``best_s`` the objective: seconds, or dollars, of an
    iteration.
    """

    topology: Topology = field(repr=False)
    """The network that the plan is placed on, with groups of GPUs as devices."""
    job: Job = field(repr=False)
    """The job with everything that the plan chose."""
    iteration_s: float
    """Seconds of an iteration."""


def unpriced_plan(
    topology: Topology, job: Job, grid: IntArray, queueing: str = "pairs", efficiency: GivenEfficiency = None
) -> Plan:
    """Return a plan to be simulated, without its communication cost."""
    n = len(grid)
    nothing = CostBreakdown(group_s=np.zeros(n), hop_s=np.zeros(n - 1), weights_s=np.zeros((n, n)))
    return Plan(
        topology=topology,
        job=job,
        placement=Placement(grid),
        cost=nothing,
        lower_bound_s=0.0,
        planner="given",
        queueing=queueing,
        efficiency=efficiency,
    )


def simulated_value(plan: Plan, target: SearchTarget, best: float = math.inf) -> tuple[float, float, float]:
    """Return the simulated seconds of a plan's iteration, the objective, and by how much the plan exceeds memory and
    limits.

    The last is a sum of relative excesses (0.1 is 10 % over one limit); 0 if the plan is valid. A plan that is no
    better than ``best`` cannot win. So the memory of its waiting messages is not checked, which would take a second
    simulation. Raises LabError for a plan that cannot be simulated.
    """
    seconds, price = iteration_seconds(plan), plan.price_per_hour
    value = seconds * price / 3600 if target.dollars else seconds
    over_bytes = over_bytes_when_played(plan) if value < best else memory(plan).over_bytes
    lacks = float((over_bytes / memory_limits(plan)).sum())
    lacks += max(seconds / target.max_iteration_s - 1, 0.0) + max(price / target.max_price_per_hour - 1, 0.0)
    return seconds, value, lacks


def candidate_of(
    plan: Plan,
    target: SearchTarget,
    evaluations: int,
    operator: str,
    *,
    complete: bool = True,
    best: float = math.inf,
) -> Candidate | None:
    """Return the plan, priced by the simulator; None if it lacks memory, exceeds a limit, or cannot be simulated.

    ``best`` is the objective of the best plan so far, see ``simulated_value``.
    """
    try:
        seconds, value, lacks = simulated_value(plan, target, best)
    except LabError:  # such as a schedule that does not divide
        return None
    if lacks > 0:
        return None
    return Candidate(
        best=plan.placement.devices,
        best_s=value,
        evaluations=evaluations,
        operator=operator,
        complete=complete,
        topology=plan.topology,
        job=plan.job,
        iteration_s=seconds,
    )


REPLAYED_SCHEDULES = (None, "1f1b", "gpipe", "adaptive-1f1b")
REPLAYED_CHOICES = (*MEMORY_ONLY, "tensor_parallel", "checkpointing", "sharding", "attention", "gradient_dtype")
"""Fields of a job that may differ from their defaults while the replay still equals the simulator. Left out are fields
whose messages overlap the passes."""


class PlanPricer:
    """Prices a plan that the estimate found: by the replay if it covers the problem's job, else by the simulator."""

    def __init__(self, problem: IterationProblem, target: SearchTarget) -> None:
        self._problem, self._target, job = problem, target, problem.job
        gathers = job.sharding in PASSED_ON
        covered = (
            problem.links.queueing == "pairs"
            and not gathers
            and job.synchronisation in WAYS
            and job.schedule in REPLAYED_SCHEDULES
        )
        self.polishes = covered and not chosen(job).keys() - set(REPLAYED_CHOICES)
        """True if plans are also annealed by the replay."""
        # shared NICs only add delays that the replay leaves out, so it may polish, but the simulator prices
        self.replays = self.polishes and not problem.links.has_nics
        """True if the replay is exact for this job, so no simulation is needed."""
        self.refusal = ""
        """Why the newest plan that could not be simulated was refused; empty if all could."""

    def __call__(self, shape_search: ShapeSearch, found: KernelPlan) -> KernelPlan:
        if self.replays:
            return replace(shape_search.replayed(found), judged=True, operator=found.operator)
        plan = self._plan(shape_search, found)
        try:
            _, value, lacks = simulated_value(plan, self._target)
        except LabError as error:  # a schedule that these counts cannot have
            self.refusal = str(error)
            return replace(found, lacks=1.0, judged=True)
        return replace(found, value=value, lacks=lacks, judged=True)

    def over_bytes(self, shape_search: ShapeSearch, found: KernelPlan) -> int:
        """Return by how many bytes the worst device exceeds its memory if waiting messages are counted. 0 if every
        device has enough.

        The replay does not count them. It assumes that a message arrives when it is needed and leaves at once. On slow
        links, messages wait.
        """
        return int(over_bytes_when_played(self._plan(shape_search, found)).max())

    def _plan(self, shape_search: ShapeSearch, found: KernelPlan) -> Plan:
        problem = self._problem
        job, grid = shape_search.job(found, problem.job), shape_search.grid(found)
        return unpriced_plan(problem.topology, job, grid, problem.links.queueing, problem.efficiency)


# ---------------------------------------------------------------------------------------------------------------------
# Sets of devices on which a job may start: all, one kind, one region, the fastest, the best connected.


MOST_POOLS = 4
"""Up to this number of pools (``device_sets``), every selection of them is tried, which is at most 15."""
MOST_CLUSTERED = 64
"""Maximum number of pools that are joined into clusters. Joining more would take longer than the plans save. Also the
maximum number of kinds or regions that are tried one by one."""
RATIO = 1.6
"""Ratio of the sizes of successive prefixes of the devices, sorted by speed or by connection. It keeps their number
below 20 for each of the two orders."""


def device_sets(topology: Topology) -> list[IntArray]:
    """Return sets of devices that a user might start a job on, each in the network's order. All devices come first.

    A pool is the devices of one kind in one region. With up to ``MOST_POOLS`` pools, every selection of them is a set.
    With more pools, these are the sets:

    - for each speed, all pools that are at least as fast
    - all pools but one
    - clusters of pools, the best connected first
    - each pool alone

    With more than ``MOST_CLUSTERED`` pools, only the sets by speed are used.
    """
    pools = _pools(topology)
    n = len(pools)
    if n <= MOST_POOLS:
        chosen = [set(one) for size in range(n, 0, -1) for one in combinations(range(n), size)]
    else:
        speed = [topology.devices[int(pool[0])].peak_flop_per_s for pool in pools]
        chosen = [set(range(n))]
        chosen += [{i for i in range(n) if speed[i] >= least} for least in sorted(set(speed))]
        if n <= MOST_CLUSTERED:
            chosen += [set(range(n)) - {i} for i in range(n)]
            chosen += _clusters(_bandwidths(topology, pools))
            chosen += [{i} for i in range(n)]
    distinct = dict.fromkeys(frozenset(one) for one in chosen)
    return [np.sort(np.concatenate([pools[i] for i in one])) for one in distinct]


def starting_sets(topology: Topology) -> list[IntArray]:
    """Return ``device_sets``, the devices of each kind of GPU and of each region, a host of each kind, and prefixes of
    the devices by speed and by connection. No set is returned twice."""
    found = [*device_sets(topology), *_alone(topology), *_hosts(topology), *_prefixes(topology)]
    return [*{one.tobytes(): one for one in found}.values()]


def _alone(topology: Topology) -> Iterator[IntArray]:
    """Yield the devices of each kind of GPU, then of each region. A grouping with only one group, or with more than
    ``MOST_CLUSTERED``, is skipped."""
    for key in ("gpu", "region"):
        groups = by_key((getattr(device, key), i) for i, device in enumerate(topology.devices))
        if 1 < len(groups) <= MOST_CLUSTERED:
            yield from (np.array(one) for one in groups.values())


def _hosts(topology: Topology) -> Iterator[IntArray]:
    """Yield the first host with each combination of GPUs, if it has more than one device. Small models train fastest
    inside one host, whose links are the fastest."""
    kinds = set()
    for host in by_key((device.host, i) for i, device in enumerate(topology.devices) if device.host).values():
        kind = tuple(topology.devices[i].gpu for i in host)
        if len(host) > 1 and kind not in kinds:
            kinds.add(kind)
            yield np.array(host)


def _prefixes(topology: Topology) -> Iterator[IntArray]:
    """Yield the fastest devices, and the best connected ones, in sizes that fall by ``RATIO``."""
    n = len(topology)
    speed = np.array([device.peak_flop_per_s for device in topology.devices])
    connected = _connection(topology)
    for by in (speed, connected):
        if np.ptp(by) <= 1e-9 * abs(by).max():
            continue
        order = np.argsort(-by, kind="stable")
        size = n / RATIO
        while size >= 1:
            yield np.sort(order[: int(size)])
            size /= RATIO


def _connection(topology: Topology) -> FloatArray:
    """Return (N,) how well each device is connected: the average log bandwidth to every other device, by the slower
    direction."""
    n = len(topology)
    if n == 1:
        return np.zeros(1)
    bandwidth = topology.bandwidth_bytes_per_s
    total = np.empty(n)
    for i in range(n):  # row by row: an (N, N) copy of the largest networks takes 134 MB
        slower = np.minimum(bandwidth[i], bandwidth[:, i])
        slower[i] = 1.0
        total[i] = np.log(slower).sum()
    return total / (n - 1)


def _pools(topology: Topology) -> list[IntArray]:
    members = by_key(((d.region, d.gpu, d.peak_flop_per_s), i) for i, d in enumerate(topology.devices))
    return [np.array(one) for one in members.values()]


def _bandwidths(topology: Topology, pools: list[IntArray]) -> FloatArray:
    """Return (pools, pools) bytes/s of the slowest link between two pools, in either direction."""
    bandwidth = topology.bandwidth_bytes_per_s
    one_way = np.array([[bandwidth[np.ix_(a, b)].min() for b in pools] for a in pools])
    found: FloatArray = np.minimum(one_way, one_way.T)
    return found


def _clusters(bandwidth: FloatArray) -> list[set[int]]:
    """Join the two best connected clusters, by their slowest link, until one is left. Return all clusters that
    arise."""
    clusters, found = [{i} for i in range(len(bandwidth))], []
    while len(clusters) > 1:
        pairs = list(combinations(range(len(clusters)), 2))
        a, b = max(pairs, key=lambda pair: bandwidth[np.ix_(*(list(clusters[one]) for one in pair))].min())
        joined = clusters[a] | clusters[b]
        clusters = [one for i, one in enumerate(clusters) if i not in (a, b)] + [joined]
        found.append(joined)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# The structured plans of a request. All are estimated, and the simulator prices the best of them.


REFINED = 4
"""Number of device sets on which all shapes are tried."""
ALIKE = 0.02
"""Relative handicap of each further plan of a layout when plans are sorted. Plans of one layout differ little."""
MOST_SIMULATED = 300
"""Maximum number of structured plans that are simulated, the best by their estimates first."""
TOO_HIGH = 0.9
"""Plans are simulated until the next estimate, times this, is above the best plan. On random clusters, estimates of the
best plans were up to 11 % too high. Annealing may still find a plan whose estimate is further off."""


class StructuredPlans:
    """The structured plans of one request, estimated first and then simulated, best first."""

    def __init__(self, request: SearchRequest, target: SearchTarget) -> None:
        self._request, self._target = request, target
        self._best = math.inf
        self.estimates: list[LayoutEstimate] = []
        self.judged: list[Candidate] = []
        """Plans that fit, in the order in which they were simulated."""
        self.n_simulated = 0

    @cached_property
    def estimators(self) -> list[Estimator]:
        """One estimator for each degree of tensor parallelism, large groups first, because they have the fewest
        devices."""
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

    def estimate(self, until: Callable[[], bool]) -> None:
        """Estimate layouts until all are done, or until ``until`` is true and a plan fits.

        Every set of devices is first tried in a few shapes, the most promising sets first. Then the best ``REFINED``
        sets are tried in all shapes. Each degree of tensor parallelism gets one set before ``until`` is first called.
        ``Estimator.promise_s`` alone may put a degree first that takes four times as long as the best.
        """
        self._best = math.inf
        for number, (of, members) in enumerate(self._sets()):
            for _ in self._estimated(of, members, coarse=True):
                if number >= len(self.estimators) and self.estimates and until():
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
                if until():
                    return

    def _estimated(self, of: Estimator, members: IntArray, *, coarse: bool) -> Iterator[GridLayout]:
        """Estimate the layouts of a set of devices that may beat the best estimate. Yield after each."""
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
        """Return pairs of a network's estimator and a set of its devices. First comes the most promising set of each
        network, then all others, the most promising first (``Estimator.promise_s``)."""
        found = [(of, members) for of in self.estimators for members in starting_sets(of.topology)]
        found.sort(key=lambda one: one[0].promise_s(one[1]))
        firsts = {id(one[0]): one for one in reversed(found)}
        return sorted(found, key=lambda one: firsts[id(one[0])] is not one)  # a stable sort

    def simulated(self) -> Iterator[Candidate | None]:
        """Yield the plans, best estimates first, each priced by the simulator; None for a plan that does not fit.

        Each further plan of a layout is sorted as if it were slower by ``ALIKE`` (2 %) more, because plans of one
        layout are much alike.
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
            if (judged := self._judged(one, job, best)) is not None:
                self.judged.append(judged)
                best = min(best, judged.best_s)
            yield judged

    def _by_estimate(self) -> list[LayoutEstimate]:
        met: dict[int, int] = {}
        ranked: list[tuple[float, int, LayoutEstimate]] = []
        for one in sorted(self.estimates, key=lambda each: each.value):
            turn = met.get(id(one.layout), 0)
            met[id(one.layout)] = turn + 1
            ranked.append((one.value * (1.0 + ALIKE * turn), len(ranked), one))
        return [one for *_, one in sorted(ranked, key=lambda each: each[:2])]

    def _judged(self, one: LayoutEstimate, job: Job, best: float) -> Candidate | None:
        """Return the plan, priced by the simulator; None if it does not fit or cannot be simulated."""
        topology, request = one.of.topology, self._request
        plan = unpriced_plan(topology, job, one.layout.grid, request.queueing, request.efficiency)
        operator = f"structured, {one.layout.order}"
        return candidate_of(plan, self._target, self.n_simulated, operator, complete=False, best=best)


def plan_of(candidate: Candidate, request: SearchRequest) -> Plan:
    """Return a simulated candidate as a plan to begin a search with."""
    plan = unpriced_plan(candidate.topology, candidate.job, candidate.best, request.queueing, request.efficiency)
    return plan.changed(iteration_s=candidate.iteration_s)


def job_of(one: LayoutEstimate, asked: Job) -> Job | None:
    """Return the job with everything that the estimate chose; None if the job does not allow it."""
    n_stages, n_replicas = one.layout.shape
    job = one.of.tables.checkpointings[one.checkpointing]
    schedule = asked.schedule or ("1f1b" if one.warmups is None else "adaptive-1f1b")
    warmups = asked.warmups
    try:
        microbatch_counts = asked.microbatches_per_replica or _microbatch_counts(
            one, asked.global_batch // one.microbatch, n_replicas
        )
        if one.warmups is not None:
            most = max(microbatch_counts) - 1
            warmups = tuple(min(int(n), most) for n in one.warmups)
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
            microbatches_per_replica=tuple(microbatch_counts),
            warmups=warmups if schedule == "adaptive-1f1b" else None,
        )
    except LabError:
        return None


def _microbatch_counts(one: LayoutEstimate, n_microbatches: int, n_replicas: int) -> tuple[int, ...]:
    """Return the micro-batches of each pipeline that let the last one end as early as possible. Counts are even if
    devices are equal, and with zero-2 and zero-3."""
    if len(one.period_s) == 1 or one.sharding in ("zero-2", "zero-3"):
        return even_shares(n_microbatches, n_replicas)
    microbatch_counts: IntArray = np.ones(n_replicas, dtype=np.int64)
    rate = 1.0 / one.period_s
    whole_s = (n_microbatches + float((one.fill_s * rate).sum())) / float(rate.sum())
    microbatch_counts = np.maximum(1, np.floor((whole_s - one.fill_s) * rate)).astype(np.int64)
    while microbatch_counts.sum() < n_microbatches:
        microbatch_counts[int(np.argmin(one.fill_s + (microbatch_counts + 1) * one.period_s))] += 1
    while microbatch_counts.sum() > n_microbatches:
        taken = np.where(microbatch_counts > 1, one.fill_s + microbatch_counts * one.period_s, -math.inf)
        microbatch_counts[int(np.argmax(taken))] -= 1
    return tuple(microbatch_counts.tolist())
