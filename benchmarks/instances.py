"""Thirty irregular networks, each from a seed, to compare planners on networks without regular structure.

Six kinds, five shapes each, 16 to 64 devices, some with more devices than the job needs. No two links of a
network are alike, so neither classes of devices nor regions solve them. The numbers are ours, of the order of
magnitude of public clouds and home lines; nothing here is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology

Links = tuple[np.ndarray, np.ndarray]
"""(N, N) latency in milliseconds and (N, N) bandwidth in Gbit/s, [i, j] from i to j."""
SIZES_BYTES = ((0.65e9, 0.47e9), (1.3e9, 0.25e9), (0.3e9, 0.9e9))
"""Sizes of a stage's gradient and of a mini-batch's activations: the paper's, larger gradients, larger activations."""


@dataclass(frozen=True)
class Instance:
    """One network and the job to place on it."""

    name: str
    topology: Topology
    job: Job


def cities(rng: np.random.Generator, n: int) -> Links:
    """Devices in some n / 5 cities on a sphere: latency by distance, bandwidth falling with it, all jittered."""
    place = _on_sphere(rng, max(3, n // 5))[rng.integers(0, max(3, n // 5), n)]
    angle = np.arccos(np.clip(place @ place.T, -1, 1))
    latency = 1 + 80 * angle
    bandwidth = 2 / (1 + 1.5 * angle)
    return _both_ways(latency * _jitter(rng, n, 0.2)), _both_ways(bandwidth * _jitter(rng, n, 0.25))


def geometric(rng: np.random.Generator, n: int) -> Links:
    """Devices anywhere in a square, each with a NIC of 0.5 to 10 Gbit/s that limits all its links."""
    at = rng.random((n, 2))
    nic = rng.choice([0.5, 1.0, 2.5, 10.0], n) * rng.uniform(0.8, 1.2, n)
    latency = 1 + 100 * np.linalg.norm(at[:, None] - at, axis=2)
    return latency, np.minimum(nic[:, None], nic)


def thin_link(rng: np.random.Generator, n: int) -> Links:
    """Two clusters of unequal size with 10 Gbit/s inside; between them a line of 1 one way and 0.3 the other."""
    side = np.arange(n) < n // 3
    apart = side[:, None] != side
    bandwidth = np.where(apart, np.where(side[:, None], 1.0, 0.3), 10.0) * _jitter(rng, n, 0.3)
    return np.where(apart, 40.0, 0.5) * _jitter(rng, n, 0.3), bandwidth


def islands(rng: np.random.Generator, n: int) -> Links:
    """Machines of two to five devices at 100 Gbit/s, spread over cities: islands within regions."""
    latency, bandwidth = cities(rng, n)
    machine = np.repeat(np.arange(n), rng.integers(2, 6, n))[:n]
    same = machine[:, None] == machine
    latency, bandwidth = latency[machine][:, machine], bandwidth[machine][:, machine]
    jitter = _both_ways(_jitter(rng, n, 0.1))
    return np.where(same, 0.01, latency) * jitter, np.where(same, 100.0, bandwidth) * jitter


def asymmetric(rng: np.random.Generator, n: int) -> Links:
    """Home lines: fast down, slow up, every device its own; latency by distance."""
    down = np.exp(rng.uniform(np.log(0.2), np.log(5), n))
    up = down * rng.uniform(0.1, 1, n)
    at = rng.random((n, 2))
    latency = 5 + 60 * np.linalg.norm(at[:, None] - at, axis=2) + rng.uniform(0, 10, n)
    return latency, np.minimum(up[:, None], down) * _jitter(rng, n, 0.1)


def terrible(rng: np.random.Generator, n: int) -> Links:
    """Cities, and one device on 20 Mbit/s and 300 ms."""
    latency, bandwidth = cities(rng, n)
    bad = int(rng.integers(n))
    for matrix, value in ((latency, 300.0), (bandwidth, 0.02)):
        matrix[bad] = matrix[:, bad] = value * rng.uniform(0.9, 1.1, n)
    return latency, bandwidth


SHAPES: dict[Callable[[np.random.Generator, int], Links], tuple[tuple[int, int, int], ...]] = {
    cities: ((16, 4, 4), (32, 8, 4), (50, 6, 8), (64, 8, 8), (64, 4, 16)),
    geometric: ((20, 5, 4), (36, 4, 8), (48, 12, 4), (64, 8, 8), (64, 16, 4)),
    thin_link: ((18, 3, 6), (32, 4, 8), (48, 6, 8), (52, 10, 5), (64, 8, 8)),
    islands: ((24, 4, 6), (32, 8, 4), (40, 3, 12), (60, 10, 6), (64, 8, 8)),
    asymmetric: ((16, 2, 8), (30, 6, 5), (42, 5, 8), (64, 8, 8), (64, 2, 32)),
    terrible: ((17, 4, 4), (32, 4, 7), (36, 6, 6), (64, 12, 5), (64, 8, 7)),
}
"""Numbers of devices, stages and replicas, by kind of network."""


def instances() -> Iterator[Instance]:
    """All thirty instances, always the same."""
    for kind, shapes in SHAPES.items():
        for k, (n, n_stages, n_replicas) in enumerate(shapes):
            rng = np.random.default_rng([n, n_stages, n_replicas, k, *kind.__name__.encode()])
            latency, bandwidth = kind(rng, n)
            idle = n - n_stages * n_replicas
            name = f"{kind.__name__} {n}: {n_stages} x {n_replicas}" + (f" + {idle}" if idle else "")
            sizes = SIZES_BYTES[k % len(SIZES_BYTES)]
            topology = Topology.from_matrices(latency, bandwidth, name=name)
            yield Instance(name, topology, Job.from_bytes(n_stages, n_replicas, *sizes))


def _on_sphere(rng: np.random.Generator, n: int) -> np.ndarray:
    at = rng.normal(size=(n, 3))
    return at / np.linalg.norm(at, axis=1, keepdims=True)


def _jitter(rng: np.random.Generator, n: int, spread: float) -> np.ndarray:
    """(N, N) factors around 1, drawn independently for both directions of every pair."""
    return np.exp(rng.normal(0, spread, (n, n)))


def _both_ways(links: np.ndarray) -> np.ndarray:
    return np.triu(links, 1) + np.triu(links, 1).T + np.diag(np.diag(links))
