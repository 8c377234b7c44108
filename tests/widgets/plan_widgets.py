"""What the tests of searches, races and replanning share: a job and a small network."""

from __future__ import annotations

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology

JOB = Job.from_bytes(4, 4, 1e9, 5e8)


def irregular(n: int = 16, seed: int = 0) -> Topology:
    """Devices in the plane, no two links alike: no search proves its best at once."""
    rng = np.random.default_rng(seed)
    at = rng.random((n, 2))
    latency_ms = 1 + 100 * np.linalg.norm(at[:, None] - at, axis=2)
    nic = rng.uniform(0.5, 5, n)
    return Topology.from_matrices(latency_ms, np.minimum(nic[:, None], nic), name="irregular")
