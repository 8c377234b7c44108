"""Equations 1 to 3 for a batch of placements, on any device of torch, and the compiled loops they are compared with.

A placement is an (S, D) grid whose columns are pipelines, as in ``planning.cost.total_costs``. Sums run over the
members of a group in the same order as in the compiled loops, so that both give the same bits on a CPU.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from dtfm_lab.domain.compiling import compiled
from dtfm_lab.domain.units import FloatArray, IntArray


def torch_costs(grids: torch.Tensor, group_s: torch.Tensor, hop_s: torch.Tensor) -> torch.Tensor:
    """(B,) seconds of (B, S, D) grids of devices; ``group_s`` and ``hop_s`` are (N, N) pair costs."""
    n = group_s.shape[0]
    rows, flat = grids * n, group_s.reshape(-1)
    sums = torch.zeros(grids.shape, dtype=group_s.dtype, device=grids.device)
    for member in range(grids.shape[2]):  # one member at a time: the order of the sum, and S x D numbers of memory
        sums += flat.take(rows + grids[:, :, member : member + 1])
    slowest = sums.amax(dim=(1, 2))
    hops = hop_s.reshape(-1).take(rows[:, :-1] + grids[:, 1:]).amax(dim=2)
    path = torch.zeros_like(slowest)
    for hop in range(hops.shape[1]):
        path += hops[:, hop]
    return slowest + path


def compiled_costs(grids: IntArray, group_s: FloatArray, hop_s: FloatArray, threads: int = 1) -> FloatArray:
    """The same by compiled loops, the batch shared among threads."""
    costs = np.empty(len(grids))
    bounds = np.linspace(0, len(grids), threads + 1).astype(int).tolist()
    with ThreadPoolExecutor(threads) as pool:
        parts = [slice(*pair) for pair in itertools.pairwise(bounds)]
        list(pool.map(lambda part: _fill(costs[part], grids[part], group_s, hop_s), parts))
    return costs


@compiled
def _fill(costs: FloatArray, grids: IntArray, group_s: FloatArray, hop_s: FloatArray) -> None:
    n_grids, n_stages, n_replicas = grids.shape
    for b in range(n_grids):
        slowest_s, path_s = 0.0, 0.0
        for s in range(n_stages):
            for i in range(n_replicas):
                sum_s = 0.0
                for j in range(n_replicas):
                    sum_s += group_s[grids[b, s, i], grids[b, s, j]]
                slowest_s = max(slowest_s, sum_s)
        for s in range(n_stages - 1):
            hop_most_s = 0.0
            for i in range(n_replicas):
                hop_most_s = max(hop_most_s, hop_s[grids[b, s, i], grids[b, s + 1, i]])
            path_s += hop_most_s
        costs[b] = slowest_s + path_s


def random_grids(n_devices: int, n_stages: int, n_grids: int, rng: np.random.Generator) -> IntArray:
    """(n_grids, S, D) placements, each device in one place."""
    return np.stack([rng.permutation(n_devices) for _ in range(n_grids)]).reshape(n_grids, n_stages, -1)


def random_pairs(n_devices: int, rng: np.random.Generator) -> FloatArray:
    """(N, N) symmetric seconds, zero on the diagonal."""
    drawn = rng.lognormal(size=(n_devices, n_devices))
    pairs = drawn + drawn.T
    np.fill_diagonal(pairs, 0.0)
    return pairs
