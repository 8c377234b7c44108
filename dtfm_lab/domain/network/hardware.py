"""Peak, memory and rental price of common devices, for networks that name a GPU without its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dtfm_lab.domain.registry import unknown
from dtfm_lab.domain.units import TERA, GiB


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """One row of the table: a kind of device."""

    peak: Mapping[str, float]
    """Dense FLOP/s by dtype (integer operations for int8); a dtype without hardware units is absent."""
    memory_bytes: float
    price_per_hour: float
    """US dollars to rent one for an hour; 0 where none is for rent."""
    source: str
    """Source of the peaks and the memory."""
    price_source: str = ""

    @property
    def peak_flop_per_s(self) -> float:
        """FLOP/s in half precision, in which training runs; in fp32 for CPUs."""
        return self.peak.get("fp16", self.peak["fp32"])

    def peak_of(self, dtype: str) -> float:
        """FLOP/s in one dtype; raises UnknownName for a dtype without hardware units."""
        if dtype not in self.peak:
            raise unknown("dtype of this device", dtype, self.peak)
        return self.peak[dtype]


GOOGLE = "Google Compute Engine's price list, GPU alone, us-central1"
LAMBDA = "Lambda's on-demand prices, as in SkyPilot's catalogue v8 (2026)"
RUNPOD = "RunPod's cheapest offers in March 2026, as deploybase.ai listed them"


def _gpu(memory_gib: float, source: str, price: float = 0.0, price_source: str = "", **tflops: float) -> Hardware:
    return Hardware(
        peak={dtype: peak * TERA for dtype, peak in tflops.items()},
        memory_bytes=memory_gib * GiB,
        price_per_hour=price,
        source=source,
        price_source=price_source,
    )


HARDWARE: dict[str, Hardware] = {
    "P100": _gpu(16, "Tesla P100 data sheet, SXM2; no tensor cores", 1.46, GOOGLE, fp32=10.6, fp16=21.2),
    "V100": _gpu(16, "V100 data sheet, SXM2", 0.79, LAMBDA, fp32=15.7, fp16=125),
    "V100 32GB": _gpu(32, "V100 data sheet, SXM2", fp32=15.7, fp16=125),
    "T4": _gpu(16, "T4 data sheet", 0.35, GOOGLE, fp32=8.1, fp16=65, int8=130),
    "A10": _gpu(24, "A10 data sheet", 1.29, LAMBDA, fp32=31.2, tf32=62.5, fp16=125, bf16=125, int8=250),
    "A100 40GB": _gpu(40, "A100 data sheet, SXM", 1.99, LAMBDA, fp32=19.5, tf32=156, fp16=312, bf16=312, int8=624),
    "A100": _gpu(80, "A100 data sheet, SXM", 1.39, RUNPOD, fp32=19.5, tf32=156, fp16=312, bf16=312, int8=624),
    "RTX A6000": _gpu(
        48, "Ampere GA102 whitepaper", 1.09, LAMBDA, fp32=38.7, tf32=77.4, fp16=154.8, bf16=154.8, int8=309.7
    ),
    "RTX 3090": _gpu(
        24, "Ampere GA102 whitepaper, fp32 accumulation", 0.22, RUNPOD, fp32=35.6, tf32=35.6, fp16=71, bf16=71, int8=284
    ),
    "RTX 4090": _gpu(
        24, "Ada whitepaper, fp32 accumulation", 0.34, RUNPOD, fp32=82.6, tf32=82.6, fp16=165, bf16=165, int8=660.6
    ),
    "L4": _gpu(24, "L4 data sheet, halved", 0.44, RUNPOD, fp32=30.3, tf32=60, fp16=121, bf16=121, int8=242.5),
    "L40S": _gpu(48, "L40S data sheet", 0.79, RUNPOD, fp32=91.6, tf32=183, fp16=362, bf16=362, int8=733),
    "H100 PCIe": _gpu(
        80, "H100 data sheet, PCIe, halved", 1.99, RUNPOD, fp32=51, tf32=378, fp16=756, bf16=756, int8=1513
    ),
    "H100": _gpu(80, "H100 data sheet, SXM, halved", 2.69, RUNPOD, fp32=67, tf32=494.5, fp16=989, bf16=989, int8=1979),
    "H200": _gpu(141, "H200 data sheet, SXM, halved", 3.59, RUNPOD, fp32=67, tf32=494.5, fp16=989, bf16=989, int8=1979),
    "laptop": _gpu(16, "a round figure of an ordinary one", fp32=0.05),
    "Raspberry Pi": _gpu(8, "a round figure of an ordinary Raspberry Pi 4", fp32=0.012),
}
"""Data sheets and whitepapers are NVIDIA's; "halved" where they state tensor figures with sparsity only.
Prices are what was listed, per GPU; they move by the month and between sellers, often by a factor of two."""


def hardware_fields(gpu: object) -> dict[str, float]:
    """The peak and memory of a Device whose GPU the table knows; empty for another."""
    known = HARDWARE.get(gpu) if isinstance(gpu, str) else None
    return {} if known is None else {"peak_flop_per_s": known.peak_flop_per_s, "memory_bytes": known.memory_bytes}
