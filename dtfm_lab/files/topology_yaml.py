"""Topologies in YAML and JSON, which hold everything: written with the commonest speeds as defaults and the rest as
exceptions, for people to read. ``topology_reading`` describes the keys.
"""

import json
from collections import Counter
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

from dtfm_lab.domain.network import LINK_SPREAD, Device, Estimate, Topology
from dtfm_lab.domain.units import TERA, FloatArray, GiB, to_gbps, to_ms
from dtfm_lab.files.reading import read_mapping, title_of, write_text, write_yaml
from dtfm_lab.files.topology_reading import topology_from_mapping

suffixes = (".yaml", ".yml", ".json")
Speed = tuple[float, float]
"""Latency in ms and bandwidth in Gbit/s."""


def read(path: Path) -> Topology:
    """The topology of a YAML or JSON file; raises FileError, TopologyError or UnknownName."""
    return topology_from_mapping(read_mapping(path), where=path.name, name=title_of(path))


def write(topology: Topology, path: Path) -> Path:
    """Write everything, the commonest speeds as defaults."""
    data = topology_to_mapping(topology)
    if path.suffix.lower() == ".json":
        return write_text(path, json.dumps(data, indent=1) + "\n")
    return write_yaml(path, data)


def topology_to_mapping(topology: Topology, *, hosts: bool = True) -> dict[str, Any]:
    """A mapping from which ``topology_from_mapping`` makes an equal topology.

    Its matrices come back exactly where they were milliseconds and Gbit/s once, else to the last bit or two of a
    float. Network cards stand for links where that saves lines. Without ``hosts`` it says no speed inside a host, which
    the canvas cannot draw.
    """
    latency_ms, gbps = to_ms(topology.latency_s), to_gbps(topology.bandwidth_bytes_per_s)
    devices = [_device_mapping(d) for d in topology.devices]
    lines = _entries(topology, latency_ms, gbps, hosts=hosts)
    if len(lines["links"]) > len(topology):
        up, down = _cards(gbps)
        cap_gbps = np.minimum(up[:, None], down[None, :])
        capped = _entries(topology, latency_ms, gbps, hosts=hosts, cap_gbps=cap_gbps)
        if len(capped["links"]) + len(topology) < len(lines["links"]):
            lines = capped
            for device, device_up, device_down in zip(devices, up, down, strict=True):
                device |= {"uplink_gbps": float(device_up), "downlink_gbps": float(device_down)}
    data: dict[str, Any] = {"dtfm_topology": 1, "name": topology.name}
    data |= {"description": topology.description} if topology.description else {}
    data |= {} if topology.link_spread == LINK_SPREAD else {"link_spread": topology.link_spread}
    data |= {"estimates": [_estimate(one) for one in topology.estimates]} if topology.estimates else {}
    data |= {"default": lines["default"]} if lines["default"] else {}
    data |= {"regions": lines["regions"], "devices": devices}
    data |= {"hosts": lines["hosts"]} if lines["hosts"] else {}
    data |= {"between": lines["between"], "links": lines["links"]}
    return data | _measured(topology)


def _estimate(estimate: Estimate) -> dict[str, Any]:
    gbps = ("bandwidth_gbps", estimate.bandwidth_bytes_per_s), ("least_gbps", estimate.least_bytes_per_s)
    rates = dict((*gbps, ("most_gbps", estimate.most_bytes_per_s)))
    return {"links": estimate.where} | {name: float(to_gbps(rate)) for name, rate in rates.items()}


def _measured(topology: Topology) -> dict[str, Any]:
    """Times by message size, with an entry for each measured directed link; empty where none was measured."""
    if topology.message_bytes is None or topology.message_s is None:
        return {}
    names, times = topology.names, to_ms(topology.message_s)
    links = [
        {"from": names[i], "to": names[j], "message_ms": times[i, j].tolist()}
        for i, j in np.argwhere(~np.isnan(times[:, :, 0]))
    ]
    return {"measured": {"message_bytes": topology.message_bytes.tolist(), "links": links}}


def _cards(gbps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(N,) the narrowest uplinks and the narrowest downlinks that cap no link below its bandwidth."""
    apart = gbps.copy()
    np.fill_diagonal(apart, 0.0)
    return apart.max(axis=1), apart.max(axis=0)


def _uncapped(region_of: list[str], gbps: FloatArray, cap_gbps: FloatArray) -> FloatArray:
    """(N, N) bandwidths between regions before cards cap them: the widest that no card explains."""
    lines = np.full_like(gbps, gbps[~np.eye(len(gbps), dtype=bool)].max())
    members = {r: [i for i, region in enumerate(region_of) if region == r] for r in region_of}
    for a, b in product(members, members):
        block = np.ix_(members[a], members[b])
        if (unexplained := gbps[block][gbps[block] < cap_gbps[block]]).size:
            lines[block] = unexplained.max()
    return lines


def _entries(
    topology: Topology, latency_ms: FloatArray, gbps: FloatArray, *, hosts: bool, cap_gbps: FloatArray | None = None
) -> dict[str, Any]:
    """The file's ``default``, ``regions`` and ``between``, whose bandwidths cards may cap, ``hosts`` and ``links``."""
    n = len(topology)
    region_of = [d.region for d in topology.devices]
    if cap_gbps is None:
        line_gbps, cap_gbps = gbps, np.full_like(gbps, np.inf)
    else:
        line_gbps = _uncapped(region_of, gbps, cap_gbps)
    real, speed = (
        [list(zip(*rows, strict=True)) for rows in zip(latency_ms.tolist(), bandwidth.tolist(), strict=True)]
        for bandwidth in (gbps, line_gbps)
    )
    cap = cap_gbps.tolist()

    def common(pairs: list[tuple[int, int]]) -> Speed | None:
        return Counter(speed[i][j] for i, j in pairs).most_common(1)[0][0] if pairs else None

    every_pair = [(i, j) for i in range(n) for j in range(n) if i != j]
    across = [(i, j) for i, j in every_pair if region_of[i] != region_of[j] or not region_of[i]]
    default = common(across or every_pair)
    members = {r: [i for i in range(n) if region_of[i] == r] for r in topology.regions if r}
    stated = {(r, r): common(_apart(topology, ids, hosts=hosts)) for r, ids in members.items()}
    between = []
    for a, b in combinations(members, 2):
        there = [(i, j) for i in members[a] for j in members[b]]
        back = [(j, i) for i, j in there]
        if common(there) != common(back):
            for source, target, pairs in ((a, b, there), (b, a, back)):
                if (s := common(pairs)) != default:
                    stated[source, target] = s
                    between.append({"from": source, "to": target, **_speed(s)})
        elif (s := common(there + back)) != default:
            stated[a, b] = stated[b, a] = s
            between.append({"regions": [a, b], **_speed(s)})

    host_of = [d.host for d in topology.devices]
    inside: dict[str, Speed] = {}

    def wrong(i: int, j: int) -> bool:
        if host_of[i] in inside and host_of[i] == host_of[j]:
            return inside[host_of[i]] != real[i][j]
        line = stated.get((region_of[i], region_of[j]), default)
        return line is None or (line[0], min(line[1], cap[i][j])) != real[i][j]

    for host in dict.fromkeys(host for host in host_of if host and hosts):
        ids = [i for i in range(n) if host_of[i] == host]
        pairs = [(i, j) for i in ids for j in ids if i != j]
        if any(wrong(i, j) for i, j in pairs):
            inside[host] = Counter(real[i][j] for i, j in pairs).most_common(1)[0][0]

    links: list[dict[str, Any]] = []
    names = topology.names
    for i, j in combinations(range(n), 2):
        apart = [(a, b) for a, b in ((i, j), (j, i)) if wrong(a, b)]
        if len(apart) == 2 and real[i][j] == real[j][i]:
            links.append({"between": [names[i], names[j]], **_speed(real[i][j])})
        else:
            links += [{"from": names[a], "to": names[b], **_speed(real[a][b])} for a, b in apart]
    return {
        "default": _speed(default),
        "regions": [{"name": r} | _speed(stated[r, r]) for r in members],
        "hosts": [{"name": host} | _speed(speed) for host, speed in inside.items()],
        "between": between,
        "links": links,
    }


def _apart(topology: Topology, devices: list[int], *, hosts: bool) -> list[tuple[int, int]]:
    """Pairs of different devices; with ``hosts``, of different hosts where there are any."""
    pairs = [(i, j) for i in devices for j in devices if i != j]
    host = [device.host for device in topology.devices]
    return [(i, j) for i, j in pairs if hosts and (host[i] != host[j] or not host[i])] or pairs


def _device_mapping(device: Device) -> dict[str, Any]:
    data: dict[str, Any] = {"name": device.name}
    data |= {"region": device.region} if device.region else {}
    data |= {"host": device.host} if device.host else {}
    data |= {"gpu": device.gpu, "peak_tflops": device.peak_flop_per_s / TERA, "memory_gib": device.memory_bytes / GiB}
    data |= {"price_per_hour": device.price_per_hour} if device.price_per_hour else {}
    if device.gpus > 1:
        inner = to_ms(device.inner_latency_s), to_gbps(device.inner_bandwidth_bytes_per_s)
        data |= {"gpus": device.gpus, "inner": _speed(inner)}
    data |= {"position": list(device.position)} if device.position else {}
    return data


def _speed(speed: Speed | None) -> dict[str, float]:
    return {} if speed is None else {"latency_ms": speed[0], "bandwidth_gbps": speed[1]}
