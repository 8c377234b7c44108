"""What a cluster's manager says of its nodes: Kubernetes, Ray and Slurm; and ``~/.ssh/config`` of one's hosts.

``kubectl get nodes -o json``; ``ray list nodes --format json --detail``, or ``ray.nodes()`` as JSON; ``scontrol show
node``, or ``sinfo -N -o "%N %G"``.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.registry import in_a_row
from dtfm_lab.domain.units import counted
from dtfm_lab.files.machines.seen import Gpu, Host, Seen, Told
from dtfm_lab.files.reading import parse

MIB = 2**20
MOST_GPUS = 64
"""Most GPUs of a node."""
LABELS = ("topology.kubernetes.io/", "failure-domain.beta.kubernetes.io/")
OUT = frozenset({"DOWN", "DRAIN", "FAIL"})
"""Parts of a node's state, such as IDLE+DRAIN, in which Slurm starts nothing on it."""
GRES = re.compile(r"gpu(?::([^:(,\s]+))?:(\d+)(?=[(,\s]|$)")
"""A generic resource of Slurm's, with its type, where it has one, and how many: gpu:a100:8(S:0-1)."""


class _Address(Told):
    type: str
    address: str


class _Status(Told):
    capacity: dict[str, str] = Field(default_factory=dict)
    addresses: list[_Address] = Field(default_factory=list)


class _Metadata(Told):
    name: str
    labels: dict[str, str] = Field(default_factory=dict)


class _Node(Told):
    metadata: _Metadata
    status: _Status = _Status()


class _Nodes(Told):
    items: list[_Node]


def is_kubernetes(data: object) -> bool:
    return isinstance(data, dict) and data.get("kind") in ("List", "NodeList") and "items" in data


def read_kubernetes(data: object, path: Path) -> Seen:
    """Nodes with the GPUs that NVIDIA's device plugin offers, named by its feature discovery or by Google's labels."""
    hosts, without = [], []
    for node in parse(_Nodes, data, path.name).items:
        name, labels = node.metadata.name, node.metadata.labels
        shared = int(_whole(labels.get("nvidia.com/gpu.replicas"), path, name) or 1) > 1
        offered = labels.get("nvidia.com/gpu.count") if shared else node.status.capacity.get("nvidia.com/gpu")
        count = _whole(offered, path, name)
        if not count:
            without.append(name)
            continue
        gpu = labels.get("nvidia.com/gpu.product", "").removesuffix("-SHARED")
        gpu = gpu or labels.get("cloud.google.com/gke-accelerator", "")
        if not gpu:
            raise FileError(
                f"{path.name}: node {name} has {counted(count, 'GPU')} and no label nvidia.com/gpu.product that names "
                "them"
            )
        mib = _whole(labels.get("nvidia.com/gpu.memory"), path, name)
        region = next((labels[label + "region"] for label in LABELS if label + "region" in labels), "")
        addresses = frozenset(each.address for each in node.status.addresses) - {name}
        gpus = (Gpu(gpu, float(mib) * MIB if mib else None),) * count
        hosts.append(Host(name=name, addresses=addresses, gpus=gpus, region=region))
    return _cluster(path, hosts, without)


def _whole(text: str | None, path: Path, node: str) -> int:
    if text is None:
        return 0
    if not re.fullmatch(r"\d{1,9}", text.strip()):
        raise FileError(f"{path.name}: node {node} says {shortened(text)} of its GPUs; wanted a whole number")
    return int(text)


class _RayNode(Told):
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


def read_ray(data: object, path: Path) -> Seen:
    """Living nodes with their GPUs, as the resource ``accelerator_type:...`` names them."""
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
        if len(kinds) != 1:
            raise FileError(
                f"{path.name}: node {name} names {len(kinds)} kinds of GPU; wanted one accelerator_type:..."
            )
        gpu = Gpu(re.sub(r"\b(\d+)G\b", r"\1GB", kinds[0]))
        hosts.append(Host(name=name, addresses=frozenset({address} - {name}), gpus=(gpu,) * int(count)))
    return _cluster(path, hosts, without)


def is_slurm(text: str) -> bool:
    return re.search(r"^NodeName=\S+ ", text, re.MULTILINE) is not None or _columns(text) is not None


def read_slurm(text: str, path: Path) -> Seen:
    """Nodes with their generic resources (Gres); ``scontrol`` has addresses and states, too."""
    if (columns := _columns(text)) is not None:
        lines = [line.split() for line in text.splitlines()[1:] if line.strip()]
        if short := next((line for line in lines if len(line) <= max(columns) or _is_cut(line[columns[1]])), None):
            raise FileError(f'{path.name}: line {shortened(" ".join(short))} is cut off; wanted sinfo -N -o "%N %G"')
        found = [(line[columns[0]], line[columns[1]], "", "") for line in lines]
    else:
        blocks = re.split(r"^(?=NodeName=)", text, flags=re.MULTILINE)
        fields = [dict(re.findall(r"(\w+)=(\S*)", block)) for block in blocks if block.startswith("NodeName=")]
        found = [(e["NodeName"], e.get("Gres", ""), e.get("NodeAddr", ""), e.get("State", "")) for e in fields]
    hosts: dict[str, Host] = {}
    without = []
    for name, resources, address, state in found:
        if "[" in name:
            raise FileError(
                f'{path.name}: {name} is several nodes in one line; wanted sinfo -N -o "%N %G", a line each'
            )
        kinds = GRES.findall(resources)
        if not kinds or not OUT.isdisjoint(re.split(r"[^A-Z_]", state)):
            without.append(f"{name} ({state.lower()})" if kinds else name)
            continue
        if not all(kind for kind, _ in kinds):
            without.append(f"{name} ({resources} names no type)")
            continue
        gpus = [Gpu(kind.replace("_", " ")) for kind, count in kinds for _ in range(min(int(count), MOST_GPUS + 1))]
        if len(gpus) > MOST_GPUS:
            raise FileError(f"{path.name}: node {name} has {shortened(resources)}; wanted at most {MOST_GPUS} GPUs")
        # a node stands in a line for each of its partitions
        hosts[name] = Host(name=name, addresses=frozenset({address} - {name, ""}), gpus=tuple(gpus))
    return _cluster(path, [*hosts.values()], list(dict.fromkeys(without)))


def _is_cut(resources: str) -> bool:
    """Whether GPUs lack their number: sinfo --Format has 20 characters for a column where it is not told."""
    return resources.startswith("gpu") and GRES.search(resources) is None


def _columns(text: str) -> tuple[int, int] | None:
    """Where the header of sinfo has the node's name and its resources."""
    header = text.partition("\n")[0].split()
    return (header.index("NODELIST"), header.index("GRES")) if {"NODELIST", "GRES"} <= {*header} else None


def _cluster(path: Path, hosts: Sequence[Host], without: Sequence[str]) -> Seen:
    if not hosts:
        raise FileError(f"{path.name}: none of its {len(without)} nodes has a GPU; wanted one at least")
    notes = (f"{path.name}: left out, as they offer no GPU that is known: {in_a_row(without, 6)}",) if without else ()
    return Seen(hosts=tuple(hosts), are_near=True, notes=notes)


def is_ssh(text: str) -> bool:
    return re.search(r"^\s*Host[ \t=]+\S", text, re.MULTILINE | re.IGNORECASE) is not None


def read_ssh(text: str, path: Path) -> Seen:
    """Each host under its first name that is no pattern; ``Include`` and ``Match`` are not followed (ssh_config(5))."""
    hosts: list[Host] = []
    current: list[str] = []
    for line in text.splitlines():
        found = re.match(r"\s*(\w+)(?:\s*=\s*|\s+)(.*\S)", line)
        key, value = (found[1].casefold(), found[2].strip('"')) if found else ("", "")
        if key in ("host", "match"):
            current = [name for name in value.split() if not set(name) & set("*?!")] if key == "host" else []
            if current:
                hosts.append(Host(name=current[0], addresses=frozenset(current[1:])))
        elif key == "hostname" and current:
            hosts[-1] = Host(name=current[0], addresses=frozenset([*current[1:], value]) - {current[0]})
    if not hosts:
        raise FileError(f"{path.name}: names no host but patterns; wanted Host lines with a name")
    return Seen(hosts=tuple(hosts))
