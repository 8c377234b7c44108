"""Edits of links as pure functions from a document to the edited one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dtfm_lab.domain.errors import TopologyError
from dtfm_lab.widgets.network.link_origins import Document, Origin, Speed, ends_of, link_speeds, pair_speed

Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Change:
    """A new latency, a new bandwidth, or both; None leaves it as it is."""

    latency_ms: float | None = None
    bandwidth_gbps: float | None = None

    def __post_init__(self) -> None:
        if self.latency_ms is not None and not 0 <= self.latency_ms < float("inf"):
            raise TopologyError(f"latency is {self.latency_ms:g} ms; wanted 0 or more")
        if self.bandwidth_gbps is not None and not 0 < self.bandwidth_gbps < float("inf"):
            raise TopologyError(f"bandwidth is {self.bandwidth_gbps:g} Gbit/s; wanted more than 0")

    def of(self, speed: Speed) -> Speed:
        latency_ms, gbps = speed
        return (
            latency_ms if self.latency_ms is None else self.latency_ms,
            gbps if self.bandwidth_gbps is None else self.bandwidth_gbps,
        )


def set_links(document: Document, speeds: Mapping[Pair, Speed]) -> Document:
    """Give these directed links lines of their own; one line for both ways where they agree."""
    return _with_links(document, {**link_speeds(document), **speeds})


def change_pair(document: Document, source: str, target: str, change: Change, *, both_ways: bool) -> Document:
    """Change all links from one region to another: the regions' line, and the lines of single links.

    A single link keeps what ``change`` leaves; its line is dropped where it then equals the regions' line.
    """
    there, _ = pair_speed(document, source, target)
    back, origin = pair_speed(document, target, source)
    new_there = change.of(there)
    new_back = change.of(back) if both_ways else back
    is_theirs = [set(ends_of(line)) == {source, target} for line in document["between"]]
    others = [line for line, theirs in zip(document["between"], is_theirs, strict=True) if not theirs]
    if new_there == new_back:
        lines = [{"regions": [source, target], **_line(new_there)}]
    elif both_ways or origin is not Origin.DEFAULT:
        lines = [{"from": source, "to": target, **_line(new_there)}, {"from": target, "to": source, **_line(new_back)}]
    else:
        lines = [{"from": source, "to": target, **_line(new_there)}]
    first = is_theirs.index(True) if True in is_theirs else len(others)
    between = [*others[:first], *lines, *others[first:]]
    ways = {(source, target): new_there} | ({(target, source): new_back} if both_ways else {})
    return _changed_links({**document, "between": between}, ways, change)


def change_inside(document: Document, region: str, change: Change) -> Document:
    """Change all links inside a region, as ``change_pair`` does those between two."""
    named = next((one for one in document["regions"] if one["name"] == region), None)
    if named is None:
        raise TopologyError(f"region {region!r} is not drawn; wanted one that is")
    default = document["default"]
    was = named.get("latency_ms", default["latency_ms"]), named.get("bandwidth_gbps", default["bandwidth_gbps"])
    speed = change.of(was)
    regions = [{**one, **_line(speed)} if one is named else one for one in document["regions"]]
    return _changed_links({**document, "regions": regions}, {(region, region): speed}, change)


def _changed_links(document: Document, ways: Mapping[Pair, Speed], change: Change) -> Document:
    """Change the lines of single links that run along these ways between regions."""
    region_of = {device["name"]: device["region"] for device in document["devices"]}
    speeds: dict[Pair, Speed] = {}
    for (source, target), speed in link_speeds(document).items():
        line = ways.get((region_of.get(source, ""), region_of.get(target, "")))
        changed = speed if line is None else change.of(speed)
        if changed != line:
            speeds[source, target] = changed
    return _with_links(document, speeds)


def _with_links(document: Document, speeds: Mapping[Pair, Speed]) -> Document:
    links: list[dict[str, Any]] = []
    done: set[Pair] = set()
    for (source, target), speed in speeds.items():
        if (source, target) in done:
            continue
        both_ways = speeds.get((target, source)) == speed
        done |= {(target, source)} if both_ways else set()
        links.append({"source": source, "target": target, **_line(speed), "one_way": not both_ways})
    return {**document, "links": links}


def _line(speed: Speed) -> dict[str, float]:
    return {"latency_ms": speed[0], "bandwidth_gbps": speed[1]}
