"""US dollars of an iteration that no plan is cheaper than.

A plan pays all its devices for the whole iteration, and each of them needs at least its own time for it: a device that
passes n micro-batches through a stage n times the seconds of one, by its passes or by its slowest link. So the plan
pays at least, for every stage, the batch at the cheapest price of a device that the stage fits on. The least sum over
all cuts of the model is found stage by stage; the stages of one device are paid alike.

The bound of a budget is simpler: so many dollars an hour rent so many FLOP/s and no more (``PriceBound``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.units import FloatArray
from dtfm_lab.planning.iteration.bounds.capacities import Capacities
from dtfm_lab.planning.iteration.bounds.device_classes import DeviceClasses
from dtfm_lab.planning.iteration.bounds.iteration_bound import ROUNDING
from dtfm_lab.planning.iteration.bounds.refutation import batch_flop
from dtfm_lab.planning.iteration.bounds.stage_kinds import FIRST, LAST, MIDDLE, SOLE, Family, StageKinds, families_of
from dtfm_lab.planning.iteration.problem import IterationProblem, open_microbatches
from dtfm_lab.simulation.efficiency import GivenEfficiency, speeds_of


def price_bound(problem: IterationProblem, schedules: Iterable[str] | None = None) -> float:
    """Least US dollars of an iteration; ``schedules`` as for ``iteration_bound_steps``.

    Devices of unknown price, 0, cost nothing. Where nothing fits, the work at the cheapest price.
    """
    if len(problem.parts) > 1:
        return min(price_bound(part, schedules) for part in problem.parts)
    anywhere = batch_flop(problem) * float((problem.price_per_hour / problem.flop_per_s).min()) / 3600
    families = families_of(problem.job, schedules)
    if any(family.stages_per_device > 1 for family in families):
        return anywhere * ROUNDING  # a device's blocks are not consecutive: any may be there
    classes = DeviceClasses.of(problem)
    found = [_cheapest(Capacities(classes, StageKinds.of_any_cut(problem), Family(), m)) for m in problem.microbatches]
    least = min(found)
    return max(anywhere, least if np.isfinite(least) else 0.0) * ROUNDING


def _cheapest(capacities: Capacities) -> float:
    """Dollars of the cheapest cut, each of its stages on the cheapest devices."""
    kinds, n_blocks = capacities.kinds, capacities.problem.n_blocks
    stage = _stage_dollars(capacities)
    of_role = {role: np.full(n_blocks + 1, np.inf) for role in (FIRST, MIDDLE, LAST, SOLE)}
    for role, costs in of_role.items():
        costs[kinds.blocks[kinds.role == role]] = stage[kinds.role == role]
    begun = of_role[FIRST].copy()  # the least for the first k blocks, without the last stage
    for k in range(2, n_blocks):
        before = begun[1:k] + of_role[MIDDLE][k - 1 : 0 : -1]
        begun[k] = min(begun[k], before.min())
    ended = begun[1:n_blocks] + of_role[LAST][n_blocks - 1 : 0 : -1]
    return float(min(of_role[SOLE][n_blocks], ended.min(initial=np.inf)))


def _stage_dollars(capacities: Capacities) -> FloatArray:
    """(Q,) dollars of the batch in a stage of each kind on the cheapest class; infinite where it fits on none."""
    classes, role = capacities.classes, capacities.kinds.role
    hop_s = np.maximum(capacities.hop_s, capacities.hop_s.T).min(axis=1)
    linked = np.where(role[:, None] == SOLE, 0.0, hop_s[None, :])
    dollars = np.full(len(role), np.inf)
    for costs in capacities.costs:
        once_s = np.maximum(costs.forward_s + costs.input_s + costs.weight_s, linked)
        each = np.where(costs.fits > 0, once_s * classes.price_per_hour[None, :], np.inf)
        dollars = np.minimum(dollars, each.min(axis=1))
    return dollars * capacities.n_microbatches / 3600


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
