"""What NVIDIA's driver says of a host: its GPUs (``nvidia-smi -q -x``) and how they are connected (``topo -m``).

Neither names the host: it is called as the file is, up to the first dot (``gpubox.smi.xml``, ``gpubox.topo.txt``).
"""

import re
from pathlib import Path
from xml.etree import ElementTree

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.network import shortened
from dtfm_lab.files.machines.seen import Gpu, Host, Seen

MIB = 2**20
PCIE = "pcie_gen/max_link_gen", "link_widths/max_link_width"
CONNECTED = re.compile(r"NV\d+|PIX|PXB|PHB|NODE|SYS|SOC")


def host_of(path: Path) -> str:
    """The host that a file is named after."""
    return path.name.partition(".")[0]


def is_smi(text: str) -> bool:
    return "<nvidia_smi_log" in text[:2000]


def read_smi(text: str, path: Path) -> Seen:
    """The GPUs of ``nvidia-smi -q -x``, each with its memory, and the PCIe that they all reach."""
    if "<!ENTITY" in text:
        raise FileError(f"{path.name}: declares entities, which nvidia-smi never does; wanted its output as it is")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise FileError(f"{path.name}: broken XML: {error}") from None
    gpus, links = [], []
    for number, gpu in enumerate(root.findall("gpu")):
        name, total = gpu.findtext("product_name", ""), gpu.findtext("fb_memory_usage/total", "")
        if not name.strip():
            raise FileError(f"{path.name}: GPU {number} has no product_name; wanted the output of nvidia-smi -q -x")
        mib = re.fullmatch(r"\s*(\d+) MiB\s*", total)
        gpus.append(Gpu(name.strip(), float(mib[1]) * MIB if mib else None))
        said = [gpu.findtext(f"pci/pci_gpu_link_info/{what}", "").strip() for what in PCIE]
        generation, lanes = re.fullmatch(r"[1-9]", said[0]), re.fullmatch(r"(\d{1,2})x", said[1])
        links += [(int(generation[0]), int(lanes[1]))] if generation and lanes else []
    if not gpus:
        raise FileError(f"{path.name}: names no GPU; wanted the output of nvidia-smi -q -x of a host that has one")
    return Seen(hosts=(Host(name=host_of(path), gpus=tuple(gpus), pcie=min(links, default=None)),))


def is_topo(text: str) -> bool:
    return re.search(r"^\s*GPU0\s+(?:X|CPU Affinity|GPU1)\b", text, re.MULTILINE) is not None


def read_topo(text: str, path: Path) -> Seen:
    """The matrix of ``nvidia-smi topo -m``: how every two GPUs are connected."""
    rows = {}
    for line in text.splitlines():
        if found := re.match(r"\s*GPU(\d+)\s+(.*)", line):
            words = found[2].split()
            if not all(re.fullmatch(r"GPU\d+|NIC\d+|mlx\S+|CPU|NUMA|GPU|Affinity|ID", word) for word in words):
                rows[int(found[1])] = words
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
    return Seen(hosts=(Host(name=host_of(path), between=between),))
