"""Which host runs which devices of a plan: from a file, from a run folder, or a fixed number of devices per host.

::

    dtfm_hosts: 1
    hosts:
    - name: desk
      address: 10.0.0.1
      devices: [ada, barbara]

Devices that the plan does not use may be listed or omitted.
"""

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

from dtfm_lab.domain.errors import FileError, LabError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.registry import unknown
from dtfm_lab.files.reading import Section, located, parse, read_mapping, read_text
from dtfm_lab.runtime.protocol.certificates import Certificates, certificates_in, require_private
from dtfm_lab.runtime.protocol.run_options import RunSpec

PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Allowed names of hosts. They become folder names and words of shell scripts."""
ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")


AWAIT_S = 300.0
"""Default seconds that a worker tries to reach the coordinator, and that the coordinator waits for a worker."""
SILENT_S = 30.0
"""Default seconds without an acknowledgement after which a connection between worker and coordinator counts as lost."""


TEXTS = Path(__file__).parent / "texts"


def filled(file: str, /, **values: Any) -> str:
    """Return the content of a file in the folder ``texts``, with its placeholders in braces replaced by ``values``."""
    return (TEXTS / file).read_text(encoding="utf-8").format(**values)


class RunHost(Section):
    """One machine. Raises LabError for a name or an address that is unsafe in a shell script."""

    name: str
    address: str
    workers: tuple[int, ...]
    """Ranks of its workers, ascending, which is also the order of the host's processes."""

    def model_post_init(self, context: object) -> None:
        # Both go into shell scripts, so only harmless characters are allowed.
        for what, text, pattern, wanted in (
            ("name", self.name, PLAIN, "letters, digits, dots and hyphens"),
            ("address", self.address, ADDRESS, "a host name or an IP address"),
        ):
            if not pattern.fullmatch(text):
                raise LabError(f"host {shortened(self.name)}: {what} is {shortened(text)}; wanted {wanted}")


class HostEntry(Section):
    """One host in hosts.yaml."""

    name: str
    address: str
    devices: list[str]


class HostsFile(Section):
    """The contents of hosts.yaml."""

    dtfm_hosts: int
    hosts: list[HostEntry] = Field(min_length=1)


def load_hosts(path: str | os.PathLike[str], spec: RunSpec) -> tuple[RunHost, ...]:
    """Return the hosts in a file that run workers of ``spec``, the host of worker 0 first. Raises errors as
    ``read_hosts`` does."""
    return read_hosts(path, workers_by_device(spec), spec.plan.topology.names)


def read_hosts(path: str | os.PathLike[str], workers: Mapping[str, int], known: Collection[str]) -> tuple[RunHost, ...]:
    """Return the hosts in a file that run workers, the host of worker 0 first. ``workers`` has the rank of each device
    that the plan uses.

    Raises FileError or LabError, naming the file, for a device that is missing, repeated or not in the network, and for
    a host that is repeated.
    """
    path = Path(path)
    data = read_mapping(path)
    file = parse(HostsFile, data, path.name, version="dtfm_hosts")
    with located(path.name):
        for what, names in (
            ("host", [host.name for host in file.hosts]),
            ("device", [device for host in file.hosts for device in host.devices]),
        ):
            name, count = Counter(names).most_common(1)[0] if names else ("", 0)
            if count > 1:
                raise FileError(f"{what} {shortened(name)} is there {count} times; wanted it once")
        for device in names:
            if device not in known:
                raise unknown("device", device, known)
        if missing := [device for device in workers if device not in names]:
            raise FileError(f"device {missing[0]} is on no host; wanted all {len(workers)} that the plan uses")
        hosts = [
            # Devices without a worker in this plan may stay in the file.
            RunHost(
                name=host.name,
                address=host.address,
                workers=tuple(sorted(workers[device] for device in host.devices if device in workers)),
            )
            for host in file.hosts
        ]
        return _first_worker_first(hosts)


def hosts_of(spec: RunSpec, per_host: int = 1) -> tuple[RunHost, ...]:
    """Return hosts for the devices that the plan uses: ``per_host`` devices each, in the network's order. The last
    group may be smaller. The host of worker 0 comes first. A host's name and address come from its first device."""
    workers = workers_by_device(spec)
    return named_hosts(by_count([name for name in spec.plan.topology.names if name in workers], per_host), workers)


def by_count(devices: Sequence[str], per_host: int) -> list[tuple[str, list[str]]]:
    """Return (name, devices) of hosts with ``per_host`` devices each. The last host may have fewer. A host is named
    after its first device. Raises LabError if ``per_host`` is not a whole number above 0."""
    if not isinstance(per_host, int) or isinstance(per_host, bool) or per_host < 1:
        raise LabError(f"workers per host is {shortened(per_host)}; wanted 1 or more")
    firsts = range(0, len(devices), per_host)
    return [(devices[first], list(devices[first : first + per_host])) for first in firsts]


def named_hosts(groups: Iterable[tuple[str, Sequence[str]]], workers: Mapping[str, int]) -> tuple[RunHost, ...]:
    """Return the hosts of these (name, devices) groups. Names that are repeated or unsafe in a shell script are
    replaced. Each name also serves as the address."""
    hosts: list[RunHost] = []
    for given, devices in groups:
        plain = re.sub(r"[^A-Za-z0-9.]+", "-", given).strip("-.")
        # Unsafe or double names are replaced, because each host finds its folder by its name.
        name = plain if plain and plain not in {host.name for host in hosts} else f"host-{len(hosts)}"
        own = tuple(sorted(workers[device] for device in devices))
        hosts.append(RunHost(name=name, address=name, workers=own))
    return _first_worker_first(hosts)


def hosts_file(hosts: Sequence[RunHost], workers: Mapping[str, int]) -> str:
    """Return YAML for ``read_hosts``, for the user to edit."""
    named = {rank: device for device, rank in workers.items()}
    rows = [
        {"name": host.name, "address": host.address, "devices": [named[rank] for rank in host.workers]}
        for host in hosts
    ]
    return yaml.safe_dump({"dtfm_hosts": 1, "hosts": rows}, sort_keys=False, allow_unicode=True)


def workers_by_device(spec: RunSpec) -> dict[str, int]:
    """Return the rank of the worker of each device that the plan uses."""
    return {spec.device_name(position, replica): rank for rank, (position, replica) in enumerate(spec.workers)}


def _first_worker_first(hosts: Sequence[RunHost]) -> tuple[RunHost, ...]:
    """Return the hosts that have workers. The host of worker 0 comes first, because the coordinator runs there."""
    serving = [host for host in hosts if host.workers]
    return tuple(sorted(serving, key=lambda host: 0 not in host.workers))


class RunFile(Section):
    """The contents of run.json."""

    dtfm_run: int
    workers: list[int]
    """Ranks of all workers, host by host."""
    crew_address: str
    """Address of the coordinator. The key dates from its earlier name."""
    crew_port: int = Field(ge=1, le=65535)
    hosts: list[RunHost]
    """The hosts, the coordinator's first."""
    await_s: float = Field(default=AWAIT_S, gt=0, allow_inf_nan=False)
    """Seconds that the run waits for a worker to join, or for a lost one to return."""
    silent_s: float = Field(default=SILENT_S, gt=0, allow_inf_nan=False)
    """Seconds without an acknowledgement after which a connection to the coordinator is lost."""

    def model_post_init(self, context: object) -> None:
        if not ADDRESS.fullmatch(self.crew_address):
            found = shortened(self.crew_address)
            raise LabError(f"crew_address is {found}; wanted a host name or an IP address")


@dataclass(frozen=True)
class RunFolder:
    """The contents of a run folder, as a process needs them."""

    path: Path
    spec: RunSpec
    hosts: dict[str, tuple[int, ...]]
    """Ranks of each host's workers by host name, in the order of its processes. The coordinator's host is the first."""
    address: str
    """Address of the coordinator's host."""
    port: int
    await_s: float
    silent_s: float

    @property
    def certificates(self) -> Certificates:
        """Certificates by which the run's hosts recognise each other."""
        return certificates_in(self.path)


def load_run_folder(path: str | os.PathLike[str]) -> RunFolder:
    """Read a run folder, with paths of the spec resolved on this host. Raises LabError if a file is missing, invalid or
    not private."""
    folder = Path(path).resolve()
    where = f"{folder.name}/run.json"
    data = read_mapping(folder / "run.json")
    file = parse(RunFile, data, where, version="dtfm_run")
    require_private(folder / "spec.json")
    with located(f"{folder.name}/spec.json"):
        spec = RunSpec.from_line(read_text(folder / "spec.json"))
        for synchronise in (False, True):
            spec.programs(synchronise=synchronise)  # refuses a schedule that is not for this plan
    paths = {name: getattr(spec, name) for name in ("text", "checkpoint_folder")}
    # Paths are relative to the folder, wherever it lies on this host.
    spec = replace(spec, **{name: os.fspath(folder / path) for name, path in paths.items() if path is not None})
    hosts = {host.name: host.workers for host in file.hosts}
    held = [rank for ranks in hosts.values() for rank in ranks]
    if sorted(held) != list(range(len(spec.workers))):
        raise FileError(f"{where}: workers are {held}; wanted each of 0 to {len(spec.workers) - 1} once")
    return RunFolder(folder, spec, hosts, file.crew_address, file.crew_port, file.await_s, file.silent_s)
