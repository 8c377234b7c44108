"""Topologies from mappings as people write them in YAML: regions with defaults, region pairs, cards, single links.

The speed of a pair of devices is that of the most specific entry for it: a one-way link; a link; its host; its
region, or an entry between its two regions (in one direction if that has ``from`` and ``to``); the default. Network
cards, given by ``uplink_gbps`` and ``downlink_gbps`` of a device or a region, cap the bandwidth that a region or the
default gives, never that of a link or host: the bandwidth of i -> j is the least of the entry's, i's uplink and j's
downlink. Devices of one ``host`` share its card for messages to other hosts. A device or a region names its host, or a
region has ``per_host: 8``, which counts its devices into ``region-host-0`` and so on; ``inside_host`` of a region, or
a line under ``hosts``, is the speed between two devices of a host. A device of several ``gpus`` acts as one, with the
numbers of all of them together and ``inner`` for the speed between two. Peak
and memory come from the GPU's name where the table of hardware has it; with ``typical_prices: true`` so do prices.
Numbers may also be given in SI, under names that say so: ``latency_s``, ``bandwidth_bytes_per_s``,
``peak_flop_per_s``, ``memory_bytes``, ``uplink_bytes_per_s``, ``downlink_bytes_per_s`` and ``message_s``.
For a measured network, ``measured`` holds the times of messages of several sizes over each link, one way.
"""

from collections import Counter
from typing import Any, NoReturn

import numpy as np

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.network import (
    PAPERS_GPU,
    Device,
    Estimate,
    Topology,
    check_count,
    check_sizes,
    check_text,
    typical_price,
)
from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import TERA, FloatArray, GiB, by_key, from_gbps, from_ms
from dtfm_lab.files.reading import located, parse
from dtfm_lab.files.topology_sections import DeviceSection, MeasuredSection, RegionSection, Speed, TopologyFile


def topology_from_mapping(
    data: dict[str, Any], *, where: str = "topology", name: str = "drawn", empty_regions: bool = False
) -> Topology:
    """A topology from what a YAML file holds; ``where`` begins every error message.

    A region without devices is refused unless ``empty_regions``, because more often than not its count is missing.
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
        tuple(devices),
        seconds,
        bytes_per_s,
        name=file.name or name,
        description=file.description,
        link_spread=file.link_spread,
        estimates=tuple(
            Estimate(one.links, *(from_gbps(gbps) for gbps in (one.bandwidth_gbps, one.least_gbps, one.most_gbps)))
            for one in file.estimates
        ),
        **_message_times(file.measured, at),
    )


def _inside_hosts(file: TopologyFile, devices: list[Device], latency_ms: FloatArray, gbps: FloatArray) -> None:
    """Fill in the speeds between two devices of one host, where the file gives them."""
    members = by_key((device.host, i) for i, device in enumerate(devices) if device.host)
    speeds: dict[str, Speed] = {}
    for region in file.regions:
        if (speed := region.inside_host) is not None:
            speeds |= {device.host: speed for device in devices if device.host and device.region == region.name}
    for host in file.hosts:
        if host.name not in members:
            raise unknown("host", host.name, members)
        speeds[host.name] = host
    for name, speed in speeds.items():
        grid = np.ix_(members[name], members[name])
        latency_ms[grid], gbps[grid] = speed.latency_ms, speed.bandwidth_gbps


def _refuse_empty_regions(file: TopologyFile, topology: Topology) -> None:
    for region in file.regions:
        if region.name not in topology.regions:
            raise TopologyError(f"region {region.name} has no devices; wanted a count, or devices")


def _message_times(measured: MeasuredSection | None, at: dict[str, int]) -> dict[str, Any]:
    """The fields of a Topology for times by message size, with NaN for pairs that have none."""
    if measured is None:
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
    """(N, N) latency_ms and bandwidth_gbps from regions and the default; NaN where these give none."""
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
    """The region's devices, counted ones first, each with its region."""
    for section in region.devices:
        if section.region not in (None, region.name):
            raise TopologyError(f"device {section.name} stands under region {region.name} but says {section.region}")
    if region.per_host is not None and region.host is not None:
        raise TopologyError(f"region {region.name}: both host and per_host are given; wanted one of them")
    counted = [DeviceSection(name=f"{region.name}-{i}", region=region.name) for i in range(region.count or 0)]
    sections = counted + [section.model_copy(update={"region": region.name}) for section in region.devices]
    if region.per_host is None:
        return sections
    hosts = (f"{region.name}-host-{i // region.per_host}" for i in range(len(sections)))
    return [s.model_copy(update={"host": s.host or host}) for s, host in zip(sections, hosts, strict=True)]


def _value(what: str, section: DeviceSection, region: RegionSection | None) -> Any:
    """The device's own value of a field, or if it has none its region's."""
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
