"""Other settings on the same placement, and what one iteration then comes to. No widget in here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from dtfm_lab import lab
from dtfm_lab.domain.checks import MOST
from dtfm_lab.domain.job import COMPRESSIONS, Job
from dtfm_lab.domain.network import QUEUEING
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import synchronisations
from dtfm_lab.planning import price_placement
from dtfm_lab.simulation import memory, schedules
from dtfm_lab.widgets.schedule.predictions import idle

OF_THE_JOB = (
    "microbatch", "global_batch", "compression", "synchronisation", "synchronise_every", "recompute",
)  # fmt: skip
FACTORS = ("bandwidth", "latency")
LEAST_FACTOR, MOST_FACTOR = 0.1, 10.0
FACTOR_DIGITS = 3
"""of a factor that counts: what a slider shows is what is computed"""
MOST_ACTIONS = 2_000_000
"""of an iteration that is offered; so many take some ten seconds"""
PASSES_AND_MESSAGES = 6
"""actions of a micro-batch on a device: forward and backward, each received and sent"""
EVERY = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a person may turn without another placement. Raises nothing: whether it can be, ``on`` finds out."""

    bandwidth: float = 1.0
    """factor on that of all links"""
    latency: float = 1.0
    """factor on that of all links"""
    microbatch: int
    """sequences"""
    global_batch: int
    """sequences"""
    compression: str
    synchronisation: str
    synchronise_every: int
    """iterations"""
    recompute: bool
    schedule: str
    queueing: str = "pairs"

    @classmethod
    def of(cls, plan: Plan, schedule: str, queueing: str) -> Setting:
        """What a plan's job says."""
        return cls(schedule=schedule, queueing=queueing, **{what: getattr(plan.job, what) for what in OF_THE_JOB})

    @property
    def of_the_job(self) -> dict[str, Any]:
        return {what: getattr(self, what) for what in OF_THE_JOB}

    def on(self, plan: Plan) -> Plan:
        """The placement with this job on this network; its cost stays that of the plan. Raises a LabError where the
        job does not allow it."""
        job = replace(plan.job, **self.of_the_job)
        job.modelled()
        topology = plan.topology
        if (self.latency, self.bandwidth) != (1.0, 1.0):
            topology = topology.scaled(latency=self.latency, bandwidth=self.bandwidth)
        return replace(plan, job=job, topology=topology)

    def beside(self, base: Setting) -> dict[str, Any]:
        """The fields that differ from another setting's."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != getattr(base, f.name)}

    def said(self, base: Setting) -> str:
        """The differences in words, ``bandwidth × 2, 1f1b``; empty where there are none."""
        return ", ".join(_SAID[what](value) for what, value in self.beside(base).items())

    def to_mapping(self) -> dict[str, Any]:
        return asdict(self)


_SAID: dict[str, Callable[[Any], str]] = {
    "bandwidth": lambda value: f"bandwidth × {value:g}",
    "latency": lambda value: f"latency × {value:g}",
    "microbatch": lambda value: f"micro-batch {value:,}",
    "global_batch": lambda value: f"batch {value:,}",
    "compression": lambda value: "uncompressed" if value == "none" else str(value),
    "synchronisation": str,
    "synchronise_every": lambda value: "averaging each" if value == 1 else f"averaging every {value:,}",
    "recompute": lambda value: "recomputing" if value else "keeping activations",
    "schedule": str,
    "queueing": lambda value: "one card a device" if value == "cards" else "one link a pair",
}


def with_known(setting: Setting, given: Mapping[str, Any]) -> Setting:
    """The setting with those of the given fields that are of their kind; anything else is left out."""
    known: dict[str, Any] = {}
    for what, value in given.items():
        choices = _CHOICES.get(what)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if what in FACTORS:
            if number and LEAST_FACTOR <= value <= MOST_FACTOR:
                known[what] = rounded(value)
        elif choices is not None:
            if isinstance(value, str) and value in choices:
                known[what] = value
        elif what == "recompute":
            if isinstance(value, bool):
                known[what] = value
        elif what in OF_THE_JOB and isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST:
            known[what] = value
    return replace(setting, **known)


_CHOICES = {
    "compression": COMPRESSIONS,
    "synchronisation": tuple(synchronisations),
    "schedule": tuple(schedules),
    "queueing": QUEUEING,
}


def rounded(factor: float) -> float:
    """As many digits as a slider shows."""
    return float(f"{factor:.{FACTOR_DIGITS}g}")


def microbatches_of(job: Job, global_batch: int, also: int) -> list[int]:
    """Sequences of a micro-batch that this batch allows and ``also``, the fewest first."""
    a_replica, over = divmod(global_batch, job.n_replicas)
    most = _most_microbatches(job)
    fitting = [] if over else [n for n in _divisors(a_replica) if a_replica // n <= most]
    return sorted({*fitting, also})


def batches_of(job: Job, microbatch: int, base: int, also: int) -> list[int]:
    """Sequences of a batch that this micro-batch allows: halves and doubles of the base, and whole ladders of two."""
    at_once = job.n_replicas * microbatch
    most = _most_microbatches(job)
    steps = {2**power for power in range(9)}
    of_base, over = divmod(base, at_once)
    if not over:
        steps |= {of_base * 2**power for power in range(5)}
        steps |= {of_base // 2**power for power in range(20) if of_base % 2**power == 0}
    highest = max(of_base, 1) * 16
    return sorted({at_once * n for n in steps if n <= min(most, highest)} | {also})


def everies_of(also: int) -> list[int]:
    return sorted({*EVERY, also})


def _divisors(n: int) -> set[int]:
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return {*small, *(n // d for d in small)}


def n_actions(plan: Plan) -> int:
    """Of one iteration, about."""
    job = plan.job
    averaging = 4 * job.n_replicas
    return job.n_tasklets * (PASSES_AND_MESSAGES * job.n_microbatches + averaging) * min(job.synchronise_every, 2)


def _most_microbatches(job: Job) -> int:
    return max(MOST_ACTIONS // (PASSES_AND_MESSAGES * job.n_tasklets), job.n_microbatches)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one iteration comes to. None where a number is unknown, such as a price."""

    setting: Setting
    iteration_s: float
    tokens_per_s: float | None
    mfu: float | None
    bubble: float
    """share of device time without computing"""
    cause: str
    """of the bubble, the largest"""
    communication_s: float
    """the paper's cost of the placement"""
    peak_bytes: float
    """of the device that lacks most, or has least to spare"""
    limit_bytes: float
    worst: str
    """its name"""
    n_over: int
    """devices that do not fit"""
    price_per_million_tokens: float | None
    price_per_iteration: float | None
    n_microbatches: int

    @property
    def fits(self) -> bool:
        return self.n_over == 0

    @property
    def price_per_thousand(self) -> float | None:
        """Of a thousand iterations."""
        return None if self.price_per_iteration is None else 1000 * self.price_per_iteration

    @classmethod
    def of(cls, plan: Plan, setting: Setting) -> Answer:
        """``lab.simulate`` under this setting, and what is read off its trace. Raises a LabError where it cannot be."""
        tried = setting.on(plan)
        trace = lab.simulate(tried, setting.schedule, queueing=setting.queueing)
        known, held = trace.metrics, memory(tried, trace=trace)
        bubble, cause, _ = idle(trace)
        position, replica = held.worst
        return cls(
            setting=setting,
            iteration_s=trace.iteration_s,
            tokens_per_s=known["tokens_per_s"],
            mfu=known["mfu"],
            bubble=bubble,
            cause=cause,
            communication_s=price_placement(tried.topology, tried.job, tried.placement.devices).total_s,
            peak_bytes=float(held.peak_bytes[position, replica]),
            limit_bytes=float(held.limit_bytes[position, replica]),
            worst=held.devices[position][replica],
            n_over=int((held.over_bytes > 0).sum()),
            price_per_million_tokens=known["price_per_million_tokens"],
            price_per_iteration=known["price_per_iteration"],
            n_microbatches=tried.job.n_microbatches,
        )


def iteration_s(plan: Plan, setting: Setting) -> float:
    """``lab.simulate`` alone. Raises a LabError where it cannot be."""
    return lab.simulate(setting.on(plan), setting.schedule, queueing=setting.queueing).iteration_s
