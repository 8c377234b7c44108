"""Grids of tensor, pipeline and data parallelism, with devices in the order of their ranks, on all devices of a network
or without some kinds, some regions, or what lies far away."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Protocol

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning import evaluate
from dtfm_lab.systems.branch import Branch, GridBound
from dtfm_lab.systems.strategy import Budget

MICROBATCHES = (1, 2, 4, 8, 16)
"""Sizes that are tried where the job leaves its micro-batch open."""
MICROBATCHES_ALONE = tuple(2**i for i in range(9))
"""Sizes that are tried where no pipeline needs several micro-batches."""
MOST_POOLS = 4
"""Most pools of which every selection is tried: fifteen."""


def shapes(
    job: Job,
    n_devices: int,
    *,
    stages: Sequence[int] | None = None,
    microbatches: Sequence[int] | None = None,
    fewer: bool = False,
) -> Iterator[Job]:
    """The job in every shape and micro-batch that uses the most devices of so many that any shape can use.

    A given micro-batch is kept where ``microbatches`` does not say otherwise. Every replica has equally many.

    Parameters
    ----------
    stages
        Numbers of stages that the system allows; any where None.
    microbatches
        Sizes that are tried.
    fewer
        Shapes of fewer devices are tried, too.
    """
    own: Sequence[int] = MICROBATCHES if job.microbatch is None else (job.microbatch,)
    sizes = own if microbatches is None else microbatches
    for n_used in range(n_devices, 0, -1):
        found = False
        for microbatch in sizes:
            if job.global_batch % microbatch:
                continue
            sized = job.with_fields(microbatch=microbatch)
            for n_stages, n_replicas in sized.shapes(n_used):
                if stages is None or n_stages in stages:
                    found = True
                    yield sized.with_fields(n_stages=n_stages, n_replicas=n_replicas)
        if found and not fewer:
            return


def rank_order(topology: Topology, hosts: str = "listed", seed: int = 0) -> IntArray:
    """The device of each rank: hosts as the network lists them or in a drawn order, devices of a host together.

    A device that names no host is one of its own.
    """
    if hosts == "listed":
        return np.arange(len(topology))
    of_host: dict[str, list[int]] = {}
    for i, device in enumerate(topology.devices):
        of_host.setdefault(device.host or f" {i}", []).append(i)
    members = list(of_host.values())
    drawn = np.random.default_rng(seed).permutation(len(members))
    return np.array([i for host in drawn for i in members[host]])


def in_order(job: Job, ranks: IntArray, order: str) -> IntArray:
    """(stages, replicas) devices of a shaped job whose devices take ranks in a given order.

    ``dp-pp``: ranks of one data-parallel group are neighbours, and pipelines stride over them, as in Megatron-LM and
    DeepSpeed; ``pp-dp``: ranks of one pipeline are neighbours, as in DT-FM.
    """
    used = np.asarray(ranks)[: job.n_stages * job.n_replicas]
    by_stage: IntArray = used.reshape(job.n_stages, job.n_replicas)
    return by_stage if order == "dp-pp" else used.reshape(job.n_replicas, job.n_stages).T


def in_rank_order(topology: Topology, job: Job, ranks: IntArray, *, order: str) -> Plan:
    """The plan of ``in_order``; ``ranks`` is the device of each rank, as many as the job takes at least."""
    grid = in_order(job, ranks, order)
    return evaluate(topology, job, rank_map=Placement(grid).rank_map(len(topology)))


class Freedoms(Protocol):
    """A system by what its user may choose of grids, each ``tried`` or not."""

    @property
    def microbatches(self) -> str: ...
    @property
    def hosts(self) -> str: ...
    @property
    def devices(self) -> str: ...


def grids(
    system: Freedoms,
    topology: Topology,
    job: Job,
    ways: Callable[[Job], Sequence[Mapping[str, Any]]],
    budget: Budget,
    *,
    tensor_parallel: Sequence[int] = (1,),
    orders: Sequence[str] = ("dp-pp",),
    stages: Sequence[int] | None = None,
    sizes: Sequence[int] = MICROBATCHES,
) -> Iterator[Branch]:
    """Every tensor-parallel degree, set of devices, shape, micro-batch and order of ranks, in the ways of each shape.

    Degrees that the network's hosts or the model's heads do not allow are left out. ``stages`` are those of ``shapes``,
    ``sizes`` the micro-batches that are tried where the system's user tries them. Where that user leaves out devices,
    every set of ``device_sets`` is tried, and fewer of each.
    """
    fewer = system.devices == "tried"
    microbatches = sizes_of(system.microbatches, job, sizes)
    for grouped, sliced in groupings(topology, job, tensor_parallel):
        ranks = rank_order(grouped, system.hosts, budget.seed)
        shaped = list(shapes(sliced, len(grouped), stages=stages, microbatches=microbatches, fewer=fewer))
        bound, seen = GridBound(grouped, budget.efficiency), set[tuple[Job, bytes]]()
        for members in device_sets(grouped) if fewer else [ranks]:
            taken = ranks[np.isin(ranks, members)]
            for one in shaped:
                if one.n_stages * one.n_replicas > len(taken):
                    continue
                tried = ways(one)
                for order in orders if min(one.n_stages, one.n_replicas) > 1 else orders[:1]:
                    grid = in_order(one, taken, order)
                    if tried and (key := (one, grid.tobytes())) not in seen:
                        seen.add(key)
                        yield Branch(grouped, one, grid, tried, bound.least_s(one, grid, tried))


def sized(job: Job, microbatches: str, n_stages: int, n_replicas: int) -> Iterator[Job]:
    """The job in a shape, in each micro-batch that is tried, or given, of which every replica gets one at least."""
    for microbatch in sizes_of(microbatches, job, MICROBATCHES) or (job.microbatch,):
        if not job.global_batch % microbatch and job.global_batch // microbatch >= n_replicas:
            yield job.with_fields(n_stages=n_stages, n_replicas=n_replicas, microbatch=microbatch)


def groupings(topology: Topology, job: Job, degrees: Sequence[int] | None = None) -> Iterator[tuple[Topology, Job]]:
    """The network with its hosts' GPUs in tensor-parallel groups, and the job sliced over them: in each of these
    degrees, all by default, that the hosts and the model's heads allow."""
    heads = job.modelled().n_heads
    for degree in topology.group_sizes if degrees is None else degrees:
        if degree in topology.group_sizes and not heads % degree:
            yield topology.grouped(degree), job.with_fields(tensor_parallel=degree)


def sizes_of(microbatches: str, job: Job, tried: Sequence[int]) -> Sequence[int] | None:
    """The micro-batches that are tried, or None: the job's own, where they are ``given``."""
    return tried if microbatches == "tried" or job.microbatch is None else None


def device_sets(topology: Topology) -> list[IntArray]:
    """Devices that a user might start a system on, in the network's order; all of them first.

    A pool is the devices of one kind in one region. Of up to four pools every selection is tried. Of more: each alone,
    those at least as fast as each speed, all but one, and clusters of pools, the best linked first.
    """
    pools = _pools(topology)
    n = len(pools)
    if n <= MOST_POOLS:
        chosen = [set(one) for size in range(n, 0, -1) for one in combinations(range(n), size)]
    else:
        speed = [topology.devices[int(pool[0])].peak_flop_per_s for pool in pools]
        chosen = [set(range(n))]
        chosen += [{i for i in range(n) if speed[i] >= least} for least in sorted(set(speed))]
        chosen += [set(range(n)) - {i} for i in range(n)]
        chosen += _clusters(_bandwidths(topology, pools))
        chosen += [{i} for i in range(n)]
    distinct = dict.fromkeys(frozenset(one) for one in chosen)
    return [np.sort(np.concatenate([pools[i] for i in one])) for one in distinct]


def _pools(topology: Topology) -> list[IntArray]:
    members: dict[tuple[str, str, float], list[int]] = {}
    for i, device in enumerate(topology.devices):
        members.setdefault((device.region, device.gpu, device.peak_flop_per_s), []).append(i)
    return [np.array(one) for one in members.values()]


def _bandwidths(topology: Topology, pools: list[IntArray]) -> FloatArray:
    """(pools, pools) bytes/s of the slowest link between two, either way."""
    bandwidth = topology.bandwidth_bytes_per_s
    one_way = np.array([[bandwidth[np.ix_(a, b)].min() for b in pools] for a in pools])
    found: FloatArray = np.minimum(one_way, one_way.T)
    return found


def _clusters(bandwidth: FloatArray) -> list[set[int]]:
    """What comes of joining the two best linked clusters again and again, by the slowest link between them."""
    clusters, found = [{i} for i in range(len(bandwidth))], []
    while len(clusters) > 1:
        pairs = list(combinations(range(len(clusters)), 2))
        a, b = max(pairs, key=lambda pair: bandwidth[np.ix_(*(list(clusters[one]) for one in pair))].min())
        joined = clusters[a] | clusters[b]
        clusters = [one for i, one in enumerate(clusters) if i not in (a, b)] + [joined]
        found.append(joined)
    return found
