"""Links of a drawing: which line sets a link's latency and bandwidth, and edits as pure functions.

The most specific line that covers a link sets it. Pairs of regions without a line may be set by the distance between
their cities.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from itertools import combinations
from math import dist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dtfm_lab.domain.network import find_place, link_between
from dtfm_lab.domain.network.places import Link as LinkByDistance
from dtfm_lab.domain.network.places import link_over
from dtfm_lab.domain.units import FloatArray, by_key, to_gbps, to_ms
from dtfm_lab.widgets.network.drawing import AS_DRAWN, BY_DISTANCE, Document

Speed = tuple[float, float]
"""(latency_ms, bandwidth_gbps)"""


RULE = (
    "Between regions without a line: latency = 5.6 ms + 3.0 × distance / 200,000 km/s, bandwidth = 78 Mbit / latency, "
    "at most 1.05 Gbit/s, and no more than inside either region. Fitted to 45 pairs of AWS regions (DT-FM, 2022), half "
    "of them within 15 %. "
)
WHERE = {
    BY_DISTANCE: "Distances are between known cities. All other pairs have the numbers of “any other pair”.",
    AS_DRAWN: "Distances are between known cities. Other regions are as far apart as drawn: 100 pixels are 1,000 km.",
}
METRES_PER_PIXEL = 10_000.0
DRAWN_STEP_M = 250_000.0
"""Drawn distances are rounded to multiples of this, so that a nudge changes no link."""


Pair = tuple[str, str]


class Origin(IntEnum):
    """Which line a link's numbers come from, from the most general to the most specific."""

    NOWHERE = 0
    """A link of a device with itself, or with one that is not drawn."""
    DEFAULT = 1
    DISTANCE = 2
    """The rule that computes links from distances."""
    PAIR = 3
    """A line between two regions."""
    REGION = 4
    """The numbers inside a region."""
    LINK = 5
    """The link's own line."""


class DrawnLinks(NamedTuple):
    """Latency and bandwidth by the lines of a document, before NICs limit them."""

    latency_ms: FloatArray
    """(N, N), from row to column."""
    bandwidth_gbps: FloatArray
    origin: npt.NDArray[np.uint8]
    """(N, N) of Origin."""


def drawn_links(document: Document, names: Sequence[str]) -> DrawnLinks:
    """Return the links of devices in this order. NaN and NOWHERE for devices that are not drawn."""
    n = len(names)
    latency_ms, gbps, origin = np.full((n, n), np.nan), np.full((n, n), np.nan), np.zeros((n, n), np.uint8)
    region_of = {device["name"]: device["region"] for device in document["devices"]}
    drawn = [i for i, name in enumerate(names) if name in region_of]
    members = by_key((region_of[names[i]], i) for i in drawn)

    def set_links(rows: list[int], columns: list[int], line: dict[str, Any], why: Origin) -> None:
        grid = np.ix_(rows, columns)
        latency_ms[grid], gbps[grid], origin[grid] = line["latency_ms"], line["bandwidth_gbps"], why

    # From the most general to the most specific: each line overrides those before it.
    set_links(drawn, drawn, document["default"], Origin.DEFAULT)
    for line in filled(document):
        a, b = (members.get(region, []) for region in line["regions"])
        set_links(a, b, line, Origin.DISTANCE)
        set_links(b, a, line, Origin.DISTANCE)
    for line in sorted(document["between"], key=lambda line: "regions" not in line):  # one way last
        a, b = (members.get(region, []) for region in ends_of(line))
        set_links(a, b, line, Origin.PAIR)
        if "regions" in line:
            set_links(b, a, line, Origin.PAIR)
    for region in document["regions"]:
        inside = members.get(region["name"], [])
        set_links(inside, inside, region, Origin.REGION)
    at = {names[i]: i for i in drawn}
    for (source, target), speed in link_speeds(document).items():
        if source in at and target in at:
            i, j = at[source], at[target]
            (latency_ms[i, j], gbps[i, j]), origin[i, j] = speed, Origin.LINK
    np.fill_diagonal(origin, Origin.NOWHERE)
    return DrawnLinks(latency_ms, gbps, origin)


def link_speeds(document: Document) -> dict[tuple[str, str], Speed]:
    """Return {(source, target): speed} of the single links with a line. A one-way line overrides a two-way one."""
    speeds: dict[tuple[str, str], Speed] = {}
    for link in sorted(document["links"], key=lambda link: bool(link.get("one_way"))):
        speed = (link["latency_ms"], link["bandwidth_gbps"])
        speeds[link["source"], link["target"]] = speed
        if not link.get("one_way"):
            speeds[link["target"], link["source"]] = speed
    return speeds


def filled(document: Document) -> list[dict[str, Any]]:
    """Return the lines that distance sets: {"regions": [a, b], "latency_ms", "bandwidth_gbps", "distance_km"} each.

    The distance sets a pair of regions if no line joins them in either direction and both names are known places. With
    the fill ``AS_DRAWN``, the names may be any. Devices without a region keep the default. A pair is never faster than
    the network inside either region, which its messages cross.
    """
    fill = document.get("fill")
    if fill not in WHERE:
        return []
    # A line drawn by hand beats the rule.
    with_line = {frozenset(ends_of(line)) for line in document["between"]}
    places = {region["name"]: find_place(region["name"]) for region in document["regions"]}
    inside = {region["name"]: float(region["bandwidth_gbps"]) for region in document["regions"]}
    middles = _middles(document) if fill == AS_DRAWN else {}
    lines = []
    for a, b in combinations(places, 2):
        if frozenset((a, b)) in with_line:
            continue
        one, other = places[a], places[b]
        if one is not None and other is not None:
            lines.append(_line_by_rule(a, b, link_between(one, other), min(inside[a], inside[b])))
        elif a in middles and b in middles:
            apart_m = METRES_PER_PIXEL * dist(middles[a], middles[b])
            # In steps, so that a small move does not change the link.
            link = link_over(DRAWN_STEP_M * max(1, round(apart_m / DRAWN_STEP_M)))
            lines.append(_line_by_rule(a, b, link, min(inside[a], inside[b])))
    return lines


def _middles(document: Document) -> dict[str, tuple[float, float]]:
    """Return the mean position, in pixels, of each region's devices. Regions without devices are left out."""
    members = by_key((device["region"], (device["x"], device["y"])) for device in document["devices"])
    return {
        region: (sum(x for x, _ in inside) / len(inside), sum(y for _, y in inside) / len(inside))
        for region, inside in members.items()
    }


def ends_of(line: dict[str, Any]) -> tuple[str, str]:
    """Return the two regions of a line: its ``regions``, or ``from`` and ``to`` of a one-way line."""
    first, second = line.get("regions") or (line["from"], line["to"])
    return first, second


def _line_by_rule(a: str, b: str, link: LinkByDistance, most_gbps: float) -> dict[str, Any]:
    return {
        "regions": [a, b],
        "latency_ms": round(to_ms(link.latency_s), 1),
        "bandwidth_gbps": min(most_gbps, round(to_gbps(link.bandwidth_bytes_per_s), 3)),
        "distance_km": round(link.distance_m / 1e3),
    }


def set_links(document: Document, speeds: Mapping[Pair, Speed]) -> Document:
    """Return the document with a line for each of these directed links. Two ways of equal speed share a line."""
    all_speeds = {**link_speeds(document), **speeds}
    links: list[dict[str, Any]] = []
    done: set[Pair] = set()
    for (source, target), speed in all_speeds.items():
        if (source, target) in done:
            continue
        both_ways = all_speeds.get((target, source)) == speed
        done |= {(target, source)} if both_ways else set()
        numbers = dict(zip(("latency_ms", "bandwidth_gbps"), speed, strict=True))
        links.append({"source": source, "target": target, **numbers, "one_way": not both_ways})
    return {**document, "links": links}


def with_link(document: Document, ends: tuple[str, str], gbps: float, ms: float) -> Document:
    """Return the document with a new bandwidth in Gbit/s and latency in ms for the link between two devices, both ways.

    If the two devices have a line, it changes. Otherwise the line of their region, or of their pair of regions,
    changes. A pair of regions without a line, and devices without a region, get a new line.
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
        known = [line for line in between if set(ends_of(line)) == {here, there}]
        changed = [line | numbers if line in known else line for line in between]
        return document | {"between": changed if known else [*changed, {"regions": [here, there], **numbers}]}
    line = {"source": ends[0], "target": ends[1], **numbers}
    return document | {"links": [*links, line]}
