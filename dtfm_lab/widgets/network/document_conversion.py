"""Convert a Topology to the document that is drawn, and back: names, screen units (ms, Gbit/s), positions.

A document is plain JSON::

    name, description, default: {latency_ms, bandwidth_gbps}, fill: "default" | "distance" | "drawn"
    devices   {name, region, gpu, x, y}, and optionally:
              host, gpus, price_per_hour, uplink_gbps, downlink_gbps,
              inner {latency_ms, bandwidth_gbps} of a group of GPUs,
              hardware {gpu, peak_tflops, memory_gib} (valid while it names the device's GPU), measured_as,
              members and inside {latency_ms, bandwidth_gbps} of a host that stands for all its devices
    regions   {name, latency_ms, bandwidth_gbps}
    between   {regions: [a, b], latency_ms, bandwidth_gbps}, or one way with "from" and "to" for "regions"
    links     {source, target, latency_ms, bandwidth_gbps, one_way}

A device without ``hardware`` gets the hardware of another device with the same GPU, else of the GPU table. A device
without a price gets the price of another device with the same GPU, else it has no price. ``measured_as`` is the name
that the device had when its messages were timed.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from math import ceil, sqrt
from typing import Any, TypeGuard

import numpy as np

from dtfm_lab.domain.errors import LabError, TopologyError
from dtfm_lab.domain.network import HARDWARE, Device, Topology, as_number, hardware_fields
from dtfm_lab.domain.units import TERA, GiB
from dtfm_lab.files import topology_from_mapping, topology_to_mapping
from dtfm_lab.widgets.network.drawing import Document, empty_document
from dtfm_lab.widgets.network.drawn_hosts import by_host, with_members
from dtfm_lab.widgets.network.links import filled

KEPT = ("host", "gpus", "inner", "uplink_gbps", "downlink_gbps")
"""Keys of a device in a file that the drawing keeps unchanged."""
SPACING = 90.0
"""Pixels between devices that have no position."""
WIDER_THAN_HIGH = 1.25
"""Approximate aspect ratio of the canvas."""
BESIDE = 3.5
"""Gap between the blocks of two regions side by side, as a multiple of ``SPACING``. Links and labels go there."""
BELOW = 2
"""Gap between the blocks of two regions one below the other, as a multiple of ``SPACING``."""
ALIKE = 1e-9
"""Relative difference that converting a latency or bandwidth to ms or Gbit/s and back may cause."""


LIMITS = {
    "latency_ms": (0.0, 1e6),
    "bandwidth_gbps": (1e-6, 1e6),
    "uplink_gbps": (1e-6, 1e6),
    "downlink_gbps": (1e-6, 1e6),
    "price_per_hour": (0.0, 1e6),
}
"""Minimum and maximum of numbers typed into a field: up to 1,000 s of latency, 1 kbit/s to 1 Pbit/s, up to $ 1 million.

This is wider than any real network, and narrow enough that no number on the screen needs 29 digits.
"""


def document_of(topology: Topology) -> Document:
    """Return the document of a topology. It lacks the measured times by message size, which ``topology_of`` adds again.

    A large network is drawn by host, see ``drawn_hosts``.
    """
    # Thousands of GPUs cannot be drawn one by one; their hosts can.
    if (grouped := by_host(topology)) is not None:
        hosts, more = grouped
        document = document_of(hosts)
        return document | {"devices": [one | own for one, own in zip(document["devices"], more, strict=True)]}
    mapping = topology_to_mapping(topology, hosts=False)
    default = mapping.get("default") or empty_document()["default"]
    links = []
    for link in mapping["links"]:
        source, target = link.get("between") or (link["from"], link["to"])
        speed = {key: link[key] for key in ("latency_ms", "bandwidth_gbps")}
        links.append({"source": source, "target": target, **speed, "one_way": "from" in link})
    return {
        "name": topology.name,
        **({"description": topology.description} if topology.description else {}),
        "devices": _drawn_devices(topology, mapping["devices"]),
        "regions": [{**default, **region} for region in mapping["regions"]],
        "between": mapping["between"],
        "links": links,
        "default": default,
    }


def topology_of(document: Document, known: Topology | None = None) -> Topology:
    """Return the topology that a document draws.

    ``known`` is the network as it was opened. Links that have not changed keep its times by message size, and devices
    with the same GPU keep its measured block times.

    Raises TopologyError in one line that names the thing, the value found and the value wanted.
    """
    if not document["devices"]:
        raise TopologyError("the canvas is empty: press D and click to add a device")
    mapping = {
        "dtfm_topology": 1,
        "name": document.get("name") or "drawn",
        "description": document.get("description", ""),
        "default": document["default"],
        "regions": document["regions"],
        "devices": _sections(document["devices"]),
        "between": [*map(_between, filled(document)), *map(_between, document["between"])],
        "links": [_link(link) for link in document["links"]],
    }
    _check_limits(mapping)
    try:
        topology = topology_from_mapping(mapping, where=mapping["name"], empty_regions=True)
    except LabError as error:
        raise TopologyError(_named(str(error), mapping)) from None
    topology = with_members(topology, document)
    return topology if known is None else with_times(_with_blocks(topology, known), known, document)


def _with_blocks(topology: Topology, known: Topology) -> Topology:
    """Return the topology with ``known``'s block times on every device whose GPU was measured there."""
    measured = {device.gpu: device.measured for device in known.devices if device.measured is not None}
    devices = (replace(device, measured=measured.get(device.gpu)) for device in topology.devices)
    return replace(topology, devices=tuple(devices)) if measured else topology


def _check_limits(mapping: Mapping[str, Any]) -> None:
    """Raise TopologyError for a positive number outside ``LIMITS``, before anything is computed from it.

    The file reader refuses zero, negative and missing numbers where they are not valid.
    """
    drawn = [(part, at, one) for part in PARTS for at, one in enumerate(mapping[part])]
    for part, at, one in [*drawn, ("default", None, mapping["default"])]:
        for key in LIMITS.keys() & one.keys():
            number, (least, most) = as_number(one[key]), LIMITS[key]
            if (
                number is not None and number > 0 and not least <= number <= most
            ):  # reading the topology refuses zero, negative and missing numbers
                where = f"{part}." if at is None else f"{part}[{at}]."
                raise TopologyError(_named(f"{where}{key} is {number:.6g}; wanted {least:.6g} to {most:.6g}", mapping))


def _named(error: str, mapping: Mapping[str, Any]) -> str:
    """Return an error of the file reader with the drawn name of the device, region or link.

    The file reader gives its position instead, such as ``devices[0].gpu``.
    """
    line = error.removeprefix(f"{mapping['name']}: ").replace("default.", "all other pairs: ", 1)

    def thing(found: re.Match[str]) -> str:
        part = found[1]
        one = mapping[part][int(found[2])]
        ends = one.get("regions") or one.get("between") or (one.get("from"), one.get("to"))
        noun = {"devices": "device", "regions": "inside region", "between": "region pair", "links": "link"}[part]
        return f"{noun} {one['name'] if 'name' in one else ' – '.join(ends)}: "

    # Only the first: an error names one place.
    return re.sub(r"\b(devices|regions|between|links)\[(\d+)\]\.", thing, line, count=1)


PARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "devices": (("name", "region", "gpu"), ("x", "y")),
    "regions": (("name",), ("latency_ms", "bandwidth_gbps")),
    "between": ((), ("latency_ms", "bandwidth_gbps")),
    "links": (("source", "target"), ("latency_ms", "bandwidth_gbps")),
}
"""{part: (texts, numbers)}: the keys that every entry of a part needs to be drawn."""


def is_document(value: Any) -> TypeGuard[Document]:
    """True if a value has every part of a document, with texts for names and numbers for latencies and bandwidths.

    The network that it draws may still be invalid.
    """
    if not isinstance(value, dict) or not _has_keys(value.get("default"), (), ("latency_ms", "bandwidth_gbps")):
        return False
    parts_hold = all(
        isinstance(value.get(part), list) and all(_has_keys(one, texts, numbers) for one in value[part])
        for part, (texts, numbers) in PARTS.items()
    )
    return parts_hold and all(_has_ends(pair) for pair in value["between"])


def _has_keys(value: Any, texts: tuple[str, ...], numbers: tuple[str, ...]) -> bool:
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(key), str) for key in texts)
        and all(as_number(value.get(key)) is not None for key in numbers)
    )


def _has_ends(pair: dict[str, Any]) -> bool:
    ends = pair.get("regions") or [pair.get("from"), pair.get("to")]
    return isinstance(ends, list) and len(ends) == 2 and all(isinstance(end, str) for end in ends)


def gpus_of(document: Document) -> list[str]:
    """Return the GPUs that a device may have: those in the drawing (``laptop`` if it is empty), then the rest of the
    GPU table by name."""
    own = dict.fromkeys(device["gpu"] for device in document["devices"]) or {"laptop": None}
    return list(own | dict.fromkeys(sorted(HARDWARE, key=str.casefold)))


def _drawn_devices(topology: Topology, sections: list[dict[str, Any]]) -> list[dict[str, Any]]:
    priced = any(device.price_per_hour for device in topology.devices)
    unusual = {device.gpu for device in topology.devices if not _is_usual(device)}
    drawn = []
    for device, section, (x, y) in zip(topology.devices, sections, canvas_positions(topology), strict=True):
        shown: dict[str, Any] = {"name": device.name, "region": device.region, "gpu": device.gpu, "x": x, "y": y}
        # Without any price, the field would only be noise.
        shown |= {"price_per_hour": device.price_per_hour} if priced else {}
        shown |= {key: section[key] for key in KEPT if key in section}
        shown |= {"hardware": _hardware(device)} if device.gpu in unusual else {}
        shown |= {} if topology.message_s is None else {"measured_as": device.name}
        drawn.append(shown)
    return drawn


def _is_usual(device: Device) -> bool:
    """True if the device has the hardware that the GPU table gives for its GPU."""
    numbers = {"peak_flop_per_s": device.peak_flop_per_s, "memory_bytes": device.memory_bytes}
    return hardware_fields(device.gpu) == numbers


def _hardware(device: Device) -> dict[str, Any]:
    tflops, gib = device.peak_flop_per_s / TERA, device.memory_bytes / GiB
    return {"gpu": device.gpu, "peak_tflops": tflops, "memory_gib": gib}


def _sections(drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the devices as sections of a topology file."""
    hardware: dict[str, Any] = {}
    prices: dict[str, float] = {}
    for device in drawn:
        if own := device.get("hardware"):
            hardware.setdefault(own["gpu"], own)
        if device.get("price_per_hour"):
            prices.setdefault(device["gpu"], device["price_per_hour"])
    sections = []
    for device in drawn:
        gpu, own = device["gpu"], device.get("hardware")
        section = {"name": device["name"], "gpu": gpu, "position": (device["x"], device["y"])}
        section |= {"region": device["region"]} if device["region"] else {}
        section |= {key: device[key] for key in KEPT if device.get(key) is not None}
        # A device added to the drawing takes what other devices with its GPU have.
        own = own if own and own["gpu"] == gpu else hardware.get(gpu)
        section |= {key: own[key] for key in ("peak_tflops", "memory_gib")} if own else {}
        price = device.get("price_per_hour")
        # 0 says that it has no price; only a missing one is taken from others.
        section["price_per_hour"] = prices.get(gpu, 0.0) if price is None else price
        sections.append(section)
    return sections


def _between(pair: Mapping[str, Any]) -> dict[str, Any]:
    return {key: pair[key] for key in ("regions", "from", "to", "latency_ms", "bandwidth_gbps") if key in pair}


def _link(link: Mapping[str, Any]) -> dict[str, Any]:
    source, target = link["source"], link["target"]
    ends = {"from": source, "to": target} if link.get("one_way") else {"between": [source, target]}
    return {**ends, "latency_ms": link["latency_ms"], "bandwidth_gbps": link["bandwidth_gbps"]}


def canvas_positions(topology: Topology) -> list[tuple[float, float]]:
    """Return (x, y) in pixels for every device: its own position, or a slot in its region's block."""
    counts = dict.fromkeys(topology.regions, 0)
    for device in topology.devices:
        counts[device.region] += 1
    sides = {region: ceil(sqrt(count)) for region, count in counts.items()}
    corners = _corners(sides)
    placed = dict.fromkeys(sides, 0)
    places = []
    for device in topology.devices:
        (left, top), side, slot = corners[device.region], sides[device.region], placed[device.region]
        placed[device.region] += 1
        own = ((left + slot % side + 1) * SPACING, (top + slot // side + 1) * SPACING)
        places.append(own if device.position is None else device.position)
    return places


def _corners(sides: dict[str, int]) -> dict[str, tuple[float, float]]:
    """Return the top left corner of each region's block, as multiples of ``SPACING``.

    ``sides`` are the devices along one side of each block. The blocks fill rows, in about the canvas's aspect ratio.
    """
    n_in_row = max(1, round(sqrt(len(sides) * WIDER_THAN_HIGH)))
    corners: dict[str, tuple[float, float]] = {}
    regions, top = list(sides), 0.0
    for first in range(0, len(regions), n_in_row):
        row = regions[first : first + n_in_row]
        side = max(sides[region] for region in row)
        corners |= {region: (i * (side + BESIDE), top) for i, region in enumerate(row)}
        top += side + BELOW
    return corners


def with_times(topology: Topology, known: Topology, document: Document) -> Topology:
    """Return the topology with ``known``'s message times on every link that has not changed."""
    if known.message_s is None:
        return topology
    origins = _origins(document, known)
    here = [i for i, origin in enumerate(origins) if origin is not None]
    there = [origin for origin in origins if origin is not None]
    grid, old = np.ix_(here, here), np.ix_(there, there)
    same = np.isclose(topology.latency_s[grid], known.latency_s[old], rtol=ALIKE, atol=0.0)
    same &= np.isclose(topology.bandwidth_bytes_per_s[grid], known.bandwidth_bytes_per_s[old], rtol=ALIKE, atol=0.0)
    n = len(topology)
    message_s = np.full((n, n, known.message_s.shape[2]), np.nan)
    message_s[grid] = np.where(same[:, :, None], known.message_s[old], np.nan)
    return replace(topology, message_bytes=known.message_bytes, message_s=message_s)


def _origins(document: Document, known: Topology) -> list[int | None]:
    """Return the index in ``known`` of each drawn device. None for new devices, and for all copies but the first."""
    at = {name: i for i, name in enumerate(known.names)}
    return [at.pop(device.get("measured_as", ""), None) for device in document["devices"]]
