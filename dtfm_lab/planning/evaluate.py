"""Plans of given placements: priced as the user gives them, adapted from a plan of another network or job, or, of plans
that cost the same by symmetry, the one that moves fewest devices.

``nearest``: a search does not know which of sixteen equal GPUs of a city stood where before: it may hand back the old
plan with all of them exchanged. Devices with the same attributes and the same links to all others can change places
without changing any cost, so each class of them is laid over its old places by an assignment.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import isclose
from typing import Any

import numpy as np
import scipy

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.units import FloatArray, IntArray
from dtfm_lab.planning.bounds.lower_bound import lower_bound_s
from dtfm_lab.planning.communication_search import require_fit
from dtfm_lab.planning.cost import PairCosts, align, coarsened_weights, pair_costs, price_placement, shortest_path
from dtfm_lab.planning.interchangeable import interchangeable, link_matrices
from dtfm_lab.planning.objectives import network_of, objectives
from dtfm_lab.simulation.simulate import iteration_seconds

Groups = Sequence[Sequence[int | str]]


def evaluate(
    topology: Topology,
    job: Job,
    *,
    stages: Groups | None = None,
    rank_map: Sequence[int | None] | None = None,
    groups: Groups | None = None,
) -> Plan:
    """The plan of a given placement; its planner is named ``given``, its job takes the placement's shape.

    On a network of single GPUs with hosts, a job with tensor parallelism is placed on groups (``topology.grouped``).

    In its own shape the job keeps its cut, its warm-ups and the micro-batches of each pipeline. Pipeline r is the one
    that begins with the r-th device of the first stage. A job without a micro-batch gets one of one sequence.

    Parameters
    ----------
    stages
        Devices (indices or names) of each stage, first stage first. The stage order is kept; neighbouring
        groups are paired by the bottleneck matching.
    rank_map
        Rank of each device, pipeline x n_stages + stage, or None where idle. The pipelines are kept as given.
    groups
        Data-parallel groups in any order; the best stage order is found, and pipelines as for ``stages``.

    Raises
    ------
    PlanError
        Not exactly one of the three, groups of unequal size, a device given twice, ranks that are
        not 0 to n - 1 once each.
    TopologyError, UnknownName
        A device out of range, or of a name that the topology does not have.
    JobError
        A shape that the job's model or batch does not allow.
    """
    given = {"stages": stages, "rank_map": rank_map, "groups": groups}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        raise PlanError(f"{' and '.join(named) or 'nothing'} given; wanted exactly one of stages, rank_map, groups")
    topology, job = network_of(topology, job)
    if rank_map is not None:
        grid, job = _from_ranks(topology, job, rank_map)
    else:
        grid = _grid(topology, given[named[0]])
        job = reshaped(job, *grid.shape)
        hop_s = pair_costs(topology, job).hop_s
        order = np.arange(len(grid)) if stages is not None else shortest_path(coarsened_weights(grid, hop_s))
        grid = align(grid, order, hop_s)
    return Plan(
        topology=topology,
        job=job,
        placement=Placement(grid),
        cost=price_placement(topology, job, grid),
        lower_bound_s=lower_bound_s(topology, job),
        planner="given",
    )


def simulated(plan: Plan) -> Plan:
    """The plan with the seconds of its iteration, where its job has a model that its shape and schedule allow."""
    if plan.iteration_s is not None or plan.job.model is None:
        return plan
    try:
        return plan.changed(iteration_s=iteration_seconds(plan))
    except LabError:  # what the model or the schedule does not allow can still be priced
        return plan


def reshaped(job: Job, n_stages: int, n_replicas: int) -> Job:
    """The job with these numbers of stages and replicas. Raises JobError where it does not divide."""
    if job.shaped and (job.n_stages, job.n_replicas) == (n_stages, n_replicas):
        return job
    return job.with_fields(n_stages=n_stages, n_replicas=n_replicas, microbatch=job.microbatch or 1)


def _grid(topology: Topology, groups: Any) -> IntArray:
    if not _is_list(groups) or not all(_is_list(group) for group in groups):
        raise PlanError(f"placement is {groups!r}; wanted a list of groups, each a list of devices")
    sizes = [len(group) for group in groups]
    if not sizes or min(sizes) == 0 or len(set(sizes)) > 1:
        found = ", ".join(map(str, sizes)) or "no"
        raise PlanError(f"groups of {found} devices; wanted equal sizes, one device at least")
    return Placement(np.array([[topology.at(d) for d in group] for group in groups])).devices


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)


def _from_ranks(topology: Topology, job: Job, rank_map: Sequence[int | None]) -> tuple[IntArray, Job]:
    if not _is_list(rank_map):
        raise PlanError(f"rank map is {rank_map!r}; wanted a list with a rank, or None, for each device")
    if len(rank_map) != len(topology):
        raise PlanError(f"rank map of {len(rank_map)} entries; {topology.name} has {len(topology)} devices")
    device_of: dict[int, int] = {}
    for device, rank in enumerate(rank_map):
        if rank is None:
            continue
        if isinstance(rank, bool) or not isinstance(rank, int | np.integer):
            raise PlanError(f"rank {rank!r} of device {device} is not a whole number; wanted one, or None where idle")
        if rank in device_of:
            raise PlanError(f"rank {rank} is given to devices {device_of[rank]} and {device}; wanted each rank once")
        device_of[int(rank)] = device
    n_ranks = len(device_of)
    if job.n_stages is None:
        raise PlanError(f"job {job.name} leaves its stages open, which a rank map does not tell; wanted n_stages")
    if not n_ranks or n_ranks % job.n_stages:
        raise PlanError(f"rank map of {n_ranks} ranks; wanted a multiple of the job's {job.n_stages} stages")
    if missing := set(range(n_ranks)) - set(device_of):
        raise PlanError(f"rank map of {n_ranks} ranks lacks rank {min(missing)}; wanted 0 to {n_ranks - 1}")
    pipelines = np.array([device_of[rank] for rank in range(n_ranks)]).reshape(-1, job.n_stages)
    return np.ascontiguousarray(pipelines.T), reshaped(job, job.n_stages, len(pipelines))


def adapt_plan(plan: Plan, topology: Topology, job: Job) -> Plan:
    """The placement of ``plan`` on another network, for another job; devices are found by name.

    In the same shape every device that still exists keeps its place, and a vacant place goes to the free device
    that is nearest to its group and to its neighbours in the pipeline. Pipelines are paired anew for the communication
    cost, or stay where the plan is for another objective, or its pipelines have different numbers of micro-batches.
    In another shape the devices are listed stage by stage, then those without a place, and the list is cut into the new
    stages. What the job leaves open is as the plan's job has it.

    Raises
    ------
    PlanError
        The job needs more devices than there are.
    """
    topology, job = network_of(topology, _as_planned(job, plan.job))
    require_fit(topology, job)
    existing = set(topology.names)
    placed = [[name if name in existing else None for name in group] for group in plan.stages]
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


def _as_planned(job: Job, planned: Job) -> Job:
    """The job with what it leaves open as in a planned one: shape and micro-batch, and what was chosen for these."""
    left = {what: getattr(planned, what) for what in ("tensor_parallel", "sharding") if getattr(job, what) is None}
    job = job.with_fields(**left) if left else job
    shape = ("n_stages", "n_replicas", "microbatch")
    taken = {name: getattr(planned, name) for name in shape if getattr(job, name) is None}
    same = all(getattr(planned, name) == taken.get(name, getattr(job, name)) for name in shape)
    if same and (job.model, job.global_batch) == (planned.model, planned.global_batch):
        chosen = ("blocks_per_stage", "microbatches_per_replica", "schedule", "warmups")
        taken |= {name: getattr(planned, name) for name in chosen if getattr(job, name) is None}
        if job.checkpointing is None and not job.recompute:
            taken |= {"recompute": planned.recompute, "checkpointing": planned.checkpointing}
    return job.with_fields(**taken) if taken else job


def filled(placed: list[list[str | None]], free: list[str], topology: Topology, pair: PairCosts) -> list[list[int]]:
    """Device indices by stage; vacant places are filled in the order of the stages, by the nearest free device."""
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


STAGE, REPLICA = 2.0, 1.0
"""What keeping a device's stage is worth, and its pipeline."""


def nearest(plan: Plan, before: Plan | None) -> Plan:
    """``plan``, its interchangeable devices exchanged so that most of them keep the stage they have in ``before``.

    Of those that keep none, the earlier device has the earlier stage, so that order is seen as order; all do where
    there is no plan before. Devices are found by name. The plan itself where nothing is nearer, and where the exchange
    turns out to change its value after all.
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
    value = objectives[plan.objective].value
    return nearer if isclose(value(nearer), value(plan), rel_tol=1e-9) else plan


def nearest_grid(plan: Plan, before: Plan | None) -> IntArray:
    """(S, D) grid of the plan in which each class of interchangeable devices is laid over its old places."""
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
        steps = np.arange(len(names))
        kept -= REPLICA / 2 / len(names) ** 3 * (steps[:, None] - steps) ** 2  # in all less than any place kept
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
    """(S, S') share of each later stage's parameters that each earlier stage has, too; 1 where it is the same stage.

    Stages of jobs of message sizes only, or of two models, are the same where their numbers are.
    """
    if before.model is None or after.model is None or before.model.layers != after.model.layers:
        return np.eye(before.n_stages, after.n_stages)
    ends = np.cumsum([0, *(layer.parameters for layer in after.model.layers)])
    was, now = (ends[np.cumsum([0, *job.cut(job.n_stages)])] for job in (before, after))
    both = np.minimum(was[1:, None], now[None, 1:]) - np.maximum(was[:-1, None], now[None, :-1])
    shared: FloatArray = np.maximum(both, 0) / np.maximum(np.diff(now), 1)
    return shared


@lru_cache(maxsize=8)  # of one network, many plans are compared
def device_classes(topology: Topology) -> IntArray:
    """(N,) class of each device: those of one class have the same attributes and the same links to all others."""
    kinds = [replace(device, name="any", position=None) for device in topology.devices]
    known = list(dict.fromkeys(kinds))
    kind = np.array([[known.index(one)] for one in kinds], dtype=float)
    return interchangeable(kind, link_matrices(topology))
