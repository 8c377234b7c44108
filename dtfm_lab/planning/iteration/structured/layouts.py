"""Grids of devices in rank order: which device computes which stage of which replica."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Links
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.iteration.left_open import divisors

ORDERS = ("dp-pp", "pp-dp")
"""Ranks of a data-parallel group are neighbours (dp-pp, as Megatron-LM and DeepSpeed lay them), or those of a pipeline
(pp-dp, as DT-FM does)."""
STAGES_UP_TO = 8
"""Up to this many stages every number is tried; beyond, those that divide the blocks, and a geometric scale."""
STAGE_RATIO = 1.25
COARSE_STAGES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Numbers of stages that are tried on parts of a network; annealing tries those between."""
FEWER = 3
"""Halvings of the largest number of replicas that are tried: idle devices cost less than slow averaging."""


@dataclass(frozen=True, eq=False)
class Layout:
    """A grid on a network of groups; its links are counted once and shared by all ways to train on it."""

    links: Links
    grid: IntArray
    """(S, R) device indices."""
    order: str
    members: IntArray
    """The set of devices that it is made of, in the order of their ranks; some may be idle."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.grid.shape[0], self.grid.shape[1]

    @cached_property
    def hosts(self) -> IntArray:
        """(S, R) the network card of each device; devices without a shared one count their own."""
        card_of = self.links.card_of
        return self.grid if card_of is None else card_of[self.grid]

    @property
    def shares_cards(self) -> bool:
        """Whether messages of several devices wait for one network card."""
        return self.links.has_cards

    @cached_property
    def hops(self) -> Hops:
        """The links between neighbouring stages."""
        return Hops.of(self)


@dataclass(frozen=True, eq=False)
class Hops:
    """Links between neighbouring stages, each (S - 1, R)."""

    there_s_per_byte: FloatArray
    """Seconds a byte of an activation, with the wait for other pipelines that send at the same time."""
    back_s_per_byte: FloatArray
    there_latency_s: FloatArray
    back_latency_s: FloatArray
    alone_s_per_byte: FloatArray
    """(R,) of each pipeline's slowest link, without any wait."""
    busiest_s_per_byte: float
    """Seconds for which one micro-batch of every pipeline keeps the busiest link or network card."""

    @classmethod
    def of(cls, layout: Layout) -> Hops:
        links, grid = layout.links, layout.grid
        a, b = grid[:-1], grid[1:]
        there, back = 1.0 / links.bandwidth_bytes_per_s[a, b], 1.0 / links.bandwidth_bytes_per_s[b, a]
        late = links.latency_s[a, b], links.latency_s[b, a]
        busiest = float(max(there.max(initial=0.0), back.max(initial=0.0)))
        alone = np.maximum(there.max(axis=0, initial=0.0), back.max(axis=0, initial=0.0))
        if layout.shares_cards and a.size:
            here, away = layout.hosts[:-1], layout.hosts[1:]
            apart = here != away
            n = int(layout.hosts.max()) + 1
            boundary = np.arange(len(a))[:, None] * n
            leaving = np.bincount((boundary + here)[apart], minlength=len(a) * n)
            coming = np.bincount((boundary + away)[apart], minlength=len(a) * n)
            at_once = np.where(apart, np.maximum(leaving[boundary + here], coming[boundary + away]), 1)
            out = np.bincount(here[apart], there[apart], n) + np.bincount(away[apart], back[apart], n)
            into = np.bincount(away[apart], there[apart], n) + np.bincount(here[apart], back[apart], n)
            busiest = max(busiest, float(out.max(initial=0.0)), float(into.max(initial=0.0)))
            there, back = there * at_once, back * at_once
        return cls(there, back, *late, alone, busiest)


def stage_counts(job: Job, n_devices: int, *, coarse: bool) -> list[int]:
    """Return the numbers of stages that are tried, fewest first; ``coarse`` for a part of a network."""
    most = min(job.modelled().n_blocks, n_devices)
    if job.n_stages is not None:
        return [job.n_stages] if job.n_stages <= most else []
    if coarse:
        return [n for n in COARSE_STAGES if n <= most]
    found = set(range(1, min(most, STAGES_UP_TO) + 1))
    found |= {n for n in divisors(job.modelled().n_blocks) if n <= most}
    n = float(STAGES_UP_TO)
    while (n := n * STAGE_RATIO) <= most:
        found.add(int(n))
    return sorted({*found, most})


def replica_counts(job: Job, n_devices: int, n_stages: int, *, coarse: bool) -> list[int]:
    """Return the numbers of replicas that are tried for so many stages, most first.

    Beside the most that there are devices for: the most that divide the batch, powers of two, and halves of these.
    """
    most = min(n_devices // n_stages, job.global_batch)
    if job.n_replicas is not None:
        return [job.n_replicas] if job.n_replicas <= most else []
    if most < 1:
        return []
    even = max(n for n in divisors(job.global_batch) if n <= most)
    found = {most, even}
    if not coarse:
        power = 1 << (most.bit_length() - 1)
        for one in (even, power):
            found |= {max(1, one >> i) for i in range(FEWER + 1)}
    return sorted(found, reverse=True)


def in_order(job: Job, ranks: IntArray, order: str) -> IntArray:
    """Return the (stages, replicas) devices of a shaped job whose devices take ranks in a given order.

    ``dp-pp``: ranks of one data-parallel group are neighbours, and pipelines stride over them, as in Megatron-LM and
    DeepSpeed; ``pp-dp``: ranks of one pipeline are neighbours, as in DT-FM.
    """
    return grid_of(ranks, (job.n_stages, job.n_replicas), order)


def grid_of(ranks: IntArray, shape: tuple[int, int], order: str) -> IntArray:
    """Return the (S, R) devices of a shape whose devices take these ranks in a given order."""
    n_stages, n_replicas = shape
    used = np.asarray(ranks)[: n_stages * n_replicas]
    by_stage: IntArray = used.reshape(n_stages, n_replicas)
    return by_stage if order == "dp-pp" else used.reshape(n_replicas, n_stages).T


def layouts(links: Links, job: Job, members: IntArray, *, coarse: bool) -> Iterator[Layout]:
    """Yield the grids of one set of devices, whose order is that of their ranks; ``coarse`` for a part of a network."""
    n = len(members)
    for n_stages in stage_counts(job, n, coarse=coarse):
        for n_replicas in replica_counts(job, n, n_stages, coarse=coarse):
            for order in ORDERS if min(n_stages, n_replicas) > 1 else ORDERS[:1]:
                yield Layout(links, grid_of(members, (n_stages, n_replicas), order), order, members)
