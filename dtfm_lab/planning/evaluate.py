"""Make plans of given placements, simulate plans, and open a plan's job for another search."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dtfm_lab.domain.errors import LabError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.units import IntArray, counted
from dtfm_lab.planning.cost import (
    align,
    coarsened_weights,
    lower_bound_s,
    pair_costs,
    price_placement,
    quick_bound_s,
    shortest_path,
)
from dtfm_lab.planning.search import network_of
from dtfm_lab.simulation.memory import memory
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
    """Return the plan of a given placement. Its planner is ``given``, and its job takes the placement's shape.

    On a network of single GPUs with hosts, a job with tensor parallelism is placed on groups (``topology.grouped``). If
    the shape is the job's, the job keeps its cut, its warm-ups and the micro-batches of each pipeline. Pipeline r
    begins with the r-th device of the first stage. A job without a micro-batch gets one sequence per micro-batch.

    Parameters
    ----------
    stages
        Devices (indices or names) of each stage, first stage first. The stage order is kept; neighbouring
        groups are paired by the bottleneck matching.
    rank_map
        Rank of each device, pipeline x n_stages + stage; None for an idle device. The pipelines are kept as given. The
        job has to state its stages.
    groups
        Data-parallel groups in any order. The best stage order is found; pipelines are paired as for ``stages``.

    Raises
    ------
    PlanError
        Not exactly one of the three is given, groups differ in size, or a device is given twice. A rank map does not
        have one entry per device, its ranks are not 0 to n - 1 once each, or they do not fill the job's stages.
    TopologyError, UnknownName
        A device is out of range, or the topology has no device of that name.
    JobError
        The job's model or batch does not allow the shape.
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
    """Return the plan with its simulated iteration time. Return it unchanged if it has one, or if it cannot be
    simulated."""
    if plan.iteration_s is not None or plan.job.model is None:
        return plan
    try:
        return plan.changed(iteration_s=iteration_seconds(plan))
    except LabError:  # the plan can be priced even if the model or the schedule cannot be simulated
        return plan


def why_not_simulated(plan: Plan) -> str:
    """Return why the iteration of a plan cannot be simulated. Empty if it can, or if the job has no model."""
    if plan.iteration_s is None and plan.job.model is not None:
        try:
            iteration_seconds(plan)
        except LabError as error:
            return str(error)
    return ""


def reshaped(job: Job, n_stages: int, n_replicas: int) -> Job:
    """Return the job with these numbers of stages and replicas. An open micro-batch becomes one sequence. Raises
    JobError if the numbers do not divide the job's model or batch."""
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
        raise PlanError(f"rank map is {rank_map!r}; wanted a list with a rank for each device, None if idle")
    if len(rank_map) != len(topology):
        raise PlanError(f"rank map of {len(rank_map)} entries; {topology.name} has {counted(len(topology), 'device')}")
    device_of: dict[int, int] = {}
    for device, rank in enumerate(rank_map):
        if rank is None:
            continue
        # True is an int in Python, but not a rank
        if isinstance(rank, bool) or not isinstance(rank, int | np.integer):
            raise PlanError(f"rank {rank!r} of device {device} is not a whole number; wanted one, or None if idle")
        if rank in device_of:
            raise PlanError(f"rank {rank} is given to devices {device_of[rank]} and {device}; wanted each rank once")
        device_of[int(rank)] = device
    n_ranks = len(device_of)
    if job.n_stages is None:
        raise PlanError(f"job {job.name} leaves its stages open, and a rank map does not state them; wanted n_stages")
    if not n_ranks or n_ranks % job.n_stages:
        stages = counted(job.n_stages, "stage")
        raise PlanError(f"rank map of {counted(n_ranks, 'rank')}; wanted a multiple of the job's {stages}")
    if missing := set(range(n_ranks)) - set(device_of):
        raise PlanError(f"rank map of {counted(n_ranks, 'rank')} lacks rank {min(missing)}; wanted 0 to {n_ranks - 1}")
    # ranks count along pipelines, but the rows of a grid are stages
    pipelines = np.array([device_of[rank] for rank in range(n_ranks)]).reshape(-1, job.n_stages)
    return np.ascontiguousarray(pipelines.T), reshaped(job, job.n_stages, len(pipelines))


SHAPE = ("n_stages", "n_replicas", "blocks_per_stage", "microbatches_per_replica", "warmups")
SETTLED = ("tensor_parallel", "sharding", "synchronisation", "overlap")
"""Fields that ``opened`` keeps as the plan has them. The plan's network may already be one of device groups, and the
parameters and optimizer states stay sharded and averaged as before."""


def opened(plan: Plan) -> Job:
    """Return the plan's job with its shape open, and with all other fields open that were open in the plan's search.
    The job can then be planned on a network of another size.

    The fields of ``SETTLED`` are kept. If it is unknown which fields were open, the schedule and the recomputation are
    opened, and the micro-batch is kept. A plan for the communication cost keeps its shape, because the job's message
    sizes depend on it.
    """
    if plan.objective == "communication":
        return plan.job
    left = ("schedule", "checkpointing", "recompute") if plan.left_open is None else plan.left_open
    return plan.job.freed(*SHAPE, *(what for what in left if what not in SETTLED))


def fitting_seconds(plan: Plan) -> float | None:
    """Return the simulated seconds of an iteration; None if the plan does not fit the memory of its devices."""
    return iteration_seconds(plan) if memory(plan).fits else None


def placed(
    plan: Plan,
    grid: IntArray,
    job: Job,
    topology: Topology | None = None,
    *,
    seconds_of: Callable[[Plan], float | None] = fitting_seconds,
) -> Plan | None:
    """Return the plan with another grid of devices, simulated; None if it does not fit the memory or is impossible.

    A plan for the communication cost is priced instead, with its pipelines paired again.
    """
    network = plan.topology if topology is None else topology
    try:
        if plan.objective == "communication":
            return evaluate(network, job, stages=grid.tolist())
        other = plan.changed(
            topology=network,
            job=job,
            placement=Placement(grid),
            cost=price_placement(network, job, grid),
            lower_bound_s=quick_bound_s(network, job),
        )
        iteration_s = seconds_of(other)
        return None if iteration_s is None else other.changed(iteration_s=iteration_s)
    except LabError:  # such as a schedule that does not fit the shape
        return None
