"""Workers that train alone between averages, and how long they take to exchange what each one sends.

A worker is a pipeline within one island of devices, or a single device.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dtfm_lab.domain.errors import PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.extensions.systems.grids import distinct, groupings, sized
from dtfm_lab.extensions.systems.strategy import TRIED, Branch, Budget, GridStrategy, described

NEVER = 10**9
"""A number of iterations between two averages that stands for never."""


@described
@dataclass(frozen=True, kw_only=True)
class LocalWorkers(GridStrategy):
    """Workers, each with all its devices on one island. All have equal shares of the batch."""

    islands: str = "regions"
    most_workers: int = 64
    microbatches: str = TRIED

    def trained(self, job: Job) -> Job:
        """Return the job as the system trains it. Its shape is set later."""
        raise NotImplementedError

    def branches(self, topology: Topology, job: Job, budget: Budget) -> Iterator[Branch]:
        """Yield every tensor-parallel degree, set of islands, length of the pipelines (``_lengths``) and micro-batch
        size, with and without recomputation.

        Raises PlanError if the network has fewer than two workers.
        """
        found = list(distinct(self._workers(topology, job)))
        if not found:
            raise PlanError(f"{topology.name} has no two workers for a batch of {job.global_batch}; wanted two or more")
        yield from found

    def _workers(self, topology: Topology, job: Job) -> Iterator[Branch]:
        for grouped, trained in groupings(topology, self.trained(job)):
            for islands in _fastest(grouped, self._islands(grouped)):
                for length in _lengths(islands, job.modelled().n_blocks):
                    grid = _pipelines(islands, length)[:, : self.most_workers]
                    for shaped in sized(trained, self.microbatches, *grid.shape) if grid.shape[1] > 1 else ():
                        for checkpointing in ("none", "block"):
                            yield Branch(grouped, shaped.with_fields(checkpointing=checkpointing), grid)

    def _islands(self, topology: Topology) -> list[IntArray]:
        if self.islands == "devices":
            return [np.array([device]) for device in range(len(topology))]
        region = np.array([topology.regions.index(device.region) for device in topology.devices])
        return [np.flatnonzero(region == one) for one in range(len(topology.regions))]


def alone(plan: Plan) -> Plan:
    """Return the plan with workers that never average."""
    return plan.changed(job=plan.job.with_fields(synchronise_every=NEVER, fragments=1, fragment_delay=0))


def exchange_s(
    n_bytes: float | FloatArray,
    n_workers: int,
    up_bytes_per_s: float | FloatArray,
    down_bytes_per_s: float | FloatArray,
) -> float:
    """Return the seconds of an exchange through a storage: every worker uploads once, then downloads what all others
    uploaded.

    ``n_bytes`` is what one device uploads. Downloads start when all uploads are done. A worker's downloads share its
    line. Arguments are for one device, or arrays over all devices.
    """
    if n_workers < 2:
        return 0.0
    # All uploads come before the downloads that need them.
    up_s, down_s = n_bytes / np.asarray(up_bytes_per_s), (n_workers - 1) * n_bytes / np.asarray(down_bytes_per_s)
    return float(np.max(up_s) + np.max(down_s))


def lines_bytes_per_s(plan: Plan) -> tuple[FloatArray, FloatArray]:
    """Return (stages, workers) bytes/s at which each device can send to other workers, and the same for receiving.

    A device has one such line, not one per peer. The line is as fast as its fastest link to another worker. Devices
    that share their host's NIC share its line.
    """
    grid, bandwidth = plan.placement.devices, plan.topology.bandwidth_bytes_per_s
    flat = grid.ravel()
    worker = np.broadcast_to(np.arange(grid.shape[1]), grid.shape).ravel()
    between = np.where(worker[:, None] != worker[None, :], bandwidth[np.ix_(flat, flat)], 0.0)
    nic_of = plan.topology.nic_of
    # Devices of a host share its network card.
    sharing = np.ones(len(flat)) if nic_of is None else np.bincount(nic_of[flat])[nic_of[flat]]
    # a device's line is as fast as its fastest link to another worker
    up, down = between.max(axis=1) / sharing, between.max(axis=0) / sharing
    return up.reshape(grid.shape), down.reshape(grid.shape)


def _fastest(topology: Topology, islands: list[IntArray]) -> Iterator[list[IntArray]]:
    """Yield all islands, then all except the slowest, and so on. Workers have equal shares of the batch, so slow
    islands delay all."""
    slowest = [min(topology.devices[device].peak_flop_per_s for device in island) for island in islands]
    for least in sorted(set(slowest)):
        yield [island for island, speed in zip(islands, slowest, strict=True) if speed >= least]


def _lengths(islands: list[IntArray], n_blocks: int) -> list[int]:
    """Return numbers of stages to try, up to the number of blocks: powers of two, and divisors of an island's size."""
    largest = max(len(island) for island in islands)
    wanted = {2**i for i in range(largest.bit_length())}
    wanted |= {n for island in islands for n in range(1, len(island) + 1) if not len(island) % n}
    return sorted(n for n in wanted if n <= min(largest, n_blocks))


def _pipelines(islands: list[IntArray], length: int) -> IntArray:
    """Return (length, workers) devices of as many pipelines as fit on the islands. Each is within one island, in the
    network's order."""
    whole = [island[: len(island) // length * length].reshape(-1, length) for island in islands]
    return np.vstack(whole).T
