"""Sailor: which devices of which kind and region take part, and in which shape, by dynamic programming over stages."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dtfm_lab.costs.efficiency import GivenEfficiency, speeds_of
from dtfm_lab.domain.job import Job, boundary_bytes, even_shares
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.extensions.systems.grids import distinct, groupings, sized
from dtfm_lab.extensions.systems.strategy import TRIED, Branch, Budget, GridStrategy, described, strategies

WIDTH = 8
"""Chains of pools that are kept after each stage."""
MOST_STAGES = 16
"""Most stages that are looked at."""


@strategies.register("sailor")
@described
@dataclass(frozen=True, kw_only=True)
class Sailor(GridStrategy):
    """Sailor: which devices of which kind and region take part, and in which shape.

    Its planner goes through numbers of stages and replicas and gives each stage devices stage by stage, keeping what is
    best by its own closed form; here the plan of every shape may be simulated. A stage's replicas lie in one region;
    next stages may lie elsewhere. They are of one kind, or in each stage of any (``mixes_kinds``). The paper's planner
    also chooses the tensor parallelism of every stage. A plan here has one degree for all, because a plan's devices are
    the groups of one size that ``Topology.grouped`` makes, and a job has one ``tensor_parallel``.
    The chains of pools are those of a beam search.
    """

    name: ClassVar[str] = "sailor"

    across_regions: bool = False
    transport: str = "blocking"
    gradient_dtype: str = "fp32"
    checkpointing: str = "none"

    mixes_kinds: bool = True
    microbatches: str = TRIED

    def trained(self, job: Job) -> Job:
        """The job as the system trains it, whatever its shape."""
        return job.with_fields(
            schedule="1f1b",
            synchronisation="ring",
            transport=self.transport,
            gradient_dtype=self.gradient_dtype,
            checkpointing=self.checkpointing,
        )

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Branch]:
        """Every shape on the chain of pools that its closed form likes best."""
        yield from distinct(self._looked_at(topology, job, budget))

    def _looked_at(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Branch]:
        job, efficiency = self.trained(job), budget.efficiency
        for grouped, sliced in groupings(topology, job):
            for mixed in (False, True) if self.mixes_kinds else (False,):
                pools = _pools(grouped, job, efficiency, across_regions=self.across_regions, mixed=mixed)
                for shaped in _shapes(sliced, pools, self.microbatches):
                    for grid in _grids(grouped, shaped, pools):
                        yield Branch(grouped, shaped, grid)


class Pool(NamedTuple):
    """Devices in one region, of one kind or the fastest first."""

    devices: IntArray
    flop_per_s: float
    """That the slowest reaches."""


class Chain(NamedTuple):
    """Pools of the first stages, and what the closed form has of them so far."""

    seconds: float
    """Of an iteration with these stages alone."""
    pools: tuple[int, ...]
    straggler_s: float
    through_s: float


def blocks_of(n_blocks: int, n_stages: int) -> tuple[int, ...]:
    """Blocks of each stage; those over go to the last stages, one each (``get_stages`` of its planner_utils.cpp)."""
    return even_shares(n_blocks, n_stages)[::-1]


def _pools(
    topology: Topology, job: Job, efficiency: GivenEfficiency, *, across_regions: bool, mixed: bool
) -> list[Pool]:
    speed = np.array(speeds_of(job, topology.devices, efficiency))
    members: dict[tuple[str, str, float], list[int]] = {}
    for i in np.argsort(-speed, kind="stable").tolist():
        device = topology.devices[i]
        region = "" if across_regions else device.region
        members.setdefault((region, "", 0.0) if mixed else (region, device.gpu, speed[i]), []).append(i)
    return [Pool(np.array(devices), float(speed[devices].min())) for devices in members.values()]


def _shapes(job: Job, pools: list[Pool], microbatches: str) -> Iterator[Job]:
    """The job with every number of stages, and numbers of replicas that are powers of two or divide a pool."""
    wide = {len(pool.devices) for pool in pools}
    replicas = {2**i for i in range(max(wide).bit_length())}
    replicas = {n for n in replicas if n <= max(wide)} | {n // k for n in wide for k in (1, 2, 3) if not n % k}
    n_blocks = job.modelled().n_blocks
    for n_replicas in sorted(replicas):
        most = sum(len(pool.devices) // n_replicas for pool in pools)
        for n_stages in range(1, min(most, n_blocks, MOST_STAGES) + 1):
            for shaped in sized(job, microbatches, n_stages, n_replicas):
                yield shaped.with_fields(blocks_per_stage=blocks_of(n_blocks, n_stages))


def _grids(topology: Topology, job: Job, pools: list[Pool]) -> Iterator[IntArray]:
    """(stages, replicas) devices along the chain of pools that takes least."""
    chain = _best_chain(topology, job, pools)
    if chain is None:
        return
    used = [0] * len(pools)
    rows = []
    for pool in chain.pools:
        rows.append(pools[pool].devices[used[pool] : used[pool] + job.n_replicas])
        used[pool] += job.n_replicas
    yield np.array(rows)


def _best_chain(topology: Topology, job: Job, pools: list[Pool]) -> Chain | None:
    """Stage by stage, the chains that take least; of those that end alike with the same devices left, the best."""
    crossing = boundary_bytes(job, job.n_stages)
    hop_s = {n_bytes: _hops(topology, n_bytes, pools).tolist() for n_bytes in set(crossing[1:-1])}
    capacity = [len(pool.devices) // job.n_replicas for pool in pools]
    flop = [job.microbatch * 3 * sum(layer.forward_flop for layer in layers) for layers in job.stage_layers]
    blocking = job.transport == "blocking"
    further = job.n_microbatches - 1
    chains = [Chain(0.0, (), 0.0, 0.0)]
    for stage in range(job.n_stages):
        found: dict[tuple[tuple[int, ...], int], Chain] = {}
        for chain in chains:
            for i, pool in enumerate(pools):
                if chain.pools.count(i) >= capacity[i]:
                    continue
                pass_s = flop[stage] / pool.flop_per_s
                way_s = hop_s[crossing[stage]][chain.pools[-1]][i] if chain.pools else 0.0
                straggler_s = max(chain.straggler_s, pass_s + (way_s if blocking else 0.0))
                through_s = chain.through_s + pass_s + way_s
                longer = Chain(further * straggler_s + through_s, (*chain.pools, i), straggler_s, through_s)
                key = tuple(sorted(longer.pools)), i
                if key not in found or longer < found[key]:
                    found[key] = longer
        chains = sorted(found.values())[:WIDTH]
    return chains[0] if chains else None


def _hops(topology: Topology, n_bytes: float, pools: list[Pool]) -> FloatArray:
    """(pools, pools) seconds of an activation and its gradient over the slowest link between two pools."""
    one_way_s = topology.latency_s + n_bytes / topology.bandwidth_bytes_per_s
    there_and_back_s = one_way_s + one_way_s.T
    np.fill_diagonal(there_and_back_s, 0.0)
    return np.array([[there_and_back_s[np.ix_(a.devices, b.devices)].max() for b in pools] for a in pools])
