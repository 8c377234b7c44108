"""Checks of a drawing; an error names the thing, the value found and the value wanted."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from dtfm_lab.domain.network import as_number, shortened
from dtfm_lab.widgets.network.drawing import Document

PARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "devices": (("name", "region", "gpu"), ("x", "y")),
    "regions": (("name",), ("latency_ms", "bandwidth_gbps")),
    "between": ((), ("latency_ms", "bandwidth_gbps")),
    "links": (("source", "target"), ("latency_ms", "bandwidth_gbps")),
}
"""{part: (texts, numbers)}: the keys that every entry of a part must have."""
OWN_NUMBERS = {
    "price_per_hour": "price per hour",
    "uplink_gbps": "uplink (Gbit/s)",
    "downlink_gbps": "downlink (Gbit/s)",
}
"""Numbers that a device may have, and their labels."""


def is_document(value: Any) -> TypeGuard[Document]:
    """Whether a value can be drawn, valid or not: a mapping with all parts, and texts where names belong."""
    if not isinstance(value, dict) or not _is_section(value.get("default"), (), ("latency_ms", "bandwidth_gbps")):
        return False
    parts_hold = all(
        isinstance(value.get(part), list) and all(_is_section(one, texts, numbers) for one in value[part])
        for part, (texts, numbers) in PARTS.items()
    )
    return parts_hold and all(_has_ends(pair) for pair in value["between"])


def first_mistake(document: Document) -> str:
    """Return the first mistake as one line; empty where there is none."""
    return next(_mistakes(document), "")


def _mistakes(document: Document) -> Iterator[str]:
    for part, noun in (("devices", "device"), ("regions", "region")):
        for name, count in Counter(one["name"] for one in document[part]).items():
            if not str(name).strip():
                yield f"a {noun} has an empty name; wanted a name of its own"
            if count > 1:
                yield f"{count} {noun}s are named {name}; wanted names of their own"
    devices = {device["name"] for device in document["devices"]}
    regions = {region["name"] for region in document["regions"]}
    for device in document["devices"]:
        thing = f"device {device['name']}"
        if device["region"] and device["region"] not in regions:
            yield f"{thing}: there is no region {device['region']}; wanted one that is drawn, or none"
        for key, what in OWN_NUMBERS.items():
            if device.get(key) is not None:
                yield from _number(thing, what, device[key], zero=key == "price_per_hour")
    yield from _conditions("all other pairs", document["default"])
    for region in document["regions"]:
        yield from _conditions(f"inside region {region['name']}", region)
    for pair in document["between"]:
        a, b = pair.get("regions") or (pair["from"], pair["to"])
        for name in (a, b):
            if name not in regions:
                yield f"region pair {a} – {b}: there is no region {name}; wanted two that are drawn"
        yield from _conditions(f"region pair {a} – {b}", pair)
    for link in document["links"]:
        thing = f"link {link['source']} – {link['target']}"
        for name in (link["source"], link["target"]):
            if name not in devices:
                yield f"{thing}: there is no device {name}; wanted two that are drawn"
        yield from _conditions(thing, link)


def _conditions(thing: str, line: Mapping[str, Any]) -> Iterator[str]:
    yield from _number(thing, "latency (ms)", line["latency_ms"], zero=True)
    yield from _number(thing, "bandwidth (Gbit/s)", line["bandwidth_gbps"], zero=False)


def _number(thing: str, what: str, value: Any, *, zero: bool) -> Iterator[str]:
    number = as_number(value)
    if number is None or not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        yield f"{thing}: {what} is {shortened(value)}; wanted {'0 or more' if zero else 'a number above 0'}"


def _is_section(value: Any, texts: tuple[str, ...], numbers: tuple[str, ...]) -> bool:
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(key), str) for key in texts)
        and all(as_number(value.get(key)) is not None for key in numbers)
    )


def _has_ends(pair: dict[str, Any]) -> bool:
    ends = pair.get("regions") or [pair.get("from"), pair.get("to")]
    return isinstance(ends, list) and len(ends) == 2 and all(isinstance(end, str) for end in ends)
