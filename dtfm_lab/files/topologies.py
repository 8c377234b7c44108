"""Topologies as versioned YAML: regions with defaults, region pairs, single links, one-way links.

A pair of devices takes the most particular line that speaks of it: a one-way link, a link, the
inside of its region or the line between its two regions, the default.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from dtfm_lab.domain.errors import LabError, TopologyError
from dtfm_lab.domain.hardware import HARDWARE
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.topology import Device, Topology
from dtfm_lab.domain.units import TERA, GiB, from_gbps, from_ms
from dtfm_lab.files.reading import Section, parse, read_mapping, require_version

MOST_DEVICES = 4096
"""a network is dense: so many devices fill matrices of 134 MB each"""


class Speed(Section):
    latency_ms: float = Field(ge=0, allow_inf_nan=False)
    bandwidth_gbps: float = Field(gt=0, allow_inf_nan=False)


class HardwareSection(Section):
    gpu: str | None = None
    peak_tflops: float | None = Field(None, gt=0)
    memory_gib: float | None = Field(None, gt=0)
    price_per_hour: float | None = Field(None, ge=0)


class DeviceSection(HardwareSection):
    name: str
    region: str | None = None
    position: tuple[float, float] | None = None


class RegionSection(HardwareSection):
    name: str
    count: int = Field(0, ge=0, le=MOST_DEVICES)
    devices: list[DeviceSection] = Field(default_factory=list)
    latency_ms: float | None = Field(None, ge=0, allow_inf_nan=False)
    bandwidth_gbps: float | None = Field(None, gt=0, allow_inf_nan=False)


class BetweenSection(Speed):
    regions: tuple[str, str]


class LinkSection(Speed):
    between: tuple[str, str] | None = None
    source: str | None = Field(None, alias="from")
    target: str | None = Field(None, alias="to")


class TopologyFile(Section):
    dtfm_topology: int
    name: str | None = None
    description: str = ""
    default: Speed | None = None
    regions: list[RegionSection] = Field(default_factory=list)
    devices: list[DeviceSection] = Field(default_factory=list)
    between: list[BetweenSection] = Field(default_factory=list)
    links: list[LinkSection] = Field(default_factory=list)


def topology_names() -> list[str]:
    """The networks that come with the lab."""
    return sorted(path.stem for path in _shipped().glob("*.yaml"))


def load_topology(name_or_path: str | os.PathLike[str]) -> Topology:
    """A topology by name (see ``topology_names``) or from a YAML or JSON file.

    Raises FileError (unreadable, broken, unknown key), TopologyError (missing or impossible link)
    or UnknownName; each says where.
    """
    path = Path(name_or_path)
    if os.fspath(name_or_path) in topology_names():
        path = _shipped() / f"{name_or_path}.yaml"
    elif path.suffix not in (".yaml", ".yml", ".json") and not path.exists():
        raise unknown("topology", os.fspath(name_or_path), topology_names())
    return topology_from_mapping(read_mapping(path), where=path.name, name=path.stem)


def topology_from_mapping(data: dict[str, Any], *, where: str = "topology", name: str = "drawn") -> Topology:
    """A topology from what a YAML file holds; ``where`` begins every complaint."""
    require_version(data, "dtfm_topology", where)
    file = parse(TopologyFile, data, where)
    try:
        return _assemble(file, name)
    except LabError as error:
        raise type(error)(f"{where}: {error}") from None


def _shipped() -> Path:
    """Inside an installed package, or beside it in a checkout."""
    package = Path(__file__).parent.parent
    return package / "topologies" if (package / "topologies").is_dir() else package.parent / "topologies"


def _assemble(file: TopologyFile, name: str) -> Topology:
    regions = {region.name: region for region in file.regions}
    if len(regions) < len(file.regions):
        twice = Counter(region.name for region in file.regions).most_common(1)[0][0]
        raise TopologyError(f"region {twice!r} is given twice; names must be unique")
    devices = [d for region in file.regions for d in _region_devices(region)]
    for section in file.devices:
        if section.region and section.region not in regions:
            raise unknown("region", section.region, regions)
        devices.append(_device(section, regions.get(section.region or "")))
    names = [d.name for d in devices]
    if (n := len(devices)) > MOST_DEVICES:
        raise TopologyError(f"{n} devices; wanted at most {MOST_DEVICES}")
    latency_ms, gbps = np.full((n, n), np.nan), np.full((n, n), np.nan)
    if file.default:
        latency_ms[:], gbps[:] = file.default.latency_ms, file.default.bandwidth_gbps
    members = {r: [i for i, d in enumerate(devices) if d.region == r] for r in regions}
    for region in file.regions:
        grid = np.ix_(members[region.name], members[region.name])
        if region.latency_ms is not None:
            latency_ms[grid] = region.latency_ms
        if region.bandwidth_gbps is not None:
            gbps[grid] = region.bandwidth_gbps
    for pair in file.between:
        a, b = (members[r] if r in members else _no(unknown("region", r, regions)) for r in pair.regions)
        if pair.regions[0] == pair.regions[1]:
            raise TopologyError(
                f"between {pair.regions[0]} and itself: wanted latency_ms and bandwidth_gbps of the region"
            )
        for grid in (np.ix_(a, b), np.ix_(b, a)):
            latency_ms[grid], gbps[grid] = pair.latency_ms, pair.bandwidth_gbps
    one_way_last = sorted(file.links, key=lambda link: link.between is None)
    for link in one_way_last:
        for i, j in _ends(link, names):
            latency_ms[i, j], gbps[i, j] = link.latency_ms, link.bandwidth_gbps
    missing = np.argwhere(~np.eye(n, dtype=bool) & (np.isnan(latency_ms) | np.isnan(gbps)))
    if missing.size:
        i, j = missing[0]
        raise TopologyError(
            f"no latency and bandwidth for {names[i]} -> {names[j]} ({len(missing)} such links); "
            f"wanted a 'default', the region's own, a 'between' or a 'links' line"
        )
    return Topology(
        tuple(devices), from_ms(latency_ms), from_gbps(gbps), name=file.name or name, description=file.description
    )


def _ends(link: LinkSection, names: list[str]) -> list[tuple[int, int]]:
    one_way = link.source is not None and link.target is not None
    if (link.between is None) != one_way or (link.between and (link.source or link.target)):
        raise TopologyError("a link needs either 'between: [a, b]' or both 'from: a' and 'to: b'")
    ends = link.between or (str(link.source), str(link.target))
    for end in ends:
        if end not in names:
            raise unknown("device", end, names)
    if ends[0] == ends[1]:
        raise TopologyError(f"link {ends[0]} -> {ends[1]}: a device has no link to itself; wanted two devices")
    i, j = names.index(ends[0]), names.index(ends[1])
    return [(i, j)] if one_way else [(i, j), (j, i)]


def _region_devices(region: RegionSection) -> list[Device]:
    counted = [DeviceSection(name=f"{region.name}-{i}") for i in range(region.count)]
    for section in region.devices:
        if section.region not in (None, region.name):
            raise TopologyError(f"device {section.name} stands under region {region.name} but says {section.region}")
    return [_device(section, region) for section in [*counted, *region.devices]]


def _device(section: DeviceSection, region: RegionSection | None) -> Device:
    def own(what: str) -> Any:
        value = getattr(section, what)
        return value if value is not None or region is None else getattr(region, what)

    gpu = own("gpu")
    known = HARDWARE.get(gpu or "")
    tflops, gib = own("peak_tflops"), own("memory_gib")
    fields: dict[str, Any] = {
        "gpu": gpu,
        "peak_flop_per_s": tflops * TERA if tflops is not None else known and known.peak_flop_per_s,
        "memory_bytes": gib * GiB if gib is not None else known and known.memory_bytes,
        "price_per_hour": own("price_per_hour"),
        "position": section.position,
    }
    given = {k: v for k, v in fields.items() if v is not None}
    return Device(name=section.name, region=region.name if region else "", **given)


def _no(error: Exception) -> Any:
    raise error
