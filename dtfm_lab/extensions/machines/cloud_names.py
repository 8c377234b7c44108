"""Translate the names of GPUs in cloud labels and instance types to the names that their drivers print.

A label means its cloud's product: ``nvidia-tesla-a100`` is Google's A100 with 40 GB, on a board with NVLink.
"""

import re
from collections.abc import Sequence

PRODUCT_LABELS = (
    "gpu.nvidia.com/model",
    "gpu.nvidia.com/class",
    "cloud.google.com/gke-accelerator",
    "eks.amazonaws.com/instance-gpu-name",
    "karpenter.k8s.aws/instance-gpu-name",
    "k8s.amazonaws.com/accelerator",
    "karpenter.azure.com/sku-gpu-name",
    "doks.digitalocean.com/gpu-model",
    "skypilot.co/accelerator",
    "amd.com/gpu.product-name",
    "beta.amd.com/gpu.product-name",
)
"""Labels whose value names a node's GPU: from CoreWeave, Google, Amazon (EKS Auto Mode, Karpenter, the cluster
autoscaler), Azure, DigitalOcean, SkyPilot and AMD's labeller."""
INSTANCE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")

A100_40, A100_80, H100 = "A100-SXM4-40GB", "A100-SXM4-80GB", "H100-SXM5-80GB"
V100_16, V100_32 = "V100-SXM2-16GB", "V100-SXM2-32GB"

LABELS = {
    "nvidia-tesla-p100": "P100-PCIE-16GB",
    "nvidia-tesla-v100": V100_16,
    "nvidia-tesla-a100": A100_40,
    "nvidia-tesla-a100e": A100_80,
    "nvidia-tesla-a10": "A10G",
    "nvidia-a100-80gb": A100_80,
    "nvidia-h100-80gb": H100,
    "nvidia-h100-mega-80gb": H100,
    "nvidia-h200-141gb": "H200-SXM5",
    "nvidia-rtx-pro-6000": "RTX PRO 6000 Blackwell",
    "nvidia-ampere-a10": "A10",
    "nvidia-ampere-a100": "A100",
    "nvidia-hopper-h100": H100,
}
"""GKE's accelerators (cloud.google.com, "GPU platforms"), and values that users of EKS copy from the autoscaler's list.
Other values are looked up in the table of GPUs without ``nvidia-`` and ``tesla-``."""

INSTANCES: Sequence[tuple[str, str]] = (
    # Amazon EC2
    (r"p3\.\d+xlarge", V100_16),
    (r"p3dn\.24xlarge", V100_32),
    (r"p4d\.24xlarge", A100_40),
    (r"p4de\.24xlarge", A100_80),
    (r"p5\.\d+xlarge", H100),
    (r"p5en?\.\d+xlarge", "H200-SXM5"),
    (r"p6-b200\.\S+", "B200"),
    (r"p6-b300\.\S+", "B300"),
    (r"p6e-gb200\.\S+", "GB200"),
    (r"p6e-gb300\.\S+", "GB300"),
    (r"g4dn\.\S+", "T4"),
    (r"g5\.\S+", "A10G"),
    (r"gr?6\.\S+", "L4"),
    (r"g6e\.\S+", "L40S"),
    (r"g7e\.\S+", "RTX PRO 6000 Blackwell"),
    # Google Compute Engine
    (r"a2-(?:high|mega)gpu-\d+g", A100_40),
    (r"a2-ultragpu-\d+g", A100_80),
    (r"a3-(?:high|mega|edge)gpu-\d+g", H100),
    (r"a3-ultragpu-\d+g", "H200-SXM5"),
    (r"a4-highgpu-\d+g", "B200"),
    (r"a4x-highgpu-\d+g\S*", "GB200"),
    (r"a4x-maxgpu-\d+g\S*", "GB300"),
    (r"g2-standard-\d+", "L4"),
    (r"g4-standard-\d+", "RTX PRO 6000 Blackwell"),
    # Azure
    (r"standard_nc\d+r?s_v2", "P100-PCIE-16GB"),
    (r"standard_nc\d+r?s_v3", "V100-PCIE-16GB"),
    (r"standard_nd40rs_v2", V100_32),
    (r"standard_nc\d+as_t4_v3", "T4"),
    (r"standard_nd96asr_v4|standard_nd96asr_a100_v4", A100_40),
    (r"standard_nd96amsr_a100_v4|standard_nd96amsr_v4", A100_80),
    (r"standard_nc\d+ads_a100_v4", "A100-PCIE-80GB"),
    (r"standard_nd\d+isrf?_h100_v5", H100),
    (r"standard_ncc?\d+a?[di]+s_h100_v5", "H100 NVL"),
    (r"standard_nd\d+isrf?_h200_v5", "H200-SXM5"),
    (r"standard_nd\d+isrf?_mi300x_v5", "MI300X"),
    (r"standard_nd\d+isrf?_(?:ndr_)?gb200_v6", "GB200"),
    (r"standard_nd\d+isrf?_(?:xdr_)?gb300_v6", "GB300"),
    (r"standard_nv(?:36|72)adm?s_a10_v5", "A10"),
    # Oracle
    (r"(?:bm|vm)\.gpu2\.\d", "P100-SXM2-16GB"),
    (r"(?:bm|vm)\.gpu3\.\d", V100_16),
    (r"bm\.gpu4\.8", A100_40),
    (r"bm\.gpu\.a100-v2\.8", A100_80),
    (r"bm\.gpu\.h100t?\.8", H100),
    (r"bm\.gpu\.h200(?:-nc)?\.8", "H200-SXM5"),
    (r"bm\.gpu\.b200\.8", "B200"),
    (r"bm\.gpu\.b300\.8", "B300"),
    (r"bm\.gpu\.gb200(?:-v\d)?\.4", "GB200"),
    (r"bm\.gpu\.gb300\.4", "GB300"),
    (r"bm\.gpu\.mi300x\.8", "MI300X"),
    (r"bm\.gpu\.mi355x(?:-v\d)?\.8", "MI355X"),
    (r"(?:bm|vm)\.gpu\.a10\.\d", "A10"),
    (r"bm\.gpu\.l40s(?:-nc)?\.4", "L40S"),
)
"""Instance types with whole GPUs, from the clouds' lists of 2026. Those with fractions of a GPU are omitted."""


def gpu_of_instance(instance: str) -> str:
    """Return the GPU of an instance type, as its driver names it, or "" if the type is not listed."""
    name = instance.casefold()[:100]
    return next((gpu for pattern, gpu in INSTANCES if re.fullmatch(pattern, name)), "")


def gpu_of_label(label: str, value: str) -> str:
    """Return the GPU named by a label's value, as its driver would name it."""
    name = value.casefold().removesuffix("-vws")
    if name in LABELS:
        return LABELS[name]
    value = value[: len(name)]
    if label == "karpenter.azure.com/sku-gpu-name" or "amd.com" in label:
        return value
    plain = {"h100": H100, "h200": "H200-SXM5", "v100": "V100-SXM2", "a100": "A100-SXM4"}
    if "amazonaws" in label or "karpenter" in label or "digitalocean" in label:
        return plain.get(name.removeprefix("nvidia-").removeprefix("tesla-"), value)
    return value
