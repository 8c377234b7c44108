"""A bound that follows from a budget: so many dollars an hour rent so many FLOP/s and no more."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.planning.iteration.problem import open_microbatches
from dtfm_lab.simulation.efficiency import GivenEfficiency, speeds_of


@dataclass(frozen=True, eq=False)
class PriceBound:
    """The most FLOP/s for every budget: devices by FLOP/s a dollar, the best first, the last one in part.

    That is the fractional knapsack, whose value is at least that of any choice of whole devices. A plan's devices
    together do the job's FLOP in an iteration, so it takes no less than these over their FLOP/s.
    """

    price_per_hour: FloatArray
    """(N + 1,) US dollars of the first 0 to N devices, by FLOP/s a dollar; free ones first."""
    flop_per_s: FloatArray
    """(N + 1,) their FLOP/s."""

    @classmethod
    def of(cls, topology: Topology, job: Job, efficiency: GivenEfficiency = None) -> PriceBound:
        """The bound for a job's precision, at the micro-batches and groups at which devices reach most."""
        speed = np.array(_most_speeds(topology, job, efficiency))
        price = np.array([device.price_per_hour for device in topology.devices])
        order = np.argsort(price / speed, kind="stable")
        both = (np.concatenate([[0.0], np.cumsum(column[order])]) for column in (price, speed))
        return cls(*both)

    def iteration_s(self, flop: float, price_per_hour: float) -> float:
        """Seconds that no plan of at most so many dollars an hour is faster than; infinite where none can be."""
        n_free = int(np.searchsorted(self.price_per_hour, 0.0, side="right")) - 1
        prices, speeds = self.price_per_hour[n_free:], self.flop_per_s[n_free:]
        most = float(np.interp(price_per_hour, prices, speeds))
        return flop / most if most > 0 else np.inf


def _most_speeds(topology: Topology, job: Job, efficiency: GivenEfficiency) -> FloatArray:
    """(N,) most FLOP/s that each device reaches, over the micro-batches and the groups of GPUs that the job allows."""
    degrees = topology.group_sizes if job.tensor_parallel is None else [job.tensor_parallel]
    found = []
    for degree in degrees:
        groups = [
            replace(device, gpus=degree, peak_flop_per_s=degree / device.gpus * device.peak_flop_per_s)
            for device in topology.devices
        ]
        for microbatch in open_microbatches(job):
            speeds = speeds_of(job, groups, efficiency, microbatch)
            found.append([device.gpus / degree * speed for device, speed in zip(topology.devices, speeds, strict=True)])
    most: FloatArray = np.max(found, axis=0)
    return most
