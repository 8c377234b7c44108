"""Small networks and exhaustive search, for laws that must hold on any of them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning import search
from dtfm_lab.planning.cost import pair_costs, total_costs
from dtfm_lab.planning.problem import Problem, start_compiling

KINDS = ("even", "jittered", "asymmetric", "clustered", "geometric")


def network(kind: str, n: int, seed: int) -> Topology:
    """(n) devices: all links alike, independent, one-way different, of two or three regions, or by distance."""
    rng = np.random.default_rng(seed)
    latency, bandwidth = np.full((n, n), 10.0), np.full((n, n), 1.0)
    if kind in ("jittered", "asymmetric"):
        latency, bandwidth = rng.uniform(0, 100, (n, n)), rng.uniform(0.2, 10, (n, n))
    if kind == "clustered":
        region = rng.integers(0, rng.integers(2, 4), n)
        apart = region[:, None] != region
        latency, bandwidth = np.where(apart, 60.0, 1.0), np.where(apart, rng.uniform(0.3, 2, (n, n)).round(), 10.0)
        bandwidth = np.maximum(bandwidth, 0.3)
    if kind == "geometric":
        at = rng.random((n, 2))
        latency = 100 * np.linalg.norm(at[:, None] - at, axis=2)
        nic = rng.choice([0.5, 1.0, 10.0], n)
        bandwidth = np.minimum(nic[:, None], nic)
    if kind == "jittered":
        latency, bandwidth = latency + latency.T, bandwidth + bandwidth.T
    return Topology.from_matrices(latency, bandwidth, name=f"{kind}-{n}-{seed}")


def renumbered(topology: Topology, seed: int) -> tuple[Topology, IntArray]:
    """The same network in another order of devices, and which device stands where."""
    order = np.random.default_rng(seed).permutation(len(topology))
    return topology.subset(order), order


@lru_cache(maxsize=8)
def _arrangements(n_devices: int, n_stages: int, n_replicas: int) -> IntArray:
    """All grids, pipelines in the order of their first device and the smaller end first."""
    grids = np.array(list(itertools.permutations(range(n_devices), n_stages * n_replicas)))
    grids = grids.reshape(-1, n_stages, n_replicas)
    first = grids[:, 0, :]
    return grids[(np.diff(first, axis=1) > 0).all(axis=1)]


def optimum_s(topology: Topology, job: Job) -> float:
    """The cheapest of all placements, by trying each: pairing, order and idle devices included."""
    grids = _arrangements(len(topology), job.n_stages, job.n_replicas)
    return float(total_costs(grids, pair_costs(topology, job)).min())


def problem_of(kind: str, shape: tuple[int, int, int], seed: int) -> Problem:
    """(devices, stages, replicas) on a network of the kind, with nothing known of its cost."""
    n, n_stages, n_replicas = shape
    pair = pair_costs(network(kind, n, seed), Job.from_bytes(n_stages, n_replicas, 1e8, 2e8))
    return Problem(pair=pair, n_stages=n_stages, n_replicas=n_replicas, bound_s=0.0)


def found_after(n_looks: int, kind: str, planner: str) -> tuple[Any, ...]:
    """What a planner finds where its kernels are found to be still compiling this many times."""

    def wait_for_kernels(first: Any, compile_kernels: Any) -> Any:
        start_compiling(compile_kernels).join()
        yield from (replace(first, complete=False, compiling_s=0.05 * (k + 1)) for k in range(n_looks))

    with pytest.MonkeyPatch.context() as patch:
        for module in ("evolutionary", "dtfm", "random_search"):
            patch.setattr(import_module(f"dtfm_lab.planning.planners.{module}"), "wait_for_kernels", wait_for_kernels)
        *_, last = search(network(kind, 24, 1), Job.from_bytes(4, 5, 1e8, 2e8), planner, seed=7, steps=12)
    return last.devices.tolist(), last.best_s, last.bound_s, last.evaluations
