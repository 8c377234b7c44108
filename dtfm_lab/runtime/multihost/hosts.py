"""Which host runs which devices of a plan: from a file, or so many devices a host.

::

    dtfm_hosts: 1
    hosts:
    - name: desk
      address: 10.0.0.1
      interface: eth0          # that its links are shaped on; found by the route where it is not said
      devices: [ada, barbara]

Devices that the plan leaves idle may be there or not.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import Field

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.registry import unknown
from dtfm_lab.files.reading import Section, located, parse, read_mapping, require_version
from dtfm_lab.runtime.protocol.run_spec import RunSpec

PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""names of hosts: they are folders, and words of shell scripts"""
ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,14}")


@dataclass(frozen=True, kw_only=True)
class Host:
    """One machine. Raises LabError for a name, an address or an interface that no script can hold."""

    name: str
    address: str
    workers: tuple[int, ...]
    """ranks of the run, in the order of the processes there"""
    interface: str | None = None

    def __post_init__(self) -> None:
        for what, text, pattern, wanted in (
            ("name", self.name, PLAIN, "letters, digits, dots and hyphens"),
            ("address", self.address, ADDRESS, "a host name or an IP address"),
            ("interface", self.interface or "eth0", INTERFACE, "the name of a network interface, such as eth0"),
        ):
            if not pattern.fullmatch(text):
                raise LabError(f"host {shortened(self.name)}: {what} is {shortened(text)}; wanted {wanted}")


class HostSection(Section):
    name: str
    address: str
    interface: str | None = None
    devices: list[str]


class HostsFile(Section):
    dtfm_hosts: int
    hosts: list[HostSection] = Field(min_length=1)


def load_hosts(path: str | os.PathLike[str], spec: RunSpec) -> tuple[Host, ...]:
    """The hosts of a file that have workers, the one with the first worker first.

    Raises FileError or LabError, the file named: a device that is nowhere, twice or none of the network's.
    """
    path = Path(path)
    data = read_mapping(path)
    require_version(data, "dtfm_hosts", path.name)
    file = parse(HostsFile, data, path.name)
    with located(path.name):
        workers = workers_by_device(spec)
        for what, names in (
            ("host", [host.name for host in file.hosts]),
            ("device", [device for host in file.hosts for device in host.devices]),
        ):
            name, count = Counter(names).most_common(1)[0] if names else ("", 0)
            if count > 1:
                raise FileError(f"{what} {shortened(name)} is there {count} times; wanted it once")
        for device in names:
            if device not in spec.plan.topology.names:
                raise unknown("device", device, spec.plan.topology.names)
        if missing := [device for device in workers if device not in names]:
            raise FileError(f"device {missing[0]} is on no host; wanted all {len(workers)} that the plan uses")
        hosts = [
            Host(
                name=host.name,
                address=host.address,
                interface=host.interface,
                workers=tuple(sorted(workers[device] for device in host.devices if device in workers)),
            )
            for host in file.hosts
        ]
        return _first_worker_first(hosts)


def hosts_of(spec: RunSpec, per_host: int = 1) -> tuple[Host, ...]:
    """So many devices a host, in the network's order, hosts named (and addressed) after their first device."""
    if not isinstance(per_host, int) or isinstance(per_host, bool) or per_host < 1:
        raise LabError(f"workers per host is {shortened(per_host)}; wanted 1 or more")
    workers = workers_by_device(spec)
    devices = [device for device in spec.plan.topology.names if device in workers]
    hosts: list[Host] = []
    for first in range(0, len(devices), per_host):
        plain = re.sub(r"[^A-Za-z0-9.]+", "-", devices[first]).strip("-.")
        name = plain if plain and plain not in {host.name for host in hosts} else f"host-{len(hosts)}"
        own = tuple(sorted(workers[device] for device in devices[first : first + per_host]))
        hosts.append(Host(name=name, address=name, workers=own))
    return _first_worker_first(hosts)


def hosts_file(hosts: Sequence[Host], spec: RunSpec) -> str:
    """What ``load_hosts`` reads, to be edited."""
    named = {rank: device for device, rank in workers_by_device(spec).items()}
    rows = []
    for host in hosts:
        row: dict[str, object] = {"name": host.name, "address": host.address}
        row |= {"interface": host.interface} if host.interface else {}
        rows.append(row | {"devices": [named[rank] for rank in host.workers]})
    return yaml.safe_dump({"dtfm_hosts": 1, "hosts": rows}, sort_keys=False, allow_unicode=True)


def workers_by_device(spec: RunSpec) -> dict[str, int]:
    """Rank of the worker that stands for each device of the plan, idle ones left out."""
    return {spec.device_name(position, replica): rank for rank, (position, replica) in enumerate(spec.workers)}


def _first_worker_first(hosts: Sequence[Host]) -> tuple[Host, ...]:
    """Where worker 0 is, the crew is, and torchrun's first node."""
    serving = [host for host in hosts if host.workers]
    return tuple(sorted(serving, key=lambda host: 0 not in host.workers))
