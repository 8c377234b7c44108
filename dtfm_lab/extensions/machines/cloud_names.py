"""Translate the names of GPUs in cloud labels and instance types to the names that their drivers print.

A label means the product that its cloud sells: ``nvidia-tesla-a100`` is Google's A100 with 40 GB, on a board with
NVLink.
"""

import re

from dtfm_lab.extensions.machines.text import rows_of

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
"""Names of node labels whose value names the node's GPU: from CoreWeave, Google, Amazon (EKS Auto Mode, Karpenter, the
cluster autoscaler), Azure, DigitalOcean, SkyPilot and AMD's labeller."""
INSTANCE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")

LABELS = {row["label"]: row["gpu"] for row in rows_of("cloud_labels.csv")}
"""The driver's name of a GPU, by a label's value in lower case.

The values are GKE's accelerators (cloud.google.com, "GPU platforms"), and those that users of EKS copy from the
autoscaler's list. Other values are looked up in the table of GPUs, after removing ``nvidia-`` and ``tesla-``.
"""
INSTANCES = {row["instance"]: row["gpu"] for row in rows_of("cloud_instances.csv")}
"""The driver's name of a GPU, by a pattern for the names of instance types with whole GPUs.

Source: the clouds' lists of 2026. Types with a fraction of a GPU are omitted.
"""


def gpu_of_instance(instance: str) -> str:
    """Return the GPU of an instance type, as its driver names it, or "" if the type is not listed."""
    name = instance.casefold()[:100]
    return next((gpu for pattern, gpu in INSTANCES.items() if re.fullmatch(pattern, name)), "")


def gpu_of_label(label: str, value: str) -> str:
    """Return the GPU named by a label's value, as its driver would name it. An unknown value is returned unchanged."""
    name = value.casefold().removesuffix("-vws")
    if name in LABELS:
        return LABELS[name]
    value = value[: len(name)]
    if label == "karpenter.azure.com/sku-gpu-name" or "amd.com" in label:
        return value
    plain = {"h100": "H100-SXM5-80GB", "h200": "H200-SXM5", "v100": "V100-SXM2", "a100": "A100-SXM4"}
    if "amazonaws" in label or "karpenter" in label or "digitalocean" in label:
        return plain.get(name.removeprefix("nvidia-").removeprefix("tesla-"), value)
    return value
