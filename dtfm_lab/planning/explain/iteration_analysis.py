"""Analysis of a plan's iteration time: its critical path, each device's time, and what memory forbids."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.trace import LINK_SEPARATOR, Trace
from dtfm_lab.domain.units import plain_rows
from dtfm_lab.simulation.memory import MemoryReport, memory
from dtfm_lab.simulation.sensitivity import ImprovedTarget, improved_s
from dtfm_lab.simulation.simulate import iteration_seconds, simulate, simulated_iterations

if TYPE_CHECKING:
    import pandas as pd

CLASSES = {"compute": "device", "synchronisation": "synchronisation"} | dict.fromkeys(
    ("latency", "bandwidth", "queue"), "link"
)
"""Cause on the critical path -> what it belongs to: ``device``, ``link`` or ``synchronisation``. Any other cause
belongs to ``device``."""
FACTOR = 2.0
"""To find what a link or device alone is worth, its bandwidth or speed is multiplied by this, its latency divided by
it."""
WORTH_SAYING = 0.01
"""A faster bottleneck is worth mentioning if it would save at least this share of the iteration."""
GAIN = 1e-3
"""Memory counts as limiting only if more memory would save at least this share of the iteration."""


class Part(NamedTuple):
    """A device, a link or a cause, and its seconds on the critical path."""

    name: str
    seconds: float
    share: float
    """Share of the iteration."""


class Forbidden(NamedTuple):
    """A faster choice that does not fit the memory of a device."""

    what: str
    iteration_s: float
    """Seconds of the iteration with this choice."""
    device: str
    """The device that lacks the most memory for it."""
    over_bytes: int
    """Bytes that this device lacks."""


@dataclass(frozen=True, eq=False)
class IterationAnalysis:
    """What limits an iteration. Every number follows from the simulated trace and from the plan's memory."""

    plan: Plan

    @cached_property
    def trace(self) -> Trace:
        """The simulated iteration with the plan's own schedule."""
        return simulate(self.plan)

    @property
    def iteration_s(self) -> float:
        """Seconds of the simulated iteration."""
        return float(self.trace.iteration_s)

    @cached_property
    def critical(self) -> pd.DataFrame:
        """Seconds on the critical path by cause, device and link: see ``Trace.critical_summary``."""
        return self.trace.critical_summary()

    def parts(self, by: str) -> list[Part]:
        """Return the parts of the critical path by "what" (its cause), "device" or "link", longest first."""
        rows = self.critical[self.critical["by"] == by]
        return [Part(*row) for row in zip(rows["name"], rows["seconds"], rows["share"], strict=True)]

    @cached_property
    def by_class(self) -> dict[str, float]:
        """Seconds on the critical path of devices, links and synchronisation, longest first."""
        seconds = dict.fromkeys(("device", "link", "synchronisation"), 0.0)
        for part in self.parts("what"):
            seconds[CLASSES.get(part.name, "device")] += part.seconds
        return dict(sorted(seconds.items(), key=lambda item: -item[1]))

    @property
    def binds(self) -> str:
        """What takes most of the critical path: ``device``, ``link`` or ``synchronisation``, the keys of
        ``by_class``."""
        return next(iter(self.by_class))

    @cached_property
    def bottleneck(self) -> Part | None:
        """The device with the most seconds on the critical path if ``binds`` is ``device``, otherwise the link with the
        most. None if there is no link on the path."""
        return next(iter(self.parts("device" if self.binds == "device" else "link")), None)

    @cached_property
    def alone_saves(self) -> float | None:
        """Share of the iteration that would be saved if the bottleneck alone were ``FACTOR`` times as fast.

        For a link, this is the sum of two savings: with more bandwidth alone, and with less latency alone. 0 if other
        devices or links are as slow. None if no device or link is the bottleneck.
        """
        part, topology = self.bottleneck, self.plan.topology
        if part is None or not self.iteration_s > 0:
            return None
        ends = (part.name,) if self.binds == "device" else ends_of(part.name, topology)
        at = [topology.index(name) for name in ends]
        if not at:
            return None
        target = ImprovedTarget("device" if len(at) == 1 else "link", part.name, [(at[0], at[-1])])
        base = simulated_iterations(self.plan)
        whats = ("compute",) if len(at) == 1 else ("bandwidth", "latency")
        return sum(1 - improved_s(base, what, target, FACTOR) / base.iteration_s for what in whats)

    @cached_property
    def memory(self) -> MemoryReport:
        """Peak memory of every device under the plan's own schedule."""
        return memory(self.plan)

    @cached_property
    def unshared_s(self) -> float | None:
        """Seconds of the iteration if no two devices shared a NIC; None if the plan's devices share no NIC."""
        if not self.trace.context.nics:
            return None
        topology = self.plan.topology
        # a device without a host has its own NIC
        alone = tuple(replace(device, host="") for device in topology.devices)
        return iteration_seconds(self.plan.changed(topology=replace(topology, devices=alone)))

    @cached_property
    def overlapped_s(self) -> float | None:
        """Seconds of the iteration if devices computed while they send; None if they do already."""
        if self.trace.context.plan.transport == "overlapped":
            return None
        job = self.plan.job.with_fields(transport="overlapped")
        return float(simulate(self.plan.changed(job=job), self.trace.context.recorded_schedule).iteration_s)

    @cached_property
    def forbidden(self) -> Forbidden | None:
        """The choice that would shorten the iteration most if memory allowed it; None if memory does not limit it.

        It tries two: keeping all activations instead of recomputing them, and one more warm-up forward on every device.
        """
        found = [tried for tried in map(self._tried, _more_memory(self.plan.job)) if tried is not None]
        return min(found, key=lambda one: one.iteration_s, default=None)

    def _tried(self, what_and_job: tuple[str, Job]) -> Forbidden | None:
        what, job = what_and_job
        try:
            plan = self.plan.changed(job=job)
            held, iteration_s = memory(plan), iteration_seconds(plan)
        except LabError:  # such as an order of passes that cannot finish
            return None
        # Only a change that would be faster and lacks memory is forbidden.
        if held.fits or iteration_s > self.iteration_s * (1 - GAIN):
            return None
        at = held.worst
        return Forbidden(what, iteration_s, held.devices[at[0]][at[1]], int(held.over_bytes[at]))

    @cached_property
    def devices(self) -> pd.DataFrame:
        """One row per device of the network, in its order: where its seconds go, and its memory.

        Columns:

        - device; stage and replica (missing if idle); busy_s
        - dependency_s, latency_s, bandwidth_s, queue_s, synchronisation_s and straggler_s: its idle seconds by cause
        - critical_s: its computing on the critical path
        - peak_bytes and limit_bytes

        An idle device has only its name.
        """
        own = self.trace.bubble.drop(columns="iteration_s").set_index("device")
        on_path = {part.name: part.seconds for part in self.parts("device")}
        own["critical_s"] = [on_path.get(name, 0.0) for name in own.index]
        held = self.memory.to_frame().set_index("device")[["peak_bytes", "limit_bytes"]]
        table = own.join(held).reindex(self.plan.topology.names)
        table.index.name = "device"
        whole = {"stage": "Int64", "replica": "Int64", "peak_bytes": "Int64", "limit_bytes": "Int64"}
        return table.reset_index().astype(whole)

    @property
    def busy_share(self) -> float:
        """Share of time that the devices in use spend computing."""
        bubble = self.trace.bubble
        total_s = float(bubble["iteration_s"].sum())
        return float(bubble["busy_s"].sum()) / total_s if total_s > 0 else 0.0

    def summary(self) -> dict[str, Any]:
        """Return the analysis in plain types, in seconds and bytes."""
        forbidden = self.forbidden
        return {
            "iteration_s": self.iteration_s,
            "iteration_lower_bound_s": self.plan.iteration_lower_bound_s,
            "binds": self.binds,
            "by_class_s": self.by_class,
            "critical": plain_rows(self.critical),
            "busy_share": self.busy_share,
            "memory_forbids": None if forbidden is None else forbidden._asdict(),
            "devices": plain_rows(self.devices),
        }


def ends_of(name: str, topology: Topology) -> tuple[str, ...]:
    """Return the source and target device of a link's name, ``"a -> b"``. Empty if the network has no two devices of
    these names."""
    names = set(topology.names)
    return next((ends for ends in splits(name, LINK_SEPARATOR) if names.issuperset(ends)), ())


def splits(name: str, separator: str) -> list[tuple[str, str]]:
    """Return every way to split a link's name at a separator. There may be several, because device names may contain
    it."""
    parts = name.split(separator)
    return [(separator.join(parts[:at]), separator.join(parts[at:])) for at in range(1, len(parts))]


def analysed(plan: Plan) -> IterationAnalysis:
    """Return the analysis of a plan's iteration. Raises PlanError for a job without a model."""
    if plan.job.model is None:
        raise PlanError(f"job {plan.job.name} has no model to simulate; wanted one, or the communication cost alone")
    return IterationAnalysis(plan)


def _more_memory(job: Job) -> list[tuple[str, Job]]:
    """Return variants of the job that need more memory, each as (description of the change, job)."""
    tried = []
    if job.checkpoints != "none":
        kept = job.with_fields(recompute=False, checkpointing="none", warmups=job.warmups)
        tried.append(("without recomputing activations", kept))
    if job.warmups is not None:
        # One more than now, but not more than there are micro-batches.
        most = job.n_microbatches
        ahead = tuple(min(depth + 1, most) for depth in np.array(job.warmups).tolist())
        if ahead != job.warmups:
            tried.append(("with one more warm-up forward on every device", job.with_fields(warmups=ahead)))
    return tried
