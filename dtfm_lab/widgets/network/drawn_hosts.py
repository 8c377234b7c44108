"""Large networks are drawn by host: one entry of the document stands for all GPUs of a machine.

4,096 devices are 512 boxes with eight cells each. An entry of a host has ``members``, the names of its devices, and
``inside``, the speed between two of them::

    {name: "rack-3", gpu: "H100", members: ["rack-3-gpu-0", ...], inside: {latency_ms, bandwidth_gbps}, ...}

Lines of the document that name such an entry are links from each of its devices.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from dtfm_lab.domain.network import Device, Topology, check_count
from dtfm_lab.domain.units import FloatArray, IntArray, by_key, from_gbps, from_ms, to_gbps, to_ms
from dtfm_lab.widgets.network.drawing import Document

MOST_DRAWN = 32
"""Maximum devices of a network that are drawn one by one. A larger network is easier to read with a box per host."""


@dataclass(frozen=True)
class DrawnHosts:
    """Which devices each entry of a document stands for."""

    members: Mapping[str, tuple[str, ...]]
    """Devices of each entry, by its name. An entry for a single device maps to itself."""

    @classmethod
    def of(cls, document: Document) -> Self:
        return cls({one["name"]: tuple(one.get("members") or (one["name"],)) for one in document["devices"]})

    @cached_property
    def entry_of(self) -> dict[str, str]:
        """{device: entry that stands for it}."""
        return {device: entry for entry, devices in self.members.items() for device in devices}

    def devices(self, entries: Iterable[str], only: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the devices of these entries. If an entry has devices in ``only``, return just those devices."""
        wanted = set(only)
        found: list[str] = []
        for entry in entries:
            devices = self.members.get(entry, ())
            found += [device for device in devices if device in wanted] or devices
        return tuple(found)

    def parts(self, devices: Iterable[str]) -> list[str]:
        """Return each given device whose host also has devices that are not given."""
        given = set(devices)
        hosts = [self.members[entry] for entry in self.entries(given)]
        return [device for members in hosts if not given.issuperset(members) for device in members if device in given]

    def entries(self, devices: Iterable[str]) -> list[str]:
        """Return the entries that stand for any of these devices, each once. Devices that are not drawn are left
        out."""
        return list(dict.fromkeys(self.entry_of[device] for device in devices if device in self.entry_of))

    def link(self, ends: Iterable[str]) -> list[str]:
        """Return the entries at both ends of a link between devices. Empty if it is inside one entry, or not drawn."""
        found = self.entries(ends)
        return found if len(found) == 2 else []

    def marks(self, roles: Mapping[str, Any]) -> dict[str, Any]:
        """Return the marks of the drawn entries, made from marks of devices. Both have the format of ``highlight_of``.

        A host gets the mark of its first device that the plan uses. The key "cells" holds the [stage, replica] of every
        device of a host, None for an idle one. The key "absent" lists devices that are away, and hosts that are away
        as a whole.
        """
        marked = dict(roles)
        if len(self.entry_of) == len(self.members):
            return marked
        for what in ("stages", "tasks"):
            if what in roles:
                marked[what] = {self.entry_of[device]: mark for device, mark in reversed(roles[what].items())}
        tasks = roles.get("tasks") or _with_replicas(roles.get("stages", {}))
        cells = {name: [tasks.get(device) for device in devices] for name, devices in self.members.items()}
        marked["cells"] = {name: held for name, held in cells.items() if len(held) > 1 and any(held)}
        if away := set(roles.get("absent", ())):
            gone = [name for name, devices in self.members.items() if away.issuperset(devices)]
            marked["absent"] = [*dict.fromkeys([*roles["absent"], *gone])]
        return marked


def _with_replicas(stages: Mapping[str, int]) -> dict[str, list[int]]:
    """Return {device: [stage, replica]}. Replicas are numbered within each stage, in the order of ``stages``."""
    counts: dict[int, int] = {}
    found = {}
    for device, stage in stages.items():
        counts[stage] = counts.get(stage, -1) + 1
        found[device] = [stage, counts[stage]]
    return found


def by_host(topology: Topology) -> tuple[Topology, list[dict[str, Any]]] | None:
    """Return the network with one device per host, and the extra keys of each host's entry.

    None if the network is small, has measured message times, has no host with several devices, or two entries would
    have the same name. Also None if one entry cannot describe a host, because its devices differ or are groups of GPUs,
    or because its links inside or to another host differ.
    """
    # Measured times are by device, so those networks are drawn in full.
    if len(topology) <= MOST_DRAWN or topology.message_s is not None:
        return None
    # A zero byte is in no name, so a device without a host is its own group.
    groups = list(by_key((device.host or f"\0{i}", i) for i, device in enumerate(topology.devices)).values())
    firsts = [topology.devices[ids[0]] for ids in groups]
    names = [first.host or first.name for first in firsts]
    # Nothing to combine, or two hosts of the same name, or hosts that one entry cannot describe.
    if len(groups) == len(topology) or len(set(names)) < len(names) or not _are_alike(topology, groups):
        return None
    first = np.array([ids[0] for ids in groups])
    drawn = tuple(
        replace(device, name=name, host="" if len(ids) > 1 else device.host)
        for device, name, ids in zip(firsts, names, groups, strict=True)
    )
    grid = np.ix_(first, first)
    hosts = Topology(
        drawn,
        topology.latency_s[grid],
        topology.bandwidth_bytes_per_s[grid],
        name=topology.name,
        description=topology.description,
        link_spread=topology.link_spread,
        collectives=topology.collectives,
    )
    return hosts, [_entry(topology, ids) for ids in groups]


def _entry(topology: Topology, ids: list[int]) -> dict[str, Any]:
    if len(ids) == 1:
        return {}
    speed = topology.latency_s[ids[0], ids[1]], topology.bandwidth_bytes_per_s[ids[0], ids[1]]
    inside = {"latency_ms": float(to_ms(speed[0])), "bandwidth_gbps": float(to_gbps(speed[1]))}
    return {"members": [topology.names[i] for i in ids], "inside": inside}


def _are_alike(topology: Topology, groups: list[list[int]]) -> bool:
    """True if every device is a single GPU, all devices of each host are alike, and so are all links inside each host
    and between any two hosts."""
    # The name and the place do not count: everything else must be alike.
    for ids in groups:
        kinds = {replace(topology.devices[i], name="x", position=None) for i in ids}
        if len(kinds) > 1 or topology.devices[ids[0]].gpus > 1:
            return False
    of = np.empty(len(topology), dtype=np.int64)
    for number, ids in enumerate(groups):
        of[ids] = number
    first = np.array([ids[0] for ids in groups])
    # The last device of a host, for links inside; with one device it is the first, and the diagonal does not count.
    second = np.array([ids[-1] for ids in groups])
    for matrix in (topology.latency_s, topology.bandwidth_bytes_per_s):
        if not (matrix == _expanded(matrix[np.ix_(first, first)], matrix[first, second], of)).all():
            return False
    return True


def _expanded(between: FloatArray, inside: FloatArray, of: IntArray) -> FloatArray:
    """Return (N, N) values for each pair of devices, from (H, H) values ``between`` hosts and (H,) values ``inside``
    them.

    ``of`` (N,) is the host of each device. The diagonal is copied from ``between``.
    """
    found = np.asarray(between[np.ix_(of, of)])
    for number, ids in by_key((int(number), i) for i, number in enumerate(of)).items():
        found[np.ix_(ids, ids)] = inside[number]
    np.fill_diagonal(found, between.diagonal()[of])
    return found


def with_members(hosts: Topology, document: Document) -> Topology:
    """Return the network with all devices of every host. ``hosts`` has only one device per entry of the document."""
    entries = document["devices"]
    counts = [len(one.get("members") or ()) or 1 for one in entries]
    if max(counts, default=1) == 1:
        return hosts
    check_count(sum(counts))
    of = np.repeat(np.arange(len(entries)), counts)
    taken = {one["name"] for one in entries if not one.get("members")}
    devices: list[Device] = []
    for device, one in zip(hosts.devices, entries, strict=True):
        if not one.get("members"):
            devices.append(device)
            continue
        for number, name in enumerate(one["members"]):
            # A new host may reuse names of devices that are drawn.
            own = name if name not in taken else _free(f"{device.name}-{number}", taken)
            taken.add(own)
            devices.append(replace(device, name=own, host=device.name))
    inside = [one.get("inside") or document["default"] for one in entries]
    inside_s = from_ms(np.array([float(one["latency_ms"]) for one in inside]))
    inside_bytes = from_gbps(np.array([float(one["bandwidth_gbps"]) for one in inside]))
    return Topology(
        tuple(devices),
        _expanded(hosts.latency_s, inside_s, of),
        _expanded(hosts.bandwidth_bytes_per_s, inside_bytes, of),
        name=hosts.name,
        description=hosts.description,
        link_spread=hosts.link_spread,
        collectives=hosts.collectives,
    )


def _free(name: str, taken: set[str]) -> str:
    """Return the name, with as many primes appended as it takes to make it unique."""
    while name in taken:
        name += "'"
    return name
