"""Topologies in YAML and JSON as people write them. These formats hold everything.

First come the sections of a file, with their keys, units and defaults. Then follows how every link's speed is derived
from them. ``topology_writing`` writes what is read here.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import numpy as np
from pydantic import FailFast, Field, model_validator

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.job import BYTES_PER_ELEMENT
from dtfm_lab.domain.network import (
    LINK_SPREAD,
    LONGEST_NAME,
    MOST_DEVICES,
    MOST_SPREAD,
    PAPERS_GPU,
    BandwidthEstimate,
    Device,
    MeasuredBlock,
    MeasuredGpu,
    Topology,
    as_number,
    check_count,
    check_sizes,
    check_text,
    counted_host,
    shortened,
    typical_price,
)
from dtfm_lab.domain.network.collectives import MOST_ROWS, CollectiveSpeed
from dtfm_lab.domain.network.conversions import OTHER_UNIT
from dtfm_lab.domain.network.device import spelling_of
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import TERA, FloatArray, GiB, by_key, from_gbps, from_ms
from dtfm_lab.files.reading import Section, located, parse, read_mapping, title_of, write_text, write_yaml
from dtfm_lab.files.topology_writing import topology_to_mapping

suffixes = (".yaml", ".yml", ".json")

Name = Annotated[str, Field(max_length=LONGEST_NAME)]


UNITS = {what: other for what, (other, _) in OTHER_UNIT.items()} | {
    "uplink_bytes_per_s": "uplink_gbps",
    "downlink_bytes_per_s": "downlink_gbps",
}
"""Keys in SI -> the keys of the sections below, in the usual units."""


class UnitSection(Section):
    """A section whose numbers may also be given in SI, under names that include the unit."""

    @model_validator(mode="before")
    @classmethod
    def _in_written_units(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not (given := UNITS.keys() & data.keys()):
            return data
        converted = dict(data)
        for what in sorted(given):
            if (other := UNITS[what]) not in cls.model_fields:
                continue
            value = converted.pop(what)
            if other in converted:
                raise ValueError(f"both {other} and {what} are given; wanted one of them")
            converted[other] = _written(what, value)
        return converted


def _written(what: str, value: Any) -> Any:
    """Convert a number, or a list of numbers, from SI to the usual unit. Raises ValueError for anything else."""
    if what == "message_s" and isinstance(value, list):
        return [_written("latency_s", each) for each in value]
    if (number := as_number(value)) is None:
        raise ValueError(f"{what} is {shortened(value)}; wanted a number")
    _, from_written = OTHER_UNIT[what.replace("uplink", "bandwidth").replace("downlink", "bandwidth")]
    return number / from_written(1.0) if number else number


class SpeedSection(UnitSection):
    """Speed of a link."""

    latency_ms: float = Field(ge=0, allow_inf_nan=False)
    """Milliseconds of an empty message, one way."""
    bandwidth_gbps: float = Field(gt=0, allow_inf_nan=False)
    """Gbit/s."""


class HardwareSection(UnitSection):
    """Hardware of a device, or the default for all devices of a region."""

    gpu: Name | None = None
    """Name of the GPU. If the hardware table has it, it sets peak and memory that are not given."""
    host: Name | None = None
    """Machine whose NIC the devices share."""
    peak_tflops: float | None = Field(default=None, gt=0)
    """Peak TFLOP/s of a device."""
    memory_gib: float | None = Field(default=None, gt=0)
    """Memory of a device in GiB."""
    price_per_hour: float | None = Field(default=None, ge=0)
    """US dollars per hour."""
    uplink_gbps: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Highest rate in Gbit/s at which the device sends. It does not limit speeds under `links`, `hosts` or
    `inside_host`."""
    downlink_gbps: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Highest rate in Gbit/s at which the device receives. It does not limit speeds under `links`, `hosts` or
    `inside_host`."""


class DeviceSection(HardwareSection):
    """One device."""

    name: Name
    """Name, unique among devices."""
    region: Name | None = None
    """Region that it is in. A device listed under a region is in that region."""
    position: tuple[float, float] | None = None
    """Place on the canvas in pixels, x and y, y downwards. It affects no cost."""
    gpus: int = Field(default=1, ge=1)
    """Number of GPUs that act as one device. The device's numbers are their totals."""
    inner: SpeedSection | None = None
    """Speed between two of its GPUs."""


class RegionSection(HardwareSection):
    """Devices with the same speed between any two of them, unless `inside_host`, `hosts` or `links` says otherwise."""

    name: Name
    """Name, unique among regions."""
    count: int | None = Field(default=None, ge=1, le=MOST_DEVICES)
    """Number of devices that are named after the region, such as Oslo-0."""
    per_host: int | None = Field(default=None, ge=1)
    """Devices per host. The region's devices are grouped into hosts of this size."""
    inside_host: SpeedSection | None = None
    """Speed between two devices of a host."""
    devices: Annotated[list[DeviceSection], FailFast()] = Field(default_factory=list)
    """Devices with their own names, in addition to the counted ones."""
    latency_ms: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Milliseconds of an empty message between two devices of the region, one way."""
    bandwidth_gbps: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Gbit/s between two devices of the region."""


class HostSection(SpeedSection):
    """Speed between two devices of one host."""

    name: Name
    """Name of the host."""


class OneWaySection(SpeedSection):
    """Speed in one direction."""

    source: Name | None = Field(default=None, alias="from")
    """Region or device that sends."""
    target: Name | None = Field(default=None, alias="to")
    """Region or device that receives."""

    def ends(self, pair: tuple[str, str] | None, noun: str) -> tuple[str, str]:
        """Return source and target, or both ends of the pair. Raises TopologyError unless exactly one form is given."""
        if pair is not None and self.source is None and self.target is None:
            return pair
        if pair is None and self.source is not None and self.target is not None:
            return self.source, self.target
        key = "regions" if noun == "region pair" else "between"
        raise TopologyError(f"a {noun} needs either '{key}: [a, b]' or both 'from: a' and 'to: b'")


class BetweenSection(OneWaySection):
    """Speed between the devices of two regions."""

    regions: tuple[Name, Name] | None = None
    """Both regions, if both directions have this speed."""


class LinkSection(OneWaySection):
    """Speed of a single link."""

    between: tuple[Name, Name] | None = None
    """Both devices, if both directions have this speed."""


class MeasuredLinkSection(UnitSection):
    """Measured message times of one link, in one direction."""

    source: Name = Field(alias="from")
    """Device that sends."""
    target: Name = Field(alias="to")
    """Device that receives."""
    message_ms: list[float]
    """Milliseconds of a message of each size."""


class MeasuredBlockSection(Section):
    """The time of a transformer block on one GPU."""

    d_model: int = Field(gt=0)
    """Width of the block."""
    n_heads: int = Field(gt=0)
    """Attention heads."""
    seq_len: int = Field(gt=0)
    """Tokens of a sequence."""
    microbatch: int = Field(gt=0)
    """Sequences of a pass."""
    forward_ms: float = Field(gt=0, allow_inf_nan=False)
    """Milliseconds of a forward."""
    backward_ms: float = Field(gt=0, allow_inf_nan=False)
    """Milliseconds of a backward."""


class MeasuredGpuSection(Section):
    """Measurements of one kind of GPU by `dtfm-lab calibrate`. They apply to all devices with that GPU."""

    gpu: Name
    """The GPU, as the devices name it."""
    dtype: Name
    """Precision of the blocks' numbers."""
    blocks: list[MeasuredBlockSection] = Field(min_length=1, max_length=100)
    """Timed blocks, one for each width, the narrowest first."""
    block_launch_ms: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Milliseconds in which the kernels of a block's forward and backward are launched."""
    step_gib: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Peak memory of a training step, with Adam's states in fp32, of the widest block that fits, in GiB."""
    host: Name = ""
    """Name of the machine on which it was measured."""
    date: Name = ""
    """Day of the measurement, as 2026-11-30."""
    versions: Name = ""
    """Versions of the software that computed."""


class MeasuredSection(Section):
    """Measurements of a network: times of messages, and of transformer blocks on its GPUs."""

    message_bytes: list[float] = Field(default_factory=list)
    """Message sizes, increasing."""
    links: Annotated[list[MeasuredLinkSection], FailFast()] = Field(default_factory=list)
    """One line per measured direction of a link."""
    gpus: list[MeasuredGpuSection] = Field(default_factory=list, max_length=100)
    """Measurements of each kind of GPU."""


class EstimateSection(Section):
    """A bandwidth that was not measured. It applies to all links inside hosts, or between hosts, that have exactly this
    bandwidth."""

    links: Literal["inside hosts", "between hosts"]
    """Links between two devices of a host, or all other links."""
    bandwidth_gbps: float = Field(gt=0, allow_inf_nan=False)
    """Bandwidth of these links."""
    least_gbps: float = Field(gt=0, allow_inf_nan=False)
    """Lowest bandwidth that these links may have."""
    most_gbps: float = Field(gt=0, allow_inf_nan=False)
    """Highest bandwidth that these links may have."""


class CollectiveSection(Section):
    """The speed of collectives, such as an all-reduce, in which a number of hosts take part."""

    hosts: int = Field(ge=1)
    """Number of hosts that take part."""
    fraction: float = Field(gt=0, le=1)
    """Share of its link's bandwidth that each message of the collective gets."""
    spread: float | None = Field(default=None, ge=0, le=MOST_SPREAD)
    """Standard deviation of the logarithm of a collective's seconds; `link_spread` by default."""


class TopologyFile(Section):
    """A network as people write it."""

    dtfm_topology: int
    """Version of the format."""
    name: Name | None = None
    """Name of the network; the file's name by default."""
    description: str = ""
    """What the network is and where its numbers come from."""
    link_spread: float = Field(default=LINK_SPREAD, ge=0, le=MOST_SPREAD)
    """Uncertainty of the links: the standard deviation of the logarithm of their messages' seconds."""
    collectives: list[CollectiveSection] = Field(default_factory=list, max_length=MOST_ROWS)
    """How much slower collectives are when more hosts take part, the fewest hosts first."""
    estimates: list[EstimateSection] = Field(default_factory=list, max_length=100)
    """Bandwidths that were not measured, each with the range that it may lie in."""
    typical_prices: bool = False
    """True if devices without a price get the typical price of their GPU."""
    default: SpeedSection | None = None
    """Speed of links that nothing else describes."""
    regions: Annotated[list[RegionSection], FailFast()] = Field(default_factory=list)
    """Groups of devices that are near each other."""
    devices: Annotated[list[DeviceSection], FailFast()] = Field(default_factory=list)
    """Devices, each with a region or none."""
    hosts: Annotated[list[HostSection], FailFast()] = Field(default_factory=list)
    """Speeds between two devices of a host."""
    between: Annotated[list[BetweenSection], FailFast()] = Field(default_factory=list)
    """Speeds between regions."""
    links: Annotated[list[LinkSection], FailFast()] = Field(default_factory=list)
    """Speeds of single links. They take precedence over all others."""
    measured: MeasuredSection | None = None
    """Measured times of messages of several sizes, and of transformer blocks."""


# ---------------------------------------------------------------------------------------------------------------------
# Topologies from mappings as people write them in YAML: regions with defaults, region pairs, NICs, single links.
#
# The most specific entry for a pair of devices gives its speed. From the most to the least specific: a one-way link; a
# link; its host; its region, or an entry between its two regions (in one direction if that has ``from`` and ``to``);
# the default.
#
# ``uplink_gbps`` and ``downlink_gbps`` of a device or a region describe its NIC to the network. They cap the bandwidth
# that a region or the default gives, but never the bandwidth of a link or host. So the bandwidth of i -> j is the least
# of the entry's, i's uplink and j's downlink.
#
# Devices of one ``host`` share its NIC for messages to other hosts. A device or a region names its host. Or a region
# has ``per_host: 8``, which counts its devices into ``region-host-0`` and so on. ``inside_host`` of a region, or a line
# under ``hosts``, is the speed between two devices of a host.
#
# A device of several ``gpus`` acts as one, with the numbers of all of them together and ``inner`` for the speed between
# two. Peak and memory come from the GPU's name if the table of hardware has it. With ``typical_prices: true``, so do
# prices.
#
# Numbers may also be given in SI, under names that say so: ``latency_s``, ``bandwidth_bytes_per_s``,
# ``peak_flop_per_s``, ``memory_bytes``, ``uplink_bytes_per_s``, ``downlink_bytes_per_s`` and ``message_s``. For a
# measured network, ``measured`` holds the times of messages of several sizes over each link, one way.


def topology_from_mapping(
    data: dict[str, Any], *, where: str = "topology", name: str = "drawn", empty_regions: bool = False
) -> Topology:
    """Return the topology that a YAML file's mapping describes. ``where`` begins every error message.

    A region without devices is refused unless ``empty_regions``, because usually its count is missing. Raises
    FileError, TopologyError or UnknownName.
    """
    file = parse(TopologyFile, data, where, version="dtfm_topology")
    with located(where):
        topology = _assemble(file, name)
        if not empty_regions:
            _refuse_empty_regions(file, topology)
        return topology


def _assemble(file: TopologyFile, name: str) -> Topology:
    regions = {region.name: region for region in file.regions}
    if len(regions) < len(file.regions):
        twice = Counter(region.name for region in file.regions).most_common(1)[0][0]
        raise TopologyError(f"region {twice!r} is given twice; names must be unique")
    for region_name in regions:
        check_text("region", region_name)
    check_count(sum((region.count or 0) + len(region.devices) for region in file.regions) + len(file.devices))
    sections = [section for region in file.regions for section in _region_sections(region)] + file.devices
    for section in sections:
        if section.region and section.region not in regions:
            known = unknown("region", section.region, regions)
            raise TopologyError(f"device {section.name}: {known}; wanted one with a line under 'regions'")
    paired = [(section, regions.get(section.region or "")) for section in sections]
    devices = [_device(section, region, file.typical_prices) for section, region in paired]
    latency_ms, gbps = _region_speeds(file, regions, devices)
    up, down = (np.array([_value(what, *p) or np.inf for p in paired]) for what in ("uplink_gbps", "downlink_gbps"))
    gbps = np.minimum(gbps, np.minimum(up[:, None], down[None, :]))
    _inside_hosts(file, devices, latency_ms, gbps)
    at = {device.name: i for i, device in enumerate(devices)}
    one_way_last = sorted(file.links, key=lambda link: link.between is None)
    for link in one_way_last:
        a, b = link.ends(link.between, "link")
        for end in (a, b):
            if end not in at:
                raise unknown("device", end, at)
        if a == b:
            raise TopologyError(f"link {a} -> {b}: a device has no link to itself; wanted two devices")
        for i, j in [(at[a], at[b])] if link.between is None else [(at[a], at[b]), (at[b], at[a])]:
            latency_ms[i, j], gbps[i, j] = link.latency_ms, link.bandwidth_gbps
    missing = np.argwhere(~np.eye(len(devices), dtype=bool) & (np.isnan(latency_ms) | np.isnan(gbps)))
    if missing.size:
        i, j = missing[0]
        raise TopologyError(
            f"no latency and bandwidth for {devices[i].name} -> {devices[j].name} ({len(missing)} such links); "
            f"wanted a 'default', the region's own, a 'between' or a 'links' line"
        )
    with np.errstate(over="ignore"):  # an overflow is refused as a link without end
        seconds, bytes_per_s = from_ms(latency_ms), from_gbps(gbps)
    return Topology(
        tuple(_with_blocks(file.measured, devices)),
        seconds,
        bytes_per_s,
        name=file.name or name,
        description=file.description,
        link_spread=file.link_spread,
        collectives=tuple(CollectiveSpeed(one.hosts, one.fraction, one.spread) for one in file.collectives),
        estimates=tuple(
            BandwidthEstimate(
                one.links, *(from_gbps(gbps) for gbps in (one.bandwidth_gbps, one.least_gbps, one.most_gbps))
            )
            for one in file.estimates
        ),
        **_message_times(file.measured, at),
    )


def _inside_hosts(file: TopologyFile, devices: list[Device], latency_ms: FloatArray, gbps: FloatArray) -> None:
    """Fill in the speeds between two devices of one host that the file states."""
    members = by_key((device.host, i) for i, device in enumerate(devices) if device.host)
    speeds: dict[str, SpeedSection] = {}
    for region in file.regions:
        if (speed := region.inside_host) is not None:
            speeds |= {device.host: speed for device in devices if device.host and device.region == region.name}
    for host in file.hosts:
        if host.name not in members:
            raise unknown("host", host.name, members)
        speeds[host.name] = host
    # A host's own line comes last and overrides its region's.
    for name, speed in speeds.items():
        grid = np.ix_(members[name], members[name])
        latency_ms[grid], gbps[grid] = speed.latency_ms, speed.bandwidth_gbps


def _refuse_empty_regions(file: TopologyFile, topology: Topology) -> None:
    for region in file.regions:
        if region.name not in topology.regions:
            raise TopologyError(f"region {region.name} has no devices; wanted a count, or devices")


def _with_blocks(measured: MeasuredSection | None, devices: list[Device]) -> Iterator[Device]:
    """Yield the devices, each with the measured block times of its GPU, if any.

    Raises UnknownName for a measured GPU that no device has, and TopologyError for one that is listed twice.
    """
    found = {} if measured is None else {spelling_of(one.gpu) or one.gpu: one for one in measured.gpus}
    if measured is not None and len(found) < len(measured.gpus):
        raise TopologyError("a GPU is twice among measured gpus; wanted one part for each")
    if strange := sorted(found.keys() - {device.gpu for device in devices}):
        raise unknown("GPU of a device", strange[0], {device.gpu for device in devices})
    made = {gpu: _measured_gpu(section) for gpu, section in found.items()}
    for device in devices:
        yield replace(device, measured=made[device.gpu]) if device.gpu in made else device


def _measured_gpu(section: MeasuredGpuSection) -> MeasuredGpu:
    if section.dtype not in BYTES_PER_ELEMENT:
        raise unknown("dtype of a measured GPU", section.dtype, BYTES_PER_ELEMENT)
    sizes = ("d_model", "n_heads", "seq_len", "microbatch")
    return MeasuredGpu(
        blocks=tuple(
            MeasuredBlock(
                **{name: getattr(one, name) for name in sizes},
                forward_s=from_ms(one.forward_ms),
                backward_s=from_ms(one.backward_ms),
            )
            for one in section.blocks
        ),
        block_launch_s=from_ms(section.block_launch_ms),
        step_bytes=section.step_gib * GiB,
        **{name: getattr(section, name) for name in ("dtype", "host", "date", "versions")},
    )


def _message_times(measured: MeasuredSection | None, at: dict[str, int]) -> dict[str, Any]:
    """Return ``message_bytes`` and ``message_s`` of a Topology, with NaN for pairs that were not measured.

    Empty if the file states neither message sizes nor links that were measured.
    """
    if measured is None or not (measured.message_bytes or measured.links):
        return {}
    n_sizes = len(measured.message_bytes)
    check_sizes(n_sizes, len(at))
    message_ms = np.full((len(at), len(at), n_sizes), np.nan)
    for link in measured.links:
        where = f"measured link {link.source} -> {link.target}"
        for end in (link.source, link.target):
            if end not in at:
                raise unknown("device", end, at)
        if link.source == link.target:
            raise TopologyError(f"{where}: a device has no link to itself; wanted two devices")
        if len(link.message_ms) != n_sizes:
            raise TopologyError(f"{where} has {len(link.message_ms)} message_ms; wanted {n_sizes}, one for each size")
        i, j = at[link.source], at[link.target]
        if not np.isnan(message_ms[i, j]).all():
            raise TopologyError(f"{where} stands twice; wanted one line a direction")
        message_ms[i, j] = link.message_ms
    return {"message_bytes": measured.message_bytes, "message_s": from_ms(message_ms)}


def _region_speeds(
    file: TopologyFile, regions: dict[str, RegionSection], devices: list[Device]
) -> tuple[FloatArray, FloatArray]:
    """Return (N, N) latency_ms and bandwidth_gbps that the file's ``default``, ``regions`` and ``between`` give. Each
    of these overrides the ones before it. NaN where none states a value."""
    n = len(devices)
    latency_ms, gbps = np.full((n, n), np.nan), np.full((n, n), np.nan)
    if file.default:
        latency_ms[:], gbps[:] = file.default.latency_ms, file.default.bandwidth_gbps
    members: dict[str, list[int]] = {name: [] for name in regions}
    for i, device in enumerate(devices):
        if device.region in members:
            members[device.region].append(i)
    for region in file.regions:
        grid = np.ix_(members[region.name], members[region.name])
        if region.latency_ms is not None:
            latency_ms[grid] = region.latency_ms
        if region.bandwidth_gbps is not None:
            gbps[grid] = region.bandwidth_gbps
    # Lines for one way override those for both.
    one_way_last = sorted(file.between, key=lambda pair: pair.regions is None)
    for pair in one_way_last:
        a, b = pair.ends(pair.regions, "region pair")
        if a == b:
            raise TopologyError(f"between {a} and itself: wanted latency_ms and bandwidth_gbps of the region")
        there, back = (members[r] if r in members else _refuse(unknown("region", r, regions)) for r in (a, b))
        for grid in [np.ix_(there, back)] if pair.regions is None else [np.ix_(there, back), np.ix_(back, there)]:
            latency_ms[grid], gbps[grid] = pair.latency_ms, pair.bandwidth_gbps
    return latency_ms, gbps


def _region_sections(region: RegionSection) -> list[DeviceSection]:
    """Return the region's devices, counted ones first, each with its region and, if the file says ``per_host``, its
    host."""
    for section in region.devices:
        if section.region not in (None, region.name):
            raise TopologyError(f"device {section.name} stands under region {region.name} but says {section.region}")
    if region.per_host is not None and region.host is not None:
        raise TopologyError(f"region {region.name}: both host and per_host are given; wanted one of them")
    counted = [DeviceSection(name=f"{region.name}-{i}", region=region.name) for i in range(region.count or 0)]
    sections = counted + [section.model_copy(update={"region": region.name}) for section in region.devices]
    if region.per_host is None:
        return sections
    hosts = (counted_host(region.name, i // region.per_host) for i in range(len(sections)))
    return [s.model_copy(update={"host": s.host or host}) for s, host in zip(sections, hosts, strict=True)]


def _value(what: str, section: DeviceSection, region: RegionSection | None) -> Any:
    """Return the device's own value of a field, or else its region's."""
    value = getattr(section, what)
    return value if value is not None or region is None else getattr(region, what)


def _device(section: DeviceSection, region: RegionSection | None, typical_prices: bool) -> Device:
    gpu, tflops, gib, price = (
        _value(what, section, region) for what in ("gpu", "peak_tflops", "memory_gib", "price_per_hour")
    )
    if price is None and typical_prices:
        price = typical_price(gpu or PAPERS_GPU)
    fields: dict[str, Any] = {} if tflops is None else {"peak_flop_per_s": tflops * TERA}
    fields |= {} if gib is None else {"memory_bytes": gib * GiB}
    fields |= {} if gpu is None else {"gpu": gpu}
    fields |= {} if price is None else {"price_per_hour": price}
    fields |= {"host": _value("host", section, region) or "", "gpus": section.gpus}
    if section.inner is not None:
        fields["inner_latency_s"] = from_ms(section.inner.latency_ms)
        fields["inner_bandwidth_bytes_per_s"] = from_gbps(section.inner.bandwidth_gbps)
    return Device(name=section.name, region=region.name if region else "", position=section.position, **fields)


def _refuse(error: Exception) -> NoReturn:
    raise error


# ---------------------------------------------------------------------------------------------------------------------
# The format ``yaml`` of ``files.topologies``.


def read(path: Path) -> Topology:
    """Read the topology in a YAML or JSON file. Raises FileError, TopologyError or UnknownName."""
    return topology_from_mapping(read_mapping(path), where=path.name, name=title_of(path))


def write(topology: Topology, path: Path) -> Path:
    """Write the whole topology, as JSON if the suffix is ``.json``, otherwise as YAML. Return the path.

    The most common link speeds become defaults, the rest exceptions.
    """
    data = topology_to_mapping(topology)
    if path.suffix.lower() == ".json":
        return write_text(path, json.dumps(data, indent=1) + "\n")
    return write_yaml(path, data)
