"""What common devices reach, for who names one without its numbers."""

from __future__ import annotations

from typing import NamedTuple

from dtfm_lab.domain.units import TERA, GiB


class Hardware(NamedTuple):
    peak_flop_per_s: float
    """half precision on tensor cores without sparsity for GPUs, fp32 for CPUs"""
    memory_bytes: float


HARDWARE = {
    "V100": Hardware(125 * TERA, 16 * GiB),
    "A100": Hardware(312 * TERA, 80 * GiB),
    "H100": Hardware(989 * TERA, 80 * GiB),
    "T4": Hardware(65 * TERA, 16 * GiB),
    "RTX 4090": Hardware(165 * TERA, 24 * GiB),
    "laptop": Hardware(0.05 * TERA, 16 * GiB),
    "Raspberry Pi": Hardware(0.012 * TERA, 8 * GiB),
}
"""GPUs from NVIDIA's data sheets (V100 SXM2, A100 SXM 80 GB, H100 SXM, T4, Ada whitepaper for the RTX 4090);
the laptop and the Raspberry Pi 4 are round figures of what ordinary ones reach, not a source's."""
