"""Read nodes of Kubernetes: ``kubectl get nodes -o json``, or a single one (``kubectl get node NAME -o json``)."""

import re
from pathlib import Path
from typing import Any

from pydantic import Field

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.units import counted
from dtfm_lab.extensions.machines.cloud_names import INSTANCE_LABELS, PRODUCT_LABELS, gpu_of_instance, gpu_of_label
from dtfm_lab.extensions.machines.clusters import cluster
from dtfm_lab.extensions.machines.seen import MOST_GPUS, ReportedGpu, ReportedHost, SourceReport, ToolOutput
from dtfm_lab.files.reading import parse

MIB = 2**20
LABELS = ("topology.kubernetes.io/", "failure-domain.beta.kubernetes.io/")
RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu")
"""Resources of device plugins: NVIDIA's whole GPUs, NVIDIA's time-shared GPUs, and AMD's."""
OTHERS = re.compile(
    r"nvidia\.com/mig-|habana\.ai/|google\.com/tpu|aws\.amazon\.com/neuron|gpu\.intel\.com/|huawei\.com/"
)
"""Matches the resources of accelerators, or of fractions of a GPU, that are not supported."""
AWAY = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/out-of-service",
        "ToBeDeletedByClusterAutoscaler",
    }
)
"""Taints of nodes on which no new pod starts."""
MIG = re.compile(r"mig-[0-9]|[0-9]g\.[0-9]{1,3}gb", re.IGNORECASE)


class _Address(ToolOutput):
    type: str
    address: str


class _Condition(ToolOutput):
    type: str
    status: str


class _Status(ToolOutput):
    capacity: dict[str, str] = Field(default_factory=dict)
    allocatable: dict[str, str] | None = None
    conditions: list[_Condition] | None = None
    addresses: list[_Address] | None = None


class _Taint(ToolOutput):
    key: str = ""


class _Spec(ToolOutput):
    unschedulable: bool = False
    taints: list[_Taint] | None = None


class _Metadata(ToolOutput):
    name: str
    labels: dict[str, str] = Field(default_factory=dict)
    deletion: str = Field(default="", alias="deletionTimestamp")


class _Node(ToolOutput):
    kind: str = "Node"
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Nodes(ToolOutput):
    items: list[_Node]


def is_kubernetes(data: object) -> bool:
    if not isinstance(data, dict):
        return False
    is_list = data.get("kind") in ("List", "NodeList") and "items" in data
    return is_list or (data.get("kind") == "Node" and "metadata" in data)


def read_kubernetes(data: Any, path: Path) -> SourceReport:
    """Read the nodes that accept work. A node's GPUs are those that its device plugin offers and has not withdrawn.

    The GPU's name comes from NVIDIA's feature discovery or AMD's labeller, or from the cloud's instance type or label.
    Raises FileError for other objects than nodes, or for a node with too many GPUs.
    """
    nodes = parse(_Nodes, data if "items" in data else {"items": [data]}, path.name).items
    if strange := next((node.kind for node in nodes if node.kind != "Node"), None):
        raise FileError(f"{path.name}: lists {shortened(strange)} objects; wanted kubectl get nodes -o json")
    hosts, without, notes, short = [], [], [], []
    for node in nodes:
        name, labels = node.metadata.name, node.metadata.labels
        count, offered = _count(node, path)
        if not offered:
            without.append(name + _other(node))
            continue
        if why := _away(node):
            without.append(f"{name} ({why})")
            continue
        if not count:
            without.append(f"{name} (its device plugin has withdrawn all {offered})")
            continue
        if offered > MOST_GPUS:
            raise FileError(f"{path.name}: node {name} has {offered} GPUs; wanted at most {MOST_GPUS}")
        if (gpu := _gpu(node, path)) is None:
            without.append(f"{name} ({counted(count, 'GPU')}, and no label nvidia.com/gpu.product that names them)")
            continue
        if MIG.search(gpu.name) or "cloud.google.com/gke-gpu-partition-size" in labels:
            without.append(f"{name} (MIG slices are not whole GPUs)")
            continue
        if count < offered:
            short.append(f"{name} ({count} of {offered})")
        region = next((labels[label + "region"] for label in LABELS if label + "region" in labels), "")
        addresses = frozenset(each.address for each in node.status.addresses or ()) - {name}
        hosts.append(ReportedHost(name=name, addresses=addresses, gpus=(gpu,) * count, region=region))
    if short:
        notes.append(f"{path.name}: GPUs that their device plugin has withdrawn do not count: {', '.join(short)}")
    return cluster(path, hosts, without, notes)


def _away(node: _Node) -> str:
    """Return why no new pod starts on a node, "" if pods do."""
    if any(each.type == "Ready" and each.status != "True" for each in node.status.conditions or ()):
        return "not ready"
    if node.spec.unschedulable:
        return "cordoned"
    if node.metadata.deletion:
        return "being deleted"
    taint = next((each.key for each in node.spec.taints or () if each.key in AWAY), "")
    return taint.rpartition("/")[2]


def _other(node: _Node) -> str:
    """Return a remark about another accelerator that a node without a GPU has: `` (google.com/tpu is not read)``. Empty
    if none."""
    kinds = [what for what, count in node.status.capacity.items() if OTHERS.match(what) and count != "0"]
    return f" ({kinds[0]} is not read)" if kinds else ""


def _count(node: _Node, path: Path) -> tuple[int, int]:
    """Return two numbers of whole GPUs of a node: those that it offers to pods now, and all that are installed.

    If several pods share a GPU by time slicing, the plugin offers each GPU several times.
    """
    labels, capacity = node.metadata.labels, node.status.capacity
    allocatable = capacity if node.status.allocatable is None else node.status.allocatable
    for what in RESOURCES:
        name = node.metadata.name
        there, to_be_had = (_whole(each.get(what), path, name) for each in (capacity, allocatable))
        if not (there := there or to_be_had):
            continue
        to_be_had = min(to_be_had, there)
        shared = max(_whole(labels.get(label), path, name) for label in SHARED_BY)
        # Time-sliced GPUs are offered several times each.
        if shared > 1 and what.startswith("nvidia"):
            whole = _whole(labels.get("nvidia.com/gpu.count"), path, name) or -(-there // shared)
            return min(-(-to_be_had // shared), whole), whole
        return to_be_had, there
    return 0, 0


SHARED_BY = ("nvidia.com/gpu.replicas", "cloud.google.com/gke-max-shared-clients-per-gpu")


def _gpu(node: _Node, path: Path) -> ReportedGpu | None:
    """Return the kind of a node's GPUs, with their memory if a label has it. None if nothing names them."""
    labels = node.metadata.labels
    product = labels.get("nvidia.com/gpu.product", "").removesuffix("-SHARED")
    instance = next((gpu for label in INSTANCE_LABELS if (gpu := gpu_of_instance(labels.get(label, "")))), "")
    beta = next((key.rpartition("product-name.")[2] for key in labels if "amd.com/gpu.product-name." in key), "")
    labelled = [gpu_of_label(label, labels[label]) for label in PRODUCT_LABELS if labels.get(label)]
    gpu = product or instance or next(iter(labelled), "") or beta
    return ReportedGpu(gpu, _memory(node, path)) if gpu else None


def _memory(node: _Node, path: Path) -> float | None:
    labels, name = node.metadata.labels, node.metadata.name
    mib = _whole(labels.get("nvidia.com/gpu.memory"), path, name)
    mib = mib or _whole(labels.get("karpenter.k8s.aws/instance-gpu-memory"), path, name)
    mib = mib or 1024 * _whole(labels.get("gpu.nvidia.com/vram"), path, name)
    vram = re.fullmatch(
        r"([0-9]{1,6})(Gi?|Mi?)", labels.get("amd.com/gpu.vram", labels.get("beta.amd.com/gpu.vram", ""))
    )
    if not mib and vram:
        mib = int(vram[1]) * (1024 if vram[2].startswith("G") else 1)
    return float(mib) * MIB if mib else None


def _whole(text: str | None, path: Path, node: str) -> int:
    if text is None:
        return 0
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()) or int(text) > 2**30:
        raise FileError(f"{path.name}: node {node} says {shortened(text)} of its GPUs; wanted a whole number")
    return int(text)
