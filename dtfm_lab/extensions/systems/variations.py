"""Axes along which systems are compared: one quantity of a network or a job, which takes other values."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import BoolArray, from_ms, to_gbps, to_ms

AXES = ("bandwidth", "latency", "batch", "compute")
"""Names of the quantities along which systems are compared."""
BETWEEN = ("hosts", "regions")
LATENCIES_MS = (0.1, 1000.0)
"""First and last latency of the axis in milliseconds, if the network has no latency at all."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One quantity of a network or a job, its present value, and how to change it."""

    name: str
    noun: str
    """What a sentence calls the quantity, such as in "at which bandwidth"."""
    own: float
    """The present value of the quantity, in ``unit``."""
    unit: str
    title: str
    """Title of the axis in a figure, with the unit."""
    network: Callable[[Topology, float, float], Topology] | None = None
    """``network(topology, value, present_value)`` returns the network at a value. None if the batch changes instead."""
    grain: int = 0
    """Values are whole numbers, and those that the axis chooses are multiples of this number. 0 allows any number."""

    def at(self, topology: Topology, job: Job, value: float, was: float | None = None) -> tuple[Topology, Job]:
        """Return the network and the job at a value of the quantity. ``was`` is their present value, by default
        ``own``.

        Raises LabError if they cannot have the value.
        """
        if self.network is None:
            return topology, job.with_fields(global_batch=int(value))
        return self.network(topology, value, self.own if was is None else was), job

    def checked(self, value: object) -> float:
        """Return a value as a float. Raises LabError unless it is a number above 0, and a whole one if ``grain``
        asks for it."""
        number = value if isinstance(value, int | float | np.number) and not isinstance(value, bool) else math.nan
        if not (math.isfinite(number) and number > 0):
            raise LabError(f"a value of {self.name} is {value!r}; wanted a number above 0 ({self.unit})")
        if self.grain and number != int(number):
            raise LabError(f"a value of {self.name} is {value!r}; wanted a whole number")
        return float(number)

    def usual(self, n: int) -> list[float]:
        """Return about n values around the present one, which is included. They are a factor of 4 apart, or of 2 if
        they are whole numbers. If the present value is 0, they span ``LATENCIES_MS``."""
        if self.own <= 0:
            return self.spread(*LATENCIES_MS, n)
        values = [self.own * (2.0 if self.grain else 4.0) ** (i - n // 2) for i in range(n)]
        return [value for value in values if not self.grain or not value % self.grain]

    def spread(self, low: float, high: float, n: int) -> list[float]:
        """Return about n values from low to high in equal ratios. Batches grow by powers of 2, so that they stay
        divisible."""
        if not self.grain:
            return [float(f"{value:.6g}") for value in np.geomspace(low, high, n)]
        octaves = math.log2(high / low)
        ratio = 2 ** max(1, round(octaves / max(1, n - 1)))
        return [low * ratio**i for i in range(n + 1) if low * ratio**i <= high]

    def middle(self, low: float, high: float) -> float | None:
        """Return the geometric mean of two values; None if no value is left between them.

        A batch is rounded so that it stays divisible: to a multiple of ``grain`` and of the largest power of two up to
        a sixteenth of ``low`` (at least 1).
        """
        middle = math.sqrt(low * high)
        if self.grain:
            grain = math.lcm(2 ** max(0, math.floor(math.log2(low / 16))), self.grain)
            middle = float(round(middle / grain) * grain)
        return middle if low < middle < high else None

    def text(self, value: float) -> str:
        """Return a value with its unit."""
        return f"{value:,.0f} {self.unit}" if value >= 999.5 else f"{value:.3g} {self.unit}"


def variation(name: str, topology: Topology, job: Job, *, between: str = "hosts") -> Axis:
    """Return the axis of this name for a network and a job. Raises LabError if it cannot vary here."""
    if name == "batch":
        return Axis(
            name=name,
            noun=name,
            title="global batch (sequences)",
            unit="sequences",
            own=float(job.global_batch),
            grain=job.microbatch or 1,
        )
    if name == "compute":
        noun = "speed of the devices"
        return Axis(name=name, noun=noun, title=f"{noun} (times their own)", unit="times", own=1.0, network=_computing)
    mask = apart(topology, between)
    if not mask.any():
        raise LabError(f"{topology.name} has no links between {between}; wanted a network that has some")
    if name == "bandwidth":
        unit, own = "Gbit/s", float(to_gbps(np.median(topology.bandwidth_bytes_per_s[mask])))
    else:
        unit, own = "ms", float(to_ms(np.median(topology.latency_s[mask])))
        if own == 0 and topology.latency_s[mask].any():
            raise LabError(
                f"{topology.name}: the median latency between {between} is 0, though some are not, and no factor "
                f"changes it; wanted between='regions', or a network without latency"
            )
    title = f"{name} between {between} (median, {unit})"
    return Axis(name=name, noun=name, title=title, unit=unit, own=own, network=partial(_linked, between, name))


def apart(topology: Topology, between: str) -> BoolArray:
    """Return (N, N): True for links between devices of different hosts, or of different regions.

    A device without a host counts as a separate host.
    """
    of = [one.region for one in topology.devices] if between == "regions" else []
    of = of or [one.host or f"\0{i}" for i, one in enumerate(topology.devices)]
    names = np.array(of, dtype=object)
    mask: BoolArray = (names[:, None] != names[None, :]).astype(bool)
    return mask


def _linked(between: str, of: str, topology: Topology, value: float, was: float) -> Topology:
    """Return the network with the ``bandwidth`` or ``latency`` of some links multiplied by ``value / was``.

    These are the links between hosts or regions. Links within them stay the same. If the present latency is 0,
    ``value`` in milliseconds becomes the latency.
    """
    mask = apart(topology, between)
    # A factor keeps the links' proportions; where all are 0, none would help.
    if was > 0:
        scaled = topology.scaled(**{of: value / was})
    else:
        scaled = replace(topology, latency_s=np.full_like(topology.latency_s, from_ms(value)))
    message_s, other_s = topology.message_s, scaled.message_s
    if message_s is not None and other_s is not None:
        message_s = np.where(mask[:, :, None], other_s, message_s)
    return replace(
        topology,
        latency_s=np.where(mask, scaled.latency_s, topology.latency_s),
        bandwidth_bytes_per_s=np.where(mask, scaled.bandwidth_bytes_per_s, topology.bandwidth_bytes_per_s),
        message_s=message_s,
    )


def _computing(topology: Topology, value: float, was: float) -> Topology:
    """Return the network with all peaks multiplied by ``value / was``. Memory stays the same."""
    factor = value / was
    faster = tuple(replace(one, peak_flop_per_s=one.peak_flop_per_s * factor) for one in topology.devices)
    return replace(topology, devices=faster)
