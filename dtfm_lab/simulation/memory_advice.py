"""What would fit: the changes to a job that take less memory, each alone, and then together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.units import IntArray, format_bytes
from dtfm_lab.simulation.activation_budget import limits
from dtfm_lab.simulation.engine import programs_in
from dtfm_lab.simulation.memory import MemoryReport, memory, needs, scheduled
from dtfm_lab.simulation.memory_intervals import activations, static
from dtfm_lab.simulation.schedules import peak_activations, schedules

LEAST = "1f1b"
"""of the schedules that keep all devices busy on free links, the one that holds least"""


@dataclass(frozen=True)
class Remedy:
    """A job that trains the same with less memory, and what it would need."""

    how: tuple[str, ...]
    """its changes, in words"""
    job: Job
    schedule: str | Schedule
    device: str
    """the one that lacks most now if all fit, else the one that then does; empty where the shape changes, which asks
    for another placement"""
    peak_bytes: int
    """of that device; where the shape changes, of the fullest, or of the one that lacks most"""
    over_bytes: int
    """what the worst device lacks; 0 where all fit. Where the shape changes, if the fullest stages go to the largest
    devices"""

    @property
    def fits(self) -> bool:
        return self.over_bytes == 0


def advice(plan: Plan, schedule: str | Schedule | None = None) -> str:
    """One line: who lacks memory, how much, and what would fit; empty where all devices have enough.

    From the order of passes alone, before anything runs; raises what ``memory`` raises.
    """
    report = memory(plan, schedule)
    if report.fits:
        return ""
    tried = remedies(plan, schedule)
    if tried and tried[0].fits:
        return f"{report.sentence}; {', '.join(_claim(remedy, report) for remedy in tried)}"
    if not tried:
        return f"{report.sentence}; no other schedule or shape of this job needs less"
    return f"{report.sentence}; nothing fits: {_claim(min(tried, key=lambda remedy: remedy.over_bytes), report)}"


def remedies(plan: Plan, schedule: str | Schedule | None = None) -> tuple[Remedy, ...]:
    """The fewest changes that fit, each way to do so; all that were tried where nothing fits.

    Changes are recomputation, smaller micro-batches, 1F1B, and more stages with fewer replicas each, alone and
    then together; those whose parameters alone do not fit are passed over, but for the last, of all changes
    together. None where all devices have enough as it is.
    """
    report = memory(plan, schedule)
    if report.fits:
        return ()
    looking = _Looking(plan, plan.job.schedule if schedule is None else schedule, report.worst)
    options = looking.options()
    tried: list[Remedy] = []
    for n_changes in range(1, len(options) + 1):
        for chosen in combinations(options, n_changes):
            tried += looking.with_changes(set(chosen), whatever_it_takes=n_changes == len(options))
        if fitting := tuple(remedy for remedy in tried if remedy.fits):
            return fitting
    return tuple(tried)


@dataclass(frozen=True)
class _Looking:
    plan: Plan
    schedule: str | Schedule
    worst: tuple[int, int]
    """(position, replica) of the device that lacks most"""

    def options(self) -> list[str]:
        job, name = self.plan.job, self.schedule.name if isinstance(self.schedule, Schedule) else self.schedule
        known = name in schedules  # any other is for one number of stages and micro-batches only
        possible = {
            "recompute": not job.recompute,
            "microbatch": known and job.microbatch > 1,
            "schedule": name != LEAST and job.n_stages > 1,
            "shape": known and bool(self._deeper()),
        }
        return [change for change, is_possible in possible.items() if is_possible]

    def with_changes(self, changes: set[str], *, whatever_it_takes: bool) -> Iterator[Remedy]:
        """The mildest of these changes that fit, or the ones that go furthest."""
        job = self.plan.job
        shapes = self._deeper() if "shape" in changes else [(job.n_stages, job.n_replicas)]
        shapes = [shape for shape in shapes if self._parameters_fit(*shape)] or shapes[-1:] * whatever_it_takes
        divisors = [n for n in range(job.microbatch - 1, 0, -1) if job.microbatch % n == 0]
        sizes = divisors if "microbatch" in changes else [job.microbatch]
        found = None
        for n_stages, n_replicas in shapes:
            fields = {
                "n_stages": n_stages,
                "n_replicas": n_replicas,
                "recompute": job.recompute or "recompute" in changes,
            }
            found = self._remedy(changes, fields | {"microbatch": sizes[-1]}) or found
            if found is not None and found.fits:
                milder = (self._remedy(changes, fields | {"microbatch": n}) for n in sizes[:-1])
                found = next((remedy for remedy in milder if remedy is not None and remedy.fits), found)
                break
        if found is not None:
            yield found

    def _deeper(self) -> list[tuple[int, int]]:
        job = self.plan.job
        return [shape for shape in job.shapes(job.n_tasklets) if shape[0] > job.n_stages]

    def _parameters_fit(self, n_stages: int, n_replicas: int) -> bool:
        job = self.plan.job.with_fields(n_stages=n_stages, n_replicas=n_replicas)
        return self._placed_anew(np.repeat(static(job, n_stages).total, n_replicas))[1] == 0

    def _remedy(self, changes: set[str], fields: dict[str, Any]) -> Remedy | None:
        """None where the job, or its schedule, cannot be so."""
        schedule = self.schedule
        if isinstance(schedule, Schedule) and changes & {"microbatch", "shape"}:
            schedule = schedule.name
        schedule = LEAST if "schedule" in changes else schedule
        try:
            job = self.plan.job.with_fields(**fields)
            device, peak_bytes, over_bytes = (self._reshaped if "shape" in changes else self._in_place)(job, schedule)
        except LabError:
            return None
        words = {
            "recompute": "recomputation",
            "microbatch": f"micro-batches of {job.microbatch}",
            "schedule": LEAST,
            "shape": f"{job.n_stages} stages x {job.n_replicas} replica{'s' if job.n_replicas > 1 else ''}",
        }
        how = tuple(text for change, text in words.items() if change in changes)
        return Remedy(how, job, schedule, device, peak_bytes, over_bytes)

    def _in_place(self, job: Job, schedule: str | Schedule) -> tuple[str, int, int]:
        """Who is told of, what it needs, and what the worst device lacks."""
        report = memory(replace(self.plan, job=job), schedule)
        at = self.worst if report.fits else report.worst
        return report.devices[at[0]][at[1]], int(report.peak_bytes[at]), int(report.over_bytes.max())

    def _reshaped(self, job: Job, schedule: str | Schedule) -> tuple[str, int, int]:
        """The same, for any placement; where activations alone are too much, messages are left out."""
        built = scheduled(job, schedule)
        need_bytes, over_bytes = self._placed_anew(_without_messages(job, built))
        if over_bytes > 0:
            return "", need_bytes, over_bytes
        regions = (("",) * job.n_replicas,) * job.n_stages  # they follow from a placement; without one, none
        return "", *self._placed_anew(needs(job, programs_in(job, built, regions)))

    def _placed_anew(self, needs_bytes: IntArray) -> tuple[int, int]:
        """With the fullest stages on the largest devices: what the fullest needs and 0, or what the one that lacks most
        needs and lacks."""
        need = np.sort(needs_bytes, axis=None)
        lacks = need - np.sort(limits(self.plan), axis=None)
        worst = int(np.argmax(lacks)) if lacks.max() > 0 else -1
        return int(need[worst]), max(int(lacks[worst]), 0)


def _without_messages(job: Job, schedule: Schedule) -> IntArray:
    """(positions, replicas) bytes that a schedule needs at the least, known before its messages are."""
    of = activations(job, schedule.n_stages)
    kept, remade = (each.reshape(-1, job.n_stages).min(axis=0) for each in of)
    moving = np.maximum(np.array(peak_activations(schedule)) * kept, kept + remade)
    return np.repeat((static(job, schedule.n_stages).total + moving)[:, None], job.n_replicas, axis=1)


def _claim(remedy: Remedy, report: MemoryReport) -> str:
    at = report.worst
    who = remedy.device or ("the fullest device" if remedy.fits else "a device")
    who = "it" if remedy.device == report.devices[at[0]][at[1]] else who
    *others, last = remedy.how
    how = f"{', '.join(others)} and {last}" if others else last
    if remedy.fits:
        return f"with {how} {who} would need {format_bytes(remedy.peak_bytes)}"
    return (
        f"with {how} {who} would need {format_bytes(remedy.peak_bytes)} or more, {format_bytes(remedy.over_bytes)} over"
    )
