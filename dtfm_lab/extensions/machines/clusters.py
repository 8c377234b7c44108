"""Read the nodes of a cluster from Ray and Slurm, and hosts from ``~/.ssh/config``.

The text for Ray is the output of ``ray list nodes --format json --detail``, or ``ray.nodes()`` as JSON. For Slurm it is
the output of ``scontrol show node`` or of ``sinfo -N -o "%N %G"``, also with states and features (``"%N %G %T %f"``).
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.registry import in_a_row
from dtfm_lab.extensions.machines.seen import MOST_GPUS, ReportedGpu, ReportedHost, SourceReport, ToolOutput
from dtfm_lab.files.reading import parse

OUT = re.compile(r"down|drain|drng|fail|not_responding|no_respond|inval|inact|futr|future|maint|blocked|error")
"""Matches the beginning of a state in which Slurm starts no job on a node. Several states may be joined, as in
IDLE+DRAIN."""
OUT_FLAGS = frozenset("*$")
"""Suffixes of a state: the node does not answer, or is reserved for maintenance (sinfo(1), "node state codes")."""
ASLEEP = re.compile(r"power(?:ed|ing)?_?(?:down|off)|pow_dn|powr_dn")
"""Power-saving states: Slurm starts the node when a job needs it."""
GRES = re.compile(r"gpu(?::([^:(,\s]{1,100}))?:([0-9]{1,9})(?=[(,\s]|$)")
"""Matches a generic resource (Gres) of Slurm, such as ``gpu:a100:8(S:0-1)``: its type, if there is one, and the number
of GPUs."""
MIG = re.compile(r"(?:^|[^0-9a-z])[1-9]g\.[0-9]{1,3}gb", re.IGNORECASE)
"""Matches the name of a slice of a GPU, made by MIG: ``a100_3g.20gb``."""
FEATURE = re.compile(r"([a-z]{1,3}[0-9]{2,4})[_-]?(?:sxm[0-9]?|pcie)?[_-]?([0-9]{2,3})gb?")
"""Matches a node feature that names a GPU and its memory: ``a100-80gb``."""


class _RayNode(ToolOutput):
    state: str = Field(default="ALIVE")
    alive: bool = Field(default=True, alias="Alive")
    node_ip: str = ""
    address: str = Field(default="", alias="NodeManagerAddress")
    name: str = Field(default="", alias="NodeManagerHostname")
    resources: dict[str, object] = Field(default_factory=dict, alias="Resources")
    resources_total: dict[str, object] = Field(default_factory=dict)


def is_ray(data: object) -> bool:
    if not isinstance(data, list) or not data or not isinstance(data[0], dict):
        return False
    return "resources_total" in data[0] or {"NodeManagerAddress", "Resources"} <= data[0].keys()


def read_ray(data: object, path: Path) -> SourceReport:
    """Read living nodes with their GPUs, as named by the resource ``accelerator_type:...``. Raises FileError for a node
    whose number or kind of GPUs is unclear."""
    hosts, without = [], []
    for node in parse(list[_RayNode], data, path.name):
        address = node.node_ip or node.address
        name, resources = node.name or address, node.resources_total or node.resources
        if node.state != "ALIVE" or not node.alive:
            without.append(f"{name} (dead)")
            continue
        count = resources.get("GPU", 0)
        if not isinstance(count, int | float) or not 0 <= count <= MOST_GPUS:
            raise FileError(f"{path.name}: node {name} has {shortened(count)} GPUs; wanted 0 to {MOST_GPUS}")
        if not count:
            without.append(name)
            continue
        kinds = [what.partition(":")[2] for what in resources if what.startswith("accelerator_type:")]
        # Without a type, or with two, it is not known what a device computes.
        if len(kinds) != 1:
            raise FileError(
                f"{path.name}: node {name} names {len(kinds)} kinds of GPU; wanted one accelerator_type:..."
            )
        gpu = ReportedGpu(re.sub(r"\b(\d+)G\b", r"\1GB", kinds[0]))
        hosts.append(ReportedHost(name=name, addresses=frozenset({address} - {name}), gpus=(gpu,) * int(count)))
    return cluster(path, hosts, without)


def is_slurm(text: str) -> bool:
    return re.search(r"^NodeName=\S", text, re.MULTILINE) is not None or _columns(text) is not None


class _Listed(NamedTuple):
    """A node as Slurm prints it. Fields that the output lacks are empty."""

    name: str
    resources: str
    address: str = ""
    state: str = ""
    features: str = ""


def read_slurm(text: str, path: Path) -> SourceReport:
    """Read the nodes that accept jobs, with the GPUs among their generic resources (Gres). Only ``scontrol`` reports
    addresses. Raises FileError for several nodes in one line, or a node with too many GPUs."""
    hosts: dict[str, ReportedHost] = {}
    without, asleep = [], []
    for name, resources, address, state, features in _listed(text, path):
        # The rows must name one node each, since hosts are what is planned on.
        if "[" in name:
            raise FileError(
                f'{path.name}: {name} is several nodes in one line; wanted sinfo -N -o "%N %G", a line each'
            )
        kinds = GRES.findall(resources)
        if not kinds or _is_out(state):
            without.append(f"{name} ({state.lower()})" if kinds else name)
            continue
        if not all(kind for kind, _ in kinds):
            without.append(f"{name} ({resources} names no type)")
            continue
        # A slice has neither NVLink nor the speed of its GPU.
        if slices := [kind for kind, _ in kinds if MIG.search(kind)]:
            without.append(f"{name} ({slices[0]} is a slice of MIG)")
            continue
        gpus = [
            ReportedGpu(_with_memory(kind, features).replace("_", " "))
            for kind, count in kinds
            # One more than allowed, so that a count with many digits is refused without filling memory.
            for _ in range(min(int(count), MOST_GPUS + 1))
        ]
        if len(gpus) > MOST_GPUS:
            raise FileError(f"{path.name}: node {name} has {shortened(resources)}; wanted at most {MOST_GPUS} GPUs")
        if not gpus:
            without.append(name)
            continue
        if "~" in state or ASLEEP.search(state.lower()):
            asleep.append(name)
        # sinfo prints a node once for each of its partitions
        hosts[name] = ReportedHost(name=name, addresses=frozenset({address} - {name, ""}), gpus=tuple(gpus))
    notes = [f"{path.name}: powered down, and started by Slurm for a job: {in_a_row(asleep, 6)}"] if asleep else []
    return cluster(path, [*hosts.values()], list(dict.fromkeys(each for each in without if each not in hosts)), notes)


def _listed(text: str, path: Path) -> Iterator[_Listed]:
    if (columns := _columns(text)) is None:
        for block in re.split(r"^(?=NodeName=)", text, flags=re.MULTILINE):
            if block.startswith("NodeName="):
                said = dict(re.findall(r"(?<!\w)(\w{1,50})=(\S*)", block))
                features = said.get("ActiveFeatures", "") or said.get("AvailableFeatures", "")
                yield _Listed(
                    said["NodeName"], said.get("Gres", ""), said.get("NodeAddr", ""), said.get("State", ""), features
                )
        return
    at = [columns.get(what) for what in ("NODELIST", "GRES", "", "STATE", "AVAIL_FEATURES")]
    for line in text.splitlines()[1:]:
        if not (words := _cells(line)):
            continue
        if len(words) <= max(columns.values()) or _is_cut(words[columns["GRES"]]):
            raise FileError(f'{path.name}: line {shortened(" ".join(words))} is cut off; wanted sinfo -N -o "%N %G"')
        yield _Listed(*("" if where is None else words[where] for where in at))


def _is_out(state: str) -> bool:
    """Return True if Slurm starts no job on a node in this state, from sinfo (``drained*``) or scontrol
    (IDLE+DRAIN)."""
    return not OUT_FLAGS.isdisjoint(state) or any(OUT.match(part) for part in re.split(r"[^a-z_]+", state.lower()))


def _with_memory(kind: str, features: str) -> str:
    """Return a GPU's type. Append its memory if a feature of the node states it and the type does not."""
    sizes = [
        found for found in FEATURE.finditer(features.lower()[:1000]) if found[1] in re.split(r"[^a-z0-9]", kind.lower())
    ]
    return f"{kind} {sizes[0][2]}GB" if sizes and not re.search(r"[0-9]gb?\b", kind.lower()) else kind


def _is_cut(resources: str) -> bool:
    """Return True if the number of GPUs is cut off: sinfo --Format limits a column to 20 characters by default."""
    return resources.startswith("gpu") and GRES.search(resources) is None


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")] if "|" in line else line.split()


def _columns(text: str) -> dict[str, int] | None:
    """Return the positions of the columns in sinfo's header: the node's name and resources, and its state and features
    if present. None if the text does not start with such a header."""
    header = [OTHER_HEADINGS.get(cell, cell) for cell in _cells(text.partition("\n")[0][:10_000])]
    known: dict[str, int] = {
        what: header.index(what) for what in ("NODELIST", "GRES", "STATE", "AVAIL_FEATURES") if what in header
    }
    return known if {"NODELIST", "GRES"} <= known.keys() else None


OTHER_HEADINGS = {"HOSTNAMES": "NODELIST", "NODE": "NODELIST", "ACTIVE_FEATURES": "AVAIL_FEATURES"}


def cluster(
    path: Path, hosts: Sequence[ReportedHost], without: Sequence[str], notes: Sequence[str] = ()
) -> SourceReport:
    """Return the report of a cluster: its hosts, and notes about the nodes that were left out (``without``). Raises
    FileError if no host is left."""
    if not hosts:
        left = f": {in_a_row(without, 6)}" if any(" (" in each for each in without) else ""
        raise FileError(
            f"{path.name}: none of its {len(without)} nodes has an available GPU; wanted at least one{left}"
        )
    found = [*notes]
    if without:
        found.insert(
            0, f"{path.name}: left out, because they have no whole GPU or accept no jobs: {in_a_row(without, 6)}"
        )
    return SourceReport(hosts=tuple(hosts), are_near=True, notes=tuple(found))


def is_ssh(text: str) -> bool:
    return re.search(r"^[ \t]*Host[ \t=]+\S", text, re.MULTILINE | re.IGNORECASE) is not None


def read_ssh(text: str, path: Path) -> SourceReport:
    """Read each host under its first name that is not a pattern. ``Include`` and ``Match`` are ignored (ssh_config(5)).
    Raises FileError if all names are patterns."""
    hosts: list[ReportedHost] = []
    current: list[str] = []
    for line in text.splitlines():
        found = re.match(r"(\w+)[\s=]+(.+)", line.strip())
        key, value = (found[1].casefold(), found[2].strip('"')) if found else ("", "")
        if key in ("host", "match"):
            current = [name for name in value.split() if not set(name) & set("*?!")] if key == "host" else []
            if current:
                hosts.append(ReportedHost(name=current[0], addresses=frozenset(current[1:])))
        elif key == "hostname" and current:
            hosts[-1] = ReportedHost(name=current[0], addresses=frozenset([*current[1:], value]) - {current[0]})
    if not hosts:
        raise FileError(f"{path.name}: names no host but patterns; wanted Host lines with a name")
    return SourceReport(hosts=tuple(hosts))
