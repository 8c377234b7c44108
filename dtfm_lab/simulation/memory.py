"""Report whether a plan fits in memory: what each device holds over time and at its peak, its limit, and changes to the
job that would fit.

Changes that need less memory are tried one at a time and then together, until one fits. The shape is kept, because
another shape needs another placement, which is a planner's task.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from dtfm_lab.costs.memory import (
    ActionTimes,
    MemoryIntervals,
    StaticMemory,
    activation_memory,
    memory_intervals,
    memory_limits,
    static_memory,
)
from dtfm_lab.domain.errors import LabError, TraceError
from dtfm_lab.domain.job import Job, boundary_bytes, device_gradient_bytes
from dtfm_lab.domain.plan import Plan, cut_subplan
from dtfm_lab.domain.registry import listed, unknown
from dtfm_lab.domain.schedule import Programs, Schedule
from dtfm_lab.domain.schedule.task_graph import task_graph
from dtfm_lab.domain.trace import Trace
from dtfm_lab.domain.units import FloatArray, IntArray, counted, format_bytes, format_share
from dtfm_lab.simulation.engine import programs_of, takes_rings_whole
from dtfm_lab.simulation.schedules import build, built_for, choices_of, made_for, schedules
from dtfm_lab.simulation.simulate import period_of_counts, simulate

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)

MOST_USED = 0.9
"""Share of a device's memory above which a plan that fits should be treated as not fitting.

Close to the limit, torch's allocator keeps freeing and reallocating. nanotron's runs on H100s of 80 GB show it (Hugging
Face, "Ultra-Scale Playbook", 2025). We compared each run with micro-batches of 4 or more sequences with the fastest run
of the same parallelism. All 9 runs with a measured peak above 70 GB took 5 to 12 times as long. Of the 61 runs between
50 and 70 GB, one did. 70 GB are 82 or 88 % of the GPU, because the source does not say whether its GB are decimal. 90 %
is a round number above both. The planner ignores this share. It fills memory up to the limit that the job states.
``fragmentation=0.1`` sets that limit to this share.
"""
LEAST_MEMORY = "1f1b"
"""Name of the schedule that ``remedies`` tries. It holds least memory among those that keep all devices busy on
infinitely fast links."""
RECOMPUTED = {
    "recomputation": {"recompute": True, "checkpointing": "none"},
    "checkpointing block": {"recompute": False, "checkpointing": "block"},
}
"""Ways to recompute activations that ``remedies`` tries. The second, which holds one block at a time, is tried if the
first does not fit."""


@dataclass(frozen=True, eq=False)
class Levels:
    """Bytes held in addition to the static memory. There is a new row whenever they change."""

    device: IntArray
    """Number that stands for a device in an iteration: (iteration x positions + position) x replicas + replica;
    ascending."""
    time: FloatArray
    """Time from which the row's bytes are held; ascending for each device."""
    activations_bytes: IntArray
    messages_bytes: IntArray

    def repeated(self, period: int, n_replicas: int) -> Self:
        """Return the levels of all replicas, given one iteration of the first ``period`` replicas, which
        represent all."""
        position, replica = np.divmod(self.device, period)
        first = np.arange(0, n_replicas, period)
        device = (position * n_replicas + replica + first[:, None]).ravel()
        order = np.argsort(device, kind="stable")
        time, activations_bytes, messages_bytes = self.time, self.activations_bytes, self.messages_bytes
        again = np.tile(np.arange(len(time)), len(first))[order]
        return type(self)(device[order], time[again], activations_bytes[again], messages_bytes[again])

    @classmethod
    def of(cls, held: MemoryIntervals) -> Self:
        device, time = np.tile(held.device, 2), np.concatenate([held.first, held.last])
        change = np.concatenate([held.n_bytes, -held.n_bytes])
        is_message = np.tile(held.is_message, 2)
        order = np.lexsort((time, device))
        device, time = device[order], time[order]
        # every device begins and ends with nothing held, so one running sum serves all devices
        activations_bytes, messages_bytes = (
            np.cumsum(np.where(is_message == which, change, 0)[order]) for which in (False, True)
        )
        settled = np.append((np.diff(device) != 0) | (np.diff(time) != 0), True)[: len(order)]
        return cls(device[settled], time[settled], activations_bytes[settled], messages_bytes[settled])

    def peaks(self, n_devices: int) -> tuple[IntArray, IntArray]:
        """Return (devices,) bytes of activations, and of messages, at the moment when their sum is largest in any
        iteration."""
        device, total = self.device % n_devices, self.activations_bytes + self.messages_bytes
        fullest = np.lexsort((total, device))
        # the last row of each device in this order has its largest total
        last = fullest[np.flatnonzero(np.diff(device[fullest], append=n_devices))]
        peaks = np.zeros((2, n_devices), dtype=np.int64)
        peaks[:, device[last]] = self.activations_bytes[last], self.messages_bytes[last]
        return peaks[0], peaks[1]


@dataclass(frozen=True, eq=False, kw_only=True)
class MemoryReport:
    """The memory that every device of a plan needs at its peak, and the memory that it has."""

    devices: tuple[tuple[str, ...], ...]
    """(positions, replicas) names of the devices."""
    static: StaticMemory
    activations_bytes: IntArray
    """(positions, replicas) bytes of activations at the device's peak."""
    messages_bytes: IntArray
    """(positions, replicas) bytes of messages at the device's peak."""
    limit_bytes: IntArray
    """(positions, replicas) bytes that a plan may use on the device, without the job's reserve and its share for
    fragmentation."""
    levels: Levels
    timed: bool
    """True if ``levels`` has times in seconds, from a trace. False if it counts computations, from the order of
    passes."""
    plan: Plan
    schedule: str | Schedule | None
    """The schedule as requested, or as recorded in the trace; None for the plan's own."""

    def __repr__(self) -> str:
        return f"<MemoryReport of {counted(self.limit_bytes.size, 'device')}: {self.sentence}>"

    @property
    def peak_bytes(self) -> IntArray:
        """(positions, replicas) bytes that each device holds at its peak."""
        return self.static.total[:, None] + self.activations_bytes + self.messages_bytes

    @property
    def over_bytes(self) -> IntArray:
        """(positions, replicas) bytes that the device lacks; 0 if it has enough."""
        return np.asarray(np.maximum(self.peak_bytes - self.limit_bytes, 0))

    @property
    def fits(self) -> bool:
        return not self.over_bytes.any()

    @property
    def worst(self) -> tuple[int, int]:
        """(position, replica) of the device that lacks most memory. If none does, the one with least to spare."""
        position, replica = np.unravel_index(np.argmax(self.peak_bytes - self.limit_bytes), self.limit_bytes.shape)
        return int(position), int(replica)

    @cached_property
    def used_share(self) -> FloatArray:
        """(positions, replicas) peak bytes as a share of all of the device's memory. The job's reserve is not part of
        the peak."""
        memory_bytes = np.array([device.memory_bytes for device in self.plan.topology.devices])
        return np.asarray(self.peak_bytes / memory_bytes[self.plan.placement.devices])

    @property
    def fullest(self) -> tuple[int, int]:
        """(position, replica) of the device that uses the largest share of its memory."""
        position, replica = np.unravel_index(np.argmax(self.used_share), self.used_share.shape)
        return int(position), int(replica)

    @property
    def caution(self) -> str:
        """A warning with advice if the plan fits, but its fullest device uses more than ``MOST_USED`` of its memory.
        Otherwise empty."""
        at = self.fullest
        # A plan with the fragmentation below may use exactly this share, apart from rounding.
        if not self.fits or self.used_share[at] <= MOST_USED * (1 + 1e-9):
            return ""
        job, device = self.plan.job, self.plan.placement.devices[at]
        has = format_bytes(self.plan.topology.devices[int(device)].memory_bytes)
        less = ["smaller micro-batches"] if (job.microbatch or 1) > 1 else []
        less += ["recomputation"] if job.checkpoints == "none" else []
        words, most = " or ".join(filter(None, [", ".join(less), "more stages"])), format_share(MOST_USED, 0)
        return (
            f"{self.devices[at[0]][at[1]]} needs {format_bytes(self.peak_bytes[at])} of its {has} "
            f"({format_share(float(self.used_share[at]))}). Above {most}, the allocator may thrash: nanotron's runs "
            f"took 5 to 12 times as long. Treat it as not fitting. {words[:1].upper()}{words[1:]} need less; "
            f"fragmentation={1 - MOST_USED:.1g} keeps plans below {most}"
        )

    @property
    def may_use(self) -> str:
        """A phrase on the memory of the worst device: ``has 16 GiB``, or ``may use 14.4 GiB of its 16 GiB``."""
        return may_use(self.plan, int(self.plan.placement.devices[self.worst]), int(self.limit_bytes[self.worst]))

    @property
    def sentence(self) -> str:
        """A phrase on what the worst device needs and may use."""
        at = self.worst
        needs = f"{self.devices[at[0]][at[1]]} needs {format_bytes(self.peak_bytes[at])} and {self.may_use}"
        if self.fits:
            return needs
        n_over, n = np.count_nonzero(self.over_bytes), self.limit_bytes.size
        do = "does" if n_over == 1 else "do"
        others = f"; {n_over} of {counted(n, 'device')} {do} not fit" if n > 1 else ""
        return f"{needs} ({format_bytes(self.over_bytes[at])} over{others})"

    @cached_property
    def advice(self) -> str:
        """One line on which device lacks memory, how much, and what would fit; empty if all devices have enough."""
        return "" if self.fits else _advice(self.plan, self.schedule, self)

    def timeline(self, device: str, iteration: int = 0) -> tuple[FloatArray, IntArray]:
        """Return times, starting at 0, and the bytes that a device holds from each time to the next. Raises
        UnknownName.

        ``iteration`` is an index among the iterations of the trace. Times are in seconds if ``timed``, otherwise they
        count computations.
        """
        names = [name for row in self.devices for name in row]
        if device not in names:
            raise unknown("device of this plan", device, names)
        index = names.index(device)
        begin, end = np.searchsorted(self.levels.device, iteration * len(names) + index + np.array([0, 1]))
        held = (self.levels.activations_bytes + self.levels.messages_bytes)[begin:end]
        time, n_bytes = np.append(0.0, self.levels.time[begin:end]), np.append(0, held)
        first = int(len(time) > 1 and time[1] <= 0.0)
        return time[first:], n_bytes[first:] + self.static.total[index // len(self.devices[0])]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per device: the bytes of each kind, the peak, the limit and whether it fits. Activations and
        messages are those at the peak."""
        import pandas as pd  # takes a while to load

        n_positions, n_replicas = self.limit_bytes.shape
        return pd.DataFrame(
            {
                "device": [name for row in self.devices for name in row],
                "stage": np.repeat(np.arange(n_positions), n_replicas),
                "parameters_bytes": np.repeat(self.static.weights, n_replicas),
                "gradients_bytes": np.repeat(self.static.gradients, n_replicas),
                "optimizer_bytes": np.repeat(self.static.optimizer, n_replicas),
                "activations_bytes": self.activations_bytes.ravel(),
                "messages_bytes": self.messages_bytes.ravel(),
                "peak_bytes": self.peak_bytes.ravel(),
                "limit_bytes": self.limit_bytes.ravel(),
                "over_bytes": self.over_bytes.ravel(),
                "fits": self.over_bytes.ravel() == 0,
            }
        )


def may_use(plan: Plan, device: int, limit_bytes: int) -> str:
    """Return a phrase on the memory that a device has, and how much of it a plan may use if the job reserves some."""
    limit, has = format_bytes(limit_bytes), format_bytes(plan.topology.devices[device].memory_bytes)
    return f"has {has}" if has == limit else f"may use {limit} of its {has}"


def memory(plan: Plan, schedule: str | Schedule | None = None, *, trace: Trace | None = None) -> MemoryReport:
    """Return the memory that a plan's devices need: by the order of passes in a schedule, or over a trace of this plan.

    Without a trace, every message counts as if it arrived just in time and left at once. This is the minimum for the
    order of passes. With a trace, which may cover only a part of the plan, messages count as long as they waited.

    A name means the variant of that schedule that holds least. None means the job's own schedule, or the trace's.
    Raises JobError if the job holds only message sizes or its model does not fit the schedule. Raises UnknownName for
    an unknown schedule, and ScheduleError for one of other sizes. Raises TraceError if the trace is of another plan or
    of other stages.
    """
    plan.job.modelled()
    plan = plan if trace is None else cut_subplan(plan, trace.context.rehearsed)
    job = plan.job
    if trace is not None and trace.context.devices != plan.device_names:
        raise TraceError(
            f"the trace ran on stages {trace.context.devices}, this plan has {plan.device_names}; wanted the same"
        )
    if schedule is None and trace is not None and trace.context.plan.orders:
        schedule = _recorded(trace.context.schedule, trace.context.plan.orders)
    least = least_memory_schedule(job, schedule, plan)
    whole_rings = takes_rings_whole(job, least) if trace is None else trace.takes_rings_whole
    # with devices absent, replicas differ, so the first ones cannot represent all
    period = None if trace is not None or plan.absent else period_of_counts(job)
    programs = programs_of(plan, least, whole_rings=whole_rings, period=period)
    if trace is not None and trace.context.stages_per_device != programs.schedule.stages_per_device:
        raise TraceError(
            f"the trace ran {counted(trace.context.stages_per_device, 'stage')} per device, schedule "
            f"{programs.schedule.name} has {programs.schedule.stages_per_device}; wanted the same"
        )
    levels = _levels(job, programs, trace)
    shape = plan.placement.devices.shape
    at_peak = levels.peaks(plan.placement.devices.size)
    return MemoryReport(
        devices=plan.device_names,
        static=static_memory(job, programs.schedule.n_stages),
        activations_bytes=at_peak[0].reshape(shape),
        messages_bytes=at_peak[1].reshape(shape),
        limit_bytes=memory_limits(plan),
        levels=levels,
        timed=trace is not None,
        plan=plan,
        schedule=schedule,
    )


def over_bytes_when_played(plan: Plan) -> IntArray:
    """Return ``memory(plan, trace=simulate(plan)).over_bytes``: (positions, replicas) bytes that devices lack.

    The plan is only simulated if necessary. If it lacks memory even if no message waits, the result is what it lacks
    then (``memory(plan)``), which may be less. If it fits however long its messages wait, the result is 0. Raises
    LabError for a plan that cannot be simulated.
    """
    report = memory(plan)
    if not report.fits or (report.peak_bytes + _most_waiting_bytes(report) <= report.limit_bytes).all():
        return report.over_bytes
    return memory(plan, trace=simulate(plan)).over_bytes


def _most_waiting_bytes(report: MemoryReport) -> IntArray:
    """Return (positions, replicas) bytes of all messages that can wait at a device at once, however slow its links are.

    A waiting message belongs to a micro-batch in flight at this device or, if the message crosses the boundary before
    this stage, at the device before it. The number of micro-batches in flight follows from the bytes of activations.
    """
    job = report.plan.job
    n_stages = least_memory_schedule(job, report.schedule, report.plan).n_stages
    by_position = (n_stages // job.n_stages, job.n_stages)
    kept = activation_memory(job, n_stages).kept.reshape(by_position).min(axis=0)
    moving = report.activations_bytes + report.messages_bytes
    in_flight = np.minimum(-(-moving // np.maximum(kept, 1)[:, None]), by_position[0] * job.n_microbatches)
    crossing = np.ceil(boundary_bytes(job, n_stages)).astype(np.int64)
    before, behind = (each.reshape(by_position).max(axis=0)[:, None] for each in (crossing[:-1], crossing[1:]))
    # an activation and a gradient for each boundary: one of the two has arrived, the other is still to be sent
    passing = 2 * (before * np.roll(in_flight, 1, axis=0) + behind * in_flight)
    if job.n_replicas == 1:
        return np.asarray(passing)
    # a central device gets the whole gradient of each replica; rings send twice what shards do. The first 2 is for
    # compressed copies
    whole = np.ceil(device_gradient_bytes(job, n_stages)).astype(np.int64)[:, None]
    copies = 2 + (job.n_replicas if job.synchronisation in ("central", "hierarchical") else 2)
    return np.asarray(passing + copies * whole + math.ceil(job.embedding_bytes))


def held_memory(plan: Plan) -> MemoryReport | None:
    """Return the peak memory of every device under the plan's own schedule.

    None for a job without a model, or if its schedule or model cannot be simulated.
    """
    if plan.job.model is None:
        return None
    try:
        return memory(plan)
    except LabError:
        return None


def warned(plan: Plan) -> Plan:
    """Return the plan itself. Log a warning if its devices lack memory.

    Only plans for the communication cost need this, because other searches leave out plans that do not fit.
    """
    report = held_memory(plan) if plan.objective == "communication" else None
    if report is not None and not report.fits:
        log.warning("out of memory: %s; lab.memory(plan).advice says what would fit", report.sentence)
    return plan


def memory_words(report: MemoryReport) -> str:
    """Return the line that ``dtfm-lab plan`` and ``simulate`` print about memory."""
    if not report.fits:
        return f"out of memory: {report.advice}"
    return f"memory is tight: {report.caution}" if report.caution else f"memory: {report.sentence}"


def memory_summary(report: MemoryReport) -> dict[str, Any]:
    """Return the fields of ``memory`` in ``--json``, except for the advice."""
    at, fullest = report.worst, report.fullest
    return {
        "fits": report.fits,
        "devices_over": int((report.over_bytes > 0).sum()),
        "worst_device": report.devices[at[0]][at[1]],
        "peak_bytes": int(report.peak_bytes[at]),
        "limit_bytes": int(report.limit_bytes[at]),
        "over_bytes": int(report.over_bytes[at]),
        "sentence": report.sentence,
        "fullest_device": report.devices[fullest[0]][fullest[1]],
        "fullest_share": float(report.used_share[fullest]),
        "caution": report.caution,
    }


@lru_cache(maxsize=8)  # what-ifs compute the memory of one trace many times
def _recorded(name: str, orders: tuple[str, ...]) -> Schedule:
    return Schedule.from_orders(name, orders)


def least_memory_schedule(job: Job, schedule: str | Schedule | None, plan: Plan | None = None) -> Schedule:
    """Return the schedule of this name for a job, with the choices that hold least memory. None means the job's own
    schedule.

    A schedule that requires a plan gets it. Raises UnknownName, or ScheduleError if a schedule is for other sizes or
    needs a missing plan.
    """
    chosen = job.schedule_name if schedule is None else schedule
    if not isinstance(chosen, str):
        return made_for(job, chosen)
    if plan is not None and choices_of(chosen).get("plan"):
        return build(plan, chosen)
    return built_for(job, chosen)


def least_peak_bytes(job: Job, programs: Programs) -> IntArray:
    """Return (positions, replicas) peak bytes of the devices, by the order of passes alone."""
    activations_bytes, messages_bytes = _levels(job, programs, None).peaks(job.n_tasklets)
    moving = (activations_bytes + messages_bytes).reshape(job.n_stages, job.n_replicas)
    return static_memory(job, programs.schedule.n_stages).total[:, None] + moving


def _levels(job: Job, programs: Programs, trace: Trace | None) -> Levels:
    graph = task_graph(programs)
    times = ActionTimes.in_order(graph) if trace is None else ActionTimes.of(trace, graph)
    levels = Levels.of(memory_intervals(job, programs.schedule.n_stages, times, programs.n_replicas))
    return levels if programs.n_replicas == job.n_replicas else levels.repeated(programs.n_replicas, job.n_replicas)


# Changes to a job that would make it fit.


class Remedy(NamedTuple):
    """Changes to a job that let it train with less memory, and the result."""

    how: tuple[str, ...]
    """The changes of the job, in words."""
    after: MemoryReport
    """The memory of the plan's devices after the changes."""

    @property
    def over_bytes(self) -> int:
        """Bytes that the worst device lacks after the changes; 0 if all fit."""
        return int(self.after.over_bytes.max())


def _advice(plan: Plan, schedule: str | Schedule | None, report: MemoryReport) -> str:
    """Return the text of ``MemoryReport.advice`` for a plan whose devices lack memory."""
    by_order = memory(plan, schedule) if report.timed else report
    if by_order.fits:  # in a trace, waiting messages may exceed memory although the order of passes fits
        return report.sentence
    tried = remedies(plan, schedule)
    if not tried:
        return f"{report.sentence}; no other schedule of this job needs less"
    if tried[0].after.fits:
        return f"{report.sentence}; {', '.join(_claim(remedy, report) for remedy in tried)}"
    least = min(tried, key=lambda remedy: remedy.over_bytes)
    return f"{report.sentence}; nothing fits in this shape: {_claim(least, report)}"


def remedies(plan: Plan, schedule: str | Schedule | None = None) -> tuple[Remedy, ...]:
    """Return the ways to make the plan fit with the fewest changes to its job. If nothing fits, return the best form of
    each combination of changes that the job allows.

    Changes are recomputation, smaller micro-batches and 1F1B, one at a time and then together. Each is used in its
    mildest form that fits. Empty if all devices have enough already.
    """
    if memory(plan, schedule).fits:
        return ()
    own = plan.job.schedule_name if schedule is None else schedule
    kinds = _changes(plan.job, own)
    tried = []
    for n_changes in range(1, len(kinds) + 1):
        for chosen in combinations(kinds, n_changes):
            forms = [remedy for form in product(*chosen) if (remedy := _remedy(plan, own, form)) is not None]
            if forms:
                fitting = next((remedy for remedy in forms if remedy.after.fits), None)
                tried.append(fitting or min(forms, key=lambda remedy: remedy.over_bytes))
        if fitted := tuple(remedy for remedy in tried if remedy.after.fits):
            return fitted
    return tuple(tried)


def _changes(job: Job, schedule: str | Schedule) -> list[list[tuple[str, dict[str, Any]]]]:
    """Return the kinds of changes that this job allows. A kind is a list of forms, the mildest first. A form is words
    and the fields to change."""
    name = schedule.name if isinstance(schedule, Schedule) else schedule
    smaller = [n for n in range(job.microbatch - 1, 0, -1) if job.microbatch % n == 0]
    kinds: list[list[tuple[str, dict[str, Any]]]] = [
        [*RECOMPUTED.items()] if job.checkpoints != "stage" else [],
        [(f"micro-batches of {n}", {"microbatch": n}) for n in smaller] if name in schedules else [],
        [(LEAST_MEMORY, {"schedule": LEAST_MEMORY})] if name != LEAST_MEMORY and job.n_stages > 1 else [],
    ]
    return [forms for forms in kinds if forms]


def _remedy(plan: Plan, schedule: str | Schedule, form: tuple[tuple[str, dict[str, Any]], ...]) -> Remedy | None:
    """Return the result of these changes; None if the job or its schedule does not allow them."""
    fields = {name: value for _, changed in form for name, value in changed.items()}
    if isinstance(schedule, Schedule) and "microbatch" in fields:
        schedule = schedule.name  # a known name here: your own schedule only exists for its number of micro-batches
    schedule = fields.pop("schedule", schedule)
    try:
        after = memory(plan.changed(job=plan.job.with_fields(**fields)), schedule)
    except LabError:
        return None
    return Remedy(tuple(words for words, _ in form), after)


def _claim(remedy: Remedy, report: MemoryReport) -> str:
    """Return a clause on how much one device would need after the changes.

    If all devices then fit, the clause is about the device that lacks most without the changes. Otherwise it is about
    the device that lacks most with them.
    """
    after = remedy.after
    at = report.worst if after.fits else after.worst
    device = "it" if at == report.worst else after.devices[at[0]][at[1]]
    needs = f"with {listed(remedy.how)} {device} would need {format_bytes(int(after.peak_bytes[at]))}"
    return needs if after.fits else f"{needs} or more, {format_bytes(remedy.over_bytes)} over"
