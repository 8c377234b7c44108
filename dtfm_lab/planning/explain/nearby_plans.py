"""Plans near a given one, simulated or priced: with one device more, or with one less."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from dtfm_lab.domain.errors import LabError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Placement, Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.bounds.lower_bound import quick_bound_s
from dtfm_lab.planning.cost import pair_costs, price_placement
from dtfm_lab.planning.evaluate import evaluate
from dtfm_lab.planning.explain.communication import SwapCosts
from dtfm_lab.planning.objectives import objectives
from dtfm_lab.simulation.efficiency import speeds_of
from dtfm_lab.simulation.memory import memory
from dtfm_lab.simulation.simulate import iteration_seconds

MOST_STAGES = 4
"""Stages in which a device is tried, those of least work first."""
HALVINGS = 4
"""Times that the micro-batches of a slow device's pipeline are halved, as long as that helps."""


SHAPE = ("n_stages", "n_replicas", "blocks_per_stage", "microbatches_per_replica", "warmups")
SETTLED = ("tensor_parallel", "sharding")
"""Left as the plan has them: its network is one of groups, and states are split as they were."""


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


def value(plan: Plan) -> float:
    """What a plan was made for: seconds of its iteration or of its communication cost, or dollars a billion tokens."""
    return objectives[plan.objective].value(plan)


def seconds(plan: Plan | None) -> float:
    """Seconds of a plan's iteration, or of the communication cost that it was made for; NaN for no plan."""
    if plan is None:
        return np.nan
    return plan.cost.total_s if plan.objective == "communication" or plan.iteration_s is None else plan.iteration_s


def best_of(plans: Iterable[Plan | None]) -> Plan | None:
    """The plan of least seconds or dollars; None where there is none."""
    return min((plan for plan in plans if plan is not None), key=value, default=None)


def with_device(plan: Plan, device: int) -> Plan | None:
    """The best of some plans in which an idle device serves: in another's place, and with as much work as pays.

    Tried are the stages of least work, in the pipeline of the slowest device there; with one stage also a pipeline of
    its own. None where it fits nowhere. For the communication cost it is the cheapest exchange with one that serves.
    """
    if plan.objective == "communication":
        swaps = SwapCosts(plan.placement.devices, pair_costs(plan.topology, plan.job))
        swap = swaps.best(device)
        return None if swap is None else placed(plan, swaps.exchanged(device, swap.partner), plan.job)
    best = best_of(_with_device(plan, device))
    if best is None:
        return None
    (replica,) = np.argwhere(best.placement.devices == device)[:, 1]
    for _ in range(HALVINGS):
        count = best.job.microbatch_counts[int(replica)]
        if best.job.n_replicas == 1 or count == 1:
            break
        shares = shares_with(best.job.microbatch_counts, int(replica), count // 2)
        job = best.job.with_fields(microbatches_per_replica=shares)
        fewer = placed(best, best.placement.devices, job)
        if fewer is None or value(fewer) >= value(best):
            break
        best = fewer
    return best


def _with_device(plan: Plan, device: int) -> Iterator[Plan | None]:
    grid, job = plan.placement.devices, plan.job
    speed = np.array(speeds_of(job, plan.topology.devices, plan.efficiency))
    work = np.array([sum(layer.forward_flop for layer in layers) for layers in job.stage_layers])
    for stage in np.argsort(work, kind="stable")[:MOST_STAGES]:
        replica = int(speed[grid[stage]].argmin())
        other = grid.copy()
        other[stage, replica] = device
        slower = min(1.0, float(speed[device] / speed[grid[stage, replica]]))
        yield placed(plan, other, _with_share(job, replica, slower))
    if job.n_stages == 1 and job.n_replicas < sum(job.microbatch_counts):
        counts = np.append(np.array(job.microbatch_counts), 0)
        more = job.with_fields(n_replicas=job.n_replicas + 1)
        count = round(sum(job.microbatch_counts) * float(speed[device] / speed[[*grid[0], device]].sum()))
        shares = shares_with(tuple(counts.tolist()), job.n_replicas, max(1, count))
        row = np.append(grid[0], device)[None, :]
        yield placed(plan, row, more.with_fields(microbatches_per_replica=shares, warmups=job.warmups))


def without_device(plan: Plan, device: int) -> Plan | None:
    """The best of some plans without a device that serves: another in its place, or its pipeline left out.

    On the network without the device. None where none of them fits.
    """
    rest = [d for d in range(len(plan.topology)) if d != device]
    position = np.full(len(plan.topology), -1)
    position[rest] = np.arange(len(rest))
    network = plan.topology.subset(rest)
    return best_of(placed(plan, position[grid], job, network) for grid, job in _without_device(plan, device))


def _without_device(plan: Plan, device: int) -> Iterator[tuple[IntArray, Job]]:
    grid, job = plan.placement.devices, plan.job
    ((stage, replica),) = np.argwhere(grid == device).tolist()
    if plan.objective == "communication":
        swaps = SwapCosts(grid, pair_costs(plan.topology, job))
        swap = swaps.best(device, np.array(plan.idle_devices, dtype=np.int64))
        if swap is not None:
            yield swaps.exchanged(device, swap.partner), job
        return
    speed = speeds_of(job, plan.topology.devices, plan.efficiency)
    idle = plan.idle_devices
    likely = {max(idle, key=lambda d: speed[d]), min(idle, key=lambda d: abs(speed[d] - speed[device]))} if idle else ()
    for other in sorted(likely):
        filled = grid.copy()
        filled[stage, replica] = other
        yield filled, _with_share(job, replica, min(1.0, speed[other] / speed[device]))
    if job.n_replicas > 1:
        counts = np.delete(np.array(job.microbatch_counts), replica)
        fewer = job.with_fields(n_replicas=job.n_replicas - 1)
        shares = shared_out(counts, sum(job.microbatch_counts))
        yield np.delete(grid, replica, axis=1), fewer.with_fields(microbatches_per_replica=shares, warmups=job.warmups)


def _with_share(job: Job, replica: int, factor: float) -> Job:
    """The job with a factor on the micro-batches of one pipeline."""
    if job.n_replicas == 1 or factor >= 1:
        return job
    count = max(1, round(job.microbatch_counts[replica] * factor))
    return job.with_fields(microbatches_per_replica=shares_with(job.microbatch_counts, replica, count))


def shares_with(counts: tuple[int, ...], replica: int, count: int) -> tuple[int, ...]:
    """Micro-batches of each pipeline with so many for one of them, the others in proportion to what they had."""
    others = np.delete(np.array(counts), replica)
    count = min(count, sum(counts) - len(others))
    return tuple(np.insert(np.array(shared_out(others, sum(counts) - count)), replica, count).tolist())


def shared_out(counts: IntArray, total: int) -> tuple[int, ...]:
    """Whole numbers of 1 or more, in proportion to these and of this sum: by largest remainder."""
    exact = counts * (total - len(counts)) / max(counts.sum(), 1)
    whole = np.floor(exact).astype(np.int64)
    spare = total - len(counts) - int(whole.sum())
    whole[np.argsort(whole - exact, kind="stable")[:spare]] += 1
    return tuple((whole + 1).tolist())
