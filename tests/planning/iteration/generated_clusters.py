"""Clusters such as people have, generated: hosts with several GPUs, one or several kinds, regions, NICs."""

from __future__ import annotations

import numpy as np

from dtfm_lab.domain.network import Device, Topology

KINDS = ("H100", "A100", "V100", "RTX 4090", "L4")
INSIDE_GBPS = {"H100": 3600.0, "A100": 2400.0, "V100": 1200.0}
"""NVLink inside a host; other kinds have PCIe."""
PCIE_GBPS = 200.0


def cluster(seed: int, *, most_hosts: int = 8) -> Topology:
    """1 to 8 GPUs on each of 1 to ``most_hosts`` hosts, of one or two kinds, in one to three regions."""
    rng = np.random.default_rng([49, seed])
    n_hosts, per_host = int(rng.integers(1, most_hosts + 1)), int(rng.choice([1, 2, 4, 8]))
    kinds = rng.choice(KINDS, int(rng.integers(1, 3)), replace=False)
    n_regions = int(rng.integers(1, min(3, n_hosts) + 1))
    host = np.repeat(np.arange(n_hosts), per_host)
    region, kind = host * n_regions // n_hosts, kinds[host * len(kinds) // n_hosts]
    between_gbps, apart_gbps = float(rng.choice([10, 100, 400, 3200])), float(rng.choice([0.5, 2.0, 10.0]))
    same_host, same_region = host[:, None] == host, region[:, None] == region
    inside = np.array([INSIDE_GBPS.get(str(one), PCIE_GBPS) for one in kind])
    gbps = np.where(same_host, inside[:, None], np.where(same_region, between_gbps, apart_gbps))
    latency_ms = np.where(same_host, 0.005, np.where(same_region, 0.02, 30.0))
    np.fill_diagonal(latency_ms, 0.0)
    devices = tuple(
        Device(
            name=f"host-{h}-{i % per_host}", gpu=str(k), host=f"host-{h}" if per_host > 1 else "", region=f"region-{r}"
        )
        for i, (h, k, r) in enumerate(zip(host.tolist(), kind, region.tolist(), strict=True))
    )
    return Topology(devices, latency_ms * 1e-3, gbps * 1e9 / 8, name=f"cluster-{seed}")
