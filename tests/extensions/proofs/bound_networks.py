"""Small networks of many kinds to hold bounds against, and the irregular reference networks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import IntArray
from dtfm_lab.extensions.proofs.optima import candidate_groups, exhaustive
from dtfm_lab.planning.cost import PairCosts, total_costs

KINDS = ("uniform", "jittered", "clustered", "geometric", "thin link", "islands", "one terrible")
SHAPES = (
    (8, 2, 4),
    (8, 4, 2),
    (9, 3, 3),
    (10, 5, 2),
    (10, 2, 5),
    (8, 8, 1),
    (9, 2, 4),
    (9, 4, 2),
    (10, 3, 3),
    (10, 4, 2),
    (8, 2, 3),
    (10, 3, 2),
)
"""Numbers of devices, stages and replicas; the later ones leave devices idle."""
NETWORKS = Path(__file__).resolve().parents[2] / "data" / "networks"


def drawn(kind: str, n: int, seed: int, one_way: bool) -> Topology:
    """(n) devices of a kind; one_way: every link a little different in its two directions."""
    rng = np.random.default_rng(seed)
    region = np.sort(rng.integers(0, 3, n))
    apart = region[:, None] != region
    latency, bandwidth = rng.uniform(5, 15, (n, n)), rng.uniform(0.8, 1.2, (n, n))
    if kind == "uniform":
        latency, bandwidth = np.full((n, n), 10.0), np.full((n, n), 1.0)
    elif kind == "jittered":
        latency, bandwidth = rng.uniform(1, 100, (n, n)), rng.uniform(0.5, 5, (n, n))
    elif kind == "clustered":
        between = rng.uniform(0.3, 2, (3, 3))[region[:, None], region]
        latency, bandwidth = np.where(apart, 60.0, 1.0), np.where(apart, np.maximum(between, between.T), 10.0)
    elif kind == "geometric":
        at, nic = rng.random((n, 2)), rng.choice([0.5, 1.0, 2.5, 10.0], n)
        latency = 100 * np.linalg.norm(at[:, None] - at, axis=2)
        bandwidth = np.minimum(nic[:, None], nic)
    elif kind == "thin link":
        side = np.arange(n) < n // 3
        thin = side[:, None] != side
        latency, bandwidth = latency + 40 * thin, np.where(thin, 0.1, 5.0) * bandwidth
    elif kind == "islands":
        island = np.arange(n) // 2
        latency = np.where(island[:, None] == island, 0.1, latency + 50 * apart)
        bandwidth = np.where(island[:, None] == island, 100.0, bandwidth)
    elif kind == "one terrible":
        latency[0], latency[:, 0], bandwidth[0], bandwidth[:, 0] = 300.0, 300.0, 0.02, 0.02
    if one_way:
        latency, bandwidth = latency * rng.uniform(0.7, 1.3, (n, n)), bandwidth * rng.uniform(0.7, 1.3, (n, n))
    else:
        latency, bandwidth = np.maximum(latency, latency.T), np.minimum(bandwidth, bandwidth.T)
    return Topology.from_matrices(latency, bandwidth, name=f"{kind} {n} {seed}")


def drawn_case(i: int) -> tuple[str, Topology, Job]:
    """The i-th of an endless row of cases: every kind, every shape, half of them one way different."""
    kind, (n, n_stages, n_replicas) = KINDS[i % len(KINDS)], SHAPES[i // len(KINDS) % len(SHAPES)]
    rng = np.random.default_rng(i)
    job = Job.from_bytes(n_stages, n_replicas, *10 ** rng.uniform(7, 9.5, 2))
    return kind, drawn(kind, n, i, one_way=bool(rng.random() < 0.5)), job


def reference(name: str) -> tuple[Topology, Job, float]:
    """An irregular network, its job, and the cost of the best placement known."""
    entry = json.loads((NETWORKS / "index.json").read_text())[name]
    matrices = np.load(NETWORKS / f"{name}.npz")
    topology = Topology.from_matrices(matrices["latency_ms"], matrices["bandwidth_gbps"], name=name)
    job = Job.from_bytes(entry["stages"], entry["replicas"], entry["gradient_gb"] * 1e9, entry["activation_gb"] * 1e9)
    return topology, job, float(entry["best_known_s"])


def optimum(pair: PairCosts, n_stages: int, n_replicas: int) -> tuple[IntArray, float]:
    """(S, D) best placement of few devices, of which some may stay idle, and its cost in seconds.

    Up to ten devices take milliseconds, whatever the shape.
    """
    candidates = candidate_groups(pair, n_replicas, np.inf)
    assert candidates is not None, "few devices have few groups"
    *_, last = exhaustive(pair, n_stages, *candidates)
    assert last.grid is not None, "without a limit there is a placement"
    return last.grid, float(total_costs(last.grid, pair))
