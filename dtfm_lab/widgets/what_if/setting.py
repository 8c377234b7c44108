"""Settings that can change while a plan's placement stays. It contains no widget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.options import Option, options_of
from dtfm_lab.domain.plan import Plan
from dtfm_lab.planning.iteration.problem import divisors
from dtfm_lab.simulation import schedules
from dtfm_lab.simulation.variations import Variation
from dtfm_lab.widgets.controls import QUEUEING_OPTION, choice_words, tried_options
from dtfm_lab.widgets.what_if.worth import joined

BATCH_OPTIONS = ("microbatch", "global_batch")
FACTORS = ("bandwidth", "latency")
LEAST_FACTOR = 0.1
"""Minimum factor on the bandwidth or latency of links."""
MOST_FACTOR = 10.0
"""Maximum factor on the bandwidth or latency of links."""
FACTOR_DIGITS = 3
"""Significant digits of a factor, so that the computed factor is exactly the one that the slider shows."""
SNAP = 3e-3
"""Relative error below which one of these digits is dropped."""
MOST_ACTIONS = 2_000_000
"""Maximum actions per iteration of the batches and micro-batches that are offered. Simulating this many takes about ten
seconds."""
PASSES_AND_MESSAGES = 6
"""Actions of a micro-batch on a device: forward and backward, each with a receive and a send."""
EVERY = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Offered numbers of iterations between two averagings."""
WORDS = {
    "bandwidth": "bandwidth × {:g}",
    "latency": "latency × {:g}",
    "microbatch": "micro-batch {:,}",
    "global_batch": "batch {:,}",
    "compression": "{}",
    "synchronise_every": "averaging every {:,} iterations",
    "synchronisation": "{} averaging",
    "schedule": "{}",
}
"""Text of a value, by option, if it differs from the plan's. Other options read as their name and value."""
SPECIAL_WORDS = {
    ("compression", "none"): "uncompressed",
    ("synchronise_every", 1): "averaging at every iteration",
    ("recompute", True): "recomputing",
    ("recompute", False): "keeping activations",
}


def job_options() -> dict[str, Option]:
    """Return the job options of a setting, by name: the two batch sizes, and all that can be tried on a plan."""
    batches = [option for option in options_of(Job) if option.name in BATCH_OPTIONS]
    return {option.name: option for option in (*batches, *tried_options())}


def setting_options() -> dict[str, Option]:
    """Return all options of a setting, by name: factors on links, job options, a schedule, and how messages queue."""
    known: dict[str, Any] = {"type": float, "least": LEAST_FACTOR, "most": MOST_FACTOR, "default": 1.0}
    factors = {
        name: Option(name=name, help=f"Multiplies the {name} of all links of the plan's network.", **known)
        for name in FACTORS
    }
    order = "The order in which devices process micro-batches"
    schedule = Option(name="schedule", help=order, choices=schedules, default=next(iter(schedules)))
    return factors | job_options() | {"schedule": schedule, "queueing": QUEUEING_OPTION}


@dataclass(frozen=True)
class WhatIfSetting:
    """A value for each option in ``setting_options``.

    The values are not checked at creation. ``on`` raises if a plan does not allow them.
    """

    items: tuple[tuple[str, Any], ...]
    link: tuple[str, ...] = ()
    """Two devices. The factors apply to the link between them or, if they are in two regions, to all links between the
    regions. Empty for every link."""

    @classmethod
    def of(cls, plan: Plan, schedule: str, queueing: str) -> WhatIfSetting:
        job = {name: getattr(plan.job, name) for name in job_options()}
        return cls((*dict.fromkeys(FACTORS, 1.0).items(), *job.items(), ("schedule", schedule), ("queueing", queueing)))

    @property
    def values(self) -> dict[str, Any]:
        """All values by name, as plain data for a workspace."""
        return dict(self.items)

    @property
    def job_changes(self) -> dict[str, Any]:
        """The values of ``job_options``."""
        return {name: value for name, value in self.items if name not in (*FACTORS, "schedule", "queueing")}

    @property
    def simulated_with(self) -> dict[str, Any]:
        """Schedule and queueing, as keywords of ``lab.simulate``."""
        return {name: self.values[name] for name in ("schedule", "queueing")}

    def with_values(self, **values: Any) -> WhatIfSetting:
        """Return the setting with some of its ``values`` replaced."""
        return replace(self, items=tuple((self.values | values).items()))

    def on(self, plan: Plan) -> Plan:
        """Return the plan with this setting's job and links, and the same placement. Its communication cost is not
        computed again.

        Raises LabError if the job does not allow it.
        """
        values = self.values
        if self.link:
            # The factors are for one link now, so the rest of the network stays as it is.
            values |= dict.fromkeys(FACTORS, 1.0)
            plan = plan.changed(topology=self.scaled(plan.topology))
        changed = Variation(values).on(plan)
        changed.job.modelled()
        return changed

    def scaled(self, topology: Topology) -> Topology:
        """Return the network with every link scaled by the factors, or only ``link`` if one is set."""
        factors = {name: self.values[name] for name in FACTORS}
        if not self.link:
            return topology.scaled(**factors)
        a, b = (topology.at(name) for name in self.link)
        return with_factors(topology, joined(topology, a, b), **factors)

    def changes_from(self, base: WhatIfSetting) -> dict[str, Any]:
        """Return the values that differ from another setting's. The link is not compared."""
        before = base.values
        return {name: value for name, value in self.items if value != before[name]}

    def describe_changes(self, base: WhatIfSetting) -> str:
        """Return the differences in words, ``bandwidth × 2, 1f1b``. Empty for equal settings."""
        where = f" of {link_words(self.link)}" if self.link else ""
        return ", ".join(
            _describe(name, value) + (where if name in FACTORS else "")
            for name, value in self.changes_from(base).items()
        )


def link_words(link: tuple[str, ...]) -> str:
    """Return a link's name: ``ada – alan``."""
    return " – ".join(link)


def with_factors(topology: Topology, pairs: list[tuple[int, int]], *, bandwidth: float, latency: float) -> Topology:
    """Return the network with bandwidth and latency of these pairs multiplied, both ways. Their measured times are
    dropped."""
    i, j = np.array([*pairs, *((b, a) for a, b in pairs)]).T
    latency_s, bandwidth_bytes_per_s = topology.latency_s.copy(), topology.bandwidth_bytes_per_s.copy()
    latency_s[i, j] *= latency
    bandwidth_bytes_per_s[i, j] *= bandwidth
    message_s = None if topology.message_s is None else topology.message_s.copy()
    if message_s is not None:
        # Measured times are for the old link, so the formula replaces them.
        message_s[i, j] = np.nan
    return replace(topology, latency_s=latency_s, bandwidth_bytes_per_s=bandwidth_bytes_per_s, message_s=message_s)


def _describe(name: str, value: Any) -> str:
    if name == "queueing":
        return choice_words(name, value)
    words = SPECIAL_WORDS.get((name, value)) or WORDS.get(name)
    return f"{name.replace('_', ' ')} {value}" if words is None else words.format(value)


def with_valid(setting: WhatIfSetting, values: Mapping[str, Any]) -> WhatIfSetting:
    """Return the setting with the saved values. Saved values that are not possible are ignored."""
    options, valid = setting_options(), {}
    for name in setting.values:
        try:
            value = options[name].checked(values.get(name))
        except LabError:
            continue
        if value is not None:
            valid[name] = rounded(value) if name in FACTORS else value
    link = values.get("link", ())
    is_link = isinstance(link, list | tuple) and len(link) == 2 and all(isinstance(end, str) for end in link)
    return replace(setting.with_values(**valid), link=tuple(link) if is_link else ())


def rounded(factor: float) -> float:
    """Return the factor with the digits that a slider shows, or fewer if that is close enough: 0.5 for 0.501."""
    short = float(f"{factor:.{FACTOR_DIGITS - 1}g}")
    return short if abs(short - factor) < SNAP * factor else float(f"{factor:.{FACTOR_DIGITS}g}")


def microbatches_of(job: Job, global_batch: int, also: int) -> list[int]:
    """Return the micro-batches, in sequences, that this batch allows, and ``also``, in ascending order."""
    a_replica, over = divmod(global_batch, job.n_replicas)
    most = _most_microbatches(job)
    shared = divisors(global_batch if over else a_replica)  # even if replicas differ, each has at least one
    return sorted({*(n for n in shared if n <= a_replica and math.ceil(a_replica / n) <= most), also})


def batches_of(job: Job, microbatch: int, base: int, also: int) -> list[int]:
    """Return batches, in sequences, that this micro-batch allows, in ascending order, and ``also``.

    They are ``base`` halved or doubled repeatedly, and powers of two times the smallest batch (one micro-batch per
    replica). The largest is about 16 times ``base``, or has ``MOST_ACTIONS``.
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


def n_actions(plan: Plan) -> int:
    """Return the approximate number of actions to simulate: of one iteration, or of two if replicas do not average in
    every one."""
    job = plan.job
    averaging, n_passed = 4 * job.n_replicas * job.n_tasklets, job.n_stages * sum(job.microbatch_counts)
    return (PASSES_AND_MESSAGES * n_passed + averaging) * min(job.synchronise_every, 2)


def _most_microbatches(job: Job) -> int:
    return max(MOST_ACTIONS // (PASSES_AND_MESSAGES * job.n_tasklets), job.n_microbatches)
