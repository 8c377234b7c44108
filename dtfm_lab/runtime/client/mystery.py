"""A run in which one link or one device is secretly slow, for a reader who is to find it from the residuals.

Nothing but the secret itself names it: neither the run's record nor its trace. The profile is taken before a device is
slowed, and predictions do not consider which links are emulated.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.schedule import Schedule
from dtfm_lab.runtime.client.launch import prepare
from dtfm_lab.runtime.client.run import Run
from dtfm_lab.runtime.protocol.run_options import RunOptions
from dtfm_lab.runtime.protocol.run_spec import RunSpec

FACTOR = 3.0
"""How many times slower; computations of a busy machine differ by a tenth or two."""


class Secret(NamedTuple):
    """What was made slow, link or device, and how many times."""

    of: str
    """``link`` or ``device``."""
    name: str
    """The device, or the link as "a -> b"."""
    factor: float


def start_mystery(
    plan: Plan, schedule: str | Schedule | None, rng: np.random.Generator, **options: Any
) -> tuple[Run, Secret]:
    """Start a run with a secret; links are only slowed where they are emulated, so not on the real clock.

    Raises what ``start`` raises.
    """
    spec = prepare(plan, schedule, RunOptions(**options))
    secret = draw(spec, rng)
    if secret.of == "link":
        return Run(replace(spec, emulated=_with_slow_link(spec, secret))), secret
    run = Run(spec)
    run.slow_in_secret(secret.name, secret.factor)
    return run, secret


def draw(spec: RunSpec, rng: np.random.Generator) -> Secret:
    """Draw whether a link or a device is slow, and which of those that carry messages or compute."""
    names = [spec.device_name(*worker) for worker in spec.workers]
    links = [
        f"{names[rank]} -> {names[target]}"
        for rank, worker in enumerate(spec.workers)
        for target in spec.targets(*worker)
    ]
    of = "link" if links and spec.clock != "real" and rng.random() < 0.5 else "device"
    return Secret(of, str(rng.choice(links if of == "link" else names)), FACTOR)


def _with_slow_link(spec: RunSpec, secret: Secret) -> Any:
    network = spec.plan.topology if spec.emulated is None else spec.emulated
    source, target = secret.name.split(" -> ")
    i, j = spec.plan.topology.index(source), spec.plan.topology.index(target)
    return network.with_link(
        network.names[i],
        network.names[j],
        latency_s=float(network.latency_s[i, j]) * secret.factor,
        bandwidth_bytes_per_s=float(network.bandwidth_bytes_per_s[i, j]) / secret.factor,
        one_way=True,
    )
