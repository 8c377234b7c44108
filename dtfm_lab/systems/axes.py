"""What a comparison of systems is laid out over: the links, the devices' speed, the batch, the size of the model."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from dtfm_lab.domain.errors import JobError, LabError
from dtfm_lab.domain.job import Job, LayerKind, ModelSpec
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import BoolArray, from_ms, to_gbps, to_ms

BETWEEN = ("hosts", "regions")
LATENCIES_MS = (0.1, 1000.0)
"""First and last value where the network's own latencies are all 0."""


@dataclass(frozen=True, kw_only=True)
class Axis(ABC):
    """One quantity of a network or a job, and how both look at another value of it."""

    name: ClassVar[str]
    noun: ClassVar[str]
    """What a sentence calls it."""
    title: str
    """What an axis of a figure is called, with the unit."""
    unit: str
    own: float
    """The value of the network and the job as they are."""
    even: bool = True
    """Whether every value between two others is one, so that a crossing can be bracketed as closely as asked for."""

    def network(self, topology: Topology, value: float, was: float | None = None) -> Topology:
        """The network, or one of groups of its GPUs, at a value; it has the value ``was`` now, its own where None."""
        return topology

    def job(self, job: Job, value: float) -> Job:
        """The job at a value. Raises JobError where it has none."""
        return job

    def checked(self, value: object) -> float:
        """A value as a number; raises LabError for what is none above 0."""
        number = value if isinstance(value, int | float | np.number) and not isinstance(value, bool) else math.nan
        if not (math.isfinite(number) and number > 0):
            raise LabError(f"a value of {self.name} is {value!r}; wanted a number above 0 ({self.unit})")
        return float(number)

    @abstractmethod
    def usual(self, n: int) -> list[float]:
        """About n values around the own one, which is one of them."""

    def spread(self, low: float, high: float, n: int) -> list[float]:
        """About n values from low to high in equal ratios."""
        return [float(f"{value:.6g}") for value in np.geomspace(low, high, n)]

    def middle(self, low: float, high: float) -> float | None:
        """A value halfway between two in ratio; None where there is none."""
        middle = math.sqrt(low * high)
        return middle if low < middle < high else None

    def text(self, value: float) -> str:
        """A value with its unit."""
        return f"{_digits(value)} {self.unit}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"


def _steps(own: float, n: int, ratio: float) -> list[float]:
    """So many values, a ratio apart, with the own one in the middle."""
    return [own * ratio ** (i - n // 2) for i in range(n)]


@dataclass(frozen=True, kw_only=True)
class Links(Axis):
    """Links of the network in proportion to each other; the value is that of the median link."""

    between: str

    def _scaled(self, topology: Topology, scaled: Topology) -> Topology:
        """The network with the links that change from another."""
        mask = apart(topology, self.between)
        message_s, other_s = topology.message_s, scaled.message_s
        if message_s is not None and other_s is not None:
            message_s = np.where(mask[:, :, None], other_s, message_s)
        return replace(
            topology,
            latency_s=np.where(mask, scaled.latency_s, topology.latency_s),
            bandwidth_bytes_per_s=np.where(mask, scaled.bandwidth_bytes_per_s, topology.bandwidth_bytes_per_s),
            message_s=message_s,
        )


@dataclass(frozen=True, kw_only=True)
class Bandwidth(Links):
    """The bandwidth of all links between hosts, or between regions, times one factor."""

    name: ClassVar[str] = "bandwidth"
    noun: ClassVar[str] = "bandwidth"

    def network(self, topology: Topology, value: float, was: float | None = None) -> Topology:
        """Links within a host, or within a region, keep their bandwidth."""
        return self._scaled(topology, topology.scaled(bandwidth=value / (self.own if was is None else was)))

    def usual(self, n: int) -> list[float]:
        """A factor of 4 apart."""
        return _steps(self.own, n, 4.0)


@dataclass(frozen=True, kw_only=True)
class Latency(Links):
    """The latency of all links between hosts, or between regions, times one factor; of all alike where all are 0."""

    name: ClassVar[str] = "latency"
    noun: ClassVar[str] = "latency"

    def network(self, topology: Topology, value: float, was: float | None = None) -> Topology:
        """Links within a host, or within a region, keep their latency."""
        if self.own > 0:
            return self._scaled(topology, topology.scaled(latency=value / (self.own if was is None else was)))
        return self._scaled(topology, replace(topology, latency_s=np.full_like(topology.latency_s, from_ms(value))))

    def usual(self, n: int) -> list[float]:
        """A factor of 4 apart; from 0.1 ms to 1 s where the own latency is 0."""
        return _steps(self.own, n, 4.0) if self.own > 0 else self.spread(*LATENCIES_MS, n)


@dataclass(frozen=True, kw_only=True)
class Compute(Axis):
    """The peak of all devices times one factor."""

    name: ClassVar[str] = "compute"
    noun: ClassVar[str] = "speed of the devices"

    def network(self, topology: Topology, value: float, was: float | None = None) -> Topology:
        """Devices of so many times their peak, with the memory that they have."""
        factor = value / (self.own if was is None else was)
        faster = tuple(replace(one, peak_flop_per_s=one.peak_flop_per_s * factor) for one in topology.devices)
        return replace(topology, devices=faster)

    def usual(self, n: int) -> list[float]:
        """A factor of 4 apart."""
        return _steps(1.0, n, 4.0)

    def text(self, value: float) -> str:
        """Times the own speed."""
        return f"{_digits(value)} times"


@dataclass(frozen=True, kw_only=True)
class Counts(Axis):
    """An axis of whole numbers."""

    def checked(self, value: object) -> float:
        """A whole number from 1; raises LabError for what is none."""
        number = super().checked(value)
        if number != int(number):
            raise LabError(f"a value of {self.name} is {value!r}; wanted a whole number")
        return number

    def usual(self, n: int) -> list[float]:
        """A factor of 2 apart, those that are whole."""
        return [value for value in _steps(self.own, n, 2.0) if value >= 1 and value == int(value)]

    def spread(self, low: float, high: float, n: int) -> list[float]:
        """Rounded to whole numbers, each once."""
        return sorted({float(round(value)) for value in np.geomspace(low, high, n)})


@dataclass(frozen=True, kw_only=True)
class Batch(Counts):
    """Sequences of an iteration, over all replicas."""

    name: ClassVar[str] = "batch"
    noun: ClassVar[str] = "batch"
    microbatch: int = 1
    """Of which a batch is a multiple; 1 where a job leaves it open."""

    def job(self, job: Job, value: float) -> Job:
        """The job with this global batch."""
        return job.with_fields(global_batch=int(value))

    def spread(self, low: float, high: float, n: int) -> list[float]:
        """Times 2, or a power of it, from the least: what a batch divides into stays so; about n of them."""
        octaves = math.log2(high / low) if high > low else 0.0
        ratio = 2 ** max(1, round(octaves / max(1, n - 1)))
        values = [low]
        while values[-1] * ratio <= high:
            values.append(values[-1] * ratio)
        return values

    def middle(self, low: float, high: float) -> float | None:
        """To a sixteenth of the lower batch, in powers of two, so that batches keep dividing."""
        grain = 2 ** max(0, math.floor(math.log2(low / 16))) if low >= 16 else 1
        grain = math.lcm(grain, self.microbatch)
        middle = float(round(math.sqrt(low * high) / grain) * grain)
        return middle if low < middle < high else None


@dataclass(frozen=True, kw_only=True)
class Layers(Counts):
    """Blocks of the model, all alike."""

    name: ClassVar[str] = "layers"
    noun: ClassVar[str] = "depth of the model"

    def job(self, job: Job, value: float) -> Job:
        """The job with a model of so many blocks."""
        return job.with_fields(model=with_blocks(job.modelled(), int(value)))

    def middle(self, low: float, high: float) -> float | None:
        """The nearest whole number."""
        middle = float(round(math.sqrt(low * high)))
        return middle if low < middle < high else None


@dataclass(frozen=True, kw_only=True)
class Models(Axis):
    """Models by their number of parameters, which lies between those that are given nowhere."""

    name: ClassVar[str] = "model"
    noun: ClassVar[str] = "model"
    even: bool = False
    models: Mapping[float, ModelSpec] = field(default_factory=dict)

    def job(self, job: Job, value: float) -> Job:
        """The job with this model, in its own sequence length."""
        return job.with_fields(model=self.models[value])

    def usual(self, n: int) -> list[float]:
        """All that are given."""
        return sorted(self.models)

    def middle(self, low: float, high: float) -> float | None:
        """None."""
        return None

    def text(self, value: float) -> str:
        """The model's name."""
        return self.models[value].name


def apart(topology: Topology, between: str) -> BoolArray:
    """(N, N) the links between devices of two hosts, or of two regions; a device that names no host is one alone."""
    of = [one.region for one in topology.devices] if between == "regions" else []
    of = of or [one.host or f"\0{i}" for i, one in enumerate(topology.devices)]
    names = np.array(of, dtype=object)
    mask: BoolArray = (names[:, None] != names[None, :]).astype(bool)
    return mask


def with_blocks(model: ModelSpec, n_blocks: int) -> ModelSpec:
    """The model with another number of its blocks. Raises JobError where these are not all alike."""
    blocks = [layer for layer in model.layers if layer.kind is LayerKind.BLOCK]
    if len(set(blocks)) != 1:
        raise JobError(f"model {model.name} has blocks that differ; wanted one whose blocks are alike")
    before = [layer for layer in model.layers[:1] if layer.kind is not LayerKind.BLOCK]
    after = [layer for layer in model.layers[-1:] if layer.kind is not LayerKind.BLOCK]
    return replace(model, layers=(*before, *blocks[:1] * n_blocks, *after))


def axis_of(
    name: str, topology: Topology, job: Job, *, between: str = "hosts", models: Mapping[float, ModelSpec] | None = None
) -> Axis:
    """The axis of a name for a network and a job. Raises LabError where nothing of them changes along it."""
    if name in ("bandwidth", "latency"):
        mask = apart(topology, between)
        if not mask.any():
            raise LabError(f"{topology.name} has no links between {between}; wanted a network that has some")
        if name == "bandwidth":
            own = float(to_gbps(np.median(topology.bandwidth_bytes_per_s[mask])))
            return Bandwidth(
                title=f"bandwidth between {between} (median, Gbit/s)", unit="Gbit/s", own=own, between=between
            )
        latency_s = topology.latency_s[mask]
        own = float(to_ms(np.median(latency_s)))
        if own == 0 and latency_s.any():
            raise LabError(
                f"{topology.name}: the median latency between {between} is 0, though some are not, and no factor "
                f"changes it; wanted between='regions', or a network without latency"
            )
        return Latency(title=f"latency between {between} (median, ms)", unit="ms", own=own, between=between)
    if name == "compute":
        return Compute(title="speed of the devices (times their own)", unit="times", own=1.0)
    if name == "batch":
        own, microbatch = float(job.global_batch), job.microbatch or 1
        return Batch(title="global batch (sequences)", unit="sequences", own=own, microbatch=microbatch)
    if name == "layers":
        return Layers(title="blocks of the model", unit="blocks", own=float(job.modelled().n_blocks))
    given = dict(models or {})
    own = float(job.modelled().parameters)
    return Models(title="parameters of the model", unit="parameters", own=own, models=given)


AXES = ("bandwidth", "latency", "batch", "layers", "model", "compute")
