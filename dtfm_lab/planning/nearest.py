"""Of plans that cost the same by symmetry, the one that moves fewest devices.

A search does not know which of sixteen equal GPUs of a city stood where before: it may hand back the old plan with
all of them exchanged. Devices with the same attributes and the same links to all others can change places without
changing any cost, so each class of them is laid over its old places by an assignment.
"""

from dataclasses import replace
from math import isclose

import numpy as np
import scipy

from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.cost import price_placement
from dtfm_lab.planning.evaluate import simulated
from dtfm_lab.planning.iteration.bounds.device_classes import grouped, link_matrices
from dtfm_lab.planning.objectives import objectives

STAGE, REPLICA = 2.0, 1.0
"""What keeping a device's stage is worth, and its pipeline."""


def nearest(plan: Plan, before: Plan) -> Plan:
    """``plan``, its interchangeable devices exchanged so that most of them keep the stage they have in ``before``.

    Devices are found by name. The plan itself where nothing is nearer, and where the exchange turns out to change its
    value after all.
    """
    grid = _exchanged(plan, before)
    if np.array_equal(grid, plan.placement.devices):
        return plan
    nearer = replace(
        plan, placement=Placement(grid), cost=price_placement(plan.topology, plan.job, grid), iteration_s=None
    )
    if plan.iteration_s is not None:
        nearer = simulated(nearer)
        if nearer.iteration_s is None:
            return plan
    value = objectives[plan.objective].value
    return nearer if isclose(value(nearer), value(plan), rel_tol=1e-9) else plan


def _exchanged(plan: Plan, before: Plan) -> IntArray:
    """(S, D) grid of the plan in which each class of interchangeable devices is laid over its old places."""
    grid = plan.placement.devices.copy()
    topology = plan.topology
    old = _places(before.topology, before.placement.devices)
    new = _places(topology, grid)
    of_device = _classes(topology)
    for which in np.flatnonzero(np.bincount(of_device) > 1):
        names = [topology.names[device] for device in np.flatnonzero(of_device == which)]
        slots = [new.get(name) for name in names]
        kept = [[_kept(old.get(name), slot) for slot in slots] for name in names]
        for row, column in zip(*scipy.optimize.linear_sum_assignment(kept, maximize=True), strict=True):
            if (slot := slots[column]) is not None:
                grid[slot] = topology.index(names[row])
    return grid


def _places(topology: Topology, grid: IntArray) -> dict[str, tuple[int, int]]:
    return {topology.names[device]: (s, r) for (s, r), device in np.ndenumerate(grid)}


def _kept(was: tuple[int, int] | None, now: tuple[int, int] | None) -> float:
    if was is None or now is None:
        return STAGE * (was is now)
    return STAGE * (was[0] == now[0]) + REPLICA * (was[1] == now[1])


def _classes(topology: Topology) -> IntArray:
    """(N,) class of each device: those of one class have the same attributes and the same links to all others."""
    kinds = [replace(device, name="any", position=None) for device in topology.devices]
    known = list(dict.fromkeys(kinds))
    kind = np.array([[known.index(one)] for one in kinds], dtype=float)
    of_device = grouped(kind, link_matrices(topology), 0.0, len(kinds))
    assert of_device is not None, "there are at most as many classes as devices"
    return of_device
