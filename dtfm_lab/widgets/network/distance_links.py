"""Links between regions without a line of their own, computed from the distance between their cities."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from dtfm_lab.domain.network import Place, find_place, link_between
from dtfm_lab.domain.units import to_gbps, to_ms

Document = dict[str, Any]

BY_DISTANCE = "distance"
"""Value of ``document["fill"]`` where the rule is used."""

RULE = (
    "Pairs of regions that stand in known cities and have no line of their own: latency 5.6 ms + 3.0 × great circle "
    "/ 200,000 km/s, bandwidth 78 Mbit / latency but at most 1.05 Gbit/s; fitted to 45 pairs of AWS regions "
    "(DT-FM, 2022), half of them within 15 %. All other pairs: the default."
)


def filled(document: Document) -> list[dict[str, Any]]:
    """Return {"regions": [a, b], "latency_ms", "bandwidth_gbps", "distance_km"} of each pair that the rule sets.

    These are the pairs without a line ``between`` them, in either direction, whose names are known places; none unless
    the document uses the rule. Devices without a region keep the default.
    """
    if document.get("fill") != BY_DISTANCE:
        return []
    with_line = {frozenset(ends_of(line)) for line in document["between"]}
    names = [region["name"] for region in document["regions"]]
    known = [(name, place) for name in names if (place := find_place(name)) is not None]
    return [_line(a, b) for a, b in combinations(known, 2) if frozenset((a[0], b[0])) not in with_line]


def ends_of(line: dict[str, Any]) -> tuple[str, str]:
    """Return the two regions of a line: its ``regions``, or ``from`` and ``to`` of a one-way line."""
    first, second = line.get("regions") or (line["from"], line["to"])
    return first, second


def _line(a: tuple[str, Place], b: tuple[str, Place]) -> dict[str, Any]:
    link = link_between(a[1], b[1])
    return {
        "regions": [a[0], b[0]],
        "latency_ms": round(to_ms(link.latency_s), 1),
        "bandwidth_gbps": round(to_gbps(link.bandwidth_bytes_per_s), 3),
        "distance_km": round(link.distance_m / 1e3),
    }
