"""What each device is worth to a job: the cost of doing without it, less the cost with it at work.

A device that serves is taken out of the network and the job planned anew on the rest. A device that is
idle is put to work by the best exchange with one that serves. Either way one difference tells it::

    worth = cost without the device - cost with the device serving

Above zero the job needs it; zero, another is as good; below zero it does harm where it serves. Costs with
and without are of the same shape of the job and, as searches find them, both upper bounds: each gets the
same number of steps from a start as good as can be had quickly, and then the best exchanges of two devices
until none is left. So a worth is an estimate, and one below zero for a device that serves means that a
better plan without it was found: the plan was not the best.

Where every device serves, the job does not fit without one. Then it is cut to fewer replicas (the most
that its batch allows) and the question is asked of that smaller job, with and without the device; the
table says which shape its figures are for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from dtfm_lab.domain.errors import JobError, PlanError
from dtfm_lab.domain.job import Job
from dtfm_lab.domain.network import Topology
from dtfm_lab.domain.plan import Plan
from dtfm_lab.domain.units import IntArray
from dtfm_lab.planning.cost import pair_costs, total_costs
from dtfm_lab.planning.evaluate import evaluate, reshaped
from dtfm_lab.planning.explain.exchange_costs import SwapCosts, local_optimum
from dtfm_lab.planning.search import search

STEPS = 4
"""generations for each plan that is looked for, where the caller does not say"""
NEGLIGIBLE = 1e-6
"""share of the cost below which a worth counts as none"""
COLUMNS = ["device", "stage", "replica", "worth_s", "verdict", "without_s", "serving_s", "n_stages", "n_replicas"]

Verdict = Literal["helps", "makes no difference", "harms"]


@dataclass(frozen=True, eq=False, kw_only=True)
class DeviceWorth:
    """One device, the best plan found in which it serves and the best found without it."""

    device: str
    role: tuple[int, int] | None
    """stage and replica in the plan that is best with all devices at hand; None where that leaves it idle"""
    serving: Plan
    without: Plan

    @property
    def worth_s(self) -> float:
        """Cost without it less cost with it serving."""
        return self.without.cost.total_s - self.serving.cost.total_s

    @property
    def verdict(self) -> Verdict:
        if abs(self.worth_s) <= NEGLIGIBLE * self.without.cost.total_s:
            return "makes no difference"
        return "helps" if self.worth_s > 0 else "harms"


def worth(
    plan: Plan,
    planner: str = "evolutionary",
    *,
    seed: int = 0,
    steps: int | None = None,
    seconds: float | None = None,
) -> pd.DataFrame:
    """The table of ``stream_worth``, the most needed first; an interrupt keeps the rows so far."""
    rows: list[DeviceWorth] = []
    try:
        for row in stream_worth(plan, planner, seed=seed, steps=steps, seconds=seconds):
            rows.append(row)
    except KeyboardInterrupt:
        if not rows:
            raise
    return worth_table(rows)


def worth_table(rows: Iterable[DeviceWorth]) -> pd.DataFrame:
    """One row a device, the most needed first.

    device, stage, replica (in the best plan with all devices; missing where idle), worth_s, verdict,
    without_s, serving_s, and the shape that these are for: n_stages, n_replicas.
    """
    table = pd.DataFrame(
        [
            (
                row.device,
                *(row.role or (None, None)),
                row.worth_s,
                row.verdict,
                row.without.cost.total_s,
                row.serving.cost.total_s,
                row.without.job.n_stages,
                row.without.job.n_replicas,
            )
            for row in rows
        ],
        columns=COLUMNS,
    ).astype({"stage": "Int64", "replica": "Int64"})
    return table.sort_values("worth_s", ascending=False, kind="stable", ignore_index=True)


def stream_worth(
    plan: Plan,
    planner: str = "evolutionary",
    *,
    seed: int = 0,
    steps: int | None = None,
    seconds: float | None = None,
) -> Iterator[DeviceWorth]:
    """The worth of every device of the plan's network, one by one, in the topology's order.

    The plan itself is improved first, with the same budget as all others.

    Parameters
    ----------
    steps, seconds
        Of search for each plan that is looked for, as in ``search``; 4 steps without either. With steps
        alone the rows depend on nothing but the seed.

    Raises
    ------
    PlanError
        A network of one device; a job that cannot be made smaller; limits out of range.
    UnknownName
        No such planner.
    """
    if steps is None and seconds is None:
        steps = STEPS
    search(plan.topology, plan.job, planner, seed=seed, steps=steps, seconds=seconds)  # refuses before the first row
    start = plan if plan.idle_devices else _smaller(plan)

    def improved(topology: Topology, begin: Plan) -> Plan:
        # not planning.plan: that keeps its best on an interrupt, which would go on with the next device
        *_, last = search(topology, begin.job, planner, seed=seed, steps=steps, seconds=seconds, start=begin)
        better = min(begin, last.plan, key=lambda one: one.cost.total_s)
        local = _given(topology, begin.job, local_optimum(better.placement.devices, pair_costs(topology, begin.job)))
        return min(better, local, key=lambda one: one.cost.total_s)

    return _worths(start, improved)


Improve = Callable[[Topology, Plan], Plan]
"""finds a plan on a topology that has all devices of the one to begin with, no worse than that"""


def _worths(start: Plan, improved: Improve) -> Iterator[DeviceWorth]:
    best = improved(start.topology, start)
    topology, grid = best.topology, best.placement.devices
    swaps = SwapCosts(grid, pair_costs(topology, best.job))
    idle = np.array(best.idle_devices)
    for device, name in enumerate(topology.names):
        if device in best.idle_devices:
            swap = swaps.best(device)
            assert swap is not None, "an idle device can take any place"
            forced = _given(topology, best.job, swaps.exchanged(device, swap.partner))
            yield DeviceWorth(device=name, role=None, serving=forced, without=best)
            continue
        swap = swaps.best(device, idle)
        assert swap is not None, "a device is idle"
        rest = topology.subset(other for other in topology.names if other != name)
        filled = _given(topology, best.job, swaps.exchanged(device, swap.partner))
        begin = evaluate(rest, best.job, stages=filled.stages)
        ((stage, replica),) = np.argwhere(grid == device).tolist()
        yield DeviceWorth(device=name, role=(stage, replica), serving=best, without=improved(rest, begin))


def _given(topology: Topology, job: Job, grid: IntArray) -> Plan:
    return evaluate(topology, job, stages=grid.tolist())


def _smaller(plan: Plan) -> Plan:
    """The plan cut to the most replicas below its own that the job allows; one of one replica, to fewer stages.

    Pipelines (of one replica: stages at either end) go one by one, each time the one that leaves the cheapest.
    """
    job = plan.job
    fewer = [(job.n_stages, n) for n in range(job.n_replicas - 1, 0, -1)]
    if job.n_replicas == 1:
        fewer = [(n, 1) for n in range(job.n_stages - 1, 0, -1)]
    for shape in fewer:
        try:
            smaller = reshaped(job, *shape)
        except JobError:
            continue
        return _given(plan.topology, smaller, _cut(plan, smaller))
    raise PlanError(
        f"{job.n_stages} x {job.n_replicas} uses every device of {plan.topology.name}, and {job.name} allows no "
        f"smaller shape; wanted a job that can do without a device"
    )


def _cut(plan: Plan, job: Job) -> IntArray:
    grid, pair = plan.placement.devices, pair_costs(plan.topology, job)
    while grid.shape != (job.n_stages, job.n_replicas):
        columns = grid.shape[1] > job.n_replicas
        rest = (
            [np.delete(grid, column, axis=1) for column in range(grid.shape[1])] if columns else [grid[1:], grid[:-1]]
        )
        grid = rest[int(total_costs(np.array(rest), pair).argmin())]
    return grid
