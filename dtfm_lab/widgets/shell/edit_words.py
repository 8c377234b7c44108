"""What an edit of the network or the job changed, in a few words: ``Tokyo – Oregon 0.52 → 0.10 Gbit/s``."""

from typing import Any

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import FloatArray, to_gbps, to_ms

ALIKE = 1e-9
"""Share by which two numbers may differ and still be the same number, rounded otherwise."""
JOB_FIELDS = {
    "global_batch": "batch",
    "microbatch": "micro-batch",
    "schedule": "schedule",
    "n_stages": "stages",
    "n_replicas": "replicas",
}
"""Fields of a job that the bar's menu changes, by their name in a sentence."""
MOST_NAMED = 2
"""Devices up to which each is named; more are counted."""


def describe_edit(before: Topology, after: Topology, job_before: Job | None, job: Job | None) -> str:
    """Return what differs between two networks, or else between two jobs; empty where nothing does that counts."""
    if before.fingerprint != after.fingerprint:
        return _of_devices(before, after) or _of_links(before, after) or "The network changed"
    return _of_job(job_before, job)


def _of_devices(before: Topology, after: Topology) -> str:
    was, now = set(before.names), set(after.names)
    for names, verb in ((now - was, "joined"), (was - now, "left")):
        if names:
            return f"{_counted(sorted(names))} {verb}"
    old = {device.name: device for device in before.devices}
    changed = [d.name for d in after.devices if _what_it_is(old[d.name]) != _what_it_is(d)]
    return f"{_counted(changed)} changed" if changed else ""


def _what_it_is(device: Any) -> tuple[Any, ...]:
    return device.gpu, device.peak_flop_per_s, device.memory_bytes, device.price_per_hour, device.region, device.host


def _counted(names: list[str]) -> str:
    return " and ".join(names) if len(names) <= MOST_NAMED else f"{len(names)} devices"


def _of_links(before: Topology, after: Topology) -> str:
    """Name the pair of regions or of devices whose numbers changed; count the links where these are several."""
    order = [before.names.index(name) for name in after.names]
    pairs = np.ix_(order, order)
    gbps = to_gbps(before.bandwidth_bytes_per_s[pairs]), to_gbps(after.bandwidth_bytes_per_s)
    ms = to_ms(before.latency_s[pairs]), to_ms(after.latency_s)
    changed = _differ(*gbps) | _differ(*ms)
    np.fill_diagonal(changed, False)
    if not changed.any():
        return ""
    ends = np.argwhere(changed)
    parts = [
        _from_to(float(np.median(was[changed])), float(np.median(now[changed])), unit)
        for (was, now), unit in ((gbps, "Gbit/s"), (ms, "ms"))
        if _differ(was[changed], now[changed]).any()
    ]
    where = _where(after, ends)
    same = all(_differ(now[changed], np.median(now[changed])).sum() == 0 for _, now in (gbps, ms))
    return f"{where} {', '.join(parts)}" if same else f"{where} changed"


def _where(topology: Topology, ends: np.ndarray) -> str:
    if len({frozenset(pair) for pair in ends.tolist()}) == 1:
        arrow = "→" if len(ends) == 1 else "–"
        return f" {arrow} ".join(topology.names[i] for i in ends[0])
    regions = {frozenset(topology.devices[i].region for i in pair) for pair in ends.tolist()}
    if len(regions) == 1 and "" not in (names := sorted(next(iter(regions)))):
        return " – ".join(names) if len(names) > 1 else f"Links within {names[0]}"
    return "Every link" if len(ends) == len(topology) * (len(topology) - 1) else f"{len(ends):,} links"


def _differ(was: FloatArray, now: Any) -> np.ndarray:
    return np.asarray(~np.isclose(was, now, rtol=ALIKE, atol=0, equal_nan=True))


def _from_to(was: float, now: float, unit: str) -> str:
    return f"{was:.3g} → {now:.3g} {unit}"


def _of_job(before: Job | None, job: Job | None) -> str:
    if before is None or job is None or before == job:
        return ""
    if before.name != job.name:
        return f"{before.name} → {job.name}"
    for field, noun in JOB_FIELDS.items():
        was, now = getattr(before, field), getattr(job, field)
        if was != now:
            return f"{noun.capitalize()} {_value(was)} → {_value(now)}"
    return "The job changed"


def _value(value: Any) -> str:
    return "open" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
