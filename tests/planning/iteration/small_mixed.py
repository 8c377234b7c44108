"""Small networks of unlike devices, and the best plan of each by trying everything.

Every subset of the devices, every shape, cut, order, pairing and order of replicas, with the batch shared out evenly,
under one schedule. The order of replicas counts, too: peers of an averaging are served in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.job.model import gpt
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning import evaluate
from dtfm_lab.planning.iteration.kernels.annealing import FixedFields
from dtfm_lab.planning.iteration.problem import IterationProblem, SearchTarget
from dtfm_lab.planning.iteration.shape_searches import Nearness, ShapeSearch, tables_of
from dtfm_lab.simulation import memory

N_BLOCKS = 6
BATCH, MICROBATCH = 96, 4
GPUS = ("A100", "V100", "RTX 4090", "RTX 3090", "T4", "L4", "P100", "H100")
SCALES_GBPS = (2.0, 10.0, 40.0, 100.0)
"""Typical bandwidth of a network; its links lie within a factor of three of it."""


@dataclass(frozen=True, eq=False)
class Best:
    """The fastest plan with even shares."""

    iteration_s: float
    grid: IntArray
    blocks: tuple[int, ...]
    n_tried: int

    def plan(self, topology: Topology, job: Job) -> Plan:
        n_stages, n_replicas = self.grid.shape
        job = job.with_fields(n_stages=n_stages, n_replicas=n_replicas).with_fields(blocks_per_stage=self.blocks)
        return placed(topology, job, self.grid)


def placed(topology: Topology, job: Job, grid: IntArray) -> Plan:
    """The plan of a grid of devices, pipelines as they stand in it."""
    ranks: list[int | None] = [None] * len(topology)
    for (stage, replica), device in np.ndenumerate(grid):
        ranks[int(device)] = replica * len(grid) + stage
    return evaluate(topology, job, rank_map=ranks)


def small_network(n: int, seed: int) -> Topology:
    """(n) devices of two to four kinds in one or two regions, some with little memory; links differ by direction."""
    rng = np.random.default_rng([n, seed])
    kinds = rng.choice(GPUS, int(rng.integers(2, min(n, 4) + 1)), replace=False)
    gpu = [str(kind) for kind in (*kinds, *rng.choice(kinds, n - len(kinds)))]
    region = rng.integers(0, 1 + int(rng.integers(2)), n)
    apart = region[:, None] != region
    bandwidth = rng.choice(SCALES_GBPS) * np.exp(rng.uniform(-1.1, 1.1, (n, n))) * np.where(apart, 0.1, 1.0)
    latency = np.where(apart, 30.0, 0.5) * rng.uniform(0.7, 1.3, (n, n))
    regions = [f"region-{r}" for r in region]
    memory_gib = rng.choice([1.5, 2.0, 4.0, 16.0], n)
    return Topology.from_matrices(
        latency, bandwidth, regions=regions, gpu=gpu, memory_gib=memory_gib.tolist(), name=f"small-{n}-{seed}"
    )


def small_job(**changes: Any) -> Job:
    """A job of six blocks whose iteration is neither all computation nor all messages."""
    model = gpt(name="gpt-6", n_layers=N_BLOCKS, d_model=1024, n_heads=16, seq_len=1024, vocab_size=8192)
    fields: dict[str, Any] = {"global_batch": BATCH, "microbatch": MICROBATCH, "schedule": "1f1b"}
    return Job(**{"name": "small", "model": model, "n_stages": None, "n_replicas": None} | fields | changes)


def brute_force(topology: Topology, job: Job, *, alone: bool = False) -> Best:
    """The best plan with even shares for a job that names 1f1b or gpipe; shapes are those that it leaves open.

    ``alone``: also with stages that hold only the embedding or the head.
    """
    problem = IterationProblem.of(topology, job).parts[0]
    tables = tables_of(problem, job.microbatch, SearchTarget(), Nearness(problem))
    all_fixed = FixedFields(fixed_counts=True, fixed_blocks=True, fixed_warmups=True)
    n, n_microbatches = len(topology), job.global_batch // job.microbatch
    best, n_tried = Best(np.inf, np.zeros((0, 0), dtype=np.int64), (), 0), 0
    for n_stages, n_replicas in _shapes(n, problem.n_blocks, n_microbatches):
        if job.n_stages not in (None, n_stages) or job.n_replicas not in (None, n_replicas):
            continue
        shape_search = ShapeSearch(tables, (n_stages, n_replicas), job.microbatch, job)
        shape_search.fixed_fields = all_fixed
        plain = np.arange(n_stages)[::-1].astype(np.int64)
        ahead = plain if job.schedule == "1f1b" else np.full(n_stages, n_microbatches, dtype=np.int64)
        for row in _rows(n, n_stages * n_replicas):
            for blocks in _cuts(problem.n_blocks, n_stages, alone):
                found = shape_search.assessed(row, blocks, 0.0, warmups=ahead, exact=True)
                n_tried += 1
                if found.lacks == 0 and found.value < best.iteration_s:
                    grid = row[: n_stages * n_replicas].reshape(n_stages, n_replicas)
                    best = Best(found.value, grid, tuple(blocks.tolist()), n_tried)
    return Best(best.iteration_s, best.grid, best.blocks, n_tried)


def with_moved_shares(plan: Plan) -> Iterator[Plan]:
    """The plan with micro-batches of one pipeline moved to another: every pair, every number, where they fit memory."""
    counts = plan.job.microbatch_counts
    for giver, taker in itertools.permutations(range(len(counts)), 2):
        for many in range(1, counts[giver]):
            moved = list(counts)
            moved[giver] -= many
            moved[taker] += many
            changed = plan.changed(job=plan.job.with_fields(microbatches_per_replica=tuple(moved)))
            if memory(changed).fits:
                yield changed


def _shapes(n: int, n_blocks: int, n_microbatches: int) -> Iterator[tuple[int, int]]:
    for n_stages in range(1, min(n, n_blocks) + 1):
        for n_replicas in range(1, min(n // n_stages, n_microbatches) + 1):
            yield n_stages, n_replicas


@lru_cache(maxsize=64)
def _rows(n: int, n_placed: int) -> IntArray:
    """(placements, N) every order of so many devices, then the others."""
    placed = itertools.permutations(range(n), n_placed)
    return np.array([[*row, *(d for d in range(n) if d not in row)] for row in placed], dtype=np.int64)


@lru_cache(maxsize=64)
def _cuts(n_blocks: int, n_stages: int, alone: bool) -> IntArray:
    """(cuts, S) blocks of each stage: one at least, or with ``alone`` none beside the embedding or the head."""
    ends = itertools.combinations(range(1, n_blocks + 2 * alone), n_stages - 1)
    blocks = np.array([np.diff([0, *end, n_blocks + 2 * alone]) for end in ends], dtype=np.int64)
    for end in (0, -1):
        blocks[:, end] -= alone
    return blocks
