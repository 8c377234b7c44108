"""Between a Topology and the document that the editor draws: names, screen units, positions."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, sqrt
from typing import Any

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.domain.hardware import HARDWARE
from dtfm_lab.domain.topology import Device, Topology
from dtfm_lab.domain.units import TERA, GiB
from dtfm_lab.files import topology_from_mapping, topology_to_mapping

Document = dict[str, Any]

SPACING = 90.0
"""pixels between devices that have no position of their own"""
WIDER_THAN_HIGH = 1.7
"""the canvas, about"""


def empty_document(name: str = "drawn") -> Document:
    """A blank canvas: links as over an ordinary internet connection."""
    return {
        "name": name,
        "devices": [],
        "regions": [],
        "between": [],
        "links": [],
        "default": {"latency_ms": 20.0, "bandwidth_gbps": 0.1},
    }


def document_of(topology: Topology) -> Document:
    """What the editor shows of a topology."""
    mapping = topology_to_mapping(topology)
    default = mapping.get("default", empty_document()["default"])
    links = [
        {
            "source": (link.get("between") or (link["from"], link["to"]))[0],
            "target": (link.get("between") or (link["from"], link["to"]))[1],
            "latency_ms": link["latency_ms"],
            "bandwidth_gbps": link["bandwidth_gbps"],
            "one_way": "from" in link,
        }
        for link in mapping["links"]
    ]
    return {
        "name": topology.name,
        "devices": _positioned(topology),
        "regions": [{**default, **region} for region in mapping["regions"]],
        "between": mapping["between"],
        "links": links,
        "default": default,
    }


def topology_of(document: Document, known: Iterable[Device] = ()) -> Topology:
    """The topology that a document draws.

    ``known`` devices keep their own numbers while their GPU stays what it was; a device whose GPU
    was changed takes the numbers of a known one or of the table. Raises TopologyError in one line.
    """
    if not document["devices"]:
        raise TopologyError("the canvas is empty: press D and click to add a device")
    by_name = {device.name: device for device in known}
    by_gpu = {device.gpu: device for device in known}
    devices = []
    for drawn in document["devices"]:
        section: dict[str, Any] = {"name": drawn["name"], "gpu": drawn["gpu"], "position": (drawn["x"], drawn["y"])}
        if drawn["region"]:
            section["region"] = drawn["region"]
        same = by_name.get(drawn["name"])
        model = same if same is not None and same.gpu == drawn["gpu"] else by_gpu.get(drawn["gpu"])
        if model is not None:
            section |= {"peak_tflops": model.peak_flop_per_s / TERA, "memory_gib": model.memory_bytes / GiB}
            section["price_per_hour"] = model.price_per_hour
        devices.append(section)
    links = []
    for link in document["links"]:
        ends = [link["source"], link["target"]]
        where = {"from": ends[0], "to": ends[1]} if link.get("one_way") else {"between": ends}
        links.append({**where, "latency_ms": link["latency_ms"], "bandwidth_gbps": link["bandwidth_gbps"]})
    mapping = {
        "dtfm_topology": 1,
        "name": document.get("name") or "drawn",
        "default": document["default"],
        "regions": document["regions"],
        "devices": devices,
        "between": document["between"],
        "links": links,
    }
    return topology_from_mapping(mapping, where=document.get("name") or "drawn")


def gpus_of(topology: Topology | None) -> list[str]:
    """What a device may be: the network's own kinds first, then the table."""
    own = dict.fromkeys(device.gpu for device in topology.devices) if topology else {"laptop": None}
    return list(own | dict.fromkeys(HARDWARE))


def _positioned(topology: Topology) -> list[dict[str, Any]]:
    """Devices with positions: their own, or a block a region, blocks on shelves."""
    sides = {r: ceil(sqrt(sum(d.region == r for d in topology.devices))) for r in topology.regions}
    corners = _shelves(sides)
    placed = dict.fromkeys(sides, 0)
    drawn = []
    for device in topology.devices:
        (left, top), side, slot = corners[device.region], sides[device.region], placed[device.region]
        placed[device.region] += 1
        x = (left + slot % side + 1) * SPACING
        y = (top + slot // side + 1) * SPACING
        if device.position is not None:
            x, y = device.position
        drawn.append({"name": device.name, "region": device.region, "gpu": device.gpu, "x": x, "y": y})
    return drawn


def _shelves(sides: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Where each region's square block begins, in devices: shelves that fill a canvas wider than high."""
    width = WIDER_THAN_HIGH * sqrt(sum((side + 1) ** 2 for side in sides.values()))
    corners, left, top, height = {}, 0, 0, 0
    for region, side in sides.items():
        if left and left + side + 1 > width:
            left, top, height = 0, top + height, 0
        corners[region] = (left, top)
        left += side + 1
        height = max(height, side + 1)
    return corners
