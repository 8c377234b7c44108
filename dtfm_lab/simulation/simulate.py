"""Predict an iteration: simulate a plan's schedule in virtual time, and say how certain the result is."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from dtfm_lab.costs.basis import basis_of, profiled_basis
from dtfm_lab.costs.efficiency import GivenEfficiency, efficiency_of, peak_of, speeds_of
from dtfm_lab.costs.seconds import analytic
from dtfm_lab.domain.errors import TraceError
from dtfm_lab.domain.job import Job, buckets_of
from dtfm_lab.domain.network import Device, Links, hosts_among, shortened
from dtfm_lab.domain.plan import Plan, check_same_plan, cut_subplan
from dtfm_lab.domain.schedule import Action, Kind, Schedule
from dtfm_lab.domain.trace import ComputeTime, RunContext, Trace, TracedPlan
from dtfm_lab.domain.trace.run_context import SWING, deferred
from dtfm_lab.domain.units import FloatArray, IntArray, is_of_pandas
from dtfm_lab.simulation.engine import PlacedTasks, TaskTimes, programs_of, takes_rings_whole
from dtfm_lab.simulation.schedules import build

BATCH = "n_microbatches", "microbatch_counts"
"""Fields of a Job and of a TracedPlan: the largest number of micro-batches of a pipeline, and the number of each
pipeline."""
AVERAGING = "synchronisation", "synchronise_every", "fragments", "fragment_delay", "sharding"
OF_THE_PLAN = (*AVERAGING, "transport", *BATCH, "tokens", "flop")
"""Fields that must be equal in a run and in the plan that predicts it."""
OF_THE_RUN = "clock", "links", "time_scale", "message_s", "rehearsed", "stand_in", "runs_on"
"""Fields of a run that its prediction copies."""
if TYPE_CHECKING:
    import pandas as pd

    Profile = Iterable[ComputeTime] | pd.DataFrame
else:
    Profile = Iterable[ComputeTime] | Any  # Any stands for DataFrame, because naming that type would load pandas
"""Compute times as rows or as a table of stage, replica, kind and seconds, like ``Trace.profile_frame``."""


def simulate(
    plan: Plan,
    schedule: str | Schedule | None = None,
    *,
    like: Trace | RunContext | None = None,
    queueing: str | None = None,
    profile: Profile | None = None,
    efficiency: GivenEfficiency = None,
) -> Trace:
    """Predict one iteration of a plan.

    If the job synchronises only in every H-th iteration, the trace has two iterations. Iteration H - 2 represents all
    that do not synchronise, and H - 1 synchronises. With fragments, H is the number of iterations from one fragment
    sent to the next (``Job.averages_every``).

    Parameters
    ----------
    schedule
        A name in ``schedules``, or a Schedule. None means the job's own.
    like
        A measured trace of this plan, or the context of a run in progress. The prediction uses its schedule, its clock,
        its queueing and the profile taken before it, but not its measured times. If the run used real links, every
        message takes its calibrated ``message_s`` instead of the network's time. If the run covered only a part of the
        plan, or devices were absent, the prediction covers the same devices.
    queueing
        ``pairs`` (every directed pair is a separate link, as in the paper) or ``nics`` (one NIC per device, in and
        out). With both, devices of one host share its NIC. By default the queueing of ``like``, or else of the plan.
    profile
        Seconds of computations, by stage, replica and kind, instead of FLOP over peak x efficiency.
    efficiency
        Share of its peak that every device reaches, or a calibration. None means the plan's own, or else the value of
        ``efficiency_of``.

    Raises
    ------
    JobError
        The job holds only message sizes, or the efficiency is out of range.
    UnknownName
        There is no schedule or queueing of that name.
    ScheduleError
        The schedule does not match the job's stages or micro-batches, or it cannot finish. If it cannot finish, the
        error names the actions that wait for each other.
    TraceError
        ``like`` is of another plan, or the profile has no time for a computation.
    """
    found = simulated_iterations(plan, schedule, like=like, queueing=queueing, profile=profile, efficiency=efficiency)
    plan, ran, links, every = found.plan, found.ran, found.links, found.plan.job.averages_every
    context = RunContext(
        source="simulated",
        schedule=found.schedule.name,
        profile=found.profile,
        queueing=links.queueing,
        nics=shared_nics(plan, links),
        versions=dict(_versions()),
        **(
            {"clock": "model", "links": "specified"}
            if ran is None
            else {name: getattr(ran, name) for name in OF_THE_RUN}
        ),
        plan=traced_plan(plan, found.schedule),
        basis=profiled_basis(ran.clock if ran else "model") if found.profiled else basis_of(plan, found.efficiency),
        **(known_spreads := spreads_of(plan, found.efficiency, ran=ran, profiled=found.profiled)),
        swings=deferred(partial(swings_of, found.times, every, **known_spreads)),
    )
    return _trace(context, found.times, every)


def iteration_seconds(plan: Plan, *, queueing: str | None = None, efficiency: GivenEfficiency = None) -> float:
    """Return ``simulate(plan, ...).iteration_s`` without building a trace, which is faster."""
    times = simulated_iterations(plan, queueing=queueing, efficiency=efficiency, representatives=True).times
    return _mean_s([one.makespan_s for one in times], plan.job.averages_every)


def _mean_s(seconds: Sequence[float], every: int) -> float:
    """Return the mean seconds over ``every`` iterations. The last one synchronises and the others do not.

    ``seconds`` has one number for each of the two kinds, or one number if all iterations are equal.
    """
    return seconds[0] if len(seconds) == 1 else ((every - 1) * seconds[0] + seconds[1]) / every


class SimulatedIterations(NamedTuple):
    """The inputs of a simulation, and the times that it found."""

    plan: Plan
    """The simulated plan. If a run is predicted, it has only the part that ran, without absent devices."""
    schedule: Schedule
    links: Links
    ran: RunContext | None
    efficiency: GivenEfficiency
    profile: tuple[ComputeTime, ...]
    """Seconds of computations: the given profile, or the seconds computed for the last simulated iteration."""
    profiled: bool
    """True if a profile was given, or if ``like`` has one."""
    times: list[TaskTimes]
    """Times of one iteration. If only some iterations synchronise: times of one that does not, then times of one that
    does."""

    @property
    def parts(self) -> list[tuple[float, TaskTimes]]:
        """For each entry of ``times``: the share of all iterations that are of this kind, and the times."""
        every = self.plan.job.averages_every
        shares = (1.0,) if len(self.times) == 1 else (1 - 1 / every, 1 / every)
        return list(zip(shares, self.times, strict=True))

    @property
    def iteration_s(self) -> float:
        return sum(share * times.makespan_s for share, times in self.parts)

    @property
    def gathers(self) -> bool:
        """True if other links change the seconds of passes, because passes gather parameters or
        scatter gradients over them."""
        return self.plan.job.gathers_passes and not self.profiled

    def changed_s(self, links: Links, speed: FloatArray) -> float:
        """Return the seconds of an iteration on other links, with device speeds multiplied by ``speed``, (N,). The
        order of passes stays the same."""
        return sum(share * self.changed_part_s(times.tasks, links, speed) for share, times in self.parts)

    def changed_part_s(self, tasks: PlacedTasks, links: Links, speed: FloatArray) -> float:
        """Return the seconds of one kind of iteration, as ``changed_s``. ``tasks`` are those of that kind."""
        if self.gathers:
            programs = tasks.graph.programs
            tasks = PlacedTasks.of(self.plan, programs, analytic(self.plan, programs, self.efficiency, links))
        return replace(tasks, compute_s=tasks.compute_s / speed[tasks.here]).simulate(links).makespan_s


def simulated_iterations(
    plan: Plan,
    schedule: str | Schedule | None = None,
    *,
    like: Trace | RunContext | None = None,
    queueing: str | None = None,
    profile: Profile | None = None,
    efficiency: GivenEfficiency = None,
    representatives: bool = False,
) -> SimulatedIterations:
    """Simulate the iterations of a plan. Arguments and errors are the same as for ``simulate``.

    With ``representatives``, only the first pipelines are simulated, as many as needed to represent all. ``like`` and
    ``profile`` must then be None.
    """
    plan.job.modelled()
    efficiency = plan.efficiency if efficiency is None else efficiency
    ran = like.context if isinstance(like, Trace) else like
    if ran is not None:
        if not isinstance(ran, RunContext):
            raise TraceError(f"like is {shortened(ran)}; wanted a Trace of this plan")
        plan = cut_subplan(plan, ran.rehearsed)
        plan = plan if plan.absent == ran.plan.absent else plan.changed(absent=ran.plan.absent)
        check_same_plan(plan, ran.plan, *OF_THE_PLAN)
        if (overlapped := bool(ran.plan.buckets)) != plan.job.overlap:
            raise TraceError(
                f"the trace ran with overlap {overlapped}, this plan's job has {not overlapped}; wanted the same"
            )
    links = _links(plan, ran, queueing)
    given = _rows(profile) if profile is not None else None if ran is None else ran.profile
    named = schedule if schedule is not None else ran.schedule if ran is not None else plan.job.schedule_name
    if ran is not None and ran.plan.orders and named == ran.schedule:
        named = ran.recorded_schedule  # it has the warm-ups that were chosen for the run
    built = build(plan, named, given, links, efficiency=efficiency)
    # the last of synchronise_every iterations synchronises
    times, known = [], () if given is None else given
    period = period_of(plan, links, efficiency) if representatives else None
    whole_rings = (ran is None or ran.source == "simulated") and takes_rings_whole(plan.job, built)
    for synchronise in [True] if plan.job.averages_every == 1 else [False, True]:
        programs = programs_of(plan, built, synchronise=synchronise, whole_rings=whole_rings, period=period)
        if given is None:
            known = analytic(plan, programs, efficiency, links)
        times.append(PlacedTasks.of(plan, programs, known).simulate(links))
    return SimulatedIterations(plan, built, links, ran, efficiency, known, given is not None, times)


def traced_plan(plan: Plan, schedule: Schedule) -> TracedPlan:
    """Return what a trace of the plan, predicted or measured, stores about it."""
    job, topology = plan.job, plan.topology
    grid = [[topology.devices[int(d)] for d in row] for row in plan.placement.devices]
    return TracedPlan(
        devices=plan.device_names,
        topology=topology.name,
        topology_fingerprint=topology.fingerprint,
        job=job.name,
        n_microbatches=job.n_microbatches,
        microbatches_per_replica=job.microbatch_counts if len(set(job.microbatch_counts)) > 1 else (),
        stages_per_device=schedule.stages_per_device,
        orders=schedule.orders,
        synchronisation=job.synchronisation,
        synchronise_every=job.averages_every,
        fragments=job.fragments,
        fragment_delay=job.fragment_delay,
        sharding=job.sharding or "none",
        buckets=buckets_of(job, schedule),
        transport=job.transport,
        absent=plan.absent,
        tokens=job.tokens,
        counted=job.counted,
        flop=job.flop,
        peak_flop_per_s=tuple(tuple(peak_of(device, job.dtype) for device in row) for row in grid),
        price_per_hour=tuple(tuple(device.price_per_hour for device in row) for row in grid),
    )


def shared_nics(plan: Plan, links: Links) -> tuple[tuple[str, ...], ...]:
    """Return (stages, replicas) names of the NICs that the plan's devices use. A NIC is named after the first device of
    its host. Empty if no two of the plan's devices share a NIC."""
    if links.nic_of is None:
        return ()
    nics = links.nic_of[plan.placement.devices]
    if np.unique(nics).size == np.unique(plan.placement.devices).size:
        return ()
    return tuple(tuple(plan.topology.names[nic] for nic in row) for row in nics.tolist())


def _links(plan: Plan, ran: RunContext | None, queueing: str | None) -> Links:
    chosen = queueing if queueing is not None else ran.queueing if ran is not None else plan.queueing
    if ran is not None and ran.links == "real":
        Links.of(plan.topology, chosen)  # raises UnknownName for an unknown queueing
        return Links.free(len(plan.topology)).delayed(ran.message_s)
    return Links.of(plan.topology, chosen)


def _rows(profile: Profile) -> tuple[ComputeTime, ...]:
    """Return the profile as a tuple of ComputeTime. Raises TraceError if it is not rows of stage, replica, kind and
    seconds."""
    rows: Any = profile
    if is_of_pandas("DataFrame", profile):
        if missing := [name for name in ComputeTime._fields if name not in profile]:
            raise TraceError(f"profile has no column {missing[0]}; wanted {', '.join(ComputeTime._fields)}")
        rows = rows[list(ComputeTime._fields)].itertuples(index=False)
    if not isinstance(rows, Iterable):
        raise TraceError(f"profile is {shortened(rows)}; wanted rows of {', '.join(ComputeTime._fields)}")
    known = []
    for row in rows:
        try:
            stage, replica, kind, seconds = row
            known.append(ComputeTime(int(stage), int(replica), Kind(kind), float(seconds)))
        except (TypeError, ValueError, OverflowError):
            raise TraceError(f"profile holds {row!r:.80}; wanted stage, replica, kind and seconds") from None
        if not 0 <= known[-1].seconds < float("inf"):
            raise TraceError(f"profile holds {known[-1].seconds} s for {kind} of stage {stage}; wanted 0 or more")
    return tuple(known)


def _trace(context: RunContext, simulated: list[TaskTimes], every: int) -> Trace:
    """Return a trace of iteration ``every`` - 1, which synchronises. If ``simulated`` has two iterations, the one
    before it, which does not synchronise, comes first."""
    actions: dict[Action, int] = {}
    tables = [
        np.array([actions.setdefault(action, len(actions)) for action in one.tasks.graph.actions]) for one in simulated
    ]
    columns: list[tuple[npt.NDArray[Any], ...]] = []
    n_before = 0
    for number, one, table in zip(range(every - len(simulated), every), simulated, tables, strict=True):
        graph = one.tasks.graph
        action = table[graph.action]
        by_time = np.lexsort((action, one.end_s, one.start_s, graph.replica))
        row_of = np.empty(len(graph), dtype=np.int64)
        row_of[by_time] = np.arange(len(graph)) + n_before
        after = np.where(one.after < 0, -1, row_of[one.after])[by_time]
        iteration = np.full(len(graph), number, dtype=np.int64)
        columns.append(
            (iteration, graph.replica[by_time], action[by_time], one.start_s[by_time], one.end_s[by_time], after)
        )
        n_before += len(graph)
    return Trace(context, tuple(actions), *(np.concatenate(parts) for parts in zip(*columns, strict=True)))


@lru_cache(maxsize=1)
def _versions() -> tuple[tuple[str, str], ...]:
    return ("dtfm_lab", version("dtfm_lab")), ("python", platform.python_version())


class Spreads(TypedDict):
    """Two fields of a RunContext: standard deviations of the logarithm of seconds, for computing and for links."""

    compute_spread: tuple[tuple[float, ...], ...]
    link_spread: float


def spreads_of(
    plan: Plan, efficiency: GivenEfficiency = None, *, ran: RunContext | None = None, profiled: bool = False
) -> Spreads:
    """Return how uncertain a prediction is, given the efficiency or profile that it uses. The profile may come from a
    run.

    An efficiency or profile without a spread counts as exact, so only the noise of repeated measurements is left.
    Emulated links of a run count as exact too.
    """
    link_spread = _link_spread(plan) if ran is None else ran.link_spread
    if profiled and ran is not None and ran.compute_spread:
        return Spreads(compute_spread=ran.compute_spread, link_spread=link_spread)
    of_kind: dict[tuple[object, ...], float] = {}

    def spread(device: Device) -> float:
        if profiled or efficiency is not None:
            return 0.0 if profiled else getattr(efficiency, "spread", 0.0)
        kind = device.gpu, device.peak_flop_per_s, device.gpus, id(device.measured)
        if kind not in of_kind:
            of_kind[kind] = efficiency_of(plan.job, device).spread
        return of_kind[kind]

    devices, rows = plan.topology.devices, plan.placement.devices.tolist()
    return Spreads(
        compute_spread=tuple(tuple(spread(devices[d]) for d in row) for row in rows), link_spread=link_spread
    )


def _link_spread(plan: Plan) -> float:
    """Return the spread of a plan's messages. If the network states spreads by the number of hosts, the plan's
    collective over the most hosts decides."""
    grid, topology = plan.placement.devices, plan.topology
    if not topology.collectives or grid.shape[1] == 1:
        return topology.link_spread
    return topology.spread_over(int(hosts_among(grid, topology.nic_of).max()))


def swings_of(
    times: Sequence[TaskTimes], every: int, compute_spread: tuple[tuple[float, ...], ...], link_spread: float
) -> tuple[tuple[float, float], ...]:
    """Return ``RunContext.swings``: two pairs (shorter, longer) of iteration times in seconds. In the first, all
    computations take ``SWING`` (2) standard deviations less or more time. In the second, all messages do.

    ``times`` has one iteration, or one that does not synchronise and one that does. One in ``every`` iterations
    synchronises.
    """

    def seconds(deviations: float, *, of_links: bool) -> float:
        ends_s = []
        for one in times:
            graph = one.tasks.graph
            factors = 1.0 if of_links else np.exp(deviations * spread)[graph.position, graph.replica]
            ends_s.append(one.changed_s(factors, math.exp(deviations * link_spread) if of_links else 1.0))
        return _mean_s(ends_s, every)

    spread = np.array(compute_spread)
    return tuple((seconds(-SWING, of_links=one), seconds(SWING, of_links=one)) for one in (False, True))


# ---------------------------------------------------------------------------------------------------------------------
# How many pipelines of a plan have to be simulated: one period, after which everything that sets the times repeats.


TURNING = ("ring", "sharded", "sharded-at-once")
"""Ways to average in which no replica has a special role: each does the same with the replicas that follow it,
cyclically."""


def period_of_counts(job: Job) -> int:
    """Return the number of replicas after which programs repeat. The first ones then represent all. It is the number of
    all replicas if programs do not repeat."""
    counts = np.array(job.microbatch_counts)
    return _period([counts]) if job.synchronisation in TURNING else len(counts)


def period_of(plan: Plan, links: Links, efficiency: GivenEfficiency = None) -> int:
    """Return the number of replicas after which the times of a plan repeat on these links. It is the number of all
    replicas if they do not repeat.

    Replica r + period then has the same kinds of devices, the same links to its peers and the same sharing of NICs as
    replica r. The first ``period`` replicas represent all.
    """
    job, grid = plan.job, plan.placement.devices
    n_stages, n_replicas = map(int, grid.shape)
    if job.synchronisation not in TURNING or plan.absent or links.message_bytes is not None or n_replicas == 1:
        return n_replicas
    columns: list[IntArray | FloatArray] = [np.array(job.microbatch_counts), *_kinds_of_devices(plan, efficiency)]
    for stage in range(n_stages if n_stages > 1 else 0):
        for other in {(stage + 1) % n_stages, (stage - 1) % n_stages}:
            columns += _speeds_of_links(links, grid[stage], grid[other])
    # in a ring, a replica only sends to the next one
    peers = (1,) if job.synchronisation == "ring" else range(1, n_replicas)
    for row in grid:
        for away in peers:
            columns += _speeds_of_links(links, row, np.roll(row, -away))
    nic = grid if links.nic_of is None else links.nic_of[grid]
    return _period(columns, nic if links.has_nics else None)


def _kinds_of_devices(plan: Plan, efficiency: GivenEfficiency) -> list[IntArray]:
    """Return, for each stage, (replicas,) an index of each device's kind. Devices of one kind compute and communicate
    internally at the same speed."""
    numbers: dict[tuple[object, ...], int] = {}
    devices, speeds = plan.topology.devices, speeds_of(plan.job, plan.topology.devices, efficiency)

    def number(at: int) -> int:
        one = devices[at]
        key = one.gpu, one.gpus, one.inner_bandwidth_bytes_per_s, one.inner_latency_s, float(speeds[at])
        return numbers.setdefault(key, len(numbers))

    return [np.array([number(at) for at in row]) for row in plan.placement.devices.tolist()]


def _speeds_of_links(links: Links, here: IntArray, there: IntArray) -> list[FloatArray]:
    return [links.latency_s[here, there], links.bandwidth_bytes_per_s[here, there]]


def _period(columns: Sequence[IntArray | FloatArray], nic: IntArray | None = None) -> int:
    """Return the smallest number of replicas after which these (replicas,) columns repeat; all replicas if they do not.

    ``nic`` is (stages, replicas). Each period must use other NICs, shared in the same way.
    """
    rows = np.stack([np.unique(column, return_inverse=True)[1] for column in columns])
    n = int(rows.shape[1])
    labels = None
    if nic is not None:
        _, first, inverse = np.unique(nic.T.ravel(), return_index=True, return_inverse=True)
        labels = np.argsort(np.argsort(first))[inverse].reshape(nic.T.shape)
    for period in range(1, n // 2 + 1):
        if n % period or (rows[:, period:] != rows[:, :-period]).any():
            continue
        if labels is None or (labels[period:] == labels[:-period] + labels[:period].max() + 1).all():
            return period
    return n
