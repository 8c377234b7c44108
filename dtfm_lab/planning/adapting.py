"""Move a plan to another network or job, matching devices by name.

``adapt_plan`` returns the adapted plan, ``starting_plans`` the plans that a search begins with. Of all plans that cost
the same by symmetry, ``nearest`` picks the one that moves the fewest devices.

A search does not know where each of sixteen equal GPUs of a city was before. It may return the old plan with all of
them exchanged. Devices with the same attributes and links can change places without changing any cost. ``nearest``
therefore solves an assignment problem that puts each class of such devices back into its old places.
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from math import isclose

import numpy as np
import scipy

from dtfm_lab.costs.efficiency import speeds_of
from dtfm_lab.costs.memory import usable_bytes
from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.cost import PairCosts, interchangeable, link_matrices, pair_costs, price_placement
from dtfm_lab.planning.evaluate import evaluate, simulated
from dtfm_lab.planning.iteration.structured.candidates import unpriced_plan
from dtfm_lab.planning.search import network_of, require_fit, value_of

NEARLY = 0.9
"""``starting_plans`` fills the vacant places with devices of at least this fraction of the speed of the plan's slowest
device, and with no less memory than its smallest. If there are too few of them, any device may fill a place."""


def adapt_plan(plan: Plan, topology: Topology, job: Job) -> Plan:
    """Return the placement of ``plan`` on another network or for another job, matching devices by name.

    If the shape is the same, every device that still exists keeps its place. A vacant place goes to the free device
    that is nearest to its group and to its neighbours in the pipeline. If the plan minimises the communication cost,
    the devices of neighbouring stages are then paired into pipelines again. With another objective, or with different
    numbers of micro-batches per pipeline, every device stays in its pipeline.

    If the shape differs, the devices are listed stage by stage, then the devices without a place. The list is cut into
    the new stages. Fields that the job leaves open are copied from the plan's job, as far as they suit the new one.

    Raises
    ------
    PlanError
        The job needs more devices than there are.
    """
    topology, job = network_of(topology, _as_planned(job, plan.job))
    require_fit(topology, job)
    placed = _with_holes(plan, topology)
    taken = {name for group in placed for name in group if name is not None}
    free = [name for name in topology.names if name not in taken]
    if (len(placed), len(placed[0])) == (job.n_stages, job.n_replicas):
        grid = filled(placed, free, topology, pair_costs(topology, job))
        if plan.objective == "communication" and len(set(job.microbatch_counts)) == 1:
            return evaluate(topology, job, stages=grid)
        return evaluate(topology, job, rank_map=Placement(np.array(grid)).rank_map(len(topology)))
    row = [name for group in placed for name in group if name is not None] + free
    width = job.n_replicas
    return evaluate(topology, job, stages=[row[stage * width : (stage + 1) * width] for stage in range(job.n_stages)])


def _with_holes(plan: Plan, network: Topology) -> list[list[str | None]]:
    """Return the plan's device names by stage, with None for each device that is not on the network."""
    there = set(network.names)
    return [[name if name in there else None for name in group] for group in plan.stages]


def _as_planned(job: Job, planned: Job) -> Job:
    """Return the job with its open fields copied from a planned job.

    Cut, micro-batches per pipeline, schedule, warm-ups and recomputation are copied only if shape, micro-batch, model
    and batch are the same, because they were chosen for these.
    """
    left = {what: getattr(planned, what) for what in ("tensor_parallel", "sharding") if getattr(job, what) is None}
    job = job.with_fields(**left) if left else job
    shape = ("n_stages", "n_replicas", "microbatch")
    taken = {name: getattr(planned, name) for name in shape if getattr(job, name) is None}
    same = all(getattr(planned, name) == taken.get(name, getattr(job, name)) for name in shape)
    # the cut, schedule and recomputation were chosen for this model and shape, and may not suit another
    if same and (job.model, job.global_batch) == (planned.model, planned.global_batch):
        chosen = ("blocks_per_stage", "microbatches_per_replica", "schedule", "warmups")
        taken |= {name: getattr(planned, name) for name in chosen if getattr(job, name) is None}
        if job.checkpointing is None and not job.recompute:
            taken |= {"recompute": planned.recompute, "checkpointing": planned.checkpointing}
    return job.with_fields(**taken) if taken else job


def filled(placed: list[list[str | None]], free: list[str], topology: Topology, pair: PairCosts) -> list[list[int]]:
    """Return device indices by stage, with each None in ``placed`` replaced by one of the ``free`` devices.

    The places are filled stage by stage. Each gets the free device with the lowest cost to its group and to its
    neighbours in the pipeline.
    """
    grid = [[None if name is None else topology.index(name) for name in group] for group in placed]
    left = [topology.index(name) for name in free]
    for stage, group in enumerate(grid):
        for replica, device in enumerate(group):
            if device is not None:
                continue
            partners = [one for one in group if one is not None]
            ends = [grid[s][replica] for s in (stage - 1, stage + 1) if 0 <= s < len(grid)]
            neighbours = [one for one in ends if one is not None]
            cost_s = pair.group_s[np.ix_(left, partners)].sum(axis=1)
            cost_s = cost_s + pair.hop_s[np.ix_(left, neighbours)].sum(axis=1)
            group[replica] = left.pop(int(cost_s.argmin()))
    return [[device for device in group if device is not None] for group in grid]


STAGE = 2.0
"""Score of a device that keeps its stage, in the assignment of ``nearest_grid``. A device that holds only a part of its
new stage's parameters gets that part of the score. It exceeds ``REPLICA``, because a device that changes stage has to
load other parameters."""
REPLICA = 1.0
"""Score of a device that keeps its pipeline."""
ABSENT = 1e6
"""Penalty for giving a place to an absent device. It exceeds the sum of all scores."""


def nearest(plan: Plan, before: Plan | None) -> Plan:
    """Return ``plan`` with interchangeable devices exchanged so that as many as possible keep their stage in
    ``before``.

    Devices without a stage to keep are sorted: the earlier device in the topology gets the earlier stage. If there is
    no plan ``before``, this applies to all devices. Devices are matched by name. Returns the plan itself if it cannot
    be brought nearer, or if the exchange turns out to change its value.
    """
    grid = nearest_grid(plan, before)
    if np.array_equal(grid, plan.placement.devices):
        return plan
    nearer = replace(
        plan, placement=Placement(grid), cost=price_placement(plan.topology, plan.job, grid), iteration_s=None
    )
    if plan.iteration_s is not None:
        bound_s, nearer = plan.iteration_lower_bound_s, simulated(nearer)
        if nearer.iteration_s is None:
            return plan
        if bound_s is not None:  # it holds for every placement
            nearer = replace(nearer, iteration_lower_bound_s=min(bound_s, nearer.iteration_s))
    return nearer if isclose(value_of(nearer), value_of(plan), rel_tol=1e-9) else plan


def nearest_grid(plan: Plan, before: Plan | None, absent: Collection[str] = ()) -> IntArray:
    """Return the plan's (S, D) grid with interchangeable devices exchanged so that as many as possible keep their place
    in ``before``.

    A device in ``absent`` gets a place only if no other device of its class is left.
    """
    grid = plan.placement.devices.copy()
    topology = plan.topology
    shared = None if before is None else shared_stages(before.job, plan.job)
    old = {} if before is None else _places(before.topology, before.placement.devices)
    new = _places(topology, grid)
    of_device = device_classes(topology)
    for which in np.flatnonzero(np.bincount(of_device) > 1):
        names = [topology.names[device] for device in np.flatnonzero(of_device == which)]
        slots = sorted((new.get(name) for name in names), key=lambda slot: (slot is None, slot))
        kept = np.array([[_kept(old.get(name), slot, shared) for slot in slots] for name in names])
        # an absent device only gets a slot that no other device can take
        kept -= ABSENT * np.outer([name in absent for name in names], [slot is not None for slot in slots])
        steps = np.arange(len(names))
        kept -= REPLICA / 2 / len(names) ** 3 * (steps[:, None] - steps) ** 2  # a tie-break: less than one place
        for row, column in zip(*scipy.optimize.linear_sum_assignment(kept, maximize=True), strict=True):
            if (slot := slots[column]) is not None:
                grid[slot] = topology.index(names[row])
    return grid


def _places(topology: Topology, grid: IntArray) -> dict[str, tuple[int, int]]:
    return {topology.names[device]: (s, r) for (s, r), device in np.ndenumerate(grid)}


def _kept(was: tuple[int, int] | None, now: tuple[int, int] | None, shared: FloatArray | None) -> float:
    if was is None or now is None or shared is None:
        return STAGE * (was is now)
    return STAGE * float(shared[was[0], now[0]]) + REPLICA * (was[1] == now[1])


def shared_stages(before: Job, after: Job) -> FloatArray:
    """Return (S, S') shares: how much of stage j of ``after`` a device already holds if it had stage i of ``before``.

    Entry (i, j) is the fraction of stage j's parameters that stage i also has. If either job has no model, or the
    models differ, it is 1 for i = j and 0 otherwise.
    """
    if before.model is None or after.model is None or before.model.layers != after.model.layers:
        return np.eye(before.n_stages, after.n_stages)
    ends = np.cumsum([0, *(layer.parameters for layer in after.model.layers)])
    was, now = (ends[np.cumsum([0, *job.cut(job.n_stages)])] for job in (before, after))
    both = np.minimum(was[1:, None], now[None, 1:]) - np.maximum(was[:-1, None], now[None, :-1])
    return np.asarray(np.maximum(both, 0) / np.maximum(np.diff(now), 1))


@lru_cache(maxsize=256)  # many plans of one network are compared, and a replay of hours has a few hundred networks
def device_classes(topology: Topology) -> IntArray:
    """Return (N,) class of each device. Devices of one class have the same attributes, apart from name and position,
    and the same links to all others."""
    kinds = [replace(device, name="any", position=None) for device in topology.devices]
    known = list(dict.fromkeys(kinds))
    kind = np.array([[known.index(one)] for one in kinds], dtype=float)
    return interchangeable(kind, link_matrices(topology))


def starting_plans(plan: Plan, network: Topology) -> list[Plan]:
    """Return unpriced plans on ``network`` near an old plan, for a search to begin with. Devices are matched by name.

    The first is the old plan with its vacant places filled. If the network has too few devices, some pipelines are
    removed. Their devices fill vacant places of the same stage, and the nearest idle devices fill the rest. If used
    devices are gone, up to two more plans follow: the old plan without the pipelines that lost a device, and the old
    plan without the stages that lost one. Plans that the job does not allow are left out.
    """
    grid = _with_holes(plan, network)
    holes = np.array([[name is None for name in group] for group in grid])
    n_stages, n_replicas = holes.shape
    by_holes = np.argsort(holes.sum(axis=0), kind="stable")
    found = []
    for kept in dict.fromkeys((min(n_replicas, len(network) // n_stages), int((~holes).all(axis=0).sum()))):
        if kept:
            with suppress(LabError):  # such as a batch that this number of pipelines does not divide
                found.append(_with_pipelines(plan, network, grid, np.sort(by_holes[:kept])))
    stages = np.flatnonzero((~holes).all(axis=1))
    if 0 < len(stages) < n_stages:
        with suppress(LabError):
            rows = [[network.index(str(name)) for name in grid[stage]] for stage in stages]
            found.append(unpriced_plan(network, plan.job.with_fields(n_stages=len(stages)), np.array(rows)))
    return found


def _with_pipelines(plan: Plan, network: Topology, grid: list[list[str | None]], pipelines: IntArray) -> Plan:
    """Return the plan with only the pipelines of these indices, their vacant places filled. They take over all
    micro-batches."""
    kept: list[list[str | None]] = []
    for group in grid:
        # devices of the same stage in removed pipelines fill its vacant places first
        left_over = [name for r, name in enumerate(group) if name is not None and r not in pipelines]
        row = [group[r] for r in pipelines]
        kept.append([left_over.pop() if name is None and left_over else name for name in row])
    used = {name for row in kept for name in row}
    free = [name for name in network.names if name not in used]
    n_holes = sum(name is None for row in kept for name in row)
    free = _equals(plan, network, free, n_holes) or free
    job = plan.job
    if len(pipelines) < job.n_replicas:
        counts = np.array(job.microbatch_counts)
        shares = None if job.microbatches_per_replica is None else shared_out(counts[pipelines], int(counts.sum()))
        fewer = job.with_fields(n_replicas=len(pipelines))
        job = fewer.with_fields(microbatches_per_replica=shares, warmups=plan.job.warmups)
    return unpriced_plan(network, job, np.array(filled(kept, free, network, pair_costs(network, job))))


def _equals(plan: Plan, network: Topology, free: list[str], n_holes: int) -> list[str]:
    """Return the free devices that can replace a used device. Empty if there are too few to fill the vacant places.

    They have at least the smallest memory of the plan's devices, and at least ``NEARLY`` times their lowest speed.
    """
    job, old, new = plan.job, plan.topology.devices, network.devices
    grid = plan.placement.devices
    speed, wanted_speed = (np.array(speeds_of(job, devices, plan.efficiency)) for devices in (new, old))
    room, wanted_room = usable_bytes(job, new), usable_bytes(job, old)
    equal = (speed >= NEARLY * wanted_speed[grid].min()) & (room >= wanted_room[grid].min())
    found = [name for name in free if equal[network.index(name)]]
    return found if len(found) >= n_holes else []


def shared_out(counts: IntArray, total: int) -> tuple[int, ...]:
    """Return whole numbers that sum to ``total``. Each gets 1, and the rest is shared in proportion to ``counts`` by
    largest remainder."""
    exact = counts * (total - len(counts)) / max(counts.sum(), 1)
    whole = np.floor(exact).astype(np.int64)
    spare = total - len(counts) - int(whole.sum())
    whole[np.argsort(whole - exact, kind="stable")[:spare]] += 1
    return tuple((whole + 1).tolist())
