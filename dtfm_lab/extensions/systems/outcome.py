"""One system's result on one network: its best plan, the seconds, and what they are spent on."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from dtfm_lab.costs.basis import basis_of
from dtfm_lab.costs.efficiency import GivenEfficiency
from dtfm_lab.costs.seconds import pass_times
from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.extension import load
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import UNSAID, Basis, Trace
from dtfm_lab.domain.trace.causes import COMPUTE, GATHERING, Cause
from dtfm_lab.domain.units import counted, format_s
from dtfm_lab.extensions.systems.strategy import Budget, Strategy
from dtfm_lab.simulation.memory import MemoryReport, memory

NOTABLY = 1.1
"""A warning is given if one NIC per device would make an iteration take more than this many times as long."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome:
    """One system's best plan for a network and a job. If none of its plans fits, it has a reason instead of a plan."""

    strategy: Strategy
    budget: Budget
    found: Plan | None
    """The plan, with the seconds of its iteration; None if no plan fits."""
    reason: str = ""
    """Why there is no plan; empty if there is one."""
    runners_up: tuple[Plan, ...] = field(default=(), compare=False)
    """Plans of other shapes that were tried, one per shape. The fastest simulated ones come first, then others by their
    lower bounds.

    All of them fit. Their communication cost is not computed.
    """
    considered: int = 0
    """Number of plans that the system lets its user choose from."""
    seconds: float = field(default=0.0, compare=False)
    """Seconds that the search for the plan took."""

    def __repr__(self) -> str:
        return f"<Outcome of {self.name}: {self.sentence}>"

    @property
    def name(self) -> str:
        """The system's name in the registry, with its changed assumptions."""
        return self.strategy.label

    @property
    def title(self) -> str:
        """The system's name as its authors write it, with its changed assumptions."""
        return self.strategy.heading

    @property
    def plan(self) -> Plan:
        """The best plan. Raises PlanError if no plan fits."""
        if self.found is None:
            raise PlanError(f"{self.title} has no plan here: {self.reason}")
        return self.found

    @property
    def job(self) -> Job:
        """The plan's job: the requested work, trained as the system trains it."""
        return self.plan.job

    @cached_property
    def trace(self) -> Trace:
        """One iteration of the plan's schedule. If the system has a closed form, the trace's seconds differ from
        ``iteration_s``. An example is SWARM, which routes micro-batches as they come."""
        return self.strategy.trace(self.plan, self.budget)

    @cached_property
    def memory(self) -> MemoryReport:
        """What the plan's devices hold. If the system did not choose the plan itself, it may not fit."""
        return memory(self.plan)

    @property
    def iteration_s(self) -> float | None:
        """Predicted seconds of an iteration; None without a plan."""
        return None if self.found is None else self.found.iteration_s

    @cached_property
    def basis(self) -> Basis:
        """What the seconds are based on, in a word, and the reason for that word. Empty without a plan."""
        return UNSAID if self.found is None else basis_of(self.found, self.budget.efficiency)

    @cached_property
    def interval_s(self) -> tuple[float, float] | None:
        """Range in seconds that holds a measured iteration with 90 % confidence; None without a plan, or if nothing
        states a spread."""
        if self.iteration_s is None:
            return None
        low_s, high_s = self.trace.interval()
        # a closed form differs from the trace: its seconds get the trace's relative spread
        scale = self.iteration_s / self.trace.iteration_s if self.trace.iteration_s > 0 else 1.0
        return (low_s * scale, high_s * scale) if math.isfinite(high_s) else None

    @cached_property
    def nics_s(self) -> float | None:
        """Seconds of the same plan if each device had one NIC (``queueing="nics"``); None without a plan."""
        if self.found is None or self.budget.queueing == "nics":
            return self.iteration_s
        return self.strategy.seconds(self.found.changed(queueing="nics"), replace(self.budget, queueing="nics"))

    @property
    def caveat(self) -> str:
        """A warning if the seconds rely on sending to many devices at once. Empty if they would be nearly the same with
        one NIC per device."""
        if self.iteration_s is None or self.nics_s is None or self.nics_s <= self.iteration_s * NOTABLY:
            return ""
        times = f"{self.nics_s / self.iteration_s:.2f} times as long"
        return (
            f"it sends to several devices at once, each over its own link: if each device had one network card, an "
            f"iteration would take {format_s(self.nics_s)}, {times}"
        )

    @property
    def flop_per_s(self) -> float | None:
        """FLOP/s of all devices together; None without a plan. Recomputed work does not count."""
        return None if self.iteration_s is None else self.job.flop / self.iteration_s

    @cached_property
    def causes(self) -> dict[str, float]:
        """Seconds of the critical path by cause, the longest first. They add up to the iteration. Empty without a
        plan."""
        if self.iteration_s is None:
            return {}
        added_s = self.strategy.averaging_s(self.plan, self.budget)
        found = causes_of(self.plan, self.trace, self.iteration_s - added_s, self.budget.efficiency)
        if added_s > 0:
            found[Cause.SYNCHRONISATION] = found.get(Cause.SYNCHRONISATION, 0.0) + added_s
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def why(self, against: Any = None, *, progress: Callable[[Any], object] | None = None) -> Any:
        """Return the ``Why`` of this system: its iteration with one thing removed at a time, each case simulated.

        ``against`` is what to compare with: another outcome, all outcomes, or your own plan. ``.towards`` of the result
        then leads from this system to the other one, choice by choice (draw it with ``lab.figures.waterfall``).
        ``progress`` is called with every explanation so far. Ctrl-C keeps it.
        """
        return load("dtfm_lab.extensions.systems.why:why_of")(self, against, progress)  # that module imports this one

    @property
    def sentence(self) -> str:
        """The seconds, the shape and the main cause; or why there is no plan."""
        if self.iteration_s is None:
            return self.reason
        most = next(iter(self.causes), "")
        return f"{format_s(self.iteration_s)} an iteration ({self.basis.word}), {self.shape}, most of it {most}"

    @property
    def shape(self) -> str:
        """How the plan cuts the model and shares the batch: ``8 stages x 8 replicas``; empty without a plan."""
        if self.found is None:
            return ""
        job = self.job
        tensor = f", {job.tensor_parallel} GPUs a layer" if (job.tensor_parallel or 1) > 1 else ""
        return f"{counted(job.n_stages, 'stage')} x {counted(job.n_replicas, 'replica')}{tensor}"

    @property
    def choices(self) -> str:
        """What the user of the system chose besides the shape: ``micro-batch 2, zero-1, averages during the last
        backward``."""
        if self.found is None:
            return ""
        job, idle = self.job, len(self.found.idle_devices)
        names = [f"micro-batch {job.microbatch}", "" if job.n_stages == 1 else f"{job.schedule_name}, {job.transport}"]
        names += [job.sharding or "", "" if job.checkpoints == "none" else f"checkpointing {job.checkpoints}"]
        names += ["averages during the last backward" if job.overlap and job.n_replicas > 1 else ""]
        names += [f"{idle} of {counted(len(self.found.topology), 'device')} idle" if idle else ""]
        return ", ".join(name for name in names if name not in ("", "none"))

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as plain values, for JSON and tables."""
        found = self.found
        job = None if found is None else found.job
        return {
            "system": self.name,
            "title": self.title,
            "iteration_s": self.iteration_s,
            "low_s": None if self.interval_s is None else self.interval_s[0],
            "high_s": None if self.interval_s is None else self.interval_s[1],
            "basis": self.basis.word,
            "because": self.basis.because,
            "nics_s": self.nics_s,
            "tokens_per_s": None if self.iteration_s is None else self.job.tokens / self.iteration_s,
            "flop_per_s": self.flop_per_s,
            "price_per_billion_tokens": getattr(found, "price_per_billion_tokens", None),
            **{name: getattr(job, name, None) for name in ("n_stages", "n_replicas", "tensor_parallel", "microbatch")},
            "schedule": getattr(job, "schedule_name", None),
            "sharding": getattr(job, "sharding", None),
            "choices": self.choices,
            "idle": None if found is None else len(found.idle_devices),
            "most": next(iter(self.causes), ""),
            "mathematics": self.strategy.mathematics,
            "caveat": self.caveat,
            "considered": self.considered,
            "reason": self.reason,
            "cite": self.strategy.cite,
        }


def predicted(strategy: Strategy, budget: Budget, plan: Plan) -> Outcome:
    """Return the outcome of a system with a given plan, which the system did not choose. It may not fit the devices'
    memory.

    Raises LabError if the system's model cannot predict the plan.
    """
    iteration_s = strategy.seconds(plan, budget)
    return Outcome(strategy=strategy, budget=budget, found=plan.changed(iteration_s=iteration_s), considered=1)


def causes_of(plan: Plan, trace: Trace, iteration_s: float, efficiency: GivenEfficiency) -> dict[str, float]:
    """Return seconds of the critical path by cause, the longest first. They add up to ``iteration_s``.

    If only some iterations synchronise, a typical iteration's path is scaled to the average iteration.
    """
    path = trace.critical_path()
    seconds = (path["end_s"] - path["start_s"]).to_numpy()
    computing = _computing_share(plan, trace, efficiency)
    found: dict[str, float] = defaultdict(float)
    rows = zip(path["what"], path["stage"], path["replica"], path["kind"], seconds, strict=True)
    for what, stage, replica, kind, part_s in rows:
        share = computing.get((stage, replica, str(kind)), 1.0) if what == COMPUTE else 1.0
        found[what] += share * part_s
        if share < 1.0:
            found[GATHERING] += (1 - share) * part_s
    whole_s = float(seconds.sum())
    # Only the shares are of this path; the total is the predicted iteration.
    scale = iteration_s / whole_s if whole_s > 0 else 0.0
    return {cause: scale * float(part_s) for cause, part_s in sorted(found.items(), key=lambda item: -item[1])}


def _computing_share(plan: Plan, trace: Trace, efficiency: GivenEfficiency) -> dict[tuple[int, int, str], float]:
    """Return the share of a pass's seconds that is computing, by (stage, replica, kind). The rest are messages inside
    the pass. Empty if passes contain no messages."""
    job = plan.job
    if not job.gathers_passes and job.group_gpus == 1:
        return {}
    n_stages = trace.context.recorded_schedule.n_stages
    # The same pass without messages inside it shows how much is computing.
    free = plan.changed(topology=with_free_hosts(plan.topology), job=job.with_fields(sharding="none"))
    alone = {(one.stage, one.replica, one.kind): one.seconds for one in pass_times(free, n_stages, efficiency)}
    return {
        (one.stage, one.replica, str(one.kind)): alone[one.stage, one.replica, one.kind] / one.seconds
        for one in trace.context.profile
        if (one.stage, one.replica, one.kind) in alone and one.seconds > 0
    }


def with_free_hosts(topology: Topology) -> Topology:
    """Return the network in which links between the GPUs of one device take no time."""
    free = (replace(device, inner_latency_s=0.0, inner_bandwidth_bytes_per_s=math.inf) for device in topology.devices)
    return replace(topology, devices=tuple(free))
