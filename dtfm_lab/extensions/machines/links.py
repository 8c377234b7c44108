"""Speeds of links by kind of GPU: NVLink, PCIe, and the NICs of cloud hosts with this GPU.

Links that were not measured are estimates, each with a minimum and a maximum.
"""

import re
from typing import NamedTuple

from dtfm_lab.domain.network import known_gpu
from dtfm_lab.domain.units import GB, format_gbps, from_gbps, to_gbps
from dtfm_lab.extensions.machines.seen import ReportedGpu, ReportedHost
from dtfm_lab.extensions.machines.text import rows_of

NVLINK_S = 1e-5
"""Assumed latency in seconds between two GPUs of a host over NVLink, as in the networks that ship with the lab."""
PCIE_S = 2e-5
"""Assumed latency in seconds over PCIe, also as in these networks."""
NEAR_S = 1e-4
"""Assumed latency in seconds between two hosts of a cluster."""
NEAR_GBPS = 10.0
"""Gbit/s between two hosts of a cluster if not measured: ordinary Ethernet."""
LEAST_NEAR_GBPS = 1.0
"""Minimum Gbit/s of a link that is assumed to have ``NEAR_GBPS``."""
MOST_NEAR_GBPS = 100.0
"""Maximum Gbit/s of such a link. It is higher if faster NICs are sold with the hosts' GPUs."""
PCIE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""GB/s of a PCIe lane in one direction, by generation (PCI-SIG, after encoding)."""
USUAL_PCIE = (4, 16)
"""Assumed generation and number of lanes of a PCIe connection that no tool reports."""
LEAST_PCIE = (3, 8)
"""Minimum generation and number of lanes of such a connection."""
MOST_PCIE = (5, 16)
"""Maximum generation and number of lanes of such a connection."""
GEFORCE = re.compile(r"RTX [2-5]0[5-9]0\b")
"""Matches GeForce GPUs. They copy directly to each other only over NVLink, because NVIDIA's driver does not allow it
over PCIe."""
THROUGH_HOST_BYTES_PER_S = 6.12e9 / 2
"""Bytes/s each way between two GPUs that match ``GEFORCE``, which send through the host's memory.

Two RTX 3090s copy 6.11 to 6.13 GB/s in both directions together, on PCIe 3 x16 (NVIDIA/nccl, issue 1127).
"""
MOST_THROUGH_HOST = 0.7
"""Upper limit between two such GPUs, as a share of PCIe's rate. RTX 4090s copy 20 to 22 GB/s one way on PCIe 4 x16
(NVIDIA/nccl, issue 814)."""
HOST_OF_MODULES = 8
"""In hosts with at least this number of GPUs, a name without a form factor (A100) means modules (SXM), not PCIe
cards."""
ONLY_MODULES = frozenset({"B200", "B300", "GB200", "GB300", "GH200", "MI300X", "MI325X", "MI350X", "MI355X"})
"""Kinds that are never sold as PCIe cards."""
RACKS = frozenset({"GB200", "GB300"})
"""Kinds whose NVLink also reaches the other hosts of a rack."""
FABRIC_GBPS = {
    row["gpu"]: tuple(float(row[f"{which}_gbps"]) for which in ("least", "usual", "most"))
    for row in rows_of("fabrics.csv")
}
"""Gbit/s of all NICs of a host with eight GPUs, by GPU: minimum, usual and maximum in clouds that sell a fast network.

The file gives the sources that are known. Numbers without a source are assumed.
"""


class _NvLink(NamedTuple):
    """The NVLinks of one kind of GPU: a row of ``nvlinks.csv``. ``links`` is their number per GPU."""

    links: int
    bytes_per_s: float
    """Speed of one link in one direction."""
    are_modules: bool
    """True if a name without a form factor means a module (SXM, OAM) on a board that connects all GPUs of a host."""


NVLINKS = {
    row["gpu"]: _NvLink(int(row["links"]), float(row["gb_per_s"]) * GB, bool(row["modules"]))
    for row in rows_of("nvlinks.csv")
}
"""NVLink, or AMD's Infinity Fabric, of each kind of GPU that has it. The file gives a source for each."""


class LinkSpeed(NamedTuple):
    """The speed of a link, measured or estimated, and its origin."""

    latency_s: float
    bytes_per_s: float
    said: str
    ends: tuple[float, float] | None = None
    """Minimum and maximum bytes per second if the speed is an estimate; None otherwise."""


def _row_of(gpu: ReportedGpu) -> _NvLink | None:
    """Return the NVLink of a GPU, found by the name that a tool gives it. None for an unknown GPU or one without
    NVLink."""
    name = gpu.name.lower()
    for of_china in ("A800", "H800"):  # like A100 and H100, except for their NVLink
        if of_china.lower() in name:
            return NVLINKS[of_china]
    found = NVLINKS.get(known_gpu(*gpu) or "")
    # The tables name these GPUs by their modules, but their cards have no NVLink.
    if found is not None and "pcie" in name and known_gpu(*gpu) in ("P100", "V100", "V100 32GB"):
        return None
    return found


def nvlink_bytes_per_s(gpu: ReportedGpu) -> float | None:
    """Return bytes per second, in one direction, of all NVLinks of a GPU together. None without NVLink or for an
    unknown GPU."""
    row = _row_of(gpu)
    return None if row is None else row.links * row.bytes_per_s


def bridge_bytes_per_s(gpu: ReportedGpu, links: int) -> float:
    """Return bytes per second, in one direction, of ``links`` NVLinks that are bonded. A GPU without a row in the table
    of NVLinks gets 25 GB/s per link."""
    row = _row_of(gpu)
    return links * (25 * GB if row is None else row.bytes_per_s)


def pcie_bytes_per_s(generation: int, lanes: int) -> float:
    return PCIE_GB_PER_S.get(generation, PCIE_GB_PER_S[4]) * lanes * GB


def fabric_bytes_per_s(gpu: ReportedGpu, n_gpus: int) -> float | None:
    """Return the maximum bytes per second from a host of ``n_gpus`` to another, over the fastest network sold with this
    GPU. A host gets an eighth of an eight-GPU host's bandwidth for each of its GPUs.

    None if no such network is known. If NVLink connects the hosts of a rack, one GPU's NVLink is returned.
    """
    kind = known_gpu(*gpu) or ""
    if kind in RACKS:
        return nvlink_bytes_per_s(gpu)
    return None if kind not in FABRIC_GBPS else from_gbps(FABRIC_GBPS[kind][2]) * n_gpus / 8


def between_near(a: ReportedHost, b: ReportedHost) -> LinkSpeed:
    """Estimate the link between two hosts of one cluster."""
    kinds = [FABRIC_GBPS.get(known_gpu(*gpu) or "") for host in (a, b) for gpu in host.gpus[:1]]
    n = min(len(a.gpus), len(b.gpus))
    # Clouds sell a fast network with eight GPUs per host. A host with fewer GPUs gets its share of the bandwidth.
    fast = [tuple(gbps * min(n, 8) / 8 for gbps in kind) for kind in kinds if kind]
    most = min((each[2] for each in fast), default=0.0) if len(fast) == 2 else 0.0
    if fast and len(fast) == 2 and a.has_best_network and b.has_best_network:
        least, usual, most = (min(each[i] for each in fast) for i in range(3))
        said = f"estimated {usual:,.0f} Gbit/s, the fast network that such hosts are sold with"
        return LinkSpeed(NVLINK_S * 2, from_gbps(usual), said, (from_gbps(least), from_gbps(most)))
    most = max(most, MOST_NEAR_GBPS)
    said = f"estimated {NEAR_GBPS:.0f} Gbit/s in one cluster"
    return LinkSpeed(NEAR_S, from_gbps(NEAR_GBPS), said, (from_gbps(LEAST_NEAR_GBPS), from_gbps(most)))


def inside(host: ReportedHost, *, bridged: bool = True) -> LinkSpeed:
    """Estimate the link between two GPUs of a host if neither ``nvidia-smi topo -m`` nor a test says how fast it is.

    ``bridged`` is False for two GPUs that are known to have no NVLink between them.
    """
    least = host.least_inside_bytes_per_s or 0.0
    rates = [nvlink_bytes_per_s(gpu) if bridged else None for gpu in host.gpus]
    nvlink = min((rate or 0.0 for rate in rates), default=0.0)
    # Modules such as SXM are always connected by NVLink; cards only by a bridge that someone has put in.
    if nvlink and all(_is_module(gpu, len(host.gpus)) for gpu in host.gpus):
        ends = max(pcie_bytes_per_s(*USUAL_PCIE), least), max(nvlink, least)
        said = (
            f"{_name_of(host)} at {format_gbps(to_gbps(ends[1]))}, estimated: {len(host.gpus)} such GPUs in a host are "
            "usually connected by it"
        )
        return LinkSpeed(NVLINK_S, ends[1], said, ends)
    rate = pcie_bytes_per_s(*(host.pcie or USUAL_PCIE))
    if least > rate:
        said = "at least what NCCL's tests reached over several hosts"
        return LinkSpeed(NVLINK_S, least, said, (least, max(nvlink, least)))
    said = "PCIe {} x{}".format(*(host.pcie or USUAL_PCIE))
    # NVIDIA's driver allows no direct copies between GeForce GPUs.
    if any(GEFORCE.match(known_gpu(*gpu) or "") for gpu in host.gpus):
        slow = max(min(THROUGH_HOST_BYTES_PER_S, rate), least)
        said = (
            f"{said} through the host's memory at {format_gbps(to_gbps(slow))}, estimated: GeForce GPUs are not peers"
        )
        return LinkSpeed(PCIE_S, slow, said, (slow, max(MOST_THROUGH_HOST * rate, nvlink, slow)))
    if host.pcie:
        may_have = f" ({_name_of(host)} may connect them: check nvidia-smi topo -m)" if nvlink else ""
        return LinkSpeed(PCIE_S, rate, said + may_have, (rate, nvlink) if nvlink > rate else None)
    # Nothing reports the link, so the range covers old as well as new machines.
    ends = max(pcie_bytes_per_s(*LEAST_PCIE), least), max(pcie_bytes_per_s(*MOST_PCIE), nvlink)
    return LinkSpeed(PCIE_S, rate, f"{said}, estimated: no source reports it", ends)


def as_modules(gpu: str, n_gpus: int) -> str:
    """Return the name of a GPU in a cloud host with ``n_gpus``. Append SXM if the host has several GPUs, if the kind is
    sold as modules, and if the name gives no form factor."""
    row = NVLINKS.get(known_gpu(gpu) or "")
    is_bare = row is not None and row.are_modules and not re.search(r"pcie|nvl|sxm", gpu.lower())
    return f"{gpu} SXM" if is_bare and n_gpus > 1 else gpu


def _name_of(host: ReportedHost) -> str:
    return "Infinity Fabric" if (known_gpu(*host.gpus[0]) or "").startswith("MI") else "NVLink"


def _is_module(gpu: ReportedGpu, n_gpus: int) -> bool:
    """Return True if a GPU is a module on a board that connects the host's GPUs, by its name or their number."""
    kind, row = known_gpu(*gpu), _row_of(gpu)
    words = {*re.findall(r"[a-z0-9]+", gpu.name.lower())}
    if row is None or not row.are_modules or words & {"pcie", "nvl"}:
        return False
    says_so = any(re.fullmatch(r"sxm\d?|hbm3e?|nvlink|oam|hgx", word) for word in words)
    return says_so or kind in ONLY_MODULES or n_gpus >= HOST_OF_MODULES
