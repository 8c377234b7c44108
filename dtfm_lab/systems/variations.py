"""One quantity of a network or a job, and how both look at another value of it.

Comparisons of systems are laid out along one or two of them; co-design turns them (``knobs``) until a plan suffices.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from dtfm_lab.domain.errors import JobError, LabError
from dtfm_lab.domain.job import Job, LayerKind, ModelSpec
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import BoolArray, from_ms, to_gbps, to_ms

AXES = ("bandwidth", "latency", "batch", "layers", "model", "compute")
"""Names of what systems are compared along."""
BETWEEN = ("hosts", "regions")
LATENCIES_MS = (0.1, 1000.0)
"""First and last value where the network's own latencies are all 0."""
Middle = Callable[[float, float], float | None]


def between_in_ratio(low: float, high: float, margin: float = 1.0) -> float | None:
    """The value halfway between two in ratio; None where it is no further from both than a factor."""
    middle = math.sqrt(low * high)
    return middle if low * margin < middle < high / margin else None


@dataclass(frozen=True, kw_only=True)
class Variation:
    """One quantity of a network, a job or a plan, its own value, and what changes with another."""

    name: str
    noun: str
    """What a sentence calls it."""
    own: float
    """The value of the network and the job as they are."""
    unit: str = ""
    title: str = ""
    """What an axis of a figure is called, with the unit."""
    network: Callable[[Topology, float, float], Topology] | None = None
    """The network at a value, which now has another one; None where it does not change."""
    job: Callable[[Job, float], Job] | None = None
    """The job at a value; None where it does not change. Raises LabError where it has none."""
    whole: bool = False
    """Whether values are whole numbers."""
    even: bool = True
    """Whether every value between two others is one, so that a crossing can be bracketed as closely as asked for."""
    middle: Middle = between_in_ratio
    """A value about halfway between two; None where none is left."""
    words: str = "{} {unit}"
    """A value in words, such as ``a batch of {:,.0f}``."""
    named: Mapping[float, str] = field(default_factory=dict)
    """Values that have words of their own."""
    most: float = math.inf
    """The largest value that doubling tries."""
    least: float = math.inf
    """The smallest value that halving tries; none where less of it means nothing."""
    grain: float = 0.0
    """Of which halving tries multiples."""
    larger: Callable[[], list[float]] | None = None
    """The larger values that are tried, where they are no doublings."""
    mathematics: str = ""
    """What it changes of the training itself; empty where losses stay what they were."""

    def at(self, topology: Topology, job: Job, value: float, was: float | None = None) -> tuple[Topology, Job]:
        """Network and job at a value; they have the value ``was`` now, its own where None. Raises LabError where they
        have none."""
        if self.network is not None:
            topology = self.network(topology, value, self.own if was is None else was)
        return topology, job if self.job is None else self.job(job, value)

    def on(self, plan: Plan, value: float) -> Plan:
        """A plan at a value, its devices and shape as they are. Raises LabError where there is none."""
        topology, job = self.at(plan.topology, plan.job, value)
        return plan.changed(topology=topology, job=job)

    def checked(self, value: object) -> float:
        """A value as a number; raises LabError for what is none above 0, or not whole where it has to be."""
        number = value if isinstance(value, int | float | np.number) and not isinstance(value, bool) else math.nan
        if not (math.isfinite(number) and number > 0):
            raise LabError(f"a value of {self.name} is {value!r}; wanted a number above 0 ({self.unit})")
        if self.whole and number != int(number):
            raise LabError(f"a value of {self.name} is {value!r}; wanted a whole number")
        return float(number)

    def usual(self, n: int) -> list[float]:
        """About n values around the own one, which is one of them: a factor of 4 apart, of 2 where they are whole; all
        that are named where there is none between."""
        if not self.even:
            return sorted(self.named)
        if self.own <= 0:
            return self.spread(*LATENCIES_MS, n)
        values = [self.own * (2.0 if self.whole else 4.0) ** (i - n // 2) for i in range(n)]
        return [value for value in values if not self.whole or (value >= 1 and value == int(value))]

    def spread(self, low: float, high: float, n: int) -> list[float]:
        """About n values from low to high in equal ratios. A batch is doubled: what it divides into stays so."""
        if self.name == "batch":
            octaves = math.log2(high / low) if high > low else 0.0
            ratio = 2 ** max(1, round(octaves / max(1, n - 1)))
            return powers(low, ratio, high)
        values = np.geomspace(low, high, n)
        return sorted({float(round(v)) for v in values}) if self.whole else [float(f"{v:.6g}") for v in values]

    @property
    def doubled(self) -> list[float]:
        """The values that are tried in turn, each twice the one before where nothing else is said."""
        return powers(self.own * 2, 2, self.most) if self.larger is None else self.larger()

    @property
    def halved(self) -> list[float]:
        """Smaller values, tried where the plan's own suffices."""
        values = []
        value = self.own / 2
        while value >= self.least and not (self.grain and value % self.grain):
            values.append(value)
            value /= 2
        return values

    def text(self, value: float) -> str:
        """A value in words, or with its unit."""
        shown: str | float = value
        if self.unit:
            shown = f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"
        return self.named.get(value) or self.words.format(shown, unit=self.unit)


def powers(first: float, ratio: float, last: float) -> list[float]:
    """Values from the first that are a ratio apart, none above the last."""
    values = []
    while first <= last:
        values.append(first)
        first *= ratio
    return values


def _linked(between: str, of: str, topology: Topology, value: float, was: float) -> Topology:
    """The network with ``bandwidth`` or ``latency`` of the links between hosts or regions times one factor; those
    within keep theirs. Latencies that are all 0 become the value."""
    mask = apart(topology, between)
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
    """Devices of so many times their peak, with the memory that they have."""
    factor = value / was
    faster = tuple(replace(one, peak_flop_per_s=one.peak_flop_per_s * factor) for one in topology.devices)
    return replace(topology, devices=faster)


def _of_batch(job: Job, value: float) -> Job:
    return job.with_fields(global_batch=int(value))


def _of_layers(job: Job, value: float) -> Job:
    return job.with_fields(model=with_blocks(job.modelled(), int(value)))


def _of_model(models: Mapping[float, ModelSpec], job: Job, value: float) -> Job:
    return job.with_fields(model=models[value])


def _whole_in_ratio(of: int, low: float, high: float) -> float | None:
    """The nearest multiple of a number. Batches come to a sixteenth of the lower one, in powers of two, so that they
    keep dividing; layers (``of`` 0) are any whole number."""
    grain = 1
    if of:
        grain = math.lcm(2 ** max(0, math.floor(math.log2(low / 16))) if low >= 16 else 1, of)
    middle = float(round(math.sqrt(low * high) / grain) * grain)
    return middle if low < middle < high else None


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


def variation(
    name: str, topology: Topology, job: Job, *, between: str = "hosts", models: Mapping[float, ModelSpec] | None = None
) -> Variation:
    """What of a network and a job varies under a name. Raises LabError where nothing of them does."""
    match name:
        case "bandwidth" | "latency":
            return _links(name, topology, between)
        case "compute":
            title = "speed of the devices (times their own)"
            return Variation(
                name=name, noun="speed of the devices", title=title, unit="times", own=1.0, network=_computing
            )
        case "batch":
            return Variation(
                name=name,
                noun=name,
                title="global batch (sequences)",
                unit="sequences",
                own=float(job.global_batch),
                job=_of_batch,
                whole=True,
                middle=partial(_whole_in_ratio, job.microbatch or 1),
            )
        case "layers":
            return Variation(
                name=name,
                noun="depth of the model",
                title="blocks of the model",
                unit="blocks",
                own=float(job.modelled().n_blocks),
                job=_of_layers,
                whole=True,
                middle=partial(_whole_in_ratio, 0),
            )
    given = dict(models or {})
    return Variation(
        name=name,
        noun=name,
        title="parameters of the model",
        unit="parameters",
        own=float(job.modelled().parameters),
        job=partial(_of_model, given),
        even=False,
        named={size: model.name for size, model in given.items()},
    )


def _links(name: str, topology: Topology, between: str) -> Variation:
    """Bandwidth or latency of all links between hosts or regions in proportion; the value is that of the median one."""
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
    return Variation(name=name, noun=name, title=title, unit=unit, own=own, network=partial(_linked, between, name))
