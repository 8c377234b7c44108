"""The tables of GPUs and of the networks that come with the lab, made from what the lab knows."""

from __future__ import annotations

from collections import Counter

import numpy as np

import dtfm_lab as lab
from dtfm_lab import files
from dtfm_lab.domain.network import HARDWARE
from dtfm_lab.domain.units import TERA, GiB, to_gbps, to_ms

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8")


def gpus_page() -> str:
    """A row for each kind of GPU."""
    known = [dtype for dtype in DTYPES if any(dtype in each.peak for each in HARDWARE.values())]
    head = ["GPU", *(f"{dtype}, TFLOP/s" for dtype in known), "memory, GiB", "of it, GB/s", "$ an hour", "source"]
    rows = [
        [
            name,
            *(f"{each.peak[dtype] / TERA:g}" if dtype in each.peak else "" for dtype in known),
            f"{each.memory_bytes / GiB:g}",
            f"{each.memory_bytes_per_s / 1e9:g}",
            f"{each.price_per_hour:g}" if each.price_per_hour else "",
            f"{each.source}; price: {each.price_source}" if each.price_source else each.source,
        ]
        for name, each in HARDWARE.items()
    ]
    about = (
        "What the lab knows of a GPU by its name: `gpu: A100` in a network's file, `HARDWARE` of "
        "`dtfm_lab.domain.network` in Python. Peaks are "
        "dense; a device's own numbers in a file come before these. Prices are used only where they are asked for."
    )
    return f"# GPUs\n\n{about}\n\n{_table(head, rows)}\n"


def networks_page() -> str:
    """A row for each network that comes with the lab, and what it is."""
    networks = [lab.load_topology(name) for name in files.topology_names()]
    head = ["network", "devices", "regions", "GPUs", "latency, ms", "bandwidth, Gbit/s", "file"]
    rows, said = [], []
    for net in networks:
        apart = ~np.eye(len(net), dtype=bool)
        ms, gbps = to_ms(net.latency_s[apart]), to_gbps(net.bandwidth_bytes_per_s[apart])
        kinds = ", ".join(f"{n} {gpu}" for gpu, n in Counter(device.gpu for device in net.devices).items())
        file = f"[{net.name}.yaml](topologies/{net.name}.yaml)"
        rows.append([net.name, str(len(net)), str(len(net.regions)), kinds, _range(ms), _range(gbps), file])
        said.append(f"## {net.name}\n\n{' '.join(net.description.split())}")
    about = "`lab.load_topology(name)` loads one, and `dtfm-lab plan name` plans it. Speeds are those of single links."
    return "\n\n".join(["# Networks that come with the lab", about, _table(head, rows), *said]) + "\n"


def _range(values: np.ndarray) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])
