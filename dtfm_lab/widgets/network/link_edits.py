"""A document with other numbers for one link, written where the document has them: link, region, or pair of regions."""

from collections.abc import Mapping
from typing import Any

from dtfm_lab.widgets.network.drawing import Document


def with_link(document: Document, ends: tuple[str, str], gbps: float, ms: float) -> Document:
    """Return the document with a bandwidth in Gbit/s and a latency in ms for the link between two devices, both ways.

    A line of the two devices changes; else that of their region, or of the pair of their regions, as it rules the link;
    devices without a region get a line of their own.
    """
    numbers = {"latency_ms": ms, "bandwidth_gbps": gbps}
    links = document["links"]
    own = [line for line in links if {line["source"], line["target"]} == set(ends)]
    if own:
        return document | {"links": [line | numbers if line in own else line for line in links]}
    region_of = {device["name"]: device.get("region", "") for device in document["devices"]}
    here, there = region_of[ends[0]], region_of[ends[1]]
    if here and here == there:
        regions = document["regions"]
        if any(region["name"] == here for region in regions):
            return document | {"regions": [one | numbers if one["name"] == here else one for one in regions]}
    if here and there and here != there:
        between = document["between"]
        known = [line for line in between if _regions(line) == {here, there}]
        changed = [line | numbers if line in known else line for line in between]
        return document | {"between": changed if known else [*changed, {"regions": [here, there], **numbers}]}
    line = {"source": ends[0], "target": ends[1], **numbers}
    return document | {"links": [*links, line]}


def _regions(line: Mapping[str, Any]) -> set[str]:
    return set(line["regions"]) if "regions" in line else {line["from"], line["to"]}
