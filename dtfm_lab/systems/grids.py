"""Grids of tensor, pipeline and data parallelism, with devices in the order of their ranks."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning import evaluate

MICROBATCHES = (1, 2, 4, 8, 16)
"""Sizes that are tried where the job leaves its micro-batch open."""
MICROBATCHES_ALONE = tuple(2**i for i in range(9))
"""Sizes that are tried where no pipeline needs several micro-batches."""
HOSTS = ("listed", "random")
"""Orders of hosts: as the network lists them, or drawn."""
ORDERS = ("dp-pp", "pp-dp")
"""Which ranks are neighbours: those of a data-parallel group, or those of a pipeline."""


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


def in_rank_order(topology: Topology, job: Job, ranks: IntArray, *, order: str) -> Plan:
    """The plan of a shaped job whose devices take ranks in a given order.

    Parameters
    ----------
    ranks
        Device of each rank, n_stages x n_replicas of them.
    order
        ``dp-pp``: ranks of one data-parallel group are neighbours, and pipelines stride over them, as in Megatron-LM
        and DeepSpeed; ``pp-dp``: ranks of one pipeline are neighbours, as in DT-FM.
    """
    n = job.n_stages * job.n_replicas
    used = np.asarray(ranks)[:n]
    grid = used.reshape(job.n_stages, job.n_replicas) if order == "dp-pp" else used.reshape(job.n_replicas, -1).T
    return evaluate(topology, job, rank_map=Placement(grid).rank_map(len(topology)))


def grids(
    topology: Topology,
    job: Job,
    *,
    tensor_parallel: Sequence[int] = (1,),
    order: str = "dp-pp",
    stages: Sequence[int] | None = None,
    hosts: str = "listed",
    seed: int = 0,
    microbatches: Sequence[int] | None = None,
    fewer: bool = False,
) -> Iterator[Plan]:
    """Plans of every tensor-parallel degree, shape and micro-batch, devices in the order of their ranks.

    Degrees that the network's hosts or the model's heads do not allow are left out. ``stages``, ``microbatches`` and
    ``fewer`` are those of ``shapes``, ``hosts`` and ``seed`` those of ``rank_order``.
    """
    heads = job.modelled().n_heads
    for degree in tensor_parallel:
        if degree not in topology.group_sizes or heads % degree:
            continue
        grouped = topology.grouped(degree)
        ranks = rank_order(grouped, hosts, seed)
        sliced = job.with_fields(tensor_parallel=degree)
        for shaped in shapes(sliced, len(grouped), stages=stages, microbatches=microbatches, fewer=fewer):
            try:
                yield in_rank_order(grouped, shaped, ranks, order=order)
            except LabError:  # a shape that the schedule or the sharding does not allow
                continue


def replicated(topology: Topology, job: Job, microbatches: str, **how: Any) -> Iterator[Plan]:
    """Plans of one stage in as many replicas as there are devices; ``microbatches`` is ``tried`` or ``given``."""
    sizes = MICROBATCHES_ALONE if microbatches == "tried" else None
    yield from grids(topology, job, stages=(1,), microbatches=sizes, **how)
