"""Plans of given placements, priced as the user gives them."""

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


def why_not_simulated(plan: Plan) -> str:
    """What of a plan's model or schedule does not allow to simulate its iteration; empty where something does, or where
    the job has no model."""
    if plan.iteration_s is None and plan.job.model is not None:
        try:
            iteration_seconds(plan)
        except LabError as error:
            return str(error)
    return ""


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
        raise PlanError(f"rank map of {len(rank_map)} entries; {topology.name} has {counted(len(topology), 'device')}")
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
        stages = counted(job.n_stages, "stage")
        raise PlanError(f"rank map of {counted(n_ranks, 'rank')}; wanted a multiple of the job's {stages}")
    if missing := set(range(n_ranks)) - set(device_of):
        raise PlanError(f"rank map of {counted(n_ranks, 'rank')} lacks rank {min(missing)}; wanted 0 to {n_ranks - 1}")
    pipelines = np.array([device_of[rank] for rank in range(n_ranks)]).reshape(-1, job.n_stages)
    return np.ascontiguousarray(pipelines.T), reshaped(job, job.n_stages, len(pipelines))


SHAPE = ("n_stages", "n_replicas", "blocks_per_stage", "microbatches_per_replica", "warmups")
SETTLED = ("tensor_parallel", "sharding", "synchronisation", "overlap")
"""Left as the plan has them: its network is one of groups, and states are split and averaged as they were."""


def opened(plan: Plan) -> Job:
    """A plan's job with everything open that was open to its search, and the shape, for a network of another size.

    Where that is not known, the micro-batch is as it was and the rest is open. The sizes of a job's messages are for
    its shape, so that a plan for the communication cost keeps it.
    """
    if plan.objective == "communication":
        return plan.job
    left = ("schedule", "checkpointing", "recompute") if plan.left_open is None else plan.left_open
    return plan.job.freed(*SHAPE, *(what for what in left if what not in SETTLED))


def fitting_seconds(plan: Plan) -> float | None:
    """Simulated seconds of an iteration; None where the plan does not fit the memory of its devices."""
    return iteration_seconds(plan) if memory(plan).fits else None


def placed(
    plan: Plan,
    grid: IntArray,
    job: Job,
    topology: Topology | None = None,
    *,
    seconds_of: Callable[[Plan], float | None] = fitting_seconds,
) -> Plan | None:
    """The plan with another grid of devices, simulated, or its pipelines paired anew where it is for the communication
    cost; None where it does not fit or cannot be."""
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
