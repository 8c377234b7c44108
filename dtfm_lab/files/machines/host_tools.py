"""What tools print that are run on the hosts: NVIDIA's driver of the GPUs (``nvidia-smi -q -x``) and how they are
connected (``topo -m``); ``iperf3 --json`` between two hosts, and the tests of NCCL on one or several.

The driver's do not name the host: it is called as the file is, up to the first dot (``gpubox.smi.xml``).
"""

import re
from pathlib import Path
from xml.etree import ElementTree

from pydantic import Field

from dtfm_lab.domain.errors import FileError
from dtfm_lab.domain.network import shortened
from dtfm_lab.domain.units import GB, format_gbps, to_gbps
from dtfm_lab.files.machines.seen import Gpu, Host, Measurement, Seen, Told
from dtfm_lab.files.reading import parse

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


RANK = re.compile(r"#\s*Rank\s+(\d+)\s+.*?Pid\s+\d+ on\s+(\S+)\s+device\s+(\d+)\s+\[[^\]]*\]\s+(.+)")
ROW = re.compile(
    r"\s*(\d+)\s+\d+\s+\w+\s+\w+\s+-?\d+((?:\s+[\d.]+(?:e[+-]?\d+)?){3})\s+\S+((?:\s+[\d.]+(?:e[+-]?\d+)?){3})?"
)
"""Bytes, then microseconds, algorithm's and bus's GB/s out of place, and perhaps in place."""


class _Ends(Told):
    local_host: str
    remote_host: str


class _Test(Told):
    reverse: int = 0
    num_streams: int = 1
    target_bitrate: float = 0.0
    """Of each stream, which ``-b`` limits; of UDP a megabit a second where nothing is said."""


class _Start(Told):
    connected: list[_Ends] = Field(min_length=1)
    test_start: _Test


class _Rate(Told):
    bits_per_second: float = Field(ge=0, allow_inf_nan=False)


class _Sender(Told):
    min_rtt: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Microseconds."""


class _Stream(Told):
    sender: _Sender = _Sender()


class _End(Told):
    sum_received: _Rate | None = None
    sum: _Rate | None = None
    sum_received_bidir_reverse: _Rate | None = None
    streams: list[_Stream] = Field(default_factory=list)


class _Iperf(Told):
    start: _Start
    end: _End


def is_iperf(data: object) -> bool:
    return isinstance(data, dict) and {"start", "end"} <= data.keys() and "intervals" in data


def read_iperf(data: object, path: Path) -> Seen:
    """The rate that was received, from the sender to the receiver, with ``--bidir`` back, too, and half the least round
    trip that TCP saw."""
    if isinstance(data, dict) and data.get("error"):
        raise FileError(f"{path.name}: iperf3 failed: {shortened(data['error'])}; wanted a finished test")
    told = parse(_Iperf, data, path.name)
    ends, rate = told.start.connected[0], told.end.sum_received or told.end.sum
    if rate is None or rate.bits_per_second == 0:
        raise FileError(f"{path.name}: nothing was received; wanted a test in which something was")
    limit_bytes_per_s = told.start.test_start.target_bitrate * told.start.test_start.num_streams / 8
    if 0 < 0.9 * limit_bytes_per_s < rate.bits_per_second / 8:
        sent = format_gbps(to_gbps(limit_bytes_per_s))
        raise FileError(f"{path.name}: iperf3 was told to send {sent}, and did; wanted a test without -u or -b")
    source, target = ends.local_host, ends.remote_host
    if told.start.test_start.reverse:
        source, target = target, source
    round_trips = [stream.sender.min_rtt for stream in told.end.streams if stream.sender.min_rtt]
    latency_s = min(round_trips) / 2e6 if round_trips else None
    both = [(source, target, rate), (target, source, told.end.sum_received_bidir_reverse)]
    tests = [
        Measurement(a, b, way.bits_per_second / 8, latency_s, "iperf3")
        for a, b, way in both
        if way and way.bits_per_second
    ]
    return Seen(measurements=tuple(tests))


def is_nccl(text: str) -> bool:
    return RANK.search(text) is not None and "busbw" in text


def read_nccl(text: str, path: Path) -> Seen:
    """The GPUs of the ranks and, of the largest message, the bus bandwidth.

    By NCCL's definition (nccl-tests, doc/PERFORMANCE.md) it is the rate at which a ring has every rank send: between
    two GPUs of a host, and from each host to the next.
    """
    hosts: dict[str, dict[int, Gpu]] = {}
    for found in RANK.finditer(text):
        gpus = hosts.setdefault(found[2], {})
        if int(found[3]) in gpus:
            raise FileError(f"{path.name}: two ranks use device {found[3]} of {found[2]}; wanted a GPU for each")
        gpus[int(found[3])] = Gpu(found[4].strip())
    rates = {int(row[1]): row for line in text.splitlines() if (row := ROW.match(line))}
    if not rates:
        raise FileError(f"{path.name}: has no row of a message; wanted the whole output of a test of NCCL")
    row = rates[max(rates)]
    bytes_per_s = max(float(part.split()[2]) for part in row.groups()[1:] if part) * GB
    seen = [
        Host(name=name, gpus=tuple(gpus[number] for number in sorted(gpus)), inside_bytes_per_s=bytes_per_s)
        for name, gpus in hosts.items()
    ]
    pairs = [(a, b) for a in hosts for b in hosts if a != b]
    tests = [Measurement(a, b, bytes_per_s, None, "NCCL's tests") for a, b in pairs]
    return Seen(hosts=tuple(seen), measurements=tuple(tests), are_near=True)
