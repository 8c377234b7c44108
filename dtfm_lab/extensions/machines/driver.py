"""Read the output of NVIDIA's driver: the GPUs of a host (``nvidia-smi -q -x``) and their connections (``topo -m``).

Neither output names the host. Its name is the file's name up to the first dot (``gpubox.smi.xml``).
"""

import re
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.network import shortened
from dtfm_lab.extensions.machines.seen import ReportedGpu, ReportedHost, SourceReport
from dtfm_lab.extensions.machines.text import unprefixed

MIB = 2**20
CONNECTED = re.compile(r"NV[0-9]{1,3}|PIX|PXB|PHB|NODE|SYS|SOC")
HEADING = re.compile(r"GPU[0-9]{0,4}|NIC[0-9]{1,4}|(?:mlx|hfi)\S{1,40}|CPU|NUMA|Affinity|ID")
ROCM = re.compile(r"\bXGMI\b|ROCm System Management|AMD System Management|Hops between two GPUs")


def host_of(path: Path) -> str:
    """Return the host that a file is named after."""
    return path.name.partition(".")[0]


def is_smi(text: str) -> bool:
    return "<nvidia_smi_log" in text[:2000]


def read_smi(text: str, path: Path) -> SourceReport:
    """Read the GPUs from ``nvidia-smi -q -x``, each with its memory, and the slowest PCIe connection among them.

    The PCIe generation is the highest that GPU and slot support, because the current one drops while a GPU is idle. The
    number of lanes is the current one, because the slot may have fewer lanes than the GPU. GPUs that MIG divides into
    slices are left out. Raises FileError if no GPU is left, or if the XML is invalid.
    """
    # Entities could expand to gigabytes, and the driver never writes any.
    if "<!ENTITY" in text:
        raise FileError(f"{path.name}: declares entities, which nvidia-smi never does; wanted its output as it is")
    try:
        root = ElementTree.fromstring(text.lstrip("\ufeff \t\r\n"))
    except (ElementTree.ParseError, ValueError) as error:
        raise FileError(f"{path.name}: broken XML: {error}") from None
    gpus: dict[int, ReportedGpu] = {}
    links, slices = [], []
    for number, gpu in enumerate(root.findall("gpu")):
        name, total = gpu.findtext("product_name", ""), gpu.findtext("fb_memory_usage/total", "")
        if not name.strip():
            raise FileError(f"{path.name}: GPU {number} has no product_name; wanted the output of nvidia-smi -q -x")
        if (
            gpu.findtext("mig_mode/current_mig", "").strip() == "Enabled"
            or gpu.find("mig_devices/mig_device") is not None
        ):
            slices.append(f"GPU {number}")
            continue
        mib = re.fullmatch(r"\s*([0-9]{1,12}) MiB\s*", total)
        gpus[number] = ReportedGpu(" ".join(name.split()), float(mib[1]) * MIB if mib and int(mib[1]) else None)
        links += _slot(gpu)
    if not gpus and slices:
        raise FileError(
            f"{path.name}: MIG cuts {'its only GPU' if len(slices) == 1 else f'all {len(slices)} GPUs'} into slices, "
            "which have neither NVLink nor each other's memory; wanted whole GPUs (nvidia-smi -mig 0)"
        )
    if not gpus:
        raise FileError(f"{path.name}: names no GPU; wanted the output of nvidia-smi -q -x of a host that has one")
    host = host_of(path)
    notes = (f"left out of {host}, as MIG cuts them into slices: {', '.join(slices)}",) if slices else ()
    seen = ReportedHost(
        name=host,
        gpus=tuple(gpus.values()),
        numbers=tuple(gpus) if slices else None,
        pcie=min(links, key=lambda link: link[1] * 2 ** link[0], default=None),
    )
    return SourceReport(hosts=(seen,), notes=notes)


def _slot(gpu: ElementTree.Element) -> list[tuple[int, int]]:
    """Return the generation and the number of lanes of a GPU's PCIe, as a list of one pair; empty if the driver does
    not report them."""

    def said(*names: str) -> str:
        texts = (gpu.findtext(f"pci/pci_gpu_link_info/{name}", "").strip() for name in names)
        return next((text for text in texts if re.fullmatch(r"[1-9][0-9]?x?", text)), "")

    # The current generation falls when a GPU idles, so the highest possible comes first.
    generation = said("pcie_gen/max_link_gen", "pcie_gen/current_link_gen")
    # A slot may have fewer lanes than the GPU, so the current number comes first.
    lanes = said("link_widths/current_link_width", "link_widths/max_link_width")
    if not re.fullmatch(r"[1-9]", generation) or not re.fullmatch(r"(?:[1248]|16|32)x", lanes):
        return []
    return [(int(generation), int(lanes[:-1]))]


def is_topo(text: str) -> bool:
    return "GPU0" in text and any(line.split()[:1] == ["GPU0"] for line in unprefixed(text).splitlines())


def read_topo(text: str, path: Path) -> SourceReport:
    """Read the matrix of ``nvidia-smi topo -m``: how every two GPUs are connected. Raises FileError if the matrix is
    incomplete."""
    rows: dict[int, list[str]] = {}
    for line in unprefixed(text).splitlines():
        words = line.split()
        if not words or not (found := re.fullmatch(r"GPU([0-9]{1,4})", words[0])):
            continue
        # A legend or a heading also begins with GPU0.
        if all(HEADING.fullmatch(word) for word in words):
            continue
        if int(found[1]) in rows:
            raise FileError(f"{path.name}: has two rows of GPU{found[1]}; wanted the matrix of one host")
        rows[int(found[1])] = words[1:]
    n = len(rows)
    if not n or sorted(rows) != [*range(n)]:
        raise FileError(f"{path.name}: has rows of GPUs {sorted(rows)}; wanted GPU0, GPU1 and so on, one row each")
    between = {}
    for i in range(n):
        for j in range(n):
            code = rows[i][j] if j < len(rows[i]) else "nothing"
            if i != j and not CONNECTED.fullmatch(code):
                raise FileError(
                    f"{path.name}: GPU{i} and GPU{j} are connected by {shortened(code)}; wanted NV#, PIX..."
                )
            if i != j:
                between[i, j] = code
    return SourceReport(hosts=(ReportedHost(name=host_of(path), between=between),))


def is_rocm(text: str) -> bool:
    return ROCM.search(text) is not None


def read_rocm(text: str, path: Path) -> NoReturn:
    """Raise FileError: the output of AMD's tools gives weights and hops, from which no bandwidth follows."""
    raise FileError(
        f"{path.name}: is printed by rocm-smi or amd-smi, which are not read; wanted a test of RCCL (all_reduce_perf "
        "of rccl-tests), kubectl get nodes -o json, scontrol show node, or a network written by hand (gpu: MI300X)"
    )
