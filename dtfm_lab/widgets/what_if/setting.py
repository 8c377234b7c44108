"""What may be changed about a plan while its placement stays. It contains no widget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import QUEUEING
from dtfm_lab.domain.options import Option, options_of
from dtfm_lab.domain.plan import Plan
from dtfm_lab.simulation import schedules
from dtfm_lab.simulation.variations import Variation
from dtfm_lab.widgets.controls import CHOICES, tried_options

BATCH_OPTIONS = ("microbatch", "global_batch")
FACTORS = ("bandwidth", "latency")
LEAST_FACTOR, MOST_FACTOR = 0.1, 10.0
FACTOR_DIGITS = 3
"""Significant digits of a factor, so that what a slider shows is what is computed."""
OWN_OPTIONS = (
    Option(name="bandwidth", help="Factor on all bandwidths.", type=float, least=LEAST_FACTOR, most=MOST_FACTOR),
    Option(name="latency", help="Factor on all latencies.", type=float, least=LEAST_FACTOR, most=MOST_FACTOR),
    Option(name="schedule", help="Pipeline schedule.", choices=schedules),
    Option(name="queueing", help="Which messages wait for each other.", choices=QUEUEING),
)
"""What a setting holds beside the options of a job."""
MOST_ACTIONS = 2_000_000
"""Actions of the longest iteration that is offered; simulating so many takes some ten seconds."""
PASSES_AND_MESSAGES = 6
"""Actions of a micro-batch on a device: forward and backward, each received and sent."""
EVERY = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Iterations between two averagings that are offered."""


def job_options() -> dict[str, Option]:
    """Return the job options that a setting holds, by name: the two batch sizes, and all that is tried on a plan."""
    batches = [option for option in options_of(Job) if option.name in BATCH_OPTIONS]
    return {option.name: option for option in (*batches, *tried_options())}


@dataclass(frozen=True, kw_only=True)
class WhatIfSetting:
    """A network scaled by two factors, job options, a schedule and how messages queue.

    Values are not checked when one is made; ``on`` raises where a plan does not allow them.
    """

    bandwidth: float = 1.0
    """Factor on the bandwidth of all links."""
    latency: float = 1.0
    """Factor on the latency of all links."""
    job: tuple[tuple[str, Any], ...]
    """(name, value) of each of ``job_options``."""
    schedule: str
    queueing: str = "pairs"

    @classmethod
    def of(cls, plan: Plan, schedule: str, queueing: str) -> WhatIfSetting:
        job = tuple((name, getattr(plan.job, name)) for name in job_options())
        return cls(schedule=schedule, queueing=queueing, job=job)

    @property
    def job_changes(self) -> dict[str, Any]:
        return dict(self.job)

    @property
    def values(self) -> dict[str, Any]:
        """All values by name, plain, as a workspace keeps them."""
        factors = {name: getattr(self, name) for name in FACTORS}
        return {**factors, **self.job_changes, "schedule": self.schedule, "queueing": self.queueing}

    def with_values(self, **values: Any) -> WhatIfSetting:
        """Return the setting with some of its ``values`` replaced."""
        job = tuple((name, values.pop(name, value)) for name, value in self.job)
        return replace(self, job=job, **values)

    def on(self, plan: Plan) -> Plan:
        """Return the plan's placement with this job on the scaled network; its cost stays the old plan's.

        Raises a LabError where the job does not allow it.
        """
        changed = Variation(self.values).on(plan)
        changed.job.modelled()
        return changed

    def changes_from(self, base: WhatIfSetting) -> dict[str, Any]:
        """Return the values that differ from another setting's."""
        before = base.values
        return {name: value for name, value in self.values.items() if value != before[name]}

    def describe_changes(self, base: WhatIfSetting) -> str:
        """Return the differences in words, ``bandwidth × 2, 1f1b``; empty where there are none."""
        return ", ".join(_describe(name, value) for name, value in self.changes_from(base).items())


def _describe(name: str, value: Any) -> str:
    match name:
        case "bandwidth" | "latency":
            return f"{name} × {value:g}"
        case "microbatch":
            return f"micro-batch {value:,}"
        case "global_batch":
            return f"batch {value:,}"
        case "compression":
            return "uncompressed" if value == "none" else str(value)
        case "synchronise_every":
            return "averaging at every iteration" if value == 1 else f"averaging every {value:,} iterations"
        case "recompute":
            return "recomputing" if value else "keeping activations"
        case "queueing":
            return f"messages queue {CHOICES['queueing'].get(value, value)}"
        case "synchronisation":
            return f"{value} averaging"
        case "schedule":
            return str(value)
    return f"{name.replace('_', ' ')} {value}"


def with_valid(setting: WhatIfSetting, values: Mapping[str, Any]) -> WhatIfSetting:
    """Return the setting with those of the saved values that are possible; the others are left out."""
    return setting.with_values(
        **{name: value for name in setting.values if (value := _valid(name, values)) is not None}
    )


def _valid(name: str, values: Mapping[str, Any]) -> Any:
    """Return the value where it is one that the option may have, else None."""
    of_the_setting = job_options() | {option.name: option for option in OWN_OPTIONS}
    try:
        value = of_the_setting[name].checked(values.get(name))
    except LabError:
        return None
    return rounded(value) if name in FACTORS else value


def rounded(factor: float) -> float:
    """Return the factor with as many digits as a slider shows."""
    return float(f"{factor:.{FACTOR_DIGITS}g}")


def microbatches_of(job: Job, global_batch: int, also: int) -> list[int]:
    """Return the micro-batches, in sequences, that this batch allows, and ``also``, in ascending order."""
    a_replica, over = divmod(global_batch, job.n_replicas)
    most = _most_microbatches(job)
    shared = _divisors(global_batch if over else a_replica)  # where replicas differ, each has one at least
    return sorted({*(n for n in shared if n <= a_replica and math.ceil(a_replica / n) <= most), also})


def batches_of(job: Job, microbatch: int, base: int, also: int) -> list[int]:
    """Return batches, in sequences, that this micro-batch allows, in ascending order, and ``also``.

    They are halves and doubles of the base, and powers of two times the smallest batch.
    """
    at_once = job.n_replicas * microbatch
    most = _most_microbatches(job)
    counts = {2**power for power in range(9)}
    of_base, over = divmod(base, at_once)
    if not over:
        counts |= {of_base * 2**power for power in range(5)}
        counts |= {of_base // 2**power for power in range(20) if of_base % 2**power == 0}
    highest = max(of_base, 1) * 16
    return sorted({at_once * n for n in counts if n <= min(most, highest)} | {also})


def _divisors(n: int) -> set[int]:
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return {*small, *(n // d for d in small)}


def n_actions(plan: Plan) -> int:
    """Return about how many actions one iteration has."""
    job = plan.job
    averaging, n_passed = 4 * job.n_replicas * job.n_tasklets, job.n_stages * sum(job.microbatch_counts)
    return (PASSES_AND_MESSAGES * n_passed + averaging) * min(job.synchronise_every, 2)


def _most_microbatches(job: Job) -> int:
    return max(MOST_ACTIONS // (PASSES_AND_MESSAGES * job.n_tasklets), job.n_microbatches)
