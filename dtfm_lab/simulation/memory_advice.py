"""Changes to a job that need less memory, each alone and then together, until one fits."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.domain.units import IntArray, format_bytes
from dtfm_lab.simulation.engine import programs_in
from dtfm_lab.simulation.memory import MemoryReport, least_memory_schedule, least_peak_bytes, memory
from dtfm_lab.simulation.memory_intervals import activation_memory, memory_limits, static_memory
from dtfm_lab.simulation.schedules import peak_activations, schedules

LEAST_MEMORY = "1f1b"
"""Of the schedules that keep all devices busy on free links, the one that holds least."""
AGAIN: tuple[dict[str, Any], ...] = (
    {"recompute": True, "checkpointing": "none"},
    {"recompute": False, "checkpointing": "block"},
)
"""Ways to compute activations again; the second, which holds a block at a time, where the first does not fit."""


@dataclass(frozen=True)
class Remedy:
    """A job that trains the same with less memory, and what it would need."""

    how: tuple[str, ...]
    """Its changes, in words."""
    job: Job
    schedule: str | Schedule
    device: str
    """The device to report: the one that lacks most now if then all fit, else the one that then lacks most. Empty where
    the shape changes, which takes another placement."""
    peak_bytes: int
    """Peak of that device; where the shape changes, of the fullest device, or of the one that lacks most."""
    over_bytes: int
    """What the worst device lacks; 0 where all fit. Where the shape changes, with the fullest stages on the largest
    devices."""

    @property
    def fits(self) -> bool:
        return self.over_bytes == 0


def advice(plan: Plan, schedule: str | Schedule | None = None) -> str:
    """One line: which device lacks memory, how much, and what would fit; empty where all devices have enough.

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
    """The ways to fit with the fewest changes; where nothing fits, all that were tried.

    Changes are recomputation, smaller micro-batches, 1F1B, and more stages with fewer replicas each, alone and
    then together. Shapes whose parameters alone do not fit are skipped, except in the last try, of all changes
    together. Empty where all devices have enough already.
    """
    report = memory(plan, schedule)
    if report.fits:
        return ()
    search = _RemedySearch(plan, plan.job.schedule_name if schedule is None else schedule, report.worst)
    options = search.options()
    tried: list[Remedy] = []
    for n_changes in range(1, len(options) + 1):
        for chosen in combinations(options, n_changes):
            tried += search.with_changes(set(chosen), even_if_unfit=n_changes == len(options))
        if fitting := tuple(remedy for remedy in tried if remedy.fits):
            return fitting
    return tuple(tried)


@dataclass(frozen=True)
class _RemedySearch:
    """Tries changes to one plan's job."""

    plan: Plan
    schedule: str | Schedule
    worst: tuple[int, int]
    """(position, replica) of the device that lacks most."""

    def options(self) -> list[str]:
        """The changes that this job allows."""
        job, name = self.plan.job, self.schedule.name if isinstance(self.schedule, Schedule) else self.schedule
        known = name in schedules  # any other is for one number of stages and micro-batches only
        possible = {
            "recompute": job.checkpoints != "stage",
            "microbatch": known and job.microbatch > 1,
            "schedule": name != LEAST_MEMORY and job.n_stages > 1,
            "shape": known and bool(self._deeper()),
        }
        return [change for change, is_possible in possible.items() if is_possible]

    def with_changes(self, changes: set[str], *, even_if_unfit: bool) -> Iterator[Remedy]:
        """These changes in the mildest form that fits, or in the form that saves most."""
        job = self.plan.job
        shapes = self._deeper() if "shape" in changes else [(job.n_stages, job.n_replicas)]
        shapes = [shape for shape in shapes if self._parameters_fit(*shape)] or shapes[-1:] * even_if_unfit
        divisors = [n for n in range(job.microbatch - 1, 0, -1) if job.microbatch % n == 0]
        sizes = divisors if "microbatch" in changes else [job.microbatch]
        again = AGAIN if "recompute" in changes else ({},)
        for how in again:
            found = None
            for n_stages, n_replicas in shapes:
                fields = {"n_stages": n_stages, "n_replicas": n_replicas} | how
                found = self._remedy(changes, fields | {"microbatch": sizes[-1]}) or found
                if found is not None and found.fits:
                    milder = (self._remedy(changes, fields | {"microbatch": n}) for n in sizes[:-1])
                    found = next((remedy for remedy in milder if remedy is not None and remedy.fits), found)
                    break
            if found is not None:
                yield found
                if found.fits:
                    return

    def _deeper(self) -> list[tuple[int, int]]:
        """(stages, replicas) with more stages on the same number of devices."""
        job = self.plan.job
        return [shape for shape in job.shapes(job.n_tasklets) if shape[0] > job.n_stages]

    def _parameters_fit(self, n_stages: int, n_replicas: int) -> bool:
        job = self.plan.job.with_fields(n_stages=n_stages, n_replicas=n_replicas)
        return self._placed_anew(np.repeat(static_memory(job, n_stages).total, n_replicas))[1] == 0

    def _remedy(self, changes: set[str], fields: dict[str, Any]) -> Remedy | None:
        """The job with these fields; None where the job or its schedule does not allow them."""
        schedule = self.schedule
        if isinstance(schedule, Schedule) and changes & {"microbatch", "shape"}:
            schedule = schedule.name
        schedule = LEAST_MEMORY if "schedule" in changes else schedule
        try:
            job = self.plan.job.with_fields(**fields)
            device, peak_bytes, over_bytes = (self._reshaped if "shape" in changes else self._in_place)(job, schedule)
        except LabError:
            return None
        words = {
            "recompute": "checkpointing block" if job.checkpoints == "block" else "recomputation",
            "microbatch": f"micro-batches of {job.microbatch}",
            "schedule": LEAST_MEMORY,
            "shape": f"{job.n_stages} stages x {job.n_replicas} replica{'s' if job.n_replicas > 1 else ''}",
        }
        how = tuple(text for change, text in words.items() if change in changes)
        return Remedy(how, job, schedule, device, peak_bytes, over_bytes)

    def _in_place(self, job: Job, schedule: str | Schedule) -> tuple[str, int, int]:
        """The device to report, what it needs, and what the worst device lacks."""
        report = memory(self.plan.changed(job=job), schedule)
        at = self.worst if report.fits else report.worst
        return report.devices[at[0]][at[1]], int(report.peak_bytes[at]), int(report.over_bytes.max())

    def _reshaped(self, job: Job, schedule: str | Schedule) -> tuple[str, int, int]:
        """The same for the best placement; where activations alone are too much, messages are left out."""
        built = least_memory_schedule(job, schedule)
        need_bytes, over_bytes = self._placed_anew(_without_messages(job, built))
        if over_bytes > 0:
            return "", need_bytes, over_bytes
        regions = (("",) * job.n_replicas,) * job.n_stages  # they follow from a placement; without one, none
        return "", *self._placed_anew(least_peak_bytes(job, programs_in(job, built, regions)))

    def _placed_anew(self, needs_bytes: IntArray) -> tuple[int, int]:
        """With the fullest stages on the largest devices: (need, 0) of the fullest device, or (need, lack) of the one
        that lacks most."""
        need = np.sort(needs_bytes, axis=None)
        lacks = need - np.sort(memory_limits(self.plan), axis=None)
        worst = int(np.argmax(lacks)) if lacks.max() > 0 else -1
        return int(need[worst]), max(int(lacks[worst]), 0)


def _without_messages(job: Job, schedule: Schedule) -> IntArray:
    """(positions, replicas) bytes that a schedule needs at least, found without laying out its messages."""
    of = activation_memory(job, schedule.n_stages, splits=schedule.splits_backwards)
    kept, recomputed = (each.reshape(-1, job.n_stages).min(axis=0) for each in of)
    held = {count: np.array(peak_activations(schedule.restricted(count))) for count in set(job.microbatch_counts)}
    moving = np.array([np.maximum(held[count] * kept, kept + recomputed) for count in job.microbatch_counts]).T
    needs: IntArray = static_memory(job, schedule.n_stages).total[:, None] + moving
    return needs


def _claim(remedy: Remedy, report: MemoryReport) -> str:
    at = report.worst
    device = remedy.device or ("the fullest device" if remedy.fits else "a device")
    device = "it" if remedy.device == report.devices[at[0]][at[1]] else device
    *others, last = remedy.how
    how = f"{', '.join(others)} and {last}" if others else last
    if remedy.fits:
        return f"with {how} {device} would need {format_bytes(remedy.peak_bytes)}"
    need, over = format_bytes(remedy.peak_bytes), format_bytes(remedy.over_bytes)
    return f"with {how} {device} would need {need} or more, {over} over"
