"""Write topologies so that people can read them: the commonest speeds as defaults, the rest as exceptions."""

from __future__ import annotations

import os
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from dtfm_lab.domain.topology import Device, Topology
from dtfm_lab.domain.units import TERA, GiB, to_gbps, to_ms
from dtfm_lab.files.reading import write_text


def topology_to_mapping(topology: Topology) -> dict[str, Any]:
    """What to write for a topology: the commonest speeds as defaults, the rest as exceptions.

    ``topology_from_mapping`` gives the matrices back: exactly, where they were milliseconds and Gbit/s
    once, else to the last bit or two of a float.
    """
    n = len(topology)
    region_of = [d.region for d in topology.devices]
    speed = [
        [
            (float(to_ms(topology.latency_s[i, j])), float(to_gbps(topology.bandwidth_bytes_per_s[i, j])))
            for j in range(n)
        ]
        for i in range(n)
    ]

    def common(pairs: list[tuple[int, int]]) -> tuple[float, float] | None:
        return Counter(speed[i][j] for i, j in pairs).most_common(1)[0][0] if pairs else None

    every_pair = [(i, j) for i in range(n) for j in range(n) if i != j]
    across = [(i, j) for i, j in every_pair if region_of[i] != region_of[j] or not region_of[i]]
    default = common(across or every_pair)
    members = {r: [i for i in range(n) if region_of[i] == r] for r in topology.regions if r}
    inside = {r: common([(i, j) for i in ids for j in ids if i != j]) for r, ids in members.items()}
    between = {}
    for a, b in combinations(members, 2):
        pairs = [(i, j) for i in members[a] for j in members[b]]
        if (s := common(pairs + [(j, i) for i, j in pairs])) != default:
            between[a, b] = s

    def stated(i: int, j: int) -> tuple[float, float] | None:
        a, b = region_of[i], region_of[j]
        if a and a == b:
            return inside[a]
        return between.get((a, b)) or between.get((b, a)) or default

    links: list[dict[str, Any]] = []
    names = topology.names
    for i, j in combinations(range(n), 2):
        if speed[i][j] == speed[j][i]:
            if speed[i][j] != stated(i, j):
                links.append({"between": [names[i], names[j]], **_speed(speed[i][j])})
        else:
            for a, b in ((i, j), (j, i)):
                if speed[a][b] != stated(a, b):
                    links.append({"from": names[a], "to": names[b], **_speed(speed[a][b])})
    data: dict[str, Any] = {"dtfm_topology": 1, "name": topology.name}
    data |= {"description": topology.description} if topology.description else {}
    data |= {"default": _speed(default)} if default else {}
    data["regions"] = [{"name": r} | (_speed(s) if (s := inside[r]) else {}) for r in members]
    data["devices"] = [_device_mapping(d) for d in topology.devices]
    data["between"] = [{"regions": list(pair), **_speed(s)} for pair, s in between.items()]
    data["links"] = links
    return data


def save_topology(topology: Topology, path: str | os.PathLike[str]) -> Path:
    """Write a topology as YAML."""
    return write_text(path, yaml.safe_dump(topology_to_mapping(topology), sort_keys=False, allow_unicode=True))


def _device_mapping(device: Device) -> dict[str, Any]:
    data: dict[str, Any] = {"name": device.name}
    data |= {"region": device.region} if device.region else {}
    data |= {"gpu": device.gpu, "peak_tflops": device.peak_flop_per_s / TERA, "memory_gib": device.memory_bytes / GiB}
    data |= {"price_per_hour": device.price_per_hour} if device.price_per_hour else {}
    data |= {"position": list(device.position)} if device.position else {}
    return data


def _speed(speed: tuple[float, float]) -> dict[str, float]:
    return {"latency_ms": speed[0], "bandwidth_gbps": speed[1]}
